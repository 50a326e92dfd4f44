"""Outlines, zeros and values against the standard library's regular expressions and `int`."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui.trace import digits
from tui.trace.digits import MOST_DIGITS, Digits

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
    monkeypatch.setattr(digits, "_BLOCK", request.param)


@given(texts, texts)
def test_outline_and_zeros_are_those_of_a_regular_expression(before: bytes, text: bytes) -> None:
    loaded = Digits()
    for each in (before, text):  # what is kept from one text says nothing about the next
        loaded.load(memoryview(each))
        outline, zeros = loaded.outline()
        assert outline == re.sub(rb"\d", b"0", each)
        assert zeros.tolist() == [found.start() for found in re.finditer(rb"(?<![\d.])0(?=\d)", each)]


@given(texts)
def test_values_are_those_of_int(text: bytes) -> None:
    text = b" " * 8 + text
    found = [run for run in re.finditer(rb"\d+", text) if len(run[0]) <= MOST_DIGITS]
    loaded = Digits()
    loaded.load(text)
    end, lengths = (np.array(column, np.int64) for column in ([f.end() for f in found], [len(f[0]) for f in found]))
    assert loaded.values(end, lengths).tolist() == [int(run[0]) for run in found]
