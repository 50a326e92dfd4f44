"""Build the text of small traces in many layouts, and decode it."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchprof_tui.trace.decode.general_decoder import decode_trace
from torchprof_tui.trace.model.raw_events import DecodedTrace
from torchprof_tui.trace.sources.source import Source


def decode_text(text: bytes, **options: Any) -> DecodedTrace:
    """Decode text from a stream, as stdin; the stored text is deleted afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        return decode_trace(Source("stdin", io.BytesIO(text)), Path(folder), **options)


def count_problems(decoded: DecodedTrace) -> dict[str, int]:
    """Number of problems by kind."""
    return {problem.kind: problem.count for problem in decoded.problems}


def trace_text(*entries: str, before: str = "", after: str = "") -> bytes:
    """The text of a trace with these entries; `before` and `after` are put around `traceEvents`."""
    return f'{{{before}"traceEvents": [{", ".join(entries)}]{after}}}'.encode()


def entry_text(k: int = 0, **keys: Any) -> str:
    """The text of the operator number `k`, which starts at `k` µs."""
    return json.dumps({"ph": "X", "cat": "cpu_op", "name": f"op {k}", "pid": 1, "tid": 2, "ts": k, "dur": 1, **keys})


# --- Kineto's own layout --------------------------------------------------------------------------------------------

KINETO_SEPARATOR = b',\n  {\n    "'


def kineto_entry(k: int, cat: str = "cpu_op", args: str | None = None, **keys: str) -> str:
    """An entry in Kineto's layout, which starts at `k`.125 µs. Keywords replace values; all values are JSON text."""
    usual = {"ph": '"X"', "cat": f'"{cat}"', "name": '"aten::mm"', "pid": "1", "tid": "2", "ts": f"{k}.125"}
    head = ", ".join(f'"{key}": {value}' for key, value in {**usual, "dur": "0.5", **keys}.items())
    arg_text = f'"External id": {k}' if args is None else args
    return f'  {{\n    {head},\n    "args": {{\n      {arg_text}\n    }}\n  }}'


def kineto_text(count: int, replaced: dict[int, str] | None = None) -> bytes:
    """The text of a trace of `count` entries in Kineto's layout; `replaced`: the text of some of them."""
    entries = [(replaced or {}).get(k, kineto_entry(k)) for k in range(count)]
    return ('{\n  "schemaVersion": 1,\n  "traceEvents": [\n' + ",\n".join(entries) + "\n  ]\n}\n").encode()


def format_as_kineto(entries: list[Any]) -> str:
    """As Kineto writes: every entry on lines of its own, its args on one of them."""
    return (
        "["
        + ",".join(
            "\n  " + json.dumps(entry).replace('{"', '{\n    "', 1)[:-1] + "\n  }"
            if entry and isinstance(entry, dict)
            else json.dumps(entry)
            for entry in entries
        )
        + "\n  ]"
    )


# --- other layouts --------------------------------------------------------------------------------------------------


def format_with_late_commas(entries: list[Any]) -> str:
    return "[" + "\n    ,\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries) + "\n]"


LAYOUTS: dict[str, Callable[[list[Any]], str]] = {
    "one line": lambda entries: json.dumps(entries, separators=(",", ":")),
    "json.dump": json.dumps,
    "not ASCII": lambda entries: json.dumps(entries, ensure_ascii=False),
    "indented": lambda entries: json.dumps(entries, indent=2),
    "tabs": lambda entries: json.dumps(entries, indent="\t"),
    "kineto": format_as_kineto,
    "late commas": format_with_late_commas,
    "lines": lambda entries: "[" + ",\n".join(json.dumps(entry) for entry in entries) + "]",
}
"""How the list of entries is written."""

FRAMES = {
    "bare": "%s",
    "object": '{"traceEvents": %s}',
    "before": '\n {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "}, {"}], "traceEvents" : %s}\n',
    "end": '{"traceEvents": %s, "traceName": "a", "baseTimeNanoseconds": 5}',
    "after": '{"traceEvents":%s,"traceName": "a\\"]}", "baseTimeNanoseconds": 5, "x": [{"ph": "X"}, {"ph": "X"}]}',
}
"""What stands around the list of entries."""
