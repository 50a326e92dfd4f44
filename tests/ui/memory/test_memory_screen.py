"""The memory screen by its keys: the same numbers as the command, the way to the lanes and back, and missing data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from textual.pilot import Pilot

from tests.helpers.explorer_app import explorer, settled, two_steps
from tests.helpers.golden_files import load_sample
from tests.helpers.long_run import keep_some
from tests.helpers.paths import SAMPLES
from torchprof_tui.analysis.memory.memory_history import BANDS, UNACCOUNTED, GroupBy, MemoryGroup
from torchprof_tui.cli import main
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.event_styles import ColorSupport, ThemeColors, build_palette
from torchprof_tui.ui.common.help_screen import HelpScreen
from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen
from torchprof_tui.ui.memory.memory_chart import RESERVED, Legend
from torchprof_tui.ui.memory.memory_screen import MemoryScreen
from torchprof_tui.ui.memory.memory_text import list_group_cells

SAMPLE = "train_gpt_stack_memory"


async def opened(screen: ExplorerScreen, pilot: Pilot[None]) -> MemoryScreen:
    await pilot.press("M")
    await settled(pilot)
    memory = screen.app.screen
    assert isinstance(memory, MemoryScreen)
    return memory


async def press(pilot: Pilot[None], *keys: str) -> None:
    await pilot.press(*keys)
    await settled(pilot)


def lines(screen: MemoryScreen) -> list[str]:
    return [strip.text.rstrip() for strip in screen._compositor.render_strips()]


def text_of(screen: MemoryScreen) -> str:
    return "\n".join(lines(screen))


def groups_on_screen(screen: MemoryScreen) -> list[tuple[str, ...]]:
    assert screen.state is not None
    return [list_group_cells(group, screen.state.state.allocated) for group in screen.state.groups]


def groups_of_command(capsys: pytest.CaptureFixture[str], at: str, by: str) -> list[tuple[str, ...]]:
    """Run `memory` and return the rows of its groups, split where columns are two spaces apart."""
    capsys.readouterr()
    path = SAMPLES / f"{SAMPLE}.pt.trace.json.gz"
    assert main(["memory", str(path), "--at", at, "--by", by, "--top", "0", "--no-cache"]) == 0
    printed = [line.strip() for line in capsys.readouterr().out.splitlines()]
    first = printed.index(f"by {by}") + 2
    last = next(number for number in range(first, len(printed)) if not printed[number])
    return [tuple(line.strip() for line in row.split("  ") if line.strip()) for row in printed[first:last]]


@pytest.mark.parametrize("by", keep_some(["category", "op", "phase", "line"], 1))
async def test_the_groups_at_the_cursor_are_those_of_the_command(by: str, capsys: pytest.CaptureFixture[str]) -> None:
    async with explorer(load_sample(SAMPLE), (120, 40)) as (screen, pilot):
        memory = await opened(screen, pilot)
        while memory.by.value != by:
            await press(pilot, "tab")
        at_peak = groups_on_screen(memory)
        memory.time = 12_345_000
        memory.refresh_view()
        await settled(pilot)
        later = groups_on_screen(memory)
    assert at_peak == groups_of_command(capsys, "peak", by)
    assert later == groups_of_command(capsys, "12.345ms", by)
    assert later != at_peak


@pytest.mark.long
async def test_what_is_alive_sums_to_the_curve_at_every_cell() -> None:
    async with explorer(load_sample(SAMPLE), (160, 48)) as (screen, pilot):
        memory = await opened(screen, pilot)
        await press(pilot, "w", "w", "d")
        shown, view = memory.device, memory.viewport
        assert shown is not None
        device, sums = shown.history, memory.chart.measure(view)[0]
        assert len(sums) == view.width
        for cell in range(view.width):
            inside = (device.memory.time >= view.time(cell)) & (device.memory.time < view.time(cell + 1))
            entered = device.find_state(view.time(cell) - 1)
            highest = max([entered.allocated, *device.memory.allocated[inside].tolist()])
            assert sums[cell].sum() == highest
        groups = {group.label: group.bytes for group in device.group_state(device.find_peak(), GroupBy.CATEGORY)}
        at_peak = shown.totals.sum_at(np.array([device.memory.peak]))[0]
        assert sorted(groups.values()) == sorted(size for size in at_peak.tolist() if size)


async def test_enter_shows_the_op_on_the_lanes_and_m_returns_to_its_allocation() -> None:
    async with explorer(load_sample(SAMPLE), (120, 40)) as (screen, pilot):
        memory = await opened(screen, pilot)
        await press(pilot, "down", "down")
        lifetime, shown = memory.current_lifetime, memory.device
        assert shown is not None
        op = int(shown.history.op[lifetime])
        await press(pilot, "enter")
        assert screen.app.screen is screen
        assert screen.view_state.selected == op
        again = await opened(screen, pilot)
        assert again.device is shown  # nothing is read twice
        assert int(shown.history.op[again.current_lifetime]) == op
        assert again.time == int(shown.begin[again.current_lifetime])
        assert "the largest allocation of the selected event" in lines(again)[-1]


async def test_the_cursor_moves_in_time_and_p_returns_to_the_peak() -> None:
    async with explorer(load_sample(SAMPLE), (80, 24)) as (screen, pilot):
        memory = await opened(screen, pilot)
        shown = memory.device
        assert shown is not None
        peak = int(shown.history.memory.time[shown.history.memory.peak])
        assert memory.time == peak
        assert "at 5.21 ms: 131 MiB allocated" in text_of(memory)
        await press(pilot, "right", "right")
        assert memory.time > peak
        assert f"at {format_duration(memory.time)}" in text_of(memory)
        await press(pilot, "end")
        assert memory.time == memory.viewport.limits[1] - 1
        await press(pilot, "p")
        assert memory.time == peak
        await press(pilot, "p")
        assert "the cursor is at the peak" in lines(memory)[-1]
        await press(pilot, "f")
        assert not memory.viewport.is_whole
        await press(pilot, "backspace", "backspace", "backspace")
        assert memory.viewport.is_whole
        await press(pilot, "backspace")
        assert "no earlier view" in lines(memory)[-1]
        await press(pilot, "s")
        assert "the whole trace is on screen" in lines(memory)[-1]


@pytest.mark.long
async def test_the_cursor_follows_the_view_to_other_times() -> None:
    async with explorer(load_sample(SAMPLE), (80, 24)) as (screen, pilot):
        memory = await opened(screen, pilot)
        await press(pilot, *"wwww", *">>")
        assert memory.viewport.t0 <= memory.time < memory.viewport.t1


async def test_the_list_is_of_what_is_alive_and_sums_to_the_curve() -> None:
    async with explorer(load_sample(SAMPLE), (120, 40)) as (screen, pilot):
        memory = await opened(screen, pilot)
        alive = memory.lifetimes.count
        await press(pilot, "v")
        assert memory.lifetimes.count > alive  # of all on screen
        await press(pilot, "v")
        shown = memory.device
        assert shown is not None
        peak = shown.history.find_peak()
        assert memory._listed_rows.tolist() == peak.alive.tolist()
        sizes = shown.history.lifetimes.bytes[memory._listed_rows]
        assert int(sizes.sum()) + peak.older.bytes + peak.unaccounted == peak.allocated
        assert (np.diff(sizes) <= 0).all()


@pytest.mark.long
async def test_a_filter_lists_matching_allocations_and_escape_clears_it() -> None:
    async with explorer(load_sample(SAMPLE), (120, 40)) as (screen, pilot):
        memory = await opened(screen, pilot)
        await press(pilot, "v")
        everything = memory.lifetimes.count
        await press(pilot, "/", *"gelu", "enter")
        shown = memory.device
        assert shown is not None
        assert 0 < memory.lifetimes.count < everything
        index, names = shown.history.label_lifetimes(memory._listed_rows, GroupBy.OP)
        assert all("gelu" in names[each] for each in index.tolist())
        await press(pilot, "n")
        assert f"of {memory.lifetimes.count:,} by time" in lines(memory)[-1]
        await press(pilot, "N")
        assert memory.time == int(shown.begin[memory.current_lifetime])
        await press(pilot, "escape")
        assert memory.is_current
        assert memory.lifetimes.count == everything
        await press(pilot, "escape")
        assert screen.app.screen is screen


@pytest.mark.long
async def test_a_bad_expression_stays_in_the_prompt() -> None:
    async with explorer(load_sample(SAMPLE), (120, 40)) as (screen, pilot):
        memory = await opened(screen, pilot)
        await press(pilot, "/", *"/(/", "enter")
        assert memory._prompt.is_open
        await press(pilot, "escape")
        assert not memory._prompt.is_open


@pytest.mark.long
async def test_g_shows_the_next_device() -> None:
    async with explorer(load_sample(SAMPLE), (120, 40)) as (screen, pilot):
        memory = await opened(screen, pilot)
        await press(pilot, "}")
        assert "memory of CPU" in lines(memory)[-1]
        assert "peak 16.1 KiB" in lines(memory)[0]


@pytest.mark.long
async def test_a_cpu_trace_has_a_screen_too() -> None:
    async with explorer(load_sample("train_images_cpu"), (120, 40)) as (screen, pilot):
        memory = await opened(screen, pilot)
        if memory.device is None:
            assert "profile_memory=True" in text_of(memory)
        else:
            assert memory.device.history.memory.is_cpu


@pytest.mark.long
async def test_missing_memory_is_told_with_the_option_that_records_it() -> None:
    async with explorer(two_steps(), (120, 40)) as (screen, pilot):
        memory = await opened(screen, pilot)
        assert "profile_memory=True (torchprof-tui run --profile-memory)" in text_of(memory).replace("\n", " ")
        assert "p peak" not in lines(memory)[-1]  # of the keys only those that lead on
        assert "D compare" in lines(memory)[-1]
        for key in ("p", "v", "}", "/", "tab", "down", "w", "enter", "n", "y", "J", "f", "0", "right"):
            await press(pilot, key)
            assert "no memory was recorded" in lines(memory)[-1], key
        await press(pilot, "q")
        assert screen.app.screen is screen


@pytest.mark.long
async def test_copies_and_help(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[str] = []
    async with explorer(load_sample(SAMPLE), (120, 40)) as (screen, pilot):
        memory = await opened(screen, pilot)
        monkeypatch.setattr(screen.app, "copy_to_clipboard", copied.append)
        await press(pilot, "y", "Y")
        assert copied[0].startswith("4.0 MiB · aten::_log_softmax · activation · forward · since 4.38 ms until 5.22 ms")
        assert copied[1].splitlines()[0] == "bytes\tshare\tnumber\tsince\tuntil\twhat"
        assert len(copied[1].splitlines()) == len(groups_on_screen(memory)) + 1
        await press(pilot, "question_mark")
        assert isinstance(screen.app.screen, HelpScreen)
        await press(pilot, "escape")
        await press(pilot, "t")
        assert type(screen.app.screen).__name__ == "TableScreen"


def test_the_legend_counts_what_has_no_room() -> None:
    legend = Legend()
    legend.palette = build_palette(ThemeColors(), ColorSupport.MANY)
    sums = np.zeros(len(BANDS), np.int64)
    sums[[0, 1, 2]] = 3 << 20, 2 << 20, 1 << 20
    legend.show(sums, has_lifetimes=True, has_reserved=False)
    lines = [legend.paint(0, width).text.strip() for width in (120, 56, 34)]
    assert [line.count("MiB") for line in lines] == [3, 2, 1]
    assert [line.endswith(f"+{left} more") for line, left in zip(lines, (0, 1, 2), strict=True)] == [False, True, True]


def test_the_legend_names_the_dashed_line() -> None:
    legend = Legend()
    legend.palette = build_palette(ThemeColors(), ColorSupport.MANY)
    legend.show(np.ones(len(BANDS), np.int64), has_lifetimes=True, has_reserved=True)
    assert legend.paint(0, 200).text.rstrip().endswith(f"{RESERVED * 2} reserved")


def test_memory_from_before_the_recording_says_so() -> None:
    nothing = np.zeros(0, np.int64)
    older = MemoryGroup("unknown", 3 << 20, nothing, None, None)
    assert list_group_cells(older, 4 << 20)[2:] == ("–", "before", "end", "unknown")
    assert list_group_cells(replace(older, label=UNACCOUNTED), 4 << 20)[2:] == ("–", "–", "–", UNACCOUNTED)


def test_the_sample_is_there() -> None:
    assert Path(SAMPLES / f"{SAMPLE}.pt.trace.json.gz").is_file()
