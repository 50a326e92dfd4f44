"""Where a part of the step changed: by how much its time differs, not by how large it is."""

from __future__ import annotations

import pytest

from tests.helpers.paths import find_shared_trace
from tests.helpers.pattern_traces import DTOD, GEMM, op_with_work
from tests.helpers.trace_builder import Entry, annotation, cpu, kernel, runtime, step, trace
from torchprof_tui.analysis.compare.account import COPIES, GPU_CLASS, build_account
from torchprof_tui.analysis.compare.changed_places import NamedChange, find_places, measure_part_time
from torchprof_tui.analysis.compare.comparison import Comparison, describe_cause
from torchprof_tui.analysis.compare.side_analysis import SideAnalysis
from torchprof_tui.trace.loading.load_in_process import load_trace

HTOD = "Memcpy HtoD (Pinned -> Device)"


def copy_in_steps(load: float, hidden: float, clone: float) -> SideAnalysis:
    """Three steps: `load` µs of a copy in "load_batch" of which a kernel runs beside `hidden`, `clone` in "forward"."""
    entries: list[Entry] = []
    for number in range(3):
        at = 10_000.0 * number
        entries += [
            step(number, at, 9_000),
            annotation("load_batch", at + 10, 100),
            *op_with_work("aten::to", at + 20, at + 200, load, HTOD, stream=20),
            annotation("forward", at + 200, 8_000),
            *op_with_work("aten::mm", at + 210, at + 200, max(hidden, 1), GEMM),
            *op_with_work("aten::clone", at + 5_000, at + 6_000, clone, DTOD),
        ]
    return SideAnalysis(trace(*entries), "side")


def find_copies(a: SideAnalysis, b: SideAnalysis) -> tuple[NamedChange, ...]:
    return find_places(a, b, next(part for part in build_account(a, b).parts if part.id == COPIES)).lines


def test_copies_are_named_where_they_grew_and_not_where_they_are_largest() -> None:
    """The copy of the batch is the longest of both, but less of it is alone than before."""
    a = copy_in_steps(load=2_000, hidden=500, clone=10)
    b = copy_in_steps(load=4_000, hidden=3_000, clone=2_510)
    for first, second in ((a, b), (b, a)):
        (place,) = find_copies(first, second)
        assert place.text == "forward"
        assert abs(place.delta) == pytest.approx(2_500_000)


def test_the_ops_of_a_change_are_named() -> None:
    a, b = copy_in_steps(2_000, 500, 10), copy_in_steps(4_000, 3_000, 2_510)
    comparison = Comparison(a, b)
    cause = next(cause for cause in comparison.verdict.causes if cause.part.id == COPIES)
    assert [(op.text, op.delta) for op in cause.ops] == [("aten::clone", pytest.approx(2_500_000))]
    assert describe_cause(cause).endswith(", at forward: aten::clone +2.50 ms")


def test_another_op_for_the_same_work_is_no_cause() -> None:
    """The product of A is that of B under another name: what differs are 100 of 1,100 µs."""

    def run(op: str, duration: float) -> SideAnalysis:
        entries = [
            entry
            for number in range(3)
            for entry in (
                step(number, 2_000.0 * number, 1_900),
                *op_with_work(op, 2_000.0 * number + 1, 2_000.0 * number + 20, duration, GEMM),
            )
        ]
        return SideAnalysis(trace(*entries), "side")

    a, b = run("aten::mm", 1_000), run("aten::addmm", 1_100)
    part = next(part for part in build_account(a, b).parts if part.id == f"{GPU_CLASS}gemm")
    assert part.delta == 100_000
    assert find_places(a, b, part).ops == ()


@pytest.mark.parametrize("part_id", [COPIES, f"{GPU_CLASS}gemm"])
def test_the_time_of_single_works_sums_to_the_part(part_id: str) -> None:
    side = copy_in_steps(2_000, 500, 700)
    part = next(part for part in build_account(side, side).parts if part.id == part_id)
    assert measure_part_time(side.view, part_id).sum() == part.a * 3


def test_copies_that_overlap_count_once() -> None:
    entries = [
        step(0, 0, 100),
        cpu("aten::to", 1, 10),
        *(entry for corr in (1, 2) for entry in (runtime("cudaMemcpyAsync", 2 + corr, 1, corr),)),
        *op_with_work("aten::mm", 20, 60, 10, GEMM),
    ]
    copies = [
        {**kernel(HTOD, 10, 20, 1), "cat": "gpu_memcpy"},
        {**kernel(DTOD, 20, 30, 2, stream=8), "cat": "gpu_memcpy"},
    ]
    side = SideAnalysis(trace(*entries, *copies), "side")
    time = measure_part_time(side.view, COPIES)
    assert time[time > 0].tolist() == [20_000, 20_000]


@pytest.mark.long
def test_a_compiled_step_copies_in_forward_and_backward() -> None:
    """By raw JSON, ms a step without another kernel: load_batch 2.66 → 2.29, forward and backward 0.46 → 14.49."""
    paths = [
        find_shared_trace(f"{name}.json.gz")
        for name in ("public/facebookresearch+HolisticTraceAnalysis/control", "released/hta_v100_test")
    ]
    if not all(path.exists() for path in paths):
        pytest.skip("needs the shared traces")
    a, b = (SideAnalysis(load_trace(str(path), cache=False), path.name) for path in paths)
    comparison = Comparison(a, b)
    cause = next(cause for cause in comparison.verdict.causes if cause.part.id == COPIES)
    assert cause.line == "## forward:over_arch ## and its backward"
    places = find_places(a, b, cause.part).lines
    assert [place.delta / 1e6 for place in places] == pytest.approx([8.15, 5.7], rel=0.2)  # copies overlap each other
    assert comparison.differences[0].what == "how it runs"
    assert comparison.differences[0].a == "eager"
    assert comparison.differences[0].b.startswith("torch.compile, CUDA graphs (2 replays a step: 841 of 2,503 ")
