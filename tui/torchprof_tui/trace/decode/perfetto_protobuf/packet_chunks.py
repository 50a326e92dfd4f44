"""Cut a stream of Perfetto packets into chunks of whole packets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torchprof_tui.trace.core.arrays import I64, U8
from torchprof_tui.trace.decode.foreign_formats import is_xplane
from torchprof_tui.trace.perfetto_protobuf.wire_format import BYTES, U64, VARINT, WireError, parse_varint, read_varints

CHUNK_BYTES = 1 << 20
"""Bytes of packets that are decoded at once: about 20,000 packets, whose columns stay in the processor's cache."""

MAX_PACKET_BYTES = 256 << 20
"""A packet that claims to be longer is damaged; the longest hold all names of a trace."""

PACKET_TAG = 0x0A
"""The tag of the only field of a Trace message: 1, of bytes."""

_NUMBERS = frozenset((3, 8, 10, 13, 41, 42, 58, 79, 87, 98))
_MAX_NUMBER = 4096
_PROBED_PACKETS = 8


@dataclass(frozen=True, slots=True)
class PacketChunk:
    """Whole packets. `offset`: of `text` in the whole stream. `tag`, `begin`, `end` int64[n]: in `text`, where the tag
    of each packet is, and where its message begins and ends."""

    text: bytes
    offset: int
    tag: I64
    begin: I64
    end: I64


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
            wire = VARINT if tag >> 3 in _NUMBERS else BYTES
            if tag & 7 != wire or not 0 < tag >> 3 < _MAX_NUMBER:
                return False
            value, position = parse_varint(data, position)
        except WireError:
            return is_cut and position > 0
        position += value if wire == BYTES else 0
    return is_cut or position == len(data)


class PacketChunker:
    """Cuts a stream of blocks. `damage`: why reading ended before the stream did, or inside a packet; "" if it did not.

    `is_cut_short`: the stream ended inside a packet.
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
                tags, end, missing = _find_packets(text, position, self._chunk_size)
                if len(tags):
                    yield self._make_chunk(text[position:end], tags, position)
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

    def _make_chunk(self, text: bytes, tags: I64, position: int) -> PacketChunk:
        tag = tags - position
        end = np.append(tag[1:], len(text))
        buffer = np.frombuffer(text, np.uint8)
        begin = tag + 2
        more = np.flatnonzero(buffer[tag + 1] >= 128)
        while len(more):
            begin[more] += 1
            more = more[buffer[begin[more] - 1] >= 128]
        chunk = PacketChunk(text, self.offset, tag, begin, end)
        self.offset += len(text)
        return chunk


def _find_packets(text: bytes, position: int, size: int) -> tuple[I64, int, int]:
    """Find the whole packets from a position on, about `size` bytes of them.

    Returns where their tags are, int64[n], where they end, and, if there is none, how many bytes the first one needs:
    -1 where these bytes are no packet.
    """
    limit = min(position + size, len(text))
    linked = _link_packets(np.frombuffer(text, np.uint8)[position:], limit - position)
    tags, end, missing = _walk_packets(text, position + int(linked[-1]), limit)
    if len(linked) == 1:
        return tags, end, missing
    return np.concatenate([linked[:-1] + position, tags]), end, 0


def _link_packets(buffer: U8, limit: int) -> I64:
    """Find packets that follow each other from the first byte on: int64[at least 1], where their tags are.

    The last one may be no packet. Each packet tells where the next one is, which is slow to follow one by one: bytes
    that look like a tag are candidates, those that no other candidate leads to are dropped, and what is left is right
    where each leads to the next.
    """
    words: U64 = np.ndarray((max(len(buffer) - 7, 0),), "<u8", buffer.data, strides=(1,))
    limit = min(limit, len(words) - _MAX_HEAD_BYTES)
    candidate = np.flatnonzero(buffer[: max(limit, 0)] == PACKET_TAG)
    if not len(candidate) or candidate[0]:
        return np.zeros(1, np.int64)
    length, size = read_varints(buffer, words, candidate + 1)
    length[(size == 0) | (length > np.uint64(MAX_PACKET_BYTES))] = MAX_PACKET_BYTES
    following = candidate + 1 + size + length.view(np.int64)
    for _ in range(_MAX_ROUNDS):
        is_led_to = np.zeros(limit + 1, np.bool_)
        is_led_to[np.minimum(following, limit)] = True
        is_led_to[0] = True
        kept = is_led_to[candidate]
        if kept.all():
            break
        candidate, following = candidate[kept], following[kept]
    parts, first = [], 0
    for _ in range(_MAX_STRETCHES):
        wrong = np.flatnonzero(candidate[first + 1 :] != following[first:-1])
        last = first + int(wrong[0]) if len(wrong) else len(candidate) - 1
        parts.append(candidate[first : last + 1])
        first = int(candidate.searchsorted(following[last]))  # those between lie inside a packet
        if first == len(candidate) or candidate[first] != following[last]:
            break
    return np.concatenate(parts)


def _walk_packets(text: bytes, position: int, limit: int) -> tuple[I64, int, int]:
    """Find the whole packets from a position on one by one; see `_find_packets`."""
    start = position
    tags: list[int] = []
    add = tags.append
    try:
        while position < limit:
            add(position)
            length = text[position + 1]
            if length < 128:
                position += length + 2
            elif text[position + 2] < 128:
                position += length + (text[position + 2] << 7) - 125
            elif text[position + 3] >= 128 > text[position + 4]:  # as Perfetto's writer pads lengths
                second, third, fourth = text[position + 2 : position + 5]
                position += length + (second << 7) + (third << 14) + (fourth << 21) - _PADDED_BITS
            else:
                length, position = parse_varint(text, position + 1)
                position += length
    except (IndexError, WireError):
        position = len(text) + 1  # the last one is cut, or damaged
    if tags and position > len(text):
        position = tags.pop()
    wrong = np.flatnonzero(np.frombuffer(text, np.uint8)[tags] != PACKET_TAG)
    if len(wrong):
        position = tags[int(wrong[0])]
        del tags[int(wrong[0]) :]
    missing = 0 if tags or position >= limit else _measure_packet(text, position) + position - start
    return np.array(tags, np.int64), position, missing


def _measure_packet(text: bytes, position: int) -> int:
    """Return how many bytes a packet needs that `text` has not whole; a very negative number for what is none."""
    if text[position] != PACKET_TAG:
        return _NO_PACKET
    try:
        length, begin = parse_varint(text, position + 1)
    except WireError:
        return 2 * _MAX_HEAD_BYTES if len(text) - position < _MAX_HEAD_BYTES else _NO_PACKET
    return begin - position + length if length <= MAX_PACKET_BYTES else _NO_PACKET


_PADDED_BITS = 128 + (128 << 7) + (128 << 14) - 5
"""The bits of a length of four bytes that say that it goes on, less the bytes of the tag and the length."""

_MAX_HEAD_BYTES = 11
"""The tag and the length of a packet."""

_MAX_ROUNDS = 8
"""Candidates inside packets lead to each other a few times at most; more is left to the comparison that follows."""

_MAX_STRETCHES = 256
"""Stretches of packets without such candidates between them in a chunk; what follows is walked one by one."""

_NO_PACKET = -(1 << 62)
