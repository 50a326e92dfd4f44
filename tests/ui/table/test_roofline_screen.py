"""Test the screen of the roofline where the terminal draws no pictures."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot

from tests.helpers.explorer_app import explorer, settled, two_steps
from tests.helpers.long_run import keep_some
from tests.helpers.pattern_traces import GEMM, H200
from tests.helpers.shape_traces import load_entries, op_with_shapes
from torchprof_tui.ui.table.roofline_screen import RooflinePanel, RooflineScreen
from torchprof_tui.ui.table.roofline_text import format_table

H = "c10::BFloat16"


async def open_roofline(pilot: Pilot[None]) -> RooflinePanel:
    await settled(pilot)
    await pilot.press(":", *"roofline", "enter")
    await settled(pilot)
    assert isinstance(pilot.app.screen, RooflineScreen)
    return pilot.app.screen.query_one(RooflinePanel)


def read_lines(panel: RooflinePanel) -> list[str]:
    return [strip.text.rstrip() for strip in panel.render_lines(panel.size.region)]


@pytest.mark.parametrize("size", keep_some([((80, 24),), ((160, 48),)], 1))
async def test_it_has_the_plot_and_the_kernels(tmp_path: Path, size: tuple[int, int]) -> None:
    trace = load_entries(
        tmp_path, op_with_shapes("aten::mm", [[8192, 8192], [8192, 8192]], [H, H], 0, 20, 1500, GEMM), H200
    )
    async with explorer(trace, size) as (_, pilot):
        panel = await open_roofline(pilot)
        lines = read_lines(panel)
        assert " · NVIDIA H200 · memory 4,800 GB/s · bf16 989.4 TFLOP/s" in lines[0]
        assert any("╱" in line for line in lines)
        assert panel.roofline is not None
        assert {max(map(len, format_table(panel.roofline, cells))) for cells in (66, 78, 200)} == {66, 78}
        await pilot.press("end")
        last = read_lines(panel)
        table = next(number for number, line in enumerate(last) if line.startswith("   kernel"))
        assert last[table].endswith("limit")
        assert last[table + 1].endswith("TFLOP/s    74 %  compute"), last[table + 1]
        await pilot.press("y")
        assert pilot.app.clipboard == panel.text()
        assert set(pilot.app.screen.draw_pictures()) == {"roofline"}  # type: ignore[attr-defined]
        await pilot.press("q")
        assert not isinstance(pilot.app.screen, RooflineScreen)


@pytest.mark.long
async def test_it_says_why_there_is_none() -> None:
    async with explorer(two_steps()) as (_, pilot):
        panel = await open_roofline(pilot)
        assert read_lines(panel)[0].strip().startswith("no roofline: ")
        assert pilot.app.screen.draw_pictures() == {}  # type: ignore[attr-defined]
