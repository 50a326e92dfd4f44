"""Test nesting, folding, links and sums of random programs against a slow reference."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import table_reference
from tests.helpers.paths import SHARED_TRACES
from tests.helpers.profiler_rows import list_rows
from tests.helpers.trace_builder import PID, TID, event, kernel, memset, step, trace
from torchprof_tui.analysis.table.groups import Profile
from torchprof_tui.analysis.table.profiler_table import ProfilerTable
from torchprof_tui.trace.loading.load_in_process import load_trace

HEADER = {"baseTimeNanoseconds": 1}
AT = 1000
MAIN = (PID, TID)

TRACES = SHARED_TRACES

NAMES = ["aten::mm", "aten::add", "ProfilerStep#3", "aten::is_leaf"]
CPU = ["cpu_op", "cpu_op", "cpu_op", "user_annotation", "cuda_runtime", "overhead", "python_function"]


@st.composite
def programs(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Random calls on two threads: nested, crossing, empty, simultaneous; GPU work with and without an operator's
    id."""
    entries: list[dict[str, Any]] = [step(7, AT - 1, 60)]
    ids = iter(range(1, 100))
    links = st.integers(0, 12)
    times = st.tuples(st.integers(0, 30), st.sampled_from([0, 1, 2, 3, 5, 8, 20]))
    for start, duration in draw(st.lists(times, max_size=14)):
        category = draw(st.sampled_from(CPU))
        args: dict[str, Any] = {}
        if category in ("cpu_op", "user_annotation"):
            args["External id"] = next(ids)
        elif category == "cuda_runtime":
            args = {"correlation": draw(links), "External id": draw(links)}
            if not args["External id"]:
                del args["External id"]
        thread = {"pid": -1, "tid": 0} if category == "overhead" else {"tid": TID + draw(st.integers(0, 1))}
        name = draw(st.sampled_from(NAMES))
        entries.append(event(name, AT + start, duration, category, args=args, **thread))
    for start, duration in draw(st.lists(times, max_size=8)):
        link = draw(links)
        gpu_entry = draw(st.sampled_from([kernel, memset]))(
            draw(st.sampled_from(["k", "aten::mm"])), AT + start, duration
        )
        gpu_entry["cat"] = draw(st.sampled_from([gpu_entry["cat"], "gpu_user_annotation", "cuda_sync"]))
        if link:
            gpu_entry["args"]["External id"] = link
        entries.append(gpu_entry)
    return entries


def as_torch_writes(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Remove links that no file of torch has: to missing operators, to annotations, to calls that torch leaves out."""
    ops = {e["args"]["External id"]: e for e in entries if e["cat"] == "cpu_op"}
    for entry in entries:
        if entry["cat"] in ("cpu_op", "user_annotation") or "External id" not in entry["args"]:
            continue
        op = ops.get(entry["args"]["External id"])
        on_cpu = entry["cat"] == "cuda_runtime"
        if op is None or (on_cpu and op["name"] in table_reference.IGNORED_NAMES):
            del entry["args"]["External id"]
    return entries


def rows_of(table: ProfilerTable) -> list[tuple[table_reference.Key, table_reference.Sums]]:
    return [
        ((row.name, row.on_gpu, row.annotation), (row.calls, row.self_cpu, row.cpu, row.self_gpu, row.gpu))
        for row in list_rows(table)
    ]


@given(programs().map(as_torch_writes))
def test_the_table_equals_the_reference(entries: list[dict[str, Any]]) -> None:
    table = Profile(trace(*entries, header=HEADER, ns=True)).build_table()
    expected = table_reference.rows(entries, MAIN)
    assert rows_of(table) == expected
    assert table.self_cpu_total == sum(sums[1] for _, sums in expected)
    assert table.self_gpu_total == sum(sums[3] for (_, on_gpu, spans), sums in expected if on_gpu and not spans)


@pytest.mark.skipif(not TRACES.exists(), reason="needs the shared traces")
@pytest.mark.parametrize("rank", ["ddp_4ranks/rank3", pytest.param("fsdp_4ranks/rank0", marks=pytest.mark.long)])
def test_ranks_equal_the_reference(rank: str) -> None:
    """The first has correlations that are also operators' ids; in both, overhead crosses annotations."""
    path = TRACES / f"{rank}.pt.trace.json.gz"
    entries = [entry for entry in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if entry["ph"] == "X"]
    for entry in entries:
        entry["ts"], entry["dur"] = (int(Decimal(str(entry[key])) * 1000) for key in ("ts", "dur"))
    step = next(e for e in entries if e["name"].startswith("ProfilerStep#") and e["cat"] == "user_annotation")
    table = Profile(load_trace(str(path), cache=False)).build_table()
    assert rows_of(table) == table_reference.rows(entries, (step["pid"], step["tid"]))
    assert (table.self_cpu < 0).any()
