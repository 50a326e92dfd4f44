"""The pattern of plain Python in each step: no op runs, and the launching thread launches nothing."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Remedy, register_fault, sort_places
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.patterns.rules.debug_leftovers import find_read_times
from torchprof_tui.analysis.patterns.rules.host_code import HostPauses, find_collections, find_host_pauses
from torchprof_tui.analysis.patterns.rules.repeated_inputs import find_list_tensors
from torchprof_tui.analysis.patterns.rules.serving import find_generation_steps
from torchprof_tui.analysis.time.intervals import Intervals, union, unite
from torchprof_tui.trace.core.arrays import I64, Bool, sorted_unique
from torchprof_tui.trace.core.time_format import format_duration


@register_fault(
    "Host code outside any op (Python, files) holds up each step",
    meaning="for a while no op runs and nothing is launched: the program computes or writes files in plain Python",
    action="run it less often, with tensors or NumPy instead of loops, or in another process (another thread takes the "
    "interpreter lock)",
    code="if step % 100 == 0: …  # not in each step",
    decided="Times without an op, longer than the limit, at the same place in at least half of the steps, while the "
    "GPU is idle. Not counted: data loaders, time before the first op of a step, compilation, garbage collection, "
    "generation engines and the profiler's own work. Where several at different places take one turn of Python's "
    "threads (5 ms), another thread holds the interpreter lock.",
    thresholds=(thresholds.STEP_PAUSE_MIN, thresholds.PAUSE_STEPS_SHARE, thresholds.LOCK_TURN, thresholds.LOCK_TURNS),
    needs=(ScopeView.missing_ops_reason, ScopeView.missing_work_reason, ScopeView.missing_steps_reason),
)
def python_in_step(view: ScopeView) -> Answer:
    tables = view.tables
    pauses = tables.compute_once(find_host_pauses, int(thresholds.STEP_PAUSE_MIN.value))
    if not len(pauses) or len(tables.steps) < 2 or len(tables.compute_once(find_generation_steps)):
        return Answer.absent()  # between the steps of an engine it is the scheduler
    length, input_times = pauses.end - pauses.start, view.gap_finder.input_intervals
    turn = thresholds.LOCK_TURN.value
    is_turn = (length >= turn) & (length < 1.1 * turn)
    is_lock = (
        np.count_nonzero(is_turn) >= thresholds.LOCK_TURNS.value and len(sorted_unique(pauses.position[is_turn])) > 1
    )
    _, back, count = np.unique(pauses.position, return_inverse=True, return_counts=True)
    recurs = ~pauses.is_irregular & (count[back.reshape(-1)] > 1)
    chosen = length >= turn if is_lock else recurs & ~_lie_in(input_times, pauses)
    chosen &= view.overlap_mask(pauses.start, pauses.end) & ~_lie_in(tables.compute_once(_find_explained), pauses)
    if not chosen.any():
        return Answer.absent()
    start, end = pauses.start[chosen], pauses.end[chosen]
    before, after = _find_ops_around(tables, start, end)
    spans = union(start, end).clip(*view.window)  # no GPU works meanwhile
    often, name = view.format_count(len(start), "time"), tables.short_name(int(before[int((end - start).argmax())]))
    seen = f"{format_duration(spans.total)} in all, {often}, the longest after {name}"
    remedy = None
    if is_lock:
        remedy = Remedy(
            "another thread of this process holds the interpreter lock (GIL): run its work in another process",
            "multiprocessing.Process(target=work).start()  # instead of threading.Thread",
        )
    events = np.concatenate([before, after[after >= 0]])
    events = view.select_in_scope(tables.event_table(sorted_unique(events))).row
    events = events if len(events) else view.representative_events()
    places = sort_places(start, end, before, end - start, True)
    removed = np.empty(0, dtype=np.int64)  # how long the same code takes elsewhere is not known
    return Answer.fired(seen, events, spans.total, remedy, spans, places, removed)


def _find_explained(tables: TraceTables) -> Intervals:
    """Find what other patterns explain: results and lists that are read one by one, garbage collections."""
    collections, lists = tables.compute_once(find_collections), tables.compute_once(find_list_tensors)
    return unite([tables.compute_once(find_read_times), collections.intervals, lists.times])


def _find_ops_around(tables: TraceTables, start: I64, end: I64) -> tuple[I64, I64]:
    """Find the last op that ended before each pause, and the first one after it: rows, int64[k], -1 for none."""
    by_end, by_start = tables.compute_once(_order_ops)
    last, first = by_end.end.searchsorted(start, side="right") - 1, by_start.start.searchsorted(end)
    before, after = by_end.row[np.maximum(last, 0)], by_start.row[np.minimum(first, len(by_start) - 1)]
    return before, np.where(first < len(by_start), after, -1)


def _order_ops(tables: TraceTables) -> tuple[EventTable, EventTable]:
    """Order the ops of the launching threads by end, and by start."""
    ops = tables.launching_thread_ops
    return ops.take(np.argsort(ops.end, kind="stable")), ops.take(np.argsort(ops.start, kind="stable"))


def _lie_in(times: Intervals, pauses: HostPauses) -> Bool:
    """Return which pauses lie in these times for most of their length: bool[k]."""
    inside = times.measure_within(pauses.start, pauses.end)
    mostly: Bool = 2 * inside > pauses.end - pauses.start
    return mostly
