"""The MCP tool of `fleet`: its arguments, and how it is answered."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from msgspec import Meta

from torchprof_fleet.answers import build_fleet
from torchprof_fleet.command import FleetOptions
from torchprof_fleet.command.main import compare_sources
from torchprof_tui.answers.record import as_fields
from torchprof_tui.commands.mcp.answers import Answerer, ToolEntry, build_options
from torchprof_tui.commands.mcp.bounded_text import clean_values, pack_records, write_bounded
from torchprof_tui.commands.mcp.questions import DEFAULT_ROWS, Question, RowLimit

_LISTS = ("faults", "what_if", "slowest_ranks", "slowest_hosts", "slowest_steps")


class FleetQuestion(Question, frozen=True, kw_only=True):
    trace: Annotated[str, Meta(description="folder with the traces of all ranks of a job")]
    limit: RowLimit = DEFAULT_ROWS


def answer_fleet(answerer: Answerer, asked: FleetQuestion) -> str:
    """Compare the ranks in a folder of the server."""
    found = answerer.folders.find_trace(asked.trace)
    report, kept = compare_sources([found.path])
    options, command = build_options(partial(FleetOptions, source=(found.spec,), top=asked.limit, json=True))
    fields = as_fields(build_fleet(report, options.top, kept))
    del fields["schema"]
    answer = {"command": command, **fields, **{name: pack_records(fields[name]) for name in _LISTS}}
    return write_bounded(clean_values(answer), asked.max_tokens, "ask with a smaller limit or a larger max_tokens")


TOOLS = {
    "fleet": ToolEntry(
        FleetQuestion,
        answer_fleet,
        "All ranks of a job compared: which host, GPU or rank is slow or late, and what the job would take without it.",
    )
}
