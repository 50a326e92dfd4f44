"""Convert a Perfetto trace (.pftrace), packets of protobuf, to the text of a Kineto trace with the same events.

Each packet is converted to the entries that JSON would have (`perfetto_protobuf/packet_entries.py`). Their text is kept
without times and tracks, because clocks, processes and threads may be described by later packets, and is completed once
all packets are read. The general decoder then reads it as any other trace, and stores it in the cache.

torch writes all begins of a group of slices, then all ends. Perfetto itself pairs them by time, as a stack, and so
torch shortens what overlaps on one stream. But its own order says which end belongs to which begin, at equal times
too: the k-th end of a run is that of the run's k-th begin.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64, U8
from torchprof_tui.trace.core.bounded_json import dump_bounded
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.growable_array import GrowableArray
from torchprof_tui.trace.core.problems import (
    CUT_SHORT,
    INCOMPLETE_STREAM_KINDS,
    LEFT_OUT,
    UNREADABLE_ENTRY,
    Problem,
    ProblemTally,
)
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.decode.entry_decoder import TextWindow
from torchprof_tui.trace.decode.json_document import is_xplane
from torchprof_tui.trace.model.raw_events import NO_DURATION, NO_TIME
from torchprof_tui.trace.perfetto_protobuf.packet_context import PacketContext, ResolvedTracks, SequenceTables
from torchprof_tui.trace.perfetto_protobuf.packet_entries import (
    PROFILER_CATEGORY,
    PROFILER_PID,
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
from torchprof_tui.trace.sources.source import PieceStream, Source
from torchprof_tui.trace.text.block_text import BlockText, BlockWriter

ProgressCallback = Callable[[int, int | None, int], None]  # as that of `general_decoder.py`

BLOCKS_FILE = "packets.blocks"

CHUNK_BYTES = 1 << 20  # bytes of packets whose entries are held at once: about 20,000

MAX_PACKET_BYTES = 256 << 20  # a packet that claims to be longer is damaged; the longest hold all names of a trace
PACKET_TAG = 0x0A  # the tag of the only field of a Trace message: 1, of bytes

_VARINT_NUMBERS = frozenset((3, 8, 10, 13, 41, 42, 58, 79, 87, 98))
"""Fields of a TracePacket that are numbers; all others are bytes."""

_MAX_NUMBER = 4096
_PROBED_PACKETS = 8
_MAX_HEAD_BYTES = 11  # the tag and the length of a packet
_TRACK_MARK = "\0"  # what pids begin with until all tracks are known; the number of the track follows

_STATE_FIELDS = frozenset(
    (Packet.CLOCK_SNAPSHOT, Packet.INTERNED_DATA, Packet.STATE_CLEARED, Packet.DEFAULTS, Packet.TRACK_DESCRIPTOR)
)
_EVENT_FIELDS = frozenset((Packet.TRACK_EVENT, Packet.RENDER_STAGE, Packet.GPU_COUNTER))
_KNOWN_FIELDS = IGNORED_PACKETS | _EVENT_FIELDS
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


@record
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
        self._window = TextWindow(blocks)
        self._chunk_size = chunk_size
        self.damage = ""
        self.is_cut_short = False

    @property
    def offset(self) -> int:
        return self._window.offset

    def __iter__(self) -> Iterator[PacketChunk]:
        window, wanted = self._window, self._chunk_size
        while True:
            window.fill(wanted)
            position = window.position
            if position >= len(window.text):
                return
            packets, end, missing = _find_packets(window.text, position, self._chunk_size)
            if packets:
                moved = [(tag - position, begin - position, last - position) for tag, begin, last in packets]
                yield PacketChunk(window.text[position:end], self.offset, moved)
                window.position = end
                wanted = self._chunk_size
            elif missing < 0:
                self.damage = f"from byte {self.offset} on this is no packet"
                return
            elif window.ended:
                self.is_cut_short = True
                self.damage = f"the file ends inside the packet that begins at byte {self.offset}"
                return
            else:
                wanted = max(missing, self._chunk_size)


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


class PacketConverter:
    """Converts the packets of a source to the text of a Kineto trace: `read_packets`, then `open_text`.

    `size`: bytes of packets; `text_size`: about as many bytes of text. `unreadable`: packets that were not read.
    """

    def __init__(self, source: Source, folder: Path) -> None:
        self.unreadable = self.text_size = 0
        self._source = source
        self._blocks = source.blocks()
        self._chunker = PacketChunker(self._blocks)
        self._writer = BlockWriter(folder / BLOCKS_FILE)
        self._tally = ProblemTally()
        self._context = PacketContext()
        self._heads: dict[tuple[str, str, str, str], int] = {}  # phase, category, pid, tid
        self._head = GrowableArray(np.int32)
        self._time, self._duration = GrowableArray(np.int64), GrowableArray(np.int64)
        self._other_packets: Counter[int] = Counter()
        self._untyped = 0

    @property
    def size(self) -> int:
        return self._chunker.offset

    @property
    def entry_count(self) -> int:
        """Entries of the packets read so far."""
        return len(self._head)

    @property
    def problems(self) -> list[Problem]:
        return [*self._source.problems, *self._tally.problems()]

    def close(self) -> None:
        """End the threads and close the files, whether decoding succeeded or not."""
        with contextlib.ExitStack() as closing:
            closing.callback(self._source.close)
            closing.callback(getattr(self._blocks, "close", lambda: None))
            closing.callback(self._writer.path.unlink, missing_ok=True)
            closing.callback(self._writer.close)

    def read_packets(self, progress: ProgressCallback | None) -> None:
        """Read all packets. Raises TraceError where there are no events, OSError where they cannot be stored."""
        for chunk in self._chunker:
            self._append([*self._read_chunk(chunk)], chunk.offset)
            if progress is not None:
                progress(self._source.consumed, self._source.total, self.entry_count)
        if self._chunker.damage:
            is_cut = self._chunker.is_cut_short
            if not (is_cut and any(problem.kind in INCOMPLETE_STREAM_KINDS for problem in self._source.problems)):
                self._tally.add(CUT_SHORT if is_cut else UNREADABLE_ENTRY, self._chunker.damage)
            self.unreadable += not is_cut
        others = self._describe_others()
        if others:
            self._tally.add(LEFT_OUT, others, sum(self._other_packets.values()) + self._untyped)
        if len(self._head):
            return
        if self._chunker.is_cut_short:
            reason = f"a Perfetto trace, cut short before its first event: {self._chunker.damage}"
        else:
            reason = "a Perfetto trace without track events or GPU work"
            reason += f"; what it has is not read: {others}" if others else ""
        raise TraceError(f"{self._source.name}: {reason}")

    def _read_chunk(self, chunk: PacketChunk) -> Iterator[tuple[int, list[tuple[int, Value]], SequenceTables]]:
        """Read the fields of each packet, and take over what they say about others.

        Yields where a packet with events is, its fields, and the tables of its sequence.
        """
        for tag, begin, end in chunk.packets:
            try:
                fields = [*parse_fields(chunk.text[begin:end])]
                last = dict(fields)
                flags, sequence = last.get(Packet.FLAGS, 0), last.get(Packet.SEQUENCE, 0)
                if not _STATE_FIELDS.isdisjoint(last) or (isinstance(flags, int) and flags & FLAG_STATE_CLEARED):
                    tables = self._context.add_packet(fields)
                else:
                    tables = self._context.find_tables(sequence if isinstance(sequence, int) else 0)
            except WireError:
                self._report_unreadable(chunk.offset + tag)
                continue
            if not _KNOWN_FIELDS.issuperset(last):
                self._other_packets.update(number for number, _ in fields if number not in _KNOWN_FIELDS)
            if not _EVENT_FIELDS.isdisjoint(last):
                yield tag, fields, tables

    def _append(self, packets: list[tuple[int, list[tuple[int, Value]], SequenceTables]], offset: int) -> None:
        """Append the entries of the packets of a chunk, once all that it says about tracks and clocks is known."""
        text = bytearray()  # each text by itself would keep the kilobytes that orjson reserves for it
        heads: list[int] = []
        times: list[int] = []
        durations: list[int] = []
        for tag, fields, tables in packets:
            try:
                # Until all tracks are known, its number stands for the pid and tid of each.
                tracks = self._context.tracks
                events = convert_packet(fields, tables, tracks, lambda uuid: (f"{_TRACK_MARK}{uuid}", str(uuid)))
            except WireError:
                self._report_unreadable(offset + tag)
                continue
            self._untyped += not events.entries
            context = self._context  # a time of an unknown clock stays as it is
            offset_to_trace = context.clock_offsets.get(events.clock, 0) - context.base_time
            time = None if events.time is None else events.time + offset_to_trace
            for entry in events.entries:
                head = entry.pop("ph"), entry.pop("cat", ""), entry.pop("pid"), entry.pop("tid")
                heads.append(self._heads.setdefault(head, len(self._heads)))
                text += dump_bounded(entry) + b"\n"
            times += [_fit(time, NO_TIME)] * len(events.entries)
            durations += [_fit(events.duration, NO_DURATION)] * len(events.entries)
        if heads:
            self._writer.put(memoryview(text)[:-1])
            self.text_size += len(text)
            self._head.extend(np.array(heads, np.int32))
            self._time.extend(np.array(times, np.int64))
            self._duration.extend(np.array(durations, np.int64))

    def _report_unreadable(self, position: int) -> None:
        self.unreadable += 1
        self._tally.add(UNREADABLE_ENTRY, f"the packet at byte {position}")

    def _describe_others(self) -> str:
        names: Counter[str] = Counter()
        for number, count in sorted(self._other_packets.items()):
            names[LEFT_OUT_PACKETS.get(number, f"packets of field {number}")] += count
        if self._untyped:
            names["track events without a type"] += self._untyped
        listed = [f"{name}: {count:,}" for name, count in names.most_common(_MAX_LISTED)]
        return ", ".join(listed) + (", …" if len(names) > _MAX_LISTED else "")

    def open_text(self) -> Source:
        self._writer.close()
        source = Source(self._source.name, PieceStream(self._write_text()))
        source.format = "kineto" if self._context.base_time else "chrome"
        source.unpack_all = True  # it is as long as what was stored
        return source

    def _write_text(self) -> Iterator[bytes]:
        """Yield the text of the trace in pieces of many entries."""
        time, duration, head = self._time.finish(), self._duration.finish(), self._head.finish()
        resolved = self._context.tracks.resolve()
        named = [_name_head(*key, resolved) for key in self._heads]
        tracks: dict[tuple[str, str], int] = {}
        track_of = np.array([tracks.setdefault((pid, tid), len(tracks)) for _, _, pid, tid in named], np.int32)
        phase_of = np.array([ord(phase) for phase, *_ in named], np.uint8)
        kept = np.ones(len(head), np.bool_)
        pairs = _pair_by_order(phase_of[head], time, track_of[head])
        if pairs is not None:  # complete events take the place of begins and ends
            begin, end = pairs
            duration[begin] = time[end] - time[begin]
            head[begin] += len(named)
            kept[end] = False
        begins = [_write_head(*key) for key in named] + [_write_head("X", *key[1:]) for key in named]
        base = self._context.base_time
        yield b'{"schemaVersion":1,"baseTimeNanoseconds":%d,"traceEvents":[\n' % base if base else b'{"traceEvents":[\n'
        first = 0
        stored = self._writer
        lengths, checksums = np.array(stored.lengths, np.int64), np.array(stored.checksums, np.uint32)
        blocks = BlockText.from_lengths(stored.path, np.zeros(len(lengths), np.int64), lengths, checksums)
        for _, block in blocks.read_texts(range(len(lengths))):
            texts = block.split(b"\n")
            part = slice(first, first + len(texts))
            first = part.stop
            columns = (head[part].tolist(), time[part].tolist(), duration[part].tolist(), kept[part].tolist())
            for code, at, length, is_kept, text in zip(*columns, texts, strict=True):
                if is_kept:
                    yield begins[code] + _write_time(b"ts", at) + _write_time(b"dur", length) + text[1:] + b",\n"
        gpu_tracks = dict.fromkeys((pid, tid) for phase, _, pid, tid in self._heads if phase == "X")
        yield b",\n".join(map(dump_bounded, build_track_entries(self._context, resolved, gpu_tracks))) + b"]}"


def _name_head(phase: str, category: str, pid: str, tid: str, resolved: ResolvedTracks) -> tuple[str, str, str, str]:
    """Replace a track's number by its pid and tid, of points of counters only by the pid.

    Events of CUPTI's overhead get their category.
    """
    if pid.startswith(_TRACK_MARK):
        uuid = int(pid.removeprefix(_TRACK_MARK))  # of a track that no packet describes, its number is the tid
        pid, own_tid = resolved.ids.get(uuid) or ("", str(uuid) if uuid else "")
        tid = own_tid if tid else ""
    if pid == PROFILER_PID and not category and phase in "BEi":
        category = PROFILER_CATEGORY
    return phase, category, pid, tid


def _write_head(phase: str, category: str, pid: str, tid: str) -> bytes:
    return dump_bounded({"ph": phase, "cat": category, "pid": pid, "tid": tid})[:-1] + b","


def _write_time(key: bytes, nanoseconds: int) -> bytes:
    """Write a time in microseconds, with all its digits; nothing for a missing one."""
    if nanoseconds <= NO_DURATION:
        return b""
    sign, nanoseconds = b"-" if nanoseconds < 0 else b"", abs(nanoseconds)
    return b'"%b":%b%d.%03d,' % (key, sign, nanoseconds // 1000, nanoseconds % 1000)


def _fit(value: int | None, missing: int) -> int:
    """Return a time in ns, `missing` where there is none or a damaged one beyond 64 bits."""
    return value if value is not None and abs(value) < _MAX_TIME else missing


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
