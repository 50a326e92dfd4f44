"""Declare the options of `torchprof-tui chain`."""

from __future__ import annotations

from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.options import AsJson, Captures, FirstRank, NoCache, TraceOptions, Traces, option


class ChainOptions(TraceOptions):
    trace: Traces
    no_cache: NoCache = False
    rank: FirstRank = None
    capture: Captures = ()
    event: str = option("the full name of an event (an op, a kernel, …)", "NAME")
    nth: int = option("which event of that name, in time order, from 0 (default)", "K", default=0)
    all_steps: bool = option("print one row per step instead: gaps, launch latency, kernel time", default=False)
    json: AsJson = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nth < 0:
            raise UsageError(f"--nth {self.nth}: the first event of a name is 0")
