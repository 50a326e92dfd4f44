"""The explorer with several ranks: one line per folded rank, and panels and tables about the current rank."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.geometry import Offset
from textual.pilot import Pilot

from tests.helpers.explorer_app import explorer, settled, text_of, until
from tests.helpers.golden_files import at_every_size, cases_at_every_size, compare_golden, text_on_screen
from tests.helpers.merged_ranks import load_merged_ranks
from tests.helpers.rank_traces import late_rank
from torchprof_tui.analysis.patterns.verdict.rank_checks import MultiRankChecker
from torchprof_tui.app import TorchprofApp
from torchprof_tui.trace.loading.resolve import resolve_specs
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen
from torchprof_tui.ui.lanes.screen_lines import LaneArrangement, LaneLines, LineContent, rank_rows
from torchprof_tui.ui.table.table_screen import TableScreen
from torchprof_tui.ui.tree.tree_screen import TreeScreen

pytestmark = pytest.mark.painted


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """Build three ranks, the second 3 ms late to the first collective of each of three steps."""
    run = late_rank(3, late=1)
    run.more[2] = [{"ph": "C", "name": "queue", "pid": 1002, "tid": 1002, "ts": 3000, "args": {"length": 3}}]
    trace = load_merged_ranks(run.write(tmp_path_factory.mktemp("ranks")))
    object.__setattr__(trace, "label", "three_ranks")
    return trace


@asynccontextmanager
async def folded_explorer(shown: Trace, size: tuple[int, int]) -> AsyncIterator[tuple[ExplorerScreen, Pilot[None]]]:
    """Run the app around the ranks, each folded to one line; by themselves they open where they fit."""
    async with explorer(shown, size) as (screen, pilot):
        headers = frozenset(rank.header_lane for rank in shown.all_ranks)
        screen.view_state.lane_view.apply_arrangement(LaneArrangement(folded=headers))
        screen._refresh_widgets()
        await pilot.pause()
        yield screen, pilot


def contents(screen: ExplorerScreen) -> list[tuple[LineContent, str]]:
    """Return the content of each line of the lanes, with the label of its lane."""
    return [(line.content, screen.trace.lanes[line.lane].label) for line in screen.view_state.lane_view.lane_lines.body]


@pytest.mark.long
async def test_a_line_each_until_opened(shown: Trace) -> None:
    async with folded_explorer(shown, (120, 40)) as (screen, pilot):
        folded = [(LineContent.RANK, "rank 0"), (LineContent.RANK, "rank 1"), (LineContent.RANK, "rank 2")]
        assert contents(screen) == folded
        await pilot.press("space")
        opened = contents(screen)
        assert opened[0] == (LineContent.RANK, "rank 0")
        assert opened[-2:] == folded[1:]
        labels = [label for content, label in opened if content is LineContent.ROW]
        assert labels[0].startswith("CPU 1000")
        assert labels[-1] == "stream 20"
        await pilot.press("down", "up", "space")
        assert contents(screen) == folded
        assert "▸ rank 1" in text_of(screen)


async def test_walking_from_rank_to_rank(shown: Trace) -> None:
    """↓ selects the kernel nearest to the cursor on the next rank; verdict, cheatsheet and steps follow that rank."""
    assert shown.merged_ranks is not None
    async with folded_explorer(shown, (120, 40)) as (screen, pilot):
        await settled(pilot)
        assert "rank 0: " in text_of(screen)
        for number in range(3):
            await pilot.press("down")
            event = screen.trace.event(screen.view_state.selected)
            assert event.lane.rank == number
            assert event.lane.role is Role.STREAM
            assert screen.view_state.current_rank() is shown.merged_ranks.all[number]
            assert (
                screen.view_state.lane_view.lane_lines.line_index(int(shown.lane[screen.view_state.selected]), 0)
                == number
            )
        await settled(pilot)
        assert "rank 2: " in text_of(screen)
        assert "rank 2 whole trace" in screen._panel_controller.cheatsheet_panel.text()
        assert screen._lanes_area.ruler._steps is shown.merged_ranks.all[2].steps
        await pilot.press("}")
        step = screen.trace.event(screen.view_state.selected)
        assert (step.name[:12], step.lane.rank) == ("ProfilerStep", 2)
        await pilot.press("g", *"#0", "enter")
        assert screen.trace.event(screen.view_state.selected).lane.rank == 2
        await pilot.press("down")
        assert screen.view_state.current_rank() is shown.merged_ranks.all[2]
        before = screen.view_state.selected
        await pilot.press("right")
        assert screen.trace.event(screen.view_state.selected).lane.rank == 2
        assert screen.view_state.selected != before


@pytest.mark.long
async def test_an_event_in_a_folded_rank_is_drawn_in_its_line(shown: Trace) -> None:
    async with folded_explorer(shown, (120, 40)) as (screen, pilot):
        await pilot.press("/", *"c10d", "enter")
        event = screen.view_state.selected
        assert screen.trace.event(event).name == "c10d::allreduce_"
        rank = screen.trace.event(event).lane.rank
        assert screen._lanes_area.timeline.find_event_lines([event]) == [rank]
        await pilot.pause()
        line = text_of(screen).splitlines()[screen._lanes_area.timeline.region.y + int(rank or 0)]
        assert "◆" in line
        await pilot.press("space")  # the rank unfolds, and the event is drawn on its own lane
        assert (LineContent.ROW, screen.trace.event(event).lane.label) in contents(screen)
        assert len(screen._lanes_area.timeline.find_event_lines([event])) == 1


@pytest.mark.long
async def test_a_click_opens_a_rank_and_picks_an_event(shown: Trace) -> None:
    async with folded_explorer(shown, (120, 40)) as (screen, pilot):
        await pilot.click(screen._lanes_area.gutter, offset=Offset(1, 1))
        assert (LineContent.RANK, "rank 1") in contents(screen)
        assert any(content is LineContent.ROW for content, _ in contents(screen))
        await pilot.click(screen._lanes_area.gutter, offset=Offset(1, 1))
        assert len(contents(screen)) == 3
        drawn = screen._lanes_area.timeline
        column = next(x for x in range(drawn.size.width) if drawn.event_at(x, 2) >= 0)
        await pilot.click(drawn, offset=Offset(column, 2))
        assert screen.trace.event(screen.view_state.selected).lane.rank == 2


@pytest.mark.long
async def test_a_rank_that_recorded_nothing(tmp_path: Path) -> None:
    run = late_rank(3)
    for step in run.steps:
        for collective in step:
            collective.arrive = [collective.arrive[0], None, collective.arrive[2]]
    paths = run.write(tmp_path)
    document = json.loads(paths[1].read_text())
    paths[1].write_text(json.dumps({**document, "traceEvents": document["traceEvents"][:1]}))
    shown = load_merged_ranks(paths)
    assert shown.merged_ranks is not None
    assert [len(rank.trace) for rank in shown.merged_ranks.all] == [21, 0, 21]
    async with folded_explorer(shown, (120, 40)) as (screen, pilot):
        await settled(pilot)
        lines = text_of(screen).splitlines()
        line = next(line for line in lines if "rank 1" in line)
        assert line.split("│")[1].strip() == ""
        for key in ("down", "down", "down", "up", "space", "right", "t", "escape", "T", "escape", "c", "x", "}", "G"):
            await pilot.press(key)
            await settled(pilot)
        assert screen.app.is_running


@pytest.mark.long
async def test_hidden_and_shown_again(shown: Trace) -> None:
    async with folded_explorer(shown, (120, 40)) as (screen, pilot):
        await pilot.press("down", "down", ":", *"hide", "enter")
        assert [label for _, label in contents(screen)] == ["rank 0", "rank 2"]
        assert shown.merged_ranks is not None
        screen.view_state.select(shown.merged_ranks.all[1].first)  # selecting an event unhides its rank
        assert [label for _, label in contents(screen)] == ["rank 0", "rank 1", "rank 2"]
        await pilot.press("up", ":", *"hide", "enter", ":", *"unhide", "enter")
        assert len(contents(screen)) == 3


async def test_a_straggler_names_the_late_rank_and_a_key_opens_it(shown: Trace) -> None:
    """Its cause, which the verdict of that rank tells, is that of the command `check`, which checks all ranks."""
    checker = MultiRankChecker(shown)
    findings, _ = checker.check(checker.default_scope)
    straggler = next(each for each in findings if each.id == "straggler")
    assert straggler.remedy.action.startswith("open rank 1: ")
    async with folded_explorer(shown, (160, 48)) as (screen, pilot):
        panel = screen._panel_controller.cheatsheet_panel
        await until(pilot, lambda: any(each.remedy == straggler.remedy for each in panel._fired_findings()))
        number = [each.id for each in panel._fired_findings()].index("straggler") + 1
        await pilot.press(str(number))
        assert "] opens rank 1" in panel.text()
        collective = screen.view_state.selected
        assert screen.trace.event(collective).lane.rank == 0
        await pilot.press("]")
        await settled(pilot)
        assert screen.trace.event(screen.view_state.selected).lane.rank == 1
        assert not screen.view_state.lane_view.are_ranks_folded
        assert panel.finding is not None
        assert panel.finding.is_leading
        assert "opens rank 1" not in panel.text()
        await pilot.press("backspace")
        assert screen.view_state.selected == collective


@pytest.mark.long
async def test_a_colon_goes_to_a_rank(shown: Trace) -> None:
    async with folded_explorer(shown, (120, 40)) as (screen, pilot):
        await pilot.press(":", *"rank 2", "enter")
        assert screen.view_state.current_rank().number == 2
        assert (LineContent.ROW, "stream 20") in contents(screen)
        await pilot.press(":", *"rank 7", "enter")
        await pilot.pause()
        assert screen.is_asking
        assert "no rank 7; there are 0, 1, 2" in text_of(screen)
        assert screen.view_state.current_rank().number == 2


@pytest.mark.long
async def test_the_table_is_of_the_rank_looked_at(shown: Trace) -> None:
    assert shown.merged_ranks is not None
    async with folded_explorer(shown, (160, 40)) as (screen, pilot):
        await pilot.press("down", "down", "t")
        table = screen.app.screen
        assert isinstance(table, TableScreen)
        await until(pilot, lambda: table._built_sheet is not None)
        await settled(pilot)
        assert table.trace is shown.merged_ranks.all[1].trace
        assert any("rank 1, whole trace" in strip.text for strip in table._compositor.render_strips())
        await pilot.press("shift+tab", "shift+tab")
        await until(pilot, lambda: table._built_sheet is not None and table._built_sheet.sheet.title == "Arrivals")
        await settled(pilot)
        assert len(table._listing.order) == 6
        assert table._built_sheet is not None
        sheet = table._built_sheet.sheet
        first = table._listing.order[0]
        assert sheet.columns["last_rank"][first] == 1
        await pilot.press("enter")
        await pilot.pause()
        assert screen.app.screen is screen
        chosen = screen.trace.event(screen.view_state.selected)
        assert chosen.name.startswith("nccl")
        assert chosen.lane.rank in (0, 2)


@pytest.mark.long
async def test_a_row_of_a_rank_leads_to_its_own_event(shown: Trace) -> None:
    async with folded_explorer(shown, (160, 40)) as (screen, pilot):
        await pilot.press("down", "down", "down", "t")
        table = screen.app.screen
        assert isinstance(table, TableScreen)
        await until(pilot, lambda: table._built_sheet is not None)
        await settled(pilot)
        await pilot.press("enter")
        await pilot.pause()
        assert screen.trace.event(screen.view_state.selected).lane.rank == 2
        await pilot.press("T")
        tree = screen.app.screen
        assert isinstance(tree, TreeScreen)
        await until(pilot, lambda: tree.call_tree is not None)
        await pilot.press("down", "enter")
        await pilot.pause()
        assert screen.trace.event(screen.view_state.selected).lane.rank == 2
        await pilot.press("F")
        await settled(pilot)
        await pilot.press("pagedown", "enter", "enter")  # zooms into the frame, then shows it
        await pilot.pause()
        assert screen.app.screen is screen
        assert screen.trace.event(screen.view_state.selected).lane.rank == 2


@pytest.mark.long
async def test_the_app_opens_a_folder(tmp_path: Path) -> None:
    late_rank(3).write(tmp_path)
    opening = resolve_specs([str(tmp_path)]).create_opener()
    opening.start()
    app = TorchprofApp(opening)
    async with app.run_test(size=(120, 40)) as pilot:
        await app.lanes_ready.wait()
        screen = app.screen
        assert isinstance(screen, ExplorerScreen)
        assert screen.trace.merged_ranks is not None
        assert len(screen.trace.merged_ranks) == 3
        assert "clocks by shared base time ±0 ns" in text_of(screen)
        await pilot.press("q")


@pytest.mark.long
async def test_files_of_one_rank_are_listed_with_their_rank(tmp_path: Path) -> None:
    """They are no run; the user chooses one."""
    paths = late_rank(2).write(tmp_path)
    paths[1].write_bytes(paths[0].read_bytes())
    app = TorchprofApp()
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        app._open(str(tmp_path))

        def list_lines() -> list[str]:
            lines = (strip.text.rstrip() for strip in app.screen._compositor.render_strips())
            return [line for line in lines if line.endswith("rank 0")]

        await until(pilot, lambda: len(list_lines()) == 2)
        assert {line.split()[0] for line in list_lines()} == {"rank0.json", "rank1.json"}


@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)), st.lists(st.integers(0, 30), unique=True))
def test_every_event_has_a_line_unless_it_is_hidden(folded: set[int], hidden: set[int], pinned: list[int]) -> None:
    shown = _three_ranks()
    assert shown.merged_ranks is not None
    lanes = len(shown.lanes)
    arrangement = LaneArrangement(
        frozenset(k for k in folded if k < lanes),
        frozenset(k for k in hidden if k < lanes),
        tuple(k for k in pinned if k < lanes),
    )
    lines = LaneLines.build(shown, arrangement)
    for number, lane in enumerate(shown.lanes):
        rank = shown.merged_ranks.rank_of_lane(number)
        for row in range(lane.rows):
            index = lines.line_index(number, row)
            if number in arrangement.pinned and number not in arrangement.hidden:
                assert index is not None
                assert index < 0
                continue
            absorbed = rank.header_lane in arrangement.folded and number != rank.header_lane
            rank_hidden = rank.header_lane in arrangement.hidden
            if rank_hidden or (number in arrangement.hidden and not absorbed):
                assert index is None
                continue
            assert index is not None
            line = (lines.body if index >= 0 else lines.pinned)[index]
            if absorbed:
                assert (line.content, line.lane) == (LineContent.RANK, rank.header_lane)
            else:
                assert line.lane == number
    for rank in shown.merged_ranks.all:
        rows = rank_rows(shown, rank.header_lane)
        streams = [lane for lane in shown.lanes if lane.rank == rank.number and lane.role is Role.STREAM]
        assert rows == [row for lane in streams for row in range(lane.row_base, lane.row_base + lane.rows)]


def one_cut(tmp_path: Path) -> Trace:
    """Build three ranks, of which the second has no GPU work and a truncated file."""
    run = late_rank(3)
    for step in run.steps:
        for collective in step:
            collective.arrive = [collective.arrive[0], None, collective.arrive[2]]
    run.more[1] = [{"ph": "X", "cat": "cpu_op", "name": f"op {k}", "pid": 1001, "tid": 1001, "ts": 1000 + k, "dur": 1}
                   for k in range(400)]  # fmt: skip
    paths = run.write(tmp_path)
    paths[1].write_bytes(paths[1].read_bytes()[:-2000])
    trace = load_merged_ranks(paths)
    object.__setattr__(trace, "label", "mix")
    return trace


@pytest.mark.long
async def test_a_rank_that_was_cut_before_its_gpu_work(tmp_path: Path) -> None:
    """Its line reports it, and shows no CPU work that could be taken for GPU work."""
    shown = one_cut(tmp_path)
    assert shown.merged_ranks is not None
    assert [rank.partial for rank in shown.merged_ranks.all] == [False, True, False]
    async with folded_explorer(shown, (160, 40)) as (screen, pilot):
        await settled(pilot)
        lines = text_of(screen).splitlines()
        assert "clocks by shared base time ±0 ns (rank 1: not measured)" in lines[0]
        line = next(line for line in lines if "▸ rank 1" in line)
        label, _, cells = line.partition("│")
        assert label.split() == ["▸", "rank", "1", "cut"]
        assert cells.strip() == "no GPU work recorded"
        assert "not all of this run could be read: cut short ·" in lines[-1]
        screen.view_state.select(shown.merged_ranks.all[1].first + 3)
        screen._refresh_widgets()
        await settled(pilot)
        rows = [line for line in text_of(screen).splitlines() if "│" in line and "steps" not in line]
        line = next(line for line in rows if "rank 1" in line)
        assert "◆" in line.partition("│")[2]  # the selected event is drawn nevertheless


async def test_without_any_gpu_a_rank_shows_its_threads(tmp_path: Path) -> None:
    run = late_rank(2)
    for step in run.steps:
        step.clear()
    run.more = {
        rank: [{"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, "ts": 1000, "dur": 900}]
        for rank in (0, 1)
    }
    shown = load_merged_ranks(run.write(tmp_path))
    async with folded_explorer(shown, (120, 40)) as (screen, pilot):
        await settled(pilot)
        text = text_of(screen)
        assert "no GPU work recorded" not in text
        for line in (line for line in text.splitlines() if "▸ rank" in line):
            assert line.partition("│")[2].strip()


@cache
def _three_ranks() -> Trace:
    with tempfile.TemporaryDirectory() as folder:
        return load_merged_ranks(late_rank(3).write(Path(folder)))


@cases_at_every_size(
    "name,keys",
    [("ranks", ()), ("ranks-open", ("down", "down", "space")), ("arrivals", ("down", "t", "shift+tab", "shift+tab"))],
)
async def test_goldens(name: str, keys: tuple[str, ...], size: tuple[int, int], shown: Trace) -> None:
    async with explorer(shown, size) as (screen, pilot):
        await settled(pilot)
        for key in keys:
            await pilot.press(key)
            await settled(pilot)
        drawn = text_on_screen(screen.app.screen)
    compare_golden(name, size, drawn)


@at_every_size
async def test_all_ranks_are_on_the_first_screen(shown: Trace, size: tuple[int, int]) -> None:
    async with explorer(shown, size) as (screen, pilot):
        await settled(pilot)
        text = text_of(screen)
        assert all(f"rank {number}" in text for number in range(3))
