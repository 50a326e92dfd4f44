"""Declare the options of `torchprof-tui slice`."""

from __future__ import annotations

from torchprof_tui.commands.common.options import (
    TIME_RANGE_HELP,
    FirstRank,
    KeepMetadata,
    NoCache,
    TraceOptions,
    TracesOrAddresses,
    option,
)


class SliceOptions(TraceOptions):
    description = (
        "Write every event that overlaps the range, the events it is linked to (launch and kernels, forward and "
        "backward, flow arrows) and all events that enclose them. Names, labels and the header are kept, without "
        "environment variables and secrets; counters and memory events only where they lie in the range."
    )

    trace: TracesOrAddresses
    no_cache: NoCache = False
    rank: FirstRank = None
    range: str = option(f"start and end: {TIME_RANGE_HELP}", "T0:T1")
    output: str = option("OUT.json or OUT.json.gz", "OUT", short="-o")
    keep_metadata: KeepMetadata = False
    json: bool = option("print what was written as JSON", default=False)
