"""Decode a Perfetto trace (.pftrace): packets of protobuf, into the columns that a JSON of the same events has.

Packets are cut into chunks, and all packets of a chunk are scanned at once (`perfetto_protobuf/wire_format.py`): the
begins, ends and instants of slices, GPU work and points of GPU counters become rows of columns by array arithmetic.
What is not plain (flows, text that is not interned, counters on tracks, …) is converted packet by packet to the entry
that JSON would have (`perfetto_protobuf/packet_entries.py`), which is what the columns must equal.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64, Array
from torchprof_tui.trace.core.checksum import crc32
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.growable_array import GrowableArray
from torchprof_tui.trace.core.problems import (
    CUT_SHORT,
    INCOMPLETE_STREAM_KINDS,
    LEFT_OUT,
    UNREADABLE_ENTRY,
    ProblemTally,
)
from torchprof_tui.trace.decode.column_builder import MAX_COUNTER_VALUE, NO_SERIES, ColumnBuilder, EntryColumns
from torchprof_tui.trace.decode.perfetto_protobuf.event_codes import EventCodes, make_placeholder
from torchprof_tui.trace.decode.perfetto_protobuf.event_rows import EventRowReader
from torchprof_tui.trace.decode.perfetto_protobuf.finished_events import drop_paired_ends, name_tracks
from torchprof_tui.trace.decode.perfetto_protobuf.packet_chunks import CHUNK_BYTES, PacketChunk, PacketChunker
from torchprof_tui.trace.decode.perfetto_protobuf.packet_rows import ChunkPackets, Rows, last_values, merge_rows
from torchprof_tui.trace.decode.perfetto_protobuf.packet_times import read_times
from torchprof_tui.trace.decode.perfetto_protobuf.stage_rows import CounterRowReader, StageRowReader
from torchprof_tui.trace.model.raw_events import NO_DURATION, NO_TIME, DecodedTrace
from torchprof_tui.trace.perfetto_protobuf.field_numbers import (
    FLAG_STATE_CLEARED,
    IGNORED_PACKETS,
    LEFT_OUT_PACKETS,
    Packet,
)
from torchprof_tui.trace.perfetto_protobuf.packet_context import PacketContext, make_location
from torchprof_tui.trace.perfetto_protobuf.packet_entries import convert_packet
from torchprof_tui.trace.perfetto_protobuf.track_entries import build_track_entries
from torchprof_tui.trace.perfetto_protobuf.wire_format import PADDING, WireError, scan_fields
from torchprof_tui.trace.sources.source import Source
from torchprof_tui.trace.text.block_text import BlockWriter
from torchprof_tui.trace.text.packet_text import CONTEXT_FILE, PacketText, write_context

ProgressCallback = Callable[[int, int | None, int], None]
"""As that of `general_decoder.py`."""

BLOCKS_FILE = "packets.blocks"

MIN_ROWS_PER_SLOW = 8
"""Where more than one packet in so many of a chunk is slow, all are converted as such: a run of them costs less than
rows between them."""

_STATE_FIELDS = (Packet.CLOCK_SNAPSHOT, Packet.INTERNED_DATA, Packet.STATE_CLEARED, Packet.DEFAULTS)
_STATE = np.zeros(64, np.bool_)
_STATE[[*_STATE_FIELDS, Packet.TRACK_DESCRIPTOR]] = True
_EVENT_FIELDS = (Packet.TRACK_EVENT, Packet.RENDER_STAGE, Packet.GPU_COUNTER)
_MAX_LISTED = 6

_MAX_TIME = 1 << 62


class ProtobufDecoder:
    """Decodes one source once."""

    def __init__(
        self, source: Source, text_dir: Path, progress: ProgressCallback | None, chunk_size: int = CHUNK_BYTES
    ) -> None:
        self._source = source
        self._text_dir = text_dir
        self._progress = progress
        self._blocks = source.blocks()
        self._chunker = PacketChunker(self._blocks, chunk_size)
        self._writer = None if source.plain_path else BlockWriter(text_dir / BLOCKS_FILE)
        self._tally = ProblemTally()
        self._context = PacketContext()
        self._builder = ColumnBuilder(self._tally)
        self._codes = EventCodes(self._builder, self._context)
        self._event_reader = EventRowReader(self._builder, self._codes, self._context)
        self._readers = (self._event_reader, StageRowReader(self._codes, self._context), CounterRowReader(self._codes))
        self._time, self._duration = GrowableArray(np.int64), GrowableArray(np.int64)
        self._position = GrowableArray(np.int32)
        self._first: list[int] = []
        self._offsets: list[int] = []
        self._lengths: list[int] = []
        self._checksums: list[int] = []
        self._other_packets: Counter[int] = Counter()
        self._unreadable = 0

    def close(self) -> None:
        """End the threads and close the files, whether decoding succeeded or not."""
        close = getattr(self._blocks, "close", None)
        try:
            if self._writer is not None:
                self._writer.close()
        finally:
            if close is not None:
                close()
            self._source.close()

    def run(self) -> DecodedTrace:
        """Decode. Raises TraceError where there are no events, OSError where packets cannot be stored."""
        for chunk in self._chunker:
            self._add_chunk(chunk)
            if self._progress is not None:
                self._progress(self._source.consumed, self._source.total, len(self._builder))
        self._report_problems()
        if not len(self._builder):
            raise TraceError(f"{self._source.name}: {self._describe_nothing()}")
        return self._finish()

    def _add_chunk(self, chunk: PacketChunk) -> None:
        number = len(self._first)
        self._first.append(len(self._builder))
        self._offsets.append(chunk.offset)
        self._lengths.append(len(chunk.text))
        if self._writer is None:
            self._checksums.append(crc32(chunk.text))
        else:
            self._writer.put(chunk.text)
        buffer = np.frombuffer(chunk.text + PADDING, np.uint8)
        fields = scan_fields(buffer, chunk.begin, chunk.end)
        count = len(chunk.begin)
        sequence, odd = last_values(fields, Packet.SEQUENCE, count, 0)
        words = np.ndarray((len(buffer) - 7,), "<u8", buffer.data, strides=(1,))
        table = self._apply_state(chunk, number, fields.message, fields.number, fields.value, sequence)
        packets = ChunkPackets(buffer, words, count, fields, table, fields.damaged | odd)
        self._mark_mixed(packets)
        rows = merge_rows([reader.read_rows(packets) for reader in self._readers])
        if packets.is_slow.any():
            if MIN_ROWS_PER_SLOW * np.count_nonzero(packets.is_slow) > len(rows.packet):
                packets.is_slow[rows.packet] = True  # begins that are slow, ends that are not: in turn
            rows = rows.select(~packets.is_slow[rows.packet])
        self._append(chunk, packets, rows, read_times(packets, self._context))
        self._count_others(fields.number)

    def _apply_state(
        self, chunk: PacketChunk, number: int, message: I64, field_number: I64, value: Array, sequence: I64
    ) -> I64 | int:
        """Take over what packets of the chunk say about others; returns the table of each, or that of all."""
        is_state = (field_number < 64) & _STATE[field_number & 63]
        is_state |= (field_number == Packet.FLAGS) & (value & np.uint64(FLAG_STATE_CLEARED) != 0)
        changes: list[tuple[int, int]] = []
        location = make_location(number, 0)
        lowest, highest = int(sequence.min()), int(sequence.max())
        sequences = [lowest] if lowest == highest else np.unique(sequence).tolist()
        before = [self._context.find_last_table(one, location) for one in sequences]
        for index in np.unique(message[is_state]).tolist():
            begin, end = int(chunk.begin[index]), int(chunk.end[index])
            try:
                now = self._context.add_packet(chunk.text[begin:end], make_location(number, int(chunk.tag[index])))
            except WireError:
                self._report_unreadable(chunk, index)
                continue
            changes.append((index, now))
        tables = spread_changes(sequence, sequences, before, changes)
        return int(tables[0]) if (tables == tables[0]).all() else tables

    def _mark_mixed(self, packets: ChunkPackets) -> None:
        """Mark packets with events of several kinds as slow."""
        kinds = np.zeros(packets.count, np.int8)
        for number in _EVENT_FIELDS:
            kinds[packets.fields.message[packets.fields.number == number]] += 1
        packets.is_slow |= kinds > 1

    def _append(self, chunk: PacketChunk, packets: ChunkPackets, rows: Rows, time: I64) -> None:
        """Append rows and slow packets in the order of packets."""
        begin = 0
        slow = np.flatnonzero(packets.is_slow)
        ends = np.searchsorted(rows.packet, slow)
        for first, last in itertools.pairwise([*np.flatnonzero(np.diff(ends, prepend=-1)).tolist(), len(slow)]):
            end = int(ends[first])
            self._append_rows(chunk, rows, time, begin, end)
            begin = end
            self._append_slow(chunk, packets, slow[first:last].tolist())
        self._append_rows(chunk, rows, time, begin, len(rows.packet))

    def _append_rows(self, chunk: PacketChunk, rows: Rows, time: I64, begin: int, end: int) -> None:
        if begin == end:
            return
        args = {}
        for name, (index, values) in rows.args.items():
            low, high = np.searchsorted(index, (begin, end)).tolist()
            if low < high:
                args[name] = index[low:high] - begin, values[low:high]
        part = slice(begin, end)
        packet = rows.packet[part]
        nothing, points = np.zeros(0, np.int64), np.zeros(0)
        with_point = nothing
        if rows.points is not None:
            with_point = np.flatnonzero(np.abs(rows.points[part]) <= MAX_COUNTER_VALUE)  # not NaN
            points = rows.points[part][with_point]
        columns = EntryColumns(
            time[packet], rows.duration[part], (nothing, nothing), rows.correlation[part], args, (with_point, points)
        )
        series = np.repeat(self._builder.intern_series([""]), len(points)) if len(points) else NO_SERIES
        self._builder.append_columns(rows.signature[part], rows.name[part], columns, series)
        self._time.extend(columns.time)
        self._duration.extend(columns.duration)
        self._position.extend(chunk.tag[packet])

    def _append_slow(self, chunk: PacketChunk, packets: ChunkPackets, slow: list[int]) -> None:
        """Append slow packets without rows between them, at once: each call costs as much as hundreds of entries."""
        entries: list[dict[str, Any]] = []
        columns: tuple[list[int], list[int], list[int]] = [], [], []
        for packet in slow:
            data = chunk.text[int(chunk.begin[packet]) : int(chunk.end[packet])]
            table = packets.table if isinstance(packets.table, int) else int(packets.table[packet])
            try:
                events = convert_packet(data, self._context.tables[table], self._context.tracks, make_placeholder)
            except WireError:
                self._report_unreadable(chunk, packet)
                continue
            if not events.entries:
                self._event_reader.untyped += 1
                continue
            time = None if events.time is None else self._context.to_trace_time(events.time, events.clock)
            values = _fit(time, NO_TIME), _fit(events.duration, NO_DURATION), int(chunk.tag[packet])
            for column, value in zip(columns, values, strict=True):
                column += [value] * len(events.entries)
            entries += events.entries
        if entries:
            self._builder.add_chunk(entries, b"")
            self._time.extend(np.array(columns[0], np.int64))
            self._duration.extend(np.array(columns[1], np.int64))
            self._position.extend(np.array(columns[2], np.int32))

    def _report_unreadable(self, chunk: PacketChunk, packet: int) -> None:
        self._unreadable += 1
        self._tally.add(UNREADABLE_ENTRY, f"the packet at byte {chunk.offset + int(chunk.tag[packet])}")

    def _count_others(self, number: I64) -> None:
        counts = np.bincount(np.minimum(number, 1024))
        for one in np.flatnonzero(counts).tolist():
            if one not in _EVENT_FIELDS and one not in IGNORED_PACKETS:
                self._other_packets[one] += int(counts[one])

    def _report_problems(self) -> None:
        if self._chunker.damage:
            is_cut = self._chunker.is_cut_short
            if not (is_cut and any(problem.kind in INCOMPLETE_STREAM_KINDS for problem in self._source.problems)):
                self._tally.add(CUT_SHORT if is_cut else UNREADABLE_ENTRY, self._chunker.damage)
            self._unreadable += not is_cut
        left_out = sum(self._other_packets.values()) + self._event_reader.untyped
        if left_out:
            self._tally.add(LEFT_OUT, self._describe_others(), left_out)

    def _describe_others(self) -> str:
        names: Counter[str] = Counter()
        for number, count in self._other_packets.items():
            names[LEFT_OUT_PACKETS.get(number, f"packets of field {number}")] += count
        if self._event_reader.untyped:
            names["track events without a type"] += self._event_reader.untyped
        listed = [f"{name}: {count:,}" for name, count in names.most_common(_MAX_LISTED)]
        return ", ".join(listed) + (", …" if len(names) > _MAX_LISTED else "")

    def _describe_nothing(self) -> str:
        """Describe a Perfetto trace without events in one line."""
        if self._chunker.is_cut_short:
            return f"a Perfetto trace, cut short before its first event: {self._chunker.damage}"
        others = self._describe_others()
        end = f"; what it has is not read: {others}" if others else ""
        return f"a Perfetto trace without track events or GPU work{end}"

    def _finish(self) -> DecodedTrace:
        context = self._context
        context.resolved = context.tracks.resolve()
        described = build_track_entries(context, self._codes.gpu_tracks())
        self._first.append(len(self._builder))
        self._offsets.append(self._chunker.offset)
        self._lengths.append(0)
        self._checksums.append(0)
        if described:
            self._builder.add_chunk(described, b"")
        missing = np.full(len(described), NO_TIME, np.int64)
        self._time.extend(missing)
        self._duration.extend(missing + (NO_DURATION - NO_TIME))
        self._position.extend(missing * 0)
        unreadable, not_objects = self._unreadable, self._builder.not_objects
        events = self._builder.finish()
        events.time, events.duration = self._time.finish(), self._duration.finish()
        name_tracks(events, context.resolved)
        position, first = self._position.finish(), np.array(self._first, np.int64)
        kept = drop_paired_ends(events)
        if kept is not None:
            position, first = position[kept], np.searchsorted(np.flatnonzero(kept), first).astype(np.int64)
        problems = ProblemTally()
        for problem in [*self._source.problems, *self._tally.problems()]:
            problems.add(problem.kind, problem.example, problem.count)
        return DecodedTrace(
            events=events,
            header=self._build_header(),
            text=self._build_text(first, position, events.time, events.duration, described),
            format="kineto" if context.base_time else "chrome",
            size=self._chunker.offset,
            unreadable=unreadable,
            not_objects=not_objects,
            problems=problems.problems(),
        )

    def _build_header(self) -> dict[str, Any]:
        base = self._context.base_time
        return {"schemaVersion": 1, "baseTimeNanoseconds": base} if base else {}

    def _build_text(
        self, first: I64, position: I32, time: I64, duration: I64, described: list[dict[str, Any]]
    ) -> PacketText:
        path = self._text_dir / CONTEXT_FILE
        checksum = write_context(path, self._context, described)
        offsets, lengths, checksums = (np.array(values) for values in (self._offsets, self._lengths, self._checksums))
        if self._writer is not None:
            self._writer.close()
            lengths, checksums = np.array([*self._writer.lengths, 0]), np.array([*self._writer.checksums, 0])
            offsets = np.cumsum(lengths) - lengths
        return PacketText(
            self._source.plain_path or self._text_dir / BLOCKS_FILE,
            first,
            offsets.astype(np.int64),
            lengths.astype(np.int64),
            checksums.astype(np.uint32),
            position=position,
            time=time.copy(),
            duration=duration.copy(),
            is_compressed=self._writer is not None,
            context_path=path,
            context_checksum=checksum,
        )


def spread_changes(sequence: I64, sequences: list[int], before: list[int], changes: list[tuple[int, int]]) -> I64:
    """Return the table of each packet: the latest of its sequence. int64[n].

    `sequence` int64[n]: of each packet; `sequences`: all of them, ascending; `before`: the table that each has before
    the first packet; `changes`: index of a packet and the table that its sequence has from there on, ascending.
    """
    count = len(sequence)
    rank = np.searchsorted(sequences, sequence)
    index, now = np.array(changes, np.int64).reshape(-1, 2).T
    # By sequence, then by packet: before the first packet of a sequence is the table that it has at first.
    keys = np.concatenate([np.arange(len(sequences)) * (count + 1), rank[index] * (count + 1) + index + 1])
    tables = np.concatenate([np.array(before, np.int64), now])
    order = np.argsort(keys, kind="stable")
    found: I64 = tables[order][np.searchsorted(keys[order], rank * (count + 1) + np.arange(count) + 1, "right") - 1]
    return found


def _fit(value: int | None, missing: int) -> int:
    """Return a time in ns, `missing` where there is none or a damaged one beyond 64 bits."""
    return value if value is not None and abs(value) < _MAX_TIME else missing
