"""Read the args of Perfetto's events: debug annotations of TrackEvents."""

from __future__ import annotations

import math
from typing import Any

import orjson

from torchprof_tui.trace.perfetto_protobuf.field_numbers import Annotation
from torchprof_tui.trace.perfetto_protobuf.sequence_tables import SequenceTables, decode_text
from torchprof_tui.trace.perfetto_protobuf.wire_format import Value, WireError, parse_fields, to_double, to_signed

_NULL = b"null"
"""How torch writes null, such as the parent of a thread's first Python frame."""

_MAX_DEPTH = 32
"""Levels of dictionaries and lists that are read; deeper ones are null."""


def read_annotations(annotations: list[bytes], tables: SequenceTables) -> dict[str, Any]:
    """Read annotations as the args of an entry; those that are damaged are left out, of equal names the last counts."""
    args = {}
    for annotation in annotations:
        try:
            name, value = _read_annotation(annotation, tables, 0)
        except WireError:
            continue
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
            name = _look_up(tables.annotation_names, raw, "arg")
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
    if number in (Annotation.STRING, Annotation.JSON):
        if number == Annotation.STRING and raw == _NULL:
            return None
        return _parse_json(raw) if number == Annotation.JSON else decode_text(raw)
    if isinstance(raw, bytes):
        return otherwise
    if number == Annotation.BOOL:
        return bool(raw)
    if number == Annotation.UINT:
        return raw
    if number == Annotation.INT:
        return to_signed(raw)
    if number == Annotation.DOUBLE:
        double = to_double(raw)
        return double if math.isfinite(double) else None  # as in JSON, which has no such number
    if number == Annotation.POINTER:
        return hex(raw)
    return _look_up(tables.strings, raw, "text") if number == Annotation.STRING_IID else otherwise


def _parse_json(raw: Value) -> Any:
    """Parse a value that is JSON; the text itself where it is none."""
    try:
        return orjson.loads(decode_text(raw))
    except orjson.JSONDecodeError:
        return decode_text(raw)


def _look_up(table: dict[int, str], iid: Value, kind: str) -> str:
    """Return interned text; the number where the table does not have it."""
    text = table.get(iid) if isinstance(iid, int) else None
    return f"{kind} {iid!r}" if text is None else text
