"""Tests of names of any length: the work on one is limited."""

from __future__ import annotations

import pytest

from torchprof_tui.analysis.kernel.names import name_decoder
from torchprof_tui.analysis.kernel.names.name_decoder import MAX_DECODED_LENGTH, decode_kernel_name
from torchprof_tui.analysis.kernel.names.syntax import QualifiedName, parse_function


def test_a_name_that_is_far_too_long_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []

    def count_parse(name: str) -> QualifiedName:
        parsed.append(len(name))
        return parse_function(name)

    monkeypatch.setattr(name_decoder, "parse_function", count_parse)
    decoded = decode_kernel_name("conv_" * MAX_DECODED_LENGTH)
    assert not decoded.known
    assert decoded.display == ("conv_" * 8)[:39] + "…"
    assert parsed == []
    decode_kernel_name("some_kernel")
    assert parsed == [len("some_kernel")]
