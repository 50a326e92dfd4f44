"""Test the lane labels of kernel classes."""

from __future__ import annotations

from tests.helpers.pattern_traces import GEMM
from tests.helpers.trace_builder import cpu, kernel, memcpy, overhead, trace
from torchprof_tui.analysis.patterns.engine.lane_labels import kernel_class_label


def test_events_say_what_they_are() -> None:
    shown = trace(
        cpu("aten::mm", 0, 5), kernel(GEMM, 10, 5), memcpy("Memcpy DtoD (Device -> Device)", 20, 5),
        overhead("Lazy Function Loading", 3, 1),
    )  # fmt: skip
    labels = {shown.event(row).name: kernel_class_label(shown, row) for row in range(len(shown))}
    assert labels == {
        "aten::mm": "",
        GEMM: "gemm",
        "Memcpy DtoD (Device -> Device)": "memory",
        "Lazy Function Loading": "",
    }
