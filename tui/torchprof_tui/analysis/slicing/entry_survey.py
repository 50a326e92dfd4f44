"""One pass over a trace's text for what its columns do not hold: names and labels, counter points, flow entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from torchprof_tui.analysis.slicing.flow_entries import FLOW_PHASES, FlowEntries, FlowEntry, bind_flows
from torchprof_tui.trace.core.arrays import I32, I64
from torchprof_tui.trace.core.problems import ProblemTally
from torchprof_tui.trace.decode.interning import text_of, track_of
from torchprof_tui.trace.decode.timestamps import parse_times
from torchprof_tui.trace.json_text.salvage import parse_chunk
from torchprof_tui.trace.model.raw_events import NO_TIME
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.text.text_index import FileText

ProgressCallback = Callable[[int, int], None]
"""Is told how many of how many chunks are done; may raise to stop."""


@dataclass(frozen=True, slots=True)
class EntrySurvey:
    """`event_of` int32[entries]: the event that an entry is (both ends of a pair), -1 for all others. `metadata`:
    ordinals. `points`, `point_time`: ordinals and ns of counters' entries and of `[memory]` instants.
    """

    event_of: I32
    metadata_ordinals: I64
    point_ordinals: I64
    point_times: I64
    flows: FlowEntries


def read_chunks(text: FileText, wanted: Sequence[bool] | None = None) -> Iterator[tuple[int, int, bytes]]:
    """(number, ordinal of its first entry, text) of each chunk, or of those `wanted`. Raises OSError, LookupError."""
    numbers = (number for number in range(len(text.first)) if wanted is None or wanted[number])
    for number, piece in text.read_texts(numbers):
        yield number, int(text.first[number]), piece


def get_text_index(trace: Trace) -> FileText:
    """The text of a trace of one file. Raises LookupError for several ranks, each of which has its own."""
    if not isinstance(trace.text, FileText):
        raise LookupError("a slice is of one rank")
    return trace.text


def survey_entries(trace: Trace, report: ProgressCallback | None = None) -> EntrySurvey:
    """Raises OSError where the text is gone, LookupError where it has changed."""
    event_of = map_entries_to_events(trace)
    origin = _find_origin(trace, event_of)
    metadata: list[int] = []
    points: list[int] = []
    point_time: list[int] = []
    if trace.memory is not None:
        points += trace.memory.ordinal.tolist()
        point_time += trace.memory.time.tolist()
    known = event_of >= 0
    known[np.array(points, np.int64)] = True
    flows: list[FlowEntry] = []
    before = -1
    for number, first, text in read_chunks(get_text_index(trace)):
        entries = parse_chunk(text)
        if first + len(entries) > len(event_of):
            raise LookupError("the trace file has changed since it was opened")
        when: list[int] | None = None
        for place in np.flatnonzero(~known[first : first + len(entries)]).tolist():
            entry = entries[place]
            phase = entry.get("ph")
            if phase == "M":
                metadata.append(first + place)
                continue
            if phase != "C" and phase not in FLOW_PHASES:
                continue
            if when is None:
                when = _parse_times(entries, text).tolist()
            time = when[place]
            if time == NO_TIME:
                continue
            if phase == "C":
                points.append(first + place)
                point_time.append(time - origin)
            else:
                ahead = _find_previous_event_entry(entries, place)
                event = int(event_of[first + ahead]) if ahead >= 0 else before
                flows.append(_parse_flow(entry, first + place, time - origin, event))
        last = _find_previous_event_entry(entries, len(entries))
        before = int(event_of[first + last]) if last >= 0 else before
        if report is not None:
            report(number + 1, len(trace.text.first))
    return EntrySurvey(
        event_of, np.array(metadata, np.int64), np.array(points, np.int64), np.array(point_time, np.int64),
        bind_flows(trace, flows),
    )  # fmt: skip


def map_entries_to_events(trace: Trace) -> I32:
    """int32[entries that can be read]: the event that each is, or -1; a pair's end is the event of its begin."""
    counts = trace.counts
    lost = counts.not_drawn.get("unreadable", 0) + counts.not_drawn.get("not an object", 0)
    found = np.full(counts.events - lost, -1, np.int32)
    found[trace.ordinal] = np.arange(len(trace), dtype=np.int32)
    ends = trace.args.get("end_ordinal")
    if ends is not None:
        found[ends.values] = ends.events
    return found


def _parse_flow(entry: dict[str, Any], ordinal: int, time: int, before: int) -> FlowEntry:
    number = entry.get("id", entry.get("id2"))
    key = text_of(entry.get("cat")), text_of(number)
    return FlowEntry(ordinal, key, entry.get("ph") == "s", time, track_of(entry.get("pid"), entry.get("tid")), before)


def _find_previous_event_entry(entries: list[dict[str, Any]], place: int) -> int:
    """The last entry before `place` that is no flow; -1 where the chunk has none."""
    place -= 1
    while place >= 0 and _is_flow(entries[place]):
        place -= 1
    return place


def _is_flow(entry: dict[str, Any]) -> bool:
    phase = entry.get("ph")
    return isinstance(phase, str) and phase in FLOW_PHASES


def _parse_times(entries: list[dict[str, Any]], text: bytes) -> I64:
    return parse_times([entry.get("ts") for entry in entries], text, ProblemTally())


def _find_origin(trace: Trace, event_of: I32) -> int:
    """What the trace's times count from, on the file's own clock: read off one chunk, where most events have it so."""
    if not len(trace):
        raise LookupError("there is no event on any lane")
    index = get_text_index(trace)
    chunk = int(np.searchsorted(index.first, trace.ordinal[len(trace) // 2], side="right")) - 1
    ((_, text),) = index.read_texts([chunk])
    entries = parse_chunk(text)
    first = int(index.first[chunk])
    if first + len(entries) > len(event_of):
        raise LookupError("the trace file has changed since it was opened")
    events = event_of[first : first + len(entries)]
    begins = np.flatnonzero((events >= 0) & (trace.ordinal[np.maximum(events, 0)] == first + np.arange(len(entries))))
    away, count = np.unique(_parse_times(entries, text)[begins] - trace.start[events[begins]], return_counts=True)
    return int(away[count.argmax()])
