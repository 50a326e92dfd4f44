"""Digests of input shapes, which distinguish calls of one name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.analysis.compare.sides import side_of
from tests.helpers.trace_builder import Entry, cpu, kernel, runtime
from torchprof_tui.analysis.compare.matched_rows import RowStatus, match_sides
from torchprof_tui.analysis.compare.op_tree import Side
from torchprof_tui.trace.loading.load_in_process import load_trace


def write_side(path: Path, calls: list[tuple[int, float]]) -> Side:
    """Write a trace of products of (rows, µs of their kernel) and load it."""
    entries: list[Entry] = []
    for number, (rows, duration) in enumerate(calls):
        at = 100.0 * number
        entries.append({**cpu("aten::mm", at, 10), "args": {"Input Dims": [[rows, 64], [64, 64]]}})
        entries.append(runtime("cudaLaunchKernel", at + 1, 2, number + 1))
        entries.append(kernel("gemm", at + 20, duration, corr=number + 1))
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": entries}))
    return side_of(load_trace(str(path), cache=False))


def test_the_call_with_the_same_shapes_is_matched(tmp_path: Path) -> None:
    a = write_side(tmp_path / "a.json", [(128, 10), (256, 20), (512, 30)])
    b = write_side(tmp_path / "b.json", [(256, 21)])
    rows = {row.status: row for row in match_sides(a, b).rows if row.name_a == "aten::mm"}
    assert (rows[RowStatus.MATCHED].gpu_ns_a, rows[RowStatus.MATCHED].gpu_ns_b) == (20e3, 21e3)
    assert rows[RowStatus.REMOVED].gpu_ns_a == 40e3


def test_shapes_do_not_matter_where_all_of_them_differ(tmp_path: Path) -> None:
    a = write_side(tmp_path / "a.json", [(128, 10), (256, 20)])
    b = write_side(tmp_path / "b.json", [(1024, 30), (2048, 40), (4096, 50)])
    rows = {row.status: row for row in match_sides(a, b).rows if "aten::mm" in (row.name_a, row.name_b)}
    assert rows[RowStatus.MATCHED].calls_a == rows[RowStatus.MATCHED].calls_b == 2


@pytest.mark.parametrize("gone", ["a", "b"])
def test_a_file_that_is_gone_is_matched_by_name(tmp_path: Path, gone: str) -> None:
    a = write_side(tmp_path / "a.json", [(128, 10), (256, 20), (512, 30)])
    b = write_side(tmp_path / "b.json", [(256, 21)])
    (tmp_path / f"{gone}.json").unlink()
    rows = {row.status: row for row in match_sides(a, b).rows if row.name_a == "aten::mm"}
    assert rows[RowStatus.MATCHED].calls_a == 1
