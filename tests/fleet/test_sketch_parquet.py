"""Test arrays built from buffers against those that pyarrow builds from Python objects."""

from __future__ import annotations

import numpy as np
import pytest

from torchprof_fleet.analysis.rank_sketch import (
    build_lists,
    build_numbers,
    build_texts,
    read_codes,
    read_lists,
    read_numbers,
)

arrow = pytest.importorskip("pyarrow")

TEXTS = ["a", "", "größe", "\ud800x", "日本"]


@pytest.mark.parametrize("numbers", [[], [0], [-(2**63), 5, 2**63 - 1]])
def test_numbers_return_as_they_were(numbers: list[int]) -> None:
    built = build_numbers(arrow, numbers)
    assert built.equals(arrow.array(numbers, arrow.int64()))
    assert read_numbers(built, np.int64).tolist() == numbers
    assert read_numbers(built.slice(1), np.int64).tolist() == numbers[1:]
    assert build_numbers(arrow, numbers[1:2], np.int32).equals(arrow.array(numbers[1:2], arrow.int32()))


@pytest.mark.parametrize("index", [[], [0], [4, 1, 1, 3, 0, 2]])
def test_texts_are_those_at_the_indexes_without_lone_surrogates(index: list[int]) -> None:
    expected = [TEXTS[number].replace("\ud800", "?") for number in index]
    built = build_texts(arrow, TEXTS, np.array(index, np.int64))
    built.validate(full=True)
    assert built.to_pylist() == expected
    codes, texts = read_codes(built.dictionary_encode())
    assert [texts[code] for code in codes.tolist()] == expected


def test_lists_return_as_they_were() -> None:
    built = build_lists(arrow, [2, 0, 1], build_numbers(arrow, [7, 8, 9]))
    assert built.to_pylist() == [[7, 8], [], [9]]
    offsets, values = read_lists(built)
    assert (offsets.tolist(), read_numbers(values, np.int64).tolist()) == ([0, 2, 2, 3], [7, 8, 9])


def test_arrays_of_other_types_and_nulls_are_refused() -> None:
    for array in (arrow.array([1.5]), arrow.array([1, None]), arrow.array([1], arrow.int32())):
        with pytest.raises(ValueError, match="not int64 without nulls"):
            read_numbers(array, np.int64)
    with pytest.raises(ValueError, match="int32"):
        read_numbers(arrow.array([1]), np.int32)
    with pytest.raises(ValueError, match="texts"):
        read_codes(arrow.array(["a"]))
    with pytest.raises(ValueError, match="null"):
        read_codes(arrow.array(["a", None]).dictionary_encode())
    with pytest.raises(ValueError, match="null"):
        read_lists(arrow.array([[1], None]))


def test_more_text_than_an_array_can_hold_is_refused() -> None:
    with pytest.raises(OverflowError):
        build_texts(arrow, ["x" * (1 << 20)], np.zeros(1 << 11, np.int64))
