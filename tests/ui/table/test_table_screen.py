"""The table screen by its keys: tabs, sorting, filters, scopes, export, and the selection on the lanes."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from textual import events
from textual.pilot import Pilot

from tests.helpers.explorer_app import event_of, explorer, press_at_once, settled, two_steps, until
from tests.helpers.golden_files import mark_size
from tests.helpers.long_run import keep_some
from tests.helpers.paths import SAMPLES
from tests.helpers.trace_builder import annotation, cpu, gpu_annotation, kernel, runtime, step, trace
from torchprof_tui.analysis.patterns.engine.check_scope import range_scope
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.verdict.verdict import Regime
from torchprof_tui.analysis.table.groups import Profile, compute_gpu_time_shares
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.event_kind import GPU_WORK
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.painted_widget import PaintedWidget, RowList, palette_for
from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen
from torchprof_tui.ui.table.sheet_rows import fit_columns
from torchprof_tui.ui.table.table_screen import TableScreen
from torchprof_tui.ui.tree.tree_screen import TreeScreen


def text(screen: TableScreen) -> str:
    return "\n".join(strip.text.rstrip() for strip in screen._compositor.render_strips())


def listed(screen: TableScreen) -> list[str]:
    assert screen._built_sheet is not None
    return [str(screen._built_sheet.sheet.columns["name"][row]) for row in screen._listing.order.tolist()]


async def opened(screen: ExplorerScreen, pilot: Pilot[None]) -> TableScreen:
    await settled(pilot)
    await pilot.press("t")
    table = screen.app.screen
    assert isinstance(table, TableScreen)
    await until(pilot, lambda: table._built_sheet is not None)
    await settled(pilot)
    return table


async def test_it_sums_up_and_sorts_by_any_column() -> None:
    async with explorer(two_steps(), (160, 40)) as (screen, pilot):
        table = await opened(screen, pilot)
        assert listed(table)[0] == "gemm" or "gemm" in listed(table)[:3]
        said = text(table)
        assert "[profiler table]" in said
        assert "Self CPU time total" in said
        names = {field.key for field in table._built_sheet.sheet.fields}  # type: ignore[union-attr]
        for _ in names:
            assert_sorted(table, descending=True)
            await pilot.press("right")
        await pilot.press("x")
        await settled(pilot)
        assert_sorted(table, descending=False)


def assert_sorted(table: TableScreen, descending: bool) -> None:
    """Assert that the rows of work, and those of annotations below them, are sorted by their column of numbers."""
    listing = table._listing
    assert listing.sheet is not None
    if listing.sort_key in ("name", "device"):
        return
    values = [float(listing.sheet.columns[listing.sort_key][row]) for row in listing.order.tolist()]
    for section in (values[: listing.work_count], values[listing.work_count :]):
        known = [value for value in section if value == value]
        assert known == sorted(known, reverse=descending), listing.sort_key


async def test_a_cpu_only_table_is_sorted_by_self_cpu_without_gpu_columns() -> None:
    async with explorer(trace(cpu("aten::add", 0, 20), cpu("aten::mm", 50, 70)), (160, 40)) as (screen, pilot):
        table = await opened(screen, pilot)
        assert listed(table) == ["aten::mm", "aten::add"]
        assert table._listing.sort_key == "self_cpu"
        assert "self GPU" not in text(table)
        assert "Self GPU time total" not in text(table)
        assert "outside ops: 30.0 µs of 120.0 µs (r: record again with stacks, --with-stack)" in text(table)


async def test_filtering_while_typing() -> None:
    async with explorer(two_steps(), (160, 40)) as (screen, pilot):
        table = await opened(screen, pilot)
        everything = len(listed(table))
        await pilot.press("/", *"aten")
        await until(pilot, lambda: listed(table) == [name for name in listed(table) if "aten" in name])
        assert 0 < len(listed(table)) < everything
        await pilot.press("enter")
        assert "filter 'aten'" in text(table)
        await pilot.press("/")
        table._prompt._input.value = "/^work|(/"
        await pilot.press("enter")
        assert "regular expression" in text(table)
        await pilot.press("escape")
        await until(pilot, lambda: len(listed(table)) == everything)


async def test_from_an_event_to_its_row_and_from_an_instance_to_the_lanes() -> None:
    shown = two_steps()
    async with explorer(shown, (160, 40)) as (screen, pilot):
        screen.view_state.select(event_of(shown, "aten::mm"))
        table = await opened(screen, pilot)
        await until(pilot, lambda: listed(table)[table.rows.cursor] == "aten::mm")
        await until(pilot, lambda: "2 instances" in text(table))
        assert "40.0 µs at 20" in text(table)
        await pilot.press("}", "enter")
        assert screen.app.screen is screen
        assert screen.view_state.selected == event_of(shown, "aten::mm", 1)


async def test_scopes_groups_and_tabs() -> None:
    shown = two_steps()
    async with explorer(shown, (160, 40)) as (screen, pilot):
        await pilot.press("right", "f")
        table = await opened(screen, pilot)
        labels = [scope.label for scope in table._scopes]
        assert labels[0] == "whole trace"
        assert "ProfilerStep#0" in labels  # that of the first kernel
        calls = dict(zip(listed(table), _calls(table), strict=True))
        assert calls["aten::mm"] == 2
        for _ in range(labels.index("ProfilerStep#0")):
            await pilot.press("v")
            await settled(pilot)
        assert "ProfilerStep#0" in text(table)
        assert dict(zip(listed(table), _calls(table), strict=True))["aten::mm"] == 1
        await pilot.press("tab")
        await settled(pilot)
        assert "[kernels]" in text(table)
        assert set(listed(table)) == {"gemm"}
        await pilot.press("shift+tab", "escape")
        assert screen.app.screen is screen


def _calls(table: TableScreen) -> list[int]:
    assert table._built_sheet is not None
    return [int(table._built_sheet.sheet.columns["calls"][row]) for row in table._listing.order.tolist()]


@pytest.mark.long
async def test_missing_data_says_how_to_record_it() -> None:
    shown = load_trace(str(SAMPLES / "matmul_add_64_cold_eager.pt.trace.json.gz"), cache=False)
    async with explorer(shown, (120, 40)) as (screen, pilot):
        table = await opened(screen, pilot)
        await pilot.press("b")
        await until(pilot, lambda: "no input shapes in this trace (they are recorded with" in text(table))
        await pilot.press("backspace")
        await until(pilot, lambda: table._built_sheet is not None and len(listed(table)) > 5)


@pytest.mark.long
async def test_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with explorer(two_steps(), (160, 40)) as (screen, pilot):
        table = await opened(screen, pilot)

        async def write(name: str) -> None:
            await pilot.press("e")
            table._prompt._input.value = name
            await pilot.press("enter")
            await settled(pilot)

        await write("a.csv")
        rows = list(csv.DictReader((tmp_path / "a.csv").open()))
        assert [row["name"] for row in rows] == listed(table)
        await write("a.json")
        assert [row["name"] for row in json.loads((tmp_path / "a.json").read_text())] == listed(table)
        await write("a.csv")
        assert "was not overwritten" in text(table)
        await write("a.xlsx")
        assert ".csv, .json or .md" in text(table)
        await write("no/such/folder.md")
        assert "no/such: no such folder" in text(table)


at_three_sizes = pytest.mark.parametrize("size", [mark_size(size) for size in ((80, 24), (160, 48), (240, 60))])


@at_three_sizes
async def test_every_tab_and_group_of_a_real_trace(size: tuple[int, int]) -> None:
    shown: Trace = load_trace(str(SAMPLES / "train_gpt_stack_memory.pt.trace.json.gz"), cache=False)
    async with explorer(shown, size) as (screen, pilot):
        table = await opened(screen, pilot)
        seen: list[str] = []

        async def look() -> None:
            await settled(pilot)
            seen.append(text(table))

        for key in ("b",) * 6 + ("tab",) * 5:
            await pilot.press(key)
            await look()
        lines = [line for said in seen for line in said.split("\n")]
        assert all(len(line) <= size[0] for line in lines)
        assert "Block_1" in "".join(seen) or size[1] < 40  # below the screen of a small terminal
        for part in ("by shape", "by class", "[memory]", "[copies]", "peak"):
            assert any(part in said for said in seen), part


async def test_charts_of_where_gpu_time_goes() -> None:
    shown = load_trace(str(SAMPLES / "train_gpt_stack_memory.pt.trace.json.gz"), cache=False)
    async with explorer(shown, (120, 44)) as (screen, pilot):
        table = await opened(screen, pilot)
        await pilot.press("shift+tab")
        await until(pilot, lambda: "GPU time by kernel class" in text(table))
        said = text(table)
        assert "elementwise" in said
        assert "ProfilerStep#3" in said
        shares = [float(line.split("%")[0].split()[-1]) for line in said.split("\n")[2:12]]
        assert shares == sorted(shares, reverse=True)
        await pilot.press("J", "down", "left", "x", "enter", "e", "y")
        assert table.app.screen is table
        await pilot.press("tab")
        await until(pilot, lambda: "[profiler table]" in text(table) and len(listed(table)) > 100)


def test_the_shares_add_up() -> None:
    shown = load_trace(str(SAMPLES / "train_gpt_stack_memory.pt.trace.json.gz"), cache=False)
    shares = compute_gpu_time_shares(Profile(shown))
    is_gpu_work = np.isin(shown.kind, [int(kind) for kind in GPU_WORK])
    total = int(shown.duration[is_gpu_work].sum())
    assert sum(share.time for share in shares.classes) == total
    assert sum(share.share for share in shares.classes) == pytest.approx(1)
    assert sum(share.time for share in shares.modules) == total
    assert int(shares.time_by_step.sum()) <= total
    for index, shown_step in enumerate(shown.steps):
        durations = [
            int(shown.duration[event])
            for event in np.flatnonzero(is_gpu_work).tolist()
            if 0 <= int(shown.start[shown.links.launch_of[event]]) - shown_step.start < shown_step.duration
        ]
        assert int(shares.time_by_step[index].sum()) == sum(durations)


@pytest.mark.parametrize("width", keep_some([60, 80, 100, 120, 160], 1))
async def test_no_share_is_shown_without_its_column(width: int) -> None:
    async with explorer(two_steps(), (width, 30)) as (screen, pilot):
        table = await opened(screen, pilot)
        assert table._built_sheet is not None
        for sort in ("self_gpu", "calls", "gpu"):
            kept = [field.key for field in fit_columns(table._built_sheet.sheet, width, sort).fields]
            assert sort in kept
            assert [key for key in kept if key.endswith("_share") and key.removesuffix("_share") not in kept] == []


@pytest.mark.long
async def test_another_theme_reaches_the_table_and_the_tree() -> None:
    for key in "tT":
        async with explorer(two_steps(), (120, 40)) as (screen, pilot):
            await settled(pilot)
            await pilot.press(key)
            shown = screen.app.screen
            assert shown is not screen
            screen.app.theme = "textual-light"
            await pilot.pause()
            assert {widget.palette for widget in shown.query(PaintedWidget)} == {palette_for(screen.app)}


@pytest.mark.long
@pytest.mark.parametrize(
    ("key", "typed", "says"), keep_some([("e", "a.xlsx", ".csv, .json or .md"), ("/", "/(/", "missing )")], 1)
)
async def test_after_an_error_typing_still_reaches_the_prompt(key: str, typed: str, says: str) -> None:
    async with explorer(two_steps(), (160, 40)) as (screen, pilot):
        table = await opened(screen, pilot)
        tab = table._group_by
        await pilot.press(key)
        table._prompt._input.value = typed
        await pilot.press("enter")
        await settled(pilot)
        assert says in text(table)
        await pilot.press("b", "q")
        assert table._prompt._input.value.endswith("bq")
        assert (table._group_by, table._prompt.is_open, table.is_current) == (tab, True, True)
        await pilot.press("ctrl+c")
        assert not table._prompt.is_open
        assert table.is_current


@pytest.mark.long
async def test_y_copies_the_name_of_the_row_and_shift_y_the_rows_on_screen() -> None:
    copied: list[str] = []
    async with explorer(two_steps(), (200, 40)) as (screen, pilot):
        table = await opened(screen, pilot)
        table.app.copy_to_clipboard = copied.append  # type: ignore[method-assign]
        await pilot.press("down")
        await settled(pilot)
        await pilot.press("y", "Y")
        assert copied[0] == listed(table)[1]
        lines = copied[1].splitlines()
        assert max(map(len, lines)) <= 120
        assert "self GPU ▼" in lines[0]
        assert [name for name in listed(table) if any(name in line for line in lines[1:])] == listed(table)
        assert "Self GPU time total" in lines[-1]
        assert "sent to the terminal's clipboard" in text(table)
        await pilot.press("slash", *"GEMM", "enter")
        assert "filter 'GEMM' (case-sensitive)" in text(table)
        await pilot.press("y")
        assert len(copied) == 2
        assert "nothing to copy" in text(table)
        await pilot.press("slash", *"gem", "enter")
        assert listed(table) == ["gemm"]


@pytest.mark.long
async def test_keys_for_rows_say_that_the_charts_have_none() -> None:
    async with explorer(two_steps(), (160, 40)) as (screen, pilot):
        table = await opened(screen, pilot)
        await pilot.press("shift+tab")
        await settled(pilot)
        for key in ("left", "x", "slash", "enter", "e", "y"):
            table._status.show_message("")
            await pilot.press(key)
            assert "these charts have no rows" in text(table), key
            assert not table.has_class("asking")


@pytest.mark.long
async def test_a_search_without_a_match_and_the_way_through_matches() -> None:
    async with explorer(two_steps(), (160, 40)) as (screen, pilot):
        table = await opened(screen, pilot)
        everything = listed(table)
        await pilot.press("n")
        assert "no search yet" in text(table)
        await pilot.press("slash", *"zzz", "enter")
        assert "no match for 'zzz'" in text(table)
        assert "esc: all rows" in text(table)
        await pilot.press("escape")
        assert table.is_current
        assert listed(table) == everything
        await pilot.press("slash", "up", "up")
        assert table._prompt._input.value == "zzz"  # the only text that was searched
        table._prompt._input.value = "/^aten/"
        await pilot.press("enter")
        assert sorted(listed(table)) == ["aten::add", "aten::mm"]
        assert table.rows.cursor == 0
        await pilot.press("n")
        assert (table.rows.cursor, "match 2 of 2" in text(table)) == (1, True)
        await pilot.press("n")
        assert (table.rows.cursor, "match 1 of 2" in text(table)) == (0, True)
        await pilot.press("N")
        assert table.rows.cursor == 1


async def test_backspace_returns_to_the_sheet_its_order_and_its_row() -> None:
    async with explorer(two_steps(), (160, 40)) as (screen, pilot):
        table = await opened(screen, pilot)
        await pilot.press("right", "right", "right", "down", "down")
        key, row = table._listing.sort_key, table._cursor_row
        await pilot.press("tab")
        await settled(pilot)
        assert "[kernels]" in text(table)
        await pilot.press("x", "backspace", "backspace")
        await settled(pilot)
        assert "[profiler table]" in text(table)
        assert (table._listing.sort_key, table._cursor_row) == (key, row)
        for _ in range(3):
            await pilot.press("backspace")
            await settled(pilot)
        assert table._listing.sort_key == "self_gpu"
        await pilot.press("backspace")
        assert "no earlier view" in text(table)
        assert table.is_current


@pytest.mark.long
async def test_clicking_a_heading_sorts_and_again_reverses() -> None:
    async with explorer(two_steps(), (160, 40)) as (screen, pilot):
        table = await opened(screen, pilot)
        header = text(table).split("\n")[1]
        at = header.index("self CPU") + 2
        await pilot.click("#rows", offset=(at, 0))
        assert (table._listing.sort_key, table._listing.descending) == ("self_cpu", True)
        assert "self CPU ▼" in text(table)
        await pilot.click("#rows", offset=(at, 0))
        assert (table._listing.sort_key, table._listing.descending) == ("self_cpu", False)
        assert "self CPU ▲" in text(table)


@pytest.mark.long
async def test_the_wheel_scrolls_and_keeps_the_cursor_on_screen() -> None:
    shown = load_trace(str(SAMPLES / "train_gpt_stack_memory.pt.trace.json.gz"), cache=False)
    async with explorer(shown, (120, 24)) as (screen, pilot):
        table = await opened(screen, pilot)
        first = listed(table)[0]
        assert first in text(table).split("\n")[2]
        table.rows.post_message(_wheel(table.rows, down=True))
        await pilot.pause()
        assert listed(table)[3] in text(table).split("\n")[2]
        assert table.rows.cursor == 3
        await pilot.press("down")
        table.rows.post_message(_wheel(table.rows, down=False))
        await pilot.pause()
        assert first in text(table).split("\n")[2]
        assert table.rows.cursor == 4


def _wheel(rows: RowList, down: bool) -> events.MouseEvent:
    kind = events.MouseScrollDown if down else events.MouseScrollUp
    return kind(rows, 5, 5, 0, 1 if down else -1, 0, False, False, False)


async def test_annotations_are_listed_after_the_work() -> None:
    entries = [
        step(0, 0, 100),
        annotation("forward", 10, 70),
        cpu("aten::mm", 20, 40),
        runtime("cudaLaunchKernel", 30, 10, corr=1),
        kernel("gemm", 50, 4, corr=1),
        gpu_annotation("forward", 40, 50),
    ]
    async with explorer(trace(*entries), (120, 40)) as (screen, pilot):
        table = await opened(screen, pilot)
        names = listed(table)
        assert set(names[:3]) == {"gemm", "aten::mm", "cudaLaunchKernel"}
        assert set(names[3:]) == {"forward", "ProfilerStep*"}
        assert "1250 %" in text(table)  # torch's own number, below a line that says of what
        assert "GPU % = span / GPU total" in text(table)
        await pilot.press("down", "down", "down")
        assert (table._cursor_row, table.rows.cursor) == (int(table._listing.order[3]), 4)
        await pilot.press("up")
        assert table.rows.cursor == 2


async def test_loading_data_is_work() -> None:
    loading = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    async with explorer(trace(step(0, 0, 100), annotation(loading, 0, 90), cpu("aten::mm", 91, 5))) as (screen, pilot):
        table = await opened(screen, pilot)
        assert listed(table) == [loading, "aten::mm", "ProfilerStep*"]


@pytest.mark.parametrize(
    ("keys", "reason"),
    keep_some(
        [
            ("tab", "no GPU work was recorded"),
            ("tab tab", "no GPU work was recorded"),
            ("tab tab tab", "no GPU work was recorded"),
            ("shift+tab shift+tab shift+tab", "profile_memory=True"),
            ("shift+tab", "no GPU work was recorded"),
            ("b b b b", "no GPU work was recorded"),
        ],
        2,
    ),
)
async def test_an_empty_table_says_why_and_names_one_with_rows(keys: str, reason: str) -> None:
    async with explorer(trace(cpu("aten::add", 0, 20)), (160, 40)) as (screen, pilot):
        table = await opened(screen, pilot)
        for key in keys.split():
            await pilot.press(key)
            await settled(pilot)
        assert reason in text(table)
        assert "profiler table" in " ".join(text(table).split("\n", 1)[1].split())
        for key in ("left", "x", "slash", "enter", "y", "n", "}"):
            table._status.show_message("")
            await pilot.press(key)
            if keys != "b b b b" or key != "n":
                assert "no rows" in text(table), key
            assert table.is_current


@pytest.mark.long
async def test_lines_below_the_table_are_whole_at_80_columns() -> None:
    shown = load_trace(str(SAMPLES / "train_gpt_eager.pt.trace.json.gz"), cache=False)
    async with explorer(shown, (80, 30)) as (screen, pilot):
        table = await opened(screen, pilot)
        below = " ".join(" ".join(text(table).split("\n")[-4:-1]).split())
        assert "overhead-bound, the CPU dispatches" in below
        assert below.endswith("Self CPU 46.086ms · Self GPU 2.440ms")


@pytest.mark.parametrize("width", keep_some([60, 80, 100, 120, 160, 240], 1))
async def test_headings_are_whole_and_hidden_columns_are_counted(width: int) -> None:
    shown = load_trace(str(SAMPLES / "train_gpt_stack_memory.pt.trace.json.gz"), cache=False)
    async with explorer(shown, (width, 30)) as (screen, pilot):
        table = await opened(screen, pilot)
        for key in ("right", "tab", "tab", "shift+tab", "shift+tab"):
            assert table._built_sheet is not None
            layout = fit_columns(table._built_sheet.sheet, width, table._listing.sort_key)
            header = text(table).split("\n")[1]
            assert [field.title for field in layout.fields if field.title not in header] == []
            hidden = len(table._built_sheet.sheet.fields) - len(layout.fields)
            assert (f" ({hidden} more column" in header) == (hidden > 0)
            assert "…" not in header
            await pilot.press(key)
            await settled(pilot)


@pytest.mark.long
async def test_devices_of_memory_are_whole() -> None:
    """They read "GPU…" in a column of five cells."""
    shown = load_trace(str(SAMPLES / "train_gpt_stack_memory.pt.trace.json.gz"), cache=False)
    async with explorer(shown, (120, 30)) as (screen, pilot):
        table = await opened(screen, pilot)
        for _ in range(4):
            await pilot.press("tab")
            await settled(pilot)
        assert "GPU 0" in text(table)
        assert "GPU…" not in text(table)


async def test_kernels_have_their_short_names_told_apart() -> None:
    functor = "at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> >"
    names = [
        f"void at::native::vectorized_elementwise_kernel<{width}, {functor}, std::array<char*, 3ul> >(int)"
        for width in (2, 4)
    ]
    async with explorer(trace(kernel(names[0], 0, 9), kernel(names[1], 20, 5)), (120, 30)) as (screen, pilot):
        table = await opened(screen, pilot)
        assert listed(table) == names
        assert "mul fp32 (2 per load)" in text(table)
        assert "mul fp32 (4 per load)" in text(table)


@pytest.mark.long
async def test_the_keys_of_other_screens_work_from_the_table_and_the_tree() -> None:
    async with explorer(two_steps(), (120, 40)) as (screen, pilot):
        table = await opened(screen, pilot)
        await pilot.press("T")
        await settled(pilot)
        assert isinstance(screen.app.screen, TreeScreen)
        await pilot.press("t")
        await settled(pilot)
        assert isinstance(screen.app.screen, TableScreen)
        assert screen.app.screen is not table
        assert len(screen.app.screen_stack) == 3
        await pilot.press("q")
        assert screen.app.screen is screen


@at_three_sizes
async def test_the_last_line_has_hints(size: tuple[int, int]) -> None:
    async with explorer(two_steps(), size) as (screen, pilot):
        table = await opened(screen, pilot)
        last = text(table).split("\n")[-1]
        assert all(hint in last for hint in ("? help", "q back", "/ filter", "tab table"))


@pytest.mark.long
async def test_a_step_of_the_charts_has_whole_names_or_numbers() -> None:
    shown = load_trace(str(SAMPLES / "train_gpt_starved.pt.trace.json.gz"), cache=False)
    async with explorer(shown, (80, 40)) as (screen, pilot):
        table = await opened(screen, pilot)
        await pilot.press("shift+tab")
        await until(pilot, lambda: "GPU time by kernel class" in text(table))
        lines = text(table).split("\n")
        assert any(" 1 " in line and " 2 " in line for line in lines)
        assert "GPU idle" in text(table)
        assert table._charts._shares is not None
        labels = [*table._charts._shares.class_labels, "others"]
        for line in lines:
            if line.startswith(" ProfilerStep#"):
                words = re.findall(r"[a-z/]+(?: [a-z]+)*", line.split("ms", 1)[1])
                assert all(word in labels for word in words), line


@pytest.mark.long
async def test_the_sentence_under_the_table_says_what_limits_the_scope() -> None:
    sample = load_trace(str(SAMPLES / "article_4096_active20.pt.trace.json.gz"), cache=False)
    async with explorer(sample, (160, 40)) as (screen, pilot):
        await opened(screen, pilot)
        await pilot.press("q")
        screen.view_state.show_range(sample.steps[0].start, sample.steps[0].start + sample.steps[0].duration)
        table = await opened(screen, pilot)
        assert "compute-bound, the GPU limits" in text(table)
        await pilot.press("v")
        await settled(pilot)
        assert table._scopes[table._scope].label == "on screen"
        shown = screen.view_state.viewport
        regime = Checker(sample).decide_verdict(range_scope(shown.t0, shown.t1)).regime
        assert regime is not Regime.COMPUTE
        assert f": {regime.value}, " in text(table)
        await pilot.press("tab")
        await settled(pilot)
        assert "GPU busy" not in text(table)


async def test_enter_pressed_before_the_instances_are_loaded_is_done_once_they_are() -> None:
    """As `t enter k` for the limit of the heaviest kernel: enter answered "no instance to show on the lanes"."""
    shown = two_steps()
    async with explorer(shown, (160, 40)) as (screen, pilot):
        await settled(pilot)
        await press_at_once(pilot, ["t", "enter", "k"])
        await until(pilot, lambda: screen.app.screen is screen and screen.view_state.selected >= 0)
        await until(pilot, lambda: screen.details_open and screen._dock.active_name == "kernel")


@pytest.mark.long
async def test_enter_after_a_move_shows_the_row_under_the_cursor() -> None:
    """Its panel still had the instances of the row before."""
    shown = two_steps()
    async with explorer(shown, (160, 40)) as (screen, pilot):
        table = await opened(screen, pilot)
        await pilot.press("home")
        first = listed(table)[0]
        await settled(pilot)
        await press_at_once(pilot, ["down", "enter"])
        await until(pilot, lambda: screen.app.screen is screen and screen.view_state.selected >= 0)
        assert shown.event(screen.view_state.selected).name == listed(table)[1] != first


async def test_escape_ends_the_wait_for_the_instance_to_show() -> None:
    async with explorer(two_steps(), (160, 40)) as (screen, pilot):
        table = await opened(screen, pilot)
        row, table._detail_row = table._detail_row, -1  # as if it were still being loaded
        await press_at_once(pilot, ["enter", "k", "escape"])
        assert pilot.app.screen is table
        table._detail_row = row
        table._finish_show()
        assert pilot.app.screen is table


@pytest.mark.long
async def test_enter_in_an_empty_list_keeps_no_keys() -> None:
    """A filter that nothing matches leaves no row whose instance could still be loaded."""
    async with explorer(two_steps(), (120, 40)) as (screen, pilot):
        table = await opened(screen, pilot)
        await pilot.press("slash", *"zzz", "enter")
        await settled(pilot)
        assert not len(table._listing.order)
        await pilot.press("enter", "q")
        await settled(pilot)
        assert screen.app.screen is screen
