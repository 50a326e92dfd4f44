"""The top level of a trace file: header values, damaged headers, text after the end, files that are no trace."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import random
from pathlib import Path

import pytest

from tests.helpers.decoder_input import count_problems, decode_text, entry_text, trace_text
from tests.helpers.long_run import keep_some
from torchprof_tui.trace.core import problems
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.problems import ProblemTally
from torchprof_tui.trace.decode import json_document
from torchprof_tui.trace.decode.entry_decoder import TextWindow
from torchprof_tui.trace.decode.general_decoder import decode_trace
from torchprof_tui.trace.sources.source import Source, open_source
from torchprof_tui.trace.text import large_values
from torchprof_tui.trace.text.large_values import LargeValueWriter


@pytest.mark.parametrize("kind", keep_some(["plain", "gzip", "pipe"], 1))
def test_large_header_values_can_be_read_later(tmp_path: Path, kind: str) -> None:
    stack = json.dumps({str(k): {"name": '}], "', "parent": k} for k in range(50_000)})
    text = trace_text(
        entry_text(1), entry_text(2), before=f'"stackFrames": {stack}, "a": 1, ', after=f', "samples": {stack}, "b": 2'
    )
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


def test_the_last_of_equal_keys_wins() -> None:
    long = json.dumps("x" * 70_000)
    first_large = decode_text(trace_text(entry_text(1), before=f'"k": {long}, ', after=', "k": 2'))
    assert (first_large.header, first_large.large_keys and first_large.large_keys.spans) == ({"k": 2}, {})
    last_large = decode_text(trace_text(entry_text(1), before='"k": 2, ', after=f', "k": {long}'))
    assert (last_large.header, list(last_large.large_keys.spans if last_large.large_keys else ())) == ({}, ["k"])


def test_the_text_of_an_oversized_value_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_values, "MAX_VALUE_BYTES", 1 << 20)
    text = trace_text(entry_text(1), before=f'"k": "{"x" * (3 << 20)}", "l": "{"y" * (1 << 17)}", ')
    decoded = decode_trace(Source("stdin", io.BytesIO(text)), tmp_path)
    assert decoded.large_keys is not None
    assert decoded.large_keys.oversized == {"k": (3 << 20) + 2}
    assert decoded.large_keys.read_text("l") == b'"' + b"y" * (1 << 17) + b'"'
    assert decoded.large_keys.path.stat().st_size < 10_000


@pytest.mark.parametrize("size", [1023, 1024, 1025, 1024 + 16 * 1024])
@pytest.mark.parametrize("after", [', "last": 2', ""])
def test_a_value_may_end_where_a_piece_of_it_does(size: int, after: str) -> None:
    """Values are scanned in pieces, the first one of 1,024 bytes."""
    value = '"' + "x" * (size - 2) + '"'
    decoded = decode_text(trace_text(entry_text(1), after=f', "k": {value}{after}'))
    assert decoded.problems == []
    assert decoded.header == {"k": json.loads(value), **({"last": 2} if after else {})}


def make_header_values() -> dict[str, str]:
    """JSON values of up to 100 bytes, with escapes, quotes, brackets and commas at all offsets."""
    values = {f"text of {size} bytes": json.dumps("x" * (size - 2)) for size in (2, 39, 40, 41)}
    values |= {"number": "-1.5e3", "list": "[ ]", "space": ' {"a" : [1 , 2 ] , "b": null} '}
    parts = ["\\\\", '\\"', "\\u00e9", "\\n", "}", "]", "{", "[", ",", ":", "x", "\u00e9"]
    rng = random.Random(1)
    for k in range(30):
        text = '"' + "".join(rng.choices(parts, k=rng.randrange(12))) + '"'
        values[f"k{k}"] = rng.choice(["S", "[S, S, S]", '{"a": S, "b": [[S], {"c": S}]}']).replace("S", text)
    return values


@pytest.mark.parametrize("sizes", [(2, 4), (16, 64, 256)])
def test_header_values_do_not_depend_on_the_pieces_that_they_are_scanned_in(
    sizes: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_document, "_SCAN_SIZES", sizes)
    monkeypatch.setattr(json_document, "MAX_HEADER_VALUE_BYTES", 40)
    values = make_header_values()
    header = ", ".join(f'"{key}": {value}' for key, value in values.items())
    text = f'{{"before": 1, {header}, "traceEvents": [], "after": "\\\\"}}'.encode()
    for block_size in (1, 50, len(text)):
        large, tally = LargeValueWriter(None, tmp_path), ProblemTally()
        window = TextWindow(text[begin : begin + block_size] for begin in range(0, len(text), block_size))
        document = json_document.JsonDocument(window, "stdin", tally, large)
        for _ in document.seek_lists():
            assert text[: window.offset].endswith(b'"traceEvents": [')
            window.position += 1
        large.close()
        assert (tally.problems(), window.offset) == ([], len(text))
        kept = {key: value for key, value in values.items() if len(value.encode()) < 40}
        assert document.header == {"before": 1, "after": "\\"} | {key: json.loads(kept[key]) for key in kept}
        stored = {key: large.values.read_text(key).decode() for key in large.values.spans}
        assert stored == {key: value for key, value in values.items() if key not in kept}


def test_nothing_is_stored_of_a_value_without_an_end(tmp_path: Path) -> None:
    text = trace_text(entry_text(1))[:-1] + b', "k": "' + b"x" * 200_000
    decoded = decode_trace(Source("stdin", io.BytesIO(text)), tmp_path)
    assert decoded.large_keys is not None
    assert (decoded.large_keys.spans, decoded.large_keys.path.stat().st_size) == ({}, 0)
    assert count_problems(decoded) == {problems.CUT_SHORT: 1}


def test_a_damaged_header_value_is_repaired_or_reported() -> None:
    text = trace_text(entry_text(), before='"traceName": "C:\\Users\\x.json", "bad": {1: 2}, ', after=', "n": NaN')
    decoded = decode_text(text)
    assert decoded.header == {"traceName": "C:\\Users\\x.json", "n": None}
    assert len(decoded.events) == 1
    assert set(count_problems(decoded)) == {
        problems.REPAIRED_BACKSLASH,
        problems.UNREADABLE_HEADER,
        problems.REPAIRED_NUMBER,
    }


@pytest.mark.parametrize(
    "before", ['"name": "C:\\", "x": 1, ', '"a" 5, ', "nonsense, ", '"a": {"b": 1, ', '"a": ]]], ']
)
def test_events_are_found_after_an_unreadable_header(before: str) -> None:
    decoded = decode_text(trace_text(*(entry_text(k) for k in range(30)), before=before), chunk_size=300)
    assert len(decoded.events) == 30
    assert problems.UNREADABLE_HEADER in count_problems(decoded)


@pytest.mark.parametrize(
    "header",
    [
        '"env": {"TOKEN": "a_secret",, },',
        '"env": "a_secret" "b",',
        '"env": {"TOKEN": a_secret},',
        '"a": 1, TOKEN=a_secret, "b": 1,',
        "TOKEN: a_secret,",
    ],
)
def test_problems_quote_no_damaged_header(header: str) -> None:
    decoded = decode_text(trace_text(entry_text(1), before=header))
    assert decoded.problems
    assert not any("a_secret" in problem.example for problem in decoded.problems)


def test_a_trace_inside_something_else_is_found() -> None:
    decoded = decode_text(
        b'{"profile": {"kind": "x", "traceEvents": [' + entry_text().encode() + b'], "y": 2}, "z": 3}'
    )
    assert len(decoded.events) == 1


def test_a_nested_trace_is_found_wherever_a_scanned_piece_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_document, "_SCAN_SIZES", (16, 32))
    for pad in range(66):
        before = f'{{"p": {{"{"x" * pad}": 1, "traceEvents" : ['
        window, tally = TextWindow(iter([f"{before}]}}}}".encode()])), ProblemTally()
        document = json_document.JsonDocument(window, "stdin", tally, LargeValueWriter(None, tmp_path))
        found = []
        for _ in document.seek_lists():
            found.append(window.offset)
            window.position += 1
        assert found == [len(before)]
        assert tally.count(problems.UNREADABLE_HEADER) == 1


@pytest.mark.parametrize(
    ("before", "after", "kept", "example"),
    [
        (2, 0, 2, ""),
        (2, 2, 2, "the keys after byte 127 are lost"),
        (3, 0, 3, ""),
        (3, 1, 3, "the keys after byte 136 are lost"),
        (4, 0, 3, "after byte 34 only traceEvents was read"),
        (0, 2, 2, ""),
        (0, 3, 2, "the keys after byte 127 are lost"),
    ],
)
def test_keys_beyond_the_limit_are_reported_and_the_events_found(
    before: int, after: int, kept: int, example: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key of the events is one of the three, unless it comes after them."""
    monkeypatch.setattr(json_document, "MAX_KEYS", 3)
    keys = [f'"k{k}": {k}' for k in range(before + after)]
    text = trace_text(
        entry_text(1),
        before="".join(f"{key}, " for key in keys[:before]),
        after="".join(f", {key}" for key in keys[before:]),
    )
    decoded = decode_text(text)
    assert len(decoded.events) == 1
    assert decoded.header == {f"k{k}": k for k in range(kept)}
    assert [problem.example for problem in decoded.problems] == [f"more than 3 keys: {example}"] * bool(example)


def test_text_after_the_end_is_reported() -> None:
    assert count_problems(decode_text(trace_text(entry_text()) + b"\n{}")) == {problems.TEXT_AFTER_END: 1}
    assert count_problems(decode_text(b"[" + entry_text().encode() + b"] \0\0")) == {problems.TEXT_AFTER_END: 1}
    assert count_problems(decode_text(b"\xef\xbb\xbf" + trace_text(entry_text()))) == {}
    assert count_problems(decode_text(b"\xef\xbb\xbf \n" + trace_text(entry_text()) + b" \n\n")) == {}


def test_what_is_no_event_is_counted_in_a_named_list() -> None:
    decoded = decode_text(b'{"traceEvents": [1, {"name": "no phase"}]}')
    assert (len(decoded.events), decoded.not_objects) == (1, 1)


@pytest.mark.parametrize("text", [b'{"traceEvents": []}', b"[]", b' {"a": 1, "traceEvents": [\n ]\n}'])
def test_an_empty_list_is_an_empty_trace(text: bytes) -> None:
    decoded = decode_text(text)
    assert len(decoded.events) == 0
    assert decoded.problems == []
    assert decoded.events.names == []


NOT_TRACES = {
    b"": "an empty file",
    b" \n ": "an empty file",
    b"hello, world\n" * 50: "text that begins with: hello, world",
    b"null": "the JSON value null",
    b'"traceEvents"': "the JSON value",
    b"{}": "an empty object",
    b'{"a": 1}': "without traceEvents (keys: a)",
    b'{"traceEvents": 5}': "whose traceEvents is not a list",
    b"{nothing of interest": "text that begins with",
    bytes(range(256)) * 64: "binary data",
    b"\x7fELF\2\1\1\0\0\0": "binary data",
    b"two \1 controls \2": "binary data",
    b"one \1 control": "text that begins with: one",
    b"[" * 100_000: "cut off before its first event",
    b'{"a":' * 100_000: "without traceEvents",
    b'{"traceEvents": [': "cut off before its first event",
    b"[1, 2, 3]": "items are not events",
    b'[{"key": "aten::mm", "count": 3}]': "items are not events",
    '{"traceEvents": []}'.encode("utf-16"): "UTF-16",
    '{"traceEvents": []}'.encode("utf-16-le"): "UTF-16",
    '{"traceEvents": []}'.encode("utf-16-be"): "UTF-16",
    b"PK\x03\x04abc": "zip",
    b"<html>": "HTML",
    b"SQLite format 3\0": "SQLite",
    b"\x80\x04\x95abc": "pickle",
    b"<img src='data:image/png;base64,iVBOR'>": "export_memory_timeline",
    pickle.dumps({"segments": [], "device_traces": [[]]}): "torchprof-tui memory FILE prints it",
    pickle.dumps({"a": 1}): "not read, as it could run any code",
    b'{"$schema": "https://www.speedscope.app/file-format-schema.json", "profiles": []}': "py-spy record --format",
    b'{"shared": {"frames": []}, "profiles": [], "exporter": "x"}': "speedscope.app",
    b'{"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": [{"id": 1, "name": "aten::mm"}]}': "Chakra",
    b"\x07\n\x050.0.4\x12\x04\x08\x01\x12\x00": "Chakra",
    b'{"segments": [], "device_traces": []}': "memory snapshot",
    b"NVR\0\x10\x00\x00\x00report": "ncu --import",
    b"U3w[END]NVIDIA Nsight Systems Report 2025.3.1.0!\n\xb3G": "nsys export --type sqlite",
    b"U3w[END]NVIDIA Nsight Systems Stream 2025.3.1.0!\n\xb3G": "QdstrmImporter",
    b"\n\x90\x03\x12\x09/host:CPU\x1a\x02\x08\x01": ".trace.json.gz beside it",
    b"\n\x20\x08\x02\x12\x19/device:GPU:0 NVIDIA H200": "XPlane",
    b"\x1b[31mred\x07": "\\x1b[31mred\\x07",
    b"ab{ NVIDIA Nsight Systems Report": "nsys export --type sqlite",
    b"\1" * 32 + b"a" * 992: "text that begins with",  # controls are counted in the first 1,024 bytes
    b"\1" * 33 + b"a" * 991: "binary data",
    b"a" * 1024 + b"\1" * 99: "text that begins with",
    b"a" * 1023 + b"\0": "binary data",
    b" \t\n\f\r\x1b" * 9 + b"x": "text that begins with",
    b"1, 2": "text that begins with: 1, 2",
    b"{" + b" " * 15 + b"nothing": "text that begins with: { nothing",
    b"{" + b" " * 16 + b"nothing": "an empty object",
    b'{"shared": {}, "profiles": []}': "speedscope.app",
    b'{"schema": 1, "nodes": []}': "Chakra",
    b'{"segments": [], "device_traces": [], "more": 1}': "memory snapshot",
    b'{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1}': "(keys: a, b, c, d, e, f, g, h)",
}


@pytest.mark.parametrize(("text", "words"), NOT_TRACES.items(), ids=lambda value: repr(value)[:24])
def test_a_file_that_is_not_a_trace_is_described_in_one_line(text: bytes, words: str) -> None:
    with pytest.raises(TraceError) as caught:
        decode_text(text)
    line = str(caught.value)
    assert line.startswith("stdin: ")
    assert words in line
    assert line.isprintable()
    assert len(line) < 250
