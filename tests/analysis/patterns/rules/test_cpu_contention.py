"""Test the pattern of ops that wait for CPU cores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.pattern_cases import ABSENT, CANNOT_TELL, FIRED, Cases, case_params, check_case
from tests.helpers.pattern_traces import check_pattern, healthy
from tests.helpers.shape_traces import load_entries
from tests.helpers.trace_builder import Entry, annotation, cpu, step, trace
from torchprof_tui.analysis.patterns.engine.check_scope import range_scope
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.engine.pattern import State

CALLS = 40


def loop(duration: Callable[[int, int], float], *, with_steps: bool = True) -> list[Entry]:
    """Four steps of 40 calls of one op; `duration`: µs of call k in step n."""
    entries: list[Entry] = []
    at = 0.0
    for number in range(4):
        start = at
        for k in range(CALLS):
            long = duration(number, k)
            entries.append(cpu("aten::mm", at, long))
            at += long + 2
        if with_steps:
            entries.append(step(number, start, at - start))
        at += 5
    return entries


def is_waiting(number: int, k: int) -> bool:
    """Whether a call waits: four in each step, at other places each time."""
    return k % 10 == (3 * number) % 10


def waiting(number: int, k: int) -> float:
    return 1000 if is_waiting(number, k) else 10


CASES: Cases = {
    "cpu-contention": {
        FIRED: loop(waiting),
        ABSENT: loop(lambda number, k: 10 + k % 3),
        CANNOT_TELL: [annotation("build", 0, 100)],
    },
}


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State) -> None:
    check_case(CASES, name, state)


def test_the_numbers_come_first() -> None:
    built = trace(*loop(waiting))
    finding = check_pattern(built, "cpu-contention")
    assert finding.answer.seen == (
        "aten::mm: median 10.0 µs, but 1.00 ms or more in 5 % of 160 calls; calls over ten times their op's "
        "median take 90 % of the steps"
    )
    assert finding.answer.at_stake == 16 * 900_000  # of each, what is over ten times 10 µs
    assert len(finding.answer.events) == 16
    assert finding.is_significant
    assert "set_num_threads" in finding.remedy.code
    verdict = Checker(built).decide_verdict(findings=[finding])
    assert verdict.first.startswith(
        "CPU-only trace: ops wait for CPU cores for 81 % of the CPU's time: use fewer threads"
    )


@pytest.mark.parametrize(
    ("duration", "why"),
    [
        (lambda number, k: waiting(number, k) if number == 0 else 10, "only the first step: a warm-up"),
        (lambda number, k: 1000 if k % 10 == 3 else 10, "the same calls in every step have more to do"),
        (lambda number, k: 9000 if number and k == 7 * number else 10, "three interruptions are rare"),
        (lambda number, k: 90 if is_waiting(number, k) else 10, "nine times as long: caches"),
    ],
)
def test_it_is_absent_where_there_is_another_reason(duration: Callable[[int, int], float], why: str) -> None:
    assert check_pattern(trace(*loop(duration)), "cpu-contention").state is State.ABSENT, why


def test_without_steps_and_shapes_it_is_undetermined() -> None:
    finding = check_pattern(trace(*loop(waiting, with_steps=False)), "cpu-contention")
    assert finding.state is State.CANNOT_TELL
    assert "record_shapes=True" in finding.answer.reason


@pytest.mark.parametrize(("slow_rows", "state"), [(64, State.FIRED), (8192, State.ABSENT)])
def test_recorded_shapes_tell_waiting_from_larger_inputs(slow_rows: int, state: State, tmp_path: Path) -> None:
    entries = loop(waiting, with_steps=False)
    for entry in entries:
        entry["args"] = {"Input Dims": [[64 if entry["dur"] < 100 else slow_rows, 64], [64, 64]]}
    built = load_entries(tmp_path, entries, None)
    assert check_pattern(built, "cpu-contention").state is state


def test_with_a_gpu_it_is_absent() -> None:
    assert check_pattern(trace(*healthy()), "cpu-contention").state is State.ABSENT


def test_a_scope_counts_its_own_calls() -> None:
    built = trace(*loop(waiting))
    step_start = int(built.start[built.steps[2].event])
    finding = check_pattern(built, "cpu-contention", range_scope(step_start, step_start + 1_000_000))
    assert finding.has_fired
    assert finding.answer.at_stake <= 1_000_000
