"""Targets of the go-to prompt: times, steps and ranks."""

from __future__ import annotations

import pytest

from torchprof_tui.ui.lanes.view_state import GotoTarget, parse_goto_target

US = 1000


@pytest.mark.parametrize("text", ["#3", "step 3", "STEP3", " ProfilerStep#3 ", "step #3"])
def test_a_step_is_accepted_in_any_form(text: str) -> None:
    assert parse_goto_target(text) == GotoTarget("step", 3)


@pytest.mark.parametrize(("text", "ns"), [("3", 3 * US), ("1.5ms", 1_500_000), ("-2 us", -2 * US)])
def test_a_bare_number_is_a_time(text: str, ns: int) -> None:
    assert parse_goto_target(text) == GotoTarget("time", ns)


@pytest.mark.parametrize("text", ["rank 1", "rank1", " Rank #1"])
def test_a_rank_is_accepted_in_any_form(text: str) -> None:
    assert parse_goto_target(text) == GotoTarget("rank", 1)


@pytest.mark.parametrize("text", ["", "#", "step", "rank", "rank x", "#²", "soon"])
def test_anything_else_is_refused_with_the_accepted_forms(text: str) -> None:
    with pytest.raises(ValueError, match=r"12\.5ms"):
        parse_goto_target(text)
