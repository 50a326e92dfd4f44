"""The flow entries of a file, and which event each belongs to: a trace keeps only what they join."""

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
    """k flow entries, in file order. `ordinal`: which entry; `owner`: the event it is bound to, -1 for none known;
    `group`: the same number for those with the same category and id; `begins`: whether it is an `s`; `time`: ns.
    """

    ordinal: I64
    owner: I64
    group: I64
    is_start: Bool
    time: I64

    def add_other_ends(self, selected: Bool, kept: Bool) -> None:
        """Keep the events that flows join with one `of` these. Ids used for several flows tell nothing: left alone."""
        owned = np.flatnonzero(self.owner >= 0)
        size = int(self.group.max(initial=-1)) + 1
        once = np.bincount(self.group[self.is_start], minlength=size) == 1
        wanted = np.zeros(size, np.bool_)
        wanted[self.group[owned[selected[self.owner[owned]]]]] = True
        ends = owned[(wanted & once)[self.group[owned]]]
        kept[self.owner[ends]] = True

    def select_ordinals(self, events: Bool, t0: int, t1: int) -> I64:
        """The ordinals of those that belong to kept events, or to none that is known and lie in the range."""
        inside = (self.owner < 0) & (self.time >= t0) & (self.time < t1)
        mine = (self.owner >= 0) & events[np.maximum(self.owner, 0)] if len(events) else inside
        found: I64 = self.ordinal[inside | mine]
        return found


@dataclass(frozen=True, slots=True)
class FlowEntry:
    """One flow entry as it was met. `before`: the event that the entry before it became (flows left out), or -1."""

    ordinal: int
    key: tuple[str, str]
    is_start: bool
    time: int
    track: tuple[str, str]
    previous_event: int


def bind_flows(trace: Trace, entries: Iterable[FlowEntry]) -> FlowEntries:
    """Each to its event: the one it directly follows in the file, as Kineto writes, else the innermost around it."""
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
