"""Masked text, leading zeros and values: compared with regular expressions and `int`."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from torchprof_tui.trace.core.arrays import I64, U8
from torchprof_tui.trace.decode.template import layouts
from torchprof_tui.trace.decode.template.layouts import MAX_DIGITS, DigitMask

texts = st.lists(
    st.one_of(
        st.sampled_from([b".", b"-", b'"', b" 0", b"00", b",\n", b"ts", b"\x00\xff"]),
        st.integers(0, 10**20).map(b"%d".__mod__),
    ),
    max_size=40,
).map(lambda parts: b"\n" + b"".join(parts))


@pytest.fixture(autouse=True, params=[16, 1 << 16])
def block_size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results must not depend on where one block ends and the next begins, nor on the size of the first buffers."""
    monkeypatch.setattr(layouts, "_BLOCK_BYTES", request.param)
    monkeypatch.setattr(layouts, "_FIRST_TEXT_BYTES", request.param)


@given(texts, texts)
def test_masked_text_and_zeros_equal_regular_expressions(first: bytes, second: bytes) -> None:
    digit_mask = DigitMask()
    for text in (first, second):  # the buffers are reused, and must not affect the next text
        masked, zeros = digit_mask.mask_digits(memoryview(text))
        assert masked == re.sub(rb"\d", b"0", text)
        assert zeros.tolist() == [zero.start() for zero in re.finditer(rb"(?<![\d.])0(?=\d)", text)]


@given(texts, texts)
def test_values_equal_int(first: bytes, second: bytes) -> None:
    digit_mask = DigitMask()
    for text in (first, second):
        digit_mask.mask_digits(text)
        runs, end, lengths = find_runs(text)
        assert digit_mask.read_values(end, lengths).tolist() == [int(run) for run in runs]


@given(texts)
@example(b" 1234567800000000 1234567801000000 1234567810000000 34567801000000 4567801000000")
def test_hash_words_are_equal_only_for_the_same_digits(text: bytes) -> None:
    digit_mask = DigitMask()
    digit_mask.mask_digits(text)
    runs, end, lengths = find_runs(text)
    last, long, leading = digit_mask.read_hash_words(end, lengths)
    assert long.tolist() == [k for k, run in enumerate(runs) if len(run) > 8]
    leading_of = dict(zip(long.tolist(), leading.tolist(), strict=True))
    words = [(word, leading_of.get(k)) for k, word in enumerate(last.tolist())]
    # The number of leading digits is not in the words: it is in the layout, and so is that 7 differs from 07.
    assert len(set(zip(words, map(len, runs), strict=True))) == len(set(runs))
    assert len(set(zip(runs, words, strict=True))) == len(set(runs))


def find_runs(text: bytes) -> tuple[list[bytes], I64, U8]:
    """The runs of digits whose values can be read, where they end, and their lengths."""
    matches = [run for run in re.finditer(rb"\d+", text) if len(run[0]) <= MAX_DIGITS]
    ends, lengths = [run.end() for run in matches], [len(run[0]) for run in matches]
    return [run[0] for run in matches], np.array(ends, np.int64), np.array(lengths, np.uint8)
