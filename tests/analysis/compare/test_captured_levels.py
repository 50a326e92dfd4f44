"""Compare inside replays of graphs: captured ops are matched as those of an eager run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.analysis.compare.sides import side_of
from tests.analysis.graphs.test_recorded_graphs import GRAPHS, load
from tests.helpers.literal_text import readable_trace as trace
from tests.helpers.long_run import keep_some
from tests.helpers.trace_builder import Entry, cpu, kernel, runtime, step
from torchprof_tui.analysis.compare.event_matches import EventStatus, match_events
from torchprof_tui.analysis.compare.matched_rows import By, ComparedRows, RowStatus, match_sides
from torchprof_tui.analysis.compare.matching import InputDigests, build_compared_trees, match_trees
from torchprof_tui.analysis.compare.op_tree import Side
from torchprof_tui.analysis.graphs.captured_nodes import CAPTURED, remove_mark
from torchprof_tui.analysis.graphs.captured_ops import get_captured_ops
from torchprof_tui.trace.loading.capture_files import CaptureFiles
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

CAPTURES = {"eager": ("eager_{}",), "capture": ("capture_{}_bs1", "capture_{}_bs8")}
BY: tuple[By, ...] = ("op", "module", "kernel", "class")


@cache
def replayed(second_stream: int, captures: str) -> Trace:
    paths = [str(GRAPHS / f"{name.format(second_stream)}.json.gz") for name in CAPTURES[captures]]
    return replace(load(f"replay_{second_stream}"), captures=CaptureFiles("-", paths))


def side_of_replay(trace: Trace, number: int) -> Side:
    """The side of one replay: its batch sizes are 8, 1 and 8."""
    ops = get_captured_ops(trace)
    assert ops is not None
    launch = int(ops.replays.launch[number])
    start = int(trace.start[launch])
    return Side(trace, "replay", (start, start + int(trace.duration[launch])), ())


def assert_rows_sum_to_total(rows: ComparedRows) -> None:
    for side in ("sums_a", "sums_b"):
        parts = [getattr(row, side) for row in (*rows.rows, rows.not_matched)]
        total = getattr(rows.total, side)
        for field in ("calls", "cpu", "gpu"):
            assert sum(getattr(part, field) for part in parts) == getattr(total, field)


@pytest.mark.parametrize("captures", keep_some(["eager", "capture"], 2))
@pytest.mark.parametrize("second_stream", [0, 1])
def test_a_replay_has_the_ops_of_the_eager_run(second_stream: int, captures: str) -> None:
    eager, replay = load(f"eager_{second_stream}"), replayed(second_stream, captures)
    sides = side_of(eager), side_of_replay(replay, 0)
    rows = match_sides(*sides)
    with_work = [row for row in rows.rows if row.sums_a.gpu or row.sums_b.gpu]
    assert {row.status for row in with_work} == {RowStatus.MATCHED}
    for row in with_work:
        assert (row.name_b, row.sums_b.calls) == (row.name_a + CAPTURED, row.sums_a.calls)
        assert row.text == row.name_b
    assert sum(row.sums_b.gpu for row in with_work) == rows.total.sums_b.gpu
    match = match_trees(*sides)
    assert not match.work_groups
    same = match.a.work_label[match.work.a] == match.b.work_label[match.work.b]
    assert same.all()
    assert len(same) == {0: 32, 1: 39}[second_stream]


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("second_stream", [0, 1])
def test_rows_sum_to_the_whole(second_stream: int, by: By) -> None:
    replay = replayed(second_stream, "capture")
    for sides in (
        (side_of(load(f"eager_{second_stream}")), side_of_replay(replay, 0)),
        (side_of_replay(replay, 0), side_of_replay(replay, 1)),
    ):
        rows = match_sides(*sides, by)
        assert_rows_sum_to_total(rows)
        assert rows.total.sums_b.gpu == int(replay.duration[work_of(sides[1])].sum())


def work_of(side: Side) -> np.ndarray:
    launch = np.flatnonzero((side.trace.start == side.window[0]) & (side.trace.kind == Kind.RUNTIME))[0]
    return side.trace.links.work_of(int(launch))


def test_modules_of_a_replay_are_those_of_the_eager_run() -> None:
    rows = match_sides(side_of(load("eager_0")), side_of_replay(replayed(0, "capture"), 0), "module")
    with_work = [row for row in rows.rows if row.sums_a.gpu or row.sums_b.gpu]
    assert len(with_work) > 15
    assert {row.status for row in with_work} == {RowStatus.MATCHED}
    assert "M_0/Block_1/Linear_4" in {row.name_b for row in with_work}


@pytest.mark.parametrize("by", BY)
def test_a_replay_against_itself_is_no_difference(by: By) -> None:
    side = side_of(replayed(1, "capture"))
    rows = match_sides(side, side, by)
    assert {row.status for row in rows.rows} == {RowStatus.MATCHED}
    assert all(row.sums_a == row.sums_b for row in rows.rows)


def test_replays_of_two_batch_sizes_are_compared_op_by_op() -> None:
    """Other products are chosen for batch size 1, and nothing else differs."""
    rows = match_sides(side_of_replay(replayed(0, "capture"), 0), side_of_replay(replayed(0, "capture"), 1))
    changed = [row.text for row in rows.rows if row.status is not RowStatus.MATCHED]
    assert changed == ["aten::addmm (captured)"]


def test_each_replayed_kernel_has_the_eager_kernel_as_counterpart() -> None:
    eager, replay = load("eager_0"), replayed(0, "capture")
    sides = side_of(eager), side_of_replay(replay, 0)
    _, matches = match_events(match_trees(*sides), *sides)
    work = work_of(sides[1])
    assert set(matches.status[work].tolist()) == {EventStatus.MATCHED}
    counterparts = matches.counterpart[work]
    assert len(set(counterparts.tolist())) == len(work)
    pairs = zip(work.tolist(), counterparts.tolist(), strict=True)
    assert all(replay.event(own).name == eager.event(other).name for own, other in pairs)


# -- literal traces ----------------------------------------------------------------------------------------

MODEL = [("aten::mm", "gemm"), ("aten::relu", "relu_kernel"), ("aten::mm", "gemm")]


def captured(model: list[tuple[str, str]], **args: Any) -> list[Entry]:
    entries = [runtime("cudaStreamBeginCapture", 0, 1, 500)]
    for k, (op, name) in enumerate(model):
        entries.append(cpu(op, 20 * k + 10, 10, **args))
        entries.append(runtime("cudaLaunchKernel", 20 * k + 12, 2, 501 + k, kernel=name))
    return [*entries, runtime("cudaStreamEndCapture", 20 * len(model) + 10, 1, 600)]


def replay_steps(model: list[tuple[str, str]], count: int = 2) -> list[Entry]:
    """Steps with one replay each, which nothing surrounds but the step."""
    entries = []
    for number in range(count):
        at = 1000 + 200 * number
        entries += [step(number, at, 150), runtime("cudaGraphLaunch", at + 10, 20, number + 1)]
        entries += [kernel(name, at + 40 + 10 * k, 5 + k, number + 1) for k, (_, name) in enumerate(model)]
    return entries


def eager_steps(model: list[tuple[str, str]], count: int = 2) -> list[Entry]:
    entries = []
    for number in range(count):
        at = 1000 + 200 * number
        entries.append(step(number, at, 150))
        for k, (op, name) in enumerate(model):
            correlation = 10 * number + k + 1
            entries += [cpu(op, at + 10 * k, 8), runtime("cudaLaunchKernel", at + 10 * k + 2, 2, correlation)]
            entries.append(kernel(name, at + 10 * k + 5, 5, correlation))
    return entries


def with_captures(entries: list[Entry], *captures: list[Entry]) -> Trace:
    class Opened:
        problems: tuple[str, ...] = ()

        def open_traces(self, replayed: Trace) -> list[Trace]:
            return [trace(*entries) for entries in captures]

    return replace(trace(*entries), captures=Opened())


def rows_of(a: Trace, b: Trace) -> list[tuple[str, str, float, float]]:
    rows = match_sides(side_of(a), side_of(b))
    assert_rows_sum_to_total(rows)
    return sorted((row.status.value, row.text, row.calls_a, row.calls_b) for row in rows.rows if row.text[0] != "(")


def test_each_step_s_replay_is_compared_with_the_eager_step() -> None:
    replayed = with_captures(replay_steps(MODEL), captured(MODEL))
    assert rows_of(trace(*eager_steps(MODEL)), replayed) == [
        ("added", "cudaGraphLaunch", 0.0, 1.0),
        ("matched", "aten::mm (captured)", 2.0, 2.0),
        ("matched", "aten::relu (captured)", 1.0, 1.0),
    ]


def test_an_op_that_only_one_of_two_replays_has_is_added() -> None:
    longer = [*MODEL[:2], ("aten::add", "add_kernel"), *MODEL[2:]]
    a, b = (with_captures(replay_steps(model), captured(model)) for model in (MODEL, longer))
    assert rows_of(a, b) == [
        ("added", "aten::add (captured)", 0.0, 1.0),
        ("matched", "aten::mm (captured)", 2.0, 2.0),
        ("matched", "aten::relu (captured)", 1.0, 1.0),
        ("matched", "cudaGraphLaunch", 1.0, 1.0),
    ]


def test_work_without_a_captured_op_stays_with_the_launch() -> None:
    replayed = with_captures(replay_steps(MODEL), captured([MODEL[0], *MODEL[2:]]))
    match = match_trees(side_of(replayed), side_of(replayed))
    names = {match.a.name_of(int(node)) for node in match.a.tree.work.node}
    assert names == {"aten::mm (captured)", "cudaGraphLaunch"}


def test_captured_ops_are_where_the_graph_was_launched() -> None:
    entries = [*replay_steps(MODEL, 1), cpu("custom::replay", 1005, 40)]
    a, _ = build_compared_trees(side_of(with_captures(entries, captured(MODEL))), side_of(trace(*eager_steps(MODEL))))
    parents = {a.name_of(int(a.tree.parent[node])) for node in range(len(a.tree)) if CAPTURED in a.name_of(node)}
    assert parents == {"custom::replay"}
    events = [replayed_name(a.names, a.tree.event, node, side=a) for node in range(len(a.tree))]
    assert [name for name in events if name] == ["gemm", "relu_kernel", "gemm"]


def replayed_name(names: list[str], event: np.ndarray, node: int, side: Any) -> str:
    """The name of the GPU work that stands for a captured node, "" for all others."""
    if CAPTURED not in side.name_of(node):
        return ""
    rows = side.work_rows(node)
    assert int(event[node]) == int(side.tree.work.event[rows.start])
    return str(side.work_name(rows.start))


def test_shapes_of_captured_ops_are_read_from_the_capture() -> None:
    shapes: list[Callable[[], Any]] = []
    model = [("aten::mm", "gemm")] * 3
    first = captured(model)
    for entry in first:
        if entry["name"] == "aten::mm":
            entry["args"] = {"Input Dims": [[len(shapes), 8]]}
            shapes.append(lambda: None)
    a = side_of(with_captures(replay_steps(model, 1), first))
    b = side_of(with_captures(replay_steps(model[1:], 1), [e for e in first if e["ts"] >= 30 or "Begin" in e["name"]]))
    trees = build_compared_trees(a, b)
    children = [tree.children_of(1) for tree in trees]
    inputs = InputDigests(*trees, a.trace, b.trace)
    refined_a, refined_b = inputs.refine(*children)
    marked = [[CAPTURED in tree.name_of(int(n)) for n in nodes] for tree, nodes in zip(trees, children, strict=True)]
    assert refined_a[np.array(marked[0])][1:].tolist() == refined_b[np.array(marked[1])].tolist()
    assert len(set(refined_a[np.array(marked[0])].tolist())) == 3


def test_the_mark_is_no_part_of_what_is_compared() -> None:
    assert remove_mark("aten::mm" + CAPTURED) == remove_mark("aten::mm") == "aten::mm"
