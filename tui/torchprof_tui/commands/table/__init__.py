"""Declare the options of `torchprof-tui table`."""

from __future__ import annotations

from typing import Literal

from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.options import ROWS, Captures, FirstRank, NoCache, TraceOptions, Traces, option

DEFAULT_ROWS = 100  # rows of a text table by default, as many as torch prints

Grouping = Literal["name", "shape", "stack", "module", "class", "step", "step-kind"]


class TableOptions(TraceOptions):
    trace: Traces
    no_cache: NoCache = False
    rank: FirstRank = None
    capture: Captures = ()
    json: bool = option("print one JSON document: rows and totals, times in µs", exclusive="form", default=False)
    csv: bool = option("print comma-separated values with a header line, times in µs", exclusive="form", default=False)
    markdown: bool = option("print a Markdown table", exclusive="form", default=False)
    sort: str | None = option(
        "sort by self_gpu, gpu, self_cpu, cpu, gpu_avg, cpu_avg, calls or name (default: longest first; JSON, CSV "
        "without --limit: torch's order)",
        "COLUMN",
        default=None,
    )
    limit: int | None = option(
        f"number of rows, the first of those that the screen shows; in text, of work and of annotations each (0: all; "
        f"default: {DEFAULT_ROWS} in text, else all)",
        "N",
        number=ROWS,
        default=None,
    )
    filter: str | None = option(
        "only rows with this text, or that a /regular expression/ matches, as / does on the screen",
        "TEXT",
        default=None,
    )
    by: Grouping | None = option(
        "group calls by this (default: name); step-kind: prefill, decode and mixed steps of a serving engine",
        default=None,
    )
    step: int | None = option("only the work that step N did and launched", "N", default=None)
    of: Literal["calls", "kernels", "copies", "collectives", "memory", "arrivals", "repetitions"] = option(
        "which table (default: calls); arrivals: over all ranks, which rank was late at each collective; "
        "repetitions: tokens, iterations and layers, found in the order of the kernels",
        default="calls",
    )
    flops: bool = option("add FLOPs, TFLOP/s and share of the peak", default=False)

    def __post_init__(self) -> None:
        """Reject options that cannot be given together."""
        super().__post_init__()
        if self.of != "calls" and (self.by not in (None, "name") or self.flops):
            raise UsageError(f"--by and --flops work only with the table of calls, not with --of {self.of}")
        if self.of == "repetitions" and self.step is not None:
            raise UsageError("--step works not with --of repetitions, which are of the whole trace")
