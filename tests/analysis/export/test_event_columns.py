"""Test the columns of events against the events themselves, and the files that hold them."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

import torchprof_tui as tt
from tests.helpers.merged_ranks import load_merged_ranks
from tests.helpers.paths import SAMPLES
from tests.helpers.rank_traces import late_rank
from tests.helpers.trace_builder import annotation, cpu, event, kernel, memcpy, runtime, step, trace
from torchprof_tui.analysis.export.event_columns import (
    COLUMNS,
    TEXT_COLUMNS,
    EventColumns,
    build_arrow_table,
    write_arrow,
    write_csv,
    write_parquet,
)
from torchprof_tui.trace.model.trace import Trace


def training() -> Trace:
    """Two steps; the second launches a kernel that runs after it, on a stream of another thread's op."""
    return trace(
        step(3, 0, 100),
        step(4, 100, 100),
        cpu("aten::mm", 110, 50),
        runtime("cudaLaunchKernel", 120, 10, corr=7),
        kernel("gemm", 250, 20, corr=7, stream=5, device=1),
        memcpy("Memcpy HtoD", 20, 5, stream=9, device=1),
        annotation("line\nbreak", 300, 5),
        event("strange", 400, 1, cat=""),
    )


def rows_of(columns: EventColumns) -> list[dict[str, Any]]:
    table = build_arrow_table(columns)
    return [dict(zip(COLUMNS, row.values(), strict=True)) for row in table.to_pylist()]


def test_rows_are_events() -> None:
    made = training()
    rows = {row["name"]: row for row in rows_of(EventColumns(made))}
    gemm, launch, op, copy = (rows[name] for name in ("gemm", "cudaLaunchKernel", "aten::mm", "Memcpy HtoD"))
    assert (gemm["category"], gemm["kind"], gemm["stream"], gemm["device"]) == ("kernel", "kernel", 5, 1)
    assert (gemm["start_ns"], gemm["duration_ns"], gemm["self_ns"]) == (250_000, 20_000, 20_000)
    assert (gemm["step"], gemm["correlation"]) == (4, 7)  # the step that launched it, long over
    names = [made.event(row).name for row in range(len(made))]
    assert names[gemm["launch"]] == "cudaLaunchKernel"
    assert names[launch["parent"]] == "aten::mm"
    assert (launch["launch"], launch["stream"], launch["device"]) == (None, None, None)
    assert (op["process"], op["thread"], op["lane"], op["group"]) == ("100", "100", "CPU 100", "CPU")
    assert (op["self_ns"], op["rank"], op["correlation"]) == (40_000, None, None)
    assert (copy["step"], copy["correlation"], copy["launch"]) == (3, None, None)
    assert rows["strange"]["step"] is None


def test_columns_equal_the_events_of_a_real_trace() -> None:
    events = tt.open(SAMPLES / "train_gpt_stack_memory.pt.trace.json.gz").events
    model = events.trace
    table = events.to_arrow()
    for row in (0, 1, 999, len(events) - 1):
        view, record = model.event(row), table.slice(row, 1).to_pylist()[0]
        assert (record["name"], record["category"]) == (view.name, view.category)
        assert (record["start_ns"], record["duration_ns"]) == (view.start, view.duration)
        assert (record["lane"], record["group"]) == (view.lane.label, view.lane.group)
        assert record["parent"] == (None if view.parent is None else view.parent.index)
        whole = events[row]
        assert {name: getattr(whole, name) for name in COLUMNS} == record
    assert table.column("launch").null_count == len(events) - int((model.links.launch_of >= 0).sum())


def test_all_columns_are_read_only() -> None:
    columns = EventColumns(training())
    for name in COLUMNS:
        column = getattr(columns, name)
        assert not (column.codes if name in TEXT_COLUMNS else column).flags.writeable, name


def test_ranks_keep_their_own_numbers(tmp_path: Path) -> None:
    merged = load_merged_ranks(late_rank(ranks=3).write(tmp_path))
    assert merged.merged_ranks is not None
    rows = rows_of(EventColumns(merged))
    for rank in merged.merged_ranks.all:
        own = rows_of(EventColumns(rank.trace))
        of_rank = rows[rank.first : rank.last]
        assert {row["rank"] for row in of_rank} == {rank.number}
        for key in ("name", "start_ns", "correlation", "step", "thread", "stream"):
            assert [row[key] for row in of_rank] == [row[key] for row in own]
        assert [row["parent"] for row in of_rank] == [
            None if row["parent"] is None else row["parent"] + rank.first for row in own
        ]


def test_texts_are_stored_once_and_only_where_they_occur() -> None:
    table = build_arrow_table(EventColumns(training()))
    for name in TEXT_COLUMNS:
        values = table.column(name).chunk(0).dictionary.to_pylist()
        assert len(set(values)) == len(values)
        assert set(values) == set(table.column(name).to_pylist())


@pytest.mark.parametrize("names", [("\ud800", "\ud801", "\\ud800"), ("",), ("é" * 1000, "名前")])
def test_any_name_can_be_stored(tmp_path: Path, names: tuple[str, ...]) -> None:
    made = trace(*(cpu(name, place * 10.0, 5.0) for place, name in enumerate(names)))
    columns = EventColumns(made)
    assert len(build_arrow_table(columns).to_pandas()) == len(names)
    write_parquet(columns, tmp_path / "e.parquet")
    write_csv(columns, tmp_path / "e.csv")
    assert pyarrow.parquet.read_table(tmp_path / "e.parquet").num_rows == len(names)


def test_a_trace_without_events(tmp_path: Path) -> None:
    columns = EventColumns(trace())
    assert build_arrow_table(columns).num_rows == 0
    write_arrow(columns, tmp_path / "e.arrow")
    write_csv(columns, tmp_path / "e.csv")
    assert (tmp_path / "e.csv").read_text() == ",".join(COLUMNS) + "\n"


def test_files_hold_the_same_rows(tmp_path: Path) -> None:
    columns = EventColumns(training())
    write_parquet(columns, tmp_path / "e.parquet")
    write_arrow(columns, tmp_path / "e.arrow")
    write_csv(columns, tmp_path / "e.csv")
    table = build_arrow_table(columns)
    assert pyarrow.parquet.read_table(tmp_path / "e.parquet").equals(table)
    assert pyarrow.feather.read_table(tmp_path / "e.arrow").equals(table)
    text = (tmp_path / "e.csv").read_text(encoding="utf-8")
    assert len(text.splitlines()) == len(columns) + 1  # a name with a line break is one line
    for told, row in zip(csv.DictReader(io.StringIO(text)), table.to_pylist(), strict=True):
        said = {name: "" if value is None else str(value) for name, value in row.items()}
        assert told == said | {"name": said["name"].replace("\n", "·")}


def test_frames() -> None:
    events = tt.open(SAMPLES / "linear_eager.pt.trace.json.gz").events
    frame, other = events.to_pandas(), events.to_polars()
    assert list(frame.columns) == list(other.columns) == list(COLUMNS)
    assert frame["launch"].isna().sum() == other["launch"].null_count() > 0
    assert [str(frame[name].dtype) for name in ("name", "start_ns", "step", "correlation")] == [
        "category",
        "int64",
        "Int32",
        "Int64",
    ]
    kernels = frame[frame["kind"] == "kernel"]
    assert kernels["duration_ns"].sum() == other.filter(other["kind"].cast(str) == "kernel")["duration_ns"].sum() > 0
    assert kernels["name"].cat.remove_unused_categories().cat.categories.size == 1
    np.testing.assert_array_equal(events.name.to_numpy(), frame["name"].astype(object))


def test_records_are_json() -> None:
    assert json.loads(json.dumps(dataclasses.asdict(tt.open("sample:linear_eager").events[-1])))["kind"] == "profiler"


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    events = tt.open("sample:linear_eager").events
    wanted = {"pyarrow": "'torchprof-tui[arrow]'", "pandas": "pandas", "polars": "polars"}
    for package, ask in (("pyarrow", events.to_arrow), ("pandas", events.to_pandas), ("polars", events.to_polars)):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)
            with pytest.raises(ImportError) as error:
                ask()
        assert str(error.value) == f"{package} is not installed: pip install {wanted[package]}"
        assert isinstance(error.value, tt.TraceError)
    assert isinstance(events.to_arrow(), pa.Table)
