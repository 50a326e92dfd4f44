"""The communication card as a pattern: what the GPUs exchanged, whether a problem or not."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.collectives.communication_card import CommunicationCard, build_communication_card
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Remedy, register_pattern
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView
from torchprof_tui.analysis.throughput.class_summary import OTHER
from torchprof_tui.analysis.time.intervals import Intervals, union
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.communication_kernels import Operation
from torchprof_tui.trace.model.event_kind import Kind


@register_pattern(
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
    is_reduce = np.isin(records.events, card.events) & records.operation_mask(Operation.ALL_REDUCE)
    sizes = records.bytes[is_reduce & (records.bytes > 0)]
    duration = float(np.median(view.trace.duration[records.events[is_reduce]]))
    if len(sizes):
        size = float(np.median(sizes))
        is_small, typical = size < thresholds.LARGE_MESSAGE.value, _format_bytes(size)
    else:
        is_small, typical = duration < thresholds.SMALL_REDUCE_MAX.value, format_duration(duration)
    per_step = f"{row.count / steps:,.0f} all-reduces{' a step' if len(view.steps) else ''}"
    return f"{per_step}, one per parameter, {typical} in the median" if is_small else ""


def measure_reduce_section(view: ScopeView) -> int:
    """Measure the sections of all-reduces: ns of the window, summed over devices."""
    return sum(section.total for section in view.compute_once(find_reduce_sections).values())


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
