"""Write .pftrace files with Perfetto's own protobuf classes: any packets, and the events of a Kineto trace."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from torchprof_tui.trace.build.build_trace import build_trace
from torchprof_tui.trace.decode.general_decoder import decode_trace
from torchprof_tui.trace.model.raw_events import DecodedTrace
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.sources.source import open_source

protos: Any = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")

Entry = dict[str, Any]

SEQUENCE = 3
CLEARED, NEEDED = 1, 2
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4


def serialize(packets: Iterable[Any]) -> bytes:
    """Serialize packets as a Trace."""
    data: bytes = protos.Trace(packet=list(packets)).SerializeToString()
    return data


def event(time: int, kind: int, track: int = 1, **fields: Any) -> Any:
    """Make a packet with a TrackEvent. `fields`: of the event; `sequence`, `flags`, `clock` of the packet."""
    packet = protos.TracePacket(timestamp=time, trusted_packet_sequence_id=fields.pop("sequence", SEQUENCE))
    if "clock" in fields:
        packet.timestamp_clock_id = fields.pop("clock")
    packet.sequence_flags = fields.pop("flags", NEEDED)
    annotations = fields.pop("args", {})
    packet.track_event.type = kind
    if track:
        packet.track_event.track_uuid = track
    for name, value in fields.items():
        field = getattr(packet.track_event, name)
        if isinstance(value, list):
            field.extend(value)
        else:
            setattr(packet.track_event, name, value)
    for name, value in annotations.items():
        annotation = packet.track_event.debug_annotations.add()
        if isinstance(name, int):
            annotation.name_iid = name
        else:
            annotation.name = name
        set_value(annotation, value)
    return packet


def set_value(annotation: Any, value: Any) -> None:
    """Set the value of a debug annotation to a JSON value."""
    if isinstance(value, bool):
        annotation.bool_value = value
    elif isinstance(value, int):
        if value >= 1 << 63:
            annotation.uint_value = value
        else:
            annotation.int_value = value
    elif isinstance(value, float):
        annotation.double_value = value
    elif isinstance(value, str):
        annotation.string_value = value
    elif isinstance(value, list):
        for item in value:
            set_value(annotation.array_values.add(), item)
    elif isinstance(value, dict):
        for key, item in value.items():
            entry = annotation.dict_entries.add()
            entry.name = key
            set_value(entry, item)


def thread_track(uuid: int, pid: int, tid: int, name: str = "") -> Any:
    """Make a packet that describes the track of a thread."""
    packet = protos.TracePacket()
    packet.track_descriptor.uuid = uuid
    packet.track_descriptor.thread.pid, packet.track_descriptor.thread.tid = pid, tid
    packet.track_descriptor.thread.thread_name = name
    return packet


def interned(names: dict[int, str], categories: dict[int, str], args: dict[int, str] | None = None, **more: Any) -> Any:
    """Make a packet that begins a sequence's tables anew, with these texts by number."""
    packet = protos.TracePacket(trusted_packet_sequence_id=more.get("sequence", SEQUENCE))
    packet.sequence_flags = more.get("flags", CLEARED)
    for iid, text in names.items():
        packet.interned_data.event_names.add(iid=iid, name=text)
    for iid, text in categories.items():
        packet.interned_data.event_categories.add(iid=iid, name=text)
    for iid, text in (args or {}).items():
        packet.interned_data.debug_annotation_names.add(iid=iid, name=text)
    return packet


def convert_entries(entries: Iterable[Entry], intern: bool = True) -> list[Any]:
    """Convert the complete events, instants and counters of a JSON trace to packets in order of time, as Perfetto's SDK
    writes them: slices as begins and ends, each thread on a track of its own."""
    tracks: dict[tuple[Any, Any], int] = {}
    tables: tuple[dict[str, int], ...] = ({}, {}, {})
    packets: list[tuple[int, int, int, Any]] = []

    def number(table: int, text: str) -> int:
        return tables[table].setdefault(text, len(tables[table]) + 1)

    described = []
    for entry in entries:
        if entry["ph"] not in "Xi":
            continue
        key = entry["pid"], entry["tid"]
        if key not in tracks:
            tracks[key] = len(tracks) + 1
            described.append(thread_track(tracks[key], int(key[0]), int(key[1]), f"thread {key[1]}"))
        start, length = round(entry["ts"] * 1000), round(entry.get("dur", 0) * 1000)
        args = entry.get("args", {})
        fields: dict[str, Any] = {"name": entry["name"], "categories": [entry["cat"]]}
        if intern:
            fields = {"name_iid": number(0, entry["name"]), "category_iids": [number(1, entry["cat"])]}
            args = {number(2, name): value for name, value in args.items()}
        kind = BEGIN if entry["ph"] == "X" else INSTANT
        packets.append((start, 1, -length, event(start, kind, tracks[key], args=args, **fields)))
        if kind == BEGIN:
            packets.append((start + length, 0, -start, event(start + length, END, tracks[key])))
    packets.sort(key=lambda item: item[:3])
    names, categories, arg_names = ({iid: text for text, iid in table.items()} for table in tables)
    return [*described, interned(names, categories, arg_names), *(packet for *_, packet in packets)]


def decode(data: bytes, folder: Path, name: str = "t.pftrace") -> DecodedTrace:
    """Decode bytes from a file in the folder, which holds the text of args as well."""
    path = folder / name
    path.write_bytes(data)
    return decode_trace(open_source(str(path)), folder)


def build(data: bytes, folder: Path) -> Trace:
    """Build the trace of these bytes."""
    return build_trace(decode(data, folder), "t.pftrace")
