"""The MCP tool of `attach`: lists running jobs; recording is left to people."""

from __future__ import annotations

from functools import partial

from torchprof_attach.answers import build_attach
from torchprof_attach.command import AttachOptions
from torchprof_attach.session import Session
from torchprof_tui.answers.record import as_fields
from torchprof_tui.commands.mcp.answers import Answerer, ToolEntry, build_options
from torchprof_tui.commands.mcp.bounded_text import clean_values, pack_records, write_bounded
from torchprof_tui.commands.mcp.questions import Question


class AttachQuestion(Question, frozen=True, kw_only=True):
    """Lists the processes of this host."""


def answer_attach(answerer: Answerer, asked: AttachQuestion) -> str:
    """List the processes of this host that could be recorded."""
    with Session() as session:
        session.connect()
        jobs = session.list_jobs()
        answer = build_attach(jobs, (), session.problems)
    _, command = build_options(partial(AttachOptions, list=True, json=True))
    fields = as_fields(answer)
    for record, job in zip(fields["jobs"], jobs, strict=True):
        record["command"] = job.program  # the arguments of a program may hold secrets
    packed = {"command": command, "jobs": pack_records(fields["jobs"]), "unreachable": fields["unreachable"]}
    record = "torchprof-tui attach PID --steps 5 -o trace.json (a person decides)"
    return write_bounded(clean_values({**packed, "record": record}), asked.max_tokens, "ask with a larger max_tokens")


TOOLS = {
    "attach": ToolEntry(
        AttachQuestion,
        answer_attach,
        "Running jobs of the user on this host that can be recorded without a restart, and how.",
    )
}
