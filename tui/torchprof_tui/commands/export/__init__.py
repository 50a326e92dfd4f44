"""Declare the options of `torchprof-tui export`, and its formats."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.options import (
    ROWS,
    TIME_RANGE_HELP,
    AnyRank,
    KeepMetadata,
    NoCache,
    TraceOptions,
    TracesOrAddresses,
    option,
)
from torchprof_tui.trace.core.records import record


@record
class Format:
    """A format. `suffixes`: endings of its file name; `more_suffixes`: those that are accepted with its flag.

    `can_print`: it is printed where no file is named.
    """

    suffixes: tuple[str, ...]
    help: str
    more_suffixes: tuple[str, ...] = ()
    can_print: bool = False


FORMATS = {
    "parquet": Format((".parquet",), "all events as rows, for pandas, polars, DuckDB, …"),
    "arrow": Format((".arrow", ".feather"), "the same as an Arrow file"),
    "csv": Format((".csv",), "the same as comma-separated values"),
    "folded": Format((".folded",), "folded stacks with their self time in ns, for flamegraph.pl", (".txt",), True),
    "speedscope": Format((".speedscope.json",), "the same stacks for speedscope.app", (".json",), True),
    "chrome": Format((".json", ".json.gz"), "one Chrome trace file, also of several ranks"),
    "roofline": Format(
        (), "rates of kernels beside what the GPU reaches, as text or a picture (.svg, .png)", (".svg", ".png"), True
    ),
}
"""Formats by the name of their flag; of several endings of a name the first one counts.

To add one: an entry here, and a branch in `write_trace` of `main.py`."""


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
    output: str | None = option(
        "file to write; without it stacks and the roofline are printed", "OUT", short="-o", default=None
    )
    format: str | None = option(
        flags_help={
            name: " ".join([each.help, *([f"({', '.join(each.suffixes)})"] if each.suffixes else [])])
            for name, each in FORMATS.items()
        },
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
    limit: int | None = option(
        "only the N stacks with most self time, longest first (--folded; default: all, in the order of the tree)",
        "N",
        number=ROWS,
        section=_STACKS,
        default=None,
    )
    json: bool = option("print what was written as JSON", default=False)


def choose_format(chosen: str | None, out: Path | None) -> str:
    """Choose the format by its flag, else by the file name; `out` None: it is printed. Raises UsageError."""
    if chosen is not None:
        wanted = FORMATS[chosen]
        suffixes = wanted.suffixes + wanted.more_suffixes
        if out is not None and not out.name.endswith(suffixes):
            raise UsageError(f"-o: a file of --{chosen} ends in {' or '.join(suffixes)}")
        if out is None and not wanted.can_print:
            raise UsageError(f"--{chosen} needs a file: -o NAME{suffixes[0]}")
        return chosen
    if out is not None and out.suffix in FORMATS["roofline"].more_suffixes:
        raise UsageError(
            "-o: which picture? --roofline here; `memory -o` draws the curve, `diff -o` the waterfall, `snapshot -o` "
            "the screen"
        )
    if out is None:
        raise UsageError(
            "-o OUT is missing: the file name chooses the format; --folded, --speedscope, --roofline print"
        )
    for name, each in FORMATS.items():
        if out.name.endswith(each.suffixes):
            return name
    known = [suffix for each in FORMATS.values() for suffix in each.suffixes]
    raise UsageError(f"-o: the format is unknown: the name ends in none of {', '.join(known)}")
