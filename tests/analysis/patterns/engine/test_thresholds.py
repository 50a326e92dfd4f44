"""Test how thresholds are printed."""

from __future__ import annotations

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.thresholds import Threshold


def test_the_name_and_value_of_a_threshold_read_as_a_condition() -> None:
    assert thresholds.GPU_BUSY_LOW.text.startswith("GPU busy below 30 %: ")
    assert Threshold("half a percent", 0.005, "share", "why").text == "half a percent 0.5 %: why"
    assert Threshold("shortest gap", 10_000, "ns", "why").text == "shortest gap 10.0 µs: why"
    assert Threshold("gaps", 3, "gaps", "why").text == "gaps 3: why"
    assert Threshold("waves", 4, "times", "why").text == "waves 4 times: why"
