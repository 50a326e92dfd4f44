"""Write a slice of a trace as a trace file: the unchanged text of the kept entries, and the file's other keys."""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import orjson

from torchprof_tui.analysis.completeness.data_loss import list_losses
from torchprof_tui.analysis.completeness.slice_metadata import SLICE_KEY, build_slice_metadata
from torchprof_tui.analysis.slicing.entry_survey import ProgressCallback, get_text_index, read_chunks, survey_entries
from torchprof_tui.analysis.slicing.event_selection import select_events
from torchprof_tui.analysis.slicing.source_files import check_not_source
from torchprof_tui.trace.core.arrays import Bool
from torchprof_tui.trace.core.atomic_file import OutputError, check_target, open_atomically
from torchprof_tui.trace.core.bounded_json import dump_bounded
from torchprof_tui.trace.core.process_state import pause_garbage_collection
from torchprof_tui.trace.json_text.repair import parse_values, repair_piece
from torchprof_tui.trace.json_text.salvage import parse_chunk
from torchprof_tui.trace.json_text.scan import scan_structure
from torchprof_tui.trace.model.trace import Trace

OUTPUT_SUFFIXES = (".json", ".json.gz")
_GZIP_LEVEL = 6


class SliceError(ValueError):
    """The slice was not written; `str()` is one line for the user."""


@dataclass(frozen=True, slots=True)
class SliceResult:
    """The written slice: `entries` of `total_entries`, `events` of them on lanes; `size` in bytes.

    `first_start`: start of the slice's first event in the whole trace, ns. `skipped_keys`: keys of the file that are
    not in the slice, because they exceed the size kept in memory (`text/large_values.py`) or could not be read.
    """

    path: Path
    entries: int
    total_entries: int
    events: int
    size: int
    first_start: int
    skipped_keys: tuple[str, ...] = ()


def write_slice(trace: Trace, t0: int, t1: int, out: Path, report: ProgressCallback | None = None) -> SliceResult:
    """Write the range from t0 to t1 (ns) of a trace to `out`; `event_selection.py` defines the events to keep.

    Works chunk by chunk on a temporary file, which is renamed when it is complete. Metadata entries and the whole
    header are kept, and the counters and `[memory]` instants in the range. Raises SliceError, OutputError, and OSError
    or LookupError if the trace's text cannot be read any more.
    """
    check_request(trace, t0, t1, out)
    with pause_garbage_collection():
        survey = survey_entries(trace, report)
    events = select_events(trace, t0, t1, survey.flows)
    kept = np.zeros(len(survey.event_of), np.bool_)
    drawn = survey.event_of >= 0
    kept[drawn] = events[survey.event_of[drawn]]
    kept[survey.point_ordinals[(survey.point_times >= t0) & (survey.point_times < t1)]] = True
    if not kept.any():
        low, high = trace.span
        raise SliceError(f"no event in this range: the trace goes from {low / 1000:g} to {high / 1000:g} µs")
    kept[survey.metadata_ordinals] = True
    kept[survey.flows.select_ordinals(events, t0, t1)] = True
    with _open_trace_file(out) as file:
        skipped = _write_document(trace, kept, build_slice_metadata(trace, t0, t1, list_losses(trace)), file)
    starts = trace.start[events]
    return SliceResult(
        path=out,
        entries=int(np.count_nonzero(kept)),
        total_entries=trace.counts.events,
        events=int(np.count_nonzero(events)),
        size=out.stat().st_size,
        first_start=int(starts.min()) if len(starts) else t0,
        skipped_keys=skipped,
    )


def check_request(trace: Trace, t0: int, t1: int, out: Path) -> None:
    """Raise SliceError or OutputError for requests that are invalid without reading the trace."""
    if t1 <= t0:
        raise SliceError("the range ends before it begins")
    if not out.name.endswith(OUTPUT_SUFFIXES):
        raise OutputError(f"{out}: the name must end in .json or .json.gz")
    get_text_index(trace)
    check_not_source(trace, out)
    check_target(out)


@contextlib.contextmanager
def _open_trace_file(out: Path) -> Iterator[IO[bytes]]:
    """Open the trace file to write, gzipped for `.gz`. Raises OutputError."""
    with open_atomically(out) as file:
        if not out.name.endswith(".gz"):
            yield file
            return
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=_GZIP_LEVEL, mtime=0) as compressed:
            yield compressed  # type: ignore[misc]  # a GzipFile accepts bytes as any binary file does


def _write_document(trace: Trace, kept: Bool, metadata: dict[str, Any], file: IO[bytes]) -> tuple[str, ...]:
    """Write the header, the slice metadata and the kept entries; return the keys that were left out."""
    file.write(b"{\n")
    for key, value in {**trace.header, SLICE_KEY: metadata}.items():
        if key != "traceEvents":  # a second key of that name, whose value is no list
            file.write(b"  %b: %b,\n" % (orjson.dumps(key), dump_bounded(value)))
    skipped: list[str] = []
    if trace.large_keys is not None:
        skipped += trace.large_keys.oversized
        for key in trace.large_keys.spans:
            text = _normalize_value(trace.large_keys.read_text(key))
            if text is None:
                skipped.append(key)
            else:
                file.write(b"  %b: %b,\n" % (orjson.dumps(key), text))
    file.write(b'  "traceEvents": [\n')
    separator = b"  "
    for entry in _read_kept_entries(trace, kept):
        file.write(separator + entry)
        separator = b",\n  "
    file.write(b"\n  ]\n}\n")
    return tuple(skipped)


def _normalize_value(text: bytes) -> bytes | None:
    """Return the text of one JSON value unchanged if it is valid, repaired if possible, else None."""
    values = parse_values(text)
    if values is not None:
        return text.strip() if len(values) == 1 else None
    repaired = repair_piece(text)
    return dump_bounded(repaired[0][0]) if repaired is not None and len(repaired[0]) == 1 else None


def _read_kept_entries(trace: Trace, kept: Bool) -> Iterator[bytes]:
    """Yield the text of each kept entry."""
    index = get_text_index(trace)
    first = index.first.tolist()
    bounds = np.append(index.first, len(kept))
    has_kept = [bool(kept[a:b].any()) for a, b in zip(first, bounds[1:].tolist(), strict=True)]
    for _, ordinal, text in read_chunks(index, has_kept):
        yield from _extract_kept_entries(text, ordinal, kept)


def _extract_kept_entries(text: bytes, first: int, kept: Bool) -> Iterator[bytes]:
    """Yield kept entries with their original text; for a damaged chunk, as they were parsed."""
    values = parse_values(text)
    spans = _find_entry_spans(text)
    if values is None or len(spans) != len(values):
        for ordinal, value in enumerate(parse_chunk(text), first):
            if kept[ordinal]:
                yield orjson.dumps(value)
        return
    ordinal = first
    for value, (begin, end) in zip(values, spans, strict=True):
        if type(value) is dict:
            if kept[ordinal]:
                yield text[begin:end].strip()
            ordinal += 1


def _find_entry_spans(text: bytes) -> list[tuple[int, int]]:
    """Find (begin, end) of each comma-separated entry of a chunk, in bytes."""
    commas = scan_structure(text).commas.tolist()
    return list(zip([0, *(comma + 1 for comma in commas)], [*commas, len(text)], strict=True))
