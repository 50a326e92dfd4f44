"""Damaged and truncated files keep all entries that can be read, and every repair is reported."""

from __future__ import annotations

import gzip
import json
import lzma
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.decoder_input import (
    FRAMES,
    LAYOUTS,
    count_problems,
    decode_text,
    entry_text,
    format_as_kineto,
    trace_text,
)
from tests.helpers.decoder_reference import decoded_rows, expected_rows, parse_entries
from tests.helpers.long_run import keep_some
from torchprof_tui.trace.core import problems
from torchprof_tui.trace.decode.general_decoder import decode_trace
from torchprof_tui.trace.json_text.salvage import parse_chunk
from torchprof_tui.trace.sources.source import open_source


def damaged_input(count: int = 60) -> bytes:
    """The text of a trace whose args hold what looks like entries."""
    return (
        FRAMES["after"]
        % format_as_kineto([json.loads(entry_text(k, args={"l": [{"a": k}, {"b": "}"}]})) for k in range(count)])
    ).encode()


@pytest.mark.parametrize("layout", keep_some(LAYOUTS, 3))
@pytest.mark.parametrize("bare", keep_some([False, True], 1))
def test_a_truncated_file_keeps_its_complete_entries(layout: str, bare: bool) -> None:
    entries = [json.loads(entry_text(k, args={"l": [{"a": k}, {"b": '}, {"'}]})) for k in range(8)]
    text = (FRAMES["bare" if bare else "after"] % LAYOUTS[layout](entries)).encode()
    whole = expected_rows(parse_entries(text))
    last = text.rindex(b"op 7")
    for cut in range(text.index(b"op 1") + 1, len(text), 37):
        decoded = decode_text(text[:cut], chunk_size=200)
        rows = decoded_rows(decoded)
        assert rows == whole[: len(rows)]
        assert len(rows) >= text[:cut].count(b'"op ') - 1
        assert decoded.unreadable == 0
        if cut < last:
            assert count_problems(decoded).get(problems.CUT_SHORT) == 1 or (
                bare and len(rows) == text[:cut].count(b'"op ')
            )
        elif not bare:
            assert count_problems(decoded) == {problems.CUT_SHORT: 1}


def test_a_list_without_its_bracket_is_complete() -> None:
    for end in (b"", b",", b",\n", b" "):
        decoded = decode_text(b"[" + entry_text(1).encode() + b",\n" + entry_text(2).encode() + end)
        assert len(decoded.events) == 2
        assert problems.CUT_SHORT not in count_problems(decoded)


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_a_compressed_file_cut_short(pack: Callable[[bytes], bytes]) -> None:
    rng = random.Random(3)
    text = trace_text(*(entry_text(k, name=f"{rng.random()}") for k in range(4000)))
    packed = pack(text)
    decoded = decode_text(packed[: len(packed) // 2])
    assert 1000 < len(decoded.events) < 3900
    assert problems.CUT_SHORT in count_problems(decoded)


DAMAGE: dict[str, tuple[bytes, bytes, str, str]] = {
    "quotes": (b'"op 30"', b'"op "30""', problems.REPAIRED_QUOTE, 'op "30"'),
    "quotes and commas": (b'"op 30"', b'"op("a", "b")"', problems.REPAIRED_QUOTE, 'op("a", "b")'),
    "path": (b'"op 30"', b'"C:\\Users\\new\\x"', problems.REPAIRED_BACKSLASH, "C:\\Users\\new\\x"),
    "path that ends in a backslash": (b'"op 30"', b'"C:\\Users\\"', problems.REPAIRED_BACKSLASH, "C:\\Users\\"),
    "control": (b'"op 30"', b'"a\x01\x1b[31mten"', problems.REPAIRED_CONTROL, "a\x01\x1b[31mten"),
    "line break": (b'"op 30"', b'"a\nb"', problems.REPAIRED_CONTROL, "a\nb"),
    "latin-1": (b'"op 30"', b'"caf\xe9"', problems.REPAIRED_ENCODING, "caf\\xe9"),
    "surrogate": (b'"op 30"', b'"\\ud83d"', problems.REPAIRED_SURROGATE, "\ufffd"),
    "NaN": (b'"ts": 30,', b'"ts": NaN,', problems.REPAIRED_NUMBER, "op 30"),
    "infinity": (b'"ts": 30,', b'"ts": -Infinity,', problems.REPAIRED_NUMBER, "op 30"),
    "too large": (b'"ts": 30,', b'"ts": 1e999,', problems.REPAIRED_NUMBER, "op 30"),
    "comma": (b'"ts": 30,', b'"ts": 30,,', problems.REPAIRED_COMMA, "op 30"),
    "comma in a list": (b'[{"a": 30},', b'[{"a": 30},,', problems.REPAIRED_COMMA, "op 30"),
    "comma before a bracket": (b'[{"a": 30}, {"b": "}"}]', b'[{"a": 30},]', problems.REPAIRED_COMMA, "op 30"),
    "key without its first quote": (
        b'"op 30", "pid": 1, "tid"',
        b'"op 30", "pid": 1, tid"',
        problems.REPAIRED_QUOTE,
        "op 30",
    ),
    "key without its last quote": (
        b'"op 30", "pid": 1, "tid"',
        b'"op 30", "pid": 1, "tid',
        problems.REPAIRED_QUOTE,
        "op 30",
    ),
}


@pytest.mark.parametrize("damage", keep_some(DAMAGE, 64))
@pytest.mark.parametrize("layout", ["kineto", "json.dump", "one line", "lines"])
@pytest.mark.parametrize("size", [400, 256 * 1024])
def test_damage_is_repaired(damage: str, layout: str, size: int, tmp_path: Path) -> None:
    old, new, kind, name = DAMAGE[damage]
    entries = [json.loads(entry_text(k, args={"l": [{"a": k}, {"b": "}"}]})) for k in range(60)]
    text = (FRAMES["after"] % LAYOUTS[layout](entries)).encode()
    if layout == "one line":
        old, new = old.replace(b'": ', b'":').replace(b", ", b","), new.replace(b'": ', b'":')
        new = new.replace(b", ", b",") if b"op(" not in new else new
    assert old in text
    whole = expected_rows(parse_entries(text))
    path = tmp_path / "trace.json"
    path.write_bytes(text.replace(old, new))
    decoded = decode_trace(open_source(str(path)), tmp_path, chunk_size=size)
    rows = decoded_rows(decoded)
    assert len(rows) == 60
    assert rows[:30] + rows[31:] == whole[:30] + whole[31:]
    assert rows[30][3] == name
    assert count_problems(decoded) == {kind: 1}
    assert decoded.unreadable == 0
    assert decoded.problems[0].example.isprintable()
    assert decoded.header["baseTimeNanoseconds"] == 5
    for ordinal in (0, 29, 30, 31, 59):
        assert decoded.text.read_entry(ordinal, parse_chunk)["name"] == rows[ordinal][3]


@pytest.mark.parametrize("index", keep_some([0, 1, 30, 58, 59], 3))
@pytest.mark.parametrize("layout", keep_some(["kineto", "json.dump", "one line", "lines", "indented"], 3))
@pytest.mark.parametrize("size", keep_some([400, 256 * 1024], 36))
@pytest.mark.parametrize("garbage", [b"\x00" * 40, b'"ph": X', b"}}}}", b"[[["])
def test_an_unreadable_entry_is_counted_and_nothing_else_is_lost(
    index: int, layout: str, size: int, garbage: bytes
) -> None:
    entries = [json.loads(entry_text(k, args={"l": [k, "}"]})) for k in range(60)]
    text = (FRAMES["end"] % LAYOUTS[layout](entries)).encode()
    whole = expected_rows(parse_entries(text))
    name = f'"op {index}"'.encode()
    decoded = decode_text(text.replace(name, name + b" " + garbage), chunk_size=size)
    rows = decoded_rows(decoded)
    assert rows == whole[:index] + whole[index + 1 :]
    assert decoded.unreadable == 1
    assert count_problems(decoded) == {problems.UNREADABLE_ENTRY: 1}
    assert decoded.header["baseTimeNanoseconds"] == 5


@pytest.mark.parametrize("size", [300, 256 * 1024])
def test_damage_next_to_args_that_look_like_entries(size: int) -> None:
    """Args with lists that begin like entries, two adjacent damaged entries, and damage that hides a bracket."""
    entries = [json.loads(entry_text(k, args={"l": [{"a": k}, {"name": "}"}], "d": [[1]]})) for k in range(60)]
    text = (FRAMES["end"] % LAYOUTS["lines"](entries)).encode()
    whole = expected_rows(parse_entries(text))
    for k in (20, 21, 59):
        text = text.replace(b'"args": {"l": [{"a": %d}' % k, b'"args":": " {"l": [{"a": %d}' % k)
    text = text.replace(b'"name": "op 40"', b'"name": "op 40"}}}')
    decoded = decode_text(text, chunk_size=size)
    assert decoded_rows(decoded) == [row for k, row in enumerate(whole) if k not in (20, 21, 40, 59)]
    assert count_problems(decoded) == {problems.UNREADABLE_ENTRY: 4}
    assert decoded.header["baseTimeNanoseconds"] == 5


def test_damage_everywhere(tmp_path: Path) -> None:
    text = damaged_input(500).replace(b'"op ', b'"C:\\op\\')
    decoded = decode_text(text, chunk_size=5000)
    assert [row[3] for row in decoded_rows(decoded)] == [f"C:\\op\\{k}" for k in range(500)]
    assert count_problems(decoded) == {problems.REPAIRED_BACKSLASH: 500}


def test_a_comma_before_the_end() -> None:
    text = trace_text(*(entry_text(k) for k in range(60)), after=', "a": 1').replace(b"}], ", b"},\n ], ")
    for size in (200, 100_000):
        decoded = decode_text(text, chunk_size=size)
        assert len(decoded.events) == 60
        assert count_problems(decoded) == {problems.REPAIRED_COMMA: 1}
        assert decoded.header == {"a": 1}


def test_a_file_from_a_full_disk() -> None:
    """The end of the file was allocated, but never written."""
    text = damaged_input(300)
    decoded = decode_text(text[: len(text) // 2] + b"\0" * 300_000, chunk_size=1000)
    assert 140 < len(decoded.events) < 160
    assert problems.CUT_SHORT in count_problems(decoded)
