"""Convert packets to the entries that a JSON trace has for the same events: the args, and what is not quite plain."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson

from torchprof_tui.trace.perfetto_protobuf import wire_format
from torchprof_tui.trace.perfetto_protobuf.packet_context import (
    COMPUTE,
    PacketContext,
    ResolvedTracks,
    SequenceTables,
    TrackTable,
    decode_text,
    parse_counter_names,
)
from torchprof_tui.trace.perfetto_protobuf.wire_format import (
    Annotation,
    Event,
    Interned,
    Packet,
    Stage,
    Value,
    WireError,
    get_number,
    parse_fields,
    to_double,
    to_signed,
)

_STAGE_CATEGORIES = {
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
    "Annotation": "gpu_user_annotation",
    "EventRecord": "graph_event_node",
    "HostNode": "graph_host_node",
}
"""Category of GPU work by the name of its stage."""

_ANNOTATION_CATEGORY = "gpu_user_annotation"
_OTHER_CATEGORY = "gpu_render_stage"

_QUEUE_NAME = re.compile(r"\[([0-9]+)\] (.*)", re.DOTALL)
"""How torch names the queue of a stream: with its number in front, padded with zeros."""

_EXTRA_NAMES = {"device id": "device", "context id": "context", "stream id": "stream"}
"""Extra data under other names than in JSON."""

_COMPUTE_NAMES = {"registers_per_thread": "registers per thread", "shared_mem_dynamic": "dynamic shared memory"}

_ZERO_ARGS = {
    "kernel": ("correlation", "priority", "queued", "channel", "channel_type"),
    "gpu_memcpy": ("correlation", "bytes", "channel", "channel_type"),
    "gpu_memset": ("correlation", "bytes", "value", "memory kind", "channel", "channel_type"),
    "graph_event_node": ("correlation",),
    "graph_host_node": ("correlation",),
}
"""Args that torch leaves out of .pftrace where they are zero, by category."""

_INTEGER = re.compile(r"-?[0-9]{1,19}")


def split_queue_name(queue: str) -> tuple[str, str]:
    """Return the tid and the name of the lane of a queue."""
    match = _QUEUE_NAME.fullmatch(queue)
    return (str(int(match[1])), match[2]) if match else (queue, queue)


def read_stage(event: bytes, tables: SequenceTables) -> tuple[dict[str, Any], int]:
    """Read a GpuRenderStageEvent as an entry without `ts` and `dur`; and its duration, ns. Raises WireError."""
    fields: dict[int, Value] = {}
    extra: dict[str, Any] = {}
    for number, value in parse_fields(event):
        if number == Stage.EXTRA and isinstance(value, bytes):
            texts = dict(parse_fields(value))
            text = decode_text(texts.get(2, b""))
            extra[decode_text(texts.get(1, b""))] = int(text) if _INTEGER.fullmatch(text) else text
        else:
            fields[number] = value
    stage_iid, queue_iid = get_number(fields, Stage.STAGE_IID), get_number(fields, Stage.QUEUE_IID)
    stage = tables.texts[Interned.GPU_SPECIFICATIONS].get(stage_iid, "")
    other_category = "kernel" if tables.stage_categories.get(stage_iid) == COMPUTE else _OTHER_CATEGORY
    category = _STAGE_CATEGORIES.get(stage, other_category)
    gpu = to_signed(get_number(fields, Stage.GPU))
    tid, _ = split_queue_name(tables.texts[Interned.GPU_SPECIFICATIONS].get(queue_iid, str(queue_iid)))
    name = tables.texts[Interned.NAMES].get(get_number(fields, Stage.NAME_IID))
    if name is None:
        name = decode_text(fields[Stage.NAME]) if Stage.NAME in fields else stage
        if category == "graph_host_node" and "host fn" in extra:
            name = f"{stage}: {extra['host fn']}"
    launch = fields.get(Stage.LAUNCH)
    args = _build_args(category, gpu, tid, extra, _read_launch(launch, tables) if isinstance(launch, bytes) else {})
    entry = {"ph": "X", "cat": category, "name": name, "pid": str(gpu), "tid": tid, "args": args}
    return entry, get_number(fields, Stage.DURATION)


def _build_args(category: str, gpu: int, tid: str, extra: dict[str, Any], launch: dict[str, Any]) -> dict[str, Any]:
    args: dict[str, Any] = {}
    if category != _ANNOTATION_CATEGORY:
        args["device"] = gpu
        if tid.isdecimal():
            args["stream"] = int(tid)
    for name, value in extra.items():
        if name in _EXTRA_NAMES:
            if category == _ANNOTATION_CATEGORY or name == "device id":
                continue
            if name == "stream id" and value != args.setdefault("stream", value):
                args["original_stream"] = value
            elif name == "context id":
                args["context"] = value
        else:
            args[name] = value
    if "device id" in extra:
        for name in _ZERO_ARGS.get(category, ()):
            args.setdefault(name, 0)
    return {**args, **launch}


def _read_launch(launch: bytes, tables: SequenceTables) -> dict[str, Any]:
    """Read a ComputeKernelLaunch. Raises WireError."""
    args: dict[str, Any] = {}
    for number, value in parse_fields(launch):
        if not isinstance(value, bytes):
            continue
        if number in (1, 2):
            sizes = dict(parse_fields(value))
            args["grid" if number == 1 else "block"] = [sizes.get(axis, 0) for axis in (1, 2, 3)]
        elif number == 3:
            name, number_or_text = _read_launch_arg(value, tables)
            args[_COMPUTE_NAMES.get(name, name)] = number_or_text
    if "block" in args:
        args.setdefault("registers per thread", 0)
    return args


def _read_launch_arg(data: bytes, tables: SequenceTables) -> tuple[str, Any]:
    name = ""
    result: Any = None
    for number, value in parse_fields(data):
        if isinstance(value, bytes):
            name, result = (decode_text(value), result) if number == 2 else (name, decode_text(value))
        elif number == 1:
            name = tables.texts[Interned.COMPUTE_ARGS].get(value, f"arg {value}")
        elif number in (3, 4):
            result = to_signed(value) if number == 3 else value
        elif number == 5:
            result = to_double(value)
        elif number == 7:
            result = tables.texts[Interned.STRINGS].get(value, f"text {value}")
    return name, result


_NULL = b"null"  # how torch writes null, such as the parent of a thread's first Python frame
_MAX_DEPTH = 32  # levels of dictionaries and lists that are read; deeper ones are null


def _read_annotations(annotations: list[bytes], tables: SequenceTables) -> dict[str, Any]:
    """Read annotations as the args of an entry; those that are damaged are left out, of equal names the last counts."""
    args = {}
    for annotation in annotations:
        with contextlib.suppress(WireError):
            name, value = _read_annotation(annotation, tables, 0)
            args[name] = value
    return args


def _read_annotation(annotation: bytes, tables: SequenceTables, depth: int) -> tuple[str, Any]:
    """Read the name, "" where it has none, and the value of an annotation. Raises WireError."""
    name = ""
    value: Any = []  # torch writes an empty list without a value
    entries: dict[str, Any] = {}
    items: list[Any] = []
    for number, raw in parse_fields(annotation):
        if number == Annotation.NAME:
            name = decode_text(raw)
        elif number == Annotation.NAME_IID:
            name = _look_up(tables.texts[Interned.ANNOTATION_NAMES], raw, "arg")
        elif number in (Annotation.DICT, Annotation.ARRAY):
            if depth >= _MAX_DEPTH or not isinstance(raw, bytes):
                continue
            key, item = _read_annotation(raw, tables, depth + 1)
            if number == Annotation.DICT:
                entries[key] = item
                value = entries
            else:
                items.append(item)
                value = items
        else:
            value = _read_value(number, raw, tables, value)
    return name, value


def _read_value(number: int, raw: Value, tables: SequenceTables, otherwise: Any) -> Any:
    """Read a field of a plain value; `otherwise` for a field of something else."""
    if number == Annotation.STRING:
        return None if raw == _NULL else decode_text(raw)
    if number == Annotation.JSON:
        try:
            return orjson.loads(decode_text(raw))
        except orjson.JSONDecodeError:
            return decode_text(raw)
    if isinstance(raw, bytes):
        return otherwise
    if number == Annotation.BOOL:
        return bool(raw)
    if number == Annotation.UINT:
        return raw
    if number == Annotation.INT:
        return to_signed(raw)
    if number == Annotation.DOUBLE:
        return _finite(to_double(raw))
    if number == Annotation.POINTER:
        return hex(raw)
    return _look_up(tables.texts[Interned.STRINGS], raw, "text") if number == Annotation.STRING_IID else otherwise


def _look_up(table: dict[int, str], iid: Value, kind: str) -> str:
    """Return interned text; the number where the table does not have it."""
    text = table.get(iid) if isinstance(iid, int) else None
    return f"{kind} {iid!r}" if text is None else text


Entry = dict[str, Any]

FindIds = Callable[[int], tuple[str, str]]  # returns the pid and the tid of a track, given by its uuid

_PHASES = {wire_format.BEGIN: "B", wire_format.END: "E", wire_format.INSTANT: "i"}
_SYNC_ARG = "cuda_sync_kind"  # an arg that only events of category `cuda_sync` have

PROFILER_PID, PROFILER_CATEGORY = "-1", "overhead"  # CUPTI's overhead, which torch writes without a category


@dataclass(slots=True)
class PacketEvents:
    """The entries of a packet, without `ts` and `dur`. `time`, `duration`: ns, None where there is none."""

    entries: list[Entry] = field(default_factory=list)
    time: int | None = None
    clock: int = 0
    duration: int | None = None


def convert_packet(
    fields: Iterable[tuple[int, Value]], tables: SequenceTables, tracks: TrackTable, find_ids: FindIds
) -> PacketEvents:
    """Convert the events of a packet, given by its fields. Raises WireError where the packet is damaged."""
    events = PacketEvents(clock=tables.clock)
    for number, value in fields:
        if isinstance(value, int):
            if number == Packet.TIMESTAMP:
                events.time = value if value < 1 << 62 else None
            elif number == Packet.CLOCK:
                events.clock = value
        elif number == Packet.TRACK_EVENT:
            events.entries += _convert_event(value, tables, tracks, find_ids)
        elif number == Packet.RENDER_STAGE:
            entry, events.duration = read_stage(value, tables)
            events.entries.append(entry)
        elif number == Packet.GPU_COUNTER:
            events.entries += _convert_counters(value, tables)
    return events


def _convert_event(data: bytes, tables: SequenceTables, tracks: TrackTable, find_ids: FindIds) -> list[Entry]:
    fields: dict[int, Value] = {}
    annotations: list[bytes] = []
    categories: list[str] = []
    flows: list[tuple[str, int]] = []
    for number, value in parse_fields(data):
        if isinstance(value, bytes):
            if number == Event.ANNOTATIONS:
                annotations.append(value)
            elif number == Event.CATEGORIES:
                categories.append(decode_text(value))
            else:
                fields[number] = value
        elif number == Event.CATEGORY_IIDS:
            categories.append(tables.texts[Interned.CATEGORIES].get(value, ""))
        elif number in _FLOW_PHASES:
            flows.append((_FLOW_PHASES[number], value))
        else:
            fields[number] = value
    uuid, kind = get_number(fields, Event.TRACK, tables.track), get_number(fields, Event.TYPE)
    name_iid = get_number(fields, Event.NAME_IID, _NO_NAME)
    pid, tid = find_ids(uuid)
    if kind == wire_format.COUNTER:
        integer, double = fields.get(Event.COUNTER), fields.get(Event.DOUBLE_COUNTER)
        point: float | None
        if isinstance(double, int):
            point = _finite(to_double(double))
        elif isinstance(integer, int):
            point = to_signed(integer)
        else:
            return []
        track = tracks.tracks.get(uuid)
        counter = track.name if track is not None and track.name else f"counter {uuid}"
        return [{"ph": "C", "name": counter, "pid": pid, "tid": "", "args": {"value": point}}]
    if kind not in _PHASES:
        return []
    if name_iid != _NO_NAME:
        name = tables.texts[Interned.NAMES].get(name_iid, f"name {name_iid}")
    else:
        name = decode_text(fields.get(Event.NAME, b""))
    args = _read_annotations(annotations, tables)
    category = ",".join(filter(None, categories))
    if not category:  # torch writes some events without one
        is_sync = kind == wire_format.BEGIN and _SYNC_ARG in args
        category = "cuda_sync" if is_sync else PROFILER_CATEGORY if pid == PROFILER_PID else ""
    entry: Entry = {"ph": _PHASES[kind], "cat": category, "name": name, "pid": pid, "tid": tid}
    if args:
        entry["args"] = args
    ends = [
        {"ph": phase, "cat": "flow", "name": "flow", "id": flow, "pid": pid, "tid": tid, **_BINDING[phase]}
        for phase, flow in flows
    ]
    return [entry, *ends]


_FLOW_PHASES = {Event.FLOWS: "s", Event.OLD_FLOWS: "s", Event.ENDING_FLOWS: "f", Event.OLD_ENDING_FLOWS: "f"}
_NO_NAME = -1
_BINDING: dict[str, dict[str, str]] = {"s": {}, "f": {"bp": "e"}}


def _convert_counters(data: bytes, tables: SequenceTables) -> list[Entry]:
    """Convert a GpuCounterEvent: a point of one or several counters of a GPU."""
    names: dict[int, str] = {}
    gpu = 0
    points: list[tuple[int, float | None]] = []
    for number, value in parse_fields(data):
        if number == 1 and isinstance(value, bytes):
            names = parse_counter_names(value)
        elif number == 4 and isinstance(value, int):
            names, gpu = tables.counters.get(value, {}), tables.counter_gpus.get(value, gpu)
        elif number == 3 and isinstance(value, int):
            gpu = to_signed(value)
        elif number == 2 and isinstance(value, bytes):
            counter, point = 0, None
            for part, raw in parse_fields(value):
                if part == 1 and isinstance(raw, int):
                    counter = raw
                elif part in (2, 3) and isinstance(raw, int):
                    point = to_signed(raw) if part == 2 else _finite(to_double(raw))
            points.append((counter, point))
    pid = f"GPU {gpu} Counters"
    return [
        {"ph": "C", "name": names.get(counter, f"counter {counter}"), "pid": pid, "tid": "", "args": {"": value}}
        for counter, value in points
    ]


def _finite(value: float) -> float | None:
    """Return a number, or None for NaN and infinities, which JSON has no form for."""
    return value if math.isfinite(value) else None


_GPU_SORT_INDEX = 5_000_000  # sort index of device 0, as Kineto writes it


def build_track_entries(
    context: PacketContext, resolved: ResolvedTracks, gpu_tracks: Collection[tuple[str, str]]
) -> list[Entry]:
    """Build the entries. `gpu_tracks`: pids and tids of GPU work."""
    gpus = dict.fromkeys(pid for pid, _ in gpu_tracks)
    entries = []
    for pid, name in resolved.process_names.items():
        if pid not in gpus:
            label = "Overhead" if pid == PROFILER_PID else "CPU"
            entries += [_describe("process_name", pid, "0", name), _describe("process_labels", pid, "0", label)]
    for (pid, tid), name in resolved.thread_names.items():
        if pid not in gpus and name and not (name == tid and tid.isdecimal()):
            entries.append(_describe("thread_name", pid, tid, name))
    for pid in gpus:
        entries += [_describe("process_name", pid, "0", "python"), _describe("process_labels", pid, "0", f"GPU {pid}")]
        if pid.isdecimal():
            entries.append(_describe("process_sort_index", pid, "0", _GPU_SORT_INDEX + int(pid)))
    lanes = {
        split_queue_name(name)
        for table in context.all_tables
        for name in table.texts[Interned.GPU_SPECIFICATIONS].values()
        if name[:1] == "["
    }
    for pid, tid in gpu_tracks:
        entries += [_describe("thread_name", pid, tid, name) for number, name in sorted(lanes) if number == tid]
        if tid.isdecimal():
            entries.append(_describe("thread_sort_index", pid, tid, int(tid)))
    return entries


_VALUE_KEYS = {"process_labels": "labels", "process_sort_index": "sort_index", "thread_sort_index": "sort_index"}


def _describe(kind: str, pid: str, tid: str, value: Any) -> Entry:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {_VALUE_KEYS.get(kind, "name"): value}}
