"""Declare the options of `torchprof-tui critical-path`."""

from __future__ import annotations

from torchprof_tui.commands.common.options import (
    TIME_RANGE_HELP,
    AsJson,
    JoinedRank,
    NoCache,
    Number,
    TraceOptions,
    Traces,
    option,
)

DEFAULT_ROWS = 10  # rows of each list by default


class CriticalPathOptions(TraceOptions):
    description = (
        "Follow the longest chain of dependencies backwards from the end of a step: the thread's own work, launches, "
        "order of streams, events, blocking calls, backward passes. Its parts fill the step exactly. Only a shorter "
        "path makes the step shorter; what is off it can take longer by its slack. Of several ranks it is the path of "
        "all: at the end of a collective it goes on with the rank that came last to it."
    )

    trace: Traces
    no_cache: NoCache = False
    rank: JoinedRank = None
    step: int | None = option(
        "number of the step, or of a repetition without steps (default: the step of median duration)",
        "N",
        exclusive="scope",
        default=None,
    )
    range: str | None = option(
        f"this range instead of a step: {TIME_RANGE_HELP}", "T0:T1", exclusive="scope", default=None
    )
    top: int = option(
        f"events on the path, and names off it, that are listed (default: {DEFAULT_ROWS})",
        "N",
        number=Number("a number of rows", high=10**9 - 1),
        default=DEFAULT_ROWS,
    )
    json: AsJson = False
