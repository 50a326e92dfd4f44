"""Test the pattern of optimizers that update one parameter after the other."""

from __future__ import annotations

import pytest

from tests.helpers.pattern_cases import ABSENT, CANNOT_TELL, FIRED, Cases, case_params, check_case, find_missing_answers
from tests.helpers.pattern_traces import ADD, GPU_ONLY, check_pattern, healthy
from tests.helpers.trace_builder import Entry, annotation, cpu, kernel, runtime, trace
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.analysis.patterns.rules import optimizer
from torchprof_tui.analysis.patterns.rules.optimizer import choose_optimizer_remedy


def optimizer_step(launches: int, op: str = "aten::mul_", name: str = "AdamW") -> list[Entry]:
    """An optimizer step that launches kernels of 2 µs, one every 10 µs."""
    entries: list[Entry] = [annotation(f"Optimizer.step#{name}.step", 0, 10 * launches)]
    for number in range(launches):
        at = 10.0 * number
        entries += [
            cpu(op, at, 9),
            runtime("cudaLaunchKernel", at + 2, 4, number + 1),
            kernel(ADD, at + 7, 2, number + 1),
        ]
    return entries


UNKNOWN = [*healthy(), cpu("autograd::engine::evaluate_function: AddBackward0", 3990, 3)]

CASES: Cases = {
    "optimizer-loop": {FIRED: optimizer_step(60), ABSENT: optimizer_step(12), CANNOT_TELL: UNKNOWN},
}


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State) -> None:
    check_case(CASES, name, state)


def test_every_pattern_has_a_trace_for_each_answer() -> None:
    assert not find_missing_answers(optimizer, CASES)


def test_its_launches_and_idle_time_are_counted() -> None:
    finding = check_pattern(trace(*optimizer_step(60)), "optimizer-loop")
    assert finding.answer.seen == (
        "Optimizer.step#AdamW.step launches 60 kernels a step, 2.00 µs in the median; 1 such step, the GPU idle "
        "480.0 µs in them"
    )
    assert finding.answer.at_stake == (600 - 60 * 2) * 1000


@pytest.mark.parametrize("op", ["aten::_foreach_mul_", "aten::_fused_adamw_"])
def test_batched_steps_are_no_loop(op: str) -> None:
    assert check_pattern(trace(*optimizer_step(60, op)), "optimizer-loop").state is ABSENT


def test_without_training_it_is_absent_and_without_gpu_undecided() -> None:
    assert check_pattern(trace(*healthy()), "optimizer-loop").state is ABSENT
    assert check_pattern(trace(*GPU_ONLY), "optimizer-loop").state is CANNOT_TELL


@pytest.mark.parametrize(
    ("optimizer", "code"),
    [
        ("AdamW", "torch.optim.AdamW(params, fused=True)"),
        ("SGD", "torch.optim.SGD(params, fused=True)"),
        ("RMSprop", "torch.optim.RMSprop(params, foreach=True)"),
        ("Adagrad", "torch.optim.Adagrad(params, foreach=True)"),
        ("Shampoo", "torch._foreach_mul_(params, decay)  # and similar ops; or torch.compile(optimizer.step)"),
    ],
)
def test_the_remedy_is_one_that_the_optimizer_has(optimizer: str, code: str) -> None:
    assert choose_optimizer_remedy(f"Optimizer.step#{optimizer}.step").code == code
