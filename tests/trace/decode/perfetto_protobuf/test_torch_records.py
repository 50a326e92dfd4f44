"""What torch 2.15 wrote of one recording as .pftrace opens as what it wrote as JSON (`tools/pftrace_records.py`)."""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.paths import FIXTURES
from tests.helpers.trace_rows import list_points, list_rows
from torchprof_tui.trace.decode.general_decoder import decode_trace
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.loading.resolve import resolve_specs
from torchprof_tui.trace.model.raw_events import ARGS
from torchprof_tui.trace.model.trace import Event, Trace
from torchprof_tui.trace.query.read_entries import read_entries
from torchprof_tui.trace.sources.source import open_source

FOLDER = FIXTURES / "pftrace"
NAMES = sorted(path.name.removesuffix(".pftrace.gz") for path in FOLDER.glob("*.pftrace.gz"))

_NOT_WRITTEN = frozenset(("Trace", "", "gpu_user_annotation"))
"""Categories that differ: spans and marks of the profiler itself are only in JSON; GPU annotations are compared
without their External id, which .pftrace lacks."""

_COLUMNS = tuple(name for name in ARGS if name != "shared_memory")
"""Without shared memory: .pftrace has only the dynamic part, JSON only the sum."""


def _load(name: str) -> tuple[Trace, Trace]:
    return (
        load_trace(str(FOLDER / f"{name}.pftrace.gz"), cache=False),
        load_trace(str(FOLDER / f"{name}.json.gz"), cache=False),
    )


@pytest.mark.parametrize("name", NAMES)
def test_events_are_those_of_the_json(name: str) -> None:
    packets, text = _load(name)
    assert list_rows(packets, _NOT_WRITTEN, _COLUMNS) == list_rows(text, _NOT_WRITTEN, _COLUMNS)
    others = frozenset(packets.categories) - {"gpu_user_annotation"} | {"", "Trace"}
    assert list_rows(packets, others) == list_rows(text, others)
    assert packets.counts.by_category == {
        category: count for category, count in text.counts.by_category.items() if category != "Trace"
    }
    assert packets.metadata.base_time == text.metadata.base_time
    assert packets.format == text.format == "kineto"
    assert not packets.problems


@pytest.mark.parametrize("name", NAMES)
def test_counters_are_those_of_the_json(name: str) -> None:
    for (label, times, values), (json_label, json_times, json_values) in zip(
        *map(list_points, _load(name)), strict=True
    ):
        assert (label, times) == (json_label, json_times)
        # JSON has the whole part of derived counters, .pftrace the nearest integer.
        assert np.abs(np.array(values) - np.array(json_values)).max() <= 1


@pytest.mark.parametrize("name", NAMES)
def test_lanes_have_the_same_order(name: str) -> None:
    packets, text = _load(name)
    lanes = [(lane.role, lane.pid, lane.tid, lane.group) for lane in text.lanes if lane.role.value != "profiler"]
    assert [
        (lane.role, lane.pid, lane.tid, lane.group) for lane in packets.lanes if lane.role.value != "profiler"
    ] == lanes


@pytest.mark.parametrize("name", NAMES)
def test_args_of_cpu_events_are_those_of_the_json(name: str) -> None:
    packets, text = _load(name)
    assert _list_args(packets, "cpu_op") == _list_args(text, "cpu_op")
    assert _list_args(packets, "cuda_runtime") == _list_args(text, "cuda_runtime")
    assert _list_args(packets, "cuda_sync") == _list_args(text, "cuda_sync")


def test_args_of_kernels_are_those_of_the_json() -> None:
    packets, text = _load("cuda_graph_replay")
    more = {"thread_count", "dynamic shared memory", "process_id", "process_name"}
    ours, theirs = _list_args(packets, "kernel"), _list_args(text, "kernel")
    assert [{k: v for k, v in args.items() if k not in more} for args in ours] == [
        {k: v for k, v in args.items() if k != "shared memory"} for args in theirs
    ]


def _list_args(trace: Trace, category: str) -> list[dict[str, Any]]:
    """List the args of a category by time: one by one, and checked against reading them together."""
    if category not in trace.categories:
        return []
    events = np.flatnonzero(trace.category == trace.categories.index(category))
    events = events[np.lexsort((trace.duration[events], trace.start[events]))]
    args = [Event(trace, event).read_args() for event in events.tolist()]
    together = {position: entry.get("args", {}) for position, entry in read_entries(trace, events)}
    assert [together[k] for k in range(len(events))] == args
    return args


def test_format_is_told_by_content(tmp_path: Path) -> None:
    path = tmp_path / "anything"
    path.write_bytes(gzip.decompress((FOLDER / "cuda_graph_replay.pftrace.gz").read_bytes()))
    assert len(load_trace(str(path), cache=False)) == len(_load("cuda_graph_replay")[0])


def test_ranks_of_a_run_may_be_packets(tmp_path: Path) -> None:
    for rank in range(2):
        shutil.copy(FOLDER / "cuda_graph_replay.pftrace.gz", tmp_path / f"rank{rank}.pftrace.gz")
    resolved = resolve_specs([str(tmp_path)])
    assert [Path(file.spec).name for file in resolved.rank_files] == ["rank0.pftrace.gz", "rank1.pftrace.gz"]


def _write_copies(folder: Path) -> Path:
    """Write the packets of a trace 25 times, one after another: more than one chunk."""
    path = folder / "copies.pftrace"
    path.write_bytes(gzip.decompress((FOLDER / "compile_recompiles.pftrace.gz").read_bytes()) * 25)
    assert path.stat().st_size > 2_000_000
    return path


@pytest.mark.long
def test_the_number_of_events_read_never_falls(tmp_path: Path) -> None:
    """Packets are read, and then their text: each counts from none."""
    counts: list[int] = []
    source = open_source(str(_write_copies(tmp_path)))
    decoded = decode_trace(source, tmp_path, lambda _consumed, _total, count: counts.append(count))
    assert len(counts) > 4
    assert counts == sorted(counts)
    assert counts[-1] >= len(decoded.events)


_MEASURE_MEMORY = """
import sys
from pathlib import Path
from torchprof_tui.trace.decode.general_decoder import decode_trace
from torchprof_tui.trace.decode.packet_decoder import PacketConverter  # noqa: F401
from torchprof_tui.trace.sources.source import open_source


def read_peak():
    (line,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
    return int(line.split()[1]) >> 10


before = read_peak()
decode_trace(open_source(sys.argv[1]), Path(sys.argv[2]), process_count=1)
print(read_peak() - before)
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_chunk_of_packets_takes_some_times_its_size_of_memory(tmp_path: Path) -> None:
    """A kilobyte of packets has some ten entries: what each of them reserves adds up."""
    command = [sys.executable, "-c", _MEASURE_MEMORY, str(_write_copies(tmp_path)), str(tmp_path)]
    grown = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert grown < 64  # MB; it was 92 where each entry's text was kept as orjson returns it
