"""The dispatch chain through an event, found the slow way: from the file's entries, by looking at every event."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from tests.helpers.slow_reference import covered
from torchprof_tui.analysis.dispatch.chain import ChainFinder, JoinMethod
from torchprof_tui.trace.model.trace import Trace

_WORK = ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset", "collective_comm", "mtia_ccp_events")


class Expected(NamedTuple):
    """Rows of the trace. `path` outermost first, without the step of another thread."""

    path: list[int]
    work: set[int]
    latency: int | None
    delay: int | None
    held_up: int


class SlowChains:
    """`entries`: the objects of `traceEvents`, in file order."""

    def __init__(self, trace: Trace, entries: list[dict[str, Any]]) -> None:
        self.trace = trace
        self._end = np.asarray(trace.start) + np.asarray(trace.duration)
        category = [str(entries[k].get("cat", "")).lower() for k in trace.ordinal.tolist()]
        number = [_correlation(entries[k]) for k in trace.ordinal.tolist()]
        self.work = [row for row, cat in enumerate(category) if cat in _WORK]
        calls: dict[int, int] = {}
        for wanted in ("_driver", "_runtime"):  # what is written later stays: runtime calls, and the first of them
            for row in reversed(range(len(category))):
                is_runtime = category[row].endswith("_runtime") or category[row] == "runtime"
                if category[row].endswith(wanted) or (wanted == "_runtime" and is_runtime):
                    calls[number[row]] = row
        self.launch = {
            row: calls[number[row]] for row in self.work if number[row] not in (0, -1) and number[row] in calls
        }
        self._around: dict[int, int] = {}

    def around(self, row: int) -> int:
        """The innermost event that contains a row on its thread, -1 for none."""
        if row not in self._around:
            trace = self.trace
            earlier = slice(trace.lanes[int(trace.lane[row])].first, row)
            open_still = np.maximum(self._end[earlier], trace.start[earlier] + 1) > trace.start[row]
            stop = max(self._end[row], trace.start[row] + 1)
            ends = np.maximum(self._end[earlier], trace.start[earlier] + 1)
            found = np.flatnonzero(open_still & (ends >= stop))
            self._around[row] = earlier.start + int(found[-1]) if len(found) else -1
        return self._around[row]

    def upwards(self, row: int) -> list[int]:
        """The row and all that contain it on its thread, innermost first."""
        found = [row]
        while (around := self.around(found[-1])) >= 0:
            found.append(around)
        return found

    def candidates(self, row: int) -> list[int]:
        """GPU work that may have been launched beneath a row: its launch began on the same lane, in the same time."""
        trace = self.trace
        first, last = int(trace.start[row]), max(int(self._end[row]), int(trace.start[row]) + 1)
        return [
            piece
            for piece, launch in self.launch.items()
            if trace.lane[launch] == trace.lane[row] and first <= trace.start[launch] < last
        ]

    def chain(self, row: int) -> Expected:
        """Of an event on a thread, or of GPU work whose launch is known."""
        trace = self.trace
        if row in self.launch:
            piece, work = row, {row}
        else:
            work = {piece for piece in self.candidates(row) if row in self.upwards(self.launch[piece])}
            if not work:
                return Expected(self.upwards(row)[::-1], work, None, None, 0)
            piece = min(work, key=lambda each: (-int(trace.duration[each]), int(trace.start[each]), each))
        call = self.launch[piece]
        start, returned = int(trace.start[piece]), int(self._end[call])
        lane = trace.lanes[int(trace.lane[piece])]
        before = range(lane.first, piece)
        busy = [(max(int(trace.start[each]), returned), min(int(self._end[each]), start)) for each in before]
        held_up = covered([interval for interval in busy if interval[0] < interval[1]]) if start > returned else 0
        path = [*self.upwards(call)[::-1], piece]
        return Expected(path, work, start - int(trace.start[call]), start - returned, held_up)


def _correlation(entry: dict[str, Any]) -> int:
    args = entry.get("args")
    value = args.get("correlation") if isinstance(args, dict) else None
    return -1 if value is None else int(value)


def check_against_the_slow_way(made: Trace, slow: SlowChains, rows: Iterable[int]) -> None:
    dispatch = ChainFinder(made)
    steps = {step.event for step in made.steps}
    gpu = set(slow.work)
    for event in rows:
        found = dispatch.find_chain(event)
        if event in gpu and event not in slow.launch:
            assert found.join_method in (JoinMethod.NO_LAUNCH, JoinMethod.EXTERNAL_ID)
            continue
        expected = slow.chain(event)
        path = [hop.event for hop in found.hops]
        if path[0] in steps and path[0] not in expected.path:
            path = path[1:]
        assert path == expected.path
        assert set(found.work.events.tolist()) == expected.work
        assert (found.launch_latency, found.queue_delay) == (expected.latency, expected.delay)
        assert found.held_up == expected.held_up
        assert [hop.offset for hop in found.hops[1:]] == [
            below.start - above.start for above, below in zip(found.hops, found.hops[1:], strict=False)
        ]
