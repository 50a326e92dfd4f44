"""Check the first sentence about recordings with one known fault each, and about their mended twins.

The recordings lie in `tests/fixtures/faults` with their origin; `tools.fault_programs` makes them. What the sentence
must mention was written with the programs, before they ran.
"""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.helpers.expectation_checks import assert_consistent, choose_scopes
from tests.helpers.long_run import keep_some, scale_examples
from tests.helpers.merged_ranks import load_merged_ranks
from tests.helpers.paths import FIXTURES
from tools.fault_programs.registry import FAULTS
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.analysis.patterns.verdict.rank_checks import MultiRankChecker
from torchprof_tui.trace.loading.load_in_process import load_trace


@cache
def _read_first_sentence(name: str, variant: str) -> str:
    """Return the first sentence about a recording in lower case; of several ranks, all of theirs."""
    paths = sorted((FIXTURES / "faults").glob(f"{name}.{variant}*.json.gz"))
    assert paths, f"no recording of {name} {variant}"
    if len(paths) > 1:
        ranks = MultiRankChecker(load_merged_ranks(paths))
        return " / ".join(verdict.first for verdict in ranks.check(ranks.default_scope)[1]).lower()
    checker = Checker(load_trace(str(paths[0]), cache=False))
    return checker.decide_verdict(findings=checker.check()).first.lower()


WITH_SENTENCE = [name for name, fault in FAULTS.items() if fault.sentence]
WITH_PATTERN = [name for name, fault in FAULTS.items() if fault.pattern]


@pytest.mark.parametrize("name", keep_some(WITH_SENTENCE, 4))
def test_the_first_sentence_names_the_fault(name: str) -> None:
    sentence = _read_first_sentence(name, "faulty")
    assert any(re.search(mention, sentence) for mention in FAULTS[name].sentence), sentence


@pytest.mark.parametrize("name", keep_some(WITH_SENTENCE, 2))
def test_the_first_sentence_about_the_mended_twin_does_not(name: str) -> None:
    sentence = _read_first_sentence(name, "mended")
    assert not any(re.search(mention, sentence) for mention in FAULTS[name].sentence), sentence


@pytest.mark.parametrize("name", keep_some(WITH_PATTERN, 1))
def test_the_pattern_of_a_fault_fires_for_it_alone(name: str) -> None:
    def check(variant: str) -> State:
        path = FIXTURES / "faults" / f"{name}.{variant}.json.gz"
        return Checker(load_trace(str(path), cache=False)).check(ids=[FAULTS[name].pattern])[0].state

    assert check("faulty") is State.FIRED
    assert check("mended") is not State.FIRED


@pytest.mark.long
@pytest.mark.parametrize("name", keep_some(WITH_PATTERN, 1))
def test_the_answers_are_consistent_in_every_scope(name: str) -> None:
    checker = Checker(load_trace(str(FIXTURES / "faults" / f"{name}.faulty.json.gz"), cache=False))
    for scope in choose_scopes(checker, name, min(scale_examples(0.4), 16)):
        assert_consistent(checker, scope)
