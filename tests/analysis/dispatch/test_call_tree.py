"""Test the call tree against dictionaries built from the ancestors of every event."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.paths import SHARED_TRACES
from tests.helpers.trace_builder import cpu, kernel, runtime, step, trace
from torchprof_tui.analysis.dispatch.call_tree import NO_LAUNCH_LABEL, DispatchTree, build_dispatch_tree
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Trace

TRACES = SHARED_TRACES
NAMES = sorted(path.name for path in TRACES.glob("*.json.gz"))[::4]

Path_ = tuple[str, ...]


def compute_totals_slowly(shown: Trace) -> dict[Path_, tuple[int, int, int, int]]:
    """Compute (calls, total, self time, GPU time) by path of names, event by event."""
    found: dict[Path_, list[int]] = defaultdict(lambda: [0, 0, 0, 0])

    def path_of(event: int) -> Path_:
        names = []
        while event >= 0:
            kind = shown.kind[event]
            names.append("step" if kind == Kind.STEP else shown.event(event).name)
            top, event = event, int(shown.parent[event])
        return (shown.event(top).lane.label, *reversed(names))

    for event in range(len(shown)):
        view = shown.event(event)
        duration = int(shown.duration[event])
        if view.kind in GPU_WORK:
            launch = int(shown.links.launch_of[event])
            known = launch >= 0 and shown.event(launch).lane.role is Role.THREAD
            path = (*(path_of(launch) if known else (NO_LAUNCH_LABEL,)), view.name)
            entry = found[path]
            entry[0] += 1
            entry[1] += duration
            entry[2] += duration
            for length in range(1, len(path) + 1):
                found[path[:length]][3] += duration
        elif view.lane.role is Role.THREAD:
            path = path_of(event)
            entry = found[path]
            entry[0] += 1
            entry[1] += duration
            entry[2] += int(shown.self_duration[event])
            if len(path) == 2:
                found[path[:1]][1] += duration
    if (NO_LAUNCH_LABEL,) in found:
        found[(NO_LAUNCH_LABEL,)][1] = found[(NO_LAUNCH_LABEL,)][3]
    return {path: tuple(entry) for path, entry in found.items()}  # type: ignore[misc]


def totals_by_path(shown: Trace, tree: DispatchTree) -> dict[Path_, tuple[int, int, int, int]]:
    node_paths: list[Path_] = []
    found: dict[Path_, tuple[int, int, int, int]] = {}
    for node in range(len(tree)):
        if node in tree.root_labels:
            node_paths.append((tree.root_labels[node],))
        else:
            name = "step" if tree.kind[node] == Kind.STEP else shown.names[tree.name[node]]
            node_paths.append((*node_paths[tree.parent[node]], name))
        row = (int(tree.count[node]), int(tree.total[node]), int(tree.self_time[node]), int(tree.gpu_time[node]))
        before = found.get(node_paths[-1], (0, 0, 0, 0))  # two threads with the same label are two roots
        found[node_paths[-1]] = tuple(a + b for a, b in zip(before, row, strict=True))  # type: ignore[assignment]
    return found


def assert_tree_matches(shown: Trace) -> None:
    tree = build_dispatch_tree(shown)
    assert totals_by_path(shown, tree) == compute_totals_slowly(shown)
    for node in range(len(tree)):
        descendants = range(node + 1, node + int(tree.size[node]))
        assert all(tree.parent[other] >= node for other in descendants)
        children = [other for other in descendants if tree.parent[other] == node]
        weights = [max(int(tree.total[other]), int(tree.gpu_time[other])) for other in children]
        assert weights == sorted(weights, reverse=True)


def test_a_step_down_to_its_kernels() -> None:
    shown = trace(
        *(
            event
            for k in range(2)
            for event in (
                step(k, 100 * k, 90),
                cpu("aten::mm", 100 * k + 10, 30),
                runtime("cudaLaunchKernel", 100 * k + 20, 5, corr=k + 1),
                kernel("gemm", 100 * k + 40, 20 + k, corr=k + 1),
            )
        ),
        kernel("alone", 300, 7, corr=99),
    )
    tree = build_dispatch_tree(shown)
    found = {path[1:]: row for path, row in totals_by_path(shown, tree).items() if path[0] != NO_LAUNCH_LABEL}
    assert found[("step",)] == (2, 180_000, 120_000, 41_000)
    assert found[("step", "aten::mm", "cudaLaunchKernel", "gemm")] == (2, 41_000, 41_000, 41_000)
    assert totals_by_path(shown, tree)[(NO_LAUNCH_LABEL, "alone")] == (1, 7_000, 7_000, 7_000)
    assert_tree_matches(shown)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(1, 40), st.integers(0, 2)), max_size=30))
def test_any_nesting(pieces: list[tuple[int, int, int, int]]) -> None:
    assert_tree_matches(
        trace(*(cpu(f"f{name}", start, length, thread=1 + lane) for name, start, length, lane in pieces))
    )


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if "stack_memory" in name else ()) for name in NAMES]
)
def test_shared_traces(name: str) -> None:
    shown = load_trace(str(TRACES / name), cache=False)
    if len(shown) > 20_000:
        pytest.skip("too large for the slow reference")
    assert_tree_matches(shown)


@given(st.data())
def test_what_is_listed(data: st.DataObject) -> None:
    shown = trace(*(cpu(f"f{k % 5}", 10 * (k // 3), 10 - 3 * (k % 3)) for k in range(24)))
    tree = build_dispatch_tree(shown)
    closed = np.array(data.draw(st.lists(st.booleans(), min_size=len(tree), max_size=len(tree))))
    matching = np.array(data.draw(st.lists(st.booleans(), min_size=len(tree), max_size=len(tree))))

    def ancestors(node: int) -> list[int]:
        above = int(tree.parent[node])
        return [] if above < 0 else [above, *ancestors(above)]

    every = range(len(tree))
    listed = [node for node in every if not any(closed[above] for above in ancestors(node))]
    assert tree.list_visible(closed).tolist() == listed
    leads = {node for match in np.flatnonzero(matching) for node in (int(match), *ancestors(int(match)))}
    assert tree.list_visible(closed, matching).tolist() == sorted(leads.intersection(listed))
    within = [sum(node == each or node in ancestors(each) for each in np.flatnonzero(matching)) for node in every]
    assert tree.count_in_subtrees(matching).tolist() == within


def test_calls_too_deep_to_list_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchprof_tui.analysis.dispatch.call_tree.MAX_LEVELS", 3)
    nested = [cpu(f"level {k}", k, 20 - 2 * k) for k in range(5)]
    tree = build_dispatch_tree(trace(*nested, runtime("cudaLaunchKernel", 5, 1, corr=1), kernel("k", 30, 7, corr=1)))
    assert tree.unlisted_calls == 3  # two levels and the launch
    assert max(tree.depth) == 4  # the root, three levels, and the kernel below the last of them
    assert tree.gpu_time[0] == 7000
    assert build_dispatch_tree(trace(*nested[:3])).unlisted_calls == 0
