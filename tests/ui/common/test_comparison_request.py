"""What may be typed after `D`."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchprof_tui.analysis.compare.step_selection import AUTOMATIC, ComparisonError, StepSelection
from torchprof_tui.ui.common.comparison_request import ComparisonRequest, parse_request, take_choice

THREE_FOUR = StepSelection((3, 3)), StepSelection((4, 4))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" after.json ", ComparisonRequest("after.json")),
        ("host:runs/a b.json", ComparisonRequest("host:runs/a b.json")),
        ("step 3/4", ComparisonRequest(steps=THREE_FOUR)),
        ("steps #3/#4", ComparisonRequest(steps=THREE_FOUR)),
        ("steps 3..7/8..12", ComparisonRequest(steps=(StepSelection((3, 7)), StepSelection((8, 12))))),
        ("step 3 against step 4", ComparisonRequest(steps=THREE_FOUR)),
        ("step 3 against 4", ComparisonRequest(steps=THREE_FOUR)),
        ("rank 0/3", ComparisonRequest(ranks=(0, 3))),
        ("rank 0 against rank 3", ComparisonRequest(ranks=(0, 3))),
        ("runs/ddp/ rank 1", ComparisonRequest("runs/ddp/", ranks=(1, 1))),
        ("run/ rank 0/1 step 3", ComparisonRequest("run/", (StepSelection((3, 3)),) * 2, (0, 1))),
        ("step.json", ComparisonRequest("step.json", (AUTOMATIC, AUTOMATIC))),
    ],
)
def test_names_steps_and_ranks(text: str, expected: ComparisonRequest) -> None:
    assert parse_request(text) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "name a trace: path"),
        ("step 3", "the same on both sides: step 3/4"),
        ("rank 1", "the same on both sides"),
        ("step 7..3/1", "the last comes before the first"),
        ("rank ./1", "write rank 0/3"),
    ],
)
def test_what_cannot_be_compared_is_said(text: str, says: str) -> None:
    with pytest.raises(ComparisonError, match=says):
        parse_request(text)


def test_enter_takes_the_first_choice_for_what_names_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mlp").mkdir()
    found = ["sample:mlp_eager", "sample:mlp_compile", "step 3 against step 4"]
    for typed in ("", "ml", "sample:mlp", "step 3"):
        assert take_choice(typed, found) == "sample:mlp_eager", typed
    for typed in ("mlp", "sample:mlp_compile", "step 3/5", "host:mlp", "~", "rank 0 against rank 1"):
        assert take_choice(typed, found) == typed
    assert take_choice("nothing.json", []) == "nothing.json"
