"""The cheatsheet panel: its scope, its entries and their evidence; and the guess screen."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from textual.pilot import Pilot

from tests.helpers.explorer_app import event_of, explorer, settled, text_of, until
from tests.helpers.long_run import keep_some
from tests.helpers.merged_ranks import load_merged_ranks
from tests.helpers.pattern_traces import waiting
from tests.helpers.trace_builder import Entry, annotation, cpu, kernel, overhead, python, runtime, step, trace
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Finding
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.painted_widget import PaintedWidget
from torchprof_tui.ui.common.panel_dock import PanelTabs
from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen
from torchprof_tui.ui.explorer.panels.cheatsheet_panel import NOTE_SIGN, PROBLEM_SIGN, choose_sign, format_stake
from torchprof_tui.ui.explorer.scope_checks import ScopeMode
from torchprof_tui.ui.learn.learn_screen import LearnScreen
from torchprof_tui.ui.source.source_screen import SourceScreen


def uneven() -> Trace:
    """Build four steps of a launch and a short kernel; the first is five times as long as the others."""
    entries: list[Entry] = []
    start = 0
    for k in range(4):
        length = 1000 if k == 0 else 200
        entries += [
            step(k, start, length),
            cpu("aten::mm", start + 10, length - 30),
            runtime("cudaLaunchKernel", start + length - 60, 20, corr=k + 1),
            kernel("gemm", start + length - 30, 10, corr=k + 1),
        ]
        start += length
    return trace(*entries)


def fired(screen: ExplorerScreen) -> list[str]:
    return [found.id for found in screen._panel_controller.cheatsheet_panel._fired_findings()]


@pytest.mark.long
async def test_it_says_what_fires_and_marks_it() -> None:
    shown = uneven()
    async with explorer(shown, (140, 48)) as (screen, pilot):
        await settled(pilot)
        assert "overhead-bound · the GPU waits 9" in text_of(screen).split("\n")[1]
        assert "first-step-wide" in fired(screen)
        await pilot.press("c")
        await settled(pilot)
        assert "whole trace · " in text_of(screen)
        while screen._panel_controller.cheatsheet_panel.finding.id != "first-step-wide":  # type: ignore[union-attr]
            await pilot.press("down")
        text = text_of(screen)
        for part in ("▶ first-step-wide", "measured", "why", "do", "go to"):
            assert part in text, part
        rule = PATTERNS["first-step-wide"].decided[:40]
        assert rule not in text
        await pilot.press("E")
        text = text_of(screen)
        assert rule in text
        assert "limit" in text
        await pilot.press("E")
        assert rule not in text_of(screen)
        assert "●" in text.split("\n")[8][:3]  # the lane with the evidence
        await pilot.press("n")
        assert shown.event(screen.view_state.selected).name == "ProfilerStep#0"
        assert "first-step-wide: 1 of" in text_of(screen)
        await pilot.press("tab", "escape")
        assert screen._lanes_area.gutter._flagged == frozenset()


@pytest.mark.long
async def test_a_click_on_its_tab_marks_as_the_key_does() -> None:
    async with explorer(uneven(), (140, 48)) as (screen, pilot):
        await settled(pilot)
        assert screen._lanes_area.gutter._flagged == frozenset()
        tabs = screen._dock.query_one(PanelTabs)
        await pilot.click(tabs, offset=(tabs.paint(0, 140).text.index("cheatsheet"), 0))
        assert screen._lanes_area.gutter._flagged == {0}
        await pilot.click(tabs, offset=(3, 0))
        assert screen._lanes_area.gutter._flagged == frozenset()


@pytest.mark.long
async def test_evidence_keeps_the_scope_that_it_was_found_in() -> None:
    """After enter the view shows one event; `n` still goes through all events of the finding, and `v` ends that."""
    shown = uneven()
    async with explorer(shown, (140, 48)) as (screen, pilot):
        await settled(pilot)
        await pilot.press("c")
        panels = screen._panel_controller
        while panels.cheatsheet_panel.finding.id != "overhead-bound":  # type: ignore[union-attr]
            await pilot.press("down")
        count = len(panels.cheatsheet_panel.finding.answer.events)  # type: ignore[union-attr]
        assert count > 1
        selected = []
        for number in range(1, count + 1):
            await pilot.press("enter" if number == 1 else "n")
            await settled(pilot)
            assert f"overhead-bound: {number} of {count}" in text_of(screen)
            selected.append(screen.view_state.selected)
        assert len(set(selected)) == count
        await pilot.press("N")
        assert f"overhead-bound: {count - 1} of {count}" in text_of(screen)
        assert "whole trace · " in text_of(screen)
        await pilot.press("v")
        await settled(pilot)
        assert "selection · " in text_of(screen)


@pytest.mark.long
async def test_evidence_of_a_range_names_the_range_until_the_cheatsheet_is_left() -> None:
    async with explorer(uneven(), (140, 48)) as (screen, pilot):
        await settled(pilot)
        await pilot.press("g", *"#2", "enter", "f")
        await settled(pilot)
        await pilot.press("c")
        found_in = screen._panel_controller.cheatsheet_panel.checked
        assert found_in is not None
        assert "on screen · " in text_of(screen)
        await pilot.press("enter", "n")
        await settled(pilot)
        assert (found_in.scope.t0, found_in.scope.t1) == (1_190_000, 1_410_000)
        assert "1.190 ms to 1.410 ms · " in text_of(screen)
        assert screen._panel_controller.cheatsheet_panel.checked is found_in
        await pilot.press("c")  # closes the panel
        await settled(pilot)
        await pilot.press("c")
        assert "on screen · " in text_of(screen)
        assert screen._panel_controller.cheatsheet_panel.checked is not found_in


async def test_it_shows_the_verdict_its_numbers_and_the_largest_causes() -> None:
    async with explorer(uneven(), (140, 60)) as (screen, pilot):
        await settled(pilot)
        await pilot.press("c")
        panel = screen._panel_controller.cheatsheet_panel
        checked = panel.checked
        assert checked is not None
        assert checked.verdict.first[:40] not in panel.text()  # it is above the lanes
        panel.set_verdict_above(False)
        text = panel.text()
        assert checked.verdict.first[:40] in text
        assert checked.verdict.why[:40] in text
        assert checked.verdict.tree is not None
        largest = max(checked.verdict.tree.parts, key=lambda part: part.time)
        assert f"█ {largest.label}" in text.replace("  ", "")


def test_a_problem_of_less_than_two_percent_is_not_red() -> None:
    pattern = PATTERNS["input-starved"]
    answer = Answer.fired("seen", np.arange(1), at_stake=5)
    palette = PaintedWidget().palette
    red, other = Finding(pattern, answer, 0.02), Finding(pattern, answer, 0.0199)
    assert choose_sign(red, palette) == (PROBLEM_SIGN, palette.warning)
    assert choose_sign(other, palette) == (NOTE_SIGN, palette.text)
    assert red.is_problem
    assert other.is_problem


async def test_it_follows_the_screen_and_the_selection() -> None:
    shown = uneven()
    async with explorer(shown, (140, 48)) as (screen, pilot):
        await settled(pilot)
        await pilot.press("g", *"#2", "enter", "f")
        await settled(pilot)
        await pilot.press("c")
        assert "on screen · " in text_of(screen)
        assert "first-step-wide" not in fired(screen)
        await pilot.press("v")
        assert screen._panel_controller.scopes.mode is ScopeMode.SELECTION
        await settled(pilot)
        assert "selection · " in text_of(screen)
        await pilot.press("v")
        await settled(pilot)
        assert "whole trace · " in text_of(screen)
        assert "first-step-wide" in fired(screen)


async def test_gaps_say_why_and_a_key_hides_it() -> None:
    async with explorer(uneven(), (160, 48)) as (screen, pilot):
        await settled(pilot)
        assert "‹dispatch›" in text_of(screen)
        await pilot.press("x")
        await pilot.pause()
        assert "‹dispatch›" not in text_of(screen)
        await pilot.press("x")
        await until(pilot, lambda: "‹dispatch›" in text_of(screen))


async def test_the_key_hides_classes_and_notes_as_well() -> None:
    entries = [
        step(1, 0, 500),
        cpu("aten::mm", 5, 60),
        runtime("cudaLaunchKernel", 10, 20, corr=1),
        kernel("nvjet_sm90_tst_64x8_64x16_1x4_h_bz_NNT", 60, 300, corr=1),
        runtime("cudaDeviceSynchronize", 510, 400, corr=2),
        overhead("Activity Buffer Request", 20, 5),
    ]
    shown = (
        "‹the profiler allocates",
        "gemm · nvjet_sm90",
        "cudaDeviceSynchronize · covers no GPU work",
    )
    async with explorer(trace(*entries), (200, 48)) as (screen, pilot):
        await settled(pilot)
        assert all(text in text_of(screen) for text in shown)
        await pilot.press("x")
        await pilot.pause()
        assert not any(text in text_of(screen) for text in shown)
        assert "▏nvjet_sm90_tst_64x8_64x16_1x4_h_bz_NNT" in text_of(screen)
        await pilot.press("x")
        await until(pilot, lambda: all(text in text_of(screen) for text in shown))


async def test_a_wide_screen_has_it_beside_the_panels_without_a_key() -> None:
    async with explorer(uneven(), (200, 50)) as (screen, pilot):
        await settled(pilot)
        assert "whole trace · " in text_of(screen)
        assert "▶ overhead-bound" in text_of(screen)
        assert "4 steps, median" in text_of(screen)  # the details say what the cheatsheet does not


async def test_without_a_gpu_it_says_what_is_missing() -> None:
    shown = trace(*(step(k, k * 100, 90) for k in range(3)), *(cpu("aten::mm", k * 100 + 10, 50) for k in range(3)))
    async with explorer(shown, (120, 48)) as (screen, pilot):
        await settled(pilot)
        assert "CPU-only trace: ops take" in text_of(screen)
        await pilot.press("c")
        text = screen._panel_controller.cheatsheet_panel.text()
        assert sum(line.lstrip().startswith("? ") for line in text.splitlines()) <= 4
        assert "patterns need GPU activity" in text
        assert "overhead-bound" not in text


async def test_an_event_without_a_file_is_labelled_as_an_event() -> None:
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    steps = [entry for k in (0, 1000) for entry in (step(k, k, 1000), annotation(loader, k + 5, 700))]
    async with explorer(trace(*steps, cpu("aten::mm", 800, 150), cpu("aten::mm", 1800, 150)), (120, 48)) as (
        screen,
        pilot,
    ):
        await settled(pilot)
        await pilot.press("c")
        labels = [
            line.split()[0] for line in screen._panel_controller.cheatsheet_panel.text().splitlines() if line.split()
        ]
        assert "in" in labels
        assert "line" not in labels


async def test_a_trace_without_a_gpu_has_no_kernels_to_guess() -> None:
    shown = trace(*(step(k, k * 100, 90) for k in range(3)), *(cpu("aten::mm", k * 100 + 10, 50) for k in range(3)))
    async with explorer(shown, (120, 48)) as (screen, pilot):
        await settled(pilot)
        await pilot.press("G")
        learn = screen.app.screen
        assert isinstance(learn, LearnScreen)
        await until(pilot, lambda: learn._list.option_count > 0)  # the cases can be chosen all the same
        assert not learn._input.display
        assert learn._list.has_focus


@pytest.mark.long
async def test_guess_then_look() -> None:
    shown = uneven()
    async with explorer(shown, (120, 40)) as (screen, pilot):
        await pilot.press("G")
        guess = screen.app.screen
        assert isinstance(guess, LearnScreen)

        def text() -> str:
            return "\n".join(strip.text.rstrip() for strip in guess._compositor.render_strips())

        assert "on screen: " in text()
        assert "aten::mm" not in text()  # the screen covers the lanes until the user has guessed
        await pilot.press(*"gemm", "space", "3", "enter")
        await until(pilot, lambda: "0 of 1 as expected" in text())
        line = next(line for line in text().split("\n") if "✗ gemm" in line)
        assert line.split()[2:5] == ["3", "4", "40.0"]
        await pilot.press("backspace", "4", "enter")
        await until(pilot, lambda: "1 of 1 as expected" in text())
        await pilot.press("escape")
        assert screen.app.screen is screen


def slow_program(folder: Path) -> tuple[Trace, Path]:
    """Write a program, and build a trace in which its frame explains all the GPU's waiting."""
    script = folder / "train[bold].py"
    script.write_text("".join(f"a{k} = {k}\n" for k in range(1, 80)))
    entries: list[Entry] = [python(f"{script}(42): forward\x1b", 0, 12_000)]
    for k in range(12):
        start = 1000 * k
        entries += [
            step(k, start, 1000),
            cpu("aten::mm", start + 10, 970),
            runtime("cudaLaunchKernel", start + 940, 20, corr=k + 1),
            kernel("gemm", start + 970, 10, corr=k + 1),
        ]
    return trace(*entries), script


async def move_to(screen: ExplorerScreen, pilot: Pilot[None], pattern_id: str) -> None:
    if screen._dock.active_name != "cheatsheet":
        await pilot.press("c")
    for _ in fired(screen):
        finding = screen._panel_controller.cheatsheet_panel.finding
        if finding is not None and finding.id == pattern_id:
            return
        await pilot.press("down")
    raise AssertionError(f"{pattern_id} did not fire: {fired(screen)}")


@pytest.mark.parametrize("size", keep_some([((80, 24),), ((160, 48),)], 1))
async def test_a_problem_names_its_line_and_a_key_opens_it(size: tuple[int, int], tmp_path: Path) -> None:
    shown, script = slow_program(tmp_path)
    async with explorer(shown, size) as (screen, pilot):
        await settled(pilot)
        await move_to(screen, pilot, "overhead-bound")
        panel = screen._panel_controller.cheatsheet_panel
        text = panel.text()
        assert "forward·" in text
        assert "L train[bold].py(42)" in text
        await pilot.press("L")
        await until(pilot, lambda: isinstance(screen.app.screen, SourceScreen))
        await settled(pilot)
        source = "\n".join(strip.text for strip in pilot.app.screen._compositor.render_strips())
        assert "▶42  a42 = 42" in source
        await pilot.press("escape")
        assert screen.app.screen is screen
        before = screen.view_state.viewport
        await pilot.press("enter")  # still zooms to the evidence
        assert screen.app.screen is screen
        assert screen.view_state.selected in panel.finding.answer.events  # type: ignore[union-attr]
        assert screen.view_state.viewport.t1 - screen.view_state.viewport.t0 < before.t1 - before.t0
        assert script.exists()


@pytest.mark.long
async def test_a_key_says_why_no_source_can_be_opened() -> None:
    async with explorer(uneven(), (140, 48)) as (screen, pilot):
        await settled(pilot)
        await pilot.press("i", "i", "L")
        assert "L opens the source line of a finding (c)" in text_of(screen)
        await move_to(screen, pilot, "overhead-bound")
        assert " L " not in screen._panel_controller.cheatsheet_panel.text()
        await pilot.press("L")
        assert "overhead-bound: no source line known; r: record again with stacks (--with-stack)" in text_of(screen)
        panel = screen._panel_controller.cheatsheet_panel
        notice = next(finding.id for finding in panel._fired_findings() if not finding.is_problem)
        await move_to(screen, pilot, notice)
        await pilot.press("L")
        assert "only problems have a source line" in text_of(screen)
        assert screen.app.screen is screen


async def test_the_key_opens_the_line_of_a_chain_without_moving_to_it(tmp_path: Path) -> None:
    shown, _ = slow_program(tmp_path)
    async with explorer(shown, (140, 48)) as (screen, pilot):
        screen.view_state.select(event_of(shown, "gemm"))
        screen._refresh_widgets()
        await pilot.press("l")
        await until(pilot, lambda: screen._panel_controller.chain_panel.chain is not None)
        await pilot.press("L")
        await until(pilot, lambda: isinstance(screen.app.screen, SourceScreen))


async def test_a_problem_says_what_it_costs(tmp_path: Path) -> None:
    shown, _ = slow_program(tmp_path)
    async with explorer(shown, (140, 48)) as (screen, pilot):
        await settled(pilot)
        await move_to(screen, pilot, "overhead-bound")
        checked = screen._panel_controller.scopes.checked
        assert checked is not None
        (found,) = [each for each in checked.findings if each.id == "overhead-bound"]
        text = " ".join(screen._panel_controller.cheatsheet_panel.text().split())
        assert f"{format_stake(found, checked.base)} The GPU waits for the CPU" in text
        assert (
            f"costs at most, as shares of {checked.base.describe()}" in text
        )  # the base is named once, above the entries
        entry = text[text.index("measured") : text.index("its rule")]
        assert entry.count("%") == found.answer.seen.count("%")


@pytest.mark.long
async def test_the_largest_gaps_name_their_line_on_the_lanes(tmp_path: Path) -> None:
    shown, _ = slow_program(tmp_path)
    async with explorer(shown, (240, 48)) as (screen, pilot):
        await settled(pilot)
        screen.view_state.select(event_of(shown, "ProfilerStep#3"))
        await pilot.press("f")
        await settled(pilot)
        assert "‹dispatch · train[bold].py(42): forward·›" in text_of(screen)
        await pilot.press("x")
        assert "‹dispatch" not in text_of(screen)


@pytest.mark.long
async def test_the_source_of_a_rank_is_read_where_its_trace_lies(tmp_path: Path) -> None:
    paths = []
    for number in range(2):
        frame = python(f"rank{number}.py(1): f", 0, 4000)
        document = {
            "schemaVersion": 1,
            "distributedInfo": {"rank": number, "world_size": 2},
            "traceEvents": [frame, *waiting()],
        }
        paths.append(tmp_path / f"rank{number}.json")
        paths[-1].write_text(json.dumps(document))
    shown = load_merged_ranks(paths)
    async with explorer(shown, (140, 48)) as (screen, pilot):
        await settled(pilot)
        for rank in shown.all_ranks:
            screen.view_state.select(rank.first)
            screen._refresh_widgets()
            await settled(pilot)
            await move_to(screen, pilot, "overhead-bound")
            line, owner, problem = screen._panel_controller.active_panel.find_source_line()
            assert line is not None, problem
            assert (line.text, owner.number) == (f"rank{rank.number}.py(1): f", rank.number)
