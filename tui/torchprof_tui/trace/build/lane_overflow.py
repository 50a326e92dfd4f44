"""What happens where a file has lanes beyond counting: those that say least are drawn together, and it is said.

A screen shows a hundred lanes; a file may declare a million. Each lane costs a label, a heading and lines of the
screen, so beyond MOST_LANES the others of one role (and one device) share a line. Only drawing is bounded: parents
and self times are found on the lanes as the file has them, before, and `put_together` renumbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torchprof_tui.trace.build.lane_assignment import ROLES, PendingLane, PendingLanes
from torchprof_tui.trace.build.lane_order import TrackMetadata, format_merged_label, section_of_role, sort_lanes
from torchprof_tui.trace.build.nesting import Nesting, allocate_rows
from torchprof_tui.trace.core.arrays import I32, I64, Bool, take_chunked

MAX_LANES = 10_000
"""Lanes with lines of their own, and some more where there is none to share one with. A host with 200 cores and 8 GPUs
has some thousand."""

_MAX_DEVICES = 256
"""Devices whose further lanes are kept apart, so that each is told how busy it was; of others no device is known."""


@dataclass(frozen=True, slots=True)
class LaneOrder:
    """The lanes in the order they stand, and the places of the file on each: one, but for those put together.

    `lane` int32[d]: the place of each drawn event, numbered so that lane k has places `first[k]:first[k + 1]`.
    """

    pending_lanes: list[PendingLane]
    first: I64
    lane: I32

    @property
    def merged_indexes(self) -> list[int]:
        """Lanes on which several places are drawn together."""
        return [number for number, place in enumerate(self.pending_lanes) if place.merged_count]


def order_lanes(
    slot: I32, pending_lanes: PendingLanes, launches: I64, has_step: Bool, track_metadata: TrackMetadata
) -> LaneOrder:
    """All places in order. `slot` int32[d]: the place of each drawn event; `launches`, `has_step` [places]: calls that
    launched GPU work there, whether it ran steps.
    """
    alone = (
        np.ones(len(pending_lanes), np.bool_)
        if len(pending_lanes) <= MAX_LANES
        else _select_separate_lanes(pending_lanes, launches, has_step)
    )
    further = list(_merge_other_lanes(pending_lanes, ~alone))
    for _, slots in further:
        alone[slots] |= len(slots) == 1
    mine = np.flatnonzero(alone)
    own = [pending_lanes.create_lane(k) for k in mine.tolist()]
    for place, count, steps in zip(own, launches[mine].tolist(), has_step[mine].tolist(), strict=True):
        place.launches, place.has_step = count, steps
    slot_of = {id(place): k for place, k in zip(own, mine.tolist(), strict=True)}
    standing = sort_lanes(own, track_metadata)
    members = [np.array([slot_of[id(place)]]) for place in standing]
    for place, slots in further:
        if len(slots) == 1:
            continue  # a line to itself after all
        at = sum(section_of_role(other.role) <= section_of_role(place.role) for other in standing)
        standing.insert(at, place)
        members.insert(at, slots)
    first = np.zeros(len(standing) + 1, np.int64)
    np.cumsum([len(slots) for slots in members], out=first[1:])
    number = np.empty(len(pending_lanes), np.int32)
    number[np.concatenate(members) if members else []] = np.arange(len(pending_lanes), dtype=np.int32)
    return LaneOrder(standing, first, take_chunked(number, slot))


def _select_separate_lanes(found: PendingLanes, launches: I64, has_step: Bool) -> Bool:
    """bool[places]: which keep a line of their own: those with steps, with launches, with most events."""
    order = np.lexsort((-found.events, -launches, ~has_step))
    alone = np.zeros(len(found), np.bool_)
    alone[order[:MAX_LANES]] = True
    return alone


def _merge_other_lanes(found: PendingLanes, others: Bool) -> Iterator[tuple[PendingLane, I64]]:
    """The places to be drawn together, and their numbers: by role, and by device where these are few."""
    many = np.flatnonzero(others)
    for code in np.unique(found.role[many]).tolist():
        slots = many[found.role[many] == code]
        known, which = np.unique(found.device[slots], return_inverse=True)
        order = np.argsort(-np.bincount(which, weights=found.events[slots]), kind="stable")
        kept = known[order[:_MAX_DEVICES]]
        device = np.where(np.isin(found.device[slots], kept), found.device[slots], -1)
        for on in np.unique(device).tolist():
            mine = slots[device == on]
            pid = "" if on < 0 else str(on)
            place = PendingLane(ROLES[code], pid, MERGED_TID, device=None if on < 0 else on, merged_count=len(mine))
            place.events = int(found.events[mine].sum())
            yield place, mine


MERGED_TID = "further"
"""The tid of lanes put together; no thread is called so."""


def describe_merged_lanes(lane_order: LaneOrder) -> tuple[str, int]:
    """What the problem of such a trace says: an example, and how many lanes share a line."""
    places = [lane_order.pending_lanes[number] for number in lane_order.merged_indexes]
    words = ", ".join(format_merged_label(place) for place in places[:3])
    return f"{words}{', …' if len(places) > 3 else ''}", sum(place.merged_count for place in places)


def merge_lanes(lane_order: LaneOrder, lane: I32, start: I64, duration: I64, row: I32) -> tuple[I64, I32, I32]:
    """How to order events that are sorted by place so that they are sorted by lane; all arrays [n], by place.

    Returns `order` int64[n] (new event k is old event `order[k]`), and of the new events lane and row: where several
    places lie together, the lowest row that is free. Parents still come before their children.
    """
    bounds = np.searchsorted(lane, lane_order.first)
    lanes = np.repeat(np.arange(len(lane_order.pending_lanes), dtype=np.int32), np.diff(bounds))
    order = np.arange(len(lane))
    row = row.copy()
    for number in lane_order.merged_indexes:
        low, high = int(bounds[number]), int(bounds[number + 1])
        mine = low + np.lexsort((-duration[low:high], start[low:high]))
        order[low:high] = mine
        row[low:high] = allocate_rows(start[mine], start[mine] + np.maximum(duration[mine], 1))
    return order, lanes, row


def reorder_nesting(nested: Nesting, order: I64, row: I32) -> Nesting:
    """The same nesting when new event k is old event `order[k]`, in these rows."""
    number = np.empty(len(order), np.int32)
    number[order] = np.arange(len(order), dtype=np.int32)
    parent = nested.parent[order]
    parent = np.where(parent >= 0, number[parent], np.int32(-1))
    return Nesting(row, parent, number[nested.crossed], number[nested.crossing])
