"""Test the pattern of algorithms that are written out: literal op sequences, and the library's own ops."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.pattern_cases import ABSENT, CANNOT_TELL, FIRED, Cases, case_params, check_case, find_missing_answers
from tests.helpers.pattern_traces import ADD, GPU_ONLY, check_pattern, check_saved, op_with_work
from tests.helpers.trace_builder import Entry, cpu, step, trace
from torchprof_tui.analysis.patterns.engine import op_text
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.analysis.patterns.rules import written_out

NORM = "mean sub pow mean sub add sqrt div"
RMS = "pow mean add rsqrt mul"
ATTENTION = "matmul transpose div softmax to dropout matmul"
PER_ROW_LOSS = "amax sub exp sum log sub one_hot to mul sum"
CROSS_ENTROPY = f"{PER_ROW_LOSS} mean neg"
LSTM = "linear linear add chunk sigmoid mul sigmoid tanh mul add sigmoid tanh mul"
CLIPPING = "pow sum add"
AVERAGE = "mul mul add copy_"
NODE = "autograd::engine::evaluate_function: "
MLP = "matmul tanh mul add"
SWIGLU = "linear silu linear mul linear add"
ROUTER = "linear softmax topk index matmul"


def ops(names: str, at: float = 100, **args: Any) -> list[Entry]:
    """Each op takes 9 of 10 µs and launches a kernel of 5 µs."""
    return [
        entry
        for k, name in enumerate(names.split())
        for entry in op_with_work(f"aten::{name}", at + 10 * k, at + 10 * k + 8, 5, ADD, cost=9, **args)
    ]


def in_step(*entries: Entry) -> list[Entry]:
    return [step(1, 0, 9_000), *ops("conv2d", 10), *entries]


CASES: Cases = {
    "written-out": {FIRED: in_step(*ops(NORM)), ABSENT: in_step(*ops("layer_norm")), CANNOT_TELL: GPU_ONLY},
}


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State) -> None:
    check_case(CASES, name, state)


def test_every_pattern_has_a_trace_for_each_answer() -> None:
    assert not find_missing_answers(written_out, CASES)


@pytest.mark.parametrize("algorithm", written_out.ALGORITHMS, ids=lambda each: each.name)
def test_no_text_without_the_needed_letters_matches(algorithm: written_out.Algorithm) -> None:
    others = [letter for letter in (*op_text._LETTERS, ".", "\n") if letter not in algorithm.needs]
    text = "".join(random.Random(0).choices(others, k=200_000))
    assert not algorithm.needs or re.search(algorithm.expression, text) is None


@pytest.mark.parametrize(
    ("names", "headline", "call"),
    [
        (NORM, "layer norm", "layer_norm"),
        (RMS, "RMS norm", "rms_norm"),
        (ATTENTION, "attention", "scaled_dot_product_attention"),
        (CROSS_ENTROPY, "cross entropy", "cross_entropy"),
        ("linear mul pow mul add mul tanh add mul linear", "GELU", "gelu"),
        ("linear mul div erf add mul", "GELU", "gelu"),
        ("matmul amax sub exp sum div", "softmax", "softmax"),
        (" ".join([LSTM] * 10), "recurrence", "nn.LSTM"),
        (" ".join(["add"] * 40 + ["stack"]), "running sum", "cumsum"),
        (" ".join([CLIPPING] * 10), "gradient norm", "clip_grad_norm_"),
        (" ".join([AVERAGE] * 10), "moving average", "foreach"),
        ("pad unfold permute flatten linear", "convolution", "conv1d"),
        ("diag to matmul", "diagonal matrix", "elementwise"),
    ],
)
def test_the_algorithm_is_named_with_the_librarys_op(names: str, headline: str, call: str) -> None:
    finding = check_pattern(trace(*in_step(*ops(names))), "written-out")
    assert finding.state is FIRED
    assert headline in finding.answer.headline
    assert call in f"{finding.remedy.action} {finding.remedy.code}"


@pytest.mark.parametrize(
    "names",
    [
        " ".join([MLP] * 20),
        " ".join([SWIGLU] * 20),
        ROUTER,
        "mean sub mul",
        " ".join(["mul tanh add"] * 10),
        "linear sigmoid tanh add",
        " ".join(["add"] * 12),
        " ".join(["add"] * 40),
        " ".join([LSTM] * 3),
        "scaled_dot_product_attention linear",
        "sort index",
        "unfold mean linear",
    ],
)
def test_what_only_resembles_an_algorithm_is_not_named(names: str) -> None:
    assert check_pattern(trace(*in_step(*ops(names))), "written-out").state is ABSENT


def test_a_sequence_does_not_cross_the_border_of_two_steps() -> None:
    first, second = NORM.split()[:4], NORM.split()[4:]
    entries = [step(1, 0, 900), step(2, 1_000, 900), *ops(" ".join(first), 500), *ops(" ".join(second), 1_100)]
    assert check_pattern(trace(*entries), "written-out").state is ABSENT


def test_the_time_at_stake_is_that_of_the_ops_while_the_gpu_is_idle_and_of_their_kernels() -> None:
    finding = check_pattern(trace(*in_step(*ops(NORM))), "written-out")
    count, gone = len(NORM.split()), len(NORM.replace("mean", "").split())
    # of each op 9 µs; the kernel of the one before runs on into the first 3, its own from 8 on
    assert finding.answer.at_stake == gone * (9_000 - 3_000 - 1_000) + gone * 5_000
    assert len(finding.answer.events) == 2 * count


@pytest.mark.parametrize(("names", "kept"), [(NORM, ["mean"]), (PER_ROW_LOSS, ["exp"]), (ATTENTION, [])])
def test_what_the_librarys_op_still_computes_stays_in_the_backward_pass(names: str, kept: list[str]) -> None:
    """Each op has a node of its own; those of ops that are kept are not gone, but where the library fuses them."""
    entries, computing = in_step(), [name for name in names.split() if name not in ("to", "transpose")]
    for k, name in enumerate(computing):
        forward, backward = ops(name, 100 + 10 * k), op_with_work("aten::div", 1_000 + 20 * k, 1_010 + 20 * k, 5)
        forward[0] = cpu(f"aten::{name}", 100 + 10 * k, 9, **{"Sequence number": k})
        entries += [
            *forward,
            cpu(NODE + name, 990 + 20 * k, 19, **{"Sequence number": k, "Fwd thread id": 1}),
            *backward,
        ]
    made = trace(*entries)
    removed = check_pattern(made, "written-out").answer.removed
    assert removed is not None
    gone = {made.names[name].removeprefix(NODE) for name in made.name[removed].tolist() if NODE in made.names[name]}
    assert gone == set(computing) - set(kept)


def with_shapes(name: str, at: float, *shapes: list[int]) -> list[Entry]:
    entries = op_with_work(f"aten::{name}", at, at + 8, 5, ADD, cost=9)
    dims, types = [list(shape) for shape in shapes], ["float"] * len(shapes)
    entries[0] = cpu(f"aten::{name}", at, 9, **{"Input Dims": dims, "Input type": types})
    return entries


@pytest.mark.parametrize(
    ("left", "right", "state"),
    [
        ([64, 1, 8], [1, 32, 8], FIRED),
        ([1, 32, 8], [64, 1, 8], FIRED),
        ([64, 32, 8], [64, 32, 8], ABSENT),  # a plain difference
        ([64, 1, 8], [64, 1, 8], ABSENT),
    ],
)
def test_distances_are_told_from_other_differences_by_their_shapes(
    left: list[int], right: list[int], state: State, tmp_path: Path
) -> None:
    both = [64, 32, 8]
    entries = [*with_shapes("sub", 100, left, right), *with_shapes("pow", 110, both), *with_shapes("sum", 120, both)]
    finding = check_saved(tmp_path, "written-out", *in_step(*entries))
    assert finding.state is state
    assert state is ABSENT or "distances" in finding.answer.headline


@pytest.mark.parametrize(("used", "state"), [(8, FIRED), (1_000, ABSENT)])
def test_a_sort_for_few_values_is_told_from_one_for_all(used: int, state: State, tmp_path: Path) -> None:
    entries = [
        *with_shapes("sort", 100, [16, 1_024]),
        *with_shapes("slice", 110, [16, 1_024]),
        *with_shapes("mul", 120, [16, used]),
    ]
    finding = check_saved(tmp_path, "written-out", *in_step(*entries))
    assert finding.state is state


@pytest.mark.parametrize(
    ("added", "stacked", "state"),
    [
        ([64], 40, FIRED),
        ([4, 64], 40, ABSENT),  # a table on a batch, which is the result of the addition before
        ([64], 2, ABSENT),  # of all sums the last one and another tensor
    ],
)
def test_a_running_sum_is_told_from_a_chain_of_additions_by_its_shapes(
    added: list[int], stacked: int, state: State, tmp_path: Path
) -> None:
    entries = [entry for k in range(40) for entry in with_shapes("add", 100 + 10 * k, added, [64])]
    args: dict[str, Any] = {"Input Dims": [[[64]] * stacked], "Input type": ["TensorList"]}
    stack = [cpu("aten::stack", 500, 9, **args), *ops("stack", 500)[1:]]
    finding = check_saved(tmp_path, "written-out", *in_step(*entries, *stack))
    assert finding.state is state


@pytest.mark.parametrize(
    ("left", "strides", "state"),
    [
        ([4, 16, 100], [1_600, 100, 1], FIRED),
        ([100, 64], [1, 100], ABSENT),  # transposed: sums by class
        ([4, 16, 16], [256, 1, 16], ABSENT),
    ],
)
def test_a_lookup_is_told_from_sums_by_class_by_its_shapes(
    left: list[int], strides: list[int], state: State, tmp_path: Path
) -> None:
    product = with_shapes("matmul", 130, left, [left[-1], 8])
    product[0] = cpu("aten::matmul", 130, 9, **{**product[0]["args"], "Input Strides": [strides, [8, 1]]})
    entries = [*with_shapes("one_hot", 100, [4, 16]), *ops("to", 110), *product]
    entries[0]["args"]["Input type"] = ["long int"]
    finding = check_saved(tmp_path, "written-out", *in_step(*entries))
    assert finding.state is state
    if state is FIRED:
        assert "one-hot rows" in finding.answer.headline
        assert len(finding.answer.events) == 2 * 3  # the cast between belongs to it
