"""The diff screen: what its first screen says, differences by size, the lock under any keys, and other screens."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.helpers.diff_app import comparison, lines_of, status_of
from tests.helpers.explorer_app import settled, two_steps, until
from tests.helpers.golden_files import cases_at_every_size, compare_golden, load_sample
from tests.helpers.long_run import keep_some
from tests.helpers.trace_builder import cpu, event, kernel, runtime, step, trace
from torchprof_tui.analysis.compare.event_matches import EventStatus
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.diff.diff_screen import DiffScreen, SideExplorer
from torchprof_tui.ui.diff.locked_view import Lock
from torchprof_tui.ui.diff.side_lanes import LEGEND

NAMED_KEYS = ["left", "right", "up", "down", "enter", "backspace", "home", "end", "tab", "space", "pagedown"]
NAMED_KEYS += ["less_than_sign", "greater_than_sign"]
NAIVE, FLASH = "attention_naive", "attention_flash"


def steps_of(*ops: str, kernel_time: float = 20, count: int = 3, late: float = 0) -> Trace:
    """Build steps of 200 µs; each op launches a kernel of its name after 10 µs. `late`: µs before the first step."""
    entries = []
    for number in range(count):
        start = late + 200 * number
        entries.append(step(number, start, 190))
        for index, op in enumerate(ops):
            at, corr = start + 10 + 40 * index, 1 + 10 * number + index
            entries += [cpu(op, at, 12), runtime("cudaLaunchKernel", at + 2, 4, corr=corr)]
            entries.append(kernel(f"{op}_kernel", at + 14, kernel_time, corr=corr))
    return trace(*entries)


def columns_of(screen: DiffScreen) -> list[tuple[int, ...]]:
    """Return the columns of some distances from the references, for each side."""
    distances = (-1_000, 0, 777, 15_000, 150_000)
    return [
        tuple(side.timeline._viewport.cell(screen.locked.references[k] + distance) for distance in distances)
        for k, side in enumerate(screen.sides)
        if side.timeline._viewport is not None
    ]


async def test_the_first_screen_says_how_much_whether_by_chance_and_why() -> None:
    async with comparison(load_sample(NAIVE), load_sample(FLASH), (80, 24)) as (screen, _):
        lines = lines_of(screen)
        top = " ".join(line.strip() for line in lines[1:4])
        assert top.startswith("beyond the noise: a step of B is 2.12 ms (93 %) shorter than one of A, 14 times as fast")
        assert "largest cause: GPU: elementwise: -966.7 µs" in top
        assert LEGEND in lines[0]
        assert any(line.startswith(" A ") for line in lines[4:])
        assert any(line.startswith(" B ") for line in lines[4:])


@pytest.mark.long
async def test_marks_read_without_colour() -> None:
    a, b = steps_of("aten::mm", "aten::relu"), steps_of("aten::mm", "aten::gelu")
    async with comparison(a, b, (160, 30)) as (screen, _):
        text = "\n".join(lines_of(screen))
        assert "*▏relu" in text
        assert "*▏gelu" in text
        assert "▏mm" in text
        assert "*▏mm" not in text
    async with comparison(steps_of("aten::mm"), a, (160, 30)) as (screen, _):
        assert "+▏relu" in "\n".join(lines_of(screen))
    async with comparison(a, steps_of("aten::mm"), (160, 30)) as (screen, _):
        assert "-▏relu" in "\n".join(lines_of(screen))


async def test_a_trace_against_itself_has_no_marks_and_no_differences() -> None:
    shown = load_sample(FLASH)
    async with comparison(shown, shown) as (screen, pilot):
        assert "the same recording: nothing differs" in lines_of(screen)[1]
        for side in screen.sides:
            assert side.matches is not None
            assert set(np.unique(side.matches.status)) <= {EventStatus.NOT_COMPARED, EventStatus.MATCHED}
        await pilot.press("n")
        assert status_of(screen).startswith("the same recording: nothing differs; D compares another trace")
        assert "step 3/4" in status_of(screen)


@pytest.mark.long
async def test_n_goes_through_the_differences_by_size() -> None:
    a, b = steps_of("aten::mm", "aten::relu", "aten::add"), steps_of("aten::mm", "aten::relu")
    async with comparison(a, b) as (screen, pilot):
        sizes = [max(abs(row.gpu_delta_ns), abs(row.cpu_delta_ns)) for row in screen.differences.rows]
        assert sizes == sorted(sizes, reverse=True)
        await pilot.press("n")
        row = screen.differences.current
        assert row is not None
        assert row.name_a == "aten::add"
        assert a.event(screen.sides[0].selected).name == "aten::add"
        assert screen.sides[1].selected == -1
        assert "only in A" in status_of(screen)
        await pilot.press("m")
        assert "only in A: there is nothing to align it with" in status_of(screen)
        await pilot.press("N")
        assert screen.differences.cursor == screen.differences.count - 1 == 1


@pytest.mark.long
async def test_enter_fits_both_sides_to_the_difference() -> None:
    a, b = steps_of("aten::mm", kernel_time=20), steps_of("aten::mm", kernel_time=90)
    async with comparison(a, b) as (screen, pilot):
        await pilot.press("n", "enter")
        for number, side in enumerate(screen.sides):
            ((_, start, end),) = side.list_range()
            view = screen.locked.viewport(number)
            assert view.t0 <= start < end <= view.t1
        assert screen.locked.view.span < 20_000
        fitted = screen.locked
        await pilot.press("enter")
        assert "fitted already" in status_of(screen)
        await pilot.press("0", "backspace")
        assert screen.locked == fitted


@pytest.mark.long
async def test_ops_are_aligned_at_the_same_column() -> None:
    a, b = steps_of("aten::mm", "aten::relu", "aten::add"), steps_of("aten::mm", "aten::add", late=3_000)
    async with comparison(a, b) as (screen, pilot):
        await pilot.press("m")
        assert "select an op first" in status_of(screen)
        screen.differences.cursor = -1
        await pilot.press("/", *"add", "enter", "m")
        assert screen.locked.lock is Lock.OPS
        assert "locked at the op" in status_of(screen)
        columns = [
            side.timeline._viewport.cell(int(side.trace.start[side.selected]))
            for side in screen.sides
            if side.timeline._viewport is not None
        ]
        assert columns[0] == columns[1]
        names = [side.trace.event(side.selected).name for side in screen.sides]
        assert names == ["aten::add", "aten::add"]
        await pilot.press("m")
        assert screen.locked.lock is Lock.STEPS


@pytest.mark.long
@pytest.mark.parametrize("seed", keep_some(range(4), 1))
async def test_columns_stay_equal_under_any_keys(seed: int) -> None:
    chosen = random.Random(seed).choices([*"wsadWSAnNM{}0bz", *NAMED_KEYS], k=40)
    a, b = steps_of("aten::mm", "aten::relu"), steps_of("aten::mm", "aten::gelu", "aten::add", late=5_000)
    async with comparison(a, b, (80 + 13 * seed, 24 + seed)) as (screen, pilot):
        for key in chosen:
            await pilot.press(key)
            first, second = columns_of(screen)
            assert first == second, key
        await settled(pilot)


@pytest.mark.long
async def test_the_other_way_round_is_the_mirror_image() -> None:
    a, b = steps_of("aten::mm", "aten::relu"), steps_of("aten::mm", "aten::gelu", "aten::add")
    async with comparison(a, b) as (screen, pilot):
        rows = screen.differences.rows
        first = [(row.name_a, row.name_b, row.gpu_delta_ns) for row in rows]
        await pilot.press("x")
        await settled(pilot)
        swapped = pilot.app.screen
        assert isinstance(swapped, DiffScreen)
        assert swapped is not screen
        assert swapped.sides[0].trace is b
        mirrored = [(row.name_b, row.name_a, -row.gpu_delta_ns) for row in swapped.differences.rows]
        assert sorted(mirrored) == sorted(first)


@pytest.mark.long
async def test_steps_correspond_by_their_place() -> None:
    a, b = steps_of("aten::mm", count=4), steps_of("aten::mm", count=3, late=9_000)
    async with comparison(a, b) as (screen, pilot):
        pairs = screen._starts
        assert len(pairs) == min(len(side.side.steps) for side in (screen.comparison.a, screen.comparison.b))  # type: ignore[union-attr]
        before = screen.locked.view
        await pilot.press("}")
        assert screen.locked.references == pairs[1]
        assert (screen.locked.view.t0, screen.locked.view.t1) == (before.t0, before.t1)
        await pilot.press("{", "{")
        assert status_of(screen) == "the first pair of compared steps"


@pytest.mark.long
async def test_tab_marks_the_part_with_the_keys() -> None:
    async with comparison(two_steps(), steps_of("aten::mm"), (80, 24)) as (screen, pilot):
        for title in ("[rows ↑↓]", "[remarks ↑↓]", " A ", " B ", "[account ↑↓]"):
            await pilot.press("tab")
            marked = [line for line in lines_of(screen) if "↑↓" in line]
            assert len(marked) == 1
            assert title in marked[0]


async def test_the_explorer_of_a_side_and_back() -> None:
    a, b = steps_of("aten::mm", "aten::relu"), steps_of("aten::mm", "aten::gelu")
    async with comparison(a, b) as (screen, pilot):
        await pilot.press("n", "i")
        await settled(pilot)
        shown = pilot.app.screen
        assert isinstance(shown, SideExplorer)
        assert shown.trace is b
        assert shown.view_state.selected == screen.sides[1].selected >= 0
        await pilot.press("escape")
        assert pilot.app.screen is screen
        await pilot.press("l")
        await settled(pilot)
        shown = pilot.app.screen
        assert isinstance(shown, SideExplorer)
        assert shown.help_topic == "chain"
        await pilot.press("q")


@pytest.mark.long
async def test_the_filter_lists_rows_and_esc_clears_before_it_leaves() -> None:
    a, b = steps_of("aten::mm", "aten::relu"), steps_of("aten::mm", "aten::gelu", kernel_time=40)
    async with comparison(a, b) as (screen, pilot):
        total = len(screen.differences.rows)
        await pilot.press("/", *"relu", "enter")
        assert 0 < len(screen.differences.rows) < total
        await pilot.press("/", *"nothing like it", "enter", "n")
        assert "no difference matches" in status_of(screen)
        await pilot.press("escape")
        assert len(screen.differences.rows) == total
        await pilot.press("n", "y")
        assert pilot.app.copied  # type: ignore[attr-defined]
        await pilot.press("tab", "tab", "Y", "escape")
        assert all(side.selected < 0 for side in screen.sides)
        await pilot.press("escape")
        assert pilot.app.screen is not screen


@pytest.mark.long
async def test_rows_by_kernel() -> None:
    async with comparison(load_sample(NAIVE), load_sample(FLASH)) as (screen, pilot):
        await pilot.press("b")
        await until(pilot, lambda: screen.differences.by == "kernel")
        await pilot.press("n")
        assert "per step, by kernel" in "\n".join(lines_of(screen))


@pytest.mark.long
async def test_panels_hold_the_account_the_remarks_and_unmatched_work() -> None:
    entries = [[step(k, 100 * k, 90), cpu("aten::mm", 100 * k, 9), kernel("gemm", 100 * k + 40, 10)] for k in range(3)]
    unlaunched = trace(*(entry for each in entries for entry in each))
    async with comparison(load_sample(NAIVE), load_sample(FLASH), (240, 60)) as (screen, _):
        text = "\n".join(lines_of(screen))
        assert "patterns of A only" in text
        assert "memory-bound-elementwise" in text
        assert "left out: step #2" in text
        assert "GPU: attention" in text
    async with comparison(unlaunched, steps_of("aten::mm"), (240, 60)) as (screen, _):
        assert "GPU work, no launch" in screen._rows.text()


@pytest.mark.long
async def test_the_steps_of_the_lanes_and_of_the_account_say_what_their_lengths_are_of() -> None:
    """A step of 190 µs on the lanes stood above one of 196.7 µs in the account."""
    async with comparison(steps_of("aten::mm"), steps_of("aten::mm", kernel_time=150, count=1), (160, 48)) as (
        screen,
        _,
    ):
        text = "\n".join(lines_of(screen))
        assert "#0 190.0 µs on CPU" in text
        assert "per step, until GPU done" in text
        assert "A, mean of 3               196.7 µs" in text
        assert "B, mean" not in text
    steps = trace(*(each for k in range(3) for each in (step(k, 100 * k, 90), cpu("aten::mm", 100 * k, 9))))
    async with comparison(steps, steps_of("aten::mm"), (160, 48)) as (screen, _):
        text = "\n".join(lines_of(screen))
        assert "#0 90.0 µs  " in text
        assert "until GPU done" not in text


async def test_what_is_no_torch_trace_is_said_with_the_next_step() -> None:
    other = trace(event("request", 0, 10, "web"))
    async with comparison(steps_of("aten::mm"), other, (80, 24)) as (screen, pilot):
        text = " ".join(line.strip() for line in lines_of(screen))
        assert "B (after): no torch.profiler trace" in text
        assert "D compares with another trace" in text
        await pilot.press("n")
        assert "these cannot be compared: esc goes back" in status_of(screen)
        await pilot.press("escape")
        assert pilot.app.screen is not screen


@pytest.mark.parametrize("width", keep_some([40, 60, 80, 120], 1))
async def test_small_screens_are_usable_or_say_what_is_missing(width: int) -> None:
    async with comparison(steps_of("aten::mm"), steps_of("aten::mm", kernel_time=40), (width, 14)) as (screen, pilot):
        await pilot.press("n", "enter", "tab", "z")
        await pilot.resize_terminal(30, 10)
        await pilot.pause()
        assert "needs 40x14 cells" in " ".join(line.strip() for line in lines_of(screen))


@cases_at_every_size("name,keys", [("diff", ()), ("diff-difference", ("n", "enter", "m"))])
async def test_goldens(name: str, keys: tuple[str, ...], size: tuple[int, int]) -> None:
    async with comparison(load_sample(NAIVE), load_sample(FLASH), size) as (screen, pilot):
        await pilot.press(*keys)
        await settled(pilot)
        drawn = "".join(f"{line}\n" for line in lines_of(screen))
    compare_golden(name, size, drawn)
