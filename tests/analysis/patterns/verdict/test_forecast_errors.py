"""The packaged errors of forecasts are those of the benchmarks' tables; shown beside forecasts, or ending them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tools import forecast_errors as tool
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Finding
from torchprof_tui.analysis.patterns.verdict import forecast_errors
from torchprof_tui.analysis.patterns.verdict.forecast_errors import ForecastError, read_forecast_errors
from torchprof_tui.ui.common.labels import describe_saving


def build_finding(pattern: str) -> Finding:
    answer = Answer.fired("seen", np.arange(1), 20_000_000)
    return replace(Finding(PATTERNS[pattern], answer, 0.0).with_cost(15_000_000, 30_000_000), won=0.2)


def test_the_store_is_that_of_the_tables() -> None:
    assert tool.STORE.read_text(encoding="utf-8") == tool.format_store(), "run python -m tools.forecast_errors"
    assert set(read_forecast_errors()) <= set(PATTERNS)
    assert sum(each.programs for each in read_forecast_errors().values()) == len(
        {(pattern, program) for pattern, program, *_ in tool.list_measured()}
    )


def test_of_a_program_that_was_recorded_again_the_last_row_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = tmp_path / "bench.md"
    title = PATTERNS["second-backward"].title
    row = "| two_backwards | {} | mixed | 40% | 1% | yes | yes | no | {} | 30% | " + title + " (30 %): do it once |"
    tables = [[("a", "10%"), ("b", "20%")], [("a", "30%")], [("b", "")]]
    text = "\n\n".join("\n".join(["| kind | model |", *(row.format(*each) for each in rows)]) for rows in tables)
    bench.write_text(text)
    monkeypatch.setattr(tool, "FAULT_BENCH", bench)
    assert ("second-backward", "two_backwards a", 0.3, 0.4) in set(tool.list_measured())
    assert not [each for each in tool.list_measured() if each[1] == "two_backwards b"]


def test_a_table_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench, tried = tmp_path / "bench.md", tmp_path / "try.md"
    title = PATTERNS["second-backward"].title
    row = "| two_backwards | {} | mixed | {}% | 1% | yes | {} | no | {} | 30% | " + title + " (30 %): do it once |"
    cells = (("a", 40, "yes", "30%"), ("b", -5, "yes", "15%"), ("c", 50, "yes", "20%"))
    left_out = (("d", 50, "no", "20%"), ("e", 50, "yes", ""))
    rows = "\n".join(row.format(*each) for each in (*cells, *left_out))
    bench.write_text(f"| kind | model | regime of the twin | saving |\n|---|---|\n{rows}\n")
    rows = "| starved | input-starved | workers | 48% | 40.5% |\n\n| other |\n| x |\n"
    tried.write_text(f"{tool.TRIED_HEAD}\n|---|\n{rows}")
    monkeypatch.setattr(tool, "FAULT_BENCH", bench)
    monkeypatch.setattr(tool, "TRIED", tried)
    assert tool.build_store() == {
        "input-starved": {"programs": 1, "median_error": 0.075, "median_saving": 0.405},
        "second-backward": {"programs": 3, "median_error": 0.2, "median_saving": 0.4},
    }


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ForecastError(programs=2, median_error=0.0, median_saving=0.5), ""),
        (
            ForecastError(programs=3, median_error=0.055, median_saving=0.4),
            ", measured on 3 programs: median error 6 points",
        ),
        (None, ""),
    ],
)
def test_it_stands_beside_a_forecast(error: ForecastError | None, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {} if error is None else {"op-loop": error}
    monkeypatch.setattr(forecast_errors, "read_forecast_errors", lambda: known)
    assert describe_saving(build_finding("op-loop")) == f"a fix saves at most 20 %{said}"


@pytest.mark.parametrize(("programs", "error", "is_rough"), [(3, 0.11, True), (3, 0.10, False), (2, 0.3, False)])
def test_what_was_far_off_is_rough(programs: int, error: float, is_rough: bool) -> None:
    assert ForecastError(programs=programs, median_error=error, median_saving=0.4).is_rough is is_rough


@pytest.mark.parametrize(
    ("programs", "error", "is_withdrawn"), [(3, 0.4, True), (3, 0.41, True), (3, 0.39, False), (2, 0.9, False)]
)
def test_what_is_no_better_than_nothing_is_withdrawn(programs: int, error: float, is_withdrawn: bool) -> None:
    measured = ForecastError(programs=programs, median_error=error, median_saving=0.4)
    assert measured.is_withdrawn is is_withdrawn
