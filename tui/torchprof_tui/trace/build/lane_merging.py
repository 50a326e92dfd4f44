"""Merge the lanes of a file that has too many into lanes that several share.

Above MAX_LANES, the least important lanes are merged for drawing, and this is reported. A screen shows a hundred lanes;
a file may declare a million. Each lane costs a label, a heading and rows on the screen, so above MAX_LANES the
remaining lanes of one role (and one device) share a lane. Only drawing is bounded: parents and self times are computed
on the lanes of the file, before `merge_lanes` reorders the events.

A *slot* is a lane of the file; a *lane* is a lane of the trace, which has one slot unless slots were merged.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torchprof_tui.trace.build.lane_assignment import ROLES, PendingLane, PendingLanes
from torchprof_tui.trace.build.lane_order import (
    format_merged_label,
    section_of_role,
    sort_lanes,
)
from torchprof_tui.trace.build.nesting import Nesting, allocate_rows
from torchprof_tui.trace.build.track_metadata import TrackMetadata
from torchprof_tui.trace.core.arrays import I32, I64, Bool
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.thread_tasks import take_parallel

MAX_LANES = 10_000
"""Lanes of their own, plus a few that have no other lane to merge with. A host with 200 cores and 8 GPUs has some
thousand."""

_MAX_DEVICES = 256
"""Devices whose further lanes are kept apart, so that the busy time of each is known; the others are merged without a
device."""

MERGED_TID = "further"  # the tid of merged lanes; no thread has this one


@record
class LaneOrder:
    """The lanes in display order. Slots are renumbered so that lane k has slots `first[k]:first[k + 1]`."""

    pending_lanes: list[PendingLane]
    first: I64

    @property
    def merged_indexes(self) -> list[int]:
        """Indexes of the lanes that have several slots."""
        return [index for index, lane in enumerate(self.pending_lanes) if lane.merged_count]


def order_lanes(
    slot: I32, pending_lanes: PendingLanes, launches: I64, has_step: Bool, track_metadata: TrackMetadata
) -> tuple[LaneOrder, I32]:
    """Put the lanes in display order, above MAX_LANES with the least important ones merged.

    Returns the order and the renumbered slot of each drawn event, int32[d].

    `slot` int32[d]: the slot of each drawn event; `launches` int64[slots]: calls that launched GPU work; `has_step`
    bool[slots]: whether steps ran there.
    """
    is_separate = _select_separate_lanes(pending_lanes, launches, has_step)
    merged = []
    for lane, slots in _group_other_lanes(pending_lanes, ~is_separate):
        if len(slots) == 1:
            is_separate[slots] = True  # the only one of its group
        else:
            merged.append((lane, slots))
    separate_slots = np.flatnonzero(is_separate)
    separate = [pending_lanes.create_lane(k) for k in separate_slots.tolist()]
    columns = (launches[separate_slots].tolist(), has_step[separate_slots].tolist())
    for lane, launch_count, steps in zip(separate, *columns, strict=True):
        lane.launches, lane.has_step = launch_count, steps
    slot_of = {id(lane): k for lane, k in zip(separate, separate_slots.tolist(), strict=True)}
    ordered = sort_lanes(separate, track_metadata)
    members = [np.array([slot_of[id(lane)]]) for lane in ordered]
    for lane, slots in merged:
        index = sum(section_of_role(other.role) <= section_of_role(lane.role) for other in ordered)
        ordered.insert(index, lane)
        members.insert(index, slots)
    first = np.zeros(len(ordered) + 1, np.int64)
    np.cumsum([len(slots) for slots in members], out=first[1:])
    new_slot = np.empty(len(pending_lanes), np.int32)
    new_slot[np.concatenate(members) if members else []] = np.arange(len(pending_lanes), dtype=np.int32)
    return LaneOrder(ordered, first), take_parallel(new_slot, slot)


def _select_separate_lanes(pending_lanes: PendingLanes, launches: I64, has_step: Bool) -> Bool:
    """Select the MAX_LANES most important: those with steps, with launches, with most events: bool[slots]."""
    order = np.lexsort((-pending_lanes.events, -launches, ~has_step))
    is_separate = np.zeros(len(pending_lanes), np.bool_)
    is_separate[order[:MAX_LANES]] = True
    return is_separate


def _group_other_lanes(pending_lanes: PendingLanes, others: Bool) -> Iterator[tuple[PendingLane, I64]]:
    """Group the slots to be merged by role and by device, except beyond _MAX_DEVICES: (merged lane, its slots)."""
    remaining = np.flatnonzero(others)
    for role in np.unique(pending_lanes.role[remaining]).tolist():
        slots = remaining[pending_lanes.role[remaining] == role]
        devices, code = np.unique(pending_lanes.device[slots], return_inverse=True)
        order = np.argsort(-np.bincount(code, weights=pending_lanes.events[slots]), kind="stable")
        kept = devices[order[:_MAX_DEVICES]]
        device_of_slot = np.where(np.isin(pending_lanes.device[slots], kept), pending_lanes.device[slots], -1)
        for number in np.unique(device_of_slot).tolist():
            members = slots[device_of_slot == number]
            device = None if number < 0 else number
            pid = "" if device is None else str(device)
            lane = PendingLane(ROLES[role], pid, MERGED_TID, device=device, merged_count=len(members))
            lane.events = int(pending_lanes.events[members].sum())
            yield lane, members


def describe_merged_lanes(lane_order: LaneOrder) -> tuple[str, int]:
    """Describe the merged lanes for the problem that reports them: an example, and how many slots are merged."""
    lanes = [lane_order.pending_lanes[index] for index in lane_order.merged_indexes]
    words = ", ".join(format_merged_label(lane) for lane in lanes[:3])
    return f"{words}{', …' if len(lanes) > 3 else ''}", sum(lane.merged_count for lane in lanes)


def merge_lanes(lane_order: LaneOrder, slot: I32, start: I64, duration: I64, row: I32) -> tuple[I64, I32, I32]:
    """Reorder events sorted by slot so that they are sorted by lane; all arrays are [n], by slot.

    Returns `order` int64[n] (new event k is old event `order[k]`), and the lane and the row of the new events: where
    slots are merged, the lowest free row. Parents still precede their children.
    """
    bounds = np.searchsorted(slot, lane_order.first)
    lane = np.repeat(np.arange(len(lane_order.pending_lanes), dtype=np.int32), np.diff(bounds))
    order = np.arange(len(slot))
    row = row.copy()
    for index in lane_order.merged_indexes:
        low, high = int(bounds[index]), int(bounds[index + 1])
        members = low + np.lexsort((-duration[low:high], start[low:high]))
        order[low:high] = members
        row[low:high] = allocate_rows(start[members], start[members] + np.maximum(duration[members], 1))
    return order, lane, row


def reorder_nesting(nested: Nesting, order: I64, row: I32) -> Nesting:
    """Renumber the nesting when new event k is old event `order[k]`; `row`: the rows of the new events."""
    new_index = np.empty(len(order), np.int32)
    new_index[order] = np.arange(len(order), dtype=np.int32)
    parent = nested.parent[order]
    parent = np.where(parent >= 0, new_index[parent], np.int32(-1))
    return Nesting(row, parent, new_index[nested.crossed], new_index[nested.crossing])
