"""The pattern of FSDP's all-gathers that come too late to be hidden."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.collectives.communication_records import ELEMENT_BYTES
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Remedy, Severity, register_pattern
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count, format_percent
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.time.intervals import Intervals, union
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind

_FSDP_REGEX = r"FSDP::|fsdp::|FullyShardedDataParallel"
_FSDP2_REGEX = r"fsdp::"
_LINK_RATE = thresholds.TRANSFER_BANDWIDTH_MIN.value
_MAX_READ = 4
"""The shortest all-gathers of a launch shape whose sizes are read: the first of a recording may have none."""


def bound_transfer(tables: TraceTables, rows: I64) -> I64:
    """Bound the transfer in each all-gather from above, as far as one rank's trace can: int64[k] ns.

    An all-gather also waits for the last rank, which no prefetch hides. None of a launch shape transfers for longer
    than the shortest of them; if even that one is far slower than any link, it waited too, and 0 is returned for it.
    """
    work = tables.work.events
    order = np.argsort(work.row)
    group = tables.launch_group[order[np.searchsorted(work.row[order], rows)]]
    duration = np.asarray(tables.trace.duration[rows])
    transfer = np.zeros(len(rows), dtype=np.int64)
    for number in np.unique(group).tolist():
        alike = np.flatnonzero(group == number)
        shortest_first = alike[np.argsort(duration[alike], kind="stable")][:_MAX_READ].tolist()
        bandwidths = [_read_bandwidth(tables, int(rows[index])) for index in shortest_first]
        fast = [index for index, rate in zip(shortest_first, bandwidths, strict=True) if rate >= _LINK_RATE]
        if fast:
            transfer[alike] = duration[fast[0]]
    return transfer


def _read_bandwidth(tables: TraceTables, row: int) -> float:
    """Read how many GB/s (10^9 bytes) an all-gather delivered, 0 where its size was not recorded."""
    try:
        args = tables.trace.event(row).read_args()
        size = int(args["Out msg nelems"]) * ELEMENT_BYTES[str(args["dtype"])]
    except (OSError, LookupError, TypeError, ValueError):
        return 0.0
    return size / max(int(tables.trace.duration[row]), 1)


@register_pattern(
    "FSDP gathers a layer just before it is used",
    meaning="the weights of a layer are gathered right before it runs, and the GPU computes nothing during that time",
    action="gather the next layer while this one computes",
    code="layer.set_modules_to_forward_prefetch([next_layer])  # and set_modules_to_backward_prefetch",
    decided="The time of all-gathers in a program that uses FSDP while no kernel computes, without the wait for the "
    "last rank. With several ranks that wait is measured; with one, each all-gather counts with the shortest "
    "time of its launch shape, if that time fits the bandwidth of a link.",
    thresholds=(thresholds.EXPOSED_SHARE, thresholds.TRANSFER_BANDWIDTH_MIN),
    severity=Severity.PROBLEM,
    needs=(ScopeView.missing_work_reason,),
)
def fsdp_prefetch(view: ScopeView) -> Answer:
    tables = view.tables
    if not tables.practices.has_name(_FSDP_REGEX):
        return Answer.absent("FSDP is not used")
    work = view.work
    collectives = work.events.select(work.kind == Kind.COLLECTIVE)
    gathers = tables.filter_by_name(collectives, lambda name: "allgather" in name.lower().replace("_", ""))
    if not len(gathers):
        return Answer.absent("no all-gather")
    if not view.window_length:
        return Answer.cannot_tell("no work of the program in this range")
    exposed = union(gathers.start, gathers.end)
    for device in tables.devices:
        exposed = exposed - tables.compute_intervals[device]
    exposed = exposed.clip(*view.window)
    transfer = _measure_transfer(view, gathers, exposed)
    at_stake = min(int(transfer.sum()), exposed.total)
    share, exposed_share = at_stake / view.window_length, exposed.total / view.window_length
    summary = (
        f"{format_duration(exposed.total)} of {format_count(len(gathers), 'all-gather')} is exposed, "
        f"{format_percent(exposed_share)} of {view.window_label}; {format_duration(at_stake)} of it is transfer"
    )
    if share >= thresholds.EXPOSED_SHARE.value:
        return Answer.fired(summary, np.sort(gathers.row[transfer > 0]), at_stake, _choose_prefetch_remedy(view))
    if exposed_share >= thresholds.EXPOSED_SHARE.value and tables.rank_context is None:
        return Answer.cannot_tell(f"{summary} for certain: open the other ranks to separate transfer from waiting")
    return Answer.absent(summary)


def _measure_transfer(view: ScopeView, gathers: EventTable, exposed: Intervals) -> I64:
    """Measure the exposed transfer of each all-gather, without waiting: int64[k] ns."""
    rank_context = view.tables.rank_context
    if rank_context is not None:
        exposed = exposed - rank_context.arrivals.wait_intervals(rank_context.rank_index)
    inside = exposed.measure_before(gathers.end) - exposed.measure_before(gathers.start)
    if rank_context is not None:
        return inside
    bounded: I64 = np.minimum(inside, bound_transfer(view.tables, gathers.row))
    return bounded


def _choose_prefetch_remedy(view: ScopeView) -> Remedy | None:
    """Choose by the version: FSDP2 names its layers to prefetch, FSDP1 has options."""
    if view.tables.practices.has_name(_FSDP2_REGEX):
        return None
    return Remedy(
        "gather the next layer while this one computes",
        "FullyShardedDataParallel(model, forward_prefetch=True, backward_prefetch=BackwardPrefetch.BACKWARD_PRE)",
    )
