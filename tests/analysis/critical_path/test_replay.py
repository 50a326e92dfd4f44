"""Test the replay of a graph and the slack of its nodes on literal graphs, and which delays waits have in real ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.helpers.trace_builder import cpu, kernel, python, runtime, step, trace
from torchprof_tui.analysis.critical_path.critical_path import find_critical_path
from torchprof_tui.analysis.critical_path.dependency_graph import (
    DependencyGraph,
    EdgeKind,
    compute_node_slack,
    find_path,
    replay_graph,
)
from torchprof_tui.analysis.critical_path.step_window import GpuWorkColumns, StepWindow
from torchprof_tui.trace.model.trace import Trace

AUTOGRAD = 200


def make_graph(times: list[int], *edges: tuple[int, int, int]) -> DependencyGraph:
    """Make a graph of nodes at these times, ns, and edges (source, target, delay)."""
    edges = tuple(sorted(edges, key=lambda edge: (edge[1], edge[0])))
    source, target, delay = (np.array([edge[k] for edge in edges], np.int64) for k in range(3))
    binding = np.full(len(times), -1, np.int32)
    binding[target] = np.arange(len(edges), dtype=np.int32)  # the latest source
    none = np.zeros(0, np.int32)
    work = GpuWorkColumns(none, none, none, *(np.zeros(0, np.int64) for _ in range(4)), np.zeros(0, np.bool_))
    return DependencyGraph(
        window=StepWindow(None, 0, times[0], times[-1], times[-1], work),
        time=np.array(times, np.int64), node_lane=np.zeros(len(times), np.int32), work_start=none, work_end=none,
        edge_kind=np.zeros(len(edges), np.uint8), source=source.astype(np.int32), target=target.astype(np.int32),
        event=np.full(len(edges), -1, np.int32), delay=delay, binding=binding, dropped=0, first=0, last=len(times) - 1,
    )  # fmt: skip


def test_a_node_that_waits_for_nothing_is_reached_as_recorded() -> None:
    """The first node of the second thread is at 25, although the window begins at 10."""
    graph = make_graph([10, 25, 40], (0, 2, 5), (1, 2, 15))
    assert replay_graph(graph).tolist() == [10, 25, 40]
    assert replay_graph(graph, np.array([5, 3])).tolist() == [10, 25, 28]


def test_a_node_is_reached_by_the_latest_of_its_edges() -> None:
    graph = make_graph([0, 10, 20, 50], (0, 1, 10), (0, 2, 20), (1, 3, 40), (2, 3, 5))
    assert replay_graph(graph).tolist() == [0, 10, 20, 50]
    assert replay_graph(graph, np.array([10, 60, 40, 5])).tolist() == [0, 10, 60, 65]


def test_the_critical_path_has_no_slack() -> None:
    """Its edge takes 30 although 10 would do: a later start makes the end later. The other edge has 18 for 10."""
    graph = make_graph([0, 12, 20, 30], (0, 3, 10), (1, 3, 10), (2, 3, 10))
    assert graph.binding.tolist() == [-1, -1, -1, 2]
    assert compute_node_slack(graph).tolist() == [20, 8, 0, 0]
    late = make_graph([0, 30], (0, 1, 10))
    assert compute_node_slack(late).tolist() == [0, 0]
    assert find_path(late).tolist() == [0]


def find_thread_delay(model: Trace, begin: int, end: int) -> int:
    """Find how long the thread's edge between two times, µs, takes by itself, µs."""
    graph = find_critical_path(model).graph
    between = (graph.time[graph.source] == begin * 1000) & (graph.time[graph.target] == end * 1000)
    (edge,) = np.flatnonzero(between & (graph.edge_kind == EdgeKind.THREAD))
    assert graph.recorded[edge] == (end - begin) * 1000
    return int(graph.delay[edge]) // 1000


@pytest.mark.parametrize(
    ("work_end", "own"),
    [
        (73, 3),  # the call waited for the work, and returned 3 µs after it
        (50, 5),  # it waited for something else after that, too: its own time is taken to be 5 µs
        (20, 56),  # the work had ended when the call began: nothing says that it waited
        (15, 56),
    ],
)
def test_a_blocking_call_takes_what_it_did_not_wait(work_end: int, own: int) -> None:
    model = trace(
        step(1, 0, 100),
        runtime("cudaLaunchKernel", 4, 6, 1),
        kernel("gemm", 11, work_end - 11, 1),
        runtime("cudaDeviceSynchronize", 20, 56, 2),
    )
    assert find_thread_delay(model, 20, 76) == own


def test_a_thread_that_waits_for_the_backward_pass_takes_only_the_hand_overs() -> None:
    """Autograd's thread works from 20 to 72: of the 75 µs on the main thread, 10 before and 13 after it are its own."""
    model = trace(
        step(1, 0, 100),
        cpu("aten::mse_loss", 0, 10),
        python("<built-in method run_backward>", 12, 70),
        cpu("autograd::engine::evaluate_function: MulBackward0", 20, 30, thread=AUTOGRAD),
        cpu("autograd::engine::evaluate_function: AddBackward0", 52, 20, thread=AUTOGRAD),
        cpu("aten::add_", 85, 5),
    )
    assert find_thread_delay(model, 10, 85) == 23


def test_a_launch_that_waits_for_room_takes_little_time_of_its_own() -> None:
    entries: list[Any] = [step(1, 0, 3600)]
    for number in range(600):
        entries.append(runtime("cudaLaunchKernel", 5 * number, 2, number + 1))
        entries.append(kernel("work", 3000 + 11 * number, 10, number + 1))
    entries += [runtime("cudaLaunchKernel", 3000, 551, 601), kernel("last", 9600, 10, 601)]
    assert find_thread_delay(trace(*entries), 3000, 3551) == 5
