"""Cut a list of entries into chunks: neither blocks of the source nor the fast decoder change where a chunk ends."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.decoder_input import entry_text
from torchprof_tui.trace.core import problems
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.core.column_file import crc32
from torchprof_tui.trace.core.problems import ProblemTally
from torchprof_tui.trace.decode import entry_decoder
from torchprof_tui.trace.decode.column_builder import ColumnBuilder
from torchprof_tui.trace.decode.entry_decoder import Chunk, Chunker, DecodedChunk, EntryDecoder, TextLimits, TextWindow
from torchprof_tui.trace.decode.template.template_decoder import TemplateDecoder

SIZE = 300
"""Bytes of a chunk: one to three entries."""

SEPARATOR = b', {"ph"'
ENTRIES = [entry_text(k, args={"l": [{"a": k}, {"b": '}, {"'}], "s": "\\" * k}) for k in range(24)]
TEXT = ", ".join(ENTRIES).encode()
LARGE = entry_text(99, args={"x": ["y" * 40] * 20}).encode()
END = len(TEXT)

# name: (text, whether the bracket is found, whether a comma is before it, where an unfinished entry begins, the end)
LISTS: dict[str, tuple[bytes, bool, bool, int, int]] = {
    "closed": (TEXT + b'], "traceName": "x"}', True, False, -1, END + 1),
    "closed after space": (TEXT + b" \n ] }", True, False, -1, END + 4),
    "a comma before the bracket": (TEXT + b" , ] }", True, True, -1, END + 4),
    "a comma alone": (b" , ]", True, True, -1, 4),
    "empty": (b"] ", True, False, -1, 1),
    "not closed": (TEXT, False, False, -1, END),
    "cut after a comma": (TEXT + b", ", False, False, -1, END + 2),
    "cut inside an entry": (TEXT + b", " + LARGE[:-70], False, False, END + 1, END + 2 + len(LARGE) - 70),
    "cut inside the first entry": (LARGE[:-9], False, False, 0, len(LARGE) - 9),
    "a large entry": (TEXT + b", " + LARGE + b", " + TEXT + b"]", True, False, -1, 2 * END + len(LARGE) + 5),
    "a damaged entry": (TEXT + b', {"ph": "X", "name": "a "b" c", "pid": 1}, ' + TEXT + b"]", True, False, -1, -1),
    "an unreadable entry": (TEXT + b', {"ph": X], ' + TEXT + b"]", True, False, -1, -1),
    "an unreadable entry at the end": (TEXT + b', {"ph": "X" "name": 5}', False, False, END + 1, -1),
    "commas after the bracket": (TEXT + b"]" + b"," * (2 * SIZE), True, False, -1, END + 1),
}


def cut(
    text: bytes, block_size: int, fast: TemplateDecoder | None = None
) -> tuple[list[Chunk | DecodedChunk], Chunker]:
    """Cut text that arrives in blocks of this size; returns its chunks, and the chunker as it is after the last one."""
    blocks = (text[begin : begin + block_size] for begin in range(0, len(text), block_size))
    chunker = Chunker(TextWindow(blocks), SIZE, fast)
    return list(chunker), chunker


def list_spans(chunks: list[Chunk | DecodedChunk]) -> list[tuple[int, bytes]]:
    return [(chunk.offset, bytes(chunk.text)) for chunk in chunks]


@pytest.mark.parametrize("name", LISTS)
def test_chunks_do_not_depend_on_the_blocks_of_the_source(name: str) -> None:
    text, closed, trailing_comma, partial_offset, end = LISTS[name]
    spans = list_spans(cut(text, len(text))[0])
    assert all(text.startswith(chunk, offset) for offset, chunk in spans)
    for block_size in (1, SIZE, SIZE + 1, len(text)):
        chunks, chunker = cut(text, block_size)
        assert list_spans(chunks) == spans
        assert (chunker.closed, chunker.trailing_comma, chunker.partial_offset) == (
            closed,
            trailing_comma,
            partial_offset,
        )
        assert chunker._window.offset == (end if end >= 0 else len(text))


@pytest.mark.parametrize("name", ["closed", "a large entry", "empty"])
def test_a_chunk_ends_at_the_last_separator_that_its_size_holds(name: str) -> None:
    text = LISTS[name][0]
    close = text.rindex(b"]", 0, LISTS[name][4])
    begin, expected = 0, []
    while begin < close:
        size = SIZE
        while begin + size <= close and text.rfind(SEPARATOR, begin, begin + size) < 0:
            size *= 2  # an entry larger than a chunk
        end = close if begin + size > close else text.rfind(SEPARATOR, begin, begin + size)
        expected.append((begin, text[begin:end]))
        begin = end + 1
    assert list_spans(cut(text, 1000)[0]) == expected


class PlainDecoder(TemplateDecoder):
    """Accepts text without the word "odd"; records the offsets and sizes of all text that it was given."""

    def __init__(self, text: bytes) -> None:
        super().__init__(ColumnBuilder(ProblemTally()))
        self.tried: list[tuple[int, int]] = []
        self._whole = text

    def try_decode(self, text: memoryview, separator: bytes) -> I64 | None:
        assert separator == SEPARATOR
        piece = bytes(text)
        self.tried.append((self._whole.index(piece), len(piece)))
        begins = [match.start() for match in re.finditer(rb' ?\{"ph"', piece)]
        return None if b"odd" in piece else np.array(begins, np.int64)


def many_entries(count: int, odd: range = range(0)) -> bytes:
    """The text of entries of 110 bytes, of which a chunk holds two; the chunks in `odd` are not plain."""
    names = ("odd" if k // 2 in odd else "even" for k in range(count))
    return b", ".join(entry_text(1000 + k, name=name).encode().ljust(108) for k, name in enumerate(names)) + b"]"


@pytest.mark.parametrize("odd", [range(0), range(5, 6), range(9, 30, 4), range(100)])
def test_the_fast_decoder_changes_no_chunk(odd: range) -> None:
    text = many_entries(101, odd)
    expected, end = cut(text, 1000)
    for block_size in (1, 1 << 20):
        chunks, chunker = cut(text, block_size, PlainDecoder(text))
        assert list_spans(chunks) == list_spans(expected)
        assert (chunker.closed, chunker.trailing_comma) == (end.closed, end.trailing_comma) == (True, False)
        for chunk, same in zip(chunks, expected, strict=True):
            assert isinstance(same, Chunk)
            count = chunk.entry_count if isinstance(chunk, DecodedChunk) else len(chunk.entries)
            assert count == len(same.entries) == bytes(chunk.text).count(b'"ph"')
        assert isinstance(chunks[0], Chunk)  # the separator is known after it
        assert odd or all(isinstance(chunk, DecodedChunk) for chunk in chunks[1:-1])


def test_the_fast_decoder_is_given_four_chunks_at_a_time() -> None:
    text = many_entries(50)
    decoder = PlainDecoder(text)
    cut(text, 1000, decoder)
    # All but the first two entries, and the last two, which end at the bracket.
    assert decoder.tried == [(220 + 880 * k - 1, 879) for k in range(5)] + [(4619, 769)]


def test_the_fast_decoder_is_tried_less_often_the_more_often_it_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_decoder, "_MAX_SKIPPED_CHUNKS", 5)
    text = many_entries(80, range(20))
    decoder = PlainDecoder(text)
    cut(text, 1000, decoder)
    # Refused: four chunks, then one of them. Then 0, 1, 3, 5, 5 chunks are decoded without it.
    refused = [1, 2, 4, 8, 14]
    assert decoder.tried[:10] == [(220 * k - 1, size) for k in refused for size in (879, 219)]
    assert decoder.tried[10:] == [(220 * k - 1, 879) for k in (20, 24, 28, 32)] + [(220 * 36 - 1, 769)]


def test_reading_stops_beyond_the_limits() -> None:
    limits = TextLimits(total=3 << 20, without_event=1 << 20)
    assert limits.explain_stop(3 << 20, 1 << 20) == ""
    assert limits.explain_stop((3 << 20) + 1, 1 << 20) == "more than 3 MiB of text; --unpack-all reads on"
    assert limits.explain_stop(3 << 20, (1 << 20) + 1) == "no event in 1 MiB of text; --unpack-all reads on"
    assert TextLimits(None, 1 << 20).explain_stop(1 << 50, 1 << 20) == ""


@pytest.mark.parametrize(
    ("total", "without_event", "events_end", "blocks"),
    [(35, 99, 0, 4), (40, 99, 0, 5), (99, 35, 0, 4), (99, 35, 10, 5), (99, 40, 10, 6)],
)
def test_a_window_reads_no_block_beyond_its_limits(
    total: int, without_event: int, events_end: int, blocks: int
) -> None:
    window = TextWindow(itertools.repeat(b"0123456789"), limits=TextLimits(total, without_event))
    window.events_end = events_end
    window.fill(20)
    assert (window.text, window.stop_reason) == (b"0123456789" * 2, "")
    window.position = 12
    window.fill(8)
    assert window.position == 12  # enough is in the buffer: it is not copied
    window.fill(9)
    assert (window.offset, window.text, window.ended) == (12, b"234567890123456789", False)
    window.fill(1000)
    assert (window.offset, len(window.text), window.ended) == (12, 10 * blocks - 12, True)
    assert window.stop_reason


def test_a_window_continues_at_the_text_that_it_jumps_to() -> None:
    window = TextWindow(iter([b"0123456789"]), base=100)
    window.fill(10)
    window.position = 4
    assert (window.offset, window.ended) == (104, False)
    window.jump(500, b"abc")
    window.fill(10)
    assert (window.offset, window.text, window.position, window.ended) == (500, b"abc", 0, True)


@pytest.mark.parametrize(
    ("name", "count", "kind", "example"),
    [
        ("closed", 24, "", ""),
        ("a comma alone", 0, "", ""),
        ("cut inside an entry", 24, "", ""),
        (
            "a damaged entry",
            49,
            problems.REPAIRED_QUOTE,
            f'at byte {END + 1}: {{"ph": "X", "name": "a "b" c", "pid": 1}}',
        ),
        ("an unreadable entry", 48, problems.UNREADABLE_ENTRY, f'at byte {END + 1}: {{"ph": X], {{"ph": "X", "cat"'),
    ],
)
def test_what_was_decoded_of_a_list(name: str, count: int, kind: str, example: str) -> None:
    text = LISTS[name][0]
    chunks, chunker = cut(text, len(text))
    window, tally, reports = TextWindow(iter([text])), ProblemTally(), list[int]()
    decoder = EntryDecoder(window, tally, SIZE, use_templates=False, block_writer=None, report=reports.append)
    end = decoder.decode_list()
    assert (decoder.entry_count, decoder.unreadable) == (count, kind == problems.UNREADABLE_ENTRY)
    assert decoder.damaged is bool(kind)
    assert [(problem.kind, problem.count) for problem in tally.problems()] == [(kind, 1)] * bool(kind)
    assert all(problem.example.startswith(example) for problem in tally.problems())
    assert (end.closed, end.trailing_comma, end.partial_offset) == (
        chunker.closed,
        chunker.trailing_comma,
        chunker.partial_offset,
    )
    assert window.events_end == (END + 1 if end.partial_offset > 0 else window.offset if count else 0)
    index = decoder.text_index(Path("t.json"), None)
    assert list(zip(index.offset.tolist(), index.length.tolist(), strict=True)) == [
        (chunk.offset, len(chunk.text)) for chunk in chunks
    ]
    assert index.checksum.tolist() == [crc32(chunk.text) for chunk in chunks]
    entry_counts = [len(chunk.entries) for chunk in chunks if isinstance(chunk, Chunk)]
    assert index.first.tolist() == [0, *reports[:-1]] == [sum(entry_counts[:k]) for k in range(len(chunks))]


@pytest.mark.parametrize(
    ("text", "ends_between_entries"),
    [(ENTRIES[0] + ",", True), (ENTRIES[0], False), (ENTRIES[0] + "]", False), (ENTRIES[0] + ', {"p', False)],
)
def test_whether_a_list_ends_between_entries(text: str, ends_between_entries: bool) -> None:
    window = TextWindow(iter([text.encode()]))
    decoder = EntryDecoder(window, ProblemTally(), SIZE, use_templates=False, block_writer=None, report=lambda _: None)
    assert decoder.decode_list().ends_between_entries is ends_between_entries
