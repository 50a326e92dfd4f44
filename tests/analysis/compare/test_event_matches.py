"""What became of each event on the other side: marks of the diff screen, and the event it is aligned with."""

from __future__ import annotations

import numpy as np
import pytest

from tests.analysis.compare.sides import load_side, side_of
from tests.analysis.compare.test_matched_rows import two_steps
from tests.helpers.paths import SAMPLES
from torchprof_tui.analysis.compare.event_matches import EventMatches, EventStatus, match_events
from torchprof_tui.analysis.compare.matched_rows import RowStatus, match_sides
from torchprof_tui.analysis.compare.matching import match_trees
from torchprof_tui.analysis.compare.op_tree import Side

PAIRS = (("attention_naive", "attention_flash"), ("geglu_mlp_eager", "geglu_mlp_compile"))


def matches_of(a: Side, b: Side) -> tuple[EventMatches, EventMatches]:
    return match_events(match_trees(a, b), a, b)


def load(name: str) -> Side:
    return load_side(SAMPLES / f"{name}.pt.trace.json.gz")


def names_with(side: Side, matches: EventMatches, status: EventStatus) -> list[str]:
    trace = side.trace
    return sorted({trace.names[name] for name in trace.name[matches.status == status].tolist()})


def test_an_op_of_one_side_and_its_kernel_are_only_there() -> None:
    a = side_of(two_steps(("aten::mm", {"gemm": 5}), ("aten::relu", {"relu": 2})))
    b = side_of(two_steps(("aten::mm", {"gemm": 6})))
    in_a, in_b = matches_of(a, b)
    assert names_with(a, in_a, EventStatus.ONE_SIDE) == ["aten::relu", "relu"]
    assert names_with(a, in_a, EventStatus.MATCHED) == ["aten::mm", "gemm"]
    assert not names_with(b, in_b, EventStatus.ONE_SIDE)
    assert (in_a.counterpart[in_a.status == EventStatus.ONE_SIDE] == -1).all()


def test_another_kernel_of_the_same_op_is_a_change_of_both() -> None:
    a, b = side_of(two_steps(("aten::mm", {"gemm": 5}))), side_of(two_steps(("aten::mm", {"splitK": 6})))
    in_a, in_b = matches_of(a, b)
    assert names_with(a, in_a, EventStatus.CHANGED) == ["aten::mm", "gemm"]
    assert names_with(b, in_b, EventStatus.CHANGED) == ["aten::mm", "splitK"]


def test_counterparts_are_in_the_same_step() -> None:
    a = b = side_of(two_steps(("aten::mm", {"gemm": 5}), ("aten::mm", {"gemm": 5})))
    in_a, _ = matches_of(a, b)
    compared = np.flatnonzero(in_a.status)
    assert len(compared) == 8  # two ops with a kernel each, in two steps
    assert np.array_equal(in_a.counterpart[compared], compared)


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_the_other_way_round_is_the_mirror_image(pair: tuple[str, str]) -> None:
    a, b = map(load, pair)
    in_a, in_b = matches_of(a, b)
    mirrored_b, mirrored_a = matches_of(b, a)
    for one, other in ((in_a, mirrored_a), (in_b, mirrored_b)):
        assert np.array_equal(one.status, other.status)
        assert np.array_equal(one.counterpart, other.counterpart)


@pytest.mark.parametrize("name", sorted({name for pair in PAIRS for name in pair}))
def test_nothing_differs_from_itself(name: str) -> None:
    side = load(name)
    matches, _ = matches_of(side, side)
    assert set(np.unique(matches.status)) == {EventStatus.NOT_COMPARED, EventStatus.MATCHED}
    compared = np.flatnonzero(matches.status)
    assert np.array_equal(side.trace.name[matches.counterpart[compared]], side.trace.name[compared])


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_the_events_of_rows_have_the_status_of_the_row(pair: tuple[str, str]) -> None:
    a, b = map(load, pair)
    matches = matches_of(a, b)
    expected = {RowStatus.ADDED: EventStatus.ONE_SIDE, RowStatus.REMOVED: EventStatus.ONE_SIDE}
    expected |= {RowStatus.MATCHED: EventStatus.MATCHED, RowStatus.CHANGED: EventStatus.CHANGED}
    for by in ("op", "kernel"):
        for row in match_sides(a, b, by).rows:  # type: ignore[arg-type]
            for event, side in ((row.event_a, matches[0]), (row.event_b, matches[1])):
                assert event < 0 or side.status[event] == expected[row.status], row
