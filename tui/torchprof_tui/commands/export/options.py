"""Declare the options of `torchprof-tui export`."""

from __future__ import annotations

from typing import Literal

from torchprof_tui.commands.common.options import (
    TIME_RANGE_HELP,
    AnyRank,
    KeepMetadata,
    NoCache,
    TraceOptions,
    TracesOrAddresses,
    option,
)
from torchprof_tui.commands.export.formats import FORMATS

_STACKS = "flame graphs (--folded, --speedscope)"


class ExportOptions(TraceOptions):
    description = (
        "Write a trace for other programs. The file name chooses the format: .parquet, .arrow and .csv hold all events "
        "as rows (times in ns), .json and .json.gz are a Chrome trace file, in which the processes of several ranks "
        "are kept apart. .folded and .speedscope.json hold the self time of each Python stack, module or op, for "
        "flame graphs."
    )

    trace: TracesOrAddresses
    no_cache: NoCache = False
    rank: AnyRank = None
    output: str | None = option("file to write; without it stacks are printed", "OUT", short="-o", default=None)
    format: str | None = option(
        flags_help={name: f"{each.help} ({', '.join(each.suffixes)})" for name, each in FORMATS.items()},
        exclusive="format",
        default=None,
    )
    keep_metadata: KeepMetadata = False
    by: Literal["stack", "module", "op"] | None = option(
        "what the frames are (default: stack)", section=_STACKS, default=None
    )
    time: Literal["gpu", "cpu"] | None = option(
        "self time to add up (default: gpu, without a GPU cpu)", section=_STACKS, default=None
    )
    range: str | None = option(
        f"only events that start in it: {TIME_RANGE_HELP}", "T0:T1", exclusive="scope", section=_STACKS, default=None
    )
    step: int | None = option(
        "only the work that ProfilerStep#N did and launched", "N", exclusive="scope", section=_STACKS, default=None
    )
    json: bool = option("print what was written as JSON", default=False)
