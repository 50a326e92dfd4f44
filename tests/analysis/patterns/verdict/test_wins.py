"""Test what the fixes of findings win."""

from __future__ import annotations

import pytest

from torchprof_samples import find
from torchprof_tui.analysis.patterns.engine.check_scope import default_scope, step_scope
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS
from torchprof_tui.analysis.patterns.verdict import wins
from torchprof_tui.analysis.patterns.verdict.check_report import check_trace
from torchprof_tui.analysis.patterns.verdict.wins import estimate_win, estimate_wins, expand_patterns, find_remedy
from torchprof_tui.analysis.what_if.scenario import ScenarioKind, parse_scenario
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.trace import Trace


@pytest.fixture(scope="module")
def starved() -> Trace:
    return load_trace(str(find("train_gpt_starved").path), cache=False)


def test_a_starved_step_wins_the_time_of_the_data_loader(starved: Trace) -> None:
    report = check_trace(starved, default_scope(starved))
    won = estimate_wins(report)
    assert set(won) == {"input-starved"}  # the gaps have no fix of their own
    assert won["input-starved"] == pytest.approx(0.58, abs=0.02)
    (found,) = [finding for finding in report.problems if finding.id == "input-starved"]
    assert estimate_win(starved, found) == won["input-starved"]


def test_parts_of_a_trace_and_large_ones_are_left_out(starved: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    assert estimate_wins(check_trace(starved, step_scope(starved.steps[1]))) == {}
    monkeypatch.setattr(wins, "MAX_EVENTS", 10)
    assert estimate_wins(check_trace(starved, default_scope(starved))) == {}


def test_all_remedies_are_of_known_patterns_and_can_be_read() -> None:
    assert set(wins._REMEDIES) <= set(PATTERNS)
    assert set(PATTERNS) >= wins._GONE_EVENTS
    for text in wins._REMEDIES.values():
        assert parse_scenario(text).text == text


def test_evidence_that_would_be_gone_is_named_by_row(starved: Trace) -> None:
    report = check_trace(starved, default_scope(starved))
    found = [(finding, find_remedy(finding)) for finding in report.findings if finding.has_fired]
    for finding, remedy in found:
        if remedy is not None and remedy.kind is ScenarioKind.EVENT:
            assert remedy.rows == tuple(finding.answer.events.tolist())
    (expanded,) = expand_patterns(starved, [parse_scenario("pattern=input-starved")])
    assert (expanded.kind, expanded.text) == (ScenarioKind.DATALOADER, "pattern=input-starved")
