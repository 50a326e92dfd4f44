"""Declare the options of `torchprof-tui memory`."""

from __future__ import annotations

from typing import Literal

from torchprof_tui.commands.common.options import (
    PICTURE,
    RANKS_HELP,
    ROWS,
    AsJson,
    FirstRank,
    NoCache,
    TraceOptions,
    option,
)

DEFAULT_ROWS = 15  # rows of each text table by default


class MemoryOptions(TraceOptions):
    trace: tuple[str, ...] = option(
        "a trace recorded with profile_memory, a snapshot.pickle of torch.cuda.memory, sample:NAME, or -; "
        f"{RANKS_HELP}",
        "TRACE",
        is_positional=True,
    )
    no_cache: NoCache = False
    rank: FirstRank = None
    device: str | None = option("GPU0, GPU1, …, CPU (default: the GPU with the highest peak)", "NAME", default=None)
    at: str = option(
        "what is alive at this time: 12.5ms, 300us, peak (default) or end; of a snapshot from its first entry",
        "TIME",
        default="peak",
    )
    by: Literal["category", "op", "module", "line", "phase", "shape", "stack"] | None = option(
        "group by this (default: category, of a snapshot line); stack: of a snapshot only", default=None
    )
    top: int | None = option(
        f"number of groups and of allocations (0: all; default: {DEFAULT_ROWS} in text, else all)",
        "N",
        number=ROWS,
        default=None,
    )
    json: AsJson = False
    output: str | None = option(f"also draw the curve of the whole trace: {PICTURE}", "OUT", short="-o", default=None)
