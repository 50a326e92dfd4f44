"""Read the protobuf wire format, one message at a time; the field numbers of Perfetto's trace packets.

As protobuf.dev/programming-guides/encoding describes it: a message is a run of fields, each a tag (number << 3 | wire
type) and a value. Groups (wire types 3 and 4) are obsolete; a message with one is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import TypeAlias

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types

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


def get_number(fields: Mapping[int, Value], number: int, missing: int = 0) -> int:
    """Return the value of an integer field, `missing` where there is none. Raises WireError for bytes."""
    value = fields.get(number, missing)
    if not isinstance(value, int):
        raise WireError(f"field {number} is no number")
    return value


def to_signed(value: int) -> int:
    """Convert the unsigned 64 bits of an int32 or int64 field."""
    return value - (1 << 64) if value >= 1 << 63 else value


def to_double(value: int) -> float:
    """Convert the bits of a double field."""
    number: float = struct.unpack("<d", value.to_bytes(8, "little"))[0]
    return number


class Packet:
    """TracePacket."""

    CLOCK_SNAPSHOT = 6
    TIMESTAMP = 8
    SEQUENCE = 10
    TRACK_EVENT = 11
    INTERNED_DATA = 12
    FLAGS = 13
    STATE_CLEARED = 41
    GPU_COUNTER = 52
    RENDER_STAGE = 53
    CLOCK = 58
    DEFAULTS = 59
    TRACK_DESCRIPTOR = 60


FLAG_STATE_CLEARED = 1


class Event:
    """TrackEvent, and what one may have by default."""

    CATEGORY_IIDS = 3
    ANNOTATIONS = 4
    TYPE = 9
    NAME_IID = 10
    TRACK = 11
    CATEGORIES = 22
    NAME = 23
    COUNTER = 30
    OLD_FLOWS = 36
    OLD_ENDING_FLOWS = 42
    DOUBLE_COUNTER = 44
    FLOWS = 47
    ENDING_FLOWS = 48


BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4  # TrackEvent.Type


class Annotation:
    """DebugAnnotation."""

    NAME_IID = 1
    BOOL = 2
    UINT = 3
    INT = 4
    DOUBLE = 5
    STRING = 6
    POINTER = 7
    JSON = 9
    NAME = 10
    DICT = 11
    ARRAY = 12
    STRING_IID = 17


class Stage:
    """GpuRenderStageEvent."""

    DURATION = 2
    EXTRA = 6
    GPU = 11
    QUEUE_IID = 13
    STAGE_IID = 14
    NAME = 17
    NAME_IID = 20
    LAUNCH = 21


class Interned:
    """InternedData; the compute names are an extension of Perfetto's for GPU profilers."""

    CATEGORIES = 1
    NAMES = 2
    ANNOTATION_NAMES = 3
    GPU_SPECIFICATIONS = 24
    STRINGS = 29
    GPU_COUNTERS = 47
    COMPUTE_ARGS = 1001


LEFT_OUT_PACKETS = {
    1: "ftrace",
    2: "process tree",
    4: "inodes",
    5: "Chrome events",
    7: "system statistics",
    9: "process statistics",
    37: "heap profiles",
    38: "battery",
    39: "Android log",
    40: "power rails",
    50: "compressed packets",
    54: "sampled stacks",
    57: "graphics frames",
    66: "sampled stacks",
    73: "memory snapshots",
    77: "energy estimates",
    133: "compressed packets",
}
"""Packets with data that are not read, by what they hold; other numbers are named by their number."""

IGNORED_PACKETS = frozenset(
    (3, 6, 8, 10, 12, 13, 33, 34, 35, 36, 41, 42, 43, 44, 45, 46, 47, 51, 58, 59, 60, 61, 63, 64, 67, 69, 72, 79, 82)
) | frozenset((87, 89, 98, 107, 113, 123, 124, 126, 128, 138))
"""Fields of packets that hold no data of their own: clocks, configuration, names, statistics of the recording."""
