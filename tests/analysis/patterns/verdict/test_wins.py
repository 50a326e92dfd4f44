"""Test what the fixes of problems save: never more than they cost, on their own events, of the steps that are named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.helpers.paths import FIXTURES, SHARED_TRACES
from tests.helpers.trace_builder import Entry, memcpy
from tests.helpers.trace_builder import trace as trace_of
from torchprof_samples import find
from torchprof_tui.analysis.patterns.engine.check_scope import default_scope, step_scope
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Finding
from torchprof_tui.analysis.patterns.verdict import check_report, wins
from torchprof_tui.analysis.patterns.verdict.check_report import CheckReport, RemedyFinder, check_trace
from torchprof_tui.analysis.patterns.verdict.forecast_errors import ForecastError
from torchprof_tui.analysis.patterns.verdict.wins import Saving, Wins, find_remedy, predict_wins, rank_by_wins
from torchprof_tui.analysis.what_if.forecast import Forecaster
from torchprof_tui.analysis.what_if.scenario import ScenarioKind, parse_scenario
from torchprof_tui.analysis.what_if.step_model import build_step_model
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.labels import describe_cost

PAGEABLE = "Memcpy HtoD (Pageable -> Device)"


def pageable(**where: Any) -> Entry:
    return memcpy(PAGEABLE, 0, 10_000, 1, **where)


def pinned(**where: Any) -> Entry:
    return memcpy("Memcpy HtoD (Pinned -> Device)", 20_000, 1_000, 2, **where)


@pytest.fixture(scope="module")
def starved() -> Trace:
    return load_trace(str(find("train_gpt_starved").path), cache=False)


def check_whole(trace: Trace, with_wins: bool = True) -> CheckReport:
    return check_trace(trace, default_scope(trace), with_wins=with_wins)


def check_released(name: str) -> tuple[Trace, CheckReport]:
    path = SHARED_TRACES / "released" / name
    if not path.exists():
        pytest.skip("the shared traces are not available")
    trace = load_trace(str(path), cache=False)
    return trace, check_whole(trace)


def test_a_starved_step_wins_the_time_of_the_data_loader(starved: Trace) -> None:
    report = check_whole(starved)
    assert set(report.wins.shares) == {"input-starved"}
    assert report.wins.shares["input-starved"] == pytest.approx(0.58, abs=0.02)
    assert [step.startswith("ProfilerStep#") for step in report.wins.steps] == [True]
    (found,) = report.problems
    assert (found.id, found.won) == ("input-starved", report.wins.shares["input-starved"])


def test_steps_that_differ_are_all_replayed() -> None:
    """The loader takes 47.4, 22.3 and 61.7 ms of steps of 53.9, 34.6 and 74.0 ms: no one of them stands for all."""
    _, report = check_released("amp_starved.pt.trace.json.gz")
    assert report.base.label == "all 3 steps"
    assert len(report.wins.steps) == 3
    (found,) = report.problems
    assert found.won == pytest.approx(131.4 / 162.5, abs=0.01)
    assert found.share == pytest.approx(131.4 / 162.5, abs=0.01)


def test_a_blocking_pageable_copy_frees_the_thread_that_waits_in_it() -> None:
    """cudaMemcpyAsync holds the thread for 700 to 772 µs of a step of 9.38 ms; the copy itself takes 436 to 481."""
    trace, report = check_released("train.pt.trace.json.gz")
    (found,) = [each for each in report.problems if each.id == "pageable-copy"]
    assert found.share == pytest.approx(0.08, abs=0.005)
    assert found.won == pytest.approx(0.08, abs=0.005)
    forecaster = Forecaster(build_step_model(trace))
    remedy = find_remedy(trace, found)
    assert remedy is not None
    assert forecaster.unchanged.step_time - forecaster.predict([remedy]).after == pytest.approx(800_000, rel=0.05)


def test_pinned_copies_are_forecast_at_the_rate_of_the_link() -> None:
    """77 MB at 6.9 GB/s hold the GPU for 11 ms of a step of 21 ms; its twin copies at 55 GB/s, in a step of 8 ms."""
    faulty, mended = (
        load_trace(str(FIXTURES / f"faults/pageable_batch.{variant}.json.gz"), cache=False)
        for variant in ("faulty", "mended")
    )
    before, after = (np.mean([step.duration for step in trace.steps]) for trace in (faulty, mended))
    (found,) = [each for each in check_whole(faulty).problems if each.id == "pageable-copy"]
    assert found.won == pytest.approx(1 - after / before, abs=0.11)
    assert found.won == pytest.approx(found.share, abs=0.01)  # a forecast above it is not claimed


@pytest.mark.parametrize(
    ("entries", "left"),
    [
        ([pageable(bytes=63 * 10**6)], 1 / 8.8),  # 6.3 GB/s of the link's 63, of which 55.4 are reached
        ([pageable(bytes=63 * 10**6), pinned(bytes=126 * 10**5)], 0.5),  # the trace's own take 1 ms
        ([pageable(bytes=63 * 10**6), pinned(bytes=10**4)], 1 / 8.8),  # too small to tell a rate
        ([pageable(bytes=63 * 10**7)], 1.0),  # no longer than now
        ([pageable()], 1.0),
    ],
)
def test_what_is_left_of_copies_that_are_pinned(entries: list[Entry], left: float) -> None:
    built = trace_of(*entries, header={"deviceProperties": [{"id": 0, "name": "NVIDIA H100"}]})
    copies = np.flatnonzero([built.names[name] == PAGEABLE for name in built.name]).astype(np.int64)
    assert wins._estimate_pinned_share(built, copies) == pytest.approx(left, rel=0.01)


def test_the_launches_of_one_op_save_no_more_than_that_op(starved: Trace) -> None:
    """Its evidence is one op of a step: a graph of the whole step would save far more."""
    model = build_step_model(starved)
    window = model.ranks[0].window
    starts = starved.start
    inside = (starts >= window.start) & (starts < window.cpu_end) & (starved.kind == Kind.OP)
    op = np.flatnonzero(inside & (starved.lane == window.lane) & (np.asarray(starved.duration) > 100_000))[:1]
    answer = Answer.fired("", op.astype(np.int64), 1)
    remedy = find_remedy(starved, Finding(PATTERNS["tiny-kernels"], answer, 1.0))
    assert remedy is not None
    assert remedy.kind is ScenarioKind.LAUNCH
    forecaster = Forecaster(model)
    before = forecaster.unchanged.step_time
    saved = before - forecaster.predict([remedy]).after
    assert 0 <= saved <= int(starved.duration[op[0]])
    assert before - forecaster.predict([parse_scenario("launch=graph")]).after > 5 * saved


def test_parts_of_a_trace_are_not_replayed(starved: Trace) -> None:
    report = check_trace(starved, step_scope(starved.steps[1]))
    assert report.wins == Wins()
    assert report.base.label == "the range"
    assert all(finding.won is None for finding in report.findings)


def test_large_steps_are_left_out_and_say_so(starved: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    report = check_whole(starved, with_wins=False)
    monkeypatch.setattr(wins, "MAX_STEP_EVENTS", 10)
    predicted = predict_wins(starved, report.findings, report.base)
    assert predicted.shares == {}
    assert "what a fix saves: what-if --set pattern=ID" in predicted.problem


def test_a_bounded_number_of_edges_is_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = load_trace(str(find("generate_eager").path), cache=False)
    report = check_whole(trace, with_wins=False)
    problems = [finding.id for finding in report.problems]
    assert len(problems) > 1
    for name, remedy in zip(problems, ("launch=graph", "gpu=0.5"), strict=False):
        monkeypatch.setitem(wins._REMEDIES, name, remedy)
    assert set(predict_wins(trace, report.findings, report.base).shares) >= set(problems[:2])
    monkeypatch.setattr(wins, "MAX_REPLAYED_EDGES", 1)
    few = predict_wins(trace, report.findings, report.base).shares  # one scenario is always replayed
    assert problems[0] in few
    assert problems[1] not in few


def test_a_replay_that_is_off_leaves_the_cost(starved: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    report = check_whole(starved, with_wins=False)
    monkeypatch.setattr("torchprof_tui.analysis.what_if.forecast.Forecast.is_trusted", False)
    predicted = predict_wins(starved, report.findings, report.base)
    assert predicted.shares == {}
    assert "critical-path says what is missing" in predicted.problem
    assert [each.id for each in rank_by_wins(report.findings, predicted)] == [each.id for each in report.findings]


def test_a_problem_whose_fix_saves_nothing_is_none() -> None:
    trace = load_trace(str(find("generate_eager").path), cache=False)
    report = check_whole(trace, with_wins=False)
    first, second = report.problems[:2]
    ranked = rank_by_wins(report.findings, Wins({first.id: 0.0, second.id: 0.001}))
    assert [each.is_significant for each in ranked if each.id == second.id] == [False]
    assert ranked[0].id == first.id  # the verdict is about it
    assert {each.id for each in ranked} == {each.id for each in report.findings}


def test_all_remedies_are_of_known_patterns_and_can_be_read() -> None:
    assert set(wins._REMEDIES) <= set(PATTERNS)
    assert set(PATTERNS) >= wins._GONE_EVENTS
    assert set(wins._REMEDIES) >= wins._OWN_LAUNCHES
    for text in wins._REMEDIES.values():
        assert parse_scenario(text).text == text


def test_evidence_that_would_be_gone_is_named_by_row(starved: Trace) -> None:
    report = check_whole(starved)
    for finding in report.findings:
        remedy = find_remedy(starved, finding) if finding.has_fired else None
        if remedy is not None and remedy.kind is ScenarioKind.EVENT:
            assert set(np.frombuffer(remedy.rows, np.int64).tolist()) >= set(finding.answer.events.tolist())
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


def test_the_narrower_of_two_problems_keeps_the_time() -> None:
    trace = load_trace(str(find("generate_eager").path), cache=False)
    report = check_whole(trace)
    first, second, *_ = report.problems
    assert (first.id, second.id) == ("decode-without-graphs", "overhead-bound")
    assert first.won is not None
    assert second.won is not None
    assert first.won + second.won <= 1


def test_remedies_of_some_calls_are_no_graph_of_the_step() -> None:
    """A loop of ops that costs 16 % of a recording does not win 93 % of it."""
    assert {"op-loop", "host-code", "eager-fallback"}.isdisjoint(wins._REMEDIES)


def test_without_steps_a_fix_wins_its_cost_at_most() -> None:
    trace = load_trace(str(find("linear_eager").path), cache=False)
    report = check_whole(replace(trace, steps=[]))
    assert report.base.label == "the recording"
    assert report.wins.shares
    costs = {finding.id: finding.share for finding in report.findings}
    assert all(share <= costs[name] for name, share in report.wins.shares.items())


@pytest.mark.parametrize(
    ("scenario", "cost", "expected"),
    [
        ("pattern=x", 0.3, True),
        ("pattern=x", 0.41, False),  # most of the cost is no time of the step's
        ("pattern=x", 0.24, False),  # the cost leaves something out
        ("launch=graph", 0.9, True),  # a remedy leaves something behind
    ],
)
def test_a_saving_is_claimed_where_it_fits_the_cost(scenario: str, cost: float, expected: bool) -> None:
    gone = replace(parse_scenario("event=1*0"), text=scenario) if "x" in scenario else parse_scenario(scenario)
    assert Saving(0.3, 0.3).is_like(cost, gone) is expected


def test_a_saving_is_not_claimed_where_the_median_step_says_another() -> None:
    gone = parse_scenario("event=1*0")
    assert Saving(0.3, 0.21).is_like(0.3, gone)
    assert not Saving(0.3, 0.19).is_like(0.3, gone)


def test_a_saving_that_hangs_on_the_profilers_time_is_not_claimed(
    starved: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = check_whole(starved)
    (found,) = report.problems
    assert found.claimed == found.won
    monkeypatch.setattr("torchprof_tui.analysis.what_if.profiler_cost.OP_COST", 200_000)
    (found,) = check_whole(starved).problems
    assert (found.won, found.claimed) == (report.wins.shares["input-starved"], None)
    assert "a fix saves" not in describe_cost(found, report.base)


def test_a_pattern_whose_forecasts_were_far_off_claims_none(starved: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    rough = ForecastError(programs=3, median_error=0.2, median_saving=0.4)
    monkeypatch.setattr(wins, "read_forecast_errors", lambda: {"input-starved": rough})
    assert check_whole(starved).wins.doubtful == {"input-starved"}
