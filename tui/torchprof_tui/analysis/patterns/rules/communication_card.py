"""The communication card as a pattern: what the GPUs exchanged, whether a problem or not."""

from __future__ import annotations

from torchprof_tui.analysis.collectives.communication_card import CommunicationCard, build_communication_card
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.missing_data import NO_GPU
from torchprof_tui.analysis.patterns.engine.pattern import (
    Answer,
    Section,
    Severity,
    absent_answer,
    cannot_tell_answer,
    fired_answer,
)
from torchprof_tui.analysis.patterns.engine.registry import register_pattern
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView


@register_pattern(
    "communication",
    Section.BEYOND,
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
    severity=Severity.NOTICE,
)
def communication(view: ScopeView) -> Answer:
    if not len(view.tables.work):
        return cannot_tell_answer(NO_GPU)
    card = build_card_of_view(view)
    if card.count:
        return fired_answer(card.describe(), card.events)
    if len(view.tables.communication[0]):
        return absent_answer("no communication in this range")
    rank_context = view.tables.rank_context
    rank_count = len(rank_context.arrivals.ranks) if rank_context else view.trace.world_size or 1
    if rank_count < 2:
        return cannot_tell_answer("one rank only: no communication was recorded")
    return absent_answer(f"{rank_count} ranks, no communication was recorded")


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
