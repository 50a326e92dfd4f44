"""The range panel: names of kernels and of operators."""

from __future__ import annotations

import pytest

from tests.helpers.trace_builder import cpu, event, kernel, trace
from torchprof_tui.analysis.time.range_statistics import compute_range_statistics
from torchprof_tui.ui.explorer.panels.range_panel import RangePanel

MUL = "at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> >"


@pytest.mark.parametrize("width", [60, 120])
def test_kernels_have_short_names_that_differ(width: int) -> None:
    names = [
        f"void at::native::vectorized_elementwise_kernel<{k}, {MUL}, std::array<char*, 3ul> >(int)" for k in (2, 4)
    ]
    shown = trace(kernel(names[0], 0, 9), kernel(names[1], 20, 5), cpu("nn.Module: " + "Layer" * 20, 0, 5))
    panel = RangePanel(shown)
    panel.show_range((0, 30_000), live=False)
    panel.set_statistics(compute_range_statistics(shown, 0, 30_000))
    text = "\n".join("".join(run for run, _ in line) for line in panel.content(width))
    assert "mul fp32 (2 per load)" in text
    assert "mul fp32 (4 per load)" in text
    assert "at::native" not in text
    assert "nn.Module" not in text  # a long name loses its prefix before it is cut
    assert "LayerLayer" in text


def test_lanes_of_the_profiler_which_are_not_on_screen_are_not_listed() -> None:
    shown = trace(cpu("aten::mm", 0, 9), event("PyTorch Profiler (0)", 0, 30, "Trace", pid="Spans", tid="Profiler"))
    panel = RangePanel(shown)
    panel.show_range((0, 9_000), live=False)
    panel.set_statistics(compute_range_statistics(shown, 0, 9_000))
    lines = ["".join(run for run, _ in line) for line in panel.content(60)]
    assert [line for line in lines if "100 %" in line and "CPU" in line] != []
    assert not any("spans" in line for line in lines)
