"""Panels side by side, enlarged, and which part has the keys."""

from __future__ import annotations

import pytest

from tests.helpers.explorer_app import event_of, explorer, settled, text_of, two_steps, until
from tests.helpers.golden_files import load_sample
from tests.helpers.long_run import keep_some
from tests.helpers.trace_builder import cpu, kernel, runtime, step, trace
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.status_line import StatusLine
from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen
from torchprof_tui.ui.explorer.lanes_area import PanelSize


def launch_bound() -> Trace:
    """Build four steps in which the GPU waits for the CPU: 5 kernels of 2 µs in 400 µs each."""
    events = []
    for number in range(4):
        start = number * 400
        events.append(step(number, start, 390))
        for k in range(5):
            corr = number * 5 + k + 1
            events.append(cpu("aten::mm", start + 10 + 70 * k, 60))
            events.append(runtime("cudaLaunchKernel", start + 20 + 70 * k, 10, corr=corr))
            events.append(kernel("gemm", start + 35 + 70 * k, 2, corr=corr))
    return trace(*events)


def shown_panels(screen: ExplorerScreen) -> list[str]:
    names = ("details", "chain", "kernel", "cheatsheet", "range", "doctor")
    return [name for name in names if screen.query_one(f"#{name}").display]


@pytest.mark.parametrize(
    ("width", "at_first", "after_kernel"),
    keep_some(
        [
            (120, ["details"], ["kernel"]),
            (200, ["details", "cheatsheet"], ["details", "kernel"]),
            (300, ["details", "chain", "cheatsheet"], ["details", "kernel", "cheatsheet"]),
        ],
        1,
    ),
)
async def test_wide_screens_show_the_panels_used_last_side_by_side(
    width: int, at_first: list[str], after_kernel: list[str]
) -> None:
    async with explorer(two_steps(), (width, 50)) as (screen, pilot):
        assert shown_panels(screen) == at_first
        await pilot.press("k")
        await pilot.pause()
        assert shown_panels(screen) == after_kernel
        widths = [screen.query_one(f"#{name}").size.width for name in after_kernel]
        assert sum(widths) == width
        assert max(widths) - min(widths) <= 1
        titles = next(line for line in text_of(screen).split("\n") if "[kernel]" in line)
        for name in after_kernel if len(after_kernel) > 1 else ():  # each title stands above its panel
            offset = screen.query_one(f"#{name}").region.x
            assert titles[offset : offset + 14].strip("─┬[ ").startswith(name)


@pytest.mark.long
async def test_nothing_stands_twice_where_the_cheatsheet_is_beside_the_details() -> None:
    async with explorer(launch_bound(), (240, 60)) as (screen, pilot):
        await settled(pilot)
        assert text_of(screen).count("overhead-bound  ") == 1
        assert "4 steps, median 390.0 µs" in text_of(screen)
    async with explorer(launch_bound(), (120, 40)) as (screen, pilot):
        await settled(pilot)
        text = text_of(screen)
        assert "1 ● " in text  # the top findings, each with its key
        assert "4 steps, median" not in text


@pytest.mark.long
async def test_a_number_goes_to_that_finding_and_its_first_evidence() -> None:
    async with explorer(load_sample("generate_eager"), (120, 50)) as (screen, pilot):
        await settled(pilot)
        second = next(line for line in text_of(screen).split("\n") if line.lstrip().startswith("2 ●"))
        await pilot.press("2")
        panel = screen._panel_controller.cheatsheet_panel
        assert panel.finding is not None
        assert panel.finding.id == second.split()[2]
        assert screen._dock.active_name == "cheatsheet"
        if len(panel.finding.answer.events):
            assert screen.view_state.selected in panel.finding.answer.events
    async with explorer(two_steps(), (120, 50)) as (screen, pilot):
        await settled(pilot)
        await pilot.press("9")
        assert "there is no finding 9" in screen.query_one(StatusLine).message


async def test_z_enlarges_the_panels_to_the_whole_screen_and_back() -> None:
    async with explorer(two_steps(), (100, 40)) as (screen, pilot):
        normal = screen._dock.size.height
        await pilot.press("z")
        await pilot.pause()
        assert normal < screen._dock.size.height < 30
        await pilot.press("z")
        await pilot.pause()
        assert screen._dock.size.height == 36  # all but title, two lines of verdict and status line
        assert not screen.query_one("#lanes").display
        await pilot.press("escape")
        await pilot.pause()
        assert screen.panel_size is PanelSize.NORMAL
        assert screen._dock.size.height == normal
        assert screen.query_one("#lanes").display


async def test_z_opens_panels_that_were_closed() -> None:
    async with explorer(two_steps(), (100, 40)) as (screen, pilot):
        await pilot.press("i")
        assert not screen._dock.display
        await pilot.press("z")
        await pilot.pause()
        assert screen._dock.display
        assert screen.panel_size is PanelSize.ENLARGED


@pytest.mark.long
async def test_a_range_that_is_marked_while_panels_are_hidden_says_how_to_see_its_statistics() -> None:
    name = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>(int)"
    long_names = [event for at in (20, 30, 40) for event in (runtime("cudaLaunchKernel", at, 5, corr=at),)]
    shown = trace(step(0, 0, 100), *long_names, *(kernel(name, at + 60, 5, corr=at) for at in (20, 30, 40)))
    async with explorer(shown, (80, 24)) as (screen, pilot):
        await pilot.press("i", "right", "m", "right")
        assert "range 15.0 µs · i shows its statistics" in text_of(screen)  # while it grows
        await pilot.press("m")
        assert "range 15.0 µs · i shows its statistics" in text_of(screen)
        await pilot.press("i")
        assert shown_panels(screen) == ["range"]
        await pilot.press("escape", "i", "i")
        assert shown_panels(screen) == ["details"]


@pytest.mark.long
async def test_page_keys_act_on_the_part_that_has_the_keys() -> None:
    deep = [cpu(f"f{depth}", depth, 200 - 2 * depth) for depth in range(60)]
    shown = trace(*deep, runtime("cudaLaunchKernel", 70, 5, corr=1), kernel("gemm", 80, 5, corr=1))
    async with explorer(shown, (100, 30)) as (screen, pilot):
        screen.view_state.select(event_of(shown, "gemm"))
        await pilot.press("i", "i")
        await pilot.press("pagedown")
        assert screen.view_state.lane_view.top > 0
        await pilot.press("pageup", "l")
        await until(pilot, lambda: screen._panel_controller.chain_panel.chain is not None)
        await pilot.pause()
        assert "[chain ↑↓]" in text_of(screen)
        screen._panel_controller.chain_panel.scroll_lines(-100)
        before = screen.view_state.lane_view.top
        await pilot.press("pagedown")
        assert screen.view_state.lane_view.top == before
        assert screen._panel_controller.chain_panel._top > 0


async def test_a_click_on_a_panel_makes_it_the_active_one() -> None:
    async with explorer(two_steps(), (200, 50)) as (screen, pilot):
        await pilot.click("#cheatsheet")
        assert screen._dock.active_name == "cheatsheet"
        await pilot.click("#details")
        assert screen._dock.active_name == "details"


async def test_the_frame_of_a_panel_names_the_keys_that_lead_on() -> None:
    """As many as fit, above the panel that they are of; empty panels have some, too."""
    shown = two_steps()
    async with explorer(shown, (160, 48)) as (screen, pilot):
        await settled(pilot)

        def frame() -> str:
            return next(line for line in text_of(screen).split("\n") if "[" in line and "doctor" in line)

        for key, hint in (("l", "→ takes an event"), ("k", "t lists all"), ("C", "C hide it")):
            await pilot.press(key)
            await settled(pilot)
            assert hint in frame()
        await pilot.press("k")
        screen.view_state.select(event_of(shown, "gemm"))
        screen._refresh_widgets()
        await settled(pilot)
        assert "[ launch" in frame()
        await pilot.press("[")
        await settled(pilot)
        assert "] GPU work" in frame()


async def test_the_first_lines_of_a_small_panel_say_name_time_share_cause_and_keys() -> None:
    frames = [cpu(f"f{depth}", 10 + depth, 90 - 2 * depth) for depth in range(20)]
    shown = trace(
        step(0, 0, 100),
        *frames,
        cpu("aten::mm", 32, 10),
        runtime("cudaLaunchKernel", 35, 5, corr=1),
        kernel("gemm", 55, 40, corr=1),
    )
    async with explorer(shown, (80, 24)) as (screen, pilot):
        screen.view_state.select(event_of(shown, "gemm"))
        screen._refresh_widgets()
        await settled(pilot)
        lines = text_of(screen).split("\n")
        first = next(index for index, line in enumerate(lines) if "[details]" in line)
        head, time, cause, keys = lines[first + 1 : first + 5]
        assert "gemm" in head
        assert "40.0 µs · 40 % of step #0" in time
        assert "launched by cudaLaunchKernel 20.0 µs before, in aten::mm" in cause
        assert "k kernel" in keys
