"""Read the protobuf wire format, one message at a time.

As protobuf.dev/programming-guides/encoding describes it: a message is a run of fields, each a tag (number << 3 | wire
type) and a value. Groups (wire types 3 and 4) are obsolete; a message with one is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TypeAlias

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types."""

Value: TypeAlias = int | bytes

_MAX_VARINT_BYTES = 10


class WireError(ValueError):
    """These bytes are no protobuf message."""


def parse_varint(data: bytes, position: int) -> tuple[int, int]:
    """Parse the varint at a position: its value, below 2^64, and the position after it. Raises WireError."""
    if position < len(data) and data[position] < 128:  # most numbers are below 128
        return data[position], position + 1
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
        tag = data[position]
        if tag < 128:
            position += 1
        else:
            tag, position = parse_varint(data, position)
        wire = tag & 7
        if wire in (FIXED64, FIXED32):
            size = 8 if wire == FIXED64 else 4
        elif wire in (VARINT, BYTES):
            if position < end and data[position] < 128:
                size = data[position]
                position += 1
            else:
                size, position = parse_varint(data, position)
            if wire == VARINT:
                yield tag >> 3, size
                continue
        else:
            raise WireError(f"wire type {wire}")
        last = position + size
        if last > end:
            raise WireError("a field that ends after its message")
        value = data[position:last]
        position = last
        yield tag >> 3, value if wire == BYTES else int.from_bytes(value, "little")


def to_signed(value: int) -> int:
    """Convert the unsigned 64 bits of an int32 or int64 field."""
    return value - (1 << 64) if value >= 1 << 63 else value


def to_double(value: int) -> float:
    """Convert the bits of a double field."""
    number: float = struct.unpack("<d", value.to_bytes(8, "little"))[0]
    return number
