"""Write one recording twice with torch's own cuspy exporter: as Chrome JSON and as Perfetto protobuf.

    python -m tools.pftrace_records TRACE.json[.gz] FOLDER [COPIES]

The records of TRACE, a Kineto trace, become the columns that cuspy hands to its exporter, as if cuspy had recorded
them. COPIES repeats them in time, for a benchmark. Needs torch 2.15 or later, whose CUDA wheel runs without a GPU.
CUPTI's Python package, which only names the API calls, is replaced by those names that the trace has.
"""

from __future__ import annotations

import gzip
import importlib
import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np

Entry = dict[str, Any]

BASE_NS = 1_700_000_000_000_000_000
_API = ("cuda_runtime", "cuda_driver")
_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
_CPU = ("cpu_op", "user_annotation", "python_function")


def install_cupti_names(entries: list[Entry]) -> dict[str, dict[str, int]]:
    """Put a module `cupti.cupti` with the names of these API calls in place; returns their numbers."""
    numbers: dict[str, dict[str, int]] = {}
    for category in _API:
        names = sorted({entry["name"] for entry in entries if entry.get("cat") == category})
        numbers[category] = {name: number for number, name in enumerate(names, 1)}
    module: Any = types.ModuleType("cupti.cupti")
    for attribute, category in (("Runtime_api_trace_cbid", _API[0]), ("Driver_api_trace_cbid", _API[1])):
        members = {name: types.SimpleNamespace(value=number) for name, number in numbers[category].items()}
        setattr(module, attribute, types.SimpleNamespace(__members__=members))
    sys.modules.update({"cupti": types.ModuleType("cupti"), "cupti.cupti": module})
    return numbers


def read_entries(path: Path) -> list[Entry]:
    """Read the entries of a Kineto trace."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    entries: list[Entry] = json.loads(text)["traceEvents"]
    return entries


def build_columns(entries: list[Entry], numbers: dict[str, dict[str, int]]) -> dict[str, dict[str, Any]]:
    """Build cuspy's columns from the GPU events and API calls of a trace."""
    columns: dict[str, dict[str, Any]] = {}
    for category in (*_GPU, *_API, "overhead"):
        events = [e for e in entries if e.get("cat") == category and e.get("ph") == "X"]
        if events:
            columns[category] = _build_kind(category, events, numbers)
    return columns


def _build_kind(category: str, events: list[Entry], numbers: dict[str, dict[str, int]]) -> dict[str, Any]:
    args = [e.get("args", {}) for e in events]
    start = np.array([BASE_NS + round(e["ts"] * 1000) for e in events], np.int64)
    size = len(events)

    def integers(key: str, default: int = 0) -> Any:
        return np.array([int(a.get(key, default)) for a in args], np.int64)

    column: dict[str, Any] = {
        "start_ns": start,
        "end_ns": start + np.array([round(e["dur"] * 1000) for e in events], np.int64),
        "correlation_id": integers("correlation"),
    }
    if category in ("kernel", "overhead"):
        column["name"] = np.array([e["name"] for e in events], object)
    if category in _API:
        column["cbid"] = np.array([numbers[category][e["name"]] for e in events], np.int64)
        column["process_id"] = np.array([e["pid"] for e in events], np.int64)
        column["thread_id"] = np.array([e["tid"] for e in events], np.int64)
        return column
    zero = np.zeros(size, np.int64)
    column |= {"device_id": integers("device"), "context_id": integers("context"), "stream_id": integers("stream")}
    column |= {"graph_id": integers("graph id"), "graph_node_id": integers("graph node id")}
    column["annotation"] = np.full(size, None, object)
    column |= dict.fromkeys(("priority", "queued", "channel", "channel_type", "flags"), zero)
    if category == "kernel":
        for key in ("grid", "block"):
            for k, axis in enumerate("xyz"):
                column[f"{key}_{axis}"] = np.array([a.get(key, (1, 1, 1))[k] for a in args], np.int64)
        column["registers_per_thread"] = integers("registers per thread")
        column["dynamic_shared_memory"], column["static_shared_memory"] = integers("shared memory"), zero
    else:
        column |= {"bytes": integers("bytes"), "value": zero, "memory_kind": zero + 3}
        column |= {"copy_kind": zero + 1, "src_kind": zero + 2, "dst_kind": zero + 3}
    return column


def build_syncs(kernels: dict[str, Any]) -> dict[str, Any]:
    """Build the records of one synchronisation of each type, after the first kernels."""
    end = kernels["end_ns"][:4]
    number = np.arange(len(end))
    return {
        "start_ns": end,
        "end_ns": end + 500 + number,
        "sync_type": number + 1,
        "context_id": kernels["context_id"][:4],
        "stream_id": kernels["stream_id"][:4] & 0xFFFFFFFF,
        "correlation_id": kernels["correlation_id"][:4],
        "cuda_event_id": number + 5,
        "cuda_event_sync_id": number,
    }


def build_environment(columns: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Build samples of power, temperature and clocks, one of each in a hundredth of the recording."""
    start = min((int(c["start_ns"].min()) for c in columns.values()), default=BASE_NS)
    end = max((int(c["end_ns"].max()) for c in columns.values()), default=BASE_NS)
    times = np.repeat(np.linspace(start, end, 100).astype(np.int64), 3)
    kind = np.tile(np.array([3, 2, 1]), 100)
    step = np.arange(300)
    data = np.choose(kind - 1, [1980 | 2619 << 32, 40 + step % 9, 312_125 + 250 * step])
    return {"start_ns": times, "environment_kind": kind, "data": data.astype(np.uint64), "device_id": times * 0}


def repeat_records(entries: list[Entry], copies: int) -> list[Entry]:
    """Repeat the events in time, with correlations and ids of their own."""
    timed = [e for e in entries if e.get("ph") == "X" and isinstance(e.get("ts"), (int, float))]
    first = min(e["ts"] for e in timed)
    length = max(e["ts"] + e["dur"] for e in timed) - first + 1000
    ids = 1 + max(int(e.get("args", {}).get(key, 0)) for e in timed for key in ("correlation", "External id"))
    repeated = [e for e in entries if e.get("ph") == "M"]
    for copy in range(copies):
        for event in timed:
            args = dict(event.get("args", {}))
            for key in ("correlation", "External id"):
                if args.get(key):
                    args[key] = int(args[key]) + copy * ids
            repeated.append({**event, "ts": event["ts"] - first + copy * length, "args": args})
    return repeated


def main() -> None:
    """Write `records.json` and `records.pftrace` into a folder."""
    path, folder = Path(sys.argv[1]), Path(sys.argv[2])
    entries = repeat_records(read_entries(path), int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    numbers = install_cupti_names(entries)
    exporter = importlib.import_module("torch.profiler._cuspy.trace")  # it imports the names put in place above

    columns = build_columns(entries, numbers)
    if "kernel" in columns and "cuda_sync" not in columns:
        columns["cuda_sync"] = build_syncs(columns["kernel"])
    columns["environment"] = build_environment(columns)
    window: dict[str, Any] = {"columns": columns, "thread_resource_map": {}}
    window["user_annotations"], columns["external_correlation"] = _annotate(entries, columns)
    cpu = [e for e in entries if e.get("ph") == "M" or e.get("cat") in _CPU]
    folder.mkdir(exist_ok=True, parents=True)
    cpu_path = folder / "cpu.json"
    cpu_path.write_text(json.dumps({"schemaVersion": 1, "baseTimeNanoseconds": BASE_NS, "traceEvents": cpu}))
    for name in ("records.json", "records.pftrace"):
        exporter.merge_trace_window_into_chrome_trace(
            cpu_path, folder / name, window, trace_name="records", pftrace_compression_level=9
        )
    packed = folder / "records.pftrace"  # compressed whatever it is called
    packed.rename(folder / "records.pftrace.gz")
    packed.write_bytes(gzip.decompress((folder / "records.pftrace.gz").read_bytes()))
    cpu_path.unlink()


def _annotate(entries: list[Entry], columns: dict[str, dict[str, Any]]) -> tuple[dict[int, str], dict[str, Any]]:
    """Name the region around the first half of the kernels, as `record_function` does."""
    correlations = columns["kernel"]["correlation_id"][: len(columns["kernel"]["start_ns"]) // 2]
    ids = np.full(len(correlations), 7, np.int64)
    return {7: "forward"}, {"correlation_id": correlations, "external_id": ids, "user_external_id": ids}


if __name__ == "__main__":
    main()
