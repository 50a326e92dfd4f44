"""What the table screen is made of, each on its own: what is listed, what it is restricted to, what is written."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.explorer_app import event_of, two_steps
from tests.helpers.merged_ranks import merged
from tests.helpers.rank_traces import late_rank
from torchprof_tui.analysis.table.groups import NotRecordedError
from torchprof_tui.analysis.table.profiler_table import Profile
from torchprof_tui.analysis.table.sheets import Field, Sheet, Unit
from torchprof_tui.analysis.table.table_rows import GroupBy
from torchprof_tui.ui.explorer.view_state import ViewState
from torchprof_tui.ui.table import file_export
from torchprof_tui.ui.table.row_listing import RowListing
from torchprof_tui.ui.table.scope_choices import TableScope, list_table_scopes
from torchprof_tui.ui.table.table_worker import SheetQuery, read_row, read_sheet

NAMES = ["mm", "add", "copy", "addmm"]


def sheet(*keys: str) -> Sheet:
    columns = {"name": NAMES, "calls": np.array([3, 1, 2, 1]), "time": np.array([10.0, np.nan, 30.0, 20.0])}
    fields = tuple(Field(key, key, Unit.TEXT if key == "name" else Unit.COUNT) for key in keys)
    return Sheet("made", fields, {key: columns[key] for key in keys}, np.arange(4, dtype=np.int32), np.arange(5))


def names(listing: RowListing) -> list[str]:
    return [NAMES[row] for row in listing.order.tolist()]


class TestListing:
    def test_sorted_by_what_its_tab_says_and_then_by_the_columns_beside_it(self) -> None:
        listing = RowListing({"a": "time"})
        assert listing.sort_and_filter() == ""
        assert names(listing) == []
        listing.set_sheet("a", sheet("name", "calls", "time"))
        listing.sort_and_filter()
        assert names(listing) == ["copy", "addmm", "mm", "add"]  # what is not known comes last
        listing.descending = False
        listing.sort_and_filter()
        assert names(listing) == ["mm", "addmm", "copy", "add"]
        listing.cycle_sort_column(1)
        listing.sort_and_filter()
        assert (listing.sort_key, listing.descending) == ("name", True)
        assert names(listing) == sorted(NAMES)  # text's usual way is from a to z
        listing.descending = False
        listing.sort_and_filter()
        assert names(listing) == sorted(NAMES, reverse=True)

    def test_each_tab_keeps_its_column_and_one_without_it_takes_its_last(self) -> None:
        listing = RowListing({"a": "time", "b": "time"})
        listing.set_sheet("b", sheet("name", "calls"))
        assert listing.sort_key == "calls"
        listing.set_sheet("a", sheet("name", "calls", "time"))
        listing.cycle_sort_column(-1)
        listing.set_sheet("b", sheet("name", "calls"))
        listing.cycle_sort_column(-1)
        listing.set_sheet("a", sheet("name", "calls", "time"))
        assert listing.sort_key == "calls"
        listing.set_sheet("b", sheet("name", "calls"))
        assert listing.sort_key == "name"

    def test_a_filter_keeps_the_order_and_a_wrong_one_keeps_all_rows(self) -> None:
        listing = RowListing({"a": "time"})
        listing.set_sheet("a", sheet("name", "calls", "time"))
        listing.filter = "add"
        assert listing.sort_and_filter() == ""
        assert names(listing) == ["addmm", "add"]
        assert [listing.index_of(row) for row in range(4)] == [-1, 1, -1, 0]
        assert [listing.row_at(place) for place in (0, 1)] == [3, 1]
        listing.filter = "/(/"
        assert "regular expression" in listing.sort_and_filter()
        assert len(names(listing)) == 4
        listing.filter = "nothing has this"
        listing.sort_and_filter()
        assert listing.row_at(0) == -1


def test_a_table_is_written_in_the_form_that_its_name_asks_for(tmp_path: Path) -> None:
    rows, order = sheet("name", "calls"), np.array([2, 0])
    assert file_export.write_sheet(rows, order, tmp_path / "a.CSV") == (f"wrote 2 rows to {tmp_path / 'a.CSV'}", True)
    assert list(csv.reader((tmp_path / "a.CSV").open())) == [["name", "calls"], ["copy", "2"], ["mm", "3"]]
    file_export.write_sheet(rows, order, tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text()) == [{"name": "copy", "calls": 2}, {"name": "mm", "calls": 3}]
    file_export.write_sheet(rows, order, tmp_path / "a.md")
    assert (tmp_path / "a.md").read_text() == file_export.format_markdown(rows, order)
    assert "| copy | 2 |" in file_export.format_markdown(rows, order)


@pytest.mark.parametrize(("name", "said"), [("a", ".md"), ("there.csv", "overwritten"), ("no/folder.md", "No such")])
def test_what_cannot_be_written_says_why(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "there.csv").write_text("kept")
    line, written = file_export.write_sheet(sheet("name"), np.array([0]), tmp_path / name)
    assert (said in line, written) == (True, False)
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("there.csv", "kept")]


def test_scopes_are_those_of_where_one_is() -> None:
    shown = two_steps()
    walk, profile = ViewState(shown, 100, 20), Profile(shown)
    assert [scope.label for scope in list_table_scopes(profile, walk)] == ["whole trace", "ProfilerStep#1", "CPU 100"]
    walk.select(event_of(shown, "gemm"))
    walk.toggle_mark()
    walk.fit_selection()
    scopes = {scope.label: scope.select_events() for scope in list_table_scopes(profile, walk)}
    assert list(scopes) == ["whole trace", "the marked range", "on screen", "ProfilerStep#0", "stream 7"]
    assert scopes["whole trace"] is None

    def counted(label: str) -> list[str]:
        return [shown.event(event).name for event in np.flatnonzero(scopes[label])]

    assert counted("the marked range") == ["gemm"]
    assert counted("stream 7") == ["gemm", "gemm", "add"]
    assert set(counted("ProfilerStep#0")) == {"ProfilerStep#0", "work", "aten::mm", "cudaLaunchKernel", "gemm"}


def test_the_lane_of_a_rank_is_numbered_as_in_its_own_trace(tmp_path: Path) -> None:
    whole = merged(late_rank(2, late=1).write(tmp_path))
    assert whole.ranks is not None
    rank = whole.ranks.all[1]
    walk = ViewState(whole, 100, 20)
    walk.select(rank.first)
    assert list_table_scopes(Profile(rank.trace), walk)[0].label == "rank 1, whole trace"
    walk.toggle_fold((rank.header_lane,))  # open: the lane that one is on is one of its own
    last = list_table_scopes(Profile(rank.trace), walk)[-1]
    assert last.label == rank.trace.lanes[0].label
    only = last.select_events()
    assert only is not None
    assert len(only) == len(rank.trace)
    assert np.flatnonzero(only).tolist() == list(range(rank.trace.lanes[0].first, rank.trace.lanes[0].last))


def test_what_a_thread_cannot_find_out_it_says_in_a_line() -> None:
    shown = two_steps()
    profile, everything = Profile(shown), TableScope("whole trace", lambda: None)
    asked = SheetQuery("profiler table", GroupBy.NAME, 0)
    told = read_sheet(profile, shown, asked, everything)
    assert told.built_sheet is not None
    assert (told.query, told.problem) == (asked, "")
    row = list(told.built_sheet.sheet.columns["name"]).index("aten::mm")
    read = read_row(profile, shown, told.built_sheet, row)
    assert read is not None
    assert read.row_name == "aten::mm"
    assert read.detail.start.tolist() == [20_000, 120_000]

    def raising(error: Exception) -> TableScope:
        def only() -> None:
            raise error

        return TableScope("one that fails", only)

    silent = read_sheet(profile, shown, asked, raising(NotRecordedError("no input shapes")))
    assert (silent.built_sheet, silent.problem) == (None, "no input shapes")
    unread = read_sheet(profile, shown, asked, raising(FileNotFoundError("it was moved")))
    assert (unread.built_sheet, unread.problem) == (None, "the trace file cannot be read any more: it was moved")
