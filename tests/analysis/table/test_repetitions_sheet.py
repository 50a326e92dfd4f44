"""Test the table of repetitions: a row for each token, and one for each layer over all tokens."""

from __future__ import annotations

import numpy as np
import pytest

from tests.analysis.repetition.test_repetitions import decode
from torchprof_samples import find
from torchprof_tui.analysis.repetition.repetitions import Difference, find_repetitions
from torchprof_tui.analysis.table.repetitions_sheet import (
    build_repetitions_sheet,
    find_row_repetitions,
    format_difference,
    measure_totals,
)
from torchprof_tui.analysis.table.sheets import Sheet
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.trace import Trace


def sheet_of(made: Trace) -> Sheet:
    return build_repetitions_sheet(made, find_repetitions(made))


def column(sheet: Sheet, key: str) -> list[object]:
    return list(np.asarray(sheet.columns[key]).tolist())


def test_rows_of_tokens_and_of_layers() -> None:
    sheet = sheet_of(decode(tokens=6, layers=4, slow=2, extra=3))
    tokens = [f"pattern 1 #{token}" for token in range(6)]
    layers = [f"pattern 2, {layer + 1} of 4 in a row" for layer in range(4)]
    assert column(sheet, "name") == tokens + layers
    assert column(sheet, "calls") == [1] * 6 + [6] * 4
    assert column(sheet, "events") == [28, 28, 28, 29, 28, 28, 6, 6, 6, 6]
    assert column(sheet, "p50") == [83_000] * 3 + [86_000, 83_000, 83_000] + [17_000] * 4
    assert column(sheet, "total") == [83_000] * 3 + [86_000, 83_000, 83_000] + [6 * 17_000] * 4
    assert column(sheet, "differing") == [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]
    assert column(sheet, "busy")[0] == pytest.approx(56 / 83)


def test_members_are_the_first_kernels() -> None:
    made = decode(tokens=6, layers=4)
    sheet = sheet_of(made)
    for row in range(len(sheet)):
        pattern, index = find_row_repetitions(find_repetitions(made), row)
        assert made.start[sheet.members_of(row)].tolist() == pattern.start[index].tolist()
    with pytest.raises(IndexError):
        find_row_repetitions(find_repetitions(made), len(sheet))


def test_quantiles_are_those_of_numpy() -> None:
    made = decode(tokens=9, layers=4)
    made.duration[::7] += 900  # the kernels overlap no other for it
    sheet, (tokens, layers) = sheet_of(made), find_repetitions(made).patterns
    assert len(tokens) == 9
    for layer in range(4):
        durations = layers.duration[layers.position == layer]
        row = 9 + layer
        assert column(sheet, "p50")[row] == round(float(np.quantile(durations, 0.5)))
        assert column(sheet, "p95")[row] == round(float(np.quantile(durations, 0.95)))
        assert (column(sheet, "min")[row], column(sheet, "max")[row]) == (durations.min(), durations.max())


def test_totals_and_their_lines() -> None:
    made = decode(tokens=6, layers=4, extra=3)
    totals = measure_totals(made, find_repetitions(made))
    assert [(each.label, each.parent, each.is_unit, each.runs, each.slowest) for each in totals.patterns] == [
        ("1", None, True, 1, 3),
        ("2", "1", False, 6, 0),
    ]
    first, second = sheet_of(made).totals
    assert first == "1: 6 × 28 kernels, p50 83.0 µs, p95 85.3 µs, one every 94.0 µs, 99% of the time; 1 differs: #3"
    assert second.startswith("2: 24 × 6 kernels (4 in a row, at 6 places in pattern 1), p50 17.0 µs, p95 17.0 µs")


def test_a_difference_in_words() -> None:
    assert format_difference(Difference("reduce", 2, 0), 30) == "more in 2 of 30: reduce"
    assert format_difference(Difference("reduce", 2, 1), 30) == "more in 2 and fewer in 1 of 30: reduce"


def test_a_trace_without_a_repetition_has_an_empty_sheet() -> None:
    sheet = sheet_of(decode(tokens=1, layers=1))
    assert (len(sheet), sheet.totals) == (0, ())


def test_repetitions_of_serving_steps_say_their_kind() -> None:
    sheet = sheet_of(load_trace(str(find("generate_eager").path)))
    names = sorted(str(name) for name in column(sheet, "name"))
    assert names[:9] == ["pattern 1 #0 prefill", *(f"pattern 1 #{token} decode" for token in range(1, 9))]
    assert names[9] == "pattern 2a, 1 of 6 in a row"
    first, second, third = sheet.totals
    assert first.startswith("1: 9 × 140 kernels (1 prefill, 8 decode), p50 ")
    assert first.endswith("; 1 differs: #0")
    assert "at 1 place in pattern 1; 6 prefill)" in second
    assert "at 8 places in pattern 1; 48 decode)" in third
