"""Test the patterns of the CPU lane on traces made for them."""

from __future__ import annotations

import re

import pytest

from tests.helpers.pattern_cases import ABSENT, CANNOT_TELL, FIRED, Cases, case_params, check_case, find_missing_answers
from tests.helpers.pattern_traces import DTOD, GEMM, GPU_ONLY, check_pattern, healthy, op_with_work, steps_of
from tests.helpers.trace_builder import Entry, annotation, cpu, kernel, memcpy, runtime, step, trace
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.analysis.patterns.rules import cpu_lane


def annotations_with_delays(*delays: float) -> list[Entry]:
    """Annotations of one name whose first op starts after these delays."""
    entries = []
    for number, delay in enumerate(delays):
        start = 1000 * number
        entries += [annotation("forward", start, 900), cpu("aten::add", start + delay, 20)]
    return entries


def op_with_copy(op: str, linked: bool = True) -> list[Entry]:
    """An op that launches a device-to-device copy; `linked`: whether the copy has the launch's correlation."""
    corr = 5
    return [
        cpu(op, 0, 40),
        cpu("aten::copy_", 5, 30),
        runtime("cudaMemcpyAsync", 10, 10, corr if linked else 6),
        memcpy(DTOD, 40, 20, corr),
    ]


COPY_KERNEL = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda"
    "(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#7}::operator()() const::{lambda(float)#1}> "
    "(at::TensorIteratorBase&, at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&))::{lambda(int)#1}>(int)"
)


CASES: Cases = {
    "first-step-wide": {
        FIRED: steps_of(160, 80, 64),
        ABSENT: steps_of(100, 80, 75),
        CANNOT_TELL: steps_of(160, 80),
    },
    "dead-window": {
        FIRED: annotations_with_delays(60, 4, 5),
        ABSENT: annotations_with_delays(16, 4, 5),
        CANNOT_TELL: annotations_with_delays(60, 4),
    },
    "adaptive-launch": {
        FIRED: [
            cpu("aten::mm", 0, 50),
            runtime("cudaOccupancyMaxActiveClusters", 5, 1, 7),
            runtime("cudaLaunchKernel", 20, 8, 8),
            kernel(GEMM, 60, 30, 8),
        ],
        ABSENT: healthy(),
        CANNOT_TELL: GPU_ONLY,
    },
    "fixed-launch": {
        FIRED: healthy(),
        ABSENT: op_with_work("aten::mm", 0, 20, 30, GEMM),
        CANNOT_TELL: GPU_ONLY,
    },
    "trailing-sync": {
        FIRED: healthy(more=[runtime("cudaDeviceSynchronize", 4000, 100, 3)]),
        ABSENT: healthy(more=[runtime("cudaDeviceSynchronize", 1500, 100, 3)]),
        CANNOT_TELL: GPU_ONLY,
    },
    "hidden-copy": {
        FIRED: op_with_copy("aten::masked_fill"),
        ABSENT: op_with_copy("aten::clone"),
        CANNOT_TELL: op_with_copy("aten::masked_fill", linked=False),
    },
}


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State) -> None:
    check_case(CASES, name, state)


def test_every_pattern_has_a_trace_for_each_answer() -> None:
    assert not find_missing_answers(cpu_lane, CASES)


def test_what_was_seen_has_the_numbers_of_the_trace() -> None:
    finding = check_pattern(trace(*steps_of(159.6, 79.8, 63.8)), "first-step-wide")
    assert finding.answer.seen == (
        "step #0 took 159.6 µs, 2.2× as long as the other 2: 79.8 µs and 63.8 µs; "
        "nothing is loaded, allocated or compiled in it"
    )
    assert finding.answer.at_stake == round((159.6 - 71.8) * 1000)


def test_a_trailing_sync_says_what_it_covered() -> None:
    entries = [step(1, 0, 50), *op_with_work("aten::add", 5, 100, 26), runtime("cudaDeviceSynchronize", 60, 1780, 3)]
    finding = check_pattern(trace(*entries), "trailing-sync")
    assert "waits 1.78 ms" in finding.answer.seen
    assert "covers 26.0 µs" in finding.answer.seen
    assert "99 % idle" in finding.answer.seen  # 1 - 26 / 1780
    assert not finding.answer.at_stake


@pytest.mark.parametrize(
    ("ancestors", "name", "state"),
    [
        (["aten::reshape", "aten::clone"], COPY_KERNEL, FIRED),
        (["aten::contiguous", "aten::clone"], COPY_KERNEL, FIRED),
        (["autograd::engine::evaluate_function: ViewBackward0", "aten::reshape", "aten::clone"], COPY_KERNEL, FIRED),
        (["aten::clone"], COPY_KERNEL, ABSENT),
        (["aten::addmm", "aten::to", "aten::_to_copy"], COPY_KERNEL, ABSENT),  # a cast
        (["aten::repeat"], COPY_KERNEL, ABSENT),  # repeat is expected to copy
        (["torch.distributed.ddp.reducer::copy_bucket_to_grad"], DTOD, FIRED),
        (["torch::autograd::AccumulateGrad", "aten::clone"], DTOD, ABSENT),
    ],
)
def test_a_copy_is_hidden_unless_its_op_is_a_copy(ancestors: list[str], name: str, state: State) -> None:
    outer = [cpu(op, index, 40 - 2 * index) for index, op in enumerate(ancestors)]
    copy_trace = trace(*outer, *op_with_work("aten::copy_", 10, 60, 20, name))
    assert check_pattern(copy_trace, "hidden-copy").state is state


@pytest.mark.parametrize(
    ("duration", "busy", "state"), [(10, 0, FIRED), (9, 0, ABSENT), (9, 900, ABSENT), (11, 900, FIRED)]
)
def test_a_hidden_copy_must_be_worth_avoiding(duration: float, busy: float, state: State) -> None:
    """The limit is a hundredth of the time (here 1000 µs), however busy the GPU is."""
    entries = [step(1, 0, 1000), *op_with_work("aten::masked_fill", 10, 30, duration, DTOD)]
    entries += op_with_work("aten::mm", 20, 60, busy, GEMM) if busy else []
    finding = check_pattern(trace(*entries), "hidden-copy")
    assert finding.state is state
    assert "aten::masked_fill copied 1×" in finding.answer.seen


def test_kernels_with_a_fixed_launch_size_are_counted_with_an_example() -> None:
    seen = check_pattern(trace(*healthy()), "fixed-launch").answer.seen
    assert re.fullmatch(r"\d+ kernels? with a fixed launch size \(e\.g\. aten::\w+\)(; GEMMs on Hopper .*)?", seen)


@pytest.mark.parametrize(
    ("op", "code"),
    [
        ("aten::select_backward", "q, k, v = qkv.unbind(0)  # once, instead of qkv[0], qkv[1], qkv[2]"),
        ("aten::slice_backward", "a, b = x.split(sizes, dim=-1)  # once, instead of x[..., :n], x[..., n:]"),
        ("aten::_index_put_impl_", "y = x.index_select(0, indices)  # once, instead of x[i] for each i"),
        ("aten::masked_fill", "scores.masked_fill_(mask, float('-inf'))  # in place: no clone"),
        ("aten::addmm", "y = b.addmm_(x, w)  # instead of torch.addmm(b, x, w)"),
    ],
)
def test_the_code_against_a_hidden_copy_is_that_of_its_op(op: str, code: str) -> None:
    finding = check_pattern(trace(*op_with_copy(op)), "hidden-copy")
    assert finding.has_fired
    assert finding.remedy.code == code


def test_a_first_step_that_the_gpu_hides_costs_nothing() -> None:
    """The CPU needs 4 ms for the first step and 2 for the others, the GPU 22 for each."""
    entries, at = [], 0.0
    for number, length in enumerate((4000, 2000, 2000, 2000)):
        entries += [step(number, at, length), *op_with_work("aten::mm", at + 1, 6 + 22_000 * number, 21_990)]
        at += length
    finding = check_pattern(trace(*entries), "first-step-wide")
    assert finding.state is State.ABSENT
    assert finding.answer.seen == "step #0 took longer on the CPU, while the GPU was busy with its work"


def test_a_last_wait_without_work_is_not_said_to_be_idle() -> None:
    entries = [step(1, 0, 100), *op_with_work("aten::mm", 10, 30, 50), runtime("cudaDeviceSynchronize", 120, 30, 99)]
    seen = check_pattern(trace(*entries), "trailing-sync").answer.seen
    assert seen == "cudaDeviceSynchronize waits 30.0 µs after the last step and covers no GPU work"
