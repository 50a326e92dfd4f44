"""Regular expressions that are compiled at their first use."""

from __future__ import annotations

import re

import pytest

from torchprof_tui.trace.core.late_regex import compile_later


def test_methods_are_those_of_the_compiled_expression() -> None:
    digits = compile_later(r"\d+")
    match = digits.search("ab12c3")
    assert match is not None
    assert match.group() == "12"
    assert digits.findall("1 2") == ["1", "2"]
    assert digits.sub("x", "a1") == "ax"
    assert digits.fullmatch("1a") is None
    assert [found.group() for found in digits.finditer("1 2")] == ["1", "2"]
    assert digits.pattern == r"\d+"


def test_flags_and_bytes_are_passed_on() -> None:
    assert compile_later("a", re.IGNORECASE).match("A")
    assert compile_later(rb"[0-9]+").findall(b"12 3") == [b"12", b"3"]


def test_nothing_is_compiled_before_the_first_use() -> None:
    invalid = compile_later("(")
    with pytest.raises(re.error):
        invalid.match("")
