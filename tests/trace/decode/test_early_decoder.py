"""Test that the beginning of a recording is read from all sections of a file, as if the recording had ended there."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.trace_builder import counter, cpu, flow, kernel, metadata, python, runtime
from torchprof_tui.trace.build.build_trace import build_trace
from torchprof_tui.trace.decode.early_decoder import EarlyRanges, decode_early_ranges, find_early_ranges
from torchprof_tui.trace.decode.general_decoder import decode_trace
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.sources.source import open_source

COUNT = 3_000
"""Entries of a section."""


def write_kineto(path: Path, sections: list[list[dict[str, Any]]]) -> None:
    """Write sections of entries as Kineto does, one entry after the other in the same layout."""
    entries = [entry for section in sections for entry in section]
    body = ",".join("\n  {\n    " + json.dumps(entry)[1:-1] + "\n  }" for entry in entries)
    path.write_text('{\n  "schemaVersion": 1,\n  "traceEvents": [' + body + '\n  ],\n  "traceName": "x"\n}')


def make_sections() -> list[list[dict[str, Any]]]:
    """Two CPU threads, Python functions, GPU work: each section covers all of the time, in its order."""
    times = [10.0 * k for k in range(COUNT)]
    return [
        [cpu(f"main {k % 50}", t, 6, thread=1, number=k) for k, t in enumerate(times)],
        [cpu(f"backward {k % 50}", t, 6, thread=2) for k, t in enumerate(times)],
        [python("<module>", 0, 10.0 * COUNT, thread=1)] + [python("forward", t, 8, thread=1) for t in times],
        [
            e
            for k, t in enumerate(times)
            for e in (runtime("cudaLaunchKernel", t + 2, 1, k + 1, 1), kernel("gemm", t + 4, 5, k + 1))
        ],
        [flow("s", "ac2g", k, t, 1) for k, t in enumerate(times)]
        + [counter("memory", t, bytes=k) for k, t in enumerate(times)],
        [metadata("process_name", "python3")],
    ]


def build_part(path: Path, wanted: int) -> tuple[Trace, EarlyRanges]:
    source = open_source(str(path))
    with path.open("rb", buffering=0) as file:
        part = find_early_ranges(file.fileno(), path.stat().st_size, wanted)
    assert part is not None
    decoded = decode_early_ranges(source, part, path.parent)
    source.close()
    assert decoded is not None
    return build_trace(decoded, "part"), part


def list_events(trace: Trace) -> dict[tuple[str, str, str, int], int]:
    """Return the duration of each event, by its lane, name and start on the file's clock."""
    return {
        (trace.lanes[lane].pid, trace.lanes[lane].tid, trace.names[name], start + trace.origin): duration
        for lane, name, start, duration in zip(
            trace.lane.tolist(), trace.name.tolist(), trace.start.tolist(), trace.duration.tolist(), strict=True
        )
    }


def test_all_that_was_recorded_up_to_the_end_is_there_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    write_kineto(path, make_sections())
    part, found = build_part(path, path.stat().st_size // 8)
    whole = build_trace(decode_trace(open_source(str(path)), tmp_path), "whole")
    expected = {key: min(duration, found.end - key[-1]) for key, duration in list_events(whole).items()}
    assert list_events(part) == {key: duration for key, duration in expected.items() if key[-1] <= found.end}
    assert 0.08 < len(part) / len(whole) < 0.2
    assert part.links.gpu_events == part.links.linked_gpu_events > 0
    assert {lane.role for lane in part.lanes} == {lane.role for lane in whole.lanes}
    assert not part.problems
    assert part.counters[0].times.max() + part.origin <= found.end
    late = int(part.links.launch_of.max())
    assert part.read_entry(int(part.ordinal[late]))["ts"] * 1000 == part.start[late] + part.origin


def test_args_are_those_of_the_event(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    write_kineto(path, make_sections())
    part, _ = build_part(path, path.stat().st_size // 8)
    main = [k for k in range(len(part)) if part.names[part.name[k]].startswith("main ")]
    assert [part.read_entry(int(part.ordinal[k]))["args"]["number"] for k in main[::97]] == list(range(len(main)))[::97]


def test_a_file_that_is_not_in_the_order_of_time_has_no_beginning(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    entries = [entry for section in make_sections() for entry in section]
    random.Random(0).shuffle(entries)
    write_kineto(path, [entries])
    with path.open("rb", buffering=0) as file:
        part = find_early_ranges(file.fileno(), path.stat().st_size, path.stat().st_size // 8)
    assert part is None or decode_early_ranges(open_source(str(path)), part, tmp_path) is None


@pytest.mark.parametrize("text", [b"", b"{}" * 5_000, b'{"traceEvents": [' + b" " * 100_000 + b"]}"])
def test_a_file_without_times_has_no_beginning(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(text)
    with path.open("rb", buffering=0) as file:
        assert find_early_ranges(file.fileno(), len(text), 1000) is None
