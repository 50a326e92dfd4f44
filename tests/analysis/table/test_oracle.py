"""Test the table against `key_averages()` of the same run: every row in its order, and the footer."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.long_run import keep_some
from tests.helpers.paths import ROOT, SHARED_TRACES
from tests.helpers.profiler_rows import list_rows
from torchprof_samples import find
from torchprof_tui.analysis.table.groups import Profile
from torchprof_tui.analysis.table.profiler_table import ProfilerTable
from torchprof_tui.analysis.table.table_sheet import format_torch_time
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.event_kind import GPU_WORK

TRACES = SHARED_TRACES
RECORDED = sorted(TRACES.glob("*.key_averages.json"))
SHIPPED: dict[str, Any] = json.loads((ROOT / "tests/fixtures/key_averages.json").read_text())
"""Per sample: the rows of `key_averages()` (µs; recorded in the same run as the trace), and torch's printed footer."""


def rows_of(table: ProfilerTable) -> list[tuple[str, str, int, int, int, int, int]]:
    """(name, device, calls, self CPU, CPU, self GPU, GPU) in the table's order, ns."""
    return [
        (row.name, "CUDA" if row.on_gpu else "CPU", row.calls, row.self_cpu, row.cpu, row.self_gpu, row.gpu)
        for row in list_rows(table)
    ]


def torch_row(name: str, device: str, calls: int, *us: float) -> tuple[Any, ...]:
    """One row of torch in ns: torch sums floats of µs with three decimals, this project whole ns."""
    return (name, device, calls, *(round(time * 1000) for time in us))


@pytest.mark.parametrize("name", SHIPPED)
def test_samples_have_torchs_rows_and_footer(name: str) -> None:
    table = Profile(load_trace(str(find(name).path), cache=False)).build_table()
    assert rows_of(table) == [torch_row(*row) for row in SHIPPED[name]["rows"]]
    totals = f"Self CPU time total: {format_torch_time(table.self_cpu_total)}"
    assert [totals, f"Self CUDA time total: {format_torch_time(table.self_gpu_total)}"] == SHIPPED[name]["footer"]


@pytest.mark.skipif(not RECORDED, reason="needs the shared traces")
@pytest.mark.parametrize("answer", keep_some(RECORDED, 3), ids=lambda path: path.name.partition(".")[0])
def test_every_row_of_every_recorded_trace(answer: Path) -> None:
    name = answer.name.removesuffix(".key_averages.json")
    trace = load_trace(str(answer.with_name(f"{name}.pt.trace.json.gz")), cache=False)
    table = Profile(trace).build_table()
    keys = ("key", "device", "count", "self_cpu_us", "cpu_us", "self_device_us", "device_us")
    expected = [[row[key] for key in keys] for row in json.loads(answer.read_text())]
    assert rows_of(table) == [torch_row(row[0], row[1].removeprefix("DeviceType."), *row[2:]) for row in expected]
    printed = answer.with_name(f"{name}.table.txt").read_text().splitlines()
    assert f"Self CPU time total: {format_torch_time(table.self_cpu_total)}" in printed
    assert f"Self CUDA time total: {format_torch_time(table.self_gpu_total)}" in printed


PUBLIC = sorted(
    path for path in (TRACES / "public").rglob("*") if path.name.endswith((".json", ".json.gz")) and path.is_file()
)


@pytest.mark.long
@pytest.mark.skipif(not PUBLIC, reason="needs the shared traces")
def test_old_and_foreign_traces_add_up() -> None:
    """Traces without a recorded table: nothing is counted twice and nothing is lost."""
    checked: Counter[str] = Counter()
    for path in PUBLIC[::12]:
        trace = load_trace(str(path), cache=False)
        profile = Profile(trace)
        table = profile.build_table()
        calls = profile.calls
        checked[trace.format] += 1
        assert int(table.calls.sum()) == len(calls) + calls.top_level_memory_records
        assert (table.self_cpu >= 0).all(), path.name
        assert (table.cpu >= table.self_cpu).all(), path.name
        work = np.isin(trace.kind, list(GPU_WORK))
        assert table.self_gpu_total >= int(trace.duration[work].sum()), path.name
        roots = (calls.parent < 0) & ~calls.on_gpu
        assert table.self_cpu_total == int(calls.cpu[roots].sum()), path.name
    assert checked["kineto"]
    assert checked["chrome"]
