"""What must hold for whatever bytes are opened as a trace. A `FindingError` says which of it did not."""

from __future__ import annotations

import contextlib
import io
import json
import re
import tempfile
import zlib
from dataclasses import fields
from pathlib import Path
from unittest.mock import patch

import numpy as np

from torchprof_tui.analysis.slicing.slice_writer import SliceError, write_slice
from torchprof_tui.commands.info.main import summary
from torchprof_tui.commands.info.text import print_summary
from torchprof_tui.trace.build.build_trace import build_trace
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.decode import json_document
from torchprof_tui.trace.decode.decoder import decode_trace
from torchprof_tui.trace.json_text.salvage import parse_chunk
from torchprof_tui.trace.loading.open_or_build import OpenedTrace
from torchprof_tui.trace.model.raw_events import DecodedTrace
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.sources.source import Source
from torchprof_tui.trace.storage.disk_cache import CacheEntry
from torchprof_tui.trace.storage.trace_store import open_trace, save_trace

CHUNK = 1500
"""So that small files have many chunks, and every way to cut them is met."""

LARGE_KEY = 1000
"""Values of top-level keys that count as large, for the same reason."""

ALL_THE_WAY = 3
"""Of so many files one is also stored, mapped, printed and sliced, which takes most of the time."""

_RAW = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class FindingError(AssertionError):
    """A fault of the program, in one line."""


def check(data: bytes) -> tuple[str, ...]:
    """Open the bytes in every way; what was found wrong with them, as words that tell kinds of files apart.

    Raises FindingError, or whatever the program let through.
    """
    with (
        tempfile.TemporaryDirectory(prefix="fuzz-") as home,
        patch.object(json_document, "MAX_HEADER_VALUE_BYTES", LARGE_KEY),
    ):
        folder = Path(home)
        general, scanned = (_read(data, folder / str(scan), scan) for scan in (False, True))
        if isinstance(general, str) or isinstance(scanned, str):
            if general != scanned:
                raise FindingError(f"the readers disagree: {general!r} and {scanned!r}"[:300])
            return ("refused", re.sub(r"[\d,.]+|:.*", "", str(general))[:60])
        if (differ := difference(general, scanned)) is not None:
            raise FindingError(f"the byte scan reads it differently: {differ}")
        _entries_are_found_again(general)
        trace = build_trace(general, "fuzz")
        _accounted_for(trace)
        if zlib.crc32(data) % ALL_THE_WAY == 0:
            save_trace(trace, folder)
            mapped = open_trace(folder)
            _printed(mapped, folder)
            _slice(mapped, folder)
        return (*sorted(problem.kind for problem in trace.problems), *sorted(trace.counts.not_drawn))


def _read(data: bytes, folder: Path, scan: bool) -> DecodedTrace | str:
    """What was decoded, or the line that refuses it."""
    folder.mkdir()
    try:
        return decode_trace(Source("stdin", io.BytesIO(data)), folder, chunk_size=CHUNK, use_templates=scan)
    except TraceError as error:
        line = str(error)
        if "\n" in line or _RAW.search(line):
            raise FindingError(f"a refusal with raw characters: {line!r}") from error
        return line


def difference(one: DecodedTrace, other: DecodedTrace) -> str | None:
    """The first column, list or problem that two readings do not share."""
    for mine, theirs in ((one, other), (one.events, other.events), (one.text, other.text)):
        for field in fields(mine):
            ours, others = getattr(mine, field.name), getattr(theirs, field.name)
            if field.name == "args":
                same = ours.keys() == others.keys() and all(
                    np.array_equal(arg.entries, others[name].entries)
                    and np.array_equal(arg.values, others[name].values)
                    for name, arg in ours.items()
                )
            elif isinstance(ours, np.ndarray):
                same = ours.dtype == others.dtype and np.array_equal(ours, others)
            else:
                same = field.name in ("events", "text", "path") or repr(ours) == repr(others)
            if not same:
                return field.name
    return None


def _entries_are_found_again(decoded: DecodedTrace) -> None:
    """The stored text yields the entries that the columns were made of, by number."""
    events = decoded.events
    for ordinal in {0, len(events) // 2, len(events) - 1} if len(events) else ():
        entry = decoded.text.read_entry(ordinal, parse_chunk)
        name = entry.get("name")
        if isinstance(name, str) and name != events.names[events.name[ordinal]]:
            raise FindingError(f"entry {ordinal} is {events.names[events.name[ordinal]]!r}, its text says {name!r}")


def _accounted_for(trace: Trace) -> None:
    counts = trace.counts
    if counts.events != counts.drawn + counts.metadata + counts.flows + sum(counts.not_drawn.values()):
        raise FindingError(f"entries are lost: {counts}")
    if len(trace) and (int(trace.duration.min()) < 0 or bool((trace.self_duration < 0).any())):
        raise FindingError("a duration below zero")
    if any(lane.rows > max(len(lane), 1) for lane in trace.lanes):
        raise FindingError("more rows than events")
    inside = np.flatnonzero(trace.parent >= 0)
    parent = trace.parent[inside]
    if len(inside) and not (trace.start[parent] <= trace.start[inside]).all():
        raise FindingError("a child begins before its parent")


def _printed(trace: Trace, folder: Path) -> None:
    """What `info` prints, as text and as JSON: no character that a terminal acts on."""
    answer = summary(OpenedTrace(trace, CacheEntry("fuzz", folder, None), False, 0.0))
    json.loads(json.dumps(answer), parse_constant=_no_json)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        print_summary("fuzz", answer)
    raw = _RAW.search(out.getvalue())
    if raw:
        raise FindingError(f"{raw[0]!r} reached the terminal")
    for problem in trace.problems:
        if _RAW.search(problem.example):
            raise FindingError(f"raw characters in an example: {problem.example!r}")


def _no_json(word: str) -> None:
    raise FindingError(f"{word} in what `info --json` prints")


def _slice(trace: Trace, folder: Path) -> None:
    """A slice of it is a healthy trace with so many entries."""
    low, high = trace.span
    out = folder / "slice.json"
    try:
        written = write_slice(trace, low, max(high, low + 1), out)
    except (SliceError, LookupError):
        return
    again = decode_trace(Source("slice", io.BytesIO(out.read_bytes())), folder)
    kinds = {problem.kind for problem in again.problems}
    if len(again.events) != written.entries or kinds & {"cut short", "unreadable entry", "text after the end"}:
        raise FindingError(f"a slice of {written.entries} entries was read as {len(again.events)}, {sorted(kinds)}")
