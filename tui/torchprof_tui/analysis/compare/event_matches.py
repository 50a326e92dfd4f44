"""Find for each event of both traces whether it is matched, changed or without a counterpart, and the counterpart."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from torchprof_tui.analysis.compare.compared_tree import ComparedTree
from torchprof_tui.analysis.compare.matched_rows import find_same_calls
from torchprof_tui.analysis.compare.matching import MatchedGroup, MatchedPairs, TreeMatch
from torchprof_tui.analysis.compare.op_tree import Side
from torchprof_tui.trace.core.arrays import I32, I64, U8, Bool
from torchprof_tui.trace.core.records import record


class EventStatus(IntEnum):
    """What became of an event on the other side."""

    NOT_COMPARED = 0  # outside of the compared steps, or no level of the call tree: a Python frame, a nested launch
    MATCHED = 1
    CHANGED = 2  # other names, or other GPU work, at the same place
    ONE_SIDE = 3  # only on this side: removed from A, or added in B


@record(slots=False)
class EventMatches:
    """The matches of a side with n events. `status` uint8[n] of `EventStatus`; `counterpart` int32[n]: the event of
    the other trace in the same place of the same compared step (of several the first), -1 for none."""

    status: U8
    counterpart: I32


def match_events(match: TreeMatch, side_a: Side, side_b: Side) -> tuple[EventMatches, EventMatches]:
    """Find the matches of the events of A and of B. Steps correspond by their position among the compared ones."""
    calls = _number_places(match.calls, match.call_groups, find_same_calls(match), len(match.a.tree), len(match.b.tree))
    same_work = match.a.work_label[match.work.a] == match.b.work_label[match.work.b]
    rows = len(match.a.tree.work.node), len(match.b.tree.work.node)
    work = _number_places(match.work, match.work_groups, same_work, *rows)
    sides = [
        _collect_events(tree, side, *(places[index] for places in (calls, work)))
        for index, (tree, side) in enumerate(((match.a, side_a), (match.b, side_b)))
    ]
    return _link_events(sides[0], sides[1], len(side_a.trace)), _link_events(sides[1], sides[0], len(side_b.trace))


@record
class _Places:
    """By node, or by row of GPU work: `number` int64[n] of its place, the same on both sides, -1 where only one side
    has it; `status` uint8[n]."""

    number: I64
    status: U8


@record
class _PlacedEvents:
    """The k compared events of a side: `event` int32[k]; `key` int64[k]: place and step, -1 for one side only."""

    event: I32
    key: I64
    status: U8


def _number_places(
    pairs: MatchedPairs, groups: list[MatchedGroup], same: Bool, count_a: int, count_b: int
) -> tuple[_Places, _Places]:
    """Number the places of all pairs and groups, from 0 on."""
    sides = tuple(
        _Places(np.full(count, -1, np.int64), np.full(count, EventStatus.ONE_SIDE, np.uint8))
        for count in (count_a, count_b)
    )
    status = np.where(same, EventStatus.MATCHED, EventStatus.CHANGED).astype(np.uint8)
    for places, members in zip(sides, (pairs.a, pairs.b), strict=True):
        places.number[members] = np.arange(len(members))
        places.status[members] = status
    for index, group in enumerate(groups):
        if group.members_a and group.members_b:
            for places, listed in zip(sides, (group.members_a, group.members_b), strict=True):
                places.number[list(listed)] = len(pairs.a) + index
                places.status[list(listed)] = EventStatus.CHANGED
    return sides[0], sides[1]


def _collect_events(tree: ComparedTree, side: Side, calls: _Places, work: _Places) -> _PlacedEvents:
    """Collect the events that are nodes of the call tree, and the GPU work; places of work follow those of calls."""
    trace, selected = side.trace, tree.tree.selected
    node = tree.tree.node_of_call
    is_level = tree.tree.label[node] == trace.name[selected.calls]  # else it only counts for the node
    is_level &= tree.tree.event[node] >= 0
    call, node = selected.calls[is_level], node[is_level]
    launch = trace.links.launch_of[selected.work]
    starts = np.array([step.start for step in side.steps] or [side.window[0]], np.int64)
    events = np.concatenate([call, selected.work])
    begun = np.concatenate([call, np.where(launch >= 0, launch, selected.work)])
    step = np.maximum(starts.searchsorted(trace.start[begun], side="right") - 1, 0)
    number = np.concatenate([calls.number[node] * 2, work.number[tree.tree.row_of_work] * 2 + 1])
    status = np.concatenate([calls.status[node], work.status[tree.tree.row_of_work]])
    key = np.where(number >= 0, (number << 32) | step, -1)
    return _PlacedEvents(events.astype(np.int32), key, status)


def _link_events(own: _PlacedEvents, other: _PlacedEvents, count: int) -> EventMatches:
    """Link the events of a side with `count` events to those of the other side with the same key."""
    status = np.zeros(count, np.uint8)
    status[own.event] = own.status
    counterpart = np.full(count, -1, np.int32)
    order = np.lexsort((other.event, other.key))
    keys = other.key[order]
    place = np.minimum(keys.searchsorted(own.key), max(len(keys) - 1, 0))
    if len(keys):
        found = (own.key >= 0) & (keys[place] == own.key)
        counterpart[own.event[found]] = other.event[order][place[found]]
    return EventMatches(status, counterpart)
