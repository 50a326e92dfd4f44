"""Print the profiler's table, as `prof.key_averages()` has it: `torchprof-tui table`."""

from __future__ import annotations

import sys

import msgspec
import numpy as np

from torchprof_tui.analysis.collectives.communication_waiting import compute_arrivals
from torchprof_tui.analysis.search.name_search import BadPattern
from torchprof_tui.analysis.table import export
from torchprof_tui.analysis.table.gpu_sheets import build_arrivals_sheet
from torchprof_tui.analysis.table.groups import Profile
from torchprof_tui.analysis.table.sheets import Sheet, explain_empty_sheet
from torchprof_tui.analysis.table.table_sheet import drop_empty_gpu_columns
from torchprof_tui.answers.table import AnyTable, TableQuestion, build_sheet, build_table
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.load import load_specs, select_rank, use_captures
from torchprof_tui.commands.common.output import import_text, print_answer
from torchprof_tui.commands.table import DEFAULT_ROWS, TableOptions
from torchprof_tui.program.terminal_progress import show_work
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.model.ranks import Rank
from torchprof_tui.trace.model.trace import Trace

_SORT_ALIASES = {
    "count": "calls",
    "cpu_time": "cpu_avg",
    "cpu_time_total": "cpu",
    "self_cpu_time_total": "self_cpu",
    **{f"{device}_time": "gpu_avg" for device in ("cuda", "device", "xpu")},
    **{f"{device}_time_total": "gpu" for device in ("cuda", "device", "xpu")},
    **{f"self_{device}_time_total": "self_gpu" for device in ("cuda", "device", "xpu")},
}
"""Torch's names for `sort_by`."""


def run(options: TableOptions) -> int:
    loaded = load_specs(options.trace, cache=not options.no_cache)
    with show_work("building the table"):
        trace, rank, sheet = _choose_sheet(loaded.trace, options)
    if rank is not None and options.rank is None:
        print(f"{rank.label} of {len(loaded.trace.all_ranks)} ranks; another: --rank N", file=sys.stderr)
    if options.json:
        print_answer(_build_answer(trace, rank, sheet, options))
        return 0
    rows, work_count = _order_rows(sheet, options, for_people=not options.csv)
    order, limit = rows.tolist(), options.limit or None
    if options.csv:
        print(export.to_csv(sheet, order[:limit], clean), end="")
    elif options.markdown:
        print(export.to_markdown(drop_empty_gpu_columns(sheet), order[:limit], clean), end="")
    elif not len(sheet):
        reason = explain_empty_sheet(trace, options.of, is_restricted=options.step is not None)
        print(f"{sheet.title}: {reason}.")
    else:
        limit = DEFAULT_ROWS if options.limit is None else limit
        import_text("table").print_sheet(drop_empty_gpu_columns(sheet), order[:work_count], order[work_count:], limit)
    return 0


def answer_question(trace: Trace, options: TableOptions) -> AnyTable:
    """Build the document of `--json` about an opened trace. Raises UsageError."""
    return _build_answer(*_choose_sheet(trace, options), options)


def _choose_sheet(trace: Trace, options: TableOptions) -> tuple[Trace, Rank | None, Sheet]:
    """Build the table that was asked for; return it after the trace and the rank that it is of."""
    if options.of == "arrivals":
        if trace.merged_ranks is None:
            raise UsageError("--of arrivals needs several ranks: give their traces, or their folder")
        return trace, None, build_arrivals_sheet(compute_arrivals(trace.merged_ranks))
    trace, rank = select_rank(trace, options.rank)
    profile = Profile(use_captures(trace, options.capture, not options.no_cache))
    return trace, rank, build_sheet(profile, _choose_table(options))


def _build_answer(trace: Trace, rank: Rank | None, sheet: Sheet, options: TableOptions) -> AnyTable:
    rows = _order_rows(sheet, options, for_people=False)[0].tolist()
    number = trace.rank if rank is None else rank.number
    table: AnyTable = build_table(trace, _choose_table(options), sheet, rows[: options.limit or None], number)
    return table if options.filter is None else msgspec.structs.replace(table, row_count=len(rows))


def _order_rows(sheet: Sheet, options: TableOptions, for_people: bool) -> tuple[I64, int]:
    """Sort and filter the rows: (order int64[k], number of those that are no annotations).

    Some of the rows, and all for people, are in the order of the screen; all rows as data are in torch's order.
    """
    work_first = for_people or bool(options.limit)
    key: str | None = None
    if options.sort is not None:
        keys = [field.key for field in sheet.fields]
        key = _SORT_ALIASES.get(options.sort, options.sort.removesuffix("_us").removesuffix("_bytes"))
        if key not in keys:
            raise UsageError(f"--sort: no column {options.sort!r} (there are {', '.join(keys)})")
    elif work_first or options.of != "calls":
        key = sheet.longest_first_key
    order, work_count = np.arange(len(sheet)), len(sheet)
    if key:
        order, work_count = sheet.sort_work_first(key) if work_first else (sheet.sort_rows(key), len(sheet))
    if options.filter is not None:
        matching = sheet.filter_rows(options.filter)
        if isinstance(matching, BadPattern):
            raise UsageError(f"--filter: {matching.message}")
        work_count = int(np.count_nonzero(matching[order[:work_count]]))
        order = order[matching[order]]
    return order, work_count


def _choose_table(options: TableOptions) -> TableQuestion:
    return TableQuestion(options.of, options.by or "name", options.step, options.flops)
