"""One model recorded eagerly, captured and replayed on an H200: each replay has the eager run's kernels of each op."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tests.helpers.paths import FIXTURES
from torchprof_tui.analysis.dispatch.ancestry import find_nearest_ancestor
from torchprof_tui.analysis.graphs.captured_ops import CapturedOps, OpSource, get_captured_ops
from torchprof_tui.analysis.graphs.node_matching import Doubt
from torchprof_tui.trace.loading.capture_files import CaptureFiles
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

GRAPHS = FIXTURES / "graphs"
CAPTURES = {"eager": ("eager_{}",), "both": ("capture_{}_bs1", "capture_{}_bs8"), "bs8": ("capture_{}_bs8",)}
REPLAYED_BATCHES = (8, 1, 8)


@cache
def load(name: str) -> Trace:
    return load_trace(str(GRAPHS / f"{name}.json.gz"))


@cache
def join(second_stream: int, captures: str) -> tuple[Trace, CapturedOps]:
    paths = [str(GRAPHS / f"{name.format(second_stream)}.json.gz") for name in CAPTURES[captures]]
    trace = replace(load(f"replay_{second_stream}"), captures=CaptureFiles("-", paths))
    ops = get_captured_ops(trace)
    assert ops is not None
    return trace, ops


def kernels_by_op_eager(second_stream: int) -> Counter[tuple[str, str]]:
    trace = load(f"eager_{second_stream}")
    work = np.flatnonzero(trace.links.launch_of >= 0)
    op = find_nearest_ancestor(trace.parent, trace.links.launch_of[work], np.asarray(trace.kind == Kind.OP))
    names = (trace.event(int(event)).name for event in op)
    return Counter(zip(names, (trace.event(int(event)).name for event in work), strict=True))


def kernels_by_op(trace: Trace, ops: CapturedOps, replay: int) -> Counter[tuple[str, str]]:
    events = ops.replays.work[ops.replays.first[replay] : ops.replays.first[replay + 1]].tolist()
    found = [(ops.find_op(trace, event), trace.event(event).name) for event in events]
    return Counter((op.op_name if op is not None else "", name) for op, name in found)


@pytest.mark.parametrize("captures", ["eager", "both", "bs8"])
@pytest.mark.parametrize("second_stream", [0, 1])
def test_replays_have_the_kernels_of_each_op_that_the_eager_run_has(second_stream: int, captures: str) -> None:
    trace, ops = join(second_stream, captures)
    expected = kernels_by_op_eager(second_stream)
    replays = [kernels_by_op(trace, ops, replay) for replay, batch in enumerate(REPLAYED_BATCHES) if batch == 8]
    assert replays == [expected, expected]


@pytest.mark.parametrize("captures", ["eager", "both"])
@pytest.mark.parametrize("second_stream", [0, 1])
def test_all_kernels_of_both_batch_sizes_have_an_op(second_stream: int, captures: str) -> None:
    trace, ops = join(second_stream, captures)
    assert ops.matched_count == len(ops.replays.work) == {0: 96, 1: 116}[second_stream]
    assert ops.source is (OpSource.EAGER if captures == "eager" else OpSource.CAPTURE)
    op_names = [Counter(op for op, _ in kernels_by_op(trace, ops, replay).elements()) for replay in range(3)]
    assert op_names[0] == op_names[2]
    # With batch size 1 the sum of the second stream needs no fill.
    assert op_names[0] - op_names[1] == (Counter({"aten::sum": 1}) if second_stream else Counter())


def test_shapes_are_uncertain_where_captures_of_two_batch_sizes_fit() -> None:
    _, ops = join(0, "both")
    assert set(ops.join.doubt.tolist()) == {Doubt.OTHER_CAPTURE}


def test_shapes_are_certain_where_only_one_capture_fits() -> None:
    _, ops = join(1, "both")
    assert not ops.join.doubt.any()
    captures = [int(ops.join.capture[first]) for first in ops.replays.first[:-1]]
    assert captures == [1, 0, 1]


def test_an_eager_run_of_another_batch_size_leaves_the_shapes_uncertain() -> None:
    _, ops = join(0, "eager")
    doubts = [ops.join.doubt[first:last] for first, last in zip(ops.replays.first, ops.replays.first[1:], strict=False)]
    assert not doubts[0].any()
    assert Counter(doubts[1].tolist()).keys() == {Doubt.NONE, Doubt.OTHER_GRID, Doubt.OTHER_NAME}
