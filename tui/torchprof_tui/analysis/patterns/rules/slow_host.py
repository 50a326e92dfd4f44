"""The pattern of a rank whose host is slow: every op takes longer there."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.collectives.late_arrivals import Arrivals
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Severity, register_pattern
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_percent
from torchprof_tui.analysis.time.intervals import NO_INTERVALS
from torchprof_tui.trace.core.time_format import format_duration


@register_pattern(
    "One rank's host is slow",
    meaning="nearly every op takes longer on one rank, and the other ranks wait for it: its CPU is slower, busy with "
    "other work, or far from its GPU",
    action="check that host: other processes, the CPU's clock, and the cores that the rank is bound to",
    code="numactl --cpunodebind=0 --membind=0 torchrun …  # the socket next to the GPU: nvidia-smi topo -m",
    decided="For each aten op that ran ten times on all ranks, its median duration over that of the fastest rank; "
    "then the median over the ops, and the share of slower ops. If collectives were matched, the other ranks "
    "must also wait for that rank. Needs several ranks: open their traces together.",
    thresholds=(thresholds.SLOW_HOST_RATIO, thresholds.SLOW_HOST_OPS_SHARE, thresholds.STRAGGLER_SHARE),
    severity=Severity.PROBLEM,
    applies_to_all_ranks=True,
)
def slow_host(view: ScopeView) -> Answer:
    rank_context = view.tables.rank_context
    if rank_context is None:
        return Answer.cannot_tell("one rank only: the traces of the other ranks are needed")
    speed = rank_context.arrivals.host_speed
    if not speed.op_count:
        return Answer.cannot_tell("the ranks ran too few ops in common to compare them")
    ranks = rank_context.arrivals.ranks.all
    slow_label, fast_label = ranks[speed.slowest].label, ranks[speed.fastest].label
    summary = f"aten ops take {speed.slowest_factor:.2f}× as long on {slow_label} as on {fast_label}"
    slower = float(speed.slower_share[speed.slowest])
    if speed.slowest_factor < thresholds.SLOW_HOST_RATIO.value or slower < thresholds.SLOW_HOST_OPS_SHARE.value:
        return Answer.absent(f"{summary} (median of {speed.op_count})")
    at_stake = int(view.clip(speed.slowest_op_time).total * (1 - 1 / speed.slowest_factor))
    if len(rank_context.arrivals):
        waiting = _measure_waiting(view, rank_context.arrivals, speed.slowest)
        if waiting < thresholds.STRAGGLER_SHARE.value * view.window_length:
            return Answer.absent(f"{summary}, but the others wait only {format_duration(waiting)} for it")
        at_stake = min(at_stake, waiting)
    events = np.empty(0, dtype=np.int64)
    if rank_context.rank_index == speed.slowest:
        events = view.representative_events()
    return Answer.fired(
        f"{slow_label}'s host is slow: {summary}, {format_percent(slower)} of {speed.op_count} ops are slower by a "
        "seventh or more",
        events,
        at_stake,
        spans=speed.slowest_op_time if len(events) else NO_INTERVALS,
    )


def _measure_waiting(view: ScopeView, arrivals: Arrivals, slow_rank: int) -> int:
    """Measure how long the other ranks wait for one rank in the window: ns, their mean."""
    is_last = arrivals.last_rank == slow_rank
    others = [index for index in range(len(arrivals.ranks)) if index != slow_rank]
    waits = [arrivals.wait_intervals(index, is_last).measure_between(*view.window) for index in others]
    return sum(waits) // len(others)
