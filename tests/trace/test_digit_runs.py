"""Runs, skeletons and values against the standard library's regular expressions and `int`."""

from __future__ import annotations

import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tui.trace.digit_runs import MARK, MOST_DIGITS, Runs

texts = st.lists(
    st.one_of(
        st.sampled_from([b".", b"-", b'"', b" 0", b"00", b",\n", b"ts"]), st.integers(0, 10**20).map(b"%d".__mod__)
    ),
    max_size=40,
).map(b"".join)


@given(texts)
def test_runs_and_skeleton_are_those_of_a_regular_expression(text: bytes) -> None:
    runs = Runs(memoryview(text))
    spans = [found.span() for found in re.finditer(rb"\d+", text)]
    assert list(zip(runs.start.tolist(), runs.end.tolist(), strict=True)) == spans
    assert runs.skeleton()[MOST_DIGITS:-1] == re.sub(rb"\d+", MARK, text)
    assert runs.text(0, len(text)) == text


@given(texts)
def test_values_are_those_of_int(text: bytes) -> None:
    runs = Runs(text)
    digits = runs.end - runs.start
    short = digits <= MOST_DIGITS
    expected = [int(found) for found in re.findall(rb"\d+", text) if len(found) <= MOST_DIGITS]
    assert runs.values(runs.end[short], digits[short]).tolist() == expected


@given(texts)
def test_zeros_in_front_and_length(text: bytes) -> None:
    runs = Runs(text)
    found = list(re.finditer(rb"\d+", text))
    zeros = [k for k, run in enumerate(found) if re.fullmatch(rb"0\d+", run[0]) and text[: run.start()][-1:] != b"."]
    assert runs.leading_zero().tolist() == zeros
    assert runs.longer_than(5).tolist() == [k for k, run in enumerate(found) if len(run[0]) > 5]


def test_words_hold_the_digits_and_nothing_else() -> None:
    runs = Runs(b"x12345678901y007")
    words = runs.words(runs.end, np.array([8, 3]))
    assert [int(word).to_bytes(8, "little").lstrip(b"\0") for word in words] == [b"45678901", b"007"]
