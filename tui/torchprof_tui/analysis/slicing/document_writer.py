"""Write a trace file: the unchanged text of the kept entries, and the other keys of the file."""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import orjson

from torchprof_tui.analysis.completeness.private_metadata import (
    PrivateValue,
    find_private_values,
    list_unknown_keys,
    remove_private_values,
)
from torchprof_tui.analysis.slicing.entry_survey import get_text_index, read_chunks
from torchprof_tui.trace.core.arrays import Bool
from torchprof_tui.trace.core.atomic_file import open_atomically
from torchprof_tui.trace.core.bounded_json import dump_bounded
from torchprof_tui.trace.json_text.repair import parse_values, repair_piece, scan_structure
from torchprof_tui.trace.json_text.salvage import parse_chunk
from torchprof_tui.trace.model.trace import Trace

_GZIP_LEVEL = 6


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What of a file's top-level keys was not written: whole keys, and private values below kept ones.

    `kept_keys`: those written whose content no known writer determines; a search found nothing private in them.
    """

    skipped_keys: tuple[str, ...] = ()
    private_values: tuple[PrivateValue, ...] = ()
    kept_keys: tuple[str, ...] = ()


@contextlib.contextmanager
def open_trace_file(out: Path) -> Iterator[IO[bytes]]:
    """Open the trace file to write, gzipped for `.gz`. Raises OutputError."""
    with open_atomically(out) as file:
        if not out.name.endswith(".gz"):
            yield file
            return
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=_GZIP_LEVEL, mtime=0) as compressed:
            yield compressed  # type: ignore[misc]  # a GzipFile accepts bytes as any binary file does


def write_document(
    trace: Trace, kept: Bool, added: Mapping[str, Any], file: IO[bytes], keep_private: bool = False
) -> LeftOut:
    """Write the header, `added` top-level keys and the kept entries (bool[entries]); return what was left out."""
    file.write(b"{\n")
    left_out = write_header(trace, {**trace.header, **added}, file, keep_private)
    file.write(b'  "traceEvents": [\n')
    separator = b"  "
    for entry in _read_kept_entries(trace, kept):
        file.write(separator + entry)
        separator = b",\n  "
    file.write(b"\n  ]\n}\n")
    return left_out


def write_header(trace: Trace, header: Mapping[str, Any], file: IO[bytes], keep_private: bool) -> LeftOut:
    """Write top-level keys and the large keys of a trace, each followed by a comma; return what was left out."""
    private = [] if keep_private else find_private_values(header)
    written = remove_private_values(header, private)
    kept = [] if keep_private else list_unknown_keys(written)
    for key, value in written.items():
        if key != "traceEvents":  # a second key of that name, whose value is no list
            file.write(b"  %b: %b,\n" % (orjson.dumps(key), dump_bounded(value)))
    if trace.large_keys is None:
        return LeftOut((), tuple(private), tuple(kept))
    skipped = [*trace.large_keys.oversized]
    for key in trace.large_keys.spans:
        text = _normalize_value(trace.large_keys.read_text(key))
        if text is None:
            skipped.append(key)
            continue
        value = {} if keep_private else {key: orjson.loads(text)}
        found = find_private_values(value)
        if found:
            private += found
            value = remove_private_values(value, found)
            text = dump_bounded(value[key]) if key in value else b""
        if text:
            file.write(b"  %b: %b,\n" % (orjson.dumps(key), text))
            kept += [] if keep_private else list_unknown_keys([key])
    return LeftOut(tuple(skipped), tuple(private), tuple(kept))


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
