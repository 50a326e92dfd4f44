"""Test the patterns of inputs that are made or copied again, and of samples that are run one by one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.pattern_cases import ABSENT, CANNOT_TELL, FIRED, Cases, case_params, find_missing_answers
from tests.helpers.pattern_traces import ADD, GPU_ONLY, check_pattern, check_saved, op_with_work
from tests.helpers.trace_builder import Entry, cpu, memcpy, runtime, step, trace
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.analysis.patterns.rules import repeated_inputs

HTOD = "Memcpy HtoD (Pageable -> Device)"
MODEL = (
    *("conv2d", "relu", "layer_norm", "gelu", "linear", "sigmoid", "mul", "add"),
    *("flatten", "mean", "softmax", "argmax", "tanh", "cat"),
)


def ops(names: Sequence[str], at: float, dims: list[int] | None = None) -> list[Entry]:
    """Each op takes 9 of 10 µs and launches a kernel; the first has these input dims."""
    entries: list[Entry] = []
    for k, name in enumerate(names):
        part = op_with_work(f"aten::{name}", at + 10 * k, at + 10 * k + 8, 1, ADD, cost=9)
        if k == 0 and dims is not None:
            part[0] = cpu(f"aten::{name}", at, 9, **{"Input Dims": [dims], "Input type": ["float"]})
        entries += part
    return entries


def copies(count: int, size: int, at: float = 100) -> list[Entry]:
    entries: list[Entry] = []
    for k in range(count):
        begin, number = at + 20 * k, 5_000 + k
        entries += [cpu("aten::to", begin, 18), runtime("cudaMemcpyAsync", begin + 5, 10, number)]
        entries += [memcpy(HTOD, begin + 12, 1, number, bytes=size)]
    return entries


def in_step(*entries: Entry) -> list[Entry]:
    return [step(1, 0, 9_000), *op_with_work("aten::embedding", 10, 18, 5), *entries]


def listed(gap: float) -> list[Entry]:
    """torch.tensor(list): an allocation, Python for `gap` µs, then lift_fresh."""
    return [cpu("aten::empty", 100, 2), cpu("aten::to", 102 + gap, 3), cpu("aten::lift_fresh", 106 + gap, 1)]


def passes(count: int, batch: int = 1, positions: int = 64, **more: Any) -> list[Entry]:
    dims = more.get("dims", [batch, positions])
    return [entry for k in range(count) for entry in ops(MODEL, 100 + 200 * k, dims)]


CASES: Cases = {
    "repeated-mask": {
        FIRED: in_step(*ops(["full", "triu", "add"] * 4, 100)),
        ABSENT: in_step(*ops(["full", "triu", "add"] * 2, 100)),
        CANNOT_TELL: GPU_ONLY,
    },
    "equal-copies": {FIRED: in_step(*copies(20, 256)), ABSENT: in_step(*copies(3, 256)), CANNOT_TELL: GPU_ONLY},
    "tensor-from-list": {FIRED: in_step(*listed(900)), ABSENT: in_step(*listed(5)), CANNOT_TELL: GPU_ONLY},
    "one-sample-at-a-time": {
        FIRED: [step(1, 0, 9_000), *passes(4)],
        ABSENT: [step(1, 0, 9_000), *passes(4, batch=8)],
        CANNOT_TELL: [step(1, 0, 9_000), *passes(4, dims=None)],
    },
}


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State, tmp_path: Path) -> None:
    finding = check_saved(tmp_path, name, *CASES[name][state])
    assert finding.state is state, finding.answer
    assert finding.answer.reason if state is CANNOT_TELL else True
    assert len(finding.answer.events) > 0 if state is FIRED else True


POSITIONS = ["arange", "mul", "exp", "arange", "mul", "sin", "cos", "cat"]


@pytest.mark.parametrize(
    ("names", "state"),
    [
        ([*POSITIONS, "add"] * 4, FIRED),
        ([*POSITIONS, "add"] * 2, ABSENT),
        ([*POSITIONS[3:], "add"] * 4, ABSENT),  # of one range: the sine of a time
    ],
)
def test_a_table_of_positions_that_is_made_again_is_a_constant(names: list[str], state: State) -> None:
    finding = check_pattern(trace(*in_step(*ops(names, 100))), "repeated-mask")
    assert finding.state is state
    if state is FIRED:
        assert finding.answer.headline == "the same table of positions is made again at each use"
        assert len(finding.answer.events) == 4 * 2 * len(POSITIONS)


def test_every_pattern_has_a_trace_for_each_answer() -> None:
    assert not find_missing_answers(repeated_inputs, CASES)


@pytest.mark.parametrize(("size", "word", "action"), [(256, "small", "stack"), (1 << 20, "1.0 MiB", "buffer")])
def test_small_copies_are_stacked_and_large_ones_kept(size: int, word: str, action: str) -> None:
    finding = check_pattern(trace(*in_step(*copies(20, size))), "equal-copies")
    assert word in finding.answer.headline
    assert action in finding.remedy.action


def test_one_copy_of_a_step_remains() -> None:
    finding = check_pattern(trace(*in_step(*copies(20, 256))), "equal-copies")
    assert finding.answer.removed is not None
    assert len(finding.answer.events) - len(finding.answer.removed) == 2  # the op and its copy


def test_all_runs_of_the_model_but_one_are_at_stake(tmp_path: Path) -> None:
    finding = check_saved(tmp_path, "one-sample-at-a-time", step(1, 0, 9_000), *passes(4))
    names = [name for name in MODEL if name != "flatten"]  # a view
    assert len(finding.answer.events) == 3 * 2 * len(names)


@pytest.mark.parametrize(
    "entries",
    [
        passes(1),
        passes(4, positions=1),  # one position of one sequence: tokens
        [entry for k in range(4) for entry in ops(["linear", "gelu"] * 3, 100 + 200 * k, [1, 64])],  # layers
        [entry for k in range(4) for entry in ops(MODEL, 100 + 200 * k, [1, 64 + k])],  # a growing sequence
    ],
)
def test_tokens_layers_and_other_shapes_are_no_samples(entries: list[Entry], tmp_path: Path) -> None:
    assert check_saved(tmp_path, "one-sample-at-a-time", step(1, 0, 9_000), *entries).state is ABSENT


def flattened(batch: int, positions: int) -> list[Entry]:
    """Four runs of a model that flattens (batch, positions, 8) before its first layer."""
    entries: list[Entry] = []
    for k in range(4):
        at, typed = 100 + 400 * k, {"Input type": ["float"]}
        entries += op_with_work("aten::mul", at, at + 8, 1, ADD, cost=9)
        entries += [cpu("aten::flatten", at + 10, 9, **{"Input Dims": [[batch, positions, 8]]}, **typed)]
        layer = op_with_work("aten::linear", at + 20, at + 28, 1, ADD, cost=9)
        layer[0] = cpu("aten::linear", at + 20, 9, **{"Input Dims": [[batch * positions, 8]]}, **typed)
        entries += [*layer, *ops(MODEL[1:], at + 30)]
    return entries


@pytest.mark.parametrize(("batch", "state"), [(1, FIRED), (4, ABSENT)])
def test_a_model_that_flattens_its_batch_runs_samples_too(batch: int, state: State, tmp_path: Path) -> None:
    entries = [step(1, 0, 9_000), *flattened(batch, 64)]
    assert check_saved(tmp_path, "one-sample-at-a-time", *entries).state is state


@pytest.mark.parametrize(("reading", "expected"), [(1_000, 1_900), (5_000, 900)])
def test_a_list_is_read_before_memory_is_allocated_too(reading: int, expected: int) -> None:
    shifted = [{**entry, "ts": entry["ts"] + reading} for entry in listed(900)]
    finding = check_pattern(trace(*in_step(cpu("aten::view", 90, 5), *shifted)), "tensor-from-list")
    assert finding.answer.seen.startswith("1 tensor in ")
    spans = finding.answer.spans
    assert spans is not None
    assert abs(spans.total - expected * 1_000) < 20_000
