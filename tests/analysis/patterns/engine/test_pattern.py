"""Where a finding's evidence leads to: gaps and events, the costliest first."""

from __future__ import annotations

import numpy as np

from tests.helpers.pattern_traces import GEMM, check_pattern, op_with_work
from tests.helpers.trace_builder import Entry, cpu, python, runtime, step, trace
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS
from torchprof_tui.analysis.patterns.engine.pattern import (
    MAX_HOST_GAPS,
    Answer,
    EvidencePlaces,
    Finding,
    find_gap_places,
    merge_places,
    sort_places,
)
from torchprof_tui.analysis.time.intervals import Intervals


def columns(*values: list[int]) -> list[np.ndarray]:
    return [np.array(value, dtype=np.int64) for value in values]


def build_places(*values: list[int]) -> EvidencePlaces:
    start, end, event, cost = columns(*values)
    return sort_places(start, end, event, cost, True)


def uneven_gaps(*more: Entry) -> list[Entry]:
    """Three steps whose ops are 100, 600 and 300 µs apart."""
    entries, at = [*more], 0
    for number, pause in enumerate((100, 600, 300)):
        entries += [
            step(number, at, 100 + pause),
            cpu("aten::mm", at, 50),
            cpu("aten::add", at + 50 + pause, 50),
        ]
        at += 100 + pause
    return entries


def test_host_code_leads_to_the_gaps_by_length() -> None:
    built = trace(*uneven_gaps())
    places = check_pattern(built, "host-code").find_places(built)
    assert places.are_gaps
    assert (places.end - places.start).tolist() == [600_000, 300_000, 100_000]
    assert places.start.tolist() == [250_000, 950_000, 50_000]
    assert [built.names[built.name[event]] for event in places.event] == ["aten::add"] * 3
    assert built.start[places.event].tolist() == places.end.tolist()


def test_a_frame_that_begins_in_the_gap_is_selected() -> None:
    built = trace(*uneven_gaps(python("run.py(1): main", 0, 1300), python("run.py(4): log", 260, 580)))
    finding = check_pattern(built, "host-code")
    places = finding.find_places(built)
    assert "run.py(4): log" in finding.answer.seen
    names = [built.names[built.name[event]] for event in places.event]
    assert names == ["run.py(4): log", "aten::add", "aten::add"]


def test_an_event_inside_comes_before_the_one_beside() -> None:
    built = trace(cpu("a", 0, 10), cpu("b", 100, 10), python("f", 20, 30), cpu("other", 15, 5, thread=9))
    by_name = {built.names[built.name[row]]: row for row in range(len(built))}
    gaps = Intervals(*columns([10_000, 110_000], [100_000, 150_000]))
    inside, beside = columns([by_name["f"], by_name["other"]], [by_name["a"], by_name["b"]])
    places = find_gap_places(built, gaps, inside, beside, int(built.lane[by_name["a"]]))
    assert places.event.tolist() == [by_name["f"], by_name["b"]]  # nothing follows the second gap
    many = Intervals(np.arange(0, 1000, 10), np.arange(0, 1000, 10) + 5)
    assert len(find_gap_places(built, many, inside[:0], beside[:0], 0)) == MAX_HOST_GAPS


def test_idle_gaps_are_as_many_as_it_says() -> None:
    """The longest first; also where a gap has no work after it."""
    entries: list[Entry] = []
    for number, pause in enumerate((30, 50, 40, 20)):
        at = 200 * number
        entries += [step(number, at, 190), *op_with_work("aten::mm", at, at + 10, 60, GEMM)]
        entries += op_with_work("aten::mm", at + 70 + pause, at + 70 + pause + 8, 60, GEMM)
    built = trace(*entries)
    finding = check_pattern(built, "idle-gap")
    places = finding.find_places(built)
    assert places.are_gaps
    assert finding.answer.seen.startswith(f"{len(places)} gaps of ")
    cost = places.cost.tolist()
    assert cost == sorted(cost, reverse=True)
    assert built.start[places.event].tolist() == places.end.tolist()


def test_the_wait_with_the_longest_idle_time_is_first() -> None:
    """The second wait is short, but the GPU has nothing to do for long after it."""
    entries = [
        step(1, 0, 900),
        *op_with_work("aten::mm", 0, 10, 90, GEMM),
        runtime("cudaStreamSynchronize", 60, 41, 50),
        *op_with_work("aten::mm", 102, 106, 90, GEMM),
        runtime("cudaStreamSynchronize", 120, 200, 51),
        *op_with_work("aten::mm", 500, 520, 300, GEMM),
    ]
    built = trace(*entries)
    finding = check_pattern(built, "sync-in-step")
    places = finding.find_places(built)
    assert built.start[finding.answer.events].tolist() == [60_000, 120_000]
    assert built.start[places.event].tolist() == [120_000, 60_000]
    assert not places.are_gaps
    assert places.cost.sum() == finding.answer.at_stake


def test_of_a_problem_the_longest_event_is_first_of_a_notice_the_earliest() -> None:
    calls = [cpu("aten::add", 10 * k, 8 if k == 300 else 4) for k in range(400)]
    built = trace(step(0, 0, 4000), *calls)
    finding = check_pattern(built, "call-count")
    assert finding.is_problem
    assert built.start[finding.find_places(built).event[:2]].tolist() == [3_000_000, 0]
    views = [cpu("aten::view", 10 * k, 8 if k == 30 else 2) for k in range(60)]
    built = trace(step(0, 0, 600), *views)
    notice = check_pattern(built, "metadata-op")
    assert notice.has_fired
    assert notice.find_places(built).event.tolist() == notice.answer.events.tolist()


def shift_places(places: EvidencePlaces, offset: int) -> EvidencePlaces:
    """Number the events of places as those of a finding in a merged trace."""
    answer = Answer.fired("", np.zeros(1, np.int64), places=places)
    shifted = Finding(PATTERNS["idle-gap"], answer, 0.0).with_event_offset(offset).answer.places
    assert shifted is not None
    return shifted


def test_places_of_several_ranks_are_merged_by_cost() -> None:
    first = build_places([0, 100], [10, 130], [1, -1], [10, 30])
    second = shift_places(build_places([50], [70], [0], [20]), 5)
    merged = merge_places([first, second])
    assert merged.event.tolist() == [-1, 5, 1]
    assert shift_places(first, 7).event.tolist() == [-1, 8]
    assert merged.are_gaps
