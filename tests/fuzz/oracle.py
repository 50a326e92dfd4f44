"""Check what must hold for any bytes that are opened as a trace. A `FindingError` reports what does not."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import re
import tempfile
import zlib
from dataclasses import fields
from pathlib import Path
from unittest.mock import patch

import numpy as np

from tests.fuzz.coverage import pause_recording
from tests.helpers.stored_traces import save_trace
from tests.helpers.threaded_build import divide_among_threads
from torchprof_tui.analysis.slicing.slice_writer import SliceError, write_slice
from torchprof_tui.answers.info import build_info
from torchprof_tui.answers.record import as_fields
from torchprof_tui.commands.info.text import print_summary
from torchprof_tui.trace.build.build_trace import build_trace
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.decode import json_document
from torchprof_tui.trace.decode.general_decoder import decode_trace
from torchprof_tui.trace.json_text.salvage import parse_chunk
from torchprof_tui.trace.loading.open_or_build import OpenedTrace
from torchprof_tui.trace.model.raw_events import DecodedTrace
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.sources.decompress import MAGIC_BYTES, detect_compression
from torchprof_tui.trace.sources.source import Source, open_source
from torchprof_tui.trace.storage.disk_cache import CacheEntry
from torchprof_tui.trace.storage.trace_store import open_trace

CHUNK = 1500
"""Chunk size: small files have many chunks, and are cut in all ways."""

LARGE_KEY = 1000
"""Bytes of a top-level value that counts as large, for the same reason."""

FULL_CHECK_INTERVAL = 3
"""One of this many files is also stored, mapped, printed and sliced, which takes most of the time."""

_RAW = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class FindingError(AssertionError):
    """A fault of the program, in one line."""


def check(data: bytes) -> tuple[str, ...]:
    """Open the bytes with all decoders. Returns the reported problems, which distinguish kinds of files.

    Raises FindingError, or an exception of the program.
    """
    with (
        tempfile.TemporaryDirectory(prefix="fuzz-") as home,
        patch.object(json_document, "MAX_HEADER_VALUE_BYTES", LARGE_KEY),
    ):
        folder = Path(home)
        general = _decode(data, folder / "general", use_templates=False)
        fast = _decode(data, folder / "templates", use_templates=True)
        if isinstance(general, str) or isinstance(fast, str):
            if general != fast:
                raise FindingError(f"the decoders disagree: {general!r} and {fast!r}"[:300])
            return ("refused", re.sub(r"[\d,.]+|:.*", "", str(general))[:60])
        if (field := find_difference(general, fast)) is not None:
            raise FindingError(f"the template decoder differs: {field}")
        _check_entries_can_be_read(general)
        trace = build_trace(general, "fuzz")
        _check_accounting(trace)
        if zlib.crc32(data) % FULL_CHECK_INTERVAL == 1:
            with pause_recording():
                _check_on_several_cores(data, folder, trace)
        if zlib.crc32(data) % FULL_CHECK_INTERVAL == 0:
            save_trace(trace, folder)
            mapped = open_trace(folder)
            _check_output(mapped, folder)
            _check_slice(mapped, folder)
        return (*sorted(problem.kind for problem in trace.problems), *sorted(trace.counts.not_drawn))


def _decode(data: bytes, folder: Path, use_templates: bool) -> DecodedTrace | str:
    """Decode; the text of the error if the file is refused."""
    folder.mkdir()
    try:
        return decode_trace(Source("stdin", io.BytesIO(data)), folder, chunk_size=CHUNK, use_templates=use_templates)
    except TraceError as error:
        line = str(error)
        if "\n" in line or _RAW.search(line):
            raise FindingError(f"a refusal with raw characters: {line!r}") from error
        return line


def find_difference(one: DecodedTrace, other: DecodedTrace) -> str | None:
    """The first field in which two decodings differ: a column, a list, the problems."""
    for left, right in ((one, other), (one.events, other.events), (one.text, other.text)):
        for field in fields(left):
            values, other_values = getattr(left, field.name), getattr(right, field.name)
            if field.name == "args":
                is_equal = values.keys() == other_values.keys() and all(
                    np.array_equal(arg.entries, other_values[name].entries)
                    and np.array_equal(arg.values, other_values[name].values)
                    for name, arg in values.items()
                )
            elif isinstance(values, np.ndarray):
                is_equal = values.dtype == other_values.dtype and np.array_equal(values, other_values)
            else:
                is_equal = field.name in ("events", "text", "path") or repr(values) == repr(other_values)
            if not is_equal:
                return field.name
    return None


def _check_entries_can_be_read(decoded: DecodedTrace) -> None:
    """The stored text yields the entries of the columns, by ordinal."""
    events = decoded.events
    for ordinal in {0, len(events) // 2, len(events) - 1} if len(events) else ():
        entry = decoded.text.read_entry(ordinal, parse_chunk)
        name = entry.get("name")
        if isinstance(name, str) and name != events.names[events.name[ordinal]]:
            raise FindingError(f"entry {ordinal} is {events.names[events.name[ordinal]]!r}, its text says {name!r}")


def _check_on_several_cores(data: bytes, folder: Path, trace: Trace) -> None:
    """Several processes and threads yield the same columns as one of each."""
    path, number = folder / "divided.json", zlib.crc32(data)
    path.write_bytes(gzip.compress(data, 1) if number & 64 and not detect_compression(data[:MAGIC_BYTES]) else data)
    count = (2, 3, 8, 16)[number >> 8 & 3]
    (folder / "cores").mkdir()
    source = open_source(str(path))
    divided = decode_trace(source, folder / "cores", chunk_size=CHUNK, use_templates=True, process_count=count)
    with divide_among_threads(count):
        other = build_trace(divided, "fuzz")
    for column in ("start", "duration", "name", "lane", "row", "parent", "self_duration", "ordinal", "row_order"):
        if not np.array_equal(getattr(trace, column), getattr(other, column)):
            raise FindingError(f"{count} processes and threads differ: {column}")
    if trace.names != other.names or trace.counts != other.counts or set(trace.args) != set(other.args):
        raise FindingError(f"{count} processes and threads differ: names, counts or args")
    if list(folder.rglob("part-*")):
        raise FindingError(f"{count} processes left a file behind")


def _check_accounting(trace: Trace) -> None:
    """Every entry is counted once, and durations, rows and parents are possible."""
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


def _check_output(trace: Trace, folder: Path) -> None:
    """The text and JSON of `info` contain no control characters."""
    answer = as_fields(build_info(OpenedTrace(trace, CacheEntry("fuzz", folder, None), False, 0.0), None))
    json.loads(json.dumps(answer), parse_constant=_refuse_constant)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        print_summary("fuzz", answer)
    raw = _RAW.search(out.getvalue())
    if raw:
        raise FindingError(f"{raw[0]!r} reached the terminal")
    for problem in trace.problems:
        if _RAW.search(problem.example):
            raise FindingError(f"raw characters in an example: {problem.example!r}")


def _refuse_constant(word: str) -> None:
    raise FindingError(f"{word} in what `info --json` prints")


def _check_slice(trace: Trace, folder: Path) -> None:
    """A slice of the trace is an undamaged trace with the reported number of entries."""
    low, high = trace.span
    out = folder / "slice.json"
    try:
        written = write_slice(trace, low, max(high, low + 1), out)
    except (SliceError, LookupError):
        return
    decoded = decode_trace(Source("slice", io.BytesIO(out.read_bytes())), folder)
    kinds = {problem.kind for problem in decoded.problems}
    if len(decoded.events) != written.entries or kinds & {"cut short", "unreadable entry", "text after the end"}:
        raise FindingError(f"a slice of {written.entries} entries was read as {len(decoded.events)}, {sorted(kinds)}")
