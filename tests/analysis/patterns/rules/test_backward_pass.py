"""Test the patterns of backward passes: literal programs whose second pass, recomputation or gradients are needless."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.pattern_cases import ABSENT, CANNOT_TELL, FIRED, Cases, case_params, check_case, find_missing_answers
from tests.helpers.pattern_traces import ADD, GPU_ONLY, check_pattern, check_saved
from tests.helpers.trace_builder import Entry, annotation, cpu, kernel, runtime, step, trace
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.analysis.patterns.rules import backward_pass
from torchprof_tui.trace.loading.load_in_process import load_trace

AUTOGRAD = 200
EVALUATE = "autograd::engine::evaluate_function: "
LEAF = "torch::autograd::AccumulateGrad"
_correlations = itertools.count(1)


def op(name: str, at: float, thread: int = 100, **args: object) -> list[Entry]:
    """An op of 10 µs whose kernel runs from 8 to 13 µs after its start."""
    number = next(_correlations)
    return [
        cpu(name, at, 10, thread, **args),
        runtime("cudaLaunchKernel", at + 2, 3, number, thread),
        kernel(ADD, at + 8, 5, number),
    ]


def node(name: str, at: float, sequence: int, *inside: Entry) -> list[Entry]:
    """A node of the graph of 40 µs: an op from 5 µs on, then `inside`."""
    numbers = {"Sequence number": sequence, "Fwd thread id": 1}
    return [
        cpu(EVALUATE + name, at, 40, AUTOGRAD, **numbers),
        cpu(name, at + 1, 38, AUTOGRAD, **numbers),
        *op("aten::mm", at + 5, AUTOGRAD),
        *inside,
    ]


def leaf(at: float, *inside: Entry) -> list[Entry]:
    """A node of 20 µs that gives a parameter its gradient."""
    return [
        cpu(EVALUATE + LEAF, at, 20, AUTOGRAD),
        cpu(LEAF, at + 1, 18, AUTOGRAD),
        cpu("aten::detach", at + 2, 2, AUTOGRAD),
        *inside,
    ]


def adam(at: float, tensors: int, fused: bool = False) -> list[Entry]:
    """An optimizer step that updates this many tensors: one by one, or a list of them."""
    updates = [op("aten::addcdiv_", at + 10 + 12 * k) for k in range(tensors)]
    if fused:
        updates = [op("aten::_fused_adamw_", at + 10, **{"Input Dims": [[[4, 4]] * tensors, []]})]
    return [annotation("Optimizer.step#AdamW.step", at, 60), *itertools.chain(*updates)]


def training(
    second: bool = False, recomputed: Sequence[str] = (), tensors: int | None = 2, fused: bool = False, steps: int = 3
) -> list[Entry]:
    """Steps of 1 ms: two layers, their backward pass, of which each layer's gradient is a leaf, and the optimizer.

    `second`: the pass is made twice. `recomputed`: ops that run inside the node of the second layer. `tensors`: what
    the optimizer updates, None without one.
    """
    entries: list[Entry] = []
    for number in range(steps):
        at, sequence = 1000.0 * number, 10 * number
        entries.append(step(number, at, 995))
        for layer in range(2):
            entries += op("aten::linear", at + 20 * layer, **{"Sequence number": sequence + layer})
        for begin in (at + 100, at + 400) if second else (at + 100,):
            for layer in (1, 0):
                inside = [
                    entry
                    for k, name in enumerate(recomputed)
                    for entry in op(name, begin + 16 + 11 * k, AUTOGRAD, **{"Sequence number": sequence + 5 + k})
                    if layer
                ]
                entries += node("AddmmBackward0", begin + 100 * (1 - layer), sequence + layer, *inside)
                entries += leaf(begin + 100 * (1 - layer) + 50)
        if tensors is not None:
            entries += adam(at + 700, tensors, fused)
    return entries


CASES: Cases = {
    "second-backward": {FIRED: training(second=True), ABSENT: training(), CANNOT_TELL: GPU_ONLY},
    "recomputed-forward": {
        FIRED: training(recomputed=("aten::linear", "aten::gelu")),
        ABSENT: training(),
        CANNOT_TELL: GPU_ONLY,
    },
    "unused-gradients": {
        FIRED: training(tensors=1),
        ABSENT: training(),
        CANNOT_TELL: GPU_ONLY,
    },
}


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State) -> None:
    check_case(CASES, name, state)


def test_every_pattern_has_a_trace_for_each_answer() -> None:
    assert not find_missing_answers(backward_pass, CASES)


def test_a_second_pass_costs_its_nodes_its_leaves_and_its_kernels() -> None:
    finding = check_pattern(trace(*training(second=True)), "second-backward")
    assert finding.answer.seen == "6 nodes of the graph evaluated again (2 a step)"
    assert finding.answer.at_stake == 3 * (2 * 40 + 2 * 20) * 1000  # their kernels run while they do


def test_a_pass_that_records_a_graph_is_no_second_one() -> None:
    entries = training(second=True, recomputed=("aten::mul",))
    assert check_pattern(trace(*entries), "second-backward").state is ABSENT


def test_the_gradient_of_a_gradient_is_no_recomputation() -> None:
    entries = training(recomputed=("aten::mm", "aten::mul", "aten::t"))
    assert check_pattern(trace(*entries), "recomputed-forward").state is ABSENT


def test_recomputation_costs_its_ops_and_the_time_between_them() -> None:
    finding = check_pattern(trace(*CASES["recomputed-forward"][FIRED]), "recomputed-forward")
    assert finding.answer.seen == "6 ops (2 a step) of the forward pass run again"
    assert (
        finding.answer.at_stake == 3 * (2 * 10 + 1 - 2 + 3) * 1000
    )  # 2 µs are the node's own kernel's; the last one ends 3 µs later
    assert finding.answer.removed is not None
    assert not len(finding.answer.removed)  # hooks: no saving is claimed


def test_gradients_behind_the_last_one_that_is_used_are_at_stake() -> None:
    finding = check_pattern(trace(*training(tensors=1)), "unused-gradients")
    assert finding.answer.seen == "2 parameters get a gradient in a step, the optimizer updates 1"
    assert "freeze" in finding.remedy.action
    assert finding.answer.at_stake == 3 * (40 + 20 + 10) * 1000  # the node, the leaf, and what lies between them


def test_without_an_optimizer_the_whole_pass_is_at_stake() -> None:
    finding = check_pattern(trace(*training(tensors=None)), "unused-gradients")
    assert finding.answer.seen == "2 parameters get a gradient in a step, no optimizer step follows"
    assert "inference_mode" in finding.remedy.action


def test_a_kernel_after_the_pass_may_be_an_optimizer() -> None:
    entries = training(tensors=None)
    entries += [entry for number in range(3) for entry in op("custom::update", 1000.0 * number + 700)]
    assert check_pattern(trace(*entries), "unused-gradients").state is ABSENT


@pytest.mark.parametrize(("name", "state"), [("aten::arange", FIRED), ("aten::add_", ABSENT)])
def test_kernels_that_prepare_the_next_step_use_no_gradients(name: str, state: State) -> None:
    entries = [
        entry if entry["name"].startswith("ProfilerStep") else {**entry, "ts": entry["ts"] + 50}
        for entry in training(tensors=None)
    ]
    entries += [entry for number in range(3) for entry in op(name, 1000.0 * number + 10)]
    assert check_pattern(trace(*entries), "unused-gradients").state is state


def test_gradients_that_are_added_to_are_kept() -> None:
    entries = training(tensors=None)
    entries += [
        entry for number in range(3) for at in (150, 250) for entry in op("aten::add_", 1000 * number + at + 5, 200)
    ]
    assert check_pattern(trace(*entries), "unused-gradients").state is ABSENT


def test_a_list_of_unknown_length_may_hold_all_parameters(tmp_path: Path) -> None:
    entries = training(tensors=1, fused=True)
    assert check_pattern(trace(*entries), "unused-gradients").state is ABSENT  # its args cannot be read
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": entries}), "utf-8")
    finding = check_pattern(load_trace(str(path)), "unused-gradients")
    assert finding.answer.seen == "2 parameters get a gradient in a step, the optimizer updates 1"


def update(at: float, *ops: tuple[str, list[int] | None, int]) -> list[Entry]:
    """An optimizer step of list ops: (name, width of each tensor of its list, blocks of its kernel)."""
    entries = [annotation("Optimizer.step#AdamW.step", at, 60)]
    for k, (name, widths, blocks) in enumerate(ops):
        dims = {"Input Dims": [[[width] for width in widths]]} if widths else {}
        *host, launched = op(f"aten::{name}", at + 5 + 12 * k, **dims)
        launched["args"]["grid"] = [blocks, 1, 1]
        entries += [*host, launched]
    return entries


@pytest.mark.parametrize(
    ("ops", "state"),
    [
        ([("_foreach_add_", None, 1), ("_fused_adamw_", None, 900)], FIRED),  # the steps of one tensor are counted
        ([("_foreach_add_", None, 2), ("_fused_adamw_", None, 900)], ABSENT),
        ([("_foreach_mul_", None, 1), ("_foreach_addcdiv_", None, 1)], FIRED),
        ([("_foreach_mul_", None, 1), ("_foreach_addcdiv_", None, 2)], ABSENT),  # weight decay of one of them
        ([("_foreach_mul_", [4], 9), ("_foreach_mul_", [4], 9), ("_foreach_addcdiv_", [4], 9)], FIRED),
        ([("_foreach_mul_", [4], 9), ("_foreach_mul_", [8], 9), ("_foreach_addcdiv_", [4, 8], 9)], ABSENT),
    ],
)
def test_updated_tensors_are_counted_once(ops: list[Any], state: State, tmp_path: Path) -> None:
    entries = training(tensors=None)
    entries += [entry for number in range(3) for entry in update(1000.0 * number + 700, *ops)]
    assert check_saved(tmp_path, "unused-gradients", *entries).state is state
