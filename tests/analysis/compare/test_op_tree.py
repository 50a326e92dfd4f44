"""The call tree of a step: what is a node, how steps are aggregated, and which GPU work belongs where."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from tests.analysis.compare.sides import side_of
from tests.helpers.trace_builder import annotation, cpu, kernel, python, runtime, step, trace
from torchprof_tui.analysis.compare import op_tree
from torchprof_tui.analysis.compare.op_tree import NO_LAUNCH_LABEL, OpTree, build_op_tree, select_events
from torchprof_tui.trace.model.trace import Trace


def build(recorded: Trace, annotations: Collection[str] = (), is_merged: bool = False) -> OpTree:
    side = side_of(recorded)
    return build_op_tree(side, select_events(side), annotations, is_merged)


def describe(tree: OpTree, recorded: Trace) -> list[tuple[str, str, int, int, list[str]]]:
    """List (name, name of the parent, calls, CPU ns, names of GPU work) of each node below the threads."""
    rows = []
    for node in range(1, len(tree)):
        work = range(int(tree.work.first[node]), int(tree.work.first[node + 1]))
        name = tree.labels[int(tree.label[node])]
        parent = tree.labels[int(tree.label[tree.parent[node]])]
        names = [recorded.names[int(tree.work.name[row])] for row in work]
        rows.append((name, parent, int(tree.calls[node]), int(tree.cpu_time[node]), names))
    return rows


def test_steps_are_aggregated_by_place() -> None:
    entries = []
    for number in range(2):
        at = 100 * number
        entries += [
            step(number, at, 90),
            python("train.py(1): train", at + 5, 60),
            cpu("aten::linear", at + 10, 20),
            cpu("aten::mm", at + 12, 10),
            runtime("cudaLaunchKernel", at + 14, 2, 1 + number),
            cpu("aten::linear", at + 40, 20),
            kernel("gemm", at + 50, 5, corr=1 + number),
        ]
    recorded = trace(*entries)
    assert describe(build(recorded), recorded) == [
        ("thread 1", "the step", 0, 2 * (90_000 - 60_000 + 60_000 - 40_000), []),
        ("aten::linear", "thread 1", 2, 2 * 10_000, []),
        ("aten::mm", "aten::linear", 2, 2 * 10_000, ["gemm"]),
        ("aten::linear", "thread 1", 2, 2 * 20_000, []),
        (NO_LAUNCH_LABEL, "the step", 0, 0, []),
    ]


def test_calls_of_one_name_are_one_node_where_merged() -> None:
    recorded = trace(cpu("aten::mm", 0, 5), cpu("aten::add", 10, 5), cpu("aten::mm", 20, 5))
    names = [row[0] for row in describe(build(recorded), recorded)]
    assert names[1:-1] == ["aten::mm", "aten::add", "aten::mm"]
    merged = describe(build(recorded, is_merged=True), recorded)
    assert [(row[0], row[2]) for row in merged[1:-1]] == [("aten::mm", 2), ("aten::add", 1)]


def test_named_annotations_are_levels() -> None:
    recorded = trace(annotation("forward", 0, 50), annotation("other", 5, 40), cpu("aten::mm", 10, 5))
    plain = describe(build(recorded), recorded)
    assert plain[1][:2] == ("aten::mm", "thread 1")
    named = describe(build(recorded, {"forward"}), recorded)
    assert [row[:2] for row in named[1:3]] == [("forward", "thread 1"), ("aten::mm", "forward")]


def test_runtime_calls_outside_of_ops_are_nodes() -> None:
    recorded = trace(
        runtime("cudaDeviceSynchronize", 0, 50, 1), runtime("cudaLaunchKernel", 60, 5, 2), kernel("k", 70, 5, 2)
    )
    rows = describe(build(recorded), recorded)
    assert rows[1] == ("cudaDeviceSynchronize", "thread 1", 1, 50_000, [])
    assert rows[2] == ("cudaLaunchKernel", "thread 1", 1, 5_000, ["k"])


def test_work_counts_for_the_step_that_launched_it() -> None:
    recorded = trace(
        step(0, 0, 100),
        cpu("aten::mm", 10, 20),
        runtime("cudaLaunchKernel", 12, 2, 1),
        kernel("late", 150, 30, corr=1),
        step(1, 100, 100),
        cpu("aten::mm", 110, 20),
    )
    side = side_of(recorded, 1, 2)
    assert not len(select_events(side).work)
    side = side_of(recorded, 0, 1)
    tree = build_op_tree(side, select_events(side))
    assert tree.work.time.tolist() == [30_000]


def test_threads_are_ranked_by_steps_then_by_launches() -> None:
    recorded = trace(
        cpu("aten::load", 0, 5, 1),
        cpu("aten::backward", 0, 50, 2),
        runtime("cudaLaunchKernel", 10, 2, 1, thread=2),
        kernel("k", 60, 5, corr=1),
        step(0, 0, 100, 3),
        cpu("aten::forward", 5, 5, 3),
    )
    names = [row[0] for row in describe(build(recorded), recorded) if row[1] != "the step"]
    assert names == ["aten::forward", "aten::backward", "aten::load"]


def test_deep_calls_count_for_their_ancestor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(op_tree, "MAX_LEVELS", 2)
    recorded = trace(*[cpu(f"aten::op{level}", level, 20 - 2 * level) for level in range(4)])
    rows = describe(build(recorded), recorded)
    assert [row[0] for row in rows[1:-1]] == ["aten::op0", "aten::op1"]
    assert rows[2][3] == 18_000


def test_trace_without_events_on_threads() -> None:
    recorded = trace(kernel("k", 0, 5))
    rows = describe(build(recorded), recorded)
    assert rows == [(NO_LAUNCH_LABEL, "the step", 0, 0, ["k"])]
