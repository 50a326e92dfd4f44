"""Parts of the table screen: the listed rows, the scopes, the export, and the worker functions."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.explorer_app import event_of, two_steps
from tests.helpers.golden_files import load_sample
from tests.helpers.merged_ranks import load_merged_ranks
from tests.helpers.rank_traces import late_rank
from torchprof_tui.analysis.table.event_scope import NotRecordedError
from torchprof_tui.analysis.table.export import to_markdown
from torchprof_tui.analysis.table.groups import Profile
from torchprof_tui.analysis.table.profiler_table import GroupBy
from torchprof_tui.analysis.table.sheets import Field, Sheet, Unit
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.ui.common.painted_widget import DEFAULT_PALETTE
from torchprof_tui.ui.lanes.view_state import ViewState
from torchprof_tui.ui.table.scope_choices import TableScope, list_table_scopes
from torchprof_tui.ui.table.sheet_catalog import BuiltSheet, SheetQuery, build_sheet, load_row_detail, read_sheet
from torchprof_tui.ui.table.sheet_rows import ColumnLayout, RowListing, fit_columns, format_row, write_sheet

NAMES = ["mm", "add", "copy", "addmm"]


def sheet(*keys: str) -> Sheet:
    columns = {"name": NAMES, "calls": np.array([3, 1, 2, 1]), "time": np.array([10.0, np.nan, 30.0, 20.0])}
    fields = tuple(Field(key, key, Unit.TEXT if key == "name" else Unit.COUNT) for key in keys)
    return Sheet("made", fields, {key: columns[key] for key in keys}, np.arange(4, dtype=np.int32), np.arange(5))


def names(listing: RowListing) -> list[str]:
    return [NAMES[row] for row in listing.order.tolist()]


class TestListing:
    def test_sorted_by_the_column_of_its_tab_and_then_by_others(self) -> None:
        listing = RowListing({"a": "time"})
        assert listing.sort_and_filter() == ""
        assert names(listing) == []
        listing.set_sheet("a", sheet("name", "calls", "time"))
        listing.sort_and_filter()
        assert names(listing) == ["copy", "addmm", "mm", "add"]  # unknown values come last
        listing.descending = False
        listing.sort_and_filter()
        assert names(listing) == ["mm", "addmm", "copy", "add"]
        listing.cycle_sort_column(1)
        listing.sort_and_filter()
        assert (listing.sort_key, listing.descending) == ("name", True)
        assert names(listing) == sorted(NAMES)  # text is sorted from a to z by default
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
        assert [listing.row_at(index) for index in (0, 1)] == [3, 1]
        listing.filter = "/(/"
        assert "regular expression" in listing.sort_and_filter()
        assert len(names(listing)) == 4
        listing.filter = "nothing has this"
        listing.sort_and_filter()
        assert listing.row_at(0) == -1


def test_a_table_is_written_in_the_format_of_its_suffix(tmp_path: Path) -> None:
    rows, order = sheet("name", "calls"), np.array([2, 0])
    assert write_sheet(rows, order, str(tmp_path / "a.CSV")) == (
        f"wrote 2 rows to {tmp_path / 'a.CSV'}",
        True,
    )
    assert list(csv.reader((tmp_path / "a.CSV").open())) == [["name", "calls"], ["copy", "2"], ["mm", "3"]]
    write_sheet(rows, order, str(tmp_path / "a.json"))
    assert json.loads((tmp_path / "a.json").read_text()) == [{"name": "copy", "calls": 2}, {"name": "mm", "calls": 3}]
    write_sheet(rows, order, str(tmp_path / "a.md"))
    assert (tmp_path / "a.md").read_text() == to_markdown(rows, order.tolist(), clean)
    assert "| copy | 2 |" in to_markdown(rows, order.tolist(), clean)


@pytest.mark.parametrize(("name", "reason"), [("a", ".md"), ("there.csv", "overwritten"), ("no/folder.md", "no such")])
def test_a_failed_export_reports_the_reason(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "there.csv").write_text("kept")
    line, written = write_sheet(sheet("name"), np.array([0]), str(tmp_path / name))
    assert (reason in line, written) == (True, False)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("there.csv", "kept")]


def test_an_export_to_no_possible_file_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    (tmp_path / "folder.csv").mkdir()
    for name, words in (
        ("folder.csv", "is a folder"),
        (f"{'é' * 200}.md", "255 bytes"),
        ("a\0.csv", "not a valid file"),
    ):
        line, written = write_sheet(sheet("name"), np.array([0]), str(tmp_path / name))
        assert words in line
        assert not written
    monkeypatch.setattr(Path, "expanduser", fail)
    line, written = write_sheet(sheet("name"), np.array([0]), "~/a.csv")
    assert ("the home folder is unknown" in line, written) == (True, False)


def test_scopes_follow_the_view_state() -> None:
    shown = two_steps()
    state, profile = ViewState(shown, 100, 20), Profile(shown)
    assert [scope.label for scope in list_table_scopes(profile, state)] == ["whole trace", "ProfilerStep#1", "CPU 100"]
    state.select(event_of(shown, "gemm"))
    state.toggle_mark()
    state.fit_selection()
    scopes = {scope.label: scope.select_events() for scope in list_table_scopes(profile, state)}
    assert list(scopes) == ["whole trace", "the marked range", "on screen", "ProfilerStep#0", "stream 7"]
    assert scopes["whole trace"] is None

    def selected_names(label: str) -> list[str]:
        return [shown.event(event).name for event in np.flatnonzero(scopes[label])]

    assert selected_names("the marked range") == ["gemm"]
    assert selected_names("stream 7") == ["gemm", "gemm", "add"]
    assert set(selected_names("ProfilerStep#0")) == {"ProfilerStep#0", "work", "aten::mm", "cudaLaunchKernel", "gemm"}


def test_the_lane_of_a_rank_is_numbered_as_in_its_own_trace(tmp_path: Path) -> None:
    whole = load_merged_ranks(late_rank(2, late=1).write(tmp_path))
    assert whole.merged_ranks is not None
    rank = whole.merged_ranks.all[1]
    state = ViewState(whole, 100, 20)
    state.select(rank.first)
    assert list_table_scopes(Profile(rank.trace), state)[0].label == "rank 1, whole trace"
    state.toggle_fold((rank.header_lane,))  # unfolded: the current lane is one of the rank's
    lane_scope = list_table_scopes(Profile(rank.trace), state)[-1]
    assert lane_scope.label == rank.trace.lanes[0].label
    mask = lane_scope.select_events()
    assert mask is not None
    assert len(mask) == len(rank.trace)
    assert np.flatnonzero(mask).tolist() == list(range(rank.trace.lanes[0].first, rank.trace.lanes[0].last))


def test_worker_functions_report_failures_in_a_line() -> None:
    shown = two_steps()
    profile, whole_trace = Profile(shown), TableScope("whole trace", lambda: None)
    query = SheetQuery("profiler table", GroupBy.NAME, 0)
    built = read_sheet(profile, shown, query, whole_trace)
    assert isinstance(built, BuiltSheet)
    row = list(built.sheet.columns["name"]).index("aten::mm")
    detail = load_row_detail(profile, shown, built, row)
    assert detail is not None
    assert detail.start.tolist() == [20_000, 120_000]

    def failing_scope(error: Exception) -> TableScope:
        def select_events() -> None:
            raise error

        return TableScope("fails", select_events)

    missing = read_sheet(profile, shown, query, failing_scope(NotRecordedError("no input shapes")))
    assert missing == "no input shapes"
    unreadable = read_sheet(profile, shown, query, failing_scope(FileNotFoundError("it was moved")))
    assert unreadable == "the trace file can no longer be read: it was moved"


@pytest.mark.parametrize(
    ("name", "width", "text"),
    [
        ("batch norm bwd fp32 (#128)", 20, "batch norm b… (#128)"),
        ("mul fp32 (vectorized)", 21, "mul fp32 (vectorized)"),
        ("mul fp32 (vectorized, 4 per load)", 21, "mul fp32 (vectorized…"),
        ("autograd::engine::evaluate_function: CatBackward0", 24, "evaluate CatBackward0"),
        ("aten::_cudnn_attention_backward", 24, "_cudnn_attention_backwa…"),
    ],
)
def test_a_name_that_is_cut_still_differs_from_others(name: str, width: int, text: str) -> None:
    field = Field("name", "name", Unit.TEXT)
    shown = Sheet("made", (field,), {"name": [name]}, np.arange(1, dtype=np.int32), np.arange(2))
    layout = ColumnLayout((field,), (width + 1,))
    runs = format_row(shown, 0, layout, DEFAULT_PALETTE, selected=False)
    assert "".join(run for run, _ in runs).strip() == text


def test_columns_are_kept_from_left_to_right_with_the_sort_column() -> None:
    keys = ("name", "calls", "time")
    assert [field.key for field in fit_columns(sheet(*keys), 80, "calls").fields] == list(keys)
    narrow = fit_columns(sheet(*keys), 34, "time")
    assert ([field.key for field in narrow.fields], narrow.hidden) == (["name", "time"], 1)


def test_the_panel_of_a_repetition_says_what_its_pattern_is() -> None:
    profile = Profile(load_sample("train_gpt_eager"))
    built = build_sheet(profile, "repeats", GroupBy.NAME, None)
    names = list(built.sheet.columns["name"])
    for name in ("pattern 1 #2", "pattern 2a, 1 of 4 in a row"):
        detail = load_row_detail(profile, profile.trace, built, names.index(name))
        assert detail is not None
        label = name.split()[1].rstrip(",")
        line = next(line for line in built.sheet.totals if line.startswith(f"{label}: "))
        assert detail.message_lines[0] == f"pattern {line}"
