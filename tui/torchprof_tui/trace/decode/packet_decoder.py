"""Decode a Perfetto trace (.pftrace): packets of protobuf, into the columns that a JSON of the same events has.

Each packet is converted to the entries that JSON would have (`perfetto_protobuf/packet_entries.py`), and these become
columns as those of JSON do (`column_builder.py`). Their times are kept beside them, because their clock may become
known later; so are the numbers of tracks, whose processes and threads are known at the end.

torch writes all begins of a group of slices, then all ends. Perfetto itself pairs them by time, as a stack, and so
torch shortens what overlaps on one stream. But its own order says which end belongs to which begin, at equal times
too: the k-th end of a run is that of the run's k-th begin.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64, U8, Bool, GrowableArray
from torchprof_tui.trace.core.column_file import crc32
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.problems import (
    CUT_SHORT,
    INCOMPLETE_STREAM_KINDS,
    LEFT_OUT,
    UNREADABLE_ENTRY,
    ProblemTally,
)
from torchprof_tui.trace.decode.column_builder import ColumnBuilder
from torchprof_tui.trace.decode.foreign_formats import is_xplane
from torchprof_tui.trace.model.raw_events import NO_DURATION, NO_TIME, DecodedTrace, RawEvents, SparseArg
from torchprof_tui.trace.perfetto_protobuf.packet_context import PacketContext, ResolvedTracks, make_location
from torchprof_tui.trace.perfetto_protobuf.packet_entries import (
    PROFILER_CATEGORY,
    PROFILER_PID,
    Entry,
    build_track_entries,
    convert_packet,
)
from torchprof_tui.trace.perfetto_protobuf.wire_format import (
    BYTES,
    FLAG_STATE_CLEARED,
    IGNORED_PACKETS,
    LEFT_OUT_PACKETS,
    VARINT,
    Packet,
    Value,
    WireError,
    parse_fields,
    parse_varint,
)
from torchprof_tui.trace.sources.source import Source
from torchprof_tui.trace.text.block_text import BlockWriter
from torchprof_tui.trace.text.packet_text import CONTEXT_FILE, PacketText, write_context

ProgressCallback = Callable[[int, int | None, int], None]
"""As that of `general_decoder.py`."""

BLOCKS_FILE = "packets.blocks"

CHUNK_BYTES = 1 << 20
"""Bytes of packets whose entries are held at once: about 20,000."""

MAX_PACKET_BYTES = 256 << 20
"""A packet that claims to be longer is damaged; the longest hold all names of a trace."""

PACKET_TAG = 0x0A
"""The tag of the only field of a Trace message: 1, of bytes."""

_VARINT_NUMBERS = frozenset((3, 8, 10, 13, 41, 42, 58, 79, 87, 98))
"""Fields of a TracePacket that are numbers; all others are bytes."""

_MAX_NUMBER = 4096
_PROBED_PACKETS = 8
_MAX_HEAD_BYTES = 11
"""The tag and the length of a packet."""

_TRACK_MARK = "\0"
"""What pids begin with until all tracks are known; the number of the track follows."""

_STATE_FIELDS = frozenset(
    (Packet.CLOCK_SNAPSHOT, Packet.INTERNED_DATA, Packet.STATE_CLEARED, Packet.DEFAULTS, Packet.TRACK_DESCRIPTOR)
)
_EVENT_FIELDS = frozenset((Packet.TRACK_EVENT, Packet.RENDER_STAGE, Packet.GPU_COUNTER))
_MAX_LISTED = 6
_MAX_TIME = 1 << 62


def looks_like_packets(head: bytes) -> bool:
    """Tell whether a stream that begins with these bytes is a Perfetto trace: by its first packets."""
    if is_xplane(head):
        return False
    may_be_json = head.lstrip()[:1] in (b"{", b"[")  # after a line break, which is PACKET_TAG
    position = packets = 0
    while position < len(head) and packets < _PROBED_PACKETS:
        if head[position] != PACKET_TAG:
            return False
        try:
            size, begin = parse_varint(head, position + 1)
        except WireError:
            return packets > 0
        is_cut = begin + size > len(head)
        if not size or size > MAX_PACKET_BYTES or not _is_packet(head[begin : begin + size], is_cut):
            return False
        if is_cut and may_be_json:
            return packets > 0
        position = begin + size
        packets += 1
    return packets > 0


def _is_packet(data: bytes, is_cut: bool) -> bool:
    """Tell whether these bytes are a TracePacket, or the beginning of one: its fields have the right types."""
    position = 0
    while position < len(data):
        try:
            tag, position = parse_varint(data, position)
            wire = VARINT if tag >> 3 in _VARINT_NUMBERS else BYTES
            if tag & 7 != wire or not 0 < tag >> 3 < _MAX_NUMBER:
                return False
            value, position = parse_varint(data, position)
        except WireError:
            return is_cut and position > 0
        position += value if wire == BYTES else 0
    return is_cut or position == len(data)


@dataclass(frozen=True, slots=True)
class PacketChunk:
    """Whole packets. `offset`: of `text` in the whole stream. `packets`: in `text`, where the tag of each is, and where
    its message begins and ends."""

    text: bytes
    offset: int
    packets: list[tuple[int, int, int]]


class PacketChunker:
    """Cuts a stream of blocks into chunks of whole packets.

    `damage`: why reading ended before the stream did, or inside a packet; "" if it did not. `is_cut_short`: the stream
    ended inside a packet.
    """

    def __init__(self, blocks: Iterator[bytes], chunk_size: int = CHUNK_BYTES) -> None:
        self._blocks = blocks
        self._chunk_size = chunk_size
        self.offset = 0
        self.damage = ""
        self.is_cut_short = False

    def __iter__(self) -> Iterator[PacketChunk]:
        text = b""
        ended = False
        wanted = self._chunk_size
        while not ended:
            parts, size = [text], len(text)
            while size < wanted and not ended:
                block = next(self._blocks, b"")
                ended = not block
                parts.append(block)
                size += len(block)
            text = b"".join(parts)
            position = 0
            while len(text) - position >= wanted or (ended and position < len(text)):
                packets, end, missing = _find_packets(text, position, self._chunk_size)
                if packets:
                    moved = [(tag - position, begin - position, last - position) for tag, begin, last in packets]
                    yield PacketChunk(text[position:end], self.offset, moved)
                    self.offset += end - position
                    position = end
                    wanted = self._chunk_size
                elif missing < 0:
                    self.damage = f"from byte {self.offset} on this is no packet"
                    return
                else:
                    wanted = max(missing, self._chunk_size)
                    break
            text = text[position:]
        if text:
            self.is_cut_short = True
            self.damage = f"the file ends inside the packet that begins at byte {self.offset}"


def _find_packets(text: bytes, position: int, size: int) -> tuple[list[tuple[int, int, int]], int, int]:
    """Find the whole packets from a position on, about `size` bytes of them.

    Returns where the tag, the message and the end of each are, where the last one ends, and how many bytes the next one
    needs that `text` has not whole: -1 where these bytes are no packet.
    """
    limit = min(position + size, len(text))
    packets: list[tuple[int, int, int]] = []
    while position < limit:
        if text[position] != PACKET_TAG:
            return packets, position, -1
        try:
            length, begin = parse_varint(text, position + 1)
        except WireError:
            is_cut = len(text) - position < _MAX_HEAD_BYTES
            return packets, position, 2 * _MAX_HEAD_BYTES if is_cut else -1
        end = begin + length
        if end > len(text):
            return packets, position, end - position if length <= MAX_PACKET_BYTES else -1
        packets.append((position, begin, end))
        position = end
    return packets, position, 0


@dataclass(slots=True)
class _ParsedPacket:
    """A packet of a chunk that has events. `tag`: where it is; `table`: the index of its sequence's table."""

    tag: int
    fields: list[tuple[int, Value]]
    table: int


class PacketDecoder:
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
        self._gpu_tracks: dict[tuple[str, str], None] = {}
        self._time, self._duration = GrowableArray(np.int64), GrowableArray(np.int64)
        self._position = GrowableArray(np.int32)
        self._first: list[int] = []
        self._offsets: list[int] = []
        self._lengths: list[int] = []
        self._checksums: list[int] = []
        self._other_packets: Counter[int] = Counter()
        self._untyped = 0
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
        self._append([*self._read_packets(chunk, number)], chunk.offset)

    def _read_packets(self, chunk: PacketChunk, chunk_number: int) -> Iterator[_ParsedPacket]:
        """Read the fields of each packet, and take over what they say about others; yields those with events."""
        for tag, begin, end in chunk.packets:
            data, location = chunk.text[begin:end], make_location(chunk_number, tag)
            fields: list[tuple[int, Value]] = []
            sequence: Value = 0
            has_state = False
            try:
                for number, value in parse_fields(data):
                    fields.append((number, value))
                    if number == Packet.SEQUENCE:
                        sequence = value
                    elif number in _STATE_FIELDS:
                        has_state = True
                    elif number == Packet.FLAGS:
                        has_state |= isinstance(value, int) and bool(value & FLAG_STATE_CLEARED)
                if has_state:
                    table = self._context.add_packet(data, location)
                else:
                    table = self._context.find_last_table(sequence if isinstance(sequence, int) else 0, location)
            except WireError:
                self._report_unreadable(chunk.offset + tag)
                continue
            has_events = False
            for number, _ in fields:
                if number in _EVENT_FIELDS:
                    has_events = True
                elif number not in IGNORED_PACKETS:
                    self._other_packets[number] += 1
            if has_events:
                yield _ParsedPacket(tag, fields, table)

    def _append(self, packets: list[_ParsedPacket], offset: int) -> None:
        """Append the entries of the packets of a chunk, once all that it says about tracks and clocks is known."""
        entries: list[Entry] = []
        times: list[int] = []
        durations: list[int] = []
        positions: list[int] = []
        for packet in packets:
            try:
                events = convert_packet(
                    packet.fields, self._context.tables[packet.table], self._context.tracks, _make_placeholder
                )
            except WireError:
                self._report_unreadable(offset + packet.tag)
                continue
            for entry in events.entries:
                if entry["ph"] == "X":  # GPU work
                    self._gpu_tracks[entry["pid"], entry["tid"]] = None
            if not events.entries:
                self._untyped += 1
                continue
            count = len(events.entries)
            time = None if events.time is None else self._context.to_trace_time(events.time, events.clock)
            entries += events.entries
            times += [_fit(time, NO_TIME)] * count
            durations += [_fit(events.duration, NO_DURATION)] * count
            positions += [packet.tag] * count
        if entries:
            self._builder.add_chunk(entries, b"")
            self._time.extend(np.array(times, np.int64))
            self._duration.extend(np.array(durations, np.int64))
            self._position.extend(np.array(positions, np.int32))

    def _report_unreadable(self, position: int) -> None:
        self._unreadable += 1
        self._tally.add(UNREADABLE_ENTRY, f"the packet at byte {position}")

    def _report_problems(self) -> None:
        if self._chunker.damage:
            is_cut = self._chunker.is_cut_short
            if not (is_cut and any(problem.kind in INCOMPLETE_STREAM_KINDS for problem in self._source.problems)):
                self._tally.add(CUT_SHORT if is_cut else UNREADABLE_ENTRY, self._chunker.damage)
            self._unreadable += not is_cut
        left_out = sum(self._other_packets.values()) + self._untyped
        if left_out:
            self._tally.add(LEFT_OUT, self._describe_others(), left_out)

    def _describe_others(self) -> str:
        names: Counter[str] = Counter()
        for number, count in sorted(self._other_packets.items()):
            names[LEFT_OUT_PACKETS.get(number, f"packets of field {number}")] += count
        if self._untyped:
            names["track events without a type"] += self._untyped
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
        described = build_track_entries(context, self._gpu_tracks)
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
        _name_tracks(events, context.resolved)
        position, first = self._position.finish(), np.array(self._first, np.int64)
        kept = _drop_paired_ends(events)
        if kept is not None:
            position, first = position[kept], np.searchsorted(np.flatnonzero(kept), first).astype(np.int64)
        problems = ProblemTally()
        for problem in [*self._source.problems, *self._tally.problems()]:
            problems.add(problem.kind, problem.example, problem.count)
        base = context.base_time
        return DecodedTrace(
            events=events,
            header={"schemaVersion": 1, "baseTimeNanoseconds": base} if base else {},
            text=self._build_text(first, position, events.time, events.duration, described),
            format="kineto" if base else "chrome",
            size=self._chunker.offset,
            unreadable=unreadable,
            not_objects=not_objects,
            problems=problems.problems(),
        )

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


def _make_placeholder(uuid: int) -> tuple[str, str]:
    """Make the pid and tid of a track that stand for it until all tracks are known."""
    return f"{_TRACK_MARK}{uuid}", str(uuid)


def _fit(value: int | None, missing: int) -> int:
    """Return a time in ns, `missing` where there is none or a damaged one beyond 64 bits."""
    return value if value is not None and abs(value) < _MAX_TIME else missing


def _name_tracks(events: RawEvents, resolved: ResolvedTracks) -> None:
    """Replace the numbers of tracks by pids and tids; events of CUPTI's overhead get their category."""
    codes: dict[tuple[str, str], int] = {}
    names = [_find_ids(pid, tid, resolved) for pid, tid in events.tracks]
    new_code = np.array([codes.setdefault(name, len(codes)) for name in names], np.int32)
    events.tracks = list(codes)
    if len(new_code):
        events.track = new_code[events.track]
    profiler = [code for name, code in codes.items() if name[0] == PROFILER_PID]
    if profiler and "" in events.categories:
        rows = np.isin(events.track, profiler) & (events.category == events.categories.index(""))
        rows &= np.isin(events.phase, [ord(phase) for phase in "BEi"])
        if rows.any():
            if PROFILER_CATEGORY not in events.categories:
                events.categories.append(PROFILER_CATEGORY)
            events.category[rows] = events.categories.index(PROFILER_CATEGORY)


def _find_ids(pid: str, tid: str, resolved: ResolvedTracks) -> tuple[str, str]:
    """Find the pid and tid of a track; of points of counters, which have no tid, only the pid."""
    if not pid.startswith(_TRACK_MARK):
        return pid, tid
    ids = resolved.find_ids(int(pid.removeprefix(_TRACK_MARK)))
    return ids if tid else (ids[0], "")


def _drop_paired_ends(events: RawEvents) -> Bool | None:
    """Make complete events of the begins and ends that `_pair_by_order` finds, and drop the ends.

    Returns bool[entries before]: those that are kept; None where nothing was dropped.
    """
    pairs = _pair_by_order(events.phase, events.time, events.track)
    if pairs is None:
        return None
    begin, end = pairs
    events.duration[begin] = events.time[end] - events.time[begin]
    events.phase[begin] = ord("X")
    kept = np.ones(len(events), np.bool_)
    kept[end] = False
    index = np.cumsum(kept, dtype=np.int64) - 1
    for column in ("phase", "time", "duration", "name", "category", "track", "correlation", "id"):
        setattr(events, column, getattr(events, column)[kept])
    for name, arg in events.args.items():
        chosen = kept[arg.entries]
        events.args[name] = SparseArg(index[arg.entries[chosen]].astype(np.int32), arg.values[chosen])
    events.counters.entry = index[events.counters.entry].astype(np.int32)
    return kept


def _pair_by_order(phase: U8, time: I64, track: I32) -> tuple[I64, I64] | None:
    """Return the ordinals of begins and of their ends; None for a file that was not written in this order.

    A file in order of time never was: there the innermost slice ends first.
    """
    is_begin = phase == ord("B")
    marks = np.flatnonzero(is_begin | (phase == ord("E")))
    if not len(marks) or len(marks) % 2:
        return None
    opens = is_begin[marks]
    begin, end = marks[opens], marks[~opens]
    bounds = np.append(np.flatnonzero(np.diff(opens, prepend=not opens[0])), len(marks))
    sizes = np.diff(bounds)
    if not opens[0] or len(sizes) % 2 or not np.array_equal(sizes[::2], sizes[1::2]):
        return None
    if (
        not np.array_equal(track[begin], track[end])
        or (time[end] < time[begin]).any()
        or (time[marks] == NO_TIME).any()
    ):
        return None
    return (begin, end) if _goes_back(time[marks], track[marks]) else None


def _goes_back(time: I64, track: I32) -> bool:
    """Tell whether time goes back on any track."""
    if ((np.diff(time) < 0) & (track[1:] == track[:-1])).any():  # where a run of ends begins, without sorting
        return True
    order = np.argsort(track, kind="stable")
    time, track = time[order], track[order]
    return bool(((np.diff(time) < 0) & (track[1:] == track[:-1])).any())
