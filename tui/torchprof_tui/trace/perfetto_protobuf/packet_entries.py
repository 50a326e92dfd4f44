"""Convert packets to the entries that a JSON trace has for the same events: the args, and what is not quite plain."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torchprof_tui.trace.perfetto_protobuf import field_numbers
from torchprof_tui.trace.perfetto_protobuf.annotations import read_annotations
from torchprof_tui.trace.perfetto_protobuf.field_numbers import Event, Packet
from torchprof_tui.trace.perfetto_protobuf.render_stages import read_stage
from torchprof_tui.trace.perfetto_protobuf.sequence_tables import SequenceTables, decode_text, parse_counter_names
from torchprof_tui.trace.perfetto_protobuf.track_table import TrackTable
from torchprof_tui.trace.perfetto_protobuf.wire_format import Value, WireError, parse_fields, to_double, to_signed

Entry = dict[str, Any]

FindIds = Callable[[int], tuple[str, str]]
"""Returns the pid and the tid of a track, given by its uuid."""

_PHASES = {field_numbers.BEGIN: "B", field_numbers.END: "E", field_numbers.INSTANT: "i"}
_NO_CATEGORY = {"cuda_sync_kind": "cuda_sync"}
"""Category of events that torch writes without one, by an arg that only they have."""

PROFILER_PID, PROFILER_CATEGORY = "-1", "overhead"
"""CUPTI's overhead, which torch writes without a category."""


@dataclass(slots=True)
class PacketEvents:
    """The entries of a packet, without `ts` and `dur`. `time`, `duration`: ns, None where there is none."""

    entries: list[Entry] = field(default_factory=list)
    time: int | None = None
    clock: int = 0
    duration: int | None = None


def convert_packet(packet: bytes, tables: SequenceTables, tracks: TrackTable, find_ids: FindIds) -> PacketEvents:
    """Convert the events of a packet. Raises WireError where the packet is damaged."""
    events = PacketEvents(clock=tables.clock)
    for number, value in parse_fields(packet):
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
        if number == Event.ANNOTATIONS and isinstance(value, bytes):
            annotations.append(value)
        elif number == Event.CATEGORY_IIDS and isinstance(value, int):
            categories.append(tables.categories.get(value, ""))
        elif number == Event.CATEGORIES:
            categories.append(decode_text(value))
        elif number in (Event.FLOWS, Event.OLD_FLOWS) and isinstance(value, int):
            flows.append(("s", value))
        elif number in (Event.ENDING_FLOWS, Event.OLD_ENDING_FLOWS) and isinstance(value, int):
            flows.append(("f", value))
        else:
            fields[number] = value
    uuid = fields.get(Event.TRACK, tables.track)
    kind, name = fields.get(Event.TYPE, 0), fields.get(Event.NAME_IID)
    if not (isinstance(uuid, int) and isinstance(kind, int) and (name is None or isinstance(name, int))):
        raise WireError("a track event whose fields have other types")
    pid, tid = find_ids(uuid)
    if kind == field_numbers.COUNTER:
        return _convert_counter(fields, tracks.find_counter_name(uuid), pid)
    if kind not in _PHASES:
        return []
    text = decode_text(fields[Event.NAME]) if Event.NAME in fields else ""
    if name is not None:
        text = tables.names.get(name, f"name {name}")
    args = read_annotations(annotations, tables)
    category = ",".join(filter(None, categories))
    if not category and kind == field_numbers.BEGIN:
        category = next((known for arg, known in _NO_CATEGORY.items() if arg in args), "")
    if not category and pid == PROFILER_PID:
        category = PROFILER_CATEGORY
    entry = {"ph": _PHASES[kind], "cat": category, "name": text, "pid": pid, "tid": tid}
    if args:
        entry["args"] = args
    ends = [
        {"ph": phase, "cat": "flow", "name": "flow", "id": flow, "pid": pid, "tid": tid, **_BINDING[phase]}
        for phase, flow in flows
    ]
    return [entry, *ends]


_BINDING: dict[str, dict[str, str]] = {"s": {}, "f": {"bp": "e"}}


def _convert_counter(fields: dict[int, Value], name: str, pid: str) -> list[Entry]:
    integer, double = fields.get(Event.COUNTER), fields.get(Event.DOUBLE_COUNTER)
    if isinstance(double, int):
        value: float | None = _finite(to_double(double))
    elif isinstance(integer, int):
        value = to_signed(integer)
    else:
        return []
    return [{"ph": "C", "name": name, "pid": pid, "tid": "", "args": {"value": value}}]


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
            points.append(_read_point(value))
    pid = f"GPU {gpu} Counters"
    return [
        {"ph": "C", "name": names.get(counter, f"counter {counter}"), "pid": pid, "tid": "", "args": {"": value}}
        for counter, value in points
    ]


def _read_point(data: bytes) -> tuple[int, float | None]:
    counter, value = 0, None
    for number, raw in parse_fields(data):
        if not isinstance(raw, int):
            continue
        if number == 1:
            counter = raw
        elif number in (2, 3):
            value = to_signed(raw) if number == 2 else _finite(to_double(raw))
    return counter, value


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
