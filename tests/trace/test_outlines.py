"""Codes for outlines, and where they say that numbers stand, against a walk through the text."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tui.trace.outlines import FRACTION_OF, HEAD, Outlines
from tui.trace.patterns import COLUMNS


def entry(**keys: Any) -> bytes:
    """Without its brace, and with its comma."""
    every = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 1.5, "dur": 2, **keys}
    return json.dumps(every).encode()[1:] + b","


def outline(text: bytes) -> bytes:
    return re.sub(rb"\d", b"0", text)


def numbers(outlines: Outlines, text: bytes) -> list[tuple[int, int]]:
    """(kind, value) of each number of an entry, read where its outline says."""
    code = outlines[outline(text)]
    first = int(outlines.first[code])
    rows = outlines.rows[first : first + int(outlines.many[code])].tolist()
    return [(kind, sign * int(text[end - digits : end])) for kind, end, digits, sign in rows]


def test_numbers_stand_where_the_outline_says() -> None:
    outlines = Outlines()
    text = entry(name="gemm_128x64", ts=12.25, args={"stream": 7, "correlation": -512, "note": "9 of 10"})
    assert numbers(outlines, text) == [
        *[(HEAD, value) for value in (128, 64, 0, 7)],
        (COLUMNS.index("ts"), 12),
        (FRACTION_OF["ts"], 25),
        (COLUMNS.index("dur"), 2),
        (COLUMNS.index("correlation"), -512),
        (COLUMNS.index("stream"), 7),
    ]
    code = outlines[outline(text)]
    assert (outlines.size[code], outlines.heads[code]) == (len(text), 4)


def test_outlines_of_one_skeleton_differ_in_lengths_alone() -> None:
    outlines = Outlines()
    codes = [outlines[outline(text)] for text in (entry(), entry(pid=9), entry(pid=4711), entry(dur=3.5))]
    assert codes == [1, 1, 2, 3]
    assert outlines.skeleton[1] == outlines.skeleton[2] != outlines.skeleton[3]


def test_whole_parts_of_numbers_are_told_from_other_digits() -> None:
    outlines = Outlines()
    text = entry(name="f_007", args={"x": 0.007, "y": 12, "z": "034"})
    code = outlines[outline(text)]
    for digits, whole in ((b"007", False), (b"12", True), (b"034", False), (b"0.007", True), (b"1.5", True)):
        assert outlines.is_whole(code, text.index(digits)) is whole, digits


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
    assert Outlines()[outline(text)] == 0


def test_a_file_of_ever_new_outlines_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui.trace.outlines.MOST_OUTLINES", 20)
    outlines = Outlines()
    assert [outlines[outline(entry(name="n" * k))] for k in range(100)] == [*range(1, 20), *[0] * 81]
    fresh = Outlines()
    assert [fresh[outline(entry(ph="M", name="n" * k))] for k in range(100)] == [0] * 100
    assert len(fresh) == 40  # nor are those remembered without end
