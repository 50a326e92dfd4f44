"""An export that nsys 2025.3.1 wrote on an H200, beside a torch.profiler trace of the same program.

Six linear layers run for four steps and are replayed three times as a CUDA graph. Of the export, environment variables
and other processes were deleted; nothing else was changed.
"""

from __future__ import annotations

import gzip
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from tests.helpers.paths import FIXTURES
from torchprof_nsight.extension import UNREAD_TABLE
from torchprof_tui.analysis.critical_path.critical_path import find_critical_path
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

FOLDER = FIXTURES / "nsight"


@pytest.fixture(scope="module")
def export_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nsight") / "linear_layers.sqlite"
    path.write_bytes(gzip.decompress((FOLDER / "linear_layers.sqlite.gz").read_bytes()))
    return path


@pytest.fixture(scope="module")
def export(export_file: Path) -> Trace:
    return load_trace(str(export_file), cache=False)


def names_between(trace: Trace, start: int, end: int) -> list[str]:
    """List the kernels and copies launched in a time, in order of their start, without template arguments."""
    work = (trace.links.launch_of >= 0).nonzero()[0]
    launch = trace.start[trace.links.launch_of[work]]
    chosen = work[(launch >= start) & (launch < end)]
    ordered = chosen[trace.start[chosen].argsort(kind="stable")]
    return [trace.event(int(event)).name.partition("<")[0] for event in ordered]


def last_steps(trace: Trace, launches: int) -> list[str]:
    """List the GPU work of the last launches of a trace: what both programs recorded."""
    work = (trace.links.launch_of >= 0).nonzero()[0]
    starts = sorted({int(trace.start[event]) for event in trace.links.launch_of[work]})
    return names_between(trace, starts[-launches], starts[-1] + 1)


def test_rows_equal_those_of_the_database(export: Trace, export_file: Path) -> None:
    database = sqlite3.connect(export_file)
    for table, kind in (("KERNEL", Kind.KERNEL), ("MEMCPY", Kind.COPY)):
        query = f"SELECT count(*), sum(end - start), min(start), max(end) FROM CUPTI_ACTIVITY_KIND_{table}"
        count, total, first, last = database.execute(query).fetchone()
        events = (export.kind == kind).nonzero()[0]
        assert (len(events), int(export.duration[events].sum())) == (count, total)
        begin = export.start[events]
        assert int((begin + export.duration[events]).max() - begin.min()) == last - first
    (calls,) = database.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME").fetchone()
    assert int((export.kind == Kind.RUNTIME).sum()) == calls
    assert all(export.links.launch_of[(export.kind == Kind.KERNEL).nonzero()[0]] >= 0)


def test_same_work_as_the_profiler_recorded(export: Trace) -> None:
    twin = load_trace(str(FOLDER / "linear_layers.pt.trace.json.gz"), cache=False)
    launches = 63  # of four steps and three replays: `info` of the profiler's trace
    names = last_steps(twin, launches)
    assert len(names) == 96
    assert last_steps(export, launches) == names


def test_footprints_equal_those_of_the_profiler(export: Trace) -> None:
    def footprints(trace: Trace) -> Counter[tuple[object, ...]]:
        kernels = (trace.kind == Kind.KERNEL).nonzero()[0]
        kernels = kernels[trace.start[kernels].argsort(kind="stable")][-92:]  # of four steps and three replays
        args = [trace.event(int(kernel)).read_args() for kernel in kernels]
        return Counter(
            (each["registers per thread"], each["shared memory"], *each["grid"], *each["block"]) for each in args
        )

    assert footprints(export) == footprints(load_trace(str(FOLDER / "linear_layers.pt.trace.json.gz"), cache=False))


def test_blocking_calls_are_named_after_the_call(export: Trace, export_file: Path) -> None:
    syncs = (export.kind == Kind.SYNC).nonzero()[0]
    assert Counter(export.event(int(event)).name for event in syncs) == {"Stream Sync": 19}
    types = sqlite3.connect(export_file).execute("SELECT DISTINCT syncType FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION")
    assert {number for (number,) in types} == {2, 4}  # 2 is "Stream wait sync" by the export's own list of names
    assert not [problem for problem in export.problems if problem.kind == UNREAD_TABLE]


def test_no_dependency_is_inferred(export: Trace) -> None:
    path = find_critical_path(export, None)
    assert path.inferred == 0
    assert abs(path.replay_error) < 0.01
