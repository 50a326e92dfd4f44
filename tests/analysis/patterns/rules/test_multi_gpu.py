"""Test the patterns of several GPUs on traces made for them."""

from __future__ import annotations

import pytest

from tests.helpers.pattern_cases import ABSENT, CANNOT_TELL, FIRED, Cases, case_params, check_case, find_missing_answers
from tests.helpers.pattern_traces import GEMM, NCCL, check_pattern, healthy, op_with_work
from tests.helpers.trace_builder import Entry, cpu, step, trace
from torchprof_tui.analysis.patterns.engine.pattern import Remedy, State
from torchprof_tui.analysis.patterns.rules import multi_gpu
from torchprof_tui.analysis.patterns.rules.communication import BUCKET_REMEDY
from torchprof_tui.analysis.patterns.rules.multi_gpu import Owner


def step_with_collective(overlap: float) -> list[Entry]:
    """A collective of 400 µs that overlaps a kernel by `overlap`."""
    return [
        step(1, 0, 1000),
        *op_with_work("aten::mm", 1, 20, 500, GEMM),
        *op_with_work("c10d::allreduce_", 15, 520 - overlap, 400, NCCL, stream=20),
    ]


def collectives_on_two_devices(delay: float) -> list[Entry]:
    """One collective on two devices, the second starting `delay` later."""
    return [
        *op_with_work("c10d::allreduce_", 1, 20, 500, NCCL),
        *op_with_work("c10d::allreduce_", 11, 20 + delay, 500 - delay, NCCL, device=1),
    ]


CASES: Cases = {
    "exposed-comm": {FIRED: step_with_collective(0), ABSENT: step_with_collective(390), CANNOT_TELL: healthy()},
    "straggler": {
        FIRED: collectives_on_two_devices(300),
        ABSENT: collectives_on_two_devices(5),
        CANNOT_TELL: healthy(),
    },
}


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State) -> None:
    check_case(CASES, name, state)


def test_every_pattern_has_a_trace_for_each_answer() -> None:
    assert not find_missing_answers(multi_gpu, CASES)


REDUCER = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"


def exposed_remedy(*callers: str, name: str = NCCL) -> Remedy:
    """The remedy of an exposed collective whose launch has these callers besides its op."""
    entries = [cpu(caller, 14 - k, 12 + 2 * k) for k, caller in enumerate(callers)]
    work = op_with_work("c10d::allreduce_", 15, 520, 400, name, stream=20)
    finding = check_pattern(
        trace(step(1, 0, 1000), *op_with_work("aten::mm", 1, 20, 500, GEMM), *entries, *work), "exposed-comm"
    )
    assert finding.has_fired
    return finding.remedy


def test_the_remedy_is_that_of_the_owner() -> None:
    assert exposed_remedy(REDUCER) == multi_gpu.REMEDIES_BY_OWNER[Owner.DDP]
    assert exposed_remedy("FSDP::post_backward") == multi_gpu.REMEDIES_BY_OWNER[Owner.FSDP2]
    deep_ep = exposed_remedy(name="void deep_ep::intranode::dispatch<8, 768>(int4*)")
    assert deep_ep == multi_gpu.REMEDIES_BY_OWNER[Owner.DEEP_EP]


def test_without_an_owner_there_is_no_line_to_paste() -> None:
    assert exposed_remedy("SyncBatchNormBackward").code == ""
    assert set(multi_gpu.REMEDIES_BY_OWNER) == set(Owner)


def test_waiting_is_not_overlapped() -> None:
    notify = "void deep_ep::intranode::notify_dispatch<8>(int const*)"
    assert exposed_remedy(name=notify) == multi_gpu.LATE_RANK_REMEDY


def step_with_reduces(count: int, gradients: int, reduce_us: float = 20) -> list[Entry]:
    """All-reduces after a backward pass that adds to this many gradients, one every 30 µs."""
    entries = [step(1, 0, 200 + 30 * count), *op_with_work("aten::mm", 1, 20, 100, GEMM)]
    entries += [cpu("torch::autograd::AccumulateGrad", 20 + k, 0.5) for k in range(gradients)]
    for k in range(count):
        entries += op_with_work("c10d::allreduce_", 130 + 30 * k, 145 + 30 * k, reduce_us, NCCL, stream=20)
    return entries


def test_an_all_reduce_for_each_gradient_is_to_be_bucketed() -> None:
    finding = check_pattern(trace(*step_with_reduces(40, 40)), "exposed-comm")
    assert finding.answer.seen.endswith("; 40 all-reduces a step, one per parameter, 20.0 µs in the median")
    assert finding.remedy == BUCKET_REMEDY


@pytest.mark.parametrize(("count", "gradients", "reduce_us"), [(40, 120, 20), (20, 20, 20), (40, 0, 20), (40, 40, 150)])
def test_buckets_few_all_reduces_inference_and_large_ones_are_left(
    count: int, gradients: int, reduce_us: float
) -> None:
    finding = check_pattern(trace(*step_with_reduces(count, gradients, reduce_us)), "exposed-comm")
    assert finding.has_fired
    assert "one per parameter" not in finding.answer.seen
    assert finding.remedy != BUCKET_REMEDY
