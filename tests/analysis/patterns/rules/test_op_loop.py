"""Test the pattern of Python loops of small ops: literal programs, and recordings of two such loops."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.analysis.patterns.rules import test_moe
from tests.helpers.paths import FIXTURES
from tests.helpers.pattern_cases import ABSENT, CANNOT_TELL, FIRED, Cases, case_params, check_case, find_missing_answers
from tests.helpers.pattern_traces import ADD, GPU_ONLY, check_pattern, op_with_work
from tests.helpers.trace_builder import Entry, annotation, cpu, kernel, runtime, step, trace
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.analysis.patterns.rules import op_loop
from torchprof_tui.analysis.patterns.rules.op_loop import find_tandem_repeats
from torchprof_tui.trace.loading.load_in_process import load_trace

CLIPPING = ("aten::linalg_vector_norm", "aten::add", "aten::clamp", "aten::mul_")
METRIC = ("aten::select", "aten::eq", "aten::item")
LAYERS = ("aten::linear", "aten::layer_norm", "aten::relu")
OPTIMIZER = "Optimizer.step#SGD.step"
BACKWARD = "autograd::engine::evaluate_function: AddmmBackward0"


def loop(ops: Sequence[str], rounds: int, at: float = 100, gpu_us: float = 1) -> list[Entry]:
    """Each op takes 9 of 10 µs and launches a kernel of `gpu_us`."""
    names = list(ops) * rounds
    return [
        entry
        for k, name in enumerate(names)
        for entry in op_with_work(name, at + 10 * k, at + 10 * k + 8.5, gpu_us, ADD, cost=9)
    ]


def training_step(*more: Entry, steps: int = 2) -> list[Entry]:
    """Steps of 10 ms: a layer, its backward pass from 3 to 3.9 ms, and the optimizer from 9 ms on; `more` is in the
    first."""
    entries: list[Entry] = list(more)
    for number in range(steps):
        at = 10_000 * number
        entries += [step(number + 1, at, 9_999), *op_with_work("aten::linear", at + 10, at + 30, 20)]
        entries += [cpu(BACKWARD, at + 3_000, 900), *op_with_work("aten::mm", at + 3_010, at + 3_030, 500)]
        entries += [annotation(OPTIMIZER, at + 9_000, 500)]
        entries += op_with_work("aten::_foreach_add_", at + 9_010, at + 9_030, 20)
    return entries


CASES: Cases = {
    "op-loop": {
        FIRED: training_step(*loop(CLIPPING, 40, 4_000)),
        ABSENT: training_step(*loop(LAYERS, 40, 4_000)),
        CANNOT_TELL: GPU_ONLY,
    },
}


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State) -> None:
    check_case(CASES, name, state)


def test_every_pattern_has_a_trace_for_each_answer() -> None:
    assert not find_missing_answers(op_loop, CASES | test_moe.CASES)


def test_its_ops_rounds_place_and_idle_time_are_counted() -> None:
    finding = check_pattern(trace(*training_step(*loop(CLIPPING, 40, 4_000), steps=1)), "op-loop")
    assert finding.answer.seen == (
        "1.60 ms, 16 % of the steps: the same 4 ops (aten::linalg_vector_norm → aten::add → aten::clamp → aten::mul_) "
        "run 40 times in a row between backward and Optimizer.step; 1 such loop"
    )
    host, between = 160 * 9_000, 159 * 1_000  # Python between two ops is part of the loop
    assert finding.answer.at_stake == host + between + 500  # the last kernel ends half a µs after its op
    assert len(finding.answer.events) == 2 * 160  # the ops and their kernels
    assert finding.remedy.code.startswith("norm = torch.nn.utils.clip_grad_norm_(")


def test_a_loop_in_each_step_is_counted_per_step() -> None:
    both = [*loop(METRIC, 64, 100), *loop(METRIC, 64, 10_100)]
    finding = check_pattern(trace(*training_step(*both)), "op-loop")
    assert finding.answer.seen.startswith("1.92 ms a step, 19 % of the steps: the same 3 ops (")
    assert "run 64 times in a row before backward; 2 such loops" in finding.answer.seen
    assert "fetch them once" in finding.remedy.action


def test_a_loop_in_an_annotation_is_placed_there() -> None:
    finding = check_pattern(
        trace(*training_step(annotation("ema", 3_990, 2_000), *loop(("aten::lerp_",), 64, 4_000))), "op-loop"
    )
    assert "aten::lerp_ runs 64 times in a row in ema; " in finding.answer.seen


def check_loop(entries: Sequence[Entry]) -> bool:
    return check_pattern(trace(*training_step(*entries)), "op-loop").has_fired


def test_too_few_rounds_and_rounds_of_different_steps_are_no_loop() -> None:
    assert not check_loop(loop(CLIPPING, 15, 4_000))
    assert check_loop(loop(CLIPPING, 16, 4_000))
    benchmark = [entry for k in range(40) for entry in (step(k, 100 * k, 99), *loop(("aten::add",), 4, 100 * k + 1))]
    assert not check_pattern(trace(*benchmark), "op-loop").has_fired


def test_a_busy_gpu_is_not_kept_waiting() -> None:
    assert not check_loop([*loop(CLIPPING, 40, 4_000), kernel(ADD, 4_000, 1_500, stream=9)])


def test_long_ops_are_work_and_no_loop_of_small_ones() -> None:
    slow = [cpu("aten::sort", 4_000 + 210 * k, 200) for k in range(20)]
    assert not check_loop(slow)


def test_loops_that_have_a_name_of_their_own_do_not_count() -> None:
    assert not check_loop([annotation("Optimizer.step#Adam.step", 3_990, 2_000), *loop(CLIPPING, 40, 4_000)])
    loader = annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 3_990, 2_000)
    assert not check_loop([loader, *loop(CLIPPING, 40, 4_000)])
    assert not check_loop(loop(("c10d::allreduce_",), 100, 4_000))
    assert not check_loop(loop(("torch.distributed.ddp.reducer::copy_bucket_to_grad",), 100, 4_000))
    assert not check_loop(loop(("aten::to",), 100, 4_000))


def test_without_a_gpu_the_time_of_the_loop_is_at_stake() -> None:
    entries = [step(1, 0, 2_000), *(cpu(name, 10 * k, 9) for k, name in enumerate(METRIC * 30))]
    finding = check_pattern(trace(*entries), "op-loop")
    assert finding.answer.at_stake == (30 * 3 * 10 - 1) * 1000


def test_a_wait_in_each_round_asks_to_fetch_once() -> None:
    entries = [*loop(("aten::sum", "aten::to"), 60, 4_000)]
    waits = [runtime("cudaStreamSynchronize", 4_015 + 20 * k, 2, 90_000 + k) for k in range(60)]
    finding = check_pattern(trace(*training_step(*entries, *waits)), "op-loop")
    assert "fetch them once" in finding.remedy.action


def test_gradients_filled_with_zeros_are_to_be_dropped() -> None:
    finding = check_pattern(trace(*training_step(*loop(("aten::zero_",), 80, 4_000))), "op-loop")
    assert "zero_grad(set_to_none=True)" in finding.remedy.code


def test_the_verdict_names_it_where_it_explains_most() -> None:
    entries = [step(1, 0, 5_000), cpu(BACKWARD, 1, 90), *loop(CLIPPING, 100), annotation(OPTIMIZER, 4_500, 100)]
    checker = Checker(trace(*entries))
    verdict = checker.decide_verdict(findings=checker.check())
    assert verdict.first.startswith("gradients are clipped in a loop over the parameters (")
    assert "100 times in a row between backward and Optimizer.step" in verdict.why


@pytest.mark.parametrize(
    ("recording", "seen"),
    [
        ("metric_loop", "aten::select → aten::select → aten::eq → aten::sum → aten::item) run 64 times in a row"),
        ("clipping_loop", "aten::mul → … → aten::mul_) run 240 times in a row between backward and Optimizer.step"),
    ],
)
def test_recorded_loops(recording: str, seen: str) -> None:
    made = load_trace(str(FIXTURES / "recorded_patterns" / f"{recording}.pt.trace.json.gz"), cache=False)
    finding = check_pattern(made, "op-loop")
    assert seen in finding.answer.seen
    assert "such loop" in finding.answer.seen
    assert finding.is_significant


RECURRENCE = ("aten::slice", "aten::cat", "aten::linear", "aten::tanh", "aten::linear")


@pytest.mark.parametrize(("rounds", "state"), [(40, State.ABSENT), (110, State.FIRED)])
def test_layers_count_in_a_long_loop_only(rounds: int, state: State) -> None:
    """Forty equal layers are a model; a hundred rounds of a recurrence are a loop over time, written in Python."""
    finding = check_pattern(trace(step(1, 0, 9_999), *loop(RECURRENCE, rounds)), "op-loop")
    assert finding.state == state
    if state == State.FIRED:
        assert "aten::tanh → aten::linear) run 110 times in a row" in finding.answer.seen
        assert finding.remedy.code == "y = head(torch.stack(states, dim=1))  # once, after the loop"


def test_a_loop_beside_one_with_layers_is_found_as_well() -> None:
    entries = [step(1, 0, 9_999), *loop(RECURRENCE, 110), *loop(CLIPPING, 60, 6_000)]
    assert "with 1 other such loop" in check_pattern(trace(*entries), "op-loop").answer.seen


def find(text: str, min_rounds: int = 3, max_period: int = 4) -> list[tuple[int, str, int]]:
    """Find repeats in a text: (start, group, rounds)."""
    found = find_tandem_repeats(np.array([ord(letter) for letter in text], dtype=np.int64), min_rounds, max_period)
    return [
        (start, text[start : start + period], rounds)
        for start, period, rounds in zip(
            found.start.tolist(), found.period.tolist(), found.rounds.tolist(), strict=True
        )
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("a", []),
        ("abcabd", []),
        ("xabababy", [(1, "ab", 3)]),
        ("ababa", []),  # two whole rounds
        ("abababa", [(0, "ab", 3)]),  # the last round is not whole
        ("aaaaaa", [(0, "a", 6)]),  # not three times "aa"
        ("aabaabaab", [(0, "aab", 3)]),
        ("aaabbbccc", [(0, "a", 3), (3, "b", 3), (6, "c", 3)]),
        ("abcdeabcdeabcde", []),  # longer than the longest period
        ("xyxyxyxyyyyy", [(0, "xy", 4), (8, "y", 4)]),  # the shorter one keeps what is left of it
        ("aaabaaabaaab", [(0, "aaab", 3)]),  # the larger one, not "aaa" three times
    ],
)
def test_repeats(text: str, expected: list[tuple[int, str, int]]) -> None:
    assert find(text) == expected


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(st.text("ab", max_size=24), st.integers(2, 4))
def test_each_repeat_is_one_and_each_long_run_is_covered(text: str, min_rounds: int) -> None:
    found = find(text, min_rounds)
    covered = [False] * len(text)
    for start, group, rounds in found:
        stop = start + len(group) * rounds
        assert text[start:stop] == group * rounds
        assert rounds >= min_rounds
        assert not any(covered[start:stop])
        covered[start:stop] = [True] * (stop - start)
    for start in range(len(text)):
        for period in range(1, 5):
            stop = start + period * min_rounds
            group = text[start : start + period]
            if stop <= len(text) and text[start:stop] == group * min_rounds:
                assert any(covered[start:stop])


@pytest.mark.parametrize(
    ("names", "rounds", "headline"),
    [
        (["aten::to", "aten::linear", "aten::mul"], 110, "weights are cast"),
        (["aten::embedding"], 20, "embedding tables"),
        (["aten::matmul"], 20, "small matmuls"),
        (["aten::scaled_dot_product_attention"], 32, "attention is called once per head or sequence"),
    ],
)
def test_a_loop_of_layers_is_named_by_what_repeats(names: list[str], rounds: int, headline: str) -> None:
    finding = check_pattern(trace(*training_step(*loop(names, rounds, 4_000))), "op-loop")
    assert headline in finding.answer.headline


@pytest.mark.parametrize(("before", "after"), [("aten::unbind", "aten::stack"), ("aten::mul", "aten::sum")])
def test_what_takes_the_items_apart_and_puts_them_together_is_of_the_loop(before: str, after: str) -> None:
    """Ops of 400 µs around a loop: those that only serve it are its evidence, and cost with it."""
    names = ["aten::embedding"]
    around = [cpu(before, 3_590, 400), cpu(after, 4_210, 400)]
    alone = check_pattern(trace(*training_step(*loop(names, 20, 4_000))), "op-loop").answer
    both = check_pattern(trace(*training_step(*around, *loop(names, 20, 4_000))), "op-loop").answer
    served = before == "aten::unbind"
    assert len(both.events) - len(alone.events) == 2 * served
    assert both.at_stake - alone.at_stake == pytest.approx(800_000 * served, abs=1_000)


def test_casts_alone_are_gone_of_a_loop_of_layers() -> None:
    finding = check_pattern(
        trace(*training_step(*loop(["aten::to", "aten::linear", "aten::mul"], 110, 4_000))), "op-loop"
    )
    assert finding.answer.removed is not None
    assert len(finding.answer.removed) == 2 * 110  # the casts and their kernels


def test_calls_inside_an_op_count_for_its_mean() -> None:
    """An op of 150 µs is a call where it makes two others, as autocast does, and work where it makes none."""
    entries = [
        entry
        for k in range(20)
        for entry in op_with_work("aten::matmul", 4_000 + 160 * k, 4_000 + 160 * k + 140, 1, ADD, cost=150)
    ]
    casts = [cpu("aten::to", 4_010 + 160 * k + 50 * half, 40) for k in range(20) for half in (0, 1)]
    assert check_pattern(trace(*training_step(*entries)), "op-loop").state is ABSENT
    assert check_pattern(trace(*training_step(*entries, *casts)), "op-loop").state is FIRED
