"""Slow reference for dispatch chains: derived from the file's entries by comparing every event."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from tests.helpers.slow_reference import covered, is_gpu_work, join_npu_work
from torchprof_tui.analysis.dispatch.chain import ChainFinder, JoinMethod
from torchprof_tui.trace.model.trace import Trace

_COLLECTIVES = "collective_comm"


class ExpectedChain(NamedTuple):
    """Rows of the trace. `path`: outermost first, without a step of another thread. Times in ns."""

    path: list[int]
    work: set[int]
    latency: int | None
    delay: int | None
    held_up: int


class ReferenceChains:
    """Reference chains of a trace. `entries`: the objects of `traceEvents`, in file order."""

    def __init__(self, trace: Trace, entries: list[dict[str, Any]]) -> None:
        self.trace = trace
        self._end = np.asarray(trace.start) + np.asarray(trace.duration)
        category = [str(entries[k].get("cat", "")).lower() for k in trace.ordinal.tolist()]
        number = [_correlation(entries[k]) for k in trace.ordinal.tolist()]
        self.work = [
            row
            for row, k in enumerate(trace.ordinal.tolist())
            if is_gpu_work(entries[k]) or category[row] == _COLLECTIVES
        ]
        calls: dict[int, int] = {}
        for suffix in ("_driver", "_runtime"):  # later writes win: runtime calls, and the first call of each kind
            for row in reversed(range(len(category))):
                is_runtime = category[row].endswith("_runtime") or category[row] == "runtime"
                if category[row].endswith(suffix) or (suffix == "_runtime" and is_runtime):
                    calls[number[row]] = row
        self.launch = {
            row: calls[number[row]] for row in self.work if number[row] not in (0, -1) and number[row] in calls
        }
        row_of_entry = {int(ordinal): row for row, ordinal in enumerate(trace.ordinal)}
        for work, op in join_npu_work(entries).items():
            self.work.append(row_of_entry[work])
            self.launch[row_of_entry[work]] = row_of_entry[op]
        self._parents: dict[int, int] = {}

    def find_parent(self, row: int) -> int:
        """Find the innermost event that contains a row on its thread, -1 for none."""
        if row not in self._parents:
            trace = self.trace
            earlier = slice(trace.lanes[int(trace.lane[row])].first, row)
            is_open = np.maximum(self._end[earlier], trace.start[earlier] + 1) > trace.start[row]
            stop = max(self._end[row], trace.start[row] + 1)
            ends = np.maximum(self._end[earlier], trace.start[earlier] + 1)
            enclosing = np.flatnonzero(is_open & (ends >= stop))
            self._parents[row] = earlier.start + int(enclosing[-1]) if len(enclosing) else -1
        return self._parents[row]

    def list_enclosing(self, row: int) -> list[int]:
        """List the row and all events that contain it on its thread, innermost first."""
        rows = [row]
        while (parent := self.find_parent(rows[-1])) >= 0:
            rows.append(parent)
        return rows

    def list_candidates(self, row: int) -> list[int]:
        """List GPU work that a row may have launched: its launch began on the same lane, during the row."""
        trace = self.trace
        first, last = int(trace.start[row]), max(int(self._end[row]), int(trace.start[row]) + 1)
        return [
            work
            for work, launch in self.launch.items()
            if trace.lane[launch] == trace.lane[row] and first <= trace.start[launch] < last
        ]

    def find_chain(self, row: int) -> ExpectedChain:
        """Find the chain of an event on a thread, or of GPU work whose launch is known."""
        trace = self.trace
        if row in self.launch:
            gpu_event, work = row, {row}
        else:
            work = {event for event in self.list_candidates(row) if row in self.list_enclosing(self.launch[event])}
            if not work:
                return ExpectedChain(self.list_enclosing(row)[::-1], work, None, None, 0)
            gpu_event = min(work, key=lambda event: (-int(trace.duration[event]), int(trace.start[event]), event))
        call = self.launch[gpu_event]
        start, call_end = int(trace.start[gpu_event]), int(self._end[call])
        lane = trace.lanes[int(trace.lane[gpu_event])]
        earlier = range(lane.first, gpu_event)
        busy = [(max(int(trace.start[event]), call_end), min(int(self._end[event]), start)) for event in earlier]
        held_up = covered([interval for interval in busy if interval[0] < interval[1]]) if start > call_end else 0
        path = [*self.list_enclosing(call)[::-1], gpu_event]
        return ExpectedChain(path, work, start - int(trace.start[call]), start - call_end, held_up)


def _correlation(entry: dict[str, Any]) -> int:
    args = entry.get("args")
    value = args.get("correlation") if isinstance(args, dict) else None
    return -1 if value is None else int(value)


def assert_chains_equal(trace: Trace, reference: ReferenceChains, rows: Iterable[int]) -> None:
    """Compare the chains of `rows` with the reference."""
    finder = ChainFinder(trace)
    steps = {step.event for step in trace.steps}
    gpu_events = set(reference.work)
    for event in rows:
        found = finder.find_chain(event)
        if event in gpu_events and event not in reference.launch:
            assert found.join_method in (JoinMethod.NO_LAUNCH, JoinMethod.EXTERNAL_ID)
            continue
        expected = reference.find_chain(event)
        path = [hop.event for hop in found.hops]
        if path[0] in steps and path[0] not in expected.path:
            path = path[1:]
        assert path == expected.path
        assert set(found.work.events.tolist()) == expected.work
        assert (found.launch_latency, found.queue_delay) == (expected.latency, expected.delay)
        assert found.held_up == expected.held_up
        assert [hop.offset for hop in found.hops[1:]] == [
            hop.start - previous.start for previous, hop in zip(found.hops, found.hops[1:], strict=False)
        ]
