"""Codes of layouts, and the positions of their numbers: compared with the numbers in the text."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from torchprof_tui.trace.core.arrays import I32
from torchprof_tui.trace.decode.template.layouts import (
    FRACTION_OF,
    NUMBER_COLUMNS,
    LayoutTable,
    digits_of,
    ends_of,
    negative_of,
)


def entry(**keys: Any) -> bytes:
    """An entry without its brace, and with a comma at its end."""
    keys = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1.5, "dur": 2, **keys}
    return json.dumps(keys).encode()[1:] + b","


def mask(text: bytes) -> bytes:
    return re.sub(rb"\d", b"0", text)


def read_numbers(layouts: LayoutTable, text: bytes) -> tuple[list[int], dict[int, int]]:
    """The values of the runs of its head, and of its numbers by kind, read at the positions of its layout."""
    code = layouts[mask(text)]
    first = int(layouts.first_head_run[code])
    head = layouts.head_run_positions[first : first + int(layouts.head_run_count[code])]
    numbers = {}
    for kind, position in enumerate(layouts.number_positions[:, code]):
        if position:
            value = read_value(text, position)
            numbers[kind] = -value if negative_of(position) else value
    return [read_value(text, position) for position in head], numbers


def read_value(text: bytes, position: I32) -> int:
    return int(text[int(ends_of(position)) - int(digits_of(position)) : int(ends_of(position))])


def test_numbers_are_read_at_the_positions_of_the_layout() -> None:
    layouts = LayoutTable()
    layouts[mask(entry(name="gemm_1"))]  # another layout before it
    text = entry(name="gemm_128x64", ts=12.25, args={"stream": 7, "correlation": -512, "note": "9 of 10"})
    assert read_numbers(layouts, text) == (
        [128, 64, 0, 7],
        {
            NUMBER_COLUMNS.index("ts"): 12,
            NUMBER_COLUMNS.index("dur"): 2,
            NUMBER_COLUMNS.index("correlation"): -512,
            NUMBER_COLUMNS.index("stream"): 7,
            FRACTION_OF["ts"]: 25,
        },
    )
    assert layouts.byte_length[layouts[mask(text)]] == len(text)


def test_layouts_of_one_template_differ_in_the_lengths_of_numbers() -> None:
    layouts = LayoutTable()
    codes = [layouts[mask(text)] for text in (entry(), entry(pid=9), entry(pid=4711), entry(dur=3.5))]
    assert codes == [1, 1, 2, 3]
    assert layouts.template_code[1] == layouts.template_code[2] != layouts.template_code[3]


def test_integer_parts_are_distinguished_from_other_digits() -> None:
    layouts = LayoutTable()
    text = entry(name="f_007", args={"x": 0.007, "y": 12, "z": "034"})
    code = layouts[mask(text)]
    for digits, is_integer in ((b"007", False), (b"12", True), (b"034", False), (b"0.007", True), (b"1.5", True)):
        assert layouts.is_integer_part(code, text.index(digits)) is is_integer, digits


@pytest.mark.parametrize(
    ("text", "most"),
    [
        (entry(dur=-9), 16),
        (entry(pid=9), 16),
        (entry(name="a9"), 16),
        (entry(args={"stream": 9}), 16),
        (entry(args={"x": 9}), 18),
        (entry(ts=1.9), 20),
    ],
)
def test_numbers_of_more_digits_than_can_be_read_are_not_supported(text: bytes, most: int) -> None:
    for digits, code in ((most, 1), (most + 1, 0)):
        assert LayoutTable()[mask(text.replace(b"9", b"9" * digits))] == code
    assert LayoutTable()[mask(entry(args={"x": "9" * 30}))] == 1  # text may hold any number


def test_entries_of_too_many_bytes_are_not_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    text = mask(entry())
    for most, code in ((len(text) + 1, 1), (len(text), 0)):
        monkeypatch.setattr("torchprof_tui.trace.decode.template.layouts._MAX_ENTRY_BYTES", most)
        assert LayoutTable()[text] == code


@pytest.mark.parametrize(
    "text",
    [
        entry(ph="M"),
        entry(name="a1b").replace(b"a1b", b"a\x01b"),
        entry()[:-1],
    ],
)
def test_layouts_that_are_not_plain_are_not_supported(text: bytes) -> None:
    assert LayoutTable()[mask(text)] == 0


def test_too_many_layouts_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchprof_tui.trace.decode.template.layouts.MAX_LAYOUTS", 20)
    layouts = LayoutTable()
    assert [layouts[mask(entry(name="n" * k))] for k in range(100)] == [*range(1, 20), *[0] * 81]
    unsupported = LayoutTable()
    assert [unsupported[mask(entry(ph="M", name="n" * k))] for k in range(100)] == [0] * 100
    assert len(unsupported) == 40  # the memory for unsupported layouts is bounded, too
