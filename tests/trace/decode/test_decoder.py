"""The general reader: equal to a slow reference on real traces, in any layout, at any chunk size, from any source."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.decoder_reference import (
    decoded_args,
    decoded_rows,
    entries_of,
    expected_args,
    expected_rows,
)
from tests.helpers.paths import SHARED_TRACES, find_shared_traces
from torchprof_tui.trace.core import problems
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.decode.decoder import decode_trace
from torchprof_tui.trace.json_text.salvage import parse_chunk
from torchprof_tui.trace.model.raw_events import NO_DURATION, NO_TIME, DecodedTrace
from torchprof_tui.trace.sources.open import open_source
from torchprof_tui.trace.sources.source import Source
from torchprof_tui.trace.text import large_values
from torchprof_tui.trace.text.block_text import BlockText
from torchprof_tui.trace.text.plain_text import PlainText

TRACES = SHARED_TRACES
ALL = find_shared_traces()
SMALL = [path for path in ALL if path.stat().st_size < 25_000]
LARGER = [path for path in ALL if path.stat().st_size >= 25_000]


def decode(text: bytes, **options: Any) -> DecodedTrace:
    """Through a stream, as stdin comes; the stored text is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        return decode_trace(Source("stdin", io.BytesIO(text)), Path(folder), **options)


def found(decoded: DecodedTrace) -> dict[str, int]:
    return {problem.kind: problem.count for problem in decoded.problems}


def events(*entries: str, before: str = "", after: str = "") -> bytes:
    return f'{{{before}"traceEvents": [{", ".join(entries)}]{after}}}'.encode()


def event(k: int = 0, **keys: Any) -> str:
    return json.dumps({"ph": "X", "cat": "cpu_op", "name": f"op {k}", "pid": 1, "tid": 2, "ts": k, "dur": 1, **keys})


# --- real traces ----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not SMALL, reason="no traces here")
@pytest.mark.parametrize("path", SMALL, ids=lambda path: path.name)
def test_real_traces_equal_the_reference(path: Path, tmp_path: Path) -> None:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    try:
        entries = entries_of(text)
    except ValueError:
        pytest.skip("not valid JSON: see the tests of damage")
    decoded = decode_trace(open_source(str(path)), tmp_path)
    assert decoded_rows(decoded) == expected_rows(entries)
    assert decoded_args(decoded) == expected_args(entries)
    assert decoded.size == len(text)
    assert decoded.problems == []
    assert_entries_are_found_again(decoded, text, sample=40)


@pytest.mark.skipif(not LARGER, reason="no traces here")
@pytest.mark.parametrize("path", random.Random(2).sample(LARGER, min(4, len(LARGER))), ids=lambda path: path.name)
def test_larger_traces_equal_orjson(path: Path, tmp_path: Path) -> None:
    text = gzip.decompress(path.read_bytes())
    document = orjson.loads(text)
    entries = document if isinstance(document, list) else document["traceEvents"]
    decoded = decode_trace(open_source(str(path)), tmp_path)
    columns = decoded.events
    assert len(columns) == len(entries)
    assert [columns.names[k] for k in columns.name] == [str(entry.get("name", "")) for entry in entries]
    assert [columns.categories[k] for k in columns.category] == [entry.get("cat", "") for entry in entries]
    assert bytes(columns.phase).decode("latin-1") == "".join(entry["ph"] for entry in entries)
    near = np.array([float(entry.get("ts", np.nan)) for entry in entries])
    timed = columns.time != NO_TIME
    assert np.array_equal(timed, ~np.isnan(near))
    assert np.abs(columns.time[timed] / 1000 - near[timed]).max() < 0.3
    assert decoded.problems == []
    assert_entries_are_found_again(decoded, text, sample=25)


def assert_entries_are_found_again(decoded: DecodedTrace, text: bytes, sample: int) -> None:
    document = orjson.loads(text)
    entries = document if isinstance(document, list) else document["traceEvents"]
    entries = [entry for entry in entries if isinstance(entry, dict)]
    count = len(entries)
    for ordinal in {0, count - 1, *random.Random(1).sample(range(count), min(sample, count))} if count else ():
        assert decoded.text.read_entry(ordinal, parse_chunk) == entries[ordinal]
    with pytest.raises(LookupError):
        decoded.text.read_entry(count, parse_chunk)


# --- any layout, any chunk size -------------------------------------------------------------------------------------

TRICKY = [
    '}, {"ph"',
    '},\n  {\n    "',
    "\\",
    '"',
    '\\\\"',
    "]}",
    "[[",
    "}",
    "é\u2028",
    "😀",
    "\x00\x1f\n",
    "a,b",
    "stream 7",
]
texts = st.one_of(st.sampled_from(TRICKY), st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
micros = st.builds(lambda whole, part: whole + part / 1000, st.integers(-(2**30), 2**42), st.integers(0, 999))
times = st.one_of(st.integers(-1000, 2**50), micros, micros.map(lambda value: f"{value:.3f}"))
ids = st.one_of(st.integers(-(2**63), 2**64 - 1), texts, st.sampled_from([0, 7, "7", "stream 7", -1, "", 1.0, None]))
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)
small = st.integers(-(2**40), 2**40)
args = st.fixed_dictionaries(
    {},
    optional={
        "correlation": small,
        "External id": small,
        "stream": small,
        "bytes": st.one_of(small, small.map(str)),
        "grid": st.lists(st.integers(0, 2**31), min_size=3, max_size=3),
        "Sequence number": small,
        "Python parent id": st.one_of(small, st.none()),
        "Python id": small,
        "other": values,
        "list": st.lists(st.fixed_dictionaries({"ph": texts, "ts": micros}), max_size=3),
    },
)
categories = st.sampled_from(["cpu_op", "kernel", "python_function", "cuda_runtime", "ac2g", "", "cpu_instant_event"])
entries = st.fixed_dictionaries(
    {},
    optional={
        "ph": st.one_of(st.sampled_from("XXXXBEisfbneCM"), st.just("odd"), st.none()),
        "cat": st.one_of(categories, texts),
        "name": texts,
        "pid": ids,
        "tid": ids,
        "ts": times,
        "dur": times,
        "id": ids,
        "args": args,
        "extra": values,
    },
)
lists = st.lists(
    st.one_of(entries, entries, entries, entries, st.sampled_from([None, 5, "x", [], [{}], {}])), max_size=25
)


def kineto_layout(entries: list[Any]) -> str:
    """As Kineto writes: every entry on lines of its own, its args on one of them."""
    return (
        "["
        + ",".join(
            "\n  " + json.dumps(entry).replace('{"', '{\n    "', 1)[:-1] + "\n  }"
            if entry and isinstance(entry, dict)
            else json.dumps(entry)
            for entry in entries
        )
        + "\n  ]"
    )


def late_comma_layout(entries: list[Any]) -> str:
    return "[" + "\n    ,\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries) + "\n]"


LAYOUTS: dict[str, Callable[[list[Any]], str]] = {
    "one line": lambda entries: json.dumps(entries, separators=(",", ":")),
    "json.dump": json.dumps,
    "not ASCII": lambda entries: json.dumps(entries, ensure_ascii=False),
    "indented": lambda entries: json.dumps(entries, indent=2),
    "tabs": lambda entries: json.dumps(entries, indent="\t"),
    "kineto": kineto_layout,
    "late commas": late_comma_layout,
    "lines": lambda entries: "[" + ",\n".join(json.dumps(entry) for entry in entries) + "]",
}
FRAMES = {
    "bare": "%s",
    "object": '{"traceEvents": %s}',
    "before": '\n {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "}, {"}], "traceEvents" : %s}\n',
    "end": '{"traceEvents": %s, "traceName": "a", "baseTimeNanoseconds": 5}',
    "after": '{"traceEvents":%s,"traceName": "a\\"]}", "baseTimeNanoseconds": 5, "x": [{"ph": "X"}, {"ph": "X"}]}',
}


@settings(max_examples=120)
@given(
    entries=lists,
    layout=st.sampled_from(sorted(LAYOUTS)),
    frame=st.sampled_from(sorted(FRAMES)),
    size=st.integers(64, 3000),
)
def test_layout_and_chunk_size_change_nothing(entries: list[Any], layout: str, frame: str, size: int) -> None:
    text = (FRAMES[frame] % LAYOUTS[layout](entries)).encode()
    objects = [entry for entry in entries if isinstance(entry, dict)]
    if (
        frame == "bare"
        and entries
        and not any(isinstance(entry.get("ph"), str) and len(entry["ph"]) == 1 for entry in objects)
    ):
        with pytest.raises(TraceError):
            decode(text)
        return
    with tempfile.TemporaryDirectory() as folder:
        decoded = decode_trace(Source("stdin", io.BytesIO(text)), Path(folder), chunk_size=size)
        parsed = orjson.loads(text)
        parsed = parsed if isinstance(parsed, list) else parsed["traceEvents"]
        for ordinal, entry in enumerate(entry for entry in parsed if isinstance(entry, dict)):
            assert decoded.text.read_entry(ordinal, parse_chunk) == entry
    exact = entries_of(text)
    assert decoded_rows(decoded) == expected_rows(exact)
    assert decoded_args(decoded) == expected_args(exact)
    assert decoded.not_objects == len(entries) - len(objects)
    assert set(found(decoded)) <= {problems.NOT_AN_OBJECT}
    if frame == "after":
        assert decoded.header == {"traceName": 'a"]}', "baseTimeNanoseconds": 5, "x": [{"ph": "X"}, {"ph": "X"}]}
        assert decoded.format == "kineto"


# --- any source -----------------------------------------------------------------------------------------------------

PACK: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda text: text,
    "gzip": gzip.compress,
    "two gzip members": lambda text: gzip.compress(text[:5000]) + gzip.compress(text[5000:]),
    "xz": lzma.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("packing", PACK)
def test_compression_changes_nothing(packing: str, tmp_path: Path) -> None:
    text = events(*(event(k, args={"External id": k}) for k in range(3000)), before='"schemaVersion": 1, ')
    path = tmp_path / "trace"
    path.write_bytes(PACK[packing](text))
    told: list[tuple[int, int | None, int]] = []
    decoded = decode_trace(open_source(str(path)), tmp_path, lambda *state: told.append(state), chunk_size=20_000)
    exact = entries_of(text)
    assert decoded_rows(decoded) == expected_rows(exact)
    assert decoded_args(decoded) == expected_args(exact)
    assert decoded.text.path == (path if packing == "plain" else tmp_path / "text.blocks")
    assert type(decoded.text) is (PlainText if packing == "plain" else BlockText)
    assert len(decoded.text.first) > 5
    for ordinal in (0, 1, 1499, 2999):
        assert decoded.text.read_entry(ordinal, parse_chunk)["name"] == f"op {ordinal}"
    assert told[-1] == (path.stat().st_size, path.stat().st_size, 3000)
    assert [state[2] for state in told] == sorted({state[2] for state in told})


def test_a_file_that_changed_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(events(*(event(k) for k in range(100))))
    decoded = decode_trace(open_source(str(path)), tmp_path)
    path.write_bytes(b" " * path.stat().st_size)
    with pytest.raises(LookupError, match="changed"):
        decoded.text.read_entry(5, parse_chunk)


def test_neighbours_are_parsed_once_and_a_changed_file_again(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(b'[{"name": "one", "ts": 1, "ph": "i"}, {"name": "two", "ts": 2, "ph": "i"}]')
    decoded = decode_trace(open_source(str(path)), tmp_path)
    parsed = []

    def parse(text: bytes) -> list[dict[str, Any]]:
        parsed.append(text)
        return parse_chunk(text)

    assert [decoded.text.read_entry(k, parse)["name"] for k in (0, 1, 0)] == ["one", "two", "one"]
    assert len(parsed) == 1
    path.write_bytes(path.read_bytes().replace(b"one", b"six"))
    assert decoded.text.read_entry(0, parse)["name"] == "six"


def test_text_that_cannot_be_kept_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError):  # noqa: PT011  (which one is the system's choice)
        decode_trace(Source("stdin", io.BytesIO(events(event()))), tmp_path / "none")


# --- times ----------------------------------------------------------------------------------------------------------


def time_of(*written: str, **more: Any) -> list[int]:
    decoded = decode(events(*(f'{{"ph": "X", "name": "", "ts": {ts}}}' for ts in written), **more))
    assert decoded.problems == []
    return decoded.events.time.tolist()


def test_nanoseconds_are_exact_with_a_base_time() -> None:
    written = [f"{4328067895422 + 977 * k}.{k % 1000:03d}" for k in range(2000)]
    assert time_of(*written) == [int(text.replace(".", "")) for text in written]


@pytest.mark.parametrize("decimals", ["{:03d}", "{:03d}000", "{:03d}5e0"])
def test_nanoseconds_are_exact_since_the_epoch(decimals: str) -> None:
    written = [f"{1712345678901234 + k}." + decimals.format(k * 7 % 1000) for k in range(500)]
    assert time_of(*written) == [int(text[:20].replace(".", "")) for text in written] or decimals.endswith("5e0")
    if decimals.endswith("5e0"):
        assert max(abs(a - int(b[:20].replace(".", ""))) for a, b in zip(time_of(*written), written, strict=True)) <= 1


def test_a_ts_among_the_args_is_not_taken_for_the_entrys() -> None:
    entries = [
        '{"ph": "X", "args": {"ts": 1712345678901230.111}, "ts": 1712345678901234.567, "name": "a"}',
        '{"ph": "X", "ts": "1712345678901235.568", "name": "b", "args": {"ts": "x"}}',
        '{"ph": "X", "ts": 1712345678901236, "name": "c"}',
        '{"ph": "M", "name": "d"}',
    ]
    decoded = decode(events(*entries))
    assert decoded.events.time.tolist() == [1712345678901234567, 1712345678901235568, 1712345678901236000, NO_TIME]


@pytest.mark.parametrize("ts", ["1e300", "-5e18", '"soon"', "[1]", "true1"])
def test_times_that_are_none_are_counted(ts: str) -> None:
    decoded = decode(events(event(1), f'{{"ph": "X", "name": "odd", "ts": {ts}, "dur": {ts}}}', event(2)))
    if ts == "true1":
        assert found(decoded) == {problems.UNREADABLE_ENTRY: 1}
        return
    assert decoded.events.time.tolist() == [1000, NO_TIME, 2000]
    assert decoded.events.duration.tolist() == [1000, NO_DURATION, 1000]
    assert found(decoded) == {problems.BAD_TIME: 1, problems.BAD_DURATION: 1}


def test_a_negative_duration_is_kept() -> None:
    assert decode(events(event(dur=-2.5))).events.duration.tolist() == [-2500]


# --- what entries may hold ------------------------------------------------------------------------------------------


def test_metadata_and_counters() -> None:
    decoded = decode(
        events(
            '{"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "args": {"name": "python3"}}',
            '{"ph": "M", "name": "thread_name", "pid": 7, "tid": "stream 9", "args": {"name": 5}}',
            '{"ph": "M", "name": "both", "pid": 7, "args": {"a": 1, "b": 2}}',
            '{"ph": "M", "name": "none", "pid": 7}',
            event(),
            '{"ph": "C", "name": "memory", "pid": 1, "ts": 5, "args": {"allocated": 12, "reserved": 1.5, "unit": "B"}}',
            '{"ph": "C", "name": "none", "pid": 1, "ts": 5}',
        )
    )
    assert decoded.events.metadata == [
        ("process_name", "7", "0", "python3"),
        ("thread_name", "7", "9", 5),
        ("both", "7", "", {"a": 1, "b": 2}),
        ("none", "7", "", None),
    ]
    assert decoded.events.counters == [(5, "allocated", 12.0), (5, "reserved", 1.5)]


def test_one_thread_under_several_spellings_is_one_track() -> None:
    decoded = decode(events(*(event(pid=pid, tid=tid) for pid, tid in [(1, 7), ("1", "7"), (1.0, "stream 7")])))
    assert decoded.events.tracks == [("1", "7")]


def test_args_of_odd_types() -> None:
    given_args = [
        {"stream": 7, "bytes": "4096", "Addr": 2**64 - 1, "grid": [1, 2, 3]},
        {"stream": "7", "bytes": "many", "Addr": "0x10", "grid": [1, 2]},
        {"stream": None, "bytes": 2**70, "grid": "inf", "block": [1, 2, 2**63]},
        [1, 2],
        "text",
        None,
        {"stream": -1, "block": [4, 5, 6], "Bytes": -12},
    ]
    decoded = decode(events(*(event(k, cat="kernel", args=arg) for k, arg in enumerate(given_args))))
    assert decoded_args(decoded) == {
        "stream": {0: 7, 1: 7, 6: -1},
        "bytes": {0: 4096, 6: -12},
        "address": {0: -1, 1: 16},
        "grid": {0: [1, 2, 3]},
        "block": {6: [4, 5, 6]},
    }
    assert decoded.problems == []


def test_ids_are_text() -> None:
    given_ids = [5, "5", "0x5", {"local": "0x1"}, None, 2**64 - 1]
    decoded = decode(events(*(event(k, ph="s", id=identity) for k, identity in enumerate(given_ids)), event(9, id=4)))
    rows = decoded_rows(decoded)
    assert [row[-1] for row in rows] == ["5", "5", "0x5", '{"local":"0x1"}', None, str(2**64 - 1), None]
    assert len(set(decoded.events.ids)) == len(decoded.events.ids)


def test_keys_and_names_that_are_no_text() -> None:
    decoded = decode(events('{"ph": ["X"], "cat": {"a": 1}, "name": [1, null], "pid": [1], "tid": {}}', "{}"))
    assert [row[0] for row in decoded_rows(decoded)] == ["", ""]
    assert decoded_rows(decoded)[0][3:6] == ("[1,null]", '{"a":1}', ("[1]", "{}"))


def test_more_categories_than_have_numbers() -> None:
    decoded = decode(events(*(event(k, cat=f"c{k}") for k in range(65_540))))
    names = [decoded.events.categories[k] for k in decoded.events.category]
    assert names[:65_534] == [f"c{k}" for k in range(65_534)]
    assert set(names[65_534:]) == {""}
    assert found(decoded) == {problems.TOO_MANY_CATEGORIES: 6}


# --- the top level --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["plain", "gzip", "pipe"])
def test_large_header_values_are_found_again(tmp_path: Path, kind: str) -> None:
    stack = json.dumps({str(k): {"name": '}], "', "parent": k} for k in range(50_000)})
    text = events(event(1), event(2), before=f'"stackFrames": {stack}, "a": 1, ', after=f', "samples": {stack}, "b": 2')
    if kind == "pipe":
        source = Source("stdin", io.BytesIO(text))
    else:
        path = tmp_path / "trace.json"
        path.write_bytes(gzip.compress(text) if kind == "gzip" else text)
        source = open_source(str(path))
    decoded = decode_trace(source, tmp_path, chunk_size=500)
    assert len(decoded.events) == 2
    assert decoded.header == {"a": 1, "b": 2}
    assert decoded.large_keys is not None
    assert list(decoded.large_keys.spans) == ["stackFrames", "samples"]
    assert [decoded.large_keys.read_text(key).decode() for key in decoded.large_keys.spans] == [stack, stack]
    assert decoded.problems == []


def test_of_keys_of_one_name_the_last_counts() -> None:
    long = json.dumps("x" * 70_000)
    first_large = decode(events(event(1), before=f'"k": {long}, ', after=', "k": 2'))
    assert (first_large.header, first_large.large_keys and first_large.large_keys.spans) == ({"k": 2}, {})
    last_large = decode(events(event(1), before='"k": 2, ', after=f', "k": {long}'))
    assert (last_large.header, list(last_large.large_keys.spans if last_large.large_keys else ())) == ({}, ["k"])


def test_a_value_beyond_any_is_measured_and_its_text_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_values, "MAX_VALUE_BYTES", 1 << 20)
    text = events(event(1), before=f'"k": "{"x" * (3 << 20)}", "l": "{"y" * (1 << 17)}", ')
    decoded = decode_trace(Source("stdin", io.BytesIO(text)), tmp_path)
    assert decoded.large_keys is not None
    assert decoded.large_keys.oversized == {"k": (3 << 20) + 2}
    assert decoded.large_keys.read_text("l") == b'"' + b"y" * (1 << 17) + b'"'
    assert decoded.large_keys.path.stat().st_size < 10_000


def test_a_value_without_an_end_leaves_nothing(tmp_path: Path) -> None:
    text = events(event(1))[:-1] + b', "k": "' + b"x" * 200_000
    decoded = decode_trace(Source("stdin", io.BytesIO(text)), tmp_path)
    assert decoded.large_keys is not None
    assert (decoded.large_keys.spans, decoded.large_keys.path.stat().st_size) == ({}, 0)
    assert found(decoded) == {problems.CUT_SHORT: 1}


def test_a_damaged_header_value_is_mended_or_told() -> None:
    text = events(event(), before='"traceName": "C:\\Users\\x.json", "bad": {1: 2}, ', after=', "n": NaN')
    decoded = decode(text)
    assert decoded.header == {"traceName": "C:\\Users\\x.json", "n": None}
    assert len(decoded.events) == 1
    assert set(found(decoded)) == {problems.REPAIRED_BACKSLASH, problems.UNREADABLE_HEADER, problems.REPAIRED_NUMBER}


@pytest.mark.parametrize(
    "before", ['"name": "C:\\", "x": 1, ', '"a" 5, ', "nonsense, ", '"a": {"b": 1, ', '"a": ]]], ']
)
def test_events_are_found_behind_a_header_that_cannot_be_read(before: str) -> None:
    decoded = decode(events(*(event(k) for k in range(30)), before=before), chunk_size=300)
    assert len(decoded.events) == 30
    assert problems.UNREADABLE_HEADER in found(decoded)


def test_a_trace_inside_something_else_is_found() -> None:
    decoded = decode(b'{"profile": {"kind": "x", "traceEvents": [' + event().encode() + b'], "y": 2}, "z": 3}')
    assert len(decoded.events) == 1


def test_what_follows_the_end_is_told() -> None:
    assert found(decode(events(event()) + b"\n{}")) == {problems.TEXT_AFTER_END: 1}
    assert found(decode(b"[" + event().encode() + b"] \0\0")) == {problems.TEXT_AFTER_END: 1}
    assert found(decode(b"\xef\xbb\xbf \n" + events(event()) + b" \n\n")) == {}


@pytest.mark.parametrize("text", [b'{"traceEvents": []}', b"[]", b' {"a": 1, "traceEvents": [\n ]\n}'])
def test_an_empty_list_is_an_empty_trace(text: bytes) -> None:
    decoded = decode(text)
    assert len(decoded.events) == 0
    assert decoded.problems == []
    assert decoded.events.names == []


NO_TRACES = {
    b"": "an empty file",
    b" \n ": "an empty file",
    b"hello, world\n" * 50: "text that begins with: hello, world",
    b"null": "the JSON value null",
    b'"traceEvents"': "the JSON value",
    b"{}": "an empty object",
    b'{"a": 1}': "without traceEvents (keys: a)",
    b'{"traceEvents": 5}': "whose traceEvents is no list",
    b"{nothing of interest": "text that begins with",
    bytes(range(256)) * 64: "binary data",
    b"\x7fELF\2\1\1\0\0\0": "binary data",
    b"[" * 100_000: "cut off before its first event",
    b'{"a":' * 100_000: "without traceEvents",
    b'{"traceEvents": [': "cut off before its first event",
    b"[1, 2, 3]": "something else than events",
    b'[{"key": "aten::mm", "count": 3}]': "something else than events",
    '{"traceEvents": []}'.encode("utf-16"): "UTF-16",
    '{"traceEvents": []}'.encode("utf-16-le"): "UTF-16",
    b"PK\x03\x04abc": "zip",
    b"<html>": "HTML",
    b"SQLite format 3\0": "SQLite",
    b"\x80\x04\x95abc": "pickle",
    b"\x1b[31mred\x07": "\\x1b[31mred\\x07",
}


@pytest.mark.parametrize(("text", "words"), NO_TRACES.items(), ids=lambda value: repr(value)[:24])
def test_what_is_no_trace_is_named_in_one_line(text: bytes, words: str) -> None:
    with pytest.raises(TraceError) as caught:
        decode(text)
    line = str(caught.value)
    assert line.startswith("stdin: ")
    assert words in line
    assert line.isprintable()
    assert len(line) < 250


# --- cut short and damaged ------------------------------------------------------------------------------------------


def many(count: int = 60) -> bytes:
    return (
        FRAMES["after"]
        % kineto_layout([json.loads(event(k, args={"l": [{"a": k}, {"b": "}"}]})) for k in range(count)])
    ).encode()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("bare", [False, True])
def test_a_file_cut_anywhere_keeps_its_whole_entries(layout: str, bare: bool) -> None:
    given_entries = [json.loads(event(k, args={"l": [{"a": k}, {"b": '}, {"'}]})) for k in range(8)]
    text = (FRAMES["bare" if bare else "after"] % LAYOUTS[layout](given_entries)).encode()
    whole = expected_rows(entries_of(text))
    last = text.rindex(b"op 7")
    for cut in range(text.index(b"op 1") + 1, len(text), 37):
        decoded = decode(text[:cut], chunk_size=200)
        rows = decoded_rows(decoded)
        assert rows == whole[: len(rows)]
        assert len(rows) >= text[:cut].count(b'"op ') - 1
        assert decoded.unreadable == 0
        if cut < last:
            assert found(decoded).get(problems.CUT_SHORT) == 1 or (bare and len(rows) == text[:cut].count(b'"op '))
        elif not bare:
            assert found(decoded) == {problems.CUT_SHORT: 1}


def test_a_list_without_its_bracket_is_whole() -> None:
    for end in (b"", b",", b",\n", b" "):
        decoded = decode(b"[" + event(1).encode() + b",\n" + event(2).encode() + end)
        assert len(decoded.events) == 2
        assert problems.CUT_SHORT not in found(decoded)


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_a_compressed_file_cut_short(pack: Callable[[bytes], bytes]) -> None:
    rng = random.Random(3)
    text = events(*(event(k, name=f"{rng.random()}") for k in range(4000)))
    packed = pack(text)
    decoded = decode(packed[: len(packed) // 2])
    assert 1000 < len(decoded.events) < 3900
    assert problems.CUT_SHORT in found(decoded)


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


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("layout", ["kineto", "json.dump", "one line", "lines"])
@pytest.mark.parametrize("size", [400, 256 * 1024])
def test_damage_is_mended(damage: str, layout: str, size: int, tmp_path: Path) -> None:
    old, new, kind, name = DAMAGE[damage]
    given_entries = [json.loads(event(k, args={"l": [{"a": k}, {"b": "}"}]})) for k in range(60)]
    text = (FRAMES["after"] % LAYOUTS[layout](given_entries)).encode()
    if layout == "one line":
        old, new = old.replace(b'": ', b'":').replace(b", ", b","), new.replace(b'": ', b'":')
        new = new.replace(b", ", b",") if b"op(" not in new else new
    assert old in text
    whole = expected_rows(entries_of(text))
    path = tmp_path / "trace.json"
    path.write_bytes(text.replace(old, new))
    decoded = decode_trace(open_source(str(path)), tmp_path, chunk_size=size)
    rows = decoded_rows(decoded)
    assert len(rows) == 60
    assert rows[:30] + rows[31:] == whole[:30] + whole[31:]
    assert rows[30][3] == name
    assert found(decoded) == {kind: 1}
    assert decoded.unreadable == 0
    assert decoded.problems[0].example.isprintable()
    assert decoded.header["baseTimeNanoseconds"] == 5
    for ordinal in (0, 29, 30, 31, 59):
        assert decoded.text.read_entry(ordinal, parse_chunk)["name"] == rows[ordinal][3]


@pytest.mark.parametrize("where", [0, 1, 30, 58, 59])
@pytest.mark.parametrize("layout", ["kineto", "json.dump", "one line", "lines", "indented"])
@pytest.mark.parametrize("size", [400, 256 * 1024])
@pytest.mark.parametrize("garbage", [b"\x00" * 40, b'"ph": X', b"}}}}", b"[[["])
def test_what_cannot_be_mended_is_counted_and_nothing_else_is_lost(
    where: int, layout: str, size: int, garbage: bytes
) -> None:
    given_entries = [json.loads(event(k, args={"l": [k, "}"]})) for k in range(60)]
    text = (FRAMES["end"] % LAYOUTS[layout](given_entries)).encode()
    whole = expected_rows(entries_of(text))
    name = f'"op {where}"'.encode()
    decoded = decode(text.replace(name, name + b" " + garbage), chunk_size=size)
    rows = decoded_rows(decoded)
    assert rows == whole[:where] + whole[where + 1 :]
    assert decoded.unreadable == 1
    assert found(decoded) == {problems.UNREADABLE_ENTRY: 1}
    assert decoded.header["baseTimeNanoseconds"] == 5


@pytest.mark.parametrize("size", [300, 256 * 1024])
def test_damage_beside_what_looks_like_entries(size: int) -> None:
    """Lists inside of entries that begin as entries do, two damaged neighbours, and damage that hides a bracket."""
    given_entries = [json.loads(event(k, args={"l": [{"a": k}, {"name": "}"}], "d": [[1]]})) for k in range(60)]
    text = (FRAMES["end"] % LAYOUTS["lines"](given_entries)).encode()
    whole = expected_rows(entries_of(text))
    for k in (20, 21, 59):
        text = text.replace(b'"args": {"l": [{"a": %d}' % k, b'"args":": " {"l": [{"a": %d}' % k)
    text = text.replace(b'"name": "op 40"', b'"name": "op 40"}}}')
    decoded = decode(text, chunk_size=size)
    assert decoded_rows(decoded) == [row for k, row in enumerate(whole) if k not in (20, 21, 40, 59)]
    assert found(decoded) == {problems.UNREADABLE_ENTRY: 4}
    assert decoded.header["baseTimeNanoseconds"] == 5


def test_damage_everywhere(tmp_path: Path) -> None:
    text = many(500).replace(b'"op ', b'"C:\\op\\')
    decoded = decode(text, chunk_size=5000)
    assert [row[3] for row in decoded_rows(decoded)] == [f"C:\\op\\{k}" for k in range(500)]
    assert found(decoded) == {problems.REPAIRED_BACKSLASH: 500}


def test_a_comma_before_the_end() -> None:
    text = events(*(event(k) for k in range(60)), after=', "a": 1').replace(b"}], ", b"},\n ], ")
    for size in (200, 100_000):
        decoded = decode(text, chunk_size=size)
        assert len(decoded.events) == 60
        assert found(decoded) == {problems.REPAIRED_COMMA: 1}
        assert decoded.header == {"a": 1}


def test_a_disk_that_was_full() -> None:
    """A file whose end was allocated, but never written."""
    text = many(300)
    decoded = decode(text[: len(text) // 2] + b"\0" * 300_000, chunk_size=1000)
    assert 140 < len(decoded.events) < 160
    assert problems.CUT_SHORT in found(decoded)
