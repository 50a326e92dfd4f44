"""Test Chrome trace files: one trace is unchanged, ranks are kept apart and give the same numbers when opened again."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.merged_ranks import SHARED_RANK_SETS, load_merged_ranks
from tests.helpers.paths import SAMPLES, find_shared_trace
from tests.helpers.rank_traces import late_rank
from torchprof_tui.analysis.export.chrome_file import RANKS_KEY, write_chrome_file
from torchprof_tui.analysis.time.gpu_time import compute_busy_ns_by_device
from torchprof_tui.trace.core.atomic_file import OutputError
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace


def read(path: Path) -> dict[str, Any]:
    packed = path.read_bytes()
    document: dict[str, Any] = json.loads(gzip.decompress(packed) if packed[:2] == b"\x1f\x8b" else packed)
    return document


@pytest.mark.parametrize("name", ["linear_eager", "train_gpt_stack_memory"])
def test_one_trace_is_unchanged(tmp_path: Path, name: str) -> None:
    source, out = SAMPLES / f"{name}.pt.trace.json.gz", tmp_path / "out.json.gz"
    written = write_chrome_file(load_trace(str(source), cache=False), out)
    before, after = read(source), read(out)
    assert after == before
    assert written.entries == len(before["traceEvents"])
    assert (written.skipped_keys, written.private_values) == ((), ())


def list_calls(trace: Trace, shift: int = 0) -> Counter[tuple[str, int, int, int, str]]:
    """Count the events by name, start (plus `shift` ns), duration, kind and the name of their launch."""
    launch = trace.links.launch_of
    names = [trace.names[name] for name in trace.name.tolist()]
    return Counter(
        (name, start + shift, duration, kind, names[call] if call >= 0 else "")
        for name, start, duration, kind, call in zip(
            names, trace.start.tolist(), trace.duration.tolist(), trace.kind.tolist(), launch.tolist(), strict=True
        )
    )


def rank_sets() -> list[Any]:
    return [
        pytest.param(
            sorted(find_shared_trace(folder).glob(pattern)),
            id=name,
            marks=[
                pytest.mark.skipif(not find_shared_trace(folder).exists(), reason="needs the shared traces"),
                *([pytest.mark.long] if name != "ddp step" else []),  # up to 43 MB; the smallest proves the same
            ],
        )
        for name, (folder, pattern, _) in SHARED_RANK_SETS.items()
        if name != "dlrm"
    ]


def check_reopened(merged: Trace, out: Path) -> Trace:
    """Check that a file of all ranks holds what the merged trace does: events, times, launches."""
    again = load_trace(str(out), cache=False)
    assert merged.merged_ranks is not None
    # Times count from the first event of the run in both, but for the events of the profiler.
    shift = merged.span[0] - again.span[0]
    expected, found = list_calls(merged), list_calls(again, shift)
    assert found == expected
    assert again.links.linked_gpu_events == merged.links.linked_gpu_events
    assert len(again.links.forward) == len(merged.links.forward)
    assert again.rank is None
    busy = sum(sum(compute_busy_ns_by_device(rank.trace).values()) for rank in merged.merged_ranks.all)
    devices = {lane.device for rank in merged.merged_ranks.all for lane in rank.trace.lanes} - {None}
    if len(devices) == len(merged.merged_ranks):  # else several ranks share the number of a device
        assert sum(compute_busy_ns_by_device(again).values()) == busy
    return again


@pytest.mark.parametrize("paths", rank_sets())
def test_real_ranks_as_one_file(tmp_path: Path, paths: list[Path]) -> None:
    merged = load_merged_ranks(paths)
    out = tmp_path / "all.json.gz"
    write_chrome_file(merged, out)
    check_reopened(merged, out)


def test_ranks_with_clocks_of_their_own(tmp_path: Path) -> None:
    """Shifts of the clocks, times since the epoch with three decimals, and equal ids in all ranks."""
    run = late_rank(ranks=3)
    run.shifts, run.bases = (1.7e15 + 0.125, 1.7e15 + 90.25, 1.7e15 - 31.5), (0, 0, 0)
    for rank in range(3):
        flow = {"cat": "fwdbwd", "name": "fwdbwd", "id": 5, "pid": 1, "tid": 1}
        run.more[rank] = [
            {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}},
            {"ph": "X", "cat": "cpu_op", "name": "fw", "pid": 1, "tid": 1, "ts": 1.0, "dur": 5},
            {**flow, "ph": "s", "ts": 1.0},
            {"ph": "X", "cat": "cpu_op", "name": "bw", "pid": 1, "tid": 1, "ts": 900.0, "dur": 5},
            {**flow, "ph": "f", "bp": "e", "ts": 900.0},
            {"ph": "i", "s": "g", "name": "Iteration Start: x", "pid": "Traces", "tid": "Trace x", "ts": 1.0},
        ]
    merged = load_merged_ranks(run.write(tmp_path))
    out = tmp_path / "all.json"
    write_chrome_file(merged, out)
    again = check_reopened(merged, out)
    assert len(again.links.forward) == 3
    document = read(out)
    assert "distributedInfo" not in document
    assert [rank["rank"] for rank in document[RANKS_KEY]] == [0, 1, 2]
    pids = {entry["pid"] for entry in document["traceEvents"] if entry["ph"] == "X"}
    assert {pid // 10_000_000 for pid in pids} == {0, 1, 2}
    names = {e["pid"]: e["args"]["name"] for e in document["traceEvents"] if e.get("name") == "process_name"}
    assert names[10_000_000] == "rank 1 python"
    assert pids <= set(names)
    marks = [entry for entry in document["traceEvents"] if entry["pid"] == "Traces"]
    assert [mark["tid"] for mark in marks] == [f"rank {rank} Trace x" for rank in range(3)]
    assert (again.kind == Kind.PROFILER).sum() == 3


def test_numbers_of_processes_fit_for_any_number_of_ranks(tmp_path: Path) -> None:
    merged = load_merged_ranks(late_rank(ranks=2).write(tmp_path))
    assert merged.merged_ranks is not None
    first, second = merged.merged_ranks.all
    ranks = replace(merged.merged_ranks, all=(first, replace(second, number=20_000)))
    out = tmp_path / "all.json"
    write_chrome_file(replace(merged, merged_ranks=ranks), out)
    entries = read(out)["traceEvents"]
    pids = {entry["pid"] for entry in entries}
    assert {pid // 10_000 for pid in pids} == {0, 20_000}
    assert max(pids) < 2**31
    names = {entry["args"]["name"] for entry in entries if entry["ph"] == "M" and entry["name"] == "process_name"}
    assert all(name.startswith(("rank 0 ", "rank 20000 ")) for name in names)


def test_steps_of_a_rank_stay_together(tmp_path: Path) -> None:
    merged = load_merged_ranks(late_rank(ranks=2).write(tmp_path))
    out = tmp_path / "all.json"
    write_chrome_file(merged, out)
    again = load_trace(str(out), cache=False)
    in_lanes = [np.asarray(again.lane[again.kind == Kind.STEP])]
    assert len(np.unique(in_lanes)) == 2


def test_nothing_is_written_where_the_folder_is_missing(tmp_path: Path) -> None:
    made = load_trace(str(SAMPLES / "linear_eager.pt.trace.json.gz"), cache=False)
    with pytest.raises(OutputError, match="no such folder"):
        write_chrome_file(made, tmp_path / "none" / "out.json")
