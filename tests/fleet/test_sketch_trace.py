"""Test what a sketch holds against the trace that it is made of, and its Parquet form."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.fleet_sketches import make_collectives, make_sketch
from tests.helpers.paths import SAMPLES
from tests.helpers.trace_builder import cpu
from torchprof_fleet.analysis.rank_sketch import WHOLE_TRACE, RankSketch, decode_sketches, encode_sketches
from torchprof_fleet.analysis.report import compare_fleet
from torchprof_fleet.analysis.sketch_trace import MAX_COLLECTIVES, sketch_file, sketch_trace
from torchprof_tui.analysis.time.gpu_time import compute_busy_by_device
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.ranks.collective_matching import read_collectives

pytest.importorskip("pyarrow")

RANK = SAMPLES / "train_gpt_2ranks" / "rank1.pt.trace.json.gz"


@pytest.fixture(scope="module")
def trace() -> Trace:
    return load_trace(str(RANK))


@pytest.fixture(scope="module")
def sketch(trace: Trace) -> RankSketch:
    return sketch_trace(trace)


def test_steps_are_those_of_the_trace(trace: Trace, sketch: RankSketch) -> None:
    assert sketch.steps.number.tolist() == [step.number for step in trace.steps]
    assert (sketch.steps.end - sketch.steps.start).tolist() == [step.duration for step in trace.steps]
    (busy,) = compute_busy_by_device(trace).values()
    for index, step in enumerate(trace.steps):
        assert sketch.steps.busy[index] == busy.measure_between(step.start, step.start + step.duration)
    assert (sketch.steps.exposed <= sketch.steps.communication).all()
    assert (sketch.steps.compute + sketch.steps.exposed <= sketch.steps.busy).all()
    assert (sketch.steps.busy + sketch.steps.idle.sum(axis=1) <= sketch.steps.end - sketch.steps.start).all()


def test_collectives_are_all_there(trace: Trace, sketch: RankSketch) -> None:
    records = read_collectives(trace)
    found = sketch.collectives
    assert len(found) == len(records) == sketch.steps.collective_count.sum()
    assert found.start.tolist() == trace.start[records.events].tolist()
    assert (found.end - found.start).tolist() == trace.duration[records.events].tolist()
    assert {found.texts[code] for code in found.operation.tolist()} == {"allreduce"}
    assert (found.bytes > 0).all()


def test_quantiles_of_an_op_are_those_of_its_events(trace: Trace, sketch: RankSketch) -> None:
    name = sketch.ops.names.index("aten::mm")
    rows = np.flatnonzero((np.asarray(trace.kind) == Kind.OP) & (trace.name == trace.names.index("aten::mm")))
    second = trace.steps[1].start
    for step, chosen in ((0, rows[trace.start[rows] < second]), (1, rows[trace.start[rows] >= second])):
        (row,) = np.flatnonzero((sketch.ops.name == name) & (sketch.ops.step == step))
        durations = np.sort(trace.self_duration[chosen])
        assert sketch.ops.count[row] == len(durations)
        assert sketch.ops.total[row] == durations.sum()
        assert sketch.ops.longest[row] == durations[-1]
        assert sketch.ops.median[row] == durations[(len(durations) - 1) // 2]


def test_kernels_of_all_classes_sum_to_the_gpu_time(trace: Trace, sketch: RankSketch) -> None:
    work = np.isin(np.asarray(trace.kind), [Kind.KERNEL, Kind.COPY, Kind.MEMSET])
    assert sketch.kernels.total.sum() == trace.duration[work].sum()
    assert sketch.kernels.count.sum() == np.count_nonzero(work)


def test_parquet_returns_the_same_sketch(sketch: RankSketch) -> None:
    data = encode_sketches([sketch, dataclasses.replace(sketch, file="other", rank=7)])
    first, second = decode_sketches(data)
    assert encode_sketches([first, second]) == data
    assert (second.rank, second.file, second.causes, second.groups) == (7, "other", sketch.causes, sketch.groups)
    for name in ("number", "start", "end", "busy", "idle"):
        assert getattr(first.steps, name).tolist() == getattr(sketch.steps, name).tolist()
    assert [first.ops.names[code] for code in first.ops.name.tolist()] == [
        sketch.ops.names[code] for code in sketch.ops.name.tolist()
    ]


def test_a_trace_without_steps_gpus_and_collectives_has_a_sketch(tmp_path: Path) -> None:
    path = tmp_path / "rank3.json"
    path.write_text(json.dumps({"traceEvents": [cpu("aten::mm", 1, 5), cpu("aten::add", 10, 5)]}))
    (sketch,) = decode_sketches(sketch_file(str(path)).data)
    assert sketch.rank == 3
    assert sketch.steps.number.tolist() == [WHOLE_TRACE]
    assert len(sketch.collectives) == 0
    assert len(compare_fleet([sketch]).fleet) == 1


def test_many_collectives_are_thinned_alike_on_all_ranks() -> None:
    assert MAX_COLLECTIVES == 192
    kept = [order for order in range(1000) if order % 6 == 0]  # the same orders wherever the step has a thousand
    rows = [(0, "dp", "allreduce", order, order * 1000, order * 1000 + 500) for order in kept]
    ranks = [make_sketch(rank, np.full(3, 100.0), collectives=make_collectives(rows)) for rank in range(3)]
    assert len(compare_fleet(ranks).checker.matched) == len(kept)


def test_a_rank_with_other_collectives_is_left_out_of_their_match() -> None:
    rows = [(0, "dp", "allreduce", order, order * 1000, order * 1000 + 500) for order in range(4)]
    ranks = [
        make_sketch(rank, np.full(3, 100.0), collectives=make_collectives(rows[: 4 - (rank == 3)])) for rank in range(4)
    ]
    matched = compare_fleet(ranks).checker.matched
    assert len(matched) == 4
    assert 3 not in matched.rank


@pytest.mark.parametrize("data", [b"", b"PAR1", b"not parquet at all"])
def test_other_bytes_are_no_sketches(data: bytes) -> None:
    with pytest.raises(TraceError):
        decode_sketches(data)
