"""Compare the edges between the calling thread and autograd's with those of loops over each ns."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.analysis.critical_path.edge_reference import list_columns
from tests.helpers.trace_builder import TID, cpu, kernel, python, runtime, trace
from torchprof_tui.analysis.critical_path.autograd_edges import add_hand_overs
from torchprof_tui.analysis.critical_path.dependency_graph import EdgeKind, GraphColumns
from torchprof_tui.analysis.critical_path.step_window import select_window_between
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

BACKWARD = "autograd::engine::evaluate_function: MulBackward0"
AUTOGRAD = (200, 201)


def draw_threads(seed: int) -> list[Any]:
    """Draw ops, calls and frames of the program's thread and of two others, that touch, nest or leave gaps."""
    random, entries = Random(seed), [kernel("k", 0, 41)]

    def pick(count: int) -> int:
        return int(random.random() * count)

    for thread in (TID, *AUTOGRAD):
        time = pick(6)
        while time < 40:
            length, kind = 1 + pick(6), pick(5)
            if kind == 0:
                entries.append(python((BACKWARD, "train.py(3): main")[pick(2)], time, length, thread))
            elif kind == 1:
                entries.append(runtime("cudaEventQuery", time, length, 0, thread))
            else:
                entries.append(cpu((BACKWARD, "aten::mul", "MulBackward0")[pick(3)], time, length, thread))
                if pick(2):
                    entries.append(cpu("aten::add", time, pick(length + 1), thread))
            time += length + (0, 0, 1, 3, 7)[pick(5)]
    return entries


def find_calls(model: Trace, lane: int, start: int, end: int) -> list[tuple[int, int]]:
    """Find the runs of ns in which a thread is inside an op or a call."""
    inside = set[int]()
    for event in range(model.lanes[lane].first, model.lanes[lane].last):
        if model.kind[event] in (Kind.OP, Kind.RUNTIME):
            inside |= set(range(model.start[event], model.start[event] + model.duration[event]))
    times = [time for time in range(start, end) if time in inside]
    starts = [time for time in times if time == start or time - 1 not in inside]
    ends = [time + 1 for time in times if time + 1 == end or time + 1 not in inside]
    return list(zip(starts, ends, strict=True))


def runs_backward(model: Trace, lane: int, start: int, end: int) -> bool:
    rows = range(model.lanes[lane].first, model.lanes[lane].last)
    ops = [event for event in rows if model.kind[event] == Kind.OP and start <= model.start[event] < end]
    return any(model.names[model.name[event]] in (BACKWARD, "MulBackward0") for event in ops)


@pytest.mark.parametrize("seed", range(12))
def test_each_gap_of_the_calling_thread_is_handed_over(seed: int) -> None:
    model = trace(*draw_threads(seed), ns=True)
    for start, end in ((0, 40), (7, 33), (12, 19)):
        window = select_window_between(model, None, 0, start, end)
        graph = GraphColumns(window)
        lanes = add_hand_overs(graph, model)
        assert lanes == [lane for lane in (1, 2) if runs_backward(model, lane, start, end)]
        edges, waits = [], []
        main = find_calls(model, 0, start, end)
        for lane in lanes:
            calls = find_calls(model, lane, start, end)
            gaps = zip([start, *(call[1] for call in main)], [*(call[0] for call in main), end], strict=True)
            for leave, back in gaps:
                within = [call for call in calls if leave <= call[0] and call[1] <= back]
                if within:
                    begin, last = within[0][0], within[-1][1]
                    edges += [(EdgeKind.HAND_OVER, (0, leave), (lane, begin), -1)]
                    edges += [(EdgeKind.HAND_OVER, (lane, last), (0, back), -1)]
                    waits += [(lane, begin, 0), (0, back, begin - leave + back - last)]
        if lanes:
            found, _, found_waits = list_columns(graph)
            assert sorted(found) == sorted(edges)
            assert sorted(found_waits) == sorted(waits)
