"""Guess, then look: what people write, and how it is set beside what ran."""

from __future__ import annotations

import pytest

from tests.analysis.patterns.made import ADD, GEMM, SOFTMAX
from tests.build import cpu, kernel, memcpy, trace
from tui.analysis.guess import Guess, compare, parse

US = 1000


@pytest.mark.parametrize(
    ("text", "guesses"),
    [
        ("gemm", [Guess("gemm", 1)]),
        ("3 gemm, softmax, add x2", [Guess("gemm", 3), Guess("softmax", 1), Guess("add", 2)]),
        ("GEMM 2, 1 gemm", [Guess("gemm", 3)]),
        (" 2x gelu_backward ,", [Guess("gelu_backward", 2)]),
        ("layer norm 4", [Guess("layer norm", 4)]),
    ],
)
def test_what_people_write(text: str, guesses: list[Guess]) -> None:
    assert parse(text) == guesses


@pytest.mark.parametrize("text", ["", " , ", "3", "3 gemm 4", "gemm 12345678901"])
def test_what_is_not_understood(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse(text)


def ran() -> list[tuple[str, int, int]]:
    made = trace(
        cpu("aten::mm", 0, 5),
        kernel(GEMM, 10, 5),
        kernel(GEMM, 20, 5),
        kernel(ADD, 30, 5),
        kernel(SOFTMAX, 40, 5, stream=9),
        memcpy("Memcpy DtoD (Device -> Device)", 50, 5),
        kernel(GEMM, 95, 50),  # begins in the range
        kernel(GEMM, 200, 5),
    )
    lines = compare(made, 10 * US, 100 * US, parse("2 gemm, add, nvjet_sm80, reduction"))
    assert all(list(line.events) == sorted(line.events, key=lambda row: made.start[row]) for line in lines)
    assert all(len(line.events) == line.found for line in lines)
    return [(line.what, line.expected, line.found) for line in lines]


def test_expectation_beside_reality_mismatches_first() -> None:
    lines = ran()
    assert {line for line in lines if line[1] == line[2]} == {("add", 1, 1)}
    assert lines[-1] == ("add", 1, 1)
    assert ("gemm", 2, 3) in lines
    assert ("nvjet_sm80", 1, 0) in lines
    assert ("reduction", 1, 0) in lines
    unexpected = [line for line in lines if line[1] == 0]
    assert sum(found for _, _, found in unexpected) == 2  # the softmax and the copy
    assert sum(found for _, _, found in lines) == 6


def test_a_name_comes_before_a_class() -> None:
    made = trace(kernel(GEMM, 0, 5), kernel("ampere_sgemm_128x64_nn", 10, 5))
    lines = {line.what: line.found for line in compare(made, 0, 100 * US, parse("gemm, nvjet"))}
    assert lines == {"nvjet": 1, "gemm": 1}


def test_an_empty_range() -> None:
    made = trace(kernel(GEMM, 0, 5))
    (line,) = compare(made, 50 * US, 60 * US, parse("gemm"))
    assert (line.expected, line.found, line.matches) == (1, 0, False)
