"""Write a trace file: the unchanged text of the kept entries, and the other keys of the file.

Entries without columns (metadata, counter points, flow entries) are found by one pass over the text.
"""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
import orjson

from torchprof_tui.analysis.privacy.private_metadata import (
    PrivateValue,
    find_private_values,
    list_unknown_keys,
    remove_private_values,
)
from torchprof_tui.trace.core.arrays import I32, I64, Bool
from torchprof_tui.trace.core.atomic_file import open_atomically
from torchprof_tui.trace.core.bounded_json import dump_bounded
from torchprof_tui.trace.core.problems import ProblemTally
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.decode.interning import text_of, track_of
from torchprof_tui.trace.decode.timestamps import parse_times
from torchprof_tui.trace.json_text.repair import parse_values, repair_piece, scan_structure
from torchprof_tui.trace.json_text.salvage import parse_chunk
from torchprof_tui.trace.model.lanes import LANE_KIND
from torchprof_tui.trace.model.raw_events import NO_TIME
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.text.block_text import FileText

FLOW_PHASES = frozenset("stf")


@record
class FlowEntries:
    """k flow entries, in file order.

    `ordinal`: number of the entry in the file. `owner`: the event it is bound to, -1 if unknown. `group`: equal for
    entries with the same category and id. `is_start`: whether the phase is `s`. `time`: ns.
    """

    ordinal: I64
    owner: I64
    group: I64
    is_start: Bool
    time: I64

    def add_other_ends(self, selected: Bool, kept: Bool) -> None:
        """Keep the events that a flow joins with a selected one. Ids of several flows are ambiguous and ignored."""
        owned = np.flatnonzero(self.owner >= 0)
        size = int(self.group.max(initial=-1)) + 1
        is_unique = np.bincount(self.group[self.is_start], minlength=size) == 1
        is_selected = np.zeros(size, np.bool_)
        is_selected[self.group[owned[selected[self.owner[owned]]]]] = True
        ends = owned[(is_selected & is_unique)[self.group[owned]]]
        kept[self.owner[ends]] = True

    def select_ordinals(self, events: Bool, t0: int, t1: int) -> I64:
        """Select the ordinals of entries owned by kept `events` (bool[n]), or without owner and inside the range."""
        unowned = (self.owner < 0) & (self.time >= t0) & (self.time < t1)
        owned = (self.owner >= 0) & events[np.maximum(self.owner, 0)] if len(events) else unowned
        ordinals: I64 = self.ordinal[unowned | owned]
        return ordinals


@record
class FlowEntry:
    """One flow entry as read. `previous_event`: the event of the last entry before it that is no flow, or -1."""

    ordinal: int
    key: tuple[str, str]
    is_start: bool
    time: int
    track: tuple[str, str]
    previous_event: int


def bind_flows(trace: Trace, entries: Iterable[FlowEntry]) -> FlowEntries:
    """Bind each flow to its event: the one before it in the file, as Kineto writes it, else the innermost around it."""
    flows = list(entries)
    groups: dict[tuple[str, str], int] = {}
    lanes = {
        (lane.pid, lane.tid): number
        for number, lane in reversed(list(enumerate(trace.lanes)))
        if LANE_KIND[lane.role] in ("cpu", "gpu")
    }
    return FlowEntries(
        ordinal=np.array([flow.ordinal for flow in flows], np.int64),
        owner=np.array([_find_owner(trace, flow, lanes) for flow in flows], np.int64),
        group=np.array([groups.setdefault(flow.key, len(groups)) for flow in flows], np.int64),
        is_start=np.array([flow.is_start for flow in flows], np.bool_),
        time=np.array([flow.time for flow in flows], np.int64),
    )


def _find_owner(trace: Trace, flow: FlowEntry, lanes: dict[tuple[str, str], int]) -> int:
    if flow.previous_event >= 0 and trace.start[flow.previous_event] == flow.time:
        return flow.previous_event
    number = lanes.get(flow.track)
    if number is None:
        return -1
    lane = trace.lanes[number]
    starts: I64 = trace.start[lane.first : lane.last]
    event = lane.first + int(starts.searchsorted(flow.time, side="right")) - 1
    if event < lane.first:
        return -1
    parents: I32 = trace.parent
    while event >= 0 and trace.start[event] + trace.duration[event] < flow.time:
        event = int(parents[event])
    return event


ProgressCallback = Callable[[int, int], None]  # called with (chunks done, all chunks); may raise to cancel


@record
class EntrySurvey:
    """`event_of` int32[entries]: the event of each entry (for both ends of a pair), -1 for all others.
    `metadata_ordinals`: of `M` entries. `point_ordinals`, `point_times` (ns): of counters and `[memory]` instants.
    """

    event_of: I32
    metadata_ordinals: I64
    point_ordinals: I64
    point_times: I64
    flows: FlowEntries


def read_chunks(text: FileText, selected: Sequence[bool] | None = None) -> Iterator[tuple[int, int, bytes]]:
    """Yield (number, ordinal of its first entry, text) of each selected chunk; all by default.

    Raises OSError, LookupError.
    """
    numbers = (number for number in range(len(text.first)) if selected is None or selected[number])
    for number, chunk in text.read_texts(numbers):
        yield number, int(text.first[number]), chunk


def read_times(entries: list[dict[str, Any]], text: bytes) -> I64:
    """Read the `ts` of the entries of a text, ns: int64[k], NO_TIME where one has none."""
    return parse_times([entry.get("ts") for entry in entries], text, ProblemTally())


def get_text_index(trace: Trace) -> FileText:
    """Return the text index of a trace of one file. Raises LookupError for several ranks, which have one each."""
    if not isinstance(trace.text, FileText):
        raise LookupError("a slice can be made of one rank only")
    return trace.text


def survey_entries(trace: Trace, report: ProgressCallback | None = None) -> EntrySurvey:
    """Survey all entries. Raises OSError if the text cannot be read, LookupError if it has changed."""
    event_of = map_entries_to_events(trace)
    origin = _find_origin(trace, event_of)
    metadata: list[int] = []
    point_ordinals: list[int] = []
    point_times: list[int] = []
    if trace.memory is not None:
        point_ordinals += trace.memory.ordinal.tolist()
        point_times += trace.memory.time.tolist()
    known = event_of >= 0
    known[np.array(point_ordinals, np.int64)] = True
    flows: list[FlowEntry] = []
    previous_event = -1  # of the last chunk
    for number, first, text in read_chunks(get_text_index(trace)):
        entries = parse_chunk(text)
        if first + len(entries) > len(event_of):
            raise LookupError("the trace file has changed since it was opened")
        times: list[int] | None = None
        for index in np.flatnonzero(~known[first : first + len(entries)]).tolist():
            entry = entries[index]
            phase = text_of(entry.get("ph"))  # it may be a list
            if phase == "M":
                metadata.append(first + index)
                continue
            if phase != "C" and phase not in FLOW_PHASES:
                continue
            if times is None:
                times = read_times(entries, text).tolist()
            time = times[index]
            if time == NO_TIME:
                continue
            if phase == "C":
                point_ordinals.append(first + index)
                point_times.append(time - origin)
            else:
                previous = _find_previous_event_entry(entries, index)
                event = int(event_of[first + previous]) if previous >= 0 else previous_event
                key = text_of(entry.get("cat")), text_of(entry.get("id", entry.get("id2")))
                track = track_of(entry.get("pid"), entry.get("tid"))
                flows.append(FlowEntry(first + index, key, phase == "s", time - origin, track, event))
        last = _find_previous_event_entry(entries, len(entries))
        previous_event = int(event_of[first + last]) if last >= 0 else previous_event
        if report is not None:
            report(number + 1, len(trace.text.first))
    return EntrySurvey(
        event_of=event_of,
        metadata_ordinals=np.array(metadata, np.int64),
        point_ordinals=np.array(point_ordinals, np.int64),
        point_times=np.array(point_times, np.int64),
        flows=bind_flows(trace, flows),
    )


def map_entries_to_events(trace: Trace) -> I32:
    """Map each readable entry to its event: int32[entries], -1 for none; both ends of a pair map to one event."""
    counts = trace.counts
    unreadable = counts.not_drawn.get("unreadable", 0) + counts.not_drawn.get("not an object", 0)
    event_of = np.full(counts.events - unreadable, -1, np.int32)
    event_of[trace.ordinal] = np.arange(len(trace), dtype=np.int32)
    ends = trace.args.get("end_ordinal")
    if ends is not None:
        event_of[ends.values] = ends.events
    return event_of


def _find_previous_event_entry(entries: list[dict[str, Any]], index: int) -> int:
    """Find the last entry before `index` that is no flow; -1 if the chunk has none."""
    index -= 1
    while index >= 0 and text_of(entries[index].get("ph")) in FLOW_PHASES:
        index -= 1
    return index


def _find_origin(trace: Trace, event_of: I32) -> int:
    """Find the origin of the trace's times on the file's clock, ns: the most frequent offset in one chunk."""
    if not len(trace):
        raise LookupError("the trace has no events")
    index = get_text_index(trace)
    chunk = int(np.searchsorted(index.first, trace.ordinal[len(trace) // 2], side="right")) - 1
    ((_, text),) = index.read_texts([chunk])
    entries = parse_chunk(text)
    first = int(index.first[chunk])
    if first + len(entries) > len(event_of):
        raise LookupError("the trace file has changed since it was opened")
    events = event_of[first : first + len(entries)]
    begins = np.flatnonzero((events >= 0) & (trace.ordinal[np.maximum(events, 0)] == first + np.arange(len(entries))))
    origins, counts = np.unique(read_times(entries, text)[begins] - trace.start[events[begins]], return_counts=True)
    return int(origins[counts.argmax()])


_GZIP_LEVEL = 6


@record
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
    index = get_text_index(trace)
    bounds = np.append(index.first, len(kept)).tolist()
    has_kept = [bool(kept[first:last].any()) for first, last in pairwise(bounds)]
    separator = b"  "
    for _, ordinal, text in read_chunks(index, has_kept):
        for entry in _extract_kept_entries(text, ordinal, kept):
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


def _extract_kept_entries(text: bytes, first: int, kept: Bool) -> Iterator[bytes]:
    """Yield kept entries with their original text; for a damaged chunk, as they were parsed."""
    values = parse_values(text)
    commas = scan_structure(text).commas.tolist()
    spans = list(zip([0, *(comma + 1 for comma in commas)], [*commas, len(text)], strict=True))
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
