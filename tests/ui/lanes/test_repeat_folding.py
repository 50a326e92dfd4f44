"""Test folded repeats on the screen: the keys, the seams, moves into what is hidden, and all sizes."""

from __future__ import annotations

import pytest

from tests.analysis.repetition.test_repetitions import decode
from tests.helpers.explorer_app import explorer, settled, two_steps, until
from tests.helpers.golden_files import at_every_size, compare_golden, text_on_screen
from tests.helpers.long_run import keep_some
from tests.helpers.trace_builder import cpu, kernel, trace
from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen
from torchprof_tui.ui.lanes.step_labels import SEAM, move_label_beside

TOKEN = 112_000
"""From one token of `decode(8, 5)` to the next, ns; the first starts at 20 µs."""


async def fold(screen: ExplorerScreen, pilot: object, times: int = 1) -> None:
    await until(pilot, lambda: bool(screen.view_state.current_steps()))  # type: ignore[arg-type]
    await settled(pilot)  # type: ignore[arg-type]
    await pilot.press(*"u" * times)  # type: ignore[attr-defined]


def shown_numbers(screen: ExplorerScreen) -> list[int]:
    folded = screen.view_state.folding.fold
    return [] if folded is None else [run.numbers[index] for _, run, index in folded.iterate_runs()]


async def test_u_folds_tokens_then_layers_then_unfolds() -> None:
    async with explorer(decode(tokens=8, layers=5, slow=6), (160, 48)) as (screen, pilot):
        before = screen.view_state.viewport
        await fold(screen, pilot)
        drawn = text_on_screen(screen)
        assert "× 3 p50 101.0 p95 101.0 µs" in drawn
        assert "repetition #3 · 7 folded: p50 101.0 µs, p95 101.0 µs · slowest #0" in drawn
        assert drawn.count(SEAM) > 100
        await pilot.press("u")
        assert len(screen.view_state.folding.seams) == 4
        assert "unfolds" in text_on_screen(screen)
        await pilot.press("u")
        drawn = text_on_screen(screen)
        assert "all repeats are shown again" in drawn
        assert SEAM not in drawn
        await pilot.press("backspace", "backspace", "backspace")
        assert screen.view_state.viewport == before
        assert screen.view_state.folding.fold is None


async def test_backspace_returns_to_the_fold() -> None:
    async with explorer(decode(tokens=8, layers=5), (120, 40)) as (screen, pilot):
        await fold(screen, pilot)
        folded = screen.view_state.viewport
        await pilot.press("u", "u", "backspace", "backspace")
        assert screen.view_state.viewport == folded
        assert SEAM in text_on_screen(screen)


@pytest.mark.long
async def test_brace_keys_go_through_the_repeats_in_place() -> None:
    async with explorer(decode(tokens=8, layers=5, slow=6), (160, 48)) as (screen, pilot):
        await fold(screen, pilot)
        view = screen.view_state.viewport
        assert shown_numbers(screen) == [3]
        column = view.cell(20_000 + 3 * TOKEN)
        await pilot.press("}")
        assert shown_numbers(screen) == [4]
        assert screen.view_state.viewport.cell(20_000 + 4 * TOKEN) == column
        await pilot.press("}", "}", "}", "}")
        assert shown_numbers(screen) == [7]
        assert "the last repetition of 8" in text_on_screen(screen)
        await pilot.press(*"{" * 9)
        assert shown_numbers(screen) == [0]


async def test_the_selection_stays_at_its_place_in_the_repeat() -> None:
    made = decode(tokens=8, layers=5)
    async with explorer(made, (160, 48)) as (screen, pilot):
        await fold(screen, pilot)
        await pilot.press("down", "right", "right")
        state = screen.view_state
        place = int(made.start[state.selected]) - 20_000 - 3 * TOKEN
        name = made.event(state.selected).name
        assert 0 <= place < TOKEN
        await pilot.press("}")
        assert int(made.start[state.selected]) - 20_000 - 4 * TOKEN == place
        assert made.event(state.selected).name == name


@pytest.mark.long
async def test_a_search_into_a_folded_repeat_shows_it() -> None:
    made = decode(tokens=8, layers=5, extra=6)
    async with explorer(made, (120, 40)) as (screen, pilot):
        await fold(screen, pilot)
        await pilot.press("/", *"reduce", "enter")
        state = screen.view_state
        assert shown_numbers(screen) == [6]
        start = int(made.start[state.selected])
        assert state.viewport.t0 <= start < state.viewport.t1
        assert state.viewport.fold is not None
        assert state.viewport.fold.find_seam(start, start + 1) < 0


@pytest.mark.long
async def test_u_shows_the_repeat_of_the_selection_and_go_to_changes_it() -> None:
    async with explorer(decode(tokens=8, layers=5), (120, 40)) as (screen, pilot):
        await until(pilot, lambda: bool(screen.view_state.current_steps()))
        await pilot.press("g", *"#5", "enter", "u")
        assert shown_numbers(screen) == [5]
        await pilot.press("g", *"50us", "enter")
        assert shown_numbers(screen) == [0]


@pytest.mark.long
async def test_capital_u_shows_the_slowest() -> None:
    made = decode(tokens=8, layers=5, extra=5)
    async with explorer(made, (160, 48)) as (screen, pilot):
        await pilot.press("p")
        assert "u folds them" in text_on_screen(screen)
        await fold(screen, pilot)
        await pilot.press("p")
        assert shown_numbers(screen) == [5]
        await pilot.press("p")
        assert "is shown already" in text_on_screen(screen)


async def test_a_click_on_a_seam_shows_a_repeat_of_it() -> None:
    async with explorer(decode(tokens=8, layers=5), (160, 48)) as (screen, pilot):
        await fold(screen, pilot)
        view = screen.view_state.viewport
        await pilot.click("#timeline", offset=(view.cell(20_000 + 1 * TOKEN + 50_000), 1))
        assert shown_numbers(screen) == [1]


async def test_zooming_out_keeps_the_fold_and_zero_shows_the_rest() -> None:
    async with explorer(decode(tokens=8, layers=5), (160, 48)) as (screen, pilot):
        await fold(screen, pilot)
        await pilot.press("s", "s", "0")
        state = screen.view_state
        assert state.viewport.is_whole
        assert state.viewport.span < state.trace.span[1] - state.trace.span[0]
        assert "× 3" in text_on_screen(screen)


async def test_recorded_steps_fold_too() -> None:
    async with explorer(two_steps(), (160, 48)) as (screen, pilot):
        await settled(pilot)
        await pilot.press("u")
        assert "× 1" in text_on_screen(screen)
        assert [seam.count for seam in screen.view_state.folding.seams] == [1]


@pytest.mark.parametrize("made", keep_some([trace(kernel("k", 0, 5), kernel("l", 6, 5)), trace(cpu("a", 0, 5))], 1))
async def test_a_trace_without_repeats_says_so(made: object) -> None:
    async with explorer(made) as (screen, pilot):  # type: ignore[arg-type]
        await settled(pilot)
        await pilot.press("u")
        assert "nothing to fold: no steps were recorded" in text_on_screen(screen)


@at_every_size
async def test_folded_tokens_and_layers(size: tuple[int, int]) -> None:
    async with explorer(decode(tokens=32, layers=8, slow=20), size) as (screen, pilot):
        await fold(screen, pilot, 2)
        await settled(pilot)
        await pilot.press("}")
        await settled(pilot)
        drawn = text_on_screen(screen)
    compare_golden("explorer-folded", size, drawn)


def test_the_label_of_a_band_moves_beside_the_seams() -> None:
    band = "▏#3 161.2 ms".ljust(30)
    assert move_label_beside(band, 10, [(50, SEAM * 9)]) == band
    assert move_label_beside(band, 10, [(12, SEAM * 8)]) == " " * 10 + "▏#3 161.2 ms" + " " * 8


async def test_the_title_leaves_out_what_is_folded() -> None:
    async with explorer(decode(tokens=8, layers=5, slow=2), (160, 48)) as (screen, pilot):
        await fold(screen, pilot)
        await pilot.press("0")
        title = screen._lanes_area.title
        state = screen.view_state
        hidden = [(seam.start, seam.end) for seam in state.folding.seams]
        made = state.trace
        kept = [k for k in range(len(made)) if not any(low <= int(made.start[k]) < high for low, high in hidden)]
        length = made.span[1] - made.span[0] - sum(high - low for low, high in hidden)
        share = sum(int(made.duration[k]) for k in kept) / length
        assert title._gpu_busy_share(*made.span, state.folding.fold and state.folding.fold.time) == share
