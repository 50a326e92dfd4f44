"""Writes a slice of a trace as a trace of its own: the entries' own text, unchanged, and the file's other keys."""

from __future__ import annotations

import contextlib
import gzip
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import orjson

from torchprof_tui.analysis.doctor.read_problems import list_losses
from torchprof_tui.analysis.slicing.entry_survey import ProgressCallback, get_text_index, read_chunks, survey_entries
from torchprof_tui.analysis.slicing.event_selection import select_events
from torchprof_tui.analysis.slicing.slice_metadata import SLICE_KEY, build_slice_metadata
from torchprof_tui.trace.core.arrays import Bool
from torchprof_tui.trace.core.garbage_collector import disable_garbage_collector
from torchprof_tui.trace.json_text.repair import parse_values, repair_piece
from torchprof_tui.trace.json_text.salvage import parse_chunk
from torchprof_tui.trace.json_text.scan import scan_structure
from torchprof_tui.trace.model.trace import Trace

OUTPUT_SUFFIXES = (".json", ".json.gz")
_GZIP_LEVEL = 6


class SliceError(ValueError):
    """Nothing was written; `str()` is one line for the user."""


class OutputPathError(SliceError):
    """What is wrong is where it was to be written, which `str()` names."""


@dataclass(frozen=True, slots=True)
class SliceResult:
    """What was written: `entries` of `of`, `events` of them on lanes; `size` bytes. `starts`: where the slice's first
    event lies in the whole trace, ns. `left_out`: keys of the file that are not in it, because they are larger than
    what is held (`large_keys.py`) or could not be read."""

    path: Path
    entries: int
    total_entries: int
    events: int
    size: int
    first_start: int
    skipped_keys: tuple[str, ...] = ()


def write_slice(trace: Trace, t0: int, t1: int, out: Path, report: ProgressCallback | None = None) -> SliceResult:
    """Keep t0 up to t1 (ns) of a trace, by the rule in `choice.py`, in a file called `out`.

    Read and written a chunk at a time, beside the final name, and renamed when it is whole. Names, labels and all of
    the header are kept, counters and `[memory]` where they lie in the range. Raises SliceError, and OSError or
    LookupError where the trace's text cannot be read any more.
    """
    check_request(trace, t0, t1, out)
    with disable_garbage_collector():
        survey = survey_entries(trace, report)
    events = select_events(trace, t0, t1, survey.flows)
    kept = np.zeros(len(survey.event_of), np.bool_)
    drawn = survey.event_of >= 0
    kept[drawn] = events[survey.event_of[drawn]]
    kept[survey.point_ordinals[(survey.point_times >= t0) & (survey.point_times < t1)]] = True
    if not kept.any():
        low, high = trace.span
        raise SliceError(f"nothing lies in that range: the trace goes from {low / 1000:g} to {high / 1000:g} µs")
    kept[survey.metadata_ordinals] = True
    kept[survey.flows.select_ordinals(events, t0, t1)] = True
    with _open_atomically(out) as file:
        lost = _write_document(trace, kept, build_slice_metadata(trace, t0, t1, list_losses(trace)), file)
    inside = trace.start[events]
    return SliceResult(
        path=out,
        entries=int(np.count_nonzero(kept)),
        total_entries=trace.counts.events,
        events=int(np.count_nonzero(events)),
        size=out.stat().st_size,
        first_start=int(inside.min()) if len(inside) else t0,
        skipped_keys=lost,
    )


def check_request(trace: Trace, t0: int, t1: int, out: Path) -> None:
    """Raise SliceError for what can be known to be wrong at once."""
    if t1 <= t0:
        raise SliceError("the range ends before it begins")
    if not out.name.endswith(OUTPUT_SUFFIXES):
        raise OutputPathError(f"{out}: write to a name that ends in .json or .json.gz")
    if any(_is_same_file(out, mine) for mine in (Path(trace.label), get_text_index(trace).path)):
        raise OutputPathError(f"{out}: that is the trace itself; nothing was overwritten")


def _is_same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except (OSError, ValueError):  # one of them is not there, or its name is no file's
        return False


@contextlib.contextmanager
def _open_atomically(out: Path) -> Iterator[IO[bytes]]:
    """A file that gets its name when all is in it, packed where the name says so; nothing is left of a failure."""
    draft = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        stored = draft.open("xb")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise OutputPathError(f"{out.parent}: no such folder") from error
    except OSError as error:  # of the draft, a name that the user never gave
        raise OutputPathError(f"{out}: {error.strerror or error}") from error
    try:
        with stored:
            if out.name.endswith(".gz"):
                with gzip.GzipFile(
                    filename="", mode="wb", fileobj=stored, compresslevel=_GZIP_LEVEL, mtime=0
                ) as packed:
                    yield packed  # type: ignore[misc]  # a GzipFile writes bytes as any other file does
            else:
                yield stored
        draft.replace(out)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def _write_document(trace: Trace, kept: Bool, about: dict[str, Any], file: IO[bytes]) -> tuple[str, ...]:
    """The keys that are left out."""
    file.write(b"{\n")
    for key, value in {**trace.header, SLICE_KEY: about}.items():
        if key != "traceEvents":  # a second one, that was no list
            file.write(b"  %b: %b,\n" % (orjson.dumps(key), orjson.dumps(value)))
    lost = list(trace.large_keys.oversized) if trace.large_keys is not None else []
    for key in trace.large_keys.spans if trace.large_keys is not None else ():
        text = _normalize_value(trace.large_keys.read_text(key)) if trace.large_keys is not None else None
        if text is None:
            lost.append(key)
        else:
            file.write(b"  %b: %b,\n" % (orjson.dumps(key), text))
    file.write(b'  "traceEvents": [\n')
    separator = b"  "
    for piece in _read_kept_entries(trace, kept):
        file.write(separator + piece)
        separator = b",\n  "
    file.write(b"\n  ]\n}\n")
    return tuple(lost)


def _normalize_value(text: bytes) -> bytes | None:
    """One value as it is written, where it is JSON; as it could be read, where it is nearly."""
    values = parse_values(text)
    if values is not None:
        return text.strip() if len(values) == 1 else None
    mended = repair_piece(text)
    return orjson.dumps(mended[0][0]) if mended is not None and len(mended[0]) == 1 else None


def _read_kept_entries(trace: Trace, kept: Bool) -> Iterator[bytes]:
    """The text of each kept entry."""
    index = get_text_index(trace)
    first = index.first.tolist()
    bounds = np.append(index.first, len(kept))
    wanted = [bool(kept[a:b].any()) for a, b in zip(first, bounds[1:].tolist(), strict=True)]
    for number, ordinal, text in read_chunks(index, wanted):
        del number
        yield from _extract_kept_entries(text, ordinal, kept)


def _extract_kept_entries(text: bytes, first: int, kept: Bool) -> Iterator[bytes]:
    """A healthy chunk's entries as they are written there; those of a damaged one as they were read."""
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
    commas = scan_structure(text).commas.tolist()
    return list(zip([0, *(comma + 1 for comma in commas)], [*commas, len(text)], strict=True))
