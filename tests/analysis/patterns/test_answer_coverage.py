"""Check that every pattern is tested: each rule module, and each answer that real traces can reach."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.expectations import SAMPLES, SHARED
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS
from torchprof_tui.analysis.patterns.engine.pattern import State


def test_every_rule_module_has_its_tests() -> None:
    """Each of those asserts that every pattern of its module has a trace for each answer."""
    modules = {pattern.check.__module__.rpartition(".")[2] for pattern in PATTERNS.values()}
    tests = {path.stem.removeprefix("test_") for path in Path(__file__).with_name("rules").glob("test_*.py")}
    assert modules <= tests  # what the rules share has its tests beside theirs


def test_real_traces_reach_the_answers_that_they_can() -> None:
    """By the expectations of shared traces and samples. Answers that none reaches are listed with the reason."""
    unreached = {
        "alloc-in-step": {State.FIRED},  # the caching allocator had all memory that it needed after the first step
        "communication": {State.ABSENT},  # every run of several ranks communicates
        "straggler": {State.FIRED, State.ABSENT},  # each file is one rank
        "kernel-variance": {State.FIRED},  # kernels that vary here do so by their inputs, or nothing tells
        "trailing-sync": {State.ABSENT},  # the profiler ends every window with one
        "canonical-chain": {State.ABSENT},  # where ops were recorded, some launched work
        "tiny-kernels": {State.FIRED},  # their optimizers are foreach already, and no other op launches dozens
    }
    decided = {State.FIRED, State.ABSENT}
    expectations = (*SHARED.values(), *SAMPLES.values())
    mentioned = [name for name in PATTERNS if any(name in expectation.states for expectation in expectations)]
    reached = {name: {expectation.states[name] for expectation in expectations} for name in mentioned}
    assert {name: decided - states for name, states in reached.items() if not states >= decided} == unreached
