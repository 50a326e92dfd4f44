"""Slow reference for decoders: rows and args, entry by entry, with the standard library's parser and `Decimal`."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

from torchprof_tui.trace.model.raw_events import ARGS, NO_DURATION, NO_TIME, DecodedTrace

Row = tuple[str, int, int, str, str, tuple[str, str], int, str | None]


def parse_entries(text: bytes) -> list[Any]:
    """Parse all entries of `traceEvents`; numbers with a fraction keep their digits."""
    document = json.loads(text, parse_float=Decimal)
    entries = document if isinstance(document, list) else document["traceEvents"]
    assert isinstance(entries, list)
    return entries


def expected_rows(entries: list[Any]) -> list[Row]:
    """The row of each entry that is an object."""
    return [_row(entry) for entry in entries if isinstance(entry, dict)]


def decoded_rows(decoded: DecodedTrace) -> list[Row]:
    """The same from the columns of a decoder."""
    events = decoded.events
    return [
        (
            chr(events.phase[k]) if events.phase[k] else "",
            int(events.time[k]),
            int(events.duration[k]),
            events.names[events.name[k]],
            events.categories[events.category[k]],
            events.tracks[events.track[k]],
            int(events.correlation[k]),
            events.ids[events.id[k]] if events.id[k] >= 0 else None,
        )
        for k in range(len(events))
    ]


def expected_args(entries: list[Any]) -> dict[str, dict[int, Any]]:
    """By the short names of `raw_events.ARGS`: ordinal → value of the entries that have the arg."""
    expected: dict[str, dict[int, Any]] = {}
    for ordinal, entry in enumerate(entry for entry in entries if isinstance(entry, dict)):
        args = entry.get("args")
        if not isinstance(args, dict) or entry.get("ph") in ("M", "C", "s", "t", "f", "N", "O", "D"):
            continue
        for name, keys in ARGS.items():
            if name not in _wanted_args(str(entry.get("cat", ""))):
                continue
            value = next((args[key] for key in keys if args.get(key) is not None), None)
            if value is None:
                continue
            expected.setdefault(name, {})[ordinal] = value if isinstance(value, list) else int(str(value), 0)
    return expected


def decoded_args(decoded: DecodedTrace) -> dict[str, dict[int, Any]]:
    """The same from the columns of a decoder."""
    return {
        name: dict(zip(arg.entries.tolist(), arg.values.tolist(), strict=True))
        for name, arg in decoded.events.args.items()
    }


def _wanted_args(category: str) -> set[str]:
    if category.lower() in ("cpu_op", "operator", "hpu_op"):
        return {"external_id", "sequence", "forward_thread"}
    if category.lower() == "python_function":
        return {"python_id", "python_parent"}
    return set(ARGS)


def _row(entry: dict[str, Any]) -> Row:
    phase = entry.get("ph")
    args = entry.get("args")
    correlation = args.get("correlation") if isinstance(args, dict) and phase not in tuple("MCstfNOD") else None
    category = _text(entry.get("cat"))
    wants_correlation = _wanted_args(category) == set(ARGS)
    id_value = entry.get("id", entry.get("id2"))
    return (
        phase if isinstance(phase, str) and len(phase) == 1 else "",
        _nanoseconds(entry.get("ts"), NO_TIME),
        _nanoseconds(entry.get("dur"), NO_DURATION),
        _text(entry.get("name")),
        category,
        (_text(entry.get("pid")), re.sub(r"^stream (-?\d+)$", r"\1", _text(entry.get("tid")))),
        int(correlation) if correlation is not None and wants_correlation else -1,
        _text(id_value) if id_value is not None and isinstance(phase, str) and phase in "stfbneSTpFNODC" else None,
    )


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, Decimal):
        return str(int(value)) if value == int(value) else str(float(value))
    return json.dumps(value, separators=(",", ":"), default=float)


def _nanoseconds(value: Any, missing: int) -> int:
    try:
        nanoseconds = Decimal(str(value)) * 1000
    except ArithmeticError:
        return missing
    return int(nanoseconds.to_integral_value()) if nanoseconds.is_finite() and abs(nanoseconds) < 2**62 else missing
