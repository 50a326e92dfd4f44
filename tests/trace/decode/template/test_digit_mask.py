"""Outlines, zeros and values against the standard library's regular expressions and `int`."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from torchprof_tui.trace.core.arrays import I64, U8
from torchprof_tui.trace.decode.template import digit_mask
from torchprof_tui.trace.decode.template.digit_mask import MAX_DIGITS, DigitMask

texts = st.lists(
    st.one_of(
        st.sampled_from([b".", b"-", b'"', b" 0", b"00", b",\n", b"ts", b"\x00\xff"]),
        st.integers(0, 10**20).map(b"%d".__mod__),
    ),
    max_size=40,
).map(lambda parts: b"\n" + b"".join(parts))


@pytest.fixture(autouse=True, params=[16, 1 << 16])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may depend on where one block ends and the next begins."""
    monkeypatch.setattr(digit_mask, "_BLOCK_BYTES", request.param)


@given(texts, texts)
def test_outline_and_zeros_are_those_of_a_regular_expression(before: bytes, text: bytes) -> None:
    loaded = DigitMask()
    for each in (before, text):  # what is kept from one text says nothing about the next
        outline, zeros = loaded.mask_digits(memoryview(each))
        assert outline == re.sub(rb"\d", b"0", each)
        assert zeros.tolist() == [found.start() for found in re.finditer(rb"(?<![\d.])0(?=\d)", each)]


@given(texts, texts)
def test_values_are_those_of_int(before: bytes, text: bytes) -> None:
    loaded = DigitMask()
    for each in (before, text):
        loaded.mask_digits(each)
        found, end, lengths = runs(each)
        assert loaded.read_values(end, lengths).tolist() == [int(run) for run in found]


@given(texts)
@example(b" 1234567800000000 1234567801000000 1234567810000000 34567801000000 4567801000000")
def test_marks_are_the_same_for_the_same_digits_alone(text: bytes) -> None:
    loaded = DigitMask()
    loaded.mask_digits(text)
    found, end, lengths = runs(text)
    last, long, before = loaded.read_hash_words(end, lengths)
    assert long.tolist() == [place for place, run in enumerate(found) if len(run) > 8]
    first = dict(zip(long.tolist(), before.tolist(), strict=True))
    marks = [(mark, first.get(place)) for place, mark in enumerate(last.tolist())]
    # How many digits those before the last eight have is the outline's to tell, and so is that 7 is not 07.
    assert len(set(zip(marks, map(len, found), strict=True))) == len(set(found))
    assert len(set(zip(found, marks, strict=True))) == len(set(found))


def runs(text: bytes) -> tuple[list[bytes], I64, U8]:
    """The runs of digits whose values can be asked for, where they end, and their lengths."""
    found = [run for run in re.finditer(rb"\d+", text) if len(run[0]) <= MAX_DIGITS]
    ends, lengths = [run.end() for run in found], [len(run[0]) for run in found]
    return [run[0] for run in found], np.array(ends, np.int64), np.array(lengths, np.uint8)
