"""Patterns of collectives: the communication card, and FSDP's all-gathers that come too late."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.collectives.communication_card import CommunicationCard, build_communication_card
from torchprof_tui.analysis.collectives.communication_records import ELEMENT_BYTES
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Remedy, register_notice, register_pattern
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count, format_percent
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.throughput.roofline import OTHER
from torchprof_tui.analysis.time.intervals import Intervals, union, unite
from torchprof_tui.trace.core.arrays import I64, find_median, is_in, sorted_unique
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.communication_kernels import Operation
from torchprof_tui.trace.model.event_kind import Kind


@register_notice(
    "Communication between GPUs",
    meaning="the time in collectives: how much of it is hidden behind computation, and how much moves data or waits "
    "for a late rank",
    action="hidden: nothing to do; exposed transfer: overlap it; exposed waiting: open the other ranks to find the "
    "late one",
    decided="The union of each device's communication kernels: NCCL, RCCL, oneCCL, HCCL, NVSHMEM, DeepEP, symmetric "
    "memory and serving engines. Hidden while kernels or fills run. Waiting: from the other ranks' arrivals "
    "if they are open; else the time above the fastest run of the same operation, group and size, or, where "
    "even that run has less than a twentieth of the link's bandwidth, above the time at a fifth of that "
    "bandwidth; barriers and notifications only wait. Bus bandwidth: bytes over time, times 2 (n - 1) / n "
    "for an all-reduce, (n - 1) / n for all-gather, reduce-scatter and all-to-all of n ranks.",
    needs=(ScopeView.missing_work_reason,),
)
def communication(view: ScopeView) -> Answer:
    card = build_card_of_view(view)
    if card.count:
        return Answer.fired(card.describe(), card.events)
    if len(view.tables.communication[0]):
        return Answer.absent("no communication in this range")
    rank_context = view.tables.rank_context
    rank_count = len(rank_context.arrivals.ranks) if rank_context else view.trace.world_size or 1
    if rank_count < 2:
        return Answer.cannot_tell("one rank only: no communication was recorded")
    if missing := describe_missing_collectives(view):
        return Answer.cannot_tell(missing)
    return Answer.absent(f"{rank_count} ranks, no communication was recorded")


def describe_missing_collectives(view: ScopeView) -> str:
    """Describe that several ranks ran, no kernel is known as a collective, and much of the work is unknown; else ""."""
    ranks = view.trace.world_size or 1
    if ranks < 2 or len(view.tables.communication[0]):
        return ""
    unknown = sum(part.share for part in view.gpu_classes if part.name == OTHER)
    if unknown < thresholds.UNKNOWN_WORK_SHARE.value:
        return ""
    return f"{ranks} ranks ran, but no kernel was recognised as communication"


def build_card_of_view(view: ScopeView) -> CommunicationCard:
    """Build the card of a view's window, from tables that are computed once per trace."""
    records, waits = view.tables.communication
    return build_communication_card(
        view.trace,
        records=records,
        waits=waits,
        window=view.window if view.window_length else (view.scope.t0, view.scope.t1),
        compute=view.tables.compute_intervals,
    )


def find_slow_rate(card: CommunicationCard) -> float | None:
    """Return the bus bandwidth (GB/s) of the collective that takes most of the time if even its fastest run is slow.

    None where it is not, where its link is known (then the card tells waiting from transfer), and for small messages,
    whose time is latency.
    """
    row = max(card.rows, key=lambda each: each.time, default=None)
    if row is None or row.link_bandwidth or row.best_bus_bandwidth is None or not row.sized_count:
        return None
    if 2 * row.time < sum(each.time for each in card.rows):
        return None  # no kind takes most of the time: the rate of one says little
    is_large = row.bytes / row.sized_count >= thresholds.LARGE_MESSAGE.value
    is_slow = row.best_bus_bandwidth < thresholds.TRANSFER_BANDWIDTH_MIN.value
    return row.best_bus_bandwidth if is_large and is_slow else None


GRADIENT_REGEX = r"torch::autograd::AccumulateGrad$"
BUCKET_REMEDY = Remedy(
    "bucket them (DDP's bucket_cap_mb, or one flattened all-reduce)",
    "DistributedDataParallel(model, bucket_cap_mb=25)  # 25 MB a bucket is the default",
)


def describe_unbucketed_reduces(view: ScopeView, card: CommunicationCard) -> str:
    """Describe small all-reduces of which there is one for each gradient; "" where gradients share all-reduces.

    "404 all-reduces a step, one per parameter, 18 kB in the median"; their duration where sizes were not recorded.
    """
    row = next((row for row in card.rows if row.operation is Operation.ALL_REDUCE), None)
    if row is None or 2 * row.time < sum(each.time for each in card.rows):
        return ""
    gradients = len(view.match_names(GRADIENT_REGEX, Kind.OP))
    steps = max(len(view.steps), 1)
    is_one_per_gradient = gradients and row.count >= thresholds.REDUCES_PER_GRADIENT.value * gradients
    if not is_one_per_gradient or row.count < thresholds.REDUCES_PER_STEP.value * steps:
        return ""
    records = view.tables.communication[0]
    is_reduce = is_in(records.events, card.events) & records.operation_mask(Operation.ALL_REDUCE)
    sizes = records.bytes[is_reduce & (records.bytes > 0)]
    duration = find_median(view.trace.duration[records.events[is_reduce]])
    if len(sizes):
        size = find_median(sizes)
        is_small, typical = size < thresholds.LARGE_MESSAGE.value, _format_bytes(size)
    else:
        is_small, typical = duration < thresholds.SMALL_REDUCE_MAX.value, format_duration(duration)
    per_step = f"{row.count / steps:,.0f} all-reduces{' a step' if len(view.steps) else ''}"
    return f"{per_step}, one per parameter, {typical} in the median" if is_small else ""


def find_reduce_sections(view: ScopeView) -> dict[int, Intervals]:
    """Find when all-reduces ran one after the other and nothing was computed, the gaps between them included.

    By device, inside the window. A gap counts where no gradient was added to between the launches of the two.
    """
    work, trace = view.work, view.trace
    is_linked = (work.kind == Kind.COLLECTIVE) & (work.launch >= 0)
    added = np.sort(view.tables.match_names(GRADIENT_REGEX, Kind.OP).start)
    sections = {}
    for device in view.tables.devices:
        reduces = work.select(is_linked & (work.device == device))
        start, end = reduces.events.start, reduces.events.end
        before = added.searchsorted(np.asarray(trace.start[reduces.launch]))
        follows = np.concatenate([before[1:] == before[:-1], [False]])[: len(end)]
        next_start = np.append(start[1:], end[-1:])
        section = union(start, np.where(follows, np.maximum(next_start, end), end)).clip(*view.window)
        sections[device] = section - view.tables.compute_intervals[device]
    return sections


def _format_bytes(size: float) -> str:
    """Format bytes in powers of ten: "18 kB"."""
    for unit, factor in (("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size:.0f} B"


_FSDP_REGEX = r"FSDP::|fsdp::|FullyShardedDataParallel"
_FSDP2_REGEX = r"fsdp::"
_LINK_RATE = thresholds.TRANSFER_BANDWIDTH_MIN.value
_MAX_READ = 4  # the shortest all-gathers of a launch shape whose sizes are read: the first of a recording may have none


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
    for number in sorted_unique(group).tolist():
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
    exposed = (gathers.intervals - unite(tables.compute_intervals.values())).clip(*view.window)
    transferring = exposed
    if tables.rank_context is not None:
        transferring = exposed - tables.rank_context.arrivals.wait_intervals(tables.rank_context.rank_index)
    transfer = transferring.measure_within(gathers.start, gathers.end)
    if tables.rank_context is None:
        transfer = np.minimum(transfer, bound_transfer(tables, gathers.row))
    at_stake = min(int(transfer.sum()), exposed.total)
    share, exposed_share = at_stake / view.window_length, exposed.total / view.window_length
    summary = (
        f"{format_duration(exposed.total)} of {format_count(len(gathers), 'all-gather')} is exposed, "
        f"{format_percent(exposed_share)} of {view.window_label}; {format_duration(at_stake)} of it is transfer"
    )
    if share >= thresholds.EXPOSED_SHARE.value:
        remedy = None if tables.practices.has_name(_FSDP2_REGEX) else _PREFETCH_OF_FSDP1
        return Answer.fired(summary, np.sort(gathers.row[transfer > 0]), at_stake, remedy)
    if exposed_share >= thresholds.EXPOSED_SHARE.value and tables.rank_context is None:
        return Answer.cannot_tell(f"{summary} for certain: open the other ranks to separate transfer from waiting")
    return Answer.absent(summary)


_PREFETCH_OF_FSDP1 = Remedy(
    "gather the next layer while this one computes",
    "FullyShardedDataParallel(model, forward_prefetch=True, backward_prefetch=BackwardPrefetch.BACKWARD_PRE)",
)
"""FSDP2 names its layers to prefetch, FSDP1 has options."""
