"""The MCP tool of `try`: repeats the run that recorded a trace, within limits of time and runs.

An agent names a trace, never a command: what is run is what this user has run before, by its signed request.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Annotated

from msgspec import Meta

from torchprof_try.answers import build_tried
from torchprof_try.command import LEAST_RUNS, TryOptions
from torchprof_try.command.main import build_request
from torchprof_try.trials import Trials, is_recorded_run
from torchprof_tui.answers.record import as_fields
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.mcp.answers import Answerer, ToolEntry, build_options
from torchprof_tui.commands.mcp.bounded_text import clean_values, pack_records, write_bounded
from torchprof_tui.commands.mcp.questions import Question, TracePath
from torchprof_tui.trace.core.errors import TraceError

MAX_SECONDS, MAX_RUNS, PROCESS_SECONDS = 1800, 60, 20
"""Limits of one question, and of the measured steps of one process."""


class TryQuestion(Question, frozen=True, kw_only=True):
    trace: TracePath
    only: Annotated[
        list[str], Meta(max_length=40, description="names of remedies; []: those that the trace suggests")
    ] = []
    max_runs: Annotated[
        int, Meta(ge=LEAST_RUNS, le=MAX_RUNS, description="how often the program is started at most")
    ] = 12
    max_seconds: Annotated[
        int, Meta(ge=1, le=MAX_SECONDS, description="after so many seconds no further run begins")
    ] = 300


def answer_try(answerer: Answerer, asked: TryQuestion) -> str:
    """Repeat the run of a trace with remedies, and measure what each saves."""
    found = answerer.folders.find_trace(asked.trace)
    if not is_recorded_run((found.path,)):
        raise UsageError(f"{asked.trace}: name the file of a trace whose run can be repeated")
    make = partial(
        TryOptions,
        command=(found.path,),
        json=True,
        only=",".join(asked.only) or None,
        max_runs=asked.max_runs,
        max_time=asked.max_seconds,
        time_limit=PROCESS_SECONDS,
        repeat=0,
    )
    options, _ = build_options(make)
    _, command = build_options(partial(make.func, **{**make.keywords, "command": (found.spec,)}))
    try:
        with contextlib.closing(Trials(build_request(options))) as trials:
            for _ in trials.run():
                pass
            fields = as_fields(build_tried(trials))
    except TraceError as error:
        raise UsageError(str(error)) from error
    answer = {
        "command": command,
        **{name: fields[name] for name in ("device", "verdict", "baseline_us", "complete")},
        "remedies": pack_records(fields["remedies"]),
    }
    return write_bounded(clean_values(answer), asked.max_tokens, "ask for fewer remedies or a larger max_tokens")


TOOLS = {
    "try": ToolEntry(
        TryQuestion,
        answer_try,
        "What remedies really save: repeats the run that recorded a trace with each, and measures it. Takes minutes; "
        "only runs that the user has made with torchprof-tui run; nothing is changed, the diffs are for review.",
        writes=True,
    )
}
