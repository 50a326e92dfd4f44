"""Decode some ranges of a large plain file, which hold the beginning of the recording, as if it had ended there.

What begins after that end is left out, what goes on is cut there. The text index is that of the file itself, so the
args of each event can be read as always.

Kineto writes one section after the other, each in the order of time: the operations of each CPU thread, the Python
functions, the GPU work. The first tenth of such a file is one thread alone. So the times at many positions of the file
are read first; they show where each section begins, and up to where it belongs to the beginning of the recording.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from torchprof_tui.trace.core.arrays import F64, Bool
from torchprof_tui.trace.core.problems import ProblemTally
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.decode.entry_decoder import CHUNK_BYTES, EntryDecoder, TextWindow
from torchprof_tui.trace.decode.json_document import JsonDocument
from torchprof_tui.trace.decode.parallel import SplitPoint
from torchprof_tui.trace.model.raw_events import NO_DURATION, NO_TIME, CounterPoints, DecodedTrace, RawEvents
from torchprof_tui.trace.sources.source import Source
from torchprof_tui.trace.text.large_values import LargeValueWriter

PROBES = 768  # positions at which times are read: of a file of 1.6 GB one every 2 MB, in 20 ms
PROBE_BYTES = 8 << 10  # text that is read at a position: some twenty entries

_BORDER_BYTES = 64 << 10  # accuracy with which the end of a range is searched
_TAIL_BYTES = 256 << 10  # end of the file, where Kineto writes the names of processes and threads

MAX_RANGES = 64  # with more ranges the file is not in sections that are sorted by time

_TIME = re.compile(rb'"ts"\s*:\s*"?(-?\d+(?:\.\d+)?)')


@record
class EarlyRanges:
    """The parts of a file with what was recorded first. `ranges`: (begin, end) in bytes, ascending. `end`: ns on the
    file's clock, up to which they hold everything. `share`: their part of the file, 0 to 1.
    """

    ranges: list[tuple[int, int]]
    end: int
    share: float


def find_early_ranges(descriptor: int, size: int, wanted: int) -> EarlyRanges | None:
    """Find about `wanted` bytes with the beginning of the recording in an open file of `size` bytes.

    Returns None where the file has no times, or is not in sections that are sorted by time. Raises OSError.
    """
    step = size / PROBES
    positions = [int(step * index) for index in range(PROBES)]
    times = np.array([_read_time(descriptor, position) for position in positions])
    if np.isnan(times).sum() > PROBES // 2:
        return None
    ends_at = float(np.nanquantile(times, min(wanted / size, 1.0)))
    is_early = times <= ends_at  # False for NaN
    edges = np.flatnonzero(np.diff(np.concatenate(([False], is_early, [False])).astype(np.int8)))
    runs = edges.reshape(-1, 2).tolist()
    if not runs or len(runs) > MAX_RANGES:
        return None
    ranges: list[tuple[int, int]] = []
    for first, last in runs:
        begin = 0 if first == 0 else _find_border(descriptor, positions[first - 1], positions[first], ends_at, False)
        end = size if last == PROBES else _find_border(descriptor, positions[last - 1], positions[last], ends_at, True)
        ranges.append((max(begin, ranges[-1][1]) if ranges else begin, min(end, size)))
    if ranges[0][0] > 0:
        ranges.insert(0, (0, min(_BORDER_BYTES, ranges[0][0])))  # the keys before the list
    if ranges[-1][1] < size:
        ranges.append(
            (max(size - min(_TAIL_BYTES, size // PROBES), ranges[-1][1]), size)
        )  # the names of processes and threads
    return EarlyRanges(ranges, round(ends_at * 1000), sum(end - begin for begin, end in ranges) / size)


def _find_border(descriptor: int, low: int, high: int, ends_at: float, from_early: bool) -> int:
    """Find where times go from early to late (`from_early`), or from late to early, between two positions.

    The result lies on the side of the late entries, by little more than _BORDER_BYTES at most.
    """
    while high - low > _BORDER_BYTES:
        middle = (low + high) // 2
        if (_read_time(descriptor, middle) <= ends_at) == from_early:
            low = middle
        else:
            high = middle
    return high + PROBE_BYTES if from_early else low  # the middle one of the times there is late, the first may not be


def _read_time(descriptor: int, position: int) -> float:
    """Read the middle one of the times after a position, µs; NaN where there are none."""
    times: F64 = np.array(_TIME.findall(os.pread(descriptor, PROBE_BYTES, position)), np.float64)
    return float(np.median(times)) if len(times) else float("nan")


MAX_LATE_SHARE = 0.5  # share of entries after the end that the borders of the ranges explain

_LEFT_OUT = ord("M")  # the phase of an entry that is not drawn and is no problem


class _RangesWindow(TextWindow):
    """A window over one range of a file after the other."""

    def enter(self, blocks: Iterator[bytes], base: int) -> None:
        """Go on with blocks, the first of which begins at offset `base`."""
        self.text, self.position, self.base, self.ended = b"", 0, base, False
        self._blocks = blocks


def decode_early_ranges(source: Source, part: EarlyRanges, text_dir: Path) -> DecodedTrace | None:
    """Decode the ranges of a plain file. Raises TraceError, OSError.

    None where nothing was recorded that early, or so much later that the file cannot be in the order of time.
    Damage is skipped here: it is reported with the whole trace.
    """
    assert source.plain_path is not None, "only plain text can be read from the middle"
    tally = ProblemTally()
    (_, first_end), *others = part.ranges
    window = _RangesWindow(SplitPoint(first_end).blocks_before(source.reopen().blocks()))
    large_keys = LargeValueWriter(source.plain_path, text_dir)
    try:
        document = JsonDocument(window, source.name, tally, large_keys)
        decoder = EntryDecoder(window, tally, CHUNK_BYTES, True, None, lambda _: None)
        next(document.seek_lists())
        decoder.decode_list()
        for begin, end in others:
            # Decode the entries of one range.
            range_source = source.reopen(begin)
            try:
                start = SplitPoint(begin)
                blocks = start.blocks_after(range_source.blocks(), begin)
                first = next(blocks, b"")
                if first and start.offset < end:
                    rest = SplitPoint(end).blocks_before(itertools.chain([first], blocks), start.offset)
                    window.enter(rest, start.offset)
                    decoder.decode_list()
            finally:
                range_source.close()
    finally:
        large_keys.close()
    events = decoder.columns.finish()
    late_share = _end_recording(events, part.end)
    if late_share > MAX_LATE_SHARE or not (events.phase == ord("X")).any():
        return None
    return DecodedTrace(
        events=events,
        header=document.header,
        text=decoder.text_index(source.plain_path, None),
        format="kineto",
        size=window.offset,
    )


def _end_recording(events: RawEvents, end: int) -> float:
    """Leave out what begins after `end`, ns, and cut there what goes on. Returns the share of what was left out."""
    is_late: Bool = events.time > end
    events.phase[is_late] = _LEFT_OUT
    has_duration = (events.time != NO_TIME) & (events.duration != NO_DURATION) & ~is_late
    cut = np.flatnonzero(has_duration & (events.duration > end - np.where(has_duration, events.time, end)))
    events.duration[cut] = end - events.time[cut]
    points = events.counters
    kept = ~is_late[points.entry]
    events.counters = CounterPoints(points.entry[kept], points.series[kept], points.value[kept], points.names)
    return float(is_late.mean()) if len(is_late) else 0.0
