"""Damaged and truncated .pftrace files: what can be read opens, the rest is one clear line; nothing crashes."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.long_run import keep_some
from tests.helpers.paths import FIXTURES
from torchprof_tui.trace.build.build_trace import build_trace
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.problems import CUT_SHORT, UNREADABLE_ENTRY
from torchprof_tui.trace.decode.general_decoder import decode_trace
from torchprof_tui.trace.decode.packet_decoder import PACKET_TAG, PacketChunker, looks_like_packets
from torchprof_tui.trace.json_text.salvage import parse_chunk
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.perfetto_protobuf.packet_context import Track, TrackTable
from torchprof_tui.trace.perfetto_protobuf.wire_format import WireError, parse_varint
from torchprof_tui.trace.sources.source import open_source

_DATA = gzip.decompress((FIXTURES / "pftrace" / "cuda_graph_replay.pftrace.gz").read_bytes())


def _open(data: bytes, folder: Path) -> Trace | None:
    """Build the trace of these bytes and read all entries; None where there is one line that says why not."""
    path = folder / "t.pftrace"
    path.write_bytes(data)
    try:
        trace = build_trace(decode_trace(open_source(str(path)), folder), "t")
    except TraceError as error:
        line = str(error)
    else:
        line = ""
    if line:
        assert "\n" not in line
        assert 10 < len(line) < 600
        return None
    for chunk, text in trace.text.read_texts(range(len(trace.text.first))):
        ends = [*trace.text.first[1:].tolist(), trace.counts.events - trace.counts.not_drawn.get("unreadable", 0)]
        assert len(parse_chunk(text)) == ends[chunk] - trace.text.first[chunk]
    for ordinal in trace.ordinal.tolist():
        trace.read_entry(ordinal)
    return trace


def test_a_file_cut_short_has_the_events_before(tmp_path: Path) -> None:
    events = []
    tags = [tag for tag, _, _ in next(iter(PacketChunker(iter([_DATA])))).packets]
    for size in [tag + 4 for tag in tags[::67]]:  # an end between two packets cannot be told from a whole file
        trace = _open(_DATA[:size], tmp_path)
        if trace is not None:
            events.append(len(trace))
            assert [problem.kind for problem in trace.problems].count(CUT_SHORT) == 1, size
    assert events == sorted(events)
    assert len(events) > 3


def test_a_file_cut_before_its_first_event_says_so(tmp_path: Path) -> None:
    path = tmp_path / "t.pftrace"
    path.write_bytes(_DATA[:300])
    with pytest.raises(TraceError, match=r"cut short before its first event: the file ends inside the packet .* byte"):
        decode_trace(open_source(str(path)), tmp_path)


@pytest.mark.parametrize("seed", keep_some(range(60), 6))
def test_changed_bytes_never_crash(seed: int, tmp_path: Path) -> None:
    chosen = random.Random(seed)
    data = bytearray(_DATA)
    for _ in range(chosen.choice([1, 3, 30, 300])):
        data[chosen.randrange(len(data))] = chosen.randrange(256)
    if chosen.random() < 0.3:
        del data[chosen.randrange(len(data)) :]
    if chosen.random() < 0.3:
        at = chosen.randrange(len(data))
        data[at:at] = chosen.randbytes(chosen.randrange(40))
    _open(bytes(data), tmp_path)


@pytest.mark.parametrize("seed", keep_some(range(40), 5))
def test_one_changed_byte_after_the_head_leaves_a_trace(seed: int, tmp_path: Path) -> None:
    data = bytearray(_DATA)
    data[random.Random(seed).randrange(6000, len(data))] ^= 1 << seed % 8
    assert _open(bytes(data), tmp_path) is not None


def test_what_follows_the_packets_is_reported(tmp_path: Path) -> None:
    trace = _open(_DATA + b"\x00garbage", tmp_path)
    assert trace is not None
    assert [(p.kind, p.example) for p in trace.problems] == [
        (UNREADABLE_ENTRY, f"from byte {len(_DATA)} on this is no packet")
    ]


_HEADS = [
    *(b'\n{"traceEvents": [', b"\n\n[{", b"\n", b"", b"{}"),
    *(b'\n{\n  "schemaVersion": 1,\n', b"\x0a\x00\x00", b"SQLite"),
]


@pytest.mark.parametrize("head", _HEADS)
def test_other_files_are_no_packets(head: bytes) -> None:
    assert not looks_like_packets(head + b" " * 300)
    assert not looks_like_packets(head)


@pytest.mark.parametrize("block_size", [1, 7, 1000, 10**6])
@pytest.mark.parametrize("chunk_size", [1, 300, 5000, 10**6])
def test_chunks_are_whole_packets_however_the_stream_comes(block_size: int, chunk_size: int) -> None:
    data = _DATA[:4000]
    chunker = PacketChunker(iter([data[k : k + block_size] for k in range(0, len(data), block_size)]), chunk_size)
    chunks = list(chunker)
    whole = next(iter(PacketChunker(iter([data]))))
    assert b"".join(chunk.text for chunk in chunks) == whole.text
    found = [(chunk.offset + tag, chunk.offset + begin) for chunk in chunks for tag, begin, _ in chunk.packets]
    assert found == [(tag, begin) for tag, begin, _ in whole.packets]
    assert chunker.is_cut_short


def list_packets(data: bytes) -> list[tuple[int, int]]:
    """List (tag, begin) of the whole packets, one by one."""
    packets, position = [], 0
    while position < len(data) and data[position] == PACKET_TAG:
        try:
            size, begin = parse_varint(data, position + 1)
        except WireError:
            break
        if begin + size > len(data):
            break
        packets.append((position, begin))
        position = begin + size
    return packets


def pad_length(size: int, is_padded: bool) -> bytes:
    """Encode the length of a packet, if wanted in four bytes as Perfetto's own writer does."""
    digits = [size >> 7 * k & 127 for k in range(4)]
    while len(digits) > 1 and not digits[-1] and not is_padded:
        digits.pop()
    return bytes([*(digit | 128 for digit in digits[:-1]), digits[-1]])


_MISLEADING = st.lists(st.sampled_from([0, 1, 2, 3, 10, 10, 10, 12, 128, 130, 255]), max_size=200).map(bytes)


@given(
    packets=st.lists(st.tuples(_MISLEADING, st.booleans(), st.sampled_from([1, 1, 1, 90])), max_size=60),
    damage=st.none() | st.tuples(st.integers(0, 10**4), st.integers(0, 255)),
    cut=st.integers(0, 40),
    chunk_size=st.sampled_from([1, 64, 500, 1 << 20]),
)
def test_packets_are_those_of_a_plain_loop_whatever_they_contain(
    packets: list[tuple[bytes, bool, int]], damage: tuple[int, int] | None, cut: int, chunk_size: int
) -> None:
    data = bytearray()
    for content, is_padded, repeats in packets:
        data += b"\n" + pad_length(len(content) * repeats, is_padded) + content * repeats
    if damage is not None and data:
        data[damage[0] % len(data)] = damage[1]
    whole = bytes(data[: max(len(data) - cut, 0)])
    chunks = list(PacketChunker(iter([whole]), chunk_size))
    found = [(chunk.offset + tag, chunk.offset + begin) for chunk in chunks for tag, begin, _ in chunk.packets]
    assert found == list_packets(whole)


class CountedTracks(dict[int, Track]):
    """Counts how often all tracks are visited."""

    visits = 0

    def values(self) -> Any:
        self.visits += 1
        return super().values()


def test_tracks_are_resolved_in_linear_time() -> None:
    """Each track of the profiler's process was compared with all others."""
    table = TrackTable(CountedTracks())
    for uuid in range(1, 200):
        table.tracks[uuid] = Track(thread=("2147483647", str(uuid), ""))
    assert table.resolve().ids[7] == ("2147483647", "7")
    assert table.tracks.visits <= 2  # type: ignore[attr-defined]
