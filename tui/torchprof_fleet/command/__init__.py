"""Declare the options of `torchprof-tui fleet`."""

from __future__ import annotations

from torchprof_tui.commands.common.options import AsJson, Number, ScreenOptions, TraceOptions, option

DEFAULT_ROWS = 10  # rows of each text table by default


class FleetOptions(ScreenOptions, TraceOptions):
    command_name = "fleet"
    description = (
        "Compare all ranks of a job: which host, GPU or rank is slow, which rank the others wait for, the step "
        "time without it; in a terminal as a screen, in a pipe and with --parquet as text. Each trace is read once "
        "into a sketch of some KB, which is kept: only new and changed traces are read again. Needs the extra "
        "fleet."
    )

    source: tuple[str, ...] = option(
        "a folder, a pattern or a trace: local, host:path or a URL; mixed", "SOURCE", is_positional=True
    )
    json: AsJson = False
    parquet: str | None = option("write all sketches as Parquet, one row per rank and step", "OUT", default=None)
    on: str | None = option(
        "read them on the workers of a Dask scheduler, such as tcp://scheduler:8786", "ADDRESS", default=None
    )
    top: int = option(
        f"rows of each table (default: {DEFAULT_ROWS})",
        "N",
        number=Number("a number from 1 on", 1, 99_999),
        default=DEFAULT_ROWS,
    )
    no_cache: bool = option("neither read nor keep sketches", default=False)
