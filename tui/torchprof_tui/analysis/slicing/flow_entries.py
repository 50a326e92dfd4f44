"""Flow entries of a file, bound to events. A loaded trace keeps only the links between events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64, Bool
from torchprof_tui.trace.model.lanes import LANE_KIND
from torchprof_tui.trace.model.trace import Trace

FLOW_PHASES = frozenset("stf")


@dataclass(frozen=True, slots=True)
class FlowEntries:
    """k flow entries, in file order.

    `ordinal`: number of the entry in the file. `owner`: the event it is bound to, -1 if unknown. `group`: equal for
    entries with the same category and id. `is_start`: whether the phase is `s`. `time`: ns.
    """

    ordinal: I64
    owner: I64
    group: I64
    is_start: Bool
    time: I64

    def add_other_ends(self, selected: Bool, kept: Bool) -> None:
        """Keep the events that a flow joins with a selected one. Ids of several flows are ambiguous and ignored."""
        owned = np.flatnonzero(self.owner >= 0)
        size = int(self.group.max(initial=-1)) + 1
        is_unique = np.bincount(self.group[self.is_start], minlength=size) == 1
        is_selected = np.zeros(size, np.bool_)
        is_selected[self.group[owned[selected[self.owner[owned]]]]] = True
        ends = owned[(is_selected & is_unique)[self.group[owned]]]
        kept[self.owner[ends]] = True

    def select_ordinals(self, events: Bool, t0: int, t1: int) -> I64:
        """Select the ordinals of entries owned by kept `events` (bool[n]), or without owner and inside the range."""
        unowned = (self.owner < 0) & (self.time >= t0) & (self.time < t1)
        owned = (self.owner >= 0) & events[np.maximum(self.owner, 0)] if len(events) else unowned
        ordinals: I64 = self.ordinal[unowned | owned]
        return ordinals


@dataclass(frozen=True, slots=True)
class FlowEntry:
    """One flow entry as read. `previous_event`: the event of the last entry before it that is no flow, or -1."""

    ordinal: int
    key: tuple[str, str]
    is_start: bool
    time: int
    track: tuple[str, str]
    previous_event: int


def bind_flows(trace: Trace, entries: Iterable[FlowEntry]) -> FlowEntries:
    """Bind each flow to its event: the one before it in the file, as Kineto writes it, else the innermost around it."""
    flows = list(entries)
    groups: dict[tuple[str, str], int] = {}
    lanes = {
        (lane.pid, lane.tid): number
        for number, lane in reversed(list(enumerate(trace.lanes)))
        if LANE_KIND[lane.role] in ("cpu", "gpu")
    }
    return FlowEntries(
        ordinal=np.array([flow.ordinal for flow in flows], np.int64),
        owner=np.array([_find_owner(trace, flow, lanes) for flow in flows], np.int64),
        group=np.array([groups.setdefault(flow.key, len(groups)) for flow in flows], np.int64),
        is_start=np.array([flow.is_start for flow in flows], np.bool_),
        time=np.array([flow.time for flow in flows], np.int64),
    )


def _find_owner(trace: Trace, flow: FlowEntry, lanes: dict[tuple[str, str], int]) -> int:
    if flow.previous_event >= 0 and trace.start[flow.previous_event] == flow.time:
        return flow.previous_event
    number = lanes.get(flow.track)
    if number is None:
        return -1
    lane = trace.lanes[number]
    starts: I64 = trace.start[lane.first : lane.last]
    event = lane.first + int(starts.searchsorted(flow.time, side="right")) - 1
    if event < lane.first:
        return -1
    parents: I32 = trace.parent
    while event >= 0 and trace.start[event] + trace.duration[event] < flow.time:
        event = int(parents[event])
    return event
