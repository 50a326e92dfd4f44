"""`torchprof-tui table TRACE`: what takes the most, as `prof.key_averages()` has it, for people and for programs."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from torchprof_tui.commands import UsageError
from torchprof_tui.commands.common.load import add_rank, add_trace, load, one_rank

if TYPE_CHECKING:
    from torchprof_tui.analysis.table.profiler_table import Profile
    from torchprof_tui.analysis.table.sheets import Sheet
    from torchprof_tui.trace.core.arrays import Bool
    from torchprof_tui.trace.model.trace import Trace

ROWS = 100
"""Of a table for people, unless told: as many as torch prints."""

BY = ("name", "shape", "stack", "module", "class", "step")
OF = ("calls", "kernels", "copies", "collectives", "memory", "arrivals")

_ALIASES = {
    "count": "calls",
    "cpu_time": "cpu_avg",
    "cpu_time_total": "cpu",
    "self_cpu_time_total": "self_cpu",
    **{f"{device}_time": "gpu_avg" for device in ("cuda", "device", "xpu")},
    **{f"{device}_time_total": "gpu" for device in ("cuda", "device", "xpu")},
    **{f"self_{device}_time_total": "self_gpu" for device in ("cuda", "device", "xpu")},
}
"""Torch's own words for `sort_by`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_trace(parser)
    add_rank(parser)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON document on stdout: a list of rows, times in µs")
    form.add_argument("--csv", action="store_true", help="comma-separated values with a header line, times in µs")
    form.add_argument("--markdown", action="store_true", help="a Markdown table")
    parser.add_argument(
        "--sort",
        metavar="COLUMN",
        help="self_gpu, gpu, self_cpu, cpu, gpu_avg, cpu_avg, calls, name (what took most; JSON, CSV: torch's order)",
    )
    parser.add_argument("--limit", metavar="N", type=_rows, help=f"so many rows (0: all; for people {ROWS}, else all)")
    parser.add_argument("--by", choices=BY, default="name", help="what makes a row (name)")
    parser.add_argument("--step", metavar="N", type=int, help="only what ProfilerStep#N did and launched")
    parser.add_argument(
        "--of",
        choices=OF,
        default="calls",
        help="which table (calls); arrivals: over all ranks, who came late to each collective",
    )
    parser.add_argument("--flops", action="store_true", help="add FLOPs, TFLOP/s and share of the peak")


def run(options: argparse.Namespace) -> int:
    if options.of != "calls" and (options.by != "name" or options.flops):
        raise UsageError(f"--by and --flops belong to the table of calls, not to --of {options.of}")

    loaded = load(options.trace, cache=not options.no_cache)
    if options.of == "arrivals":
        sheet = _arrivals(loaded.trace)
    else:
        trace, rank = one_rank(loaded.trace, options.rank)
        if rank is not None and options.rank is None:
            print(f"{rank.label} of {_of(loaded.trace)}; another: --rank N", file=sys.stderr)
        from torchprof_tui.analysis.table.profiler_table import Profile

        sheet = _sheet(Profile(trace), options)
    for_people = not (options.json or options.csv or options.markdown)
    key = _sort_key(sheet, options.sort, for_people or options.markdown or options.of != "calls")
    order = sheet.order(key).tolist() if key else list(range(len(sheet)))
    limit = ROWS if options.limit is None and for_people else options.limit or None
    _print(options, sheet, order[:limit], len(order))
    return 0


def _arrivals(trace: Trace) -> Sheet:
    if trace.ranks is None:
        raise UsageError("--of arrivals needs several ranks: name their traces, or the folder that they are in")
    from torchprof_tui.analysis.collectives.late_arrivals import arrivals
    from torchprof_tui.analysis.table.arrivals_sheet import arrivals_sheet

    return arrivals_sheet(arrivals(trace.ranks))


def _of(trace: Trace) -> str:
    assert trace.ranks is not None
    return f"{len(trace.ranks)} ranks"


def _print(options: argparse.Namespace, sheet: Sheet, order: list[int], rows: int) -> None:
    from torchprof_tui.analysis.table import export

    if options.json:
        print(export.to_json(sheet, order))
        return
    from torchprof_tui.ui.common.name_display import clean

    if options.csv:
        print(export.to_csv(sheet, order, clean), end="")
    elif options.markdown:
        print(export.to_markdown(sheet, order, clean), end="")
    else:
        from torchprof_tui.commands.table.text import show

        show(sheet, order, rows)


def _sheet(profile: Profile, options: argparse.Namespace) -> Sheet:
    from torchprof_tui.analysis.table import gpu_sheets
    from torchprof_tui.analysis.table.flops import row_flops
    from torchprof_tui.analysis.table.groups import NotRecordedError
    from torchprof_tui.analysis.table.memory_sheet import memory_by_op
    from torchprof_tui.analysis.table.table_rows import By
    from torchprof_tui.analysis.table.table_sheet import table_sheet

    only = _step(profile, options.step)
    trace, calls = profile.trace, profile.calls
    if options.of == "kernels":
        return gpu_sheets.kernels(trace, only)
    if options.of == "copies":
        return gpu_sheets.copies(trace, only)
    if options.of == "collectives":
        return gpu_sheets.collectives(trace, only)
    if options.of == "memory":
        return memory_by_op(trace, calls, only)
    try:
        table = profile.table(By(options.by), only)
    except NotRecordedError as error:
        raise UsageError(str(error)) from error
    return table_sheet(table, calls, row_flops(table, calls, profile.flops()) if options.flops else None)


def _step(profile: Profile, number: int | None) -> Bool | None:
    if number is None:
        return None
    from torchprof_tui.analysis.table.event_scope import in_step

    steps = profile.trace.steps
    for step in steps:
        if step.number == number:
            return in_step(profile.trace, step, profile.asked)
    known = f"it has {steps[0].number} to {steps[-1].number}" if steps else "it has none"
    raise UsageError(f"no step {number} in this trace ({known})")


def _sort_key(sheet: Sheet, wanted: str | None, default: bool) -> str | None:
    keys = [field.key for field in sheet.fields]
    if wanted is None:
        if not default:
            return None
        # The first that says something: a trace without a GPU is sorted by what the CPU did.
        of_interest = ("self_gpu", "self_cpu", "total", "allocated", "waited")
        return next((key for key in of_interest if key in keys and bool(sheet.columns[key].any())), None)  # type: ignore[union-attr]
    key = _ALIASES.get(wanted, wanted.removesuffix("_us"))
    if key not in keys:
        raise UsageError(f"--sort: no column {wanted!r} (there are {', '.join(keys)})")
    return key


def _rows(text: str) -> int:
    number = int(text) if text.isascii() and text.isdecimal() else -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of rows")
    return number
