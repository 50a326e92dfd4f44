"""The call tree inside replays: modules and ops of the capture between a launch and its kernels."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from tests.analysis.graphs.test_recorded_graphs import GRAPHS, load
from tests.helpers.literal_text import readable_trace as trace
from tests.helpers.trace_builder import Entry, cpu, kernel, python, runtime
from torchprof_tui.analysis.dispatch.call_tree import DispatchTree
from torchprof_tui.analysis.graphs.captured_nodes import CAPTURED, build_call_tree, remove_mark
from torchprof_tui.trace.loading.capture_files import CaptureFiles
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind

LINEAR = "nn.Module: Linear_0"


def replays(count: int = 2) -> list[Entry]:
    """A capture of a linear layer and a copy, then its replays; kernels take 30 and 10 µs."""
    entries = [
        runtime("cudaStreamBeginCapture", 0, 1, 500),
        python(LINEAR, 10, 40),
        cpu("aten::linear", 12, 30),
        cpu("aten::addmm", 14, 20),
        runtime("cudaLaunchKernel", 16, 2, 501, kernel="gemm"),
        cpu("aten::relu", 60, 10),
        runtime("cudaLaunchKernel", 62, 2, 502, kernel="relu_kernel"),
        runtime("cudaStreamEndCapture", 90, 1, 503),
    ]
    for number in range(count):
        at = 200 + 100 * number
        entries += [
            runtime("cudaGraphLaunch", at, 5, number + 1),
            kernel("gemm", at + 10, 30 + number, number + 1),
            kernel("relu_kernel", at + 50, 10, number + 1),
        ]
    return entries


def list_paths(tree: DispatchTree, below: str) -> dict[tuple[str, ...], int]:
    """List the path of names below `below` of each node, with its node."""
    paths: dict[tuple[str, ...], int] = {}
    for node in range(len(tree)):
        names: list[str] = []
        at = node
        while at >= 0 and tree.name[at] >= 0 and tree.names[tree.name[at]] != below:
            names.append(tree.names[tree.name[at]])
            at = int(tree.parent[at])
        if names and at >= 0 and tree.name[at] >= 0:
            paths[tuple(reversed(names))] = node
    return paths


def test_captured_modules_and_ops_are_between_the_launch_and_its_kernels() -> None:
    tree = build_call_tree(trace(*replays()))
    paths = list_paths(tree, "cudaGraphLaunch")
    marked = [name + CAPTURED for name in (LINEAR, "aten::linear", "aten::addmm", "aten::relu")]
    gemm, relu = (*marked[:3], "gemm"), (marked[3], "relu_kernel")
    assert set(paths) == {gemm[:1], gemm[:2], gemm[:3], gemm, relu[:1], relu}
    for length in range(1, 4):
        node = paths[gemm[:length]]
        assert (tree.count[node], tree.total[node], tree.self_time[node], tree.gpu_time[node]) == (2, 0, 0, 61_000)
        assert tree.is_inserted[node]
        assert tree.longest_event[node] == tree.longest_event[paths[gemm]]
    assert tree.kind[paths[gemm[:1]]] == Kind.PYTHON
    assert tree.kind[paths[gemm[:2]]] == Kind.OP
    assert not tree.is_inserted[paths[gemm]]
    assert (tree.count[paths[relu]], tree.total[paths[relu]]) == (2, 20_000)


def test_the_longest_kernel_below_a_captured_op_is_its_event() -> None:
    made = trace(*replays())
    tree = build_call_tree(made)
    node = list_paths(tree, "cudaGraphLaunch")[(LINEAR + CAPTURED,)]
    event = int(tree.longest_event[node])
    assert (made.event(event).name, int(made.duration[event])) == ("gemm", 31_000)


def test_without_a_capture_the_kernels_are_below_the_launch() -> None:
    tree = build_call_tree(trace(*replays()[8:]))
    assert set(list_paths(tree, "cudaGraphLaunch")) == {("gemm",), ("relu_kernel",)}
    assert not tree.is_inserted.any()


def test_kernels_without_an_op_stay_below_the_launch() -> None:
    entries = [entry for entry in replays() if entry["name"] != "aten::relu"]
    paths = list_paths(build_call_tree(trace(*entries)), "cudaGraphLaunch")
    assert ("relu_kernel",) in paths
    assert (LINEAR + CAPTURED,) in paths


@pytest.mark.parametrize("captures", ["eager_0", "capture_0_bs8"])
def test_replays_have_the_modules_ops_and_kernels_of_the_eager_run(captures: str) -> None:
    """Three replays: per path of modules and ops thrice the GPU work of the eager run."""
    files = CaptureFiles("-", [str(GRAPHS / f"{captures}.json.gz")])
    replayed = build_call_tree(replace(load("replay_0"), captures=files))
    found = count_work(replayed)
    assert found == Counter({path: 3 * count for path, count in count_work(build_call_tree(load("eager_0"))).items()})
    assert sum(found.values()) == 96
    assert np.count_nonzero(replayed.is_inserted) > 50


def count_work(tree: DispatchTree) -> Counter[tuple[str, ...]]:
    """Count the GPU work by the path of modules and ops above it."""
    counts: Counter[tuple[str, ...]] = Counter()
    for node in np.flatnonzero(np.isin(tree.kind, [int(kind) for kind in GPU_WORK])).tolist():
        names, at = [], int(tree.parent[node])
        while at >= 0 and tree.name[at] >= 0:
            name = remove_mark(tree.names[tree.name[at]])
            if tree.kind[at] == Kind.OP or name.startswith("nn.Module: "):
                names.append(name)
            at = int(tree.parent[at])
        counts[tuple(reversed(names))] += int(tree.count[node])
    return counts
