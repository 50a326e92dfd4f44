"""Nsight Systems exports of two versions, the same numbers as from Kineto, and files that are damaged or hostile."""

from __future__ import annotations

import json
import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.command_line import read_table_rows
from tests.helpers.long_run import keep_some
from tests.helpers.nsight_exports import (
    PID,
    SCHEMA_2021,
    SCHEMA_2025,
    TID,
    Export,
    export_of,
    global_tid,
    keep_converted,
    read_entries,
)
from torchprof_nsight import export_file, nsight_source
from torchprof_nsight.extension import NO_TABLE, UNREAD_TABLE, WHOLE_GRAPHS
from torchprof_samples import find
from torchprof_tui.analysis.dispatch.chain import find_chain
from torchprof_tui.analysis.kernel.footprint import compute_footprint
from torchprof_tui.cli import main
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.problems import DAMAGED_TABLE, UNREADABLE_ENTRY
from torchprof_tui.trace.loading.load_in_process import load_resolved, load_trace
from torchprof_tui.trace.loading.progress import ignore_progress
from torchprof_tui.trace.loading.resolve import resolve_specs
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.sources.source import Source
from torchprof_tui.trace.sources.ssh_connections import SshConnections

KERNEL_NAME = "void gemm<float, 128>(float const*, float*)"


def literal(schema: Mapping[str, str]) -> Export:
    """One range with a copy, a kernel and a graph of two nodes on stream 7, times in ns."""
    export = Export(schema)
    export.gpu()
    export.nvtx('train "step" 0', 1_000, 90_123)
    export.call("cudaMemcpyAsync_v3020", 2_000, 5_000, 11)
    export.copy(6_000, 8_000, 11, 4096)
    export.call("cuLaunchKernelEx", 10_000, 14_500, 12)
    export.kernel(
        KERNEL_NAME, 20_000, 30_001, 12, registersPerThread=168, staticSharedMemory=1024, dynamicSharedMemory=2048,
        gridX=8, gridY=4, blockX=128,
    )  # fmt: skip
    export.call("cudaGraphLaunch_v10000", 40_000, 44_000, 13)
    export.kernel("first", 45_000, 46_000, 13, graphNodeId=77, streamId=9)
    export.kernel("second", 46_500, 47_000, 13, graphNodeId=78, streamId=9)
    export.add("ThreadNames", nameId=export.string("pt_main_thread"), globalTid=global_tid())
    return export


def names_of(trace: Trace) -> list[str]:
    return [trace.names[index] for index in trace.name.tolist()]


def event_of(trace: Trace, name: str) -> int:
    return names_of(trace).index(name)


def footprint_of(trace: Trace, event: int) -> dict[str, Any]:
    footprint = compute_footprint(trace, event)
    assert footprint is not None
    return footprint.as_dict()


def args_of(trace: Trace, name: str) -> dict[str, Any]:
    return trace.event(event_of(trace, name)).read_args()


@pytest.mark.parametrize("schema", [SCHEMA_2021, SCHEMA_2025], ids=["2021", "2025"])
def test_literal_export(tmp_path: Path, schema: Mapping[str, str]) -> None:
    trace = load_trace(str(literal(schema).write(tmp_path / "r.sqlite")), cache=False)
    assert trace.format == "nsight"
    lanes = {(lane.role, lane.pid, lane.tid): lane.label for lane in trace.lanes}
    assert set(lanes) >= {(Role.THREAD, str(PID), str(TID)), (Role.STREAM, "0", "7"), (Role.STREAM, "0", "9")}
    assert "pt_main_thread" in lanes[Role.THREAD, str(PID), str(TID)]
    kinds = Counter(Kind(kind).name for kind in trace.kind.tolist())
    assert kinds == {"ANNOTATION": 1, "RUNTIME": 3, "KERNEL": 3, "COPY": 1}
    assert trace.links.linked_gpu_events == trace.links.gpu_events == 4
    kernel = event_of(trace, KERNEL_NAME)
    assert (int(trace.start[kernel]), int(trace.duration[kernel])) == (19_000, 10_001)  # from the first event
    footprint = footprint_of(trace, kernel)
    assert (footprint["grid"], footprint["block"]) == ([8, 4, 1], [128, 1, 1])
    assert (footprint["registers_per_thread"], footprint["shared_memory_bytes"]) == (168, 3072)
    chain = [names_of(trace)[hop.event] for hop in find_chain(trace, kernel).hops]
    assert chain == ['train "step" 0', "cuLaunchKernelEx", KERNEL_NAME]
    assert args_of(trace, "second")["graph node id"] == 78
    assert "cudaGraphLaunch" in names_of(trace)
    assert args_of(trace, "Memcpy HtoD (Pinned -> Device)")["bytes"] == 4096
    (device,) = trace.devices
    assert (device.name, device.numbers["numSms"]) == ("NVIDIA H200", 132)
    assert ("maxThreadsPerMultiprocessor" in device.numbers) == (schema is SCHEMA_2025)


def test_occupancy_from_device_properties(tmp_path: Path) -> None:
    """H200: 168 registers × 384 threads allow one block on an SM."""
    export = Export()
    export.gpu()
    export.call("cudaLaunchKernel_v7000", 0, 5, 1)
    export.kernel("k", 10, 20, 1, registersPerThread=168, blockX=384, gridX=264)
    trace = load_trace(str(export.write(tmp_path / "r.sqlite")), cache=False)
    assert footprint_of(trace, event_of(trace, "k"))["active_blocks_per_sm"] == 1


@pytest.mark.parametrize(
    "name",
    keep_some(
        ["matmul_add_64_cold_eager", "cuda_graph_replay", pytest.param("train_gpt_eager", marks=pytest.mark.long)], 1
    ),
)
def test_same_numbers_as_kineto(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A Kineto trace and the same events as an export: lanes, times, links, chains, footprints and table."""
    document = keep_converted(read_entries(find(name).path))
    (tmp_path / "t.json").write_text(json.dumps(document, default=float))
    export_of(document).write(tmp_path / "t.sqlite")
    kineto, nsight = (load_trace(str(tmp_path / f"t.{suffix}"), cache=False) for suffix in ("json", "sqlite"))
    for column in ("start", "duration", "lane", "row", "parent", "self_duration", "kind"):
        np.testing.assert_array_equal(getattr(kineto, column), getattr(nsight, column), column)
    assert names_of(kineto) == names_of(nsight)
    assert [(lane.role, lane.pid, lane.tid) for lane in kineto.lanes] == [
        (lane.role, lane.pid, lane.tid) for lane in nsight.lanes
    ]
    assert kineto.links.linked_gpu_events == nsight.links.linked_gpu_events > 0
    kernels = np.flatnonzero(kineto.kind == Kind.KERNEL)
    for kernel in kernels[:: max(len(kernels) // 40, 1)].tolist():
        one, other = (find_chain(trace, kernel) for trace in (kineto, nsight))
        assert [hop.event for hop in one.hops] == [hop.event for hop in other.hops]
        theirs, ours = (footprint_of(trace, kernel) for trace in (kineto, nsight))
        for key in ("grid", "block", "registers_per_thread", "shared_memory_bytes", "theoretical_occupancy", "waves"):
            assert theirs[key] == ours[key], key
    tables = [read_table_rows(capsys, tmp_path / f"t.{suffix}") for suffix in ("json", "sqlite")]
    assert tables[0] == tables[1]


def test_processes_are_kept_apart(tmp_path: Path) -> None:
    """Two processes count correlations from 1 and see their GPUs as device 0."""
    export = Export()
    for rank, pid in enumerate((100, 200)):
        export.gpu(rank)
        export.add("TARGET_INFO_CUDA_DEVICE", gpuId=rank, cudaId=0, pid=pid)
        export.call("cudaLaunchKernel_v7000", 1_000 * rank, 1_000 * rank + 10, 1, tid=pid, pid=pid)
        export.kernel(f"kernel of {pid}", 5_000, 6_000, 1, globalPid=global_tid(0, pid))
    trace = load_trace(str(export.write(tmp_path / "r.sqlite")), cache=False)
    for rank, pid in enumerate((100, 200)):
        kernel = event_of(trace, f"kernel of {pid}")
        lane = trace.event(kernel).lane
        assert (lane.role, lane.device) == (Role.STREAM, rank)
        (call, _) = (hop.event for hop in find_chain(trace, kernel).hops)
        assert trace.event(call).lane.pid == str(pid)


def test_nvtx_of_every_kind(tmp_path: Path) -> None:
    export = Export()
    export.nvtx("NCCL", 0, None, kind=75, domainId=3)  # the name of a domain is no event
    export.nvtx("all_reduce", 100, 200, domainId=3)
    export.nvtx(None, 300, 400, textId=export.string("from StringIds"))
    export.nvtx("started", 150, 350, kind=60)  # crosses the others, which pushed ranges cannot
    export.nvtx("never popped", 500, None, kind=35)
    export.nvtx("mark", 600, None, kind=34)
    trace = load_trace(str(export.write(tmp_path / "r.sqlite")), cache=False)
    assert sorted(names_of(trace)) == ["all_reduce", "from StringIds", "mark", "never popped", "started"]
    assert args_of(trace, "all_reduce") == {"domain": "NCCL"}
    assert int(trace.duration[event_of(trace, "started")]) == 200
    assert sum(trace.counts.not_drawn.values()) + trace.counts.drawn + trace.counts.metadata == trace.counts.events


def test_what_was_not_recorded_is_named(tmp_path: Path) -> None:
    export = Export()
    export.call("cudaGraphLaunch_v10000", 0, 10, 1)
    where = {"deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": 1, "globalPid": global_tid(0)}
    export.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start=20, end=90, graphId=5, **where)
    export.add("OSRT_API", start=0, end=5, globalTid=global_tid(), nameId=export.string("poll"))
    trace = load_trace(str(export.write(tmp_path / "r.sqlite")), cache=False)
    problems = {(problem.kind, problem.example.partition(" ")[0]) for problem in trace.problems}
    assert problems >= {(NO_TABLE, "NVTX_EVENTS:"), (WHOLE_GRAPHS, "nsys"), (UNREAD_TABLE, "OSRT_API")}
    assert "CUDA graph 5 (its kernels were not recorded)" in names_of(trace)


def test_reopened_from_the_cache(tmp_path: Path) -> None:
    path = literal(SCHEMA_2025).write(tmp_path / "r.sqlite")
    first, again = load_trace(str(path)), load_trace(str(path))
    np.testing.assert_array_equal(first.start, again.start)
    path.unlink()  # args come from the cache, not from the export
    assert args_of(again, "first")["stream"] == 9


def test_commands_open_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(literal(SCHEMA_2025).write(tmp_path / "r.sqlite"))
    assert main(["info", path]) == 0
    assert "Nsight Systems report" in capsys.readouterr().out
    assert main(["chain", path, "--event", KERNEL_NAME, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["footprint"]["registers_per_thread"] == 168
    assert main(["check", path]) == 0


def sql(path: Path, *statements: str) -> Path:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()
    return path


STRANGE_ROW = "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME (start, end, globalTid, correlationId, nameId) VALUES "


@pytest.mark.parametrize(
    "values",
    [
        "('now', 5, 1, 1, 1)",
        "(NULL, NULL, NULL, NULL, NULL)",
        "(1, 5, 'x', 1, 1)",
        "(1, 5, 1, x'00ff', 1)",
        "(-5, 5, 1, 1, 1)",
        "(1.5, 5, 1, 1, 1)",
    ],
)
def test_rows_that_nsys_does_not_write(tmp_path: Path, values: str) -> None:
    """Such a row is left out and counted; all others are there."""
    path = sql(literal(SCHEMA_2025).write(tmp_path / "r.sqlite"), STRANGE_ROW + values)
    trace = load_trace(str(path), cache=False)
    assert [problem.count for problem in trace.problems if problem.kind == UNREADABLE_ENTRY] == [1]
    assert KERNEL_NAME in names_of(trace)


@pytest.mark.parametrize(
    "values",
    [
        f"(1, {2**63 - 1}, 1, 1, 1)",
        f"({2**63 - 2}, {2**63 - 1}, 1, 1, 1)",
        f"(1, 5, {2**63 - 1}, {2**63 - 1}, {2**63 - 1})",
        f"(1, 5, {-(2**63)}, {-(2**63)}, -1)",
        "(9, 5, 1, 1, 1)",
    ],
)
def test_large_numbers_open(tmp_path: Path, values: str) -> None:
    path = sql(literal(SCHEMA_2025).write(tmp_path / "r.sqlite"), STRANGE_ROW + values)
    trace = load_trace(str(path), cache=False)
    assert KERNEL_NAME in names_of(trace)
    assert (trace.duration >= 0).all()


def test_schema_cannot_run_anything(tmp_path: Path) -> None:
    """A view, a generated column and a trigger are not evaluated; a table that is a view is missing."""
    path = literal(SCHEMA_2025).write(tmp_path / "r.sqlite")
    endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT"
    sql(
        path,
        "ALTER TABLE NVTX_EVENTS RENAME TO hidden",
        f"CREATE VIEW NVTX_EVENTS AS {endless} x AS start, x AS end FROM c",
        "CREATE TRIGGER t AFTER INSERT ON hidden BEGIN DELETE FROM hidden; END",
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN launchType",
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN launchType AS (zeroblob(1000000000)) VIRTUAL",
    )
    before = path.read_bytes()
    trace = load_trace(str(path), cache=False)
    assert KERNEL_NAME in names_of(trace)
    assert (NO_TABLE, "NVTX_EVENTS") in {(each.kind, each.example.partition(":")[0]) for each in trace.problems}
    assert path.read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["r.sqlite"]


def refusal(path: Path) -> str:
    with pytest.raises(TraceError) as caught:
        load_trace(str(path), cache=False)
    line = str(caught.value)
    assert line.startswith(f"{path}: ")
    assert line.isprintable()
    return line.removeprefix(f"{path}: ")


def empty_database(path: Path) -> Path:
    return sql(path, "CREATE TABLE t (x)", "DROP TABLE t")


def other_database(path: Path) -> Path:
    return sql(path, "CREATE TABLE photos (id)")


def without_events(path: Path) -> Path:
    return sql(path, "CREATE TABLE META_DATA_EXPORT (name, value)", "CREATE TABLE StringIds (id, value)")


def without_columns(path: Path) -> Path:
    return sql(path, "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (a)", "CREATE TABLE StringIds (id, value)")


def only_magic(path: Path) -> Path:
    path.write_bytes(b"SQLite format 3\0" + bytes(20))
    return path


def with_wal(path: Path) -> Path:
    literal(SCHEMA_2025).write(path)
    path.with_name(f"{path.name}-wal").write_bytes(b"pages")
    return path


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (empty_database, "an SQLite database of another program (tables: none)"),
        (other_database, "an SQLite database of another program (tables: photos)"),
        (without_events, "nsys profile --trace=cuda,nvtx records them"),
        (without_columns, "CUPTI_ACTIVITY_KIND_KERNEL has no column start"),
        (only_magic, "a damaged SQLite file: "),
        (with_wal, "an SQLite file that is still being written: r.sqlite-wal holds changes"),
    ],
)
def test_refused_in_one_line(tmp_path: Path, make: Callable[[Path], Path], expected: str) -> None:
    assert expected in refusal(make(tmp_path / "r.sqlite"))


def test_wal_mode_without_journal_opens(tmp_path: Path) -> None:
    path = sql(literal(SCHEMA_2025).write(tmp_path / "r.sqlite"), "PRAGMA journal_mode = WAL")
    assert KERNEL_NAME in names_of(load_trace(str(path), cache=False))


def test_no_more_rows_than_the_file_can_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages that refer to each other could give rows without end."""
    monkeypatch.setattr(export_file, "MIN_ROW_BYTES", 1 << 14)
    trace = load_trace(str(literal(SCHEMA_2025).write(tmp_path / "r.sqlite")), cache=False)
    examples = [problem.example for problem in trace.problems if problem.kind == DAMAGED_TABLE]
    assert examples
    assert "more rows than the file can hold" in examples[0]


@pytest.mark.parametrize("table", ["StringIds", "NVTX_EVENTS"])
def test_no_more_text_than_the_file_can_hold(tmp_path: Path, table: str) -> None:
    """A column that is added with a default has that value in every row: gigabytes, from a small file."""
    path = literal(SCHEMA_2025).write(tmp_path / "r.sqlite")
    column = "value" if table == "StringIds" else "text"
    rows = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 2000)"
    key = "id" if table == "StringIds" else "start"
    sql(
        path,
        f"ALTER TABLE {table} DROP COLUMN {column}",
        f"INSERT INTO {table} ({key}) {rows} SELECT x + 1000000 FROM c",
        f"ALTER TABLE {table} ADD COLUMN {column} TEXT DEFAULT '{'A' * 100_000}'",
    )
    damage = [each.example for each in load_trace(str(path), cache=False).problems if each.kind == DAMAGED_TABLE]
    assert damage == [f"{table}: after 0 rows: more text than the file can hold"]


def test_binary_values_are_not_read(tmp_path: Path) -> None:
    path = literal(SCHEMA_2025).write(tmp_path / "r.sqlite")
    sql(path, "UPDATE StringIds SET value = zeroblob(1000000)")
    export = export_file.ExportFile("r.sqlite", path)
    assert {value for rows in export.fetch("StringIds", ("value",)) for (value,) in rows} == {b"\0"}
    export.close()


def test_a_table_that_takes_too_long_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = literal(SCHEMA_2025).write(tmp_path / "r.sqlite")
    export = export_file.ExportFile("r.sqlite", path)
    monkeypatch.setattr(export_file, "_STEPS_PER_CHECK", 1)
    export._max_seconds = -1.0
    assert list(export.fetch("StringIds", ("id", "value"))) == []
    assert export.damage == ["StringIds: after 0 rows: it takes too long"]
    export.close()


def test_only_as_a_plain_file(tmp_path: Path) -> None:
    path = literal(SCHEMA_2025).write(tmp_path / "r.sqlite")
    with path.open("rb") as stream, pytest.raises(TraceError, match="only as a plain file on this machine"):
        nsight_source.open_nsight_export(Source("stdin", stream))


@pytest.mark.long
def test_damaged_pages(tmp_path: Path) -> None:
    """Any byte may be wrong: what is read is a trace, or the refusal is one line."""
    path = tmp_path / "r.sqlite"
    export = literal(SCHEMA_2025)
    for corr in range(100, 2_100):
        export.call("cudaLaunchKernel_v7000", 100_000 + corr, 100_000 + corr + 1, corr)
    whole = bytearray(export.write(path).read_bytes())
    opened = damaged = 0
    rng = random.Random(5)
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 30)):
            data[rng.randrange(16, len(data))] = rng.randrange(256)
        if rng.random() < 0.3:
            del data[rng.randrange(100, len(data)) :]
        path.write_bytes(data)
        try:
            trace = load_trace(str(path), cache=False)
        except TraceError as error:
            lines = str(error).splitlines()
        else:
            lines = [str(path)]
            opened += 1
            damaged += any(problem.kind == DAMAGED_TABLE for problem in trace.problems)
        assert len(lines) == 1
    assert opened > 10
    assert damaged > 3


def test_a_folder_with_an_export_opens(tmp_path: Path) -> None:
    path = literal(SCHEMA_2025).write(tmp_path / "report.sqlite")
    (tmp_path / "report.nsys-rep").write_bytes(b"U3w[END]NVIDIA Nsight Systems Report")
    assert resolve_specs([str(tmp_path)]).path == str(path)


def test_ranks_from_exports(tmp_path: Path) -> None:
    """One export for each rank, as `nsys profile -o r.rank%q{RANK}` writes them, opens as the ranks of a run."""
    for rank in range(2):
        literal(SCHEMA_2025).write(tmp_path / f"r.rank{rank}.sqlite")
    resolved = resolve_specs([str(tmp_path)])
    assert [file.rank for file in resolved.rank_files] == [0, 1]
    with SshConnections() as connections:
        trace = load_resolved(resolved, connections, ignore_progress, cache=False).trace
    assert [rank.number for rank in trace.all_ranks] == [0, 1]
    assert names_of(trace).count(KERNEL_NAME) == 2
