"""Match collectives across ranks: against dictionaries over the raw JSON, and on generated ranks that lack some."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from random import Random
from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers import trace_builder
from tests.helpers.collective_reference import joined
from tests.helpers.long_run import keep_some, scale_examples
from tests.helpers.merged_ranks import SHARED_RANK_SETS, load_merged_ranks, load_shared_ranks
from tests.helpers.rank_traces import BASE, Collective, Run, late_rank
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.ranks import collective_matching
from torchprof_tui.trace.ranks.collective_matching import (
    _assign_segments,
    _match_with_gap,
    _match_with_offset,
    load_collectives,
    match_collectives,
    match_sequences,
    read_collectives,
    store_collectives,
)


def matched_times(trace: Trace) -> dict[tuple[str, int, int], dict[int, tuple[int, int]]]:
    """The matched collectives in the form of `joined`, with times on the common clock."""
    assert trace.merged_ranks is not None
    matched = trace.merged_ranks.matched_collectives
    found: dict[tuple[str, int, int], dict[int, tuple[int, int]]] = {}
    many: dict[tuple[str, int], int] = defaultdict(int)
    for row in range(len(matched)):
        group, step = matched.texts[matched.group[row]].partition(" ")[0], int(matched.step[row])
        times = {
            rank.number: (int(rank.trace.start[event]), int(rank.trace.start[event] + rank.trace.duration[event]))
            for rank, event in zip(trace.merged_ranks.all, matched.events[row].tolist(), strict=True)
            if event >= 0
        }
        found[group, step, many[group, step]] = times
        many[group, step] += 1
    return found


@pytest.mark.parametrize("name", keep_some(reversed(SHARED_RANK_SETS), 1))
def test_shared_ranks_match_as_in_the_dictionaries(name: str) -> None:
    paths, trace = load_shared_ranks(name)
    expected, found = joined(paths), matched_times(trace)
    assert len(found) == SHARED_RANK_SETS[name][2]
    assert found.keys() == expected.keys()
    # Both are on one clock, so that the difference is the time at which the earliest rank began.
    zero = {start - times[rank][0] for key, times in found.items() for rank, (start, _) in expected[key].items()}
    assert len(zero) == 1
    began = zero.pop()
    for key, times in expected.items():
        assert {rank: (start - began, end - began) for rank, (start, end) in times.items()} == found[key]
    assert trace.merged_ranks is not None
    matched = trace.merged_ranks.matched_collectives
    assert not matched.unmatched.any()
    assert not matched.missing_ranks.any()
    assert not matched.is_mismatched.any()


def test_what_was_launched_before_the_recording_is_left_out() -> None:
    """The first ranks of DDP still have kernels on the GPU when the recording begins, not the same number on each."""
    ranks = load_shared_ranks("ddp")[1].merged_ranks
    assert ranks is not None
    assert ranks.matched_collectives.before_recording.tolist() == [6, 6, 0, 2]


def test_stored_in_the_cache_folder(tmp_path: Path) -> None:
    trace = load_trace(str(late_rank().write(tmp_path)[0]), cache=False)
    found = read_collectives(trace)
    assert len(found) == 6
    assert [found.texts[code] for code in found.operation.tolist()] == ["allreduce"] * 6
    assert found.received.tolist() == [1024, 2048] * 3
    store_collectives(found, tmp_path)
    again = load_collectives(tmp_path)
    assert again is not None
    for column in ("events", "group", "operation", "dtype", "received", "sent"):
        assert np.array_equal(getattr(found, column), getattr(again, column))
    assert (again.texts, again.before_recording) == (found.texts, found.before_recording)
    (tmp_path / "collectives.json").write_text('{"version": 1, "columns": [[]]}')
    assert load_collectives(tmp_path) is None


def test_ranks_that_began_to_record_at_another_step(tmp_path: Path) -> None:
    run = late_rank(3, steps=4)
    run.first_step = (0, 2, 1)
    trace = load_merged_ranks(run.write(tmp_path))
    assert trace.merged_ranks is not None
    matched = trace.merged_ranks.matched_collectives
    assert matched.step.tolist() == [1, 1, 2, 2, 3, 3]
    assert matched.missing_ranks.tolist() == [1, 1, 0, 0, 0, 0]
    assert matched.unmatched.tolist() == [2, 0, 0]


def test_launches_are_divided_by_the_steps_and_by_what_follows_one() -> None:
    steps = {3: (10, 20), 4: (20, 30), 6: (35, 40)}
    entries = [trace_builder.step(number, begin, end - begin) for number, (begin, end) in steps.items()]
    model = trace_builder.trace(trace_builder.cpu("a", 0, 50), *entries, ns=True)
    segments, found = _assign_segments(model, np.arange(50))
    for time in range(50):
        begun = [number for number, (begin, _) in steps.items() if begin <= time]
        is_inside = bool(begun) and time < steps[begun[-1]][1]
        assert found[time] == (begun[-1] if is_inside else -1)
        assert segments[time] == (2 * begun[-1] + (not is_inside) if begun else -1)


def test_sizes_that_differ_are_reported(tmp_path: Path) -> None:
    run = late_rank(2, steps=1, each=2)
    paths = run.write(tmp_path)
    run.steps[0][1].elements = 999
    paths[1] = Run(2, run.steps).write(tmp_path, "other{}.json")[1]
    trace = load_merged_ranks(paths)
    assert trace.merged_ranks is not None
    assert trace.merged_ranks.matched_collectives.is_mismatched.tolist() == [False, True]
    assert trace.merged_ranks.matched_collectives.elements.tolist() == [1024, 2048]
    assert trace.merged_ranks.matched_collectives.unmatched.tolist() == [0, 0]


def test_without_process_groups_and_without_steps(tmp_path: Path) -> None:
    run = late_rank(3)
    run.says_group = False
    trace = load_merged_ranks(run.write(tmp_path))
    assert len(matched_times(trace)) == 6
    for rank in range(3):
        run.more[rank] = []
    paths = run.write(tmp_path)
    for path in (paths[1], paths[0], paths[2]):  # one rank without steps is enough
        path.write_text(path.read_text().replace("ProfilerStep#", "my step "))
        trace = load_merged_ranks(paths)
        assert trace.merged_ranks is not None
        assert trace.merged_ranks.matched_collectives.step.tolist() == [-1] * 6
        assert not trace.merged_ranks.matched_collectives.unmatched.any()


def test_one_rank_without_collectives(tmp_path: Path) -> None:
    run = late_rank(3)
    for step in run.steps:
        for collective in step:
            collective.arrive = [*collective.arrive[:2], None]
    trace = load_merged_ranks(run.write(tmp_path))
    assert trace.merged_ranks is not None
    assert len(trace.merged_ranks.matched_collectives) == 6
    assert not trace.merged_ranks.matched_collectives.missing_ranks.any()  # it does not belong to this group
    assert (trace.merged_ranks.matched_collectives.events[:, 2] == -1).all()


@settings(max_examples=scale_examples(2), deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=40),
    st.integers(0, 39),
    st.integers(1, 5),
    st.integers(-(10**12), 10**12),
    st.randoms(use_true_random=False),
)
def test_what_one_sequence_lacks_is_found_by_its_ends(
    signs: list[int], first: int, count: int, shift: int, random: object
) -> None:
    """A range is missing from one rank, whose clock is another: all that is left is matched with the same operation."""
    ends = np.cumsum([random.randint(10_000, 900_000) for _ in signs])  # type: ignore[attr-defined]
    kept_ones = [k for k in range(len(signs)) if not first <= k < first + count]
    theirs = np.array([ends[k] + shift + random.randint(-500, 500) for k in kept_ones], np.int64)  # type: ignore[attr-defined]
    all_signs = np.array(signs, np.int64) << 40
    some = all_signs[kept_ones]
    place = match_sequences(all_signs, some, ends.astype(np.int64), theirs)
    joined_ones = place >= 0
    assert (all_signs[place[joined_ones]] == some[joined_ones]).all()
    assert (np.diff(place[joined_ones]) > 0).all()
    if len(kept_ones) > 2:  # with one or two ends every position is equally even
        # Another position may be found if its ends are as even: its deviation is at most that of the true one.
        found = theirs[joined_ones] - ends[place[joined_ones]]
        true = theirs - ends[kept_ones]
        assert joined_ones.all()
        assert np.abs(found - np.median(found)).sum() <= np.abs(true - np.median(true)).sum()
    back = match_sequences(some, all_signs, theirs, ends.astype(np.int64))
    assert [(int(back[k]), k) for k in np.flatnonzero(back >= 0)] == [
        (k, int(place[k])) for k in np.flatnonzero(place >= 0)
    ]


def sum_deviations(differences: list[int]) -> float:
    return sum(abs(each - median(differences)) for each in differences)


def match_with_gap(first: list[int], others: list[int], ends: list[int], other_ends: list[int]) -> list[int] | None:
    """Try every position at which a range of `first` may be missing from `others`."""
    missing, best, found = len(first) - len(others), float("inf"), None
    for gap in range(len(others) + 1):
        position = [*range(gap), *range(gap + missing, len(first))]
        differences = [other_ends[k] - ends[each] for k, each in enumerate(position)]
        if [first[each] for each in position] == others and sum_deviations(differences) < best:
            best, found = sum_deviations(differences), position
    return found


def match_with_offset(
    first: list[int], others: list[int], ends: list[int], other_ends: list[int], most: int
) -> list[int]:
    """Try every offset, up to `most`, between two sequences."""
    best, found = None, [-1] * len(others)
    for offset in range(-most, most):
        inside = [k for k in range(len(others)) if 0 <= k + offset < len(first)]
        same = [k for k in inside if others[k] >> 40 == first[k + offset] >> 40]
        equal = sum(others[k] == first[k + offset] for k in inside)
        if same:
            score = (equal, len(same), -sum_deviations([other_ends[k] - ends[k + offset] for k in same]))
            if best is None or score > best:
                best, found = score, [k + offset if k in same else -1 for k in range(len(others))]
    return found


def test_sequences_match_as_by_trying_every_position(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(5)
    for number in range(120):
        most = (2, 3, 1000)[number % 3]
        monkeypatch.setattr(collective_matching, "_MAX_OFFSET", most)
        signatures, ends = [], []
        for length in sorted((1 + int(random.random() * 6) for _ in range(2)), reverse=True):
            signatures.append([int(random.random() * 2) << 40 | int(random.random() * 2) for _ in range(length)])
            ends.append([int(random.random() * 9) for _ in range(length)])
        arguments = [np.array(each, np.int64) for each in (*signatures, *ends)]
        by_gap, expected = _match_with_gap(*arguments), match_with_gap(*signatures, *ends)
        assert (by_gap.tolist() if by_gap is not None else None) == expected
        by_offset = match_with_offset(*signatures, *ends, most)
        assert _match_with_offset(*arguments).tolist() == by_offset
        assert match_sequences(*arguments).tolist() == (by_offset if expected is None else expected)


def test_of_many_positions_of_a_gap_some_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collective_matching, "_MAX_GAP_POSITIONS", 3)
    same, ends = np.zeros(7, np.int64), np.arange(7) ** 2 * 100
    for size, tried in ((2, (0, 1, 2)), (3, (0, 1, 3)), (4, (0, 2, 4)), (5, (0, 2, 5))):
        for gap in range(size + 1):
            position = [*range(gap), *range(gap + 7 - size, 7)]
            found = match_sequences(same, same[:size], ends, ends[position] + 5).tolist()
            assert (found == position) == (gap in tried)


def test_sequences_that_only_overlap() -> None:
    signs = np.array([1, 2, 3, 4, 5, 6, 7]) << 40  # operations, of no size
    others = np.array([4, 5, 6, 7, 8, 9]) << 40
    ends = np.arange(7) * 1000
    place = match_sequences(signs, others, ends, np.arange(6) * 1000 + 77)
    assert place.tolist() == [3, 4, 5, 6, -1, -1]
    assert match_sequences(signs, np.array([9, 1]) << 40, ends, np.array([1, 2])).tolist() == [-1, 0]
    assert match_sequences(signs, np.array([7, 9]) << 40, ends, np.array([1, 2])).tolist() == [6, -1]
    assert match_sequences(signs, np.array([9, 9]) << 40, ends, np.array([1, 2])).tolist() == [-1, -1]
    assert match_sequences(signs, np.zeros(0, np.int64), ends, np.zeros(0, np.int64)).tolist() == []


def test_nothing_to_match(tmp_path: Path) -> None:
    run = Run(2, [[], []])
    traces = [load_trace(str(path), cache=False) for path in run.write(tmp_path)]
    matched = match_collectives(traces, [read_collectives(trace) for trace in traces])
    assert len(matched) == 0
    assert matched.unmatched.tolist() == [0, 0]


def test_two_groups_are_kept_apart(tmp_path: Path) -> None:
    """Each group has an order of its own: ranks may issue two groups' collectives in different orders."""
    steps = [[Collective([1000, 1001], group="1"), Collective([1500, 1502], group="2")]]
    swapped = [[Collective([1500, 1502], group="2"), Collective([1000, 1001], group="1")]]
    paths = [Run(2, steps, bases=(BASE, BASE)).write(tmp_path)[0], Run(2, swapped).write(tmp_path, "x{}.json")[1]]
    trace = load_merged_ranks(paths)
    assert {key[0] for key in matched_times(trace)} == {"1", "2"}
    for times in matched_times(trace).values():
        assert len({end for _, end in times.values()}) == 1


def test_collectives_that_run_on_the_cpu(tmp_path: Path) -> None:
    """Gloo has no kernels: the ranges of its threads begin when a rank enters, and end when all have."""
    run = Run(2, [])
    for rank, arrive in enumerate((1000, 4000)):
        where = {"ph": "X", "cat": "user_annotation", "pid": 1000 + rank, "tid": 70 + rank, "args": {}}
        run.more[rank] = [
            {**where, "name": "gloo:all_reduce", "ts": arrive, "dur": 4100 - arrive},
            {**where, "name": "gloo:broadcast", "ts": 5000, "dur": 10},
            {**where, "name": "nccl:all_reduce", "ts": 6000, "dur": 10},
        ]
    trace = load_merged_ranks(run.write(tmp_path))
    assert trace.merged_ranks is not None
    matched = trace.merged_ranks.matched_collectives
    assert [matched.texts[code] for code in matched.operation.tolist()] == ["gloo:all_reduce", "gloo:broadcast"]
    assert matched.is_synchronizing.tolist() == [True, False]
    (times,) = (times for (_, _, nth), times in matched_times(trace).items() if nth == 0)
    assert {rank: end - start for rank, (start, end) in times.items()} == {0: 3_100_000, 1: 100_000}
