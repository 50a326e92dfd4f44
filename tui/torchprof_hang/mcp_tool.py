"""The MCP tool of `hang`: its arguments, and how it is answered."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from msgspec import Meta

from torchprof_hang.answers import build_hang
from torchprof_hang.command import HangOptions
from torchprof_hang.command.files import read_evidence
from torchprof_tui.answers.record import as_fields
from torchprof_tui.commands.mcp.answers import Answerer, ToolEntry, build_options
from torchprof_tui.commands.mcp.bounded_text import clean_values, write_bounded
from torchprof_tui.commands.mcp.questions import DEFAULT_ROWS, Question, RowLimit


class HangQuestion(Question, frozen=True, kw_only=True):
    trace: Annotated[str, Meta(description="folder with the dumps, stacks and logs of a job that hangs")]
    limit: RowLimit = DEFAULT_ROWS


def answer_hang(answerer: Answerer, asked: HangQuestion) -> str:
    """Find why the job hangs whose dumps are in a folder of the server."""
    found = answerer.folders.find_trace(asked.trace)
    options, command = build_options(partial(HangOptions, source=(found.spec,), top=asked.limit, json=True))
    fields = as_fields(build_hang(read_evidence([found.path]), options.top))
    del fields["schema"]
    answer = {"command": command, **fields}
    return write_bounded(clean_values(answer), asked.max_tokens, "ask with a smaller limit or a larger max_tokens")


TOOLS = {
    "hang": ToolEntry(
        HangQuestion,
        answer_hang,
        "Why a job hangs: which rank did not come to a collective, at which line, and who waits for it.",
    )
}
