"""The pattern of a program without a GPU that spends its time outside any op: in Python, files, or waiting."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.host_code_time import (
    DO_LESS_PER_OP,
    HostCode,
    MainThread,
    find_host_code,
    find_main_window,
)
from torchprof_tui.analysis.patterns.engine.pattern import (
    Answer,
    Remedy,
    Severity,
    find_gap_places,
    register_pattern,
)
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_percent
from torchprof_tui.analysis.patterns.engine.undecidable_reasons import NO_CPU, NO_GPU
from torchprof_tui.trace.core.arrays import I64, sorted_unique
from torchprof_tui.trace.core.time_format import format_duration

_MAX_GAPS = 16
"""Longest times without an op whose neighbours are the evidence where no frame is."""


@register_pattern(
    "The program runs code outside any op",
    meaning="the main thread runs plain Python, writes files or waits: no op runs meanwhile",
    action="do it less often, outside the loop, or in another process",
    code="if step % 100 == 0: …  # not in each step",
    decided="In a trace without GPU activity: the time of the main thread outside ops, data loader calls, "
    "communication and the profiler's own work, less what other threads' ops take meanwhile, reaches the limit. Named "
    "is the deepest frame of your own code that holds more than half of it, else the two with most. With a GPU such "
    "code counts where the GPU waits for it: as a cause of its idle time.",
    thresholds=(thresholds.HOST_CODE_SHARE, thresholds.HOST_OWNER_SHARE),
    severity=Severity.PROBLEM,
    fires_on_absence=True,
)
def host_code(view: ScopeView) -> Answer:
    tables = view.tables
    if len(tables.work):
        return Answer.absent("with a GPU it counts as a cause of idle time: host code in the time tree, idle-gap")
    if missing_reason := (NO_GPU if len(tables.calls) else "" if len(tables.ops) else NO_CPU):
        return Answer.cannot_tell(missing_reason)
    host = find_host_code(view)
    t0, t1 = find_main_window(view, host.main) if host.main is not None else (0, 0)
    if host.main is None or t1 <= t0:
        return Answer.cannot_tell("the program did nothing in this range")
    share = host.intervals.total / (t1 - t0)
    seen = f"{format_percent(share)} of the CPU's time ({format_duration(host.intervals.total)}) is code outside any op"
    if share < thresholds.HOST_CODE_SHARE.value:
        return Answer.absent(seen)
    owners = host.describe_owners()
    events = host.events if len(host.owners) else _find_neighbours(view, host.main, host)
    events = events if len(events) else view.representative_events()
    action = host.choose_remedy(view)
    remedy = Remedy(action, _choose_code(host, action)) if action else None
    places = find_gap_places(view.trace, host.intervals, host.events, tables.ops.row, host.main.lane)
    return Answer.fired(
        f"{seen}{f', {owners}' if owners else ''}", events, host.intervals.total, remedy, host.intervals, places
    )


def _choose_code(host: HostCode, action: str) -> str:
    if action == DO_LESS_PER_OP:
        return "model = torch.compile(model)"
    return "if step % 100 == 0: …  # not in each step" if host.owners else ""


def _find_neighbours(view: ScopeView, main: MainThread, host: HostCode) -> I64:
    """Find the ops of the main thread before and after the longest times without any: int64[k]."""
    ops = view.tables.ops
    ops = ops.select((ops.row >= main.first) & (ops.row < main.last))
    gaps = np.argsort(host.intervals.starts - host.intervals.ends, kind="stable")[:_MAX_GAPS]
    before = ops.start.searchsorted(host.intervals.starts[gaps]) - 1
    after = ops.start.searchsorted(host.intervals.ends[gaps])
    rows = np.concatenate([ops.row[before[before >= 0]], ops.row[after[after < len(ops)]]])
    return view.select_in_scope(view.tables.event_table(sorted_unique(rows).astype(np.int64))).row
