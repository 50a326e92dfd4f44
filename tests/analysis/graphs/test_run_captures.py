"""Runs of one program recorded on an H200 by `run --capture`: eager, and as graphs; torch 2.11, CUDA 13.

A step of `model_steps.py` runs three transformer blocks with batch size 8 and 1; `graph_replay` is the workload. Each
replay must have as many kernels of each op as the eager run, with the captures that the recorder wrote beside it.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.analysis.compare.sides import side_of
from tests.helpers.paths import FIXTURES
from torchprof_tui.analysis.compare.compared_tree import simplify_label
from torchprof_tui.analysis.compare.matched_rows import RowStatus, match_sides
from torchprof_tui.analysis.dispatch.ancestry import find_nearest_ancestor
from torchprof_tui.analysis.graphs.captured_nodes import CAPTURED
from torchprof_tui.analysis.graphs.captured_ops import CapturedChain, OpSource, find_captured_chain, get_captured_ops
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

RUNS = FIXTURES / "graphs" / "runs"
PROGRAMS = {"model_steps": ("eager", "graph", 144), "graph_replay": ("workload_eager", "workload", 72)}


def load(folder: str, program: str) -> Trace:
    return load_trace(str(RUNS / folder / f"{program}.pt.trace.json.gz"), cache=False)


def count_eager(trace: Trace) -> Counter[tuple[str, str]]:
    """Count the GPU work by (op, name)."""
    work = (trace.links.launch_of >= 0).nonzero()[0]
    op = find_nearest_ancestor(trace.parent, trace.links.launch_of[work], trace.kind == Kind.OP)
    names = [
        (trace.event(int(event)).name, trace.event(int(piece)).name) for event, piece in zip(op, work, strict=True)
    ]
    return Counter((op, simplify_label(name)) for op, name in names)


@pytest.mark.parametrize("program", PROGRAMS)
def test_replays_have_as_many_kernels_of_each_op_as_the_eager_run(program: str) -> None:
    eager, graph, count = PROGRAMS[program]
    trace = load(graph, program)
    ops = get_captured_ops(trace)
    assert ops is not None
    assert ops.source is OpSource.CAPTURE
    assert ops.matched_count == len(ops.replays.work) == count
    found: Counter[tuple[str, str]] = Counter()
    for event in ops.replays.work.tolist():
        op = ops.find_op(trace, event)
        assert op is not None
        found[op.op_name, simplify_label(trace.event(event).name)] += 1
    assert found == count_eager(load(eager, program))


@pytest.mark.parametrize("program", PROGRAMS)
def test_diff_matches_all_gpu_work_of_eager_run_and_replays(program: str) -> None:
    eager, graph, _ = PROGRAMS[program]
    rows = match_sides(side_of(load(eager, program)), side_of(load(graph, program)))
    with_work = [row for row in rows.rows if row.sums_a.gpu or row.sums_b.gpu]
    assert {row.status for row in with_work} == {RowStatus.MATCHED}
    assert all(row.name_b == row.name_a + CAPTURED for row in with_work)
    assert all(row.sums_a.calls == row.sums_b.calls for row in with_work)


def test_kernels_of_a_run_have_modules_shapes_and_lines() -> None:
    trace = load("graph", "model_steps")
    ops = get_captured_ops(trace)
    assert ops is not None
    found = find_captured_chain(trace, int(ops.replays.work[1]))
    assert isinstance(found, CapturedChain)
    assert found.op.op_name == "aten::addmm"
    assert found.line is not None
    assert found.line.location == "model_steps.py:13"
    assert "nn.Module: Linear_0" in {found.op.trace.event(hop.event).name for hop in found.hops if found.op.trace}
    assert [dims for dims in found.input_dims if len(dims) == 2][-1] == [256, 768]
