"""Build literal traces for tests: `trace(cpu("aten::mm", 0, 10), kernel("k", 12, 5, corr=1))`.

Times are microseconds, as in a trace file; `ns=True` on `trace` reads them as nanoseconds. The entries become raw
columns by the plain loop below, and `build_trace` builds the trace from those as it does from a file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from tests.helpers.counter_points import build_points
from torchprof_tui.trace.build.build_trace import build_trace
from torchprof_tui.trace.model.raw_events import (
    ARGS,
    NO_DURATION,
    NO_TIME,
    DecodedTrace,
    RawEvents,
    SparseArg,
)
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.text.block_text import PlainText

Entry = dict[str, Any]

PID = 100
TID = 100


def event(name: str, start: float, duration: float, cat: str = "cpu_op", **more: Any) -> Entry:
    """A complete event. Keywords `pid`, `tid`, `args` and any other key of an entry."""
    return {"ph": "X", "cat": cat, "name": name, "pid": PID, "tid": TID, "ts": start, "dur": duration, **more}


def cpu(name: str, start: float, duration: float, thread: int = TID, **args: Any) -> Entry:
    return event(name, start, duration, "cpu_op", tid=thread, args=args)


def python(name: str, start: float, duration: float, thread: int = TID, **args: Any) -> Entry:
    return event(name, start, duration, "python_function", tid=thread, args=args)


def annotation(name: str, start: float, duration: float, thread: int = TID, **args: Any) -> Entry:
    return event(name, start, duration, "user_annotation", tid=thread, args=args)


def step(number: int, start: float, duration: float, thread: int = TID) -> Entry:
    return annotation(f"ProfilerStep#{number}", start, duration, thread)


def runtime(name: str, start: float, duration: float, corr: int, thread: int = TID, **args: Any) -> Entry:
    return event(name, start, duration, "cuda_runtime", tid=thread, args={"correlation": corr, **args})


def driver(name: str, start: float, duration: float, corr: int, thread: int = TID, **args: Any) -> Entry:
    return event(name, start, duration, "cuda_driver", tid=thread, args={"correlation": corr, **args})


def on_gpu(
    cat: str, name: str, start: float, duration: float, corr: int = -1, stream: int = 7, device: int = 0, **args: Any
) -> Entry:
    all_args = {"device": device, "stream": stream, **({"correlation": corr} if corr != -1 else {}), **args}
    return event(name, start, duration, cat, pid=device, tid=stream, args=all_args)


def kernel(name: str, start: float, duration: float, corr: int = -1, **where: Any) -> Entry:
    """A kernel; keywords `stream` (7), `device` (0) and args such as `grid=[4, 1, 1]`."""
    return on_gpu("kernel", name, start, duration, corr, **where)


def memcpy(name: str, start: float, duration: float, corr: int = -1, **where: Any) -> Entry:
    return on_gpu("gpu_memcpy", name, start, duration, corr, **where)


def memset(name: str, start: float, duration: float, corr: int = -1, **where: Any) -> Entry:
    return on_gpu("gpu_memset", name, start, duration, corr, **where)


def gpu_annotation(name: str, start: float, duration: float, **where: Any) -> Entry:
    return on_gpu("gpu_user_annotation", name, start, duration, **where)


def sync(name: str, start: float, duration: float, corr: int = -1, **where: Any) -> Entry:
    return on_gpu("cuda_sync", name, start, duration, corr, **where)


def overhead(name: str, start: float, duration: float) -> Entry:
    return event(name, start, duration, "overhead", pid=-1, tid=0)


def instant(name: str, start: float, thread: int = TID, **args: Any) -> Entry:
    return {"ph": "i", "cat": "mark", "name": name, "pid": PID, "tid": thread, "ts": start, "s": "t", "args": args}


def memory(
    start: float, size: int, total: int, device: int = -1, thread: int = TID, reserved: int = 0, address: int = 4096
) -> Entry:
    """An allocation (`size` bytes, negative frees) that makes `total`; device -1 is the CPU."""
    args = {
        "Bytes": size,
        "Total Allocated": total,
        "Total Reserved": reserved,
        "Device Type": 0 if device < 0 else 1,
        "Device Id": device,
        "Addr": address,
    }
    position = {"pid": PID, "tid": thread, "ts": start, "s": "t"}
    return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", **position, "args": args}


def begin(name: str, start: float, thread: int = TID, **more: Any) -> Entry:
    return {"ph": "B", "name": name, "pid": PID, "tid": thread, "ts": start, **more}


def end(name: str, start: float, thread: int = TID, **more: Any) -> Entry:
    return {"ph": "E", "name": name, "pid": PID, "tid": thread, "ts": start, **more}


def counter(name: str, start: float, **series: float) -> Entry:
    return {"ph": "C", "name": name, "pid": PID, "tid": TID, "ts": start, "args": series}


def flow(phase: str, cat: str, number: int, start: float, thread: int = TID, pid: int = PID) -> Entry:
    return {"ph": phase, "cat": cat, "name": cat, "id": number, "pid": pid, "tid": thread, "ts": start}


def metadata(name: str, value: Any, pid: Any = PID, tid: Any = 0) -> Entry:
    key = {"process_labels": "labels"}.get(name, "sort_index" if name.endswith("sort_index") else "name")
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": {key: value}}


def trace(*entries: Any, header: dict[str, Any] | None = None, format: str = "kineto", ns: bool = False) -> Trace:  # noqa: A002
    """Build the trace of these entries. Times in µs, or in ns with `ns=True`."""
    return build_trace(decoded(list(entries), header, format, 1 if ns else 1000), "literal")


def decoded(
    entries: list[Any],
    header: dict[str, Any] | None = None,
    format: str = "kineto",  # noqa: A002
    unit: int = 1000,
) -> DecodedTrace:
    """Decode the entries as a reader does. `unit`: nanoseconds in one of their time units."""
    objects = [entry for entry in entries if isinstance(entry, dict)]
    tables: dict[str, dict[Any, int]] = {"name": {}, "category": {}, "track": {}, "id": {}}
    raw = _allocate_raw_events(len(objects))
    sparse: dict[str, list[tuple[int, Any]]] = {key: [] for key in ARGS}
    points: list[tuple[int, str, float]] = []
    for k, entry in enumerate(objects):
        _decode_columns(raw, k, entry, unit, tables)
        args = _args_of(entry)
        if entry.get("ph") == "M":
            pid, tid = _text(entry.get("pid")), _text(entry.get("tid"))
            raw.metadata.append((_text(entry.get("name")), pid, tid, next(iter(args.values()), None)))
        if entry.get("ph") == "C":
            points += [
                (k, series, float(value))
                for series, value in args.items()
                if re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", str(value))
            ]
        _collect_args(sparse, k, args)
    raw.counters = build_points(points)
    raw.names, raw.categories = list(tables["name"]), list(tables["category"])
    raw.tracks, raw.ids = list(tables["track"]), list(tables["id"])
    for key, values in sparse.items():
        if values:
            raw.args[key] = SparseArg(
                np.array([k for k, _ in values], np.int32), np.array([value for _, value in values], np.int64)
            )
    empty = np.zeros(0, np.int64)
    return DecodedTrace(
        events=raw,
        header=header or {},
        text=PlainText(Path("literal").absolute(), empty, empty, empty, empty.astype(np.uint32)),
        format=format,
        size=0,
        not_objects=len(entries) - len(objects),
    )


def _allocate_raw_events(n: int) -> RawEvents:
    return RawEvents(
        phase=np.zeros(n, np.uint8),
        time=np.full(n, NO_TIME, np.int64),
        duration=np.full(n, NO_DURATION, np.int64),
        name=np.zeros(n, np.int32),
        category=np.zeros(n, np.uint16),
        track=np.zeros(n, np.int32),
        correlation=np.full(n, -1, np.int64),
        id=np.full(n, -1, np.int32),
        names=[],
        categories=[],
        tracks=[],
        ids=[],
    )


def _decode_columns(raw: RawEvents, k: int, entry: Entry, unit: int, tables: dict[str, dict[Any, int]]) -> None:
    def intern(table: str, value: Any) -> int:
        return tables[table].setdefault(value, len(tables[table]))

    phase = entry.get("ph")
    raw.phase[k] = ord(phase) if isinstance(phase, str) and len(phase) == 1 and ord(phase) < 256 else 0
    raw.time[k] = _ns(entry.get("ts"), unit, NO_TIME)
    raw.duration[k] = _ns(entry.get("dur"), unit, NO_DURATION)
    raw.name[k] = intern("name", _text(entry.get("name")))
    raw.category[k] = intern("category", _text(entry.get("cat")))
    raw.track[k] = intern("track", (_text(entry.get("pid")), _text(entry.get("tid"))))
    correlation = _integer(_args_of(entry).get("correlation"))
    raw.correlation[k] = -1 if correlation is None else correlation
    if entry.get("id") is not None:
        raw.id[k] = intern("id", _text(entry["id"]))


def _collect_args(sparse: dict[str, list[tuple[int, Any]]], k: int, args: dict[str, Any]) -> None:
    for key, names in ARGS.items():
        value = next((args[name] for name in names if name in args), None)
        if key in ("grid", "block"):
            if isinstance(value, list) and len(value) == 3:
                sparse[key].append((k, value))
        elif _integer(value) is not None:
            sparse[key].append((k, _integer(value)))


def _args_of(entry: Entry) -> dict[str, Any]:
    args = entry.get("args")
    return args if isinstance(args, dict) else {}


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _integer(value: Any) -> int | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        number = int(value)
    except (TypeError, ValueError):
        return None
    return number if -(2**63) <= number < 2**63 else None


def _ns(value: Any, unit: int, missing: int) -> int:
    try:
        whole, _, fraction = str(value).partition(".")
        if fraction and fraction.isdigit() and len(fraction) <= 3 and unit == 1000:
            sign = -1 if whole.startswith("-") else 1
            return int(whole) * unit + sign * int(fraction.ljust(3, "0"))
        return round(float(value) * unit) if fraction or "e" in str(value) else int(value) * unit
    except (TypeError, ValueError):
        return missing
