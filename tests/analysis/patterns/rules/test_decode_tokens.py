"""Test the patterns of what a decode step does for each token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.analysis.patterns.rules import test_serving_schedule
from tests.helpers.generation_traces import cat_steps, item_steps
from tests.helpers.pattern_cases import ABSENT, CANNOT_TELL, FIRED, Cases, case_params, check_case, find_missing_answers
from tests.helpers.pattern_traces import GPU_ONLY, check_pattern, healthy
from tests.helpers.shape_traces import load_entries
from tests.helpers.trace_builder import cpu, trace
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.analysis.patterns.rules import decode_tokens

CASES: Cases = {
    "kv-cache-cat": {
        FIRED: cat_steps(grids=(16, 17, 17, 18)),
        ABSENT: item_steps(),
        CANNOT_TELL: cat_steps(),
    },
    "token-sync": {FIRED: item_steps(), ABSENT: item_steps(tokens=9, every=4), CANNOT_TELL: GPU_ONLY},
}


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State) -> None:
    check_case(CASES, name, state)


def test_every_pattern_has_a_trace_for_each_answer() -> None:
    assert not find_missing_answers(decode_tokens, CASES | test_serving_schedule.CASES)


@pytest.mark.parametrize("name", CASES)
def test_without_a_language_model_nothing_is_found(name: str) -> None:
    assert check_pattern(trace(*healthy()), name).state is ABSENT


def test_a_cache_is_described_by_its_growth_and_its_copies(tmp_path: Path) -> None:
    finding = check_pattern(load_entries(tmp_path, cat_steps(tokens=5)), "kv-cache-cat")
    assert finding.answer.seen.startswith(
        "2 calls of aten::cat in each of 5 decode steps append to a cache that grows from 8×4×100×64 to 8×4×104×64: "
        "50.0 µs on the GPU"
    )
    assert "in place" in finding.remedy.action


def test_a_cache_of_two_texts_has_grown_in_each(tmp_path: Path) -> None:
    entries = [*cat_steps(tokens=3), *cat_steps(tokens=3, at=5000)]
    assert check_pattern(load_entries(tmp_path, entries), "kv-cache-cat").state is FIRED


@pytest.mark.parametrize("how", [{"growing": False}, {"dims": 2}], ids=["the same length", "ids and masks"])
def test_what_is_no_cache(tmp_path: Path, how: dict[str, Any]) -> None:
    """Rotary positions concatenate halves of one length; ids and masks that grow have two dimensions, a few bytes."""
    answer = check_pattern(load_entries(tmp_path, cat_steps(**how)), "kv-cache-cat").answer
    assert answer.seen == "2 calls of aten::cat a step, none of which grows"


def test_grids_say_it_without_shapes() -> None:
    answer = check_pattern(trace(*cat_steps(grids=(16, 17, 17, 18))), "kv-cache-cat").answer
    assert "append to a cache that grows from 32 to 36 blocks" in answer.seen


def test_the_growth_is_that_of_one_text() -> None:
    """The first step is longer: a prefill of another text is in it."""
    answer = check_pattern(trace(*cat_steps(tokens=6, grids=(264, 16, 17, 18, 19, 20))), "kv-cache-cat").answer
    assert "grows from 32 to 40 blocks" in answer.seen


@pytest.mark.parametrize("grids", [(16, 16, 16, 16), (16, 18, 16, 17)])
def test_grids_that_do_not_grow_prove_nothing(grids: tuple[int, ...]) -> None:
    """The grid of a large tensor is limited."""
    assert check_pattern(trace(*cat_steps(grids=grids)), "kv-cache-cat").state is CANNOT_TELL


def test_attention_that_is_planned_for_each_length_counts_as_well(tmp_path: Path) -> None:
    """The first layer of each step waits 2.8 ms for the choice of a kernel."""
    entries = cat_steps(period=8000, duration=7000)
    for token in range(4):
        at = 8000.0 * token + 400
        entries += [cpu("aten::scaled_dot_product_attention", at, 2800)]
        entries += [cpu("aten::_cudnn_attention_forward", at + 1, 2790)]
        entries += [cpu("aten::scaled_dot_product_attention", at + 3000, 10)]
    answer = check_pattern(load_entries(tmp_path, entries), "kv-cache-cat").answer
    assert "attention is planned anew for each length, 2.80 ms a step (aten::_cudnn_attention_forward)" in answer.seen
    assert answer.at_stake > 3 * 2_700_000  # before the first kernel nothing is known


def test_waits_are_counted_per_token() -> None:
    finding = check_pattern(trace(*item_steps(reads=3)), "token-sync")
    assert finding.answer.seen.startswith("3 waits a token, most in aten::item; the GPU is idle for ")
    assert finding.remedy.action.startswith("item() reads the sequences one by one")
    assert finding.answer.at_stake > 0


@pytest.mark.parametrize(
    ("op", "words"), [("aten::nonzero", "torch.where"), ("aten::to", "pinned"), ("aten::item", "done.all()")]
)
def test_the_remedy_fits_the_op_that_waits(op: str, words: str) -> None:
    remedy = check_pattern(trace(*item_steps(op=op)), "token-sync").remedy
    assert words in remedy.action + remedy.code


def test_one_read_in_many_steps_is_what_to_do() -> None:
    answer = check_pattern(trace(*item_steps(tokens=9, every=4)), "token-sync").answer
    assert answer.seen == "3 waits in 9 decode steps"
