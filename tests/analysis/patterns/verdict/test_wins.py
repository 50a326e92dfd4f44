"""Test what the fixes of findings win."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from torchprof_samples import find
from torchprof_tui.analysis.patterns.engine.check_scope import default_scope, step_scope
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS
from torchprof_tui.analysis.patterns.verdict import check_report, wins
from torchprof_tui.analysis.patterns.verdict.check_report import RemedyFinder, check_trace
from torchprof_tui.analysis.patterns.verdict.wins import Wins, find_remedy, predict_wins, rank_by_wins
from torchprof_tui.analysis.what_if.scenario import ScenarioKind, parse_scenario
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.trace import Trace


@pytest.fixture(scope="module")
def starved() -> Trace:
    return load_trace(str(find("train_gpt_starved").path), cache=False)


def test_a_starved_step_wins_the_time_of_the_data_loader(starved: Trace) -> None:
    report = check_trace(starved, default_scope(starved))
    assert set(report.wins.shares) == {"input-starved"}  # the gaps have no fix of their own
    assert report.wins.shares["input-starved"] == pytest.approx(0.58, abs=0.02)
    assert report.wins.step.startswith("ProfilerStep#")
    (found,) = [finding for finding in report.problems if finding.id == "input-starved"]
    assert found.won == report.wins.shares["input-starved"]
    assert report.problems[0] is found


def test_parts_of_a_trace_are_ranked_by_time_at_stake(starved: Trace) -> None:
    report = check_trace(starved, step_scope(starved.steps[1]))
    assert report.wins == Wins()
    assert all(finding.won is None for finding in report.findings)


def test_large_steps_are_left_out_and_say_so(starved: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    findings = check_trace(starved, default_scope(starved), with_wins=False).findings
    monkeypatch.setattr(wins, "MAX_STEP_EVENTS", 10)
    predicted = predict_wins(starved, findings)
    assert predicted.shares == {}
    assert "what a fix saves: what-if --set pattern=ID" in predicted.problem


def test_a_bounded_number_of_edges_is_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = load_trace(str(find("train_gpt_eager").path), cache=False)
    findings = check_trace(trace, default_scope(trace), with_wins=False).findings
    problems = [finding.id for finding in findings if finding.is_significant]
    for name, remedy in zip(problems, ("launch=graph", "compile", "launch=graph"), strict=False):
        monkeypatch.setitem(wins._REMEDIES, name, remedy)
    assert set(predict_wins(trace, findings).shares) >= set(problems[:3])
    monkeypatch.setattr(wins, "MAX_REPLAYED_EDGES", 1)
    few = predict_wins(trace, findings).shares  # one scenario is always replayed, and the same one costs nothing
    assert problems[0] in few
    assert problems[1] not in few
    assert len(problems) < 3 or problems[2] in few


def test_a_replay_that_is_off_leaves_the_time_at_stake(starved: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    findings = check_trace(starved, default_scope(starved), with_wins=False).findings
    monkeypatch.setattr("torchprof_tui.analysis.what_if.forecast.Forecast.is_trusted", False)
    predicted = predict_wins(starved, findings)
    assert predicted.shares == {}
    assert "critical-path says what is missing" in predicted.problem
    assert [finding.id for finding in rank_by_wins(findings, predicted)] == [finding.id for finding in findings]


def test_problems_are_ranked_by_what_their_fixes_win(starved: Trace) -> None:
    findings = check_trace(starved, default_scope(starved), with_wins=False).findings
    problems = [finding.id for finding in findings if finding.is_significant]
    assert len(problems) > 1
    ranked = rank_by_wins(findings, Wins({problems[-1]: 0.99}))
    assert ranked[0].id == problems[-1]
    assert ranked[0].won == 0.99
    assert {finding.id for finding in ranked} == {finding.id for finding in findings}


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
    (expanded,) = RemedyFinder(starved).expand([parse_scenario("pattern=input-starved")])
    assert (expanded.kind, expanded.text) == (ScenarioKind.DATALOADER, "pattern=input-starved")


def test_a_trace_is_checked_once_for_all_patterns(starved: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    checked = []

    def count(*args: Any, **more: Any) -> Any:
        checked.append(args)
        return check_trace(*args, **more)

    monkeypatch.setattr(check_report, "check_trace", count)
    finder = RemedyFinder(starved)
    assert finder.expand([parse_scenario("sync=0")])[0].kind is ScenarioKind.SYNC
    assert not checked
    for _ in range(2):
        finder.expand([parse_scenario("pattern=input-starved")])
    assert len(checked) == 1


def test_of_the_same_win_the_cause_comes_before_the_summary() -> None:
    trace = load_trace(str(find("generate_eager").path), cache=False)
    first, second, *_ = check_trace(trace, default_scope(trace)).problems
    assert (first.id, second.id) == ("decode-without-graphs", "overhead-bound")
    assert first.won == second.won


def test_remedies_of_some_calls_are_no_graph_of_the_step() -> None:
    """A loop of ops that costs 16 % of a recording does not win 93 % of it."""
    assert {"op-loop", "host-code", "eager-fallback"}.isdisjoint(wins._REMEDIES)


def test_without_steps_a_fix_wins_its_time_at_stake_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = load_trace(str(find("linear_eager").path), cache=False)
    bare = replace(trace, steps=[])
    findings = check_trace(bare, default_scope(bare), with_wins=False).findings
    stakes = {finding.id: finding.share for finding in findings}
    predicted = predict_wins(bare, findings)
    assert predicted.shares
    assert all(share <= stakes[name] for name, share in predicted.shares.items())
    assert predicted.base == "the recording"
