"""Read the protobuf wire format: one message at a time, and the fields of many messages at once.

As protobuf.dev/programming-guides/encoding describes it: a message is a run of fields, each a tag (number << 3 | wire
type) and a value. Groups (wire types 3 and 4) are obsolete; a message with one is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from torchprof_tui.trace.core.arrays import I64, U8, Bool

U64: TypeAlias = npt.NDArray[np.uint64]

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types."""

PADDING = bytes(16)
"""What must follow the messages in the buffer that `scan_fields` reads: it loads eight bytes at a time."""

Value: TypeAlias = int | bytes

_MAX_VARINT_BYTES = 10
_WORD_BYTES = 8

_MAX_PASSES, _MAX_WALKED = 48, 64
"""After so many passes, so many messages or fewer are walked one by one: a pass would cost more than its fields."""

_WALKED_BYTES = 4096
"""A block of `_walk_message`."""

_CONTINUED = np.uint64(0x8080808080808080)
_BYTE_COUNTS = np.uint64(sum((k + 1) << 8 * (7 - k) for k in range(8)))
_PAIRS = np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00)
_QUADS = np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000)
_HALVES = np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000)


class WireError(ValueError):
    """These bytes are no protobuf message."""


def parse_varint(data: bytes, position: int) -> tuple[int, int]:
    """Parse the varint at a position: its value, below 2^64, and the position after it. Raises WireError."""
    value = shift = 0
    for index in range(position, min(position + _MAX_VARINT_BYTES, len(data))):
        byte = data[index]
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFFFFFFFFFFFFFF, index + 1
        shift += 7
    raise WireError("a varint without an end")


def parse_fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """Yield (field number, value) of one message: an integer, the fixed ones unsigned, or bytes. Raises WireError."""
    position, end = 0, len(data)
    while position < end:
        tag, position = parse_varint(data, position)
        wire = tag & 7
        value: Value
        if wire == VARINT:
            value, position = parse_varint(data, position)
        else:
            if wire == BYTES:
                size, position = parse_varint(data, position)
            elif wire in (FIXED64, FIXED32):
                size = 8 if wire == FIXED64 else 4
            else:
                raise WireError(f"wire type {wire}")
            if position + size > end:
                raise WireError("a field that ends after its message")
            value = data[position : position + size]
            if wire != BYTES:
                value = int.from_bytes(value, "little")
            position += size
        yield tag >> 3, value


def to_signed(value: int) -> int:
    """Convert the unsigned 64 bits of an int32 or int64 field."""
    return value - (1 << 64) if value >= 1 << 63 else value


def to_double(value: int) -> float:
    """Convert the bits of a double field."""
    number: float = struct.unpack("<d", value.to_bytes(8, "little"))[0]
    return number


@dataclass(frozen=True, slots=True)
class ScannedFields:
    """All fields of n messages, k of them, ordered by their index within the message, then by message.

    `message` int64[k]; `number` int64[k]: the field's; `wire` uint8[k]; `value` uint64[k]: the number, or the size in
    bytes of a field of bytes; `begin` int64[k]: where the bytes begin in the buffer. `damaged` bool[n]: messages that
    are none; their fields up to the damage are there.
    """

    message: I64
    number: I64
    wire: U8
    value: U64
    begin: I64
    damaged: Bool


class _Fields(NamedTuple):
    """One field at each of k positions. `tag` int64, `value` uint64; `begin`, `end` int64: of its value; `bad` bool."""

    tag: I64
    value: U64
    begin: I64
    end: I64
    bad: Bool

    def select(self, chosen: I64 | Bool | slice) -> _Fields:
        """Return the fields at these indices, or of this mask."""
        return _Fields(self.tag[chosen], self.value[chosen], self.begin[chosen], self.end[chosen], self.bad[chosen])


def _join_fields(parts: Sequence[_Fields]) -> _Fields:
    return _Fields(
        np.concatenate([part.tag for part in parts]),
        np.concatenate([part.value for part in parts]),
        np.concatenate([part.begin for part in parts]),
        np.concatenate([part.end for part in parts]),
        np.concatenate([part.bad for part in parts]),
    )


def scan_fields(buffer: U8, begin: I64, end: I64) -> ScannedFields:
    """Scan n messages, message k in `buffer[begin[k]:end[k]]`; `buffer` ends with PADDING.

    Works on all messages at once, field by field: a pass for each field. Where few messages have many more fields,
    these are walked one message at a time.
    """
    words: U64 = np.ndarray((len(buffer) - _WORD_BYTES + 1,), "<u8", buffer.data, strides=(1,))
    readable = len(buffer) - len(PADDING)
    damaged = end > readable  # a damaged size leads beyond the text
    message = np.flatnonzero(np.minimum(end, readable) > begin)
    cursor, limit = begin[message], np.minimum(end[message], readable)
    parts: list[tuple[I64, _Fields]] = []
    while len(message):
        if len(parts) >= _MAX_PASSES and len(message) <= _MAX_WALKED:
            parts.append(_walk_messages(buffer, words, message, cursor, limit, damaged))
            break
        fields = _read_fields(buffer, words, cursor, limit)
        if fields.bad.any():
            damaged[message[fields.bad]] = True
            keep = ~fields.bad
            message, limit = message[keep], limit[keep]
            fields = fields.select(keep)
        parts.append((message, fields))
        more = fields.end < limit
        if more.all():
            cursor = fields.end
        else:
            rest = np.flatnonzero(more)
            message, cursor, limit = message[rest], fields.end[rest], limit[rest]
    if not parts:
        nothing = np.zeros(0, np.int64)
        return ScannedFields(nothing, nothing, nothing.astype(np.uint8), nothing.astype(np.uint64), nothing, damaged)
    messages = np.concatenate([message for message, _ in parts])
    tag = np.concatenate([fields.tag for _, fields in parts])
    value = np.concatenate([fields.value for _, fields in parts])
    begins = np.concatenate([fields.begin for _, fields in parts])
    return ScannedFields(messages, tag >> 3, (tag & 7).astype(np.uint8), value, begins, damaged)


def _read_fields(buffer: U8, words: U64, cursor: I64, limit: I64) -> _Fields:
    """Read a field at each of k positions, int64[k]; `limit` int64[k]: where its message ends."""
    first = buffer[cursor]
    tag = first.astype(np.int64)
    after = cursor + 1
    long = np.flatnonzero(first >= 128)
    if len(long):
        long_tag, size = _read_long_varints(buffer, words, cursor[long])
        tag[long] = long_tag.astype(np.int64) & 0xFFFFFFFF
        after[long] += size - 1
    value, size = read_varints(buffer, words, after)
    wire = (tag & 7).astype(np.uint8)
    position = after + size
    if wire.any():
        is_bytes = wire == BYTES
        position += value.view(np.int64) * is_bytes
        fixed = np.flatnonzero((wire == FIXED64) | (wire == FIXED32))
        if len(fixed):
            width = np.where(wire[fixed] == FIXED64, 8, 4)
            value[fixed] = words[np.minimum(after[fixed], len(words) - 1)]
            value[fixed[width == 4]] &= np.uint64(0xFFFFFFFF)
            position[fixed] = after[fixed] + width
            size[fixed] = np.maximum(size[fixed], 1)
        bad = (position > limit) | (position < after) | (wire == 3) | (wire == 4) | (wire > FIXED32) | (size == 0)
    else:
        bad = (position > limit) | (size == 0)
    return _Fields(tag, value, after + size, position, bad)


def _walk_messages(buffer: U8, words: U64, message: I64, cursor: I64, limit: I64, damaged: Bool) -> tuple[I64, _Fields]:
    """Read the rest of a few messages, ordered by index of the field, then by message; marks the damaged ones."""
    walks: list[_Fields] = []
    for number, at, end in zip(message.tolist(), cursor.tolist(), limit.tolist(), strict=True):
        fields = _walk_message(buffer, words, at, end)
        if fields.bad[-1]:
            damaged[number] = True
            fields = fields.select(slice(-1))
        walks.append(fields)
    lengths = [len(fields.tag) for fields in walks]
    owner = np.repeat(message, lengths)
    order = np.lexsort((owner, np.concatenate([np.arange(length) for length in lengths])))
    return owner[order], _join_fields(walks).select(order)


def _walk_message(buffer: U8, words: U64, at: int, limit: int) -> _Fields:
    """Read the fields of `buffer[at:limit]`, of which only the last can be bad.

    A block of bytes at a time: reads a field at each byte, as if one began there, then steps from field to field.
    """
    parts: list[_Fields] = []
    is_bad = False
    while at < limit and not is_bad:
        cursor = np.arange(at, min(at + _WALKED_BYTES, limit))
        fields = _read_fields(buffer, words, cursor, np.full(len(cursor), limit))
        steps = np.where(fields.bad, limit, fields.end).tolist()
        found, origin, stop = [], at, at + len(cursor)
        while at < stop:
            found.append(at - origin)
            at = steps[at - origin]
        parts.append(fields.select(np.array(found)))
        is_bad = bool(fields.bad[found[-1]])
    return _join_fields(parts)


def read_varints(buffer: U8, words: U64, position: I64) -> tuple[U64, I64]:
    """Read the varints at these positions: uint64[n] and how many bytes each has, 0 for one without an end."""
    first = buffer[position]
    long = np.flatnonzero(first >= 128)
    if 2 * len(long) > len(first):
        return _read_long_varints(buffer, words, position)
    value, size = first.astype(np.uint64), np.ones(len(first), np.int64)
    if len(long):  # most numbers are below 128
        value[long], size[long] = _read_long_varints(buffer, words, position[long])
    return value, size


def _read_long_varints(buffer: U8, words: U64, position: I64) -> tuple[U64, I64]:
    """Read varints as `read_varints` does, of any length."""
    word = words[position]
    last = ~word & _CONTINUED
    last &= np.uint64(0) - last  # the lowest bit: the top of the last byte
    size = ((last >> np.uint64(7)) * _BYTE_COUNTS >> np.uint64(56)).view(np.int64)
    word &= last - np.uint64(1)  # all bits, where there is no last byte
    word &= ~_CONTINUED
    word = (word & _PAIRS[0]) | (word & _PAIRS[1]) >> np.uint64(1)
    word = (word & _QUADS[0]) | (word & _QUADS[1]) >> np.uint64(2)
    word = (word & _HALVES[0]) | (word & _HALVES[1]) >> np.uint64(4)
    long = np.flatnonzero(size == 0)
    if len(long):  # nine bytes, as times since the epoch have, or ten, as negative numbers have
        ninth, tenth = buffer[position[long] + 8].astype(np.uint64), buffer[position[long] + 9].astype(np.uint64)
        has_tenth = ninth >= 128
        word[long] |= (ninth & np.uint64(127)) << np.uint64(56)
        word[long] |= np.where(has_tenth, (tenth & np.uint64(1)) << np.uint64(63), np.uint64(0))
        size[long] = np.where(has_tenth, np.where(tenth < 128, 10, 0), 9)
    return word, size
