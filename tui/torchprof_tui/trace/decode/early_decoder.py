"""Decode some ranges of a large plain file, which hold the beginning of the recording, as if it had ended there.

What begins after that end is left out, what goes on is cut there. The text index is that of the file itself, so the
args of each event can be read as always.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from torchprof_tui.trace.core.arrays import Bool
from torchprof_tui.trace.core.problems import ProblemTally
from torchprof_tui.trace.decode.chunker import CHUNK_BYTES, TextWindow
from torchprof_tui.trace.decode.early_ranges import EarlyRanges
from torchprof_tui.trace.decode.entry_decoder import EntryDecoder
from torchprof_tui.trace.decode.json_document import JsonDocument
from torchprof_tui.trace.decode.split_point import SplitPoint
from torchprof_tui.trace.model.raw_events import NO_DURATION, NO_TIME, CounterPoints, DecodedTrace, RawEvents
from torchprof_tui.trace.sources.source import Source
from torchprof_tui.trace.text.large_values import LargeValueWriter

MAX_LATE_SHARE = 0.5
"""Share of entries after the end that the borders of the ranges explain."""

_LEFT_OUT = ord("M")
"""The phase of an entry that is not drawn and is no problem."""


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
            _decode_range(source, window, decoder, begin, end)
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


def _decode_range(source: Source, window: _RangesWindow, decoder: EntryDecoder, begin: int, end: int) -> None:
    """Decode the entries of one range."""
    range_source = source.reopen(begin)
    try:
        start = SplitPoint(begin)
        blocks = start.blocks_after(range_source.blocks(), begin)
        first = next(blocks, b"")
        if first and start.offset < end:
            rest = SplitPoint(end).blocks_before(_join(first, blocks), start.offset)
            window.enter(rest, start.offset)
            decoder.decode_list()
    finally:
        range_source.close()


def _join(first: bytes, blocks: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from blocks


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
