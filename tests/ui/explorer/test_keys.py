"""The keys of the explorer, by their effect on the view state and on the screen."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from textual.events import Key
from textual.widgets import Input

from tests.helpers.explorer_app import event_of, explorer, settled, text_of, two_steps, until
from tests.helpers.trace_builder import cpu, kernel, runtime, step, trace
from torchprof_tui.ui.common.bindings import group_by_section
from torchprof_tui.ui.common.help_screen import HelpScreen
from torchprof_tui.ui.common.keys import LANES
from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen
from torchprof_tui.ui.lanes.view_state import ViewState

Check = Callable[[ViewState], bool]


def selected(state: ViewState) -> str:
    return state.trace.event(state.selected).name if state.selected >= 0 else ""


async def test_keys_that_move() -> None:
    """Run one session; each line is a key and what must hold after it."""
    shown = two_steps()
    mm = event_of(shown, "aten::mm", 1)
    moves: list[tuple[str, Check]] = [
        ("down", lambda w: selected(w) == "ProfilerStep#1"),
        ("left", lambda w: selected(w) == "ProfilerStep#0"),
        ("full_stop", lambda w: selected(w) == "ProfilerStep#1"),
        ("comma", lambda w: selected(w) == "ProfilerStep#0"),
        ("right_curly_bracket", lambda w: selected(w) == "ProfilerStep#1"),
        ("left_curly_bracket", lambda w: selected(w) == "ProfilerStep#0"),
        ("right", lambda w: selected(w) == "ProfilerStep#1"),
        ("down", lambda w: selected(w) == "work"),
        ("down", lambda w: w.selected == mm),
        ("right_square_bracket", lambda w: selected(w) == "gemm"),
        ("left_square_bracket", lambda w: selected(w) == "cudaLaunchKernel"),
        ("up", lambda w: w.selected == mm),
        ("f", lambda w: w.viewport.span == round(30_000 * 1.1)),
        ("f", lambda w: w.viewport.span == round(90_000 * 1.1)),
        ("0", lambda w: w.viewport.is_whole),
        ("w", lambda w: 0.7 < w.viewport.span / _whole(w) < 0.8),
        ("s", lambda w: w.viewport.span > _whole(w) * 0.99),
        ("0", lambda w: w.viewport.is_whole),
        ("W", lambda w: 0.2 < w.viewport.span / _whole(w) < 0.3),
        ("S", lambda w: w.viewport.span > _whole(w) * 0.95),
        ("0", lambda w: w.viewport.is_whole),
        ("W", lambda w: w.viewport.t0 > w.viewport.limits[0]),
        ("home", lambda w: w.viewport.t0 == w.viewport.limits[0]),
        ("d", lambda w: 0.09 < (w.viewport.t0 - w.viewport.limits[0]) / w.viewport.span < 0.11),
        ("a", lambda w: w.viewport.t0 == w.viewport.limits[0]),
        ("end", lambda w: w.viewport.t1 == w.viewport.limits[1]),
        ("space", lambda w: w.lane_view.arrangement.folded == {0}),
        ("space", lambda w: not w.lane_view.arrangement.folded),
        ("m", lambda w: w.mark is not None and w.mark.live and w.mark.start == 120_000),
        ("right", lambda w: w.mark is not None and w.mark.end == 190_000),
        ("m", lambda w: w.mark is not None and not w.mark.live),
        ("escape", lambda w: w.mark is None and selected(w) == "aten::add"),
        ("escape", lambda w: w.selected == -1),
    ]
    async with explorer(shown, (120, 40)) as (screen, pilot):
        for number, (key, holds) in enumerate(moves):
            await pilot.press(key)
            assert holds(screen.view_state), (number, key, selected(screen.view_state), screen.view_state.viewport)


def _whole(state: ViewState) -> int:
    return state.viewport.limits[1] - state.viewport.limits[0]


async def test_searching() -> None:
    async with explorer(two_steps()) as (screen, pilot):
        await pilot.press("/", *"mm")
        await until(pilot, lambda: "4 found" in text_of(screen))
        assert selected(screen.view_state) == ""
        await pilot.press("enter")
        assert selected(screen.view_state) == "aten::mm"
        assert "mm: 1/4" in text_of(screen)
        await pilot.press("n", "n", "N")
        assert "mm: 2/4" in text_of(screen)
        await pilot.press("/", "escape")
        assert screen.view_state.search.matches is None
        assert not screen.has_class("asking")
        await pilot.press("/", *"/^g.*m$/", "enter")
        assert selected(screen.view_state) == "gemm"
        assert "/2" in text_of(screen)
        await pilot.press("/")
        await pilot.press("end", "backspace", "backspace", *"(/", "enter")
        assert "not a regular expression" in text_of(screen)


async def test_letters_typed_into_the_prompt_are_not_keys() -> None:
    async with explorer(two_steps()) as (screen, pilot):
        before = screen.view_state.viewport
        await pilot.press("/", *"wasd0fmph")
        assert screen.view_state.viewport == before
        assert screen.view_state.mark is None
        await pilot.press("escape", "w")
        assert screen.view_state.viewport != before


async def test_letters_typed_in_one_breath_with_the_slash_reach_the_prompt() -> None:
    async with explorer(two_steps()) as (screen, pilot):
        before = screen.view_state.viewport
        for character in "/fwd":
            screen.app.post_message(Key("slash" if character == "/" else character, character))
        await until(pilot, lambda: screen.query_one(Input).value == "fwd")
        assert screen.view_state.viewport == before


async def test_going_to_a_time_or_a_step() -> None:
    async with explorer(two_steps()) as (screen, pilot):
        await pilot.press("W", "g", *"20us", "enter")
        assert screen.view_state.viewport.t0 <= 20_000 < screen.view_state.viewport.t1
        await pilot.press("g", *"#1", "enter")
        assert selected(screen.view_state) == "ProfilerStep#1"
        await pilot.press("g", *"20parsecs", "enter")
        assert "not a time" in text_of(screen)
        assert screen.has_class("asking")
        await pilot.press("escape")
        assert not screen.has_class("asking")


async def test_what_is_no_command_is_called_so_with_names_that_are_close() -> None:
    async with explorer(two_steps()) as (screen, pilot):
        await pilot.press("g", *"qqq", "enter")
        assert "unknown command · 12ms · #3 · rank 1 · memory, doctor, … · a trace" in text_of(screen)
        assert screen.has_class("asking")
        await pilot.press("escape", "g", *"memroy", "enter")
        assert "unknown command: memory?" in text_of(screen)


async def test_the_chain_opens_at_its_beginning_and_follows_the_cursor_from_there() -> None:
    nested = [cpu(f"aten::op{depth}", 10 + depth, 100 - 2 * depth) for depth in range(12)]
    deep = trace(step(0, 0, 200), *nested, runtime("cudaLaunchKernel", 40, 4, corr=1), kernel("gemm", 60, 20, corr=1))
    async with explorer(deep, (80, 24)) as (screen, pilot):
        await pilot.press("right", "l")
        await settled(pilot)
        panel = text_of(screen).partition("[chain")[2]
        assert "ProfilerStep#0 " in panel
        assert "▴" not in panel
        await pilot.press("up")
        await settled(pilot)
        panel = text_of(screen).partition("[chain")[2]
        assert "▶" in panel
        assert "▴" in panel


async def test_panels() -> None:
    async with explorer(two_steps(), (120, 40)) as (screen, pilot):
        assert "[details]" in text_of(screen)
        await pilot.press("tab")
        assert "[chain]" in text_of(screen)
        await pilot.press("tab")
        assert "[kernel]" in text_of(screen)
        await pilot.press("tab")
        assert "[cheatsheet ↑↓]" in text_of(screen)
        await pilot.press("tab")
        assert "[range]" in text_of(screen)
        assert "No range is marked" in text_of(screen)
        await pilot.press("tab")
        assert "[path]" in text_of(screen)
        assert "C shows what limits a step" in text_of(screen)
        await pilot.press("tab")
        assert "[doctor" in text_of(screen)
        await pilot.press("tab")
        assert "[details]" in text_of(screen)
        await pilot.press("i")
        await pilot.pause()
        assert "details]" not in text_of(screen)
        assert screen.view_state.lane_view.height > 30
        await pilot.press("i")
        await pilot.pause()
        assert "[details]" in text_of(screen)
        await pilot.press("down", "down", "m")
        await until(pilot, lambda: "GPU 0 busy" in text_of(screen))
        shown = text_of(screen)
        assert "[range]" in shown
        assert "90.0 µs" in shown
        assert "gemm" in shown
        await pilot.press("escape")
        assert "[details]" in text_of(screen)


async def test_details_say_everything() -> None:
    shown = two_steps()
    async with explorer(shown, (140, 48)) as (screen, pilot):
        screen.view_state.select(event_of(shown, "aten::add"))
        await pilot.press("left", "right")
        await until(pilot, lambda: "only one of this name" in text_of(screen))
        text = text_of(screen)
        for part in (
            "aten::add",
            "op: a PyTorch operator on the CPU",
            "the dispatcher calls it from Python",
            "a few microseconds of the CPU",
            "30.0 µs · 25 % of step #1 · self 25.0 µs (83 %)",
            "work: 50.0 µs after its start, 33 % of it",
            "2nd of its 2 children",
            "args:",  # a trace built in memory has no file: one line reports it
        ):
            assert part in text, part


async def test_copying() -> None:
    copied: list[str] = []
    async with explorer(two_steps()) as (screen, pilot):
        screen.app.copy_to_clipboard = copied.append  # type: ignore[method-assign]
        await pilot.press("y")
        assert not copied
        assert "nothing to copy" in text_of(screen)
        await pilot.press("down", "y")
        assert copied == ["ProfilerStep#1"]
        assert "sent to the terminal's clipboard: ProfilerStep#1" in text_of(screen)
        await pilot.press("Y")
        assert "ProfilerStep#1" in copied[1]
        assert "step: one iteration" in copied[1]
        assert len(copied[1].split("\n")) > 3


async def test_help_lists_every_binding() -> None:
    async with explorer(two_steps(), (150, 60)) as (screen, pilot):
        known = [key for keys in group_by_section(screen.active_bindings.values()).values() for key in keys]
        await pilot.press("?")
        assert isinstance(screen.app.screen, HelpScreen)
        seen = _screen_text(screen)
        explained = {key.description for key in known}
        assert {binding.tooltip for binding in LANES if not isinstance(binding, tuple)} <= explained
        for key in known[:20]:
            assert key.description[:30] in seen, key
        await pilot.press("tab")
        await until(pilot, lambda: "▒" in _screen_text(screen))
        await pilot.press("escape")
        assert isinstance(screen.app.screen, ExplorerScreen)


async def test_the_palette_offers_what_the_keys_do() -> None:
    async with explorer(two_steps()) as (screen, pilot):
        await pilot.press("ctrl+p")
        await pilot.press(*"fold all")
        await until(pilot, lambda: "fold all lanes" in _screen_text(screen))
        await pilot.press("enter")
        await until(pilot, lambda: bool(screen.view_state.lane_view.arrangement.folded))


def _screen_text(screen: ExplorerScreen) -> str:
    return "\n".join(strip.text for strip in screen.app.screen._compositor.render_strips())


async def test_no_two_keys_are_the_same_and_all_are_named() -> None:
    keys: list[str] = []
    for binding in LANES:
        assert not isinstance(binding, tuple)
        assert binding.id
        assert binding.tooltip
        assert binding.description
        keys += binding.key.split(",")
    assert len(keys) == len(set(keys))


async def test_sizes() -> None:
    """Resize from far too small to very large and back: the selection stays on screen."""
    shown = trace(*(cpu(f"level {depth}", depth, 100 - 2 * depth) for depth in range(40)))
    async with explorer(shown, (80, 24)) as (screen, pilot):
        screen.view_state.select(event_of(shown, "level 39"))
        for size in ((80, 24), (320, 90), (30, 8), (40, 10), (320, 11)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            text = text_of(screen)
            if size == (30, 8):
                assert "This terminal is 30×8" in text
                assert "40×10 or more" in text
            else:
                assert max(len(line) for line in text.split("\n")) <= size[0]
                assert "▶" in text or "◆" in text, size


async def test_an_empty_trace_says_why_and_what_to_do() -> None:
    async with explorer(trace()) as (screen, pilot):
        assert "nothing to draw" in text_of(screen)
        assert "prof.step()" in text_of(screen)
        await pilot.press("w", "right", "down", "m", "f", "/", "x", "enter", "n", "space", "escape")
        assert "nothing to draw" in text_of(screen)


async def test_panels_are_hidden_and_shown_without_restyling_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    async with explorer(two_steps(), (120, 40)) as (screen, pilot):
        restyled: list[object] = []
        monkeypatch.setattr(screen.app, "update_styles", restyled.append)
        for is_open in (False, True):
            await pilot.press("i")
            assert screen.query_one("#dock").display is is_open
        assert restyled == []
        monkeypatch.undo()
        await pilot.resize_terminal(30, 8)  # open panels give way to the message
        await settled(pilot)
        assert not screen.query_one("#dock").display
