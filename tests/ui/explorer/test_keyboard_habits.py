"""Test what a keyboard user expects of `n`, `/`, ↑, `y`, `h` and backspace."""

from __future__ import annotations

import pytest
from textual.widgets import Input

from tests.helpers.explorer_app import explorer, settled, text_of, two_steps, until
from tests.helpers.golden_files import load_sample
from tests.helpers.trace_builder import cpu, kernel, runtime, step, trace
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen
from torchprof_tui.ui.lanes.view_state import ViewState

LONG_NAME = "void " + "nested<int, " * 400 + "float" + ">" * 400


def uneven() -> Trace:
    """Build four steps of a launch and a short kernel, the first five times as long: the GPU waits in each."""
    lengths = (1000, 200, 200, 200)
    starts = [sum(lengths[:k]) for k in range(4)]
    return trace(
        *(
            entry
            for k, (start, length) in enumerate(zip(starts, lengths, strict=True))
            for entry in (
                step(k, start, length),
                cpu("aten::mm", start + 10, length - 30),
                runtime("cudaLaunchKernel", start + length - 60, 20, corr=k + 1),
                kernel("gemm", start + length - 30, 10, corr=k + 1),
            )
        )
    )


def selected_name(screen: ExplorerScreen) -> str:
    event = screen.view_state.selected
    return screen.trace.event(event).name if event >= 0 else ""


@pytest.mark.long
async def test_n_continues_a_search_made_while_the_cheatsheet_is_open() -> None:
    async with explorer(uneven(), (140, 48)) as (screen, pilot):
        await settled(pilot)
        await pilot.press("c")
        await settled(pilot)
        finding = screen._panel_controller.cheatsheet_panel.finding
        assert finding is not None
        await pilot.press("/", *"gemm", "enter", "n")
        assert selected_name(screen) == "gemm"
        assert "gemm: 2/4" in text_of(screen)
        await pilot.press("N")
        assert "gemm: 1/4" in text_of(screen)
        await pilot.press("enter")  # now the cheatsheet is asked again
        await pilot.press("n")
        assert f"{finding.id}: " in text_of(screen)
        await pilot.press("/", *"gemm", "enter", "c", "c", "n")  # as it is when it is opened again
        assert f"{finding.id}: " in text_of(screen)


@pytest.mark.long
async def test_a_copied_panel_has_at_most_120_columns() -> None:
    copied: list[str] = []
    shown = trace(
        step(0, 0, 100), cpu("aten::mm", 0, 50), runtime("cudaLaunchKernel", 5, 5, corr=1), kernel(LONG_NAME, 20, 9, 1)
    )
    async with explorer(shown, (200, 40)) as (screen, pilot):
        screen.app.copy_to_clipboard = copied.append  # type: ignore[method-assign, assignment]
        await pilot.press("/", *"nested", "enter")
        await settled(pilot)
        for key in "ilk":
            await pilot.press(key)
            if not screen.details_open:
                await pilot.press(key)
            await settled(pilot)
            await pilot.press("Y")
        await pilot.press("m", "Y")
        assert len(copied) == 4
        assert max(len(line) for text in copied for line in text.split("\n")) <= 120
        assert "nested<int" in copied[0]
        assert "copied" not in text_of(screen)  # the terminal does not tell
        assert "sent to the terminal's clipboard" in text_of(screen)


@pytest.mark.long
async def test_typing_after_the_slash_replaces_the_last_search() -> None:
    async with explorer(two_steps()) as (screen, pilot):
        prompt = screen.query_one(Input)
        await pilot.press("/", *"mm", "enter", "/")
        assert prompt.value == "mm"
        await pilot.press(*"add")
        assert prompt.value == "add"
        await pilot.press("enter", "/", "up")
        assert prompt.value == "mm"
        await pilot.press("up")
        assert prompt.value == "mm"
        await pilot.press("down")
        assert prompt.value == "add"
        await pilot.press("up", "enter")
        assert screen.view_state.search.query == "mm"
        await pilot.press("/", "end", "x")  # end keeps the text to edit it
        assert prompt.value == "mmx"


@pytest.mark.long
async def test_a_search_with_a_capital_says_that_it_is_case_sensitive() -> None:
    async with explorer(two_steps()) as (screen, pilot):
        await pilot.press("/", *"mm")
        await until(pilot, lambda: "4 found" in text_of(screen))
        assert "case-sensitive" not in text_of(screen)
        await pilot.press("M")
        await until(pilot, lambda: "0 found · case-sensitive" in text_of(screen))
        await pilot.press("enter")
        assert "small letters" in text_of(screen)
        await pilot.press("/", *r"/g\Sm/")
        await until(pilot, lambda: " found" in text_of(screen))
        assert "case-sensitive" not in text_of(screen)


@pytest.mark.long
async def test_hiding_a_lane_names_it_and_the_key_that_shows_it() -> None:
    async with explorer(two_steps()) as (screen, pilot):
        await pilot.press("down", ":", *"hide", "enter")
        assert "hidden: CPU " in text_of(screen)
        assert ":unhide shows it again" in text_of(screen)
        await pilot.press(":", *"unhide", "enter", "escape")
        await pilot.press("escape", "escape")
        assert "nothing to clear" in text_of(screen)


async def test_keys_for_lanes_say_that_an_empty_trace_has_none() -> None:
    async with explorer(trace()) as (screen, pilot):
        for key in ("space",):
            await pilot.press("0")
            await pilot.press(key)
            assert "no lane" in text_of(screen), key


def test_the_range_on_screen_lies_within_the_trace() -> None:
    shown = two_steps()
    state = ViewState(shown)
    state.fit_all()
    assert state.viewport.t0 < shown.span[0]
    assert state.active_range()[:2] == shown.span
    state.zoom(3)
    assert state.active_range()[:2] == (state.viewport.t0, state.viewport.t1)


async def test_backspace_returns_to_the_view_before_a_jump() -> None:
    async with explorer(two_steps()) as (screen, pilot):
        state = screen.view_state
        await pilot.press("backspace")
        assert "no previous view" in text_of(screen)
        await pilot.press("w", "right")
        before = state.viewport
        await pilot.press("/", *"add", "enter", "f")
        assert state.viewport != before
        await pilot.press("backspace")
        assert state.viewport == before
        await pilot.press("escape", "left", "0", "f", "backspace", "backspace")
        assert state.viewport == before
        event = state.selected
        await pilot.press("g", *"90us", "enter", "w", "d")
        await pilot.press("backspace")  # zooming and panning are no jumps
        assert (state.viewport, state.selected) == (before, event)
        await pilot.press("0")
        await pilot.resize_terminal(100, 40)
        await pilot.press("backspace")
        assert state.viewport == before.resize(state.viewport.width)


@pytest.mark.long
async def test_backspace_returns_from_a_match_with_its_lines() -> None:
    shown = trace(step(0, 0, 1000), *(cpu(f"aten::op{k}", 5 + k, 900 - 2 * k) for k in range(60)), cpu("found", 950, 9))
    async with explorer(shown, (120, 40)) as (screen, pilot):
        state = screen.view_state
        await pilot.press("right", "f", "/", *"op59", "enter")
        assert state.lane_view.top > 0
        scrolled = state.lane_view.top
        await pilot.press("w", "w", "w", "w", "/", *"found", "enter", "n", "N")
        assert state.lane_view.top == 0
        await pilot.press("backspace")
        assert (selected_name(screen), state.lane_view.top) == ("aten::op59", scrolled)
        await pilot.press("backspace")
        assert (selected_name(screen), state.lane_view.top) == ("ProfilerStep#0", 0)


@pytest.mark.long
async def test_the_status_line_says_that_a_search_is_case_sensitive() -> None:
    shown = trace(step(0, 0, 100), cpu("aten::MM", 0, 50), cpu("aten::mm", 60, 20))
    async with explorer(shown) as (screen, pilot):
        await pilot.press("/", *"MM", "enter")
        assert "MM: 1/1 · case-sensitive" in text_of(screen)
        await pilot.press("/", *"mm", "enter")
        assert "mm: 2/2" in text_of(screen)
        assert "case-sensitive" not in text_of(screen)


@pytest.mark.long
async def test_a_search_finds_what_the_lanes_print() -> None:
    name = (
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, char*>(int, int, char*)"
    )
    shown = trace(step(0, 0, 100), runtime("cudaLaunchKernel", 5, 5, corr=1), kernel(name, 20, 60, 1))
    async with explorer(shown) as (screen, pilot):
        await settled(pilot)
        assert "add fp32" in text_of(screen)
        for text in ("add fp32", "cudafunctor_add"):
            await pilot.press("/", *text, "enter")
            assert selected_name(screen) == name
            await pilot.press("escape", "escape")


async def test_backspace_undoes_a_jump_of_the_cheatsheet_with_its_zoom() -> None:
    async with explorer(uneven(), (140, 48)) as (screen, pilot):
        await settled(pilot)
        await pilot.press("c", "w")
        before = screen.view_state.viewport
        await settled(pilot)
        await pilot.press("enter")
        assert screen.view_state.viewport != before
        await pilot.press("backspace")
        assert screen.view_state.viewport == before
        assert screen.view_state.selected == -1


async def test_without_a_selection_the_next_step_is_the_first_on_screen() -> None:
    sample = load_sample("matmul_add_64_cold_eager")
    async with explorer(sample, (120, 40)) as (screen, pilot):
        await pilot.press("}")
        assert sample.event(screen.view_state.selected).name == "ProfilerStep#2"
        await pilot.press("escape", "escape")
        steps = screen.view_state.current_steps()
        screen.view_state.viewport = screen.view_state.viewport.fit(steps[1].start, steps[2].start, 0.1)
        await pilot.press("}")
        assert sample.event(screen.view_state.selected).name == "ProfilerStep#3"


@pytest.mark.long
async def test_the_hints_name_the_memory_screen_where_there_is_memory() -> None:
    for name, has_memory in (("train_gpt_stack_memory", True), ("linear_eager", False)):
        async with explorer(load_sample(name), (120, 40)) as (screen, _):
            assert ("M memory" in text_of(screen)) is has_memory
