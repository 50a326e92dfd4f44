"""Codes for outlines, and where they say that numbers stand, against a walk through the text."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from torchprof_tui.trace.core.arrays import I32
from torchprof_tui.trace.decode.template.layouts import FRACTION_OF, LayoutTable, digits_of, ends_of, negative_of
from torchprof_tui.trace.decode.template.templates import NUMBER_COLUMNS


def entry(**keys: Any) -> bytes:
    """Without its brace, and with its comma."""
    every = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1.5, "dur": 2, **keys}
    return json.dumps(every).encode()[1:] + b","


def outline(text: bytes) -> bytes:
    return re.sub(rb"\d", b"0", text)


def numbers(outlines: LayoutTable, text: bytes) -> tuple[list[int], dict[int, int]]:
    """The values of its head's runs, and those of its numbers by kind, read where its outline says."""
    code = outlines[outline(text)]
    first = int(outlines.first_head_run[code])
    head = outlines.head_run_positions[first : first + int(outlines.head_run_count[code])]
    found = {}
    for kind, place in enumerate(outlines.number_positions[:, code]):
        if place:
            found[kind] = -value(text, place) if negative_of(place) else value(text, place)
    return [value(text, place) for place in head], found


def value(text: bytes, place: I32) -> int:
    return int(text[int(ends_of(place)) - int(digits_of(place)) : int(ends_of(place))])


def test_numbers_stand_where_the_outline_says() -> None:
    outlines = LayoutTable()
    outlines[outline(entry(name="gemm_1"))]  # the rows of another one lie before
    text = entry(name="gemm_128x64", ts=12.25, args={"stream": 7, "correlation": -512, "note": "9 of 10"})
    assert numbers(outlines, text) == (
        [128, 64, 0, 7],
        {
            NUMBER_COLUMNS.index("ts"): 12,
            NUMBER_COLUMNS.index("dur"): 2,
            NUMBER_COLUMNS.index("correlation"): -512,
            NUMBER_COLUMNS.index("stream"): 7,
            FRACTION_OF["ts"]: 25,
        },
    )
    assert outlines.byte_length[outlines[outline(text)]] == len(text)


def test_outlines_of_one_skeleton_differ_in_lengths_alone() -> None:
    outlines = LayoutTable()
    codes = [outlines[outline(text)] for text in (entry(), entry(pid=9), entry(pid=4711), entry(dur=3.5))]
    assert codes == [1, 1, 2, 3]
    assert outlines.template_code[1] == outlines.template_code[2] != outlines.template_code[3]


def test_whole_parts_of_numbers_are_told_from_other_digits() -> None:
    outlines = LayoutTable()
    text = entry(name="f_007", args={"x": 0.007, "y": 12, "z": "034"})
    code = outlines[outline(text)]
    for digits, whole in ((b"007", False), (b"12", True), (b"034", False), (b"0.007", True), (b"1.5", True)):
        assert outlines.is_integer_part(code, text.index(digits)) is whole, digits


@pytest.mark.parametrize(
    "text",
    [
        entry(ph="M"),
        entry(ts=1.0625),
        entry(pid=12345678901234567),
        entry(args={"x": 1234567890123456789}),
        entry(name="a1b").replace(b"a1b", b"a\x01b"),
        entry()[:-1],
    ],
)
def test_what_is_not_plain_is_not_understood(text: bytes) -> None:
    assert LayoutTable()[outline(text)] == 0


def test_a_file_of_ever_new_outlines_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchprof_tui.trace.decode.template.layouts.MAX_LAYOUTS", 20)
    outlines = LayoutTable()
    assert [outlines[outline(entry(name="n" * k))] for k in range(100)] == [*range(1, 20), *[0] * 81]
    fresh = LayoutTable()
    assert [fresh[outline(entry(ph="M", name="n" * k))] for k in range(100)] == [0] * 100
    assert len(fresh) == 40  # nor are those remembered without end
