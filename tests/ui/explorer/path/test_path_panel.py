"""The critical path on the explorer (`C`): its panel, its keys, and what of the trace it is about."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.analysis.rank_path.simulated_ranks import write_late_run
from tests.helpers.explorer_app import event_of, explorer, settled, text_of, two_steps, until
from tests.helpers.golden_files import at_every_size, cases_at_every_size, compare_golden, load_sample, text_on_screen
from tests.helpers.merged_ranks import load_merged_ranks
from tests.helpers.rank_traces import late_rank
from tests.helpers.trace_builder import cpu, kernel, runtime, step, trace
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.event_styles import CellForm, Emphasis, style_index
from torchprof_tui.ui.common.status_line import StatusLine
from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen
from torchprof_tui.ui.explorer.path import path_panel
from torchprof_tui.ui.explorer.path.path_panel import PathPanel, PathScope
from torchprof_tui.ui.explorer.path.shown_path import PathRead
from torchprof_tui.ui.lanes.timeline import Timeline


def panel_of(screen: ExplorerScreen) -> PathPanel:
    return screen._panel_controller.path_panel


def label_of(screen: ExplorerScreen) -> str:
    shown = panel_of(screen).shown
    assert shown is not None
    return shown.scope.label


def emphases_on_lanes(screen: ExplorerScreen) -> set[Emphasis]:
    """Return which emphases the lanes are painted with."""
    timeline = screen.query_one(Timeline)
    names = {
        id(timeline.palette.cells[int(style_index(kind, form, emphasis))]): emphasis
        for emphasis in (Emphasis.DIMMED, Emphasis.ON_PATH)
        for form in CellForm
        for kind in range(17)
    }
    strips = timeline.render_lines(timeline.size.region)
    return {names[id(segment.style)] for strip in strips for segment in strip if id(segment.style) in names}


def long_wait() -> Trace:
    """Build a step whose thread waits for a long kernel of stream 7; one of stream 8 has time to spare."""
    return trace(
        step(1, 0, 200),
        cpu("aten::mm", 5, 30),
        runtime("cudaLaunchKernel", 10, 10, 1),
        kernel("gemm", 21, 150, 1, stream=7),
        runtime("cudaLaunchKernel", 40, 10, 2),
        kernel("add", 51, 20, 2, stream=8),
        runtime("cudaDeviceSynchronize", 60, 115, 3),
    )


async def test_the_panel_sums_the_path_and_the_lanes_dim_the_rest() -> None:
    async with explorer(long_wait(), (120, 40)) as (screen, pilot):
        assert emphases_on_lanes(screen) == set()
        await pilot.press("C")
        await settled(pilot)
        text = text_of(screen)
        assert "[path ↑↓]" in text
        assert "ProfilerStep#1, 200.0 µs: " in text
        assert "replay" not in text  # its error is too small to matter
        assert "200.0 µs: from the end" not in text  # the steps row shows the same
        assert "75 %  150.0 µs       1  kernel: other" in text
        assert "critical path of ProfilerStep#1: 75 % kernel: other · C hides it" in text
        assert emphases_on_lanes(screen) == {Emphasis.DIMMED, Emphasis.ON_PATH}
        assert "●gemm" in text
        assert "●add" not in text
        await pilot.press("C")
        await pilot.pause()
        assert emphases_on_lanes(screen) == set()
        assert "[details]" in text_of(screen)
        assert screen.query_one(StatusLine).message == "critical path hidden"


async def test_while_it_is_computed_the_screen_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    read = path_panel.read_path

    def wait_and_read(shown: Trace, scope: PathScope) -> PathRead:
        assert released.wait(60)
        return read(shown, scope)

    monkeypatch.setattr(path_panel, "read_path", wait_and_read)
    async with explorer(long_wait(), (120, 40)) as (screen, pilot):
        await pilot.press("C")
        await pilot.pause(0.1)
        try:
            assert text_of(screen).count("computing the critical path of ProfilerStep#1 …") == 2  # panel, status line
            assert emphases_on_lanes(screen) == set()
            await pilot.press("down")
            assert screen.view_state.selected >= 0  # the lanes have the keys meanwhile
        finally:
            released.set()
        await settled(pilot)
        assert "longest" in text_of(screen)


@pytest.mark.long
async def test_the_selected_event_is_on_the_path_or_has_slack() -> None:
    shown = long_wait()
    async with explorer(shown, (160, 48)) as (screen, pilot):
        await pilot.press("C")
        await settled(pilot)
        for name, said in (
            ("gemm", "on the critical path with 150.0 µs of its 150.0 µs"),
            ("aten::mm", "on the critical path with 15.0 µs of its 30.0 µs, 5.00 µs by itself"),
            ("add", "off the critical path: could take 100.0 µs longer before the step grows"),
        ):
            screen.view_state.select(event_of(shown, name))
            screen._refresh_widgets()
            await settled(pilot)
            assert f"selected event: {said}" in text_of(screen)
            assert not len(screen.query_one(Timeline).highlighted)  # the chain would light what is off the path
        await pilot.press("l")
        await settled(pilot)
        assert "selected: off the critical path: could take 100.0 µs longer" in text_of(screen)
        assert len(screen.query_one(Timeline).highlighted)
        await pilot.press("C")
        await settled(pilot)
        assert "critical path:" not in text_of(screen)


@pytest.mark.long
async def test_enter_shows_a_segment_and_n_walks_along_the_path() -> None:
    shown = long_wait()
    async with explorer(shown, (120, 40)) as (screen, pilot):
        await pilot.press("C")
        await settled(pilot)
        await pilot.press("enter")  # on the first kind: its longest segment
        gemm = event_of(shown, "gemm")
        assert screen.view_state.selected == gemm
        view = screen.view_state.viewport
        assert view.t0 <= shown.start[gemm]
        assert shown.start[gemm] + shown.duration[gemm] <= view.t1
        shares = len(panel_of(screen).shown.path.shares)  # type: ignore[union-attr]
        await pilot.press(*["down"] * shares)
        await pilot.press("n")
        said = [screen.query_one(StatusLine).message]
        for _ in range(3):
            await pilot.press("n")
            said.append(screen.query_one(StatusLine).message)
        await pilot.press("N")
        assert screen.query_one(StatusLine).message == said[2]
        count = len(panel_of(screen).shown.path.segments)  # type: ignore[union-attr]
        numbers = [int(line.removeprefix("critical path, ").split(" of ")[0]) for line in said]
        assert [(number - numbers[0]) % count for number in numbers] == [0, 1, 2, 3]
        await pilot.press(*["up"] * 99)
        assert "the first row of the critical path" in screen.query_one(StatusLine).message


@pytest.mark.long
async def test_another_step_is_followed_when_it_is_gone_to() -> None:
    shown = two_steps()
    async with explorer(shown, (120, 40)) as (screen, pilot):
        screen.view_state.select(event_of(shown, "ProfilerStep#0"))
        await pilot.press("C")
        await settled(pilot)
        assert label_of(screen) == "ProfilerStep#0"
        await pilot.press("}")
        await settled(pilot)
        assert label_of(screen) == "ProfilerStep#1"
        screen.view_state.select(event_of(shown, "gemm", 0))  # launched by the first step
        screen._refresh_widgets()
        await settled(pilot)
        assert label_of(screen) == "ProfilerStep#0"
        await pilot.press("escape", "d")  # nothing is selected: what is shown stays while it is on screen
        await settled(pilot)
        assert label_of(screen) == "ProfilerStep#0"


@pytest.mark.long
async def test_a_marked_range_is_followed_and_a_mark_that_moves_ends() -> None:
    shown = two_steps()
    async with explorer(shown, (120, 40)) as (screen, pilot):
        screen.view_state.select(event_of(shown, "aten::mm", 1))
        await pilot.press("m", "right", "C")
        await settled(pilot)
        assert label_of(screen) == "the marked range"
        assert screen.view_state.mark is not None
        assert not screen.view_state.mark.live
        assert "the marked range, 120" in text_of(screen)
        await pilot.press("escape")
        await settled(pilot)
        assert label_of(screen) == "ProfilerStep#1"


async def test_without_steps_it_is_the_time_on_screen() -> None:
    shown = trace(
        cpu("aten::mm", 0, 30), runtime("cudaLaunchKernel", 10, 10, 1), kernel("gemm", 31, 150, 1), cpu("end", 190, 10)
    )
    async with explorer(shown, (120, 40)) as (screen, pilot):
        await pilot.press("C")
        await settled(pilot)
        assert label_of(screen) == "the whole recording"
        screen.view_state.show_range(50_000, 100_000)
        await pilot.press("C", "C")
        await settled(pilot)
        assert label_of(screen) == "the time that was on screen"
        assert "100 %   50.0 µs       1  kernel: other" in text_of(screen)


async def test_where_nothing_can_be_followed_the_reason_is_shown() -> None:
    async with explorer(trace(kernel("gemm", 0, 50), kernel("add", 60, 50)), (120, 40)) as (screen, pilot):
        await pilot.press("C")
        await settled(pilot)
        assert "nothing to follow: no CPU thread was recorded" in text_of(screen)
        await pilot.press("n", "enter", "down", "C")
        await settled(pilot)


async def test_a_path_that_is_not_explained_says_what_is_missing_first() -> None:
    shown = trace(
        step(1, 0, 1000),
        runtime("cudaLaunchKernel", 5, 5, 1),
        kernel("gemm", 11, 100, 1),
        runtime("cudaLaunchKernel", 12, 5, 2),
        kernel("late", 600, 300, 2),
        runtime("cudaDeviceSynchronize", 20, 900, 3),
    )
    async with explorer(shown, (160, 48)) as (screen, pilot):
        await pilot.press("C")
        await settled(pilot)
        text = text_of(screen)
        assert "a replay of the recorded dependencies takes 46.9 % less time" in text
        assert "dependencies are missing, do not trust this path" in text
        assert "between two works of a stream: no recorded dependency" in text
        assert "enable_cuda_sync_events=True" in text
        assert text.index("a replay of") < text.index("on the path")


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    folder: Path = tmp_path_factory.mktemp("ranks")
    return load_merged_ranks(late_rank(3, late=1).write(folder))


@pytest.fixture(scope="module")
def late_ranks(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return load_merged_ranks(write_late_run(tmp_path_factory.mktemp("late")))


@pytest.mark.long
async def test_of_several_ranks_it_is_the_path_of_all_first(late_ranks: Trace) -> None:
    ranks = late_ranks
    async with explorer(ranks, (160, 60)) as (screen, pilot):
        screen.view_state.select(ranks.all_ranks[2].steps[0].event)
        await pilot.press("C")
        await settled(pilot)
        shown = panel_of(screen).shown
        assert shown is not None
        assert shown.rank_label == "all 3 ranks"
        text = text_of(screen)
        assert "ProfilerStep#0 of all 3 ranks" in text
        assert "on the path: rank 1 59 %, rank 0 41 %" in text
        assert [shown.segment(index).rank for index in (0, len(shown.path.segments) - 1)] == [1, 0]
        assert panel_of(screen).describe_segment(shown.segment(1)).startswith("rank 1 ")
        used = {row for row in range(ranks.row_index.rows) if shown.rows.first[row + 1] > shown.rows.first[row]}
        on_rows = {
            rank.number
            for rank in ranks.all_ranks
            for event in range(rank.first, rank.last)
            if ranks.lanes[int(ranks.lane[event])].row_base + int(ranks.row[event]) in used
        }
        assert on_rows == {0, 1}
        screen.view_state.select(ranks.all_ranks[0].steps[0].event)  # the same step: the same path
        screen._refresh_widgets()
        await settled(pilot)
        assert panel_of(screen).shown is shown
        await pilot.press("C", "C")
        await settled(pilot)
        assert not panel_of(screen).is_on


@pytest.mark.long
async def test_the_next_c_shows_the_path_of_the_selected_rank(ranks: Trace) -> None:
    async with explorer(ranks, (160, 60)) as (screen, pilot):
        second = ranks.all_ranks[1]
        inside = [event for event in range(second.first, second.last) if ranks.duration[event] > 0]
        screen.view_state.select(second.steps[1].event)
        await pilot.press("C", "C")
        await settled(pilot)
        shown = panel_of(screen).shown
        assert shown is not None
        assert (shown.scope.rank_index, shown.rank_label) == (1, "rank 1")
        assert " of rank 1, " in text_of(screen)
        for index in range(len(shown.path.segments)):
            event = shown.segment(index).event
            assert event < 0 or second.first <= event < second.last
        rows = {ranks.lanes[int(ranks.lane[event])].row_base + int(ranks.row[event]) for event in inside}
        used = {row for row in range(ranks.row_index.rows) if shown.rows.first[row + 1] > shown.rows.first[row]}
        assert used
        assert used <= rows
        other = ranks.all_ranks[0].steps[1].event
        assert shown.describe_event(ranks, other) == "of another rank: this is the path of rank 1"
        screen.view_state.select(other)
        screen._refresh_widgets()
        await until(pilot, lambda: " of rank 0, " in text_of(screen))


@at_every_size
async def test_goldens_of_ranks(late_ranks: Trace, size: tuple[int, int]) -> None:
    async with explorer(late_ranks, size) as (screen, pilot):
        await pilot.press("C")
        await settled(pilot)
        await pilot.pause()
        drawn = text_on_screen(screen)
    compare_golden("explorer-critical-path-ranks", size, drawn)


@cases_at_every_size(
    "name,sample,keys",
    [
        ("critical-path", "train_gpt_eager", ("C", "down", "enter")),
        ("critical-path-gpu", "multi_stream_overlap", ("C",)),
    ],
)
async def test_goldens(name: str, sample: str, keys: tuple[str, ...], size: tuple[int, int]) -> None:
    async with explorer(load_sample(sample), size) as (screen, pilot):
        for key in keys:
            await pilot.press(key)
            await settled(pilot)
        await pilot.pause()
        drawn = text_on_screen(screen)
    compare_golden(f"explorer-{name}", size, drawn)
