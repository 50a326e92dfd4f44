"""Phases named by annotations: numbers of any length end no check."""

from __future__ import annotations

import pytest

from torchprof_tui.analysis.patterns.rules.serving import parse_phase


@pytest.mark.parametrize(
    "name",
    [
        "execute_" + "9" * 5_000 + "_context_1(2)_generation_3(4)",
        "execute_1_context_" + "9" * 5_000 + "(2)_generation_3(4)",
        "execute_1_context_1(2)_generation_" + "9" * 5_000 + "(4)",
        "step[DECODE bs=" + "9" * 5_000 + "]",
    ],
)
def test_numbers_beyond_any_batch_are_no_batch(name: str) -> None:
    phase = parse_phase(name)
    assert phase is None or phase[1] < 10**10
