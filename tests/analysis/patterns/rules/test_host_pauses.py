"""Test the pattern of pauses of the program that no op explains."""

from __future__ import annotations

import pytest

from tests.helpers.pattern_cases import ABSENT, CANNOT_TELL, FIRED, Cases, case_params, check_case
from tests.helpers.pattern_traces import GPU_ONLY, check_pattern, op_with_work
from tests.helpers.trace_builder import Entry, annotation, cpu, python, step, trace
from torchprof_tui.analysis.patterns.engine.pattern import State


def steps_with_pauses(*pauses: tuple[int, float], more: tuple[Entry, ...] = ()) -> list[Entry]:
    """Steps of ten ops of 100 µs, with a pause before the op of that index in each: (index, µs)."""
    entries: list[Entry] = list(more)
    at = 0.0
    for number, (place, pause) in enumerate(pauses):
        start = at
        for index in range(10):
            at += pause if index == place else 0
            entries += op_with_work("aten::add", at, at + 90, 5, cost=95)
            at += 100
        entries.append(step(number, start, at - start))
    return entries


COLLECTION = "<built-in function collect>"
IRREGULAR = steps_with_pauses((3, 0), (5, 9000), (3, 0), (3, 0), (7, 8000))

CASES: Cases = {
    "gc-pause": {
        FIRED: steps_with_pauses((3, 9000), (3, 0), (3, 0), more=(python(COLLECTION, 310, 8500),)),
        ABSENT: steps_with_pauses((3, 0), (3, 0), (3, 0)),
        CANNOT_TELL: IRREGULAR,
    },
}


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State) -> None:
    check_case(CASES, name, state)


def test_a_named_collection_has_its_time() -> None:
    finding = check_pattern(trace(*CASES["gc-pause"][FIRED]), "gc-pause")
    assert finding.answer.seen == (
        "1 collection, 8.50 ms together, the longest 8.50 ms; the GPU was idle for 8.50 ms of it"
    )
    assert finding.answer.at_stake == 8_500_000
    assert "gc.collect()" in finding.remedy.action  # the program calls it


def test_an_automatic_collection_is_frozen_away() -> None:
    entries = steps_with_pauses((3, 9000), (3, 0), (3, 0), more=(annotation("Python GC", 310, 8500),))
    assert check_pattern(trace(*entries), "gc-pause").remedy.code.startswith("gc.collect(); gc.freeze()")


def test_pauses_at_other_places_look_like_it() -> None:
    reason = check_pattern(trace(*IRREGULAR), "gc-pause").answer.reason
    assert reason.startswith("2 pauses of up to 9.01 ms without any op, not at the same place in each step: looks like")


@pytest.mark.parametrize(
    "entries",
    [
        steps_with_pauses((3, 9000), (3, 9000), (3, 9000)),  # code of the program
        steps_with_pauses((3, 0), (5, 2000), (3, 0)),  # the scheduler
        steps_with_pauses((3, 0), (3, 9000), (3, 0), more=(cpu("aten::cpu_op", 1310, 8900),)),
        steps_with_pauses(
            (3, 0), (3, 9000), (3, 0), more=(annotation("enumerate(DataLoader)#_Iter.__next__", 1310, 8900),)
        ),
        steps_with_pauses((3, 0), (3, 0), (3, 0), more=(python(COLLECTION, 310, 300),)),  # young objects
    ],
    ids=["each step", "short", "an op", "the loader", "short collection"],
)
def test_other_pauses_are_no_collections(entries: list[Entry]) -> None:
    assert check_pattern(trace(*entries), "gc-pause").state is ABSENT


def test_without_ops_it_cannot_be_told() -> None:
    assert check_pattern(trace(*GPU_ONLY), "gc-pause").state is CANNOT_TELL


def test_stacks_are_not_asked_for_where_they_were_recorded() -> None:
    reason = check_pattern(trace(*IRREGULAR), "gc-pause").answer.reason
    assert "record with stacks, or the collector's runs (experimental_config: record_python_gc_info=True)" in reason
    with_stacks = check_pattern(trace(python("run.py(3): main", 0, 60_000), *IRREGULAR), "gc-pause").answer.reason
    assert "with stacks" not in with_stacks
    assert with_stacks.endswith("record the collector's runs (experimental_config: record_python_gc_info=True)")


def test_a_pause_in_calls_of_its_own_is_no_collection() -> None:
    calls = python("<built-in function sleep>", 1510, 8600), python("run.py(9): save", 13_710, 7600)
    finding = check_pattern(trace(python("run.py(3): main", 0, 60_000), *calls, *IRREGULAR), "gc-pause")
    assert finding.answer.seen == "2 pauses of up to 9.01 ms, in functions that the stacks name"
    assert finding.state is ABSENT
