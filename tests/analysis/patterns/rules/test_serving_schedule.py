"""Test the patterns of how a serving engine orders its steps."""

from __future__ import annotations

import pytest

from tests.helpers.generation_traces import item_steps, serving_step, steps_of_batches
from tests.helpers.pattern_cases import ABSENT, CANNOT_TELL, FIRED, Cases, case_params, check_case
from tests.helpers.pattern_traces import GPU_ONLY, check_pattern, healthy
from tests.helpers.trace_builder import Entry, trace
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.analysis.patterns.engine.undecidable_reasons import SERVING_STEPS_ONLY


def with_prompts(*kinds: str, prompt_us: float = 2000) -> list[Entry]:
    """Steps of these kinds: d for a decode step of 8 sequences, m for a mixed one, p for a prefill of 2 prompts."""
    names = {
        "d": "execute_context_0(0)_generation_8(8)",
        "m": "execute_context_2(4096)_generation_8(8)",
        "p": "execute_context_2(4096)_generation_0(0)",
    }
    entries: list[Entry] = []
    at = 0.0
    for kind in kinds:
        duration = 200 if kind == "d" else prompt_us
        entries += serving_step(names[kind], at, duration=duration)
        at += duration + 10
    return entries


CASES: Cases = {
    "mixed-batch": {
        FIRED: with_prompts(*"dddmd"),
        ABSENT: with_prompts(*"pdddd"),
        CANNOT_TELL: with_prompts(*"mmmm"),
    },
    "scheduler-bound": {
        FIRED: steps_of_batches(8, 8, 8, 8, 8, period=600),
        ABSENT: steps_of_batches(8, 8, 8, 8, 8, period=210),
        CANNOT_TELL: steps_of_batches(8, 8),
    },
}


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State) -> None:
    check_case(CASES, name, state)


@pytest.mark.parametrize("name", CASES)
def test_without_a_language_model_nothing_is_found(name: str) -> None:
    assert check_pattern(trace(*healthy()), name).state is ABSENT
    assert check_pattern(trace(*GPU_ONLY), name).state is CANNOT_TELL


def test_the_delay_is_what_a_mixed_step_takes_longer() -> None:
    finding = check_pattern(trace(*with_prompts(*"dddmd")), "mixed-batch")
    assert finding.answer.seen == (
        "1 step with prompts while sequences wait, 2.00 ms in the median, decode steps 200.0 µs; up to 4,096 tokens of "
        "prompts in a step"
    )
    assert finding.answer.at_stake == 1_800_000
    assert "--max-num-batched-tokens" in finding.remedy.code


def test_small_pieces_of_prompts_hold_nobody_up() -> None:
    assert check_pattern(trace(*with_prompts(*"dddmd", prompt_us=300)), "mixed-batch").state is ABSENT


def test_a_prefill_between_tokens_holds_up_the_sequences_that_run() -> None:
    """After it 8 sequences run, of which it read 2: six waited."""
    assert check_pattern(trace(*with_prompts(*"dddpd")), "mixed-batch").state is FIRED


def test_a_prefill_of_all_sequences_that_run_then_holds_up_nobody() -> None:
    """Four prefills of two prompts each, and then 8 sequences: the texts before have ended."""
    assert check_pattern(trace(*with_prompts(*"dddppppd")), "mixed-batch").state is ABSENT


def test_steps_without_an_engine_do_not_say_who_waits() -> None:
    entries = [entry for k in range(4) for entry in serving_step("decode", 400.0 * k)]
    assert check_pattern(trace(*entries), "mixed-batch").state is CANNOT_TELL
    assert check_pattern(trace(*entries), "scheduler-bound").state is CANNOT_TELL


def test_pauses_are_compared_with_the_work_of_a_step() -> None:
    finding = check_pattern(trace(*steps_of_batches(8, 8, 8, 8, 8, period=600)), "scheduler-bound")
    assert finding.answer.seen.startswith(
        "400.0 µs between two steps in which no GPU works, 120.0 µs of GPU work a step, in the median of 4 steps"
    )
    assert finding.answer.at_stake == 1_600_000


def test_reading_values_is_no_scheduling() -> None:
    """Eight reads fill the time between two steps."""
    entries = item_steps(reads=8, wait=30)
    assert check_pattern(trace(*entries), "scheduler-bound").state is ABSENT
    assert check_pattern(trace(*entries), "token-sync").state is FIRED


@pytest.mark.parametrize("name", ["first-step-wide", "not-warmed-up", "sync-in-step", "one-off-gap"])
def test_steps_of_an_engine_are_not_called_missing(name: str) -> None:
    answer = check_pattern(trace(*with_prompts(*"dd")), name).answer
    assert answer.state is CANNOT_TELL
    assert answer.reason == SERVING_STEPS_ONLY
