"""Read entries from the packets of a Perfetto trace: only those that are asked for are converted.

What packets refer to (names, tracks) is in a file of its own beside the columns. Times and durations are columns,
because a slice's end is another packet.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from torchprof_tui.trace.core.arrays import I32, I64
from torchprof_tui.trace.core.column_file import crc32
from torchprof_tui.trace.core.errors import TraceChangedError
from torchprof_tui.trace.perfetto_protobuf.packet_context import PacketContext as PacketContext
from torchprof_tui.trace.perfetto_protobuf.packet_context import make_location
from torchprof_tui.trace.perfetto_protobuf.packet_entries import Entry, convert_packet
from torchprof_tui.trace.perfetto_protobuf.wire_format import WireError, parse_fields, parse_varint
from torchprof_tui.trace.text.block_text import CHANGED_MESSAGE, BlockText, FileText, ParseChunk, PlainText, read_spans

CONTEXT_FILE = "packets.json"

_NO_VALUE = -(2**63) + 1
"""Below and at this number a time or a duration is missing (`model/raw_events.py`)."""


@dataclass
class PacketText(FileText):
    """The packets of a file: in place, or as compressed blocks if `is_compressed`.

    Of each of n entries: `position` int32[n], where its packet begins in its chunk, `time` and `duration` int64[n], ns
    on the file's clock. The last chunk has no bytes: its entries are in the context file, whose CRC-32 is
    `context_checksum`.
    """

    position: I32
    time: I64
    duration: I64
    is_compressed: bool
    context_path: Path
    context_checksum: int
    _context: tuple[PacketContext, list[Entry]] | None = field(default=None, init=False, repr=False, compare=False)
    _last_chunk: tuple[int, bytes] = field(default=(-1, b""), init=False, repr=False, compare=False)

    def read_entry(self, ordinal: int, parse: ParseChunk) -> dict[str, Any]:
        """Read one entry; see `TextIndex.read_entry`."""
        chunk = int(np.searchsorted(self.first, ordinal, side="right")) - 1
        if chunk < 0:
            raise LookupError(f"no entry {ordinal}")
        return self.read_chosen(chunk, [ordinal - int(self.first[chunk])])[0]

    def read_chosen(self, chunk: int, indices: list[int]) -> list[dict[str, Any]]:
        """Read the entries at these indices of a chunk. Raises OSError, LookupError."""
        ((_, text),) = self._read_packets([chunk])
        entries = self._convert(chunk, text, indices)
        for index, entry in zip(indices, entries, strict=True):
            time = int(self.time[int(self.first[chunk]) + index])
            if time > _NO_VALUE:
                entry["ts"] = time / 1000
        return entries

    def read_texts(self, chunks: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """Yield (chunk, text), the text as JSON; see `TextIndex.read_texts`."""
        for chunk, text in self._read_packets(chunks):
            first, end = int(self.first[chunk]), self._end_of(chunk)
            entries = self._convert(chunk, text, list(range(end - first)))
            yield chunk, b",\n".join(map(_dump_entry, entries, self.time[first:end].tolist()))

    def is_intact(self) -> bool:
        """Return whether all files of the text are those that were written: reads all of them."""
        try:
            is_context = crc32(self.context_path.read_bytes()) == self.context_checksum
        except OSError:
            return False
        stored = self._get_stored()
        return is_context and (not isinstance(stored, BlockText) or stored.is_intact())

    def _get_stored(self) -> FileText:
        kind = BlockText if self.is_compressed else PlainText
        return kind(self.path, self.first, self.offset, self.length, self.checksum)

    def _read_packets(self, chunks: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        chunks = list(chunks)
        with_bytes = [chunk for chunk in chunks if self.length[chunk]]
        yield from self._get_stored().read_texts(with_bytes)
        yield from ((chunk, b"") for chunk in chunks if not self.length[chunk])

    def _read_stored(self, chunks: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        return read_spans(self.path, self.offset, self.length, chunks)

    def _end_of(self, chunk: int) -> int:
        """Return the ordinal after the last entry of a chunk."""
        return int(self.first[chunk + 1]) if chunk + 1 < len(self.first) else len(self.time)

    def _convert(self, chunk: int, text: bytes, indices: list[int]) -> list[Entry]:
        """Convert the entries at these indices of a chunk; they have no `ts`."""
        context, described = self._load_context()
        first, end = int(self.first[chunk]), self._end_of(chunk)
        if any(not 0 <= index < end - first for index in indices):
            raise TraceChangedError(CHANGED_MESSAGE)
        if not self.length[chunk]:
            return [dict(described[index]) for index in indices]
        converted: dict[int, list[Entry]] = {}
        entries = []
        for index in indices:
            ordinal = first + index
            position = int(self.position[ordinal])
            if position not in converted:
                converted[position] = self._conversion.convert_at(context, chunk, text, position)
            before = 0  # entries of the same packet are neighbours
            while index > before and self.position[ordinal - before - 1] == position:
                before += 1
            if before >= len(converted[position]):
                raise TraceChangedError(CHANGED_MESSAGE)
            entry = dict(converted[position][before])
            duration = int(self.duration[ordinal])
            if duration > _NO_VALUE:
                entry["dur"] = duration / 1000
                entry["ph"] = "X"  # of a begin, whose end was found
            entries.append(entry)
        return entries

    @property
    def _conversion(self) -> Any:
        """What converts packets, imported by name: other texts have none."""
        return importlib.import_module("torchprof_tui.trace.text.packet_text")

    def _load_context(self) -> tuple[PacketContext, list[Entry]]:
        if self._context is None:
            data = self.context_path.read_bytes()
            if crc32(data) != self.context_checksum:
                raise TraceChangedError("the cache entry of this trace is damaged: open the trace again")
            fields = orjson.loads(data)
            self._context = self._conversion.PacketContext.from_json(fields["context"]), fields["entries"]
        return self._context


def write_context(path: Path, context: PacketContext, entries: list[Entry]) -> int:
    """Write the context file; returns its CRC-32. `entries`: those of the last chunk. Raises OSError."""
    data = orjson.dumps({"context": context.to_json(), "entries": entries}, option=orjson.OPT_NON_STR_KEYS)
    path.write_bytes(data)
    return crc32(data)


def _dump_entry(entry: Entry, time: int) -> bytes:
    """Write an entry as JSON. `time`: ns, written with all its digits."""
    text = orjson.dumps(entry, option=orjson.OPT_NON_STR_KEYS)
    if time <= _NO_VALUE:
        return text
    sign, time = b"-" if time < 0 else b"", abs(time)
    return b'{"ts":%b%d.%03d,%b' % (sign, time // 1000, time % 1000, text[1:])


_SEQUENCE_FIELD = 10


def convert_at(context: PacketContext, chunk: int, text: bytes, position: int) -> list[Entry]:
    """Convert the packet at a position of a chunk. Raises TraceChangedError where there is none."""
    try:
        size, begin = parse_varint(text, position + 1)
        packet = text[begin : begin + size]
        fields = [*parse_fields(packet)]
        sequence = next((value for number, value in fields if number == _SEQUENCE_FIELD), 0)
        table = context.find_table(sequence if isinstance(sequence, int) else 0, make_location(chunk, position))
        return convert_packet(fields, context.tables[table], context.tracks, context.resolved.find_ids).entries
    except WireError as error:
        raise TraceChangedError(CHANGED_MESSAGE) from error
