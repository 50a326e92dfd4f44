"""Hostile files: the work and memory that they cost is bounded, and no terminal acts on their text.

Work is counted (bytes parsed, calls), never timed. Sizes are small, but the code path is that of large files.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import trace_builder
from tests.helpers.decoder_input import count_problems, decode_text, entry_text, trace_text
from tests.helpers.long_run import keep_some
from tests.helpers.trace_builder import annotation, kernel, runtime
from torchprof_tui.analysis.time import gpu_time
from torchprof_tui.analysis.time.gpu_time import compute_busy_by_device
from torchprof_tui.cli import main
from torchprof_tui.trace.build import counters
from torchprof_tui.trace.build.build_trace import build_trace
from torchprof_tui.trace.core import problems
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.decode import entry_decoder, json_document
from torchprof_tui.trace.decode.general_decoder import decode_trace
from torchprof_tui.trace.decode.interning import SignatureTable
from torchprof_tui.trace.json_text import salvage
from torchprof_tui.trace.json_text.repair import parse_values, repair_piece, scan_structure
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.sources.source import Source


class ParsedBytes:
    """Counts the bytes that are parsed, scanned and repaired."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0

        def counted(function: Any) -> Any:
            def call(text: bytes, *more: Any) -> Any:
                self.count += len(text)
                return function(text, *more)

            return call

        for function, modules in (
            (parse_values, (entry_decoder, salvage, json_document)),
            (scan_structure, (entry_decoder, salvage, json_document)),
            (repair_piece, (salvage, json_document)),
        ):
            for module in modules:
                monkeypatch.setattr(module, function.__name__, counted(function))


@pytest.fixture
def parsed_bytes(monkeypatch: pytest.MonkeyPatch) -> ParsedBytes:
    return ParsedBytes(monkeypatch)


def build_from_text(text: bytes, folder: Path) -> Trace:
    return build_trace(decode_trace(Source("hostile", io.BytesIO(text)), folder), "hostile")


MANY = 100_000

ENDLESS = {
    "commas": b'{"traceEvents": [' + b"," * MANY + b"]}",
    "numbers": b'{"traceEvents": [' + b"1," * (MANY // 2) + b'"\xff", 2]}',
    "brackets": b'{"traceEvents": [' + b"[" * MANY,
    "open string": b'{"traceEvents": [{"ph": "X", "name": "' + b"a" * MANY,
    "backslashes": b'{"traceEvents": [{"ph": "X", "name": "' + b"\\" * MANY + b'"}]}',
    "empty objects": b'{"traceEvents": [' + b"{}," * (MANY // 3) + b"\xff {}]}",
    "quotes": b'{"traceEvents": [' + b'"",' * (MANY // 3) + b'"]}',
    "keys": b"{" + b"".join(b'"k%d": {},' % k for k in range(MANY // 10)) + b'"traceEvents": [{"ph": "X"}]}',
    "space after the last entry": b'{"traceEvents": [{"ph": "X", "name": "a"}' + b" " * MANY,
    "space after a comma": b'{"traceEvents": [{"ph": "X", "name": "a"},' + b"\n" * MANY + b"\xff",
    "space after the list": b'{"traceEvents": [{"ph": "X", "name": "a"}\xff]' + b" " * MANY + b"x",
    "space after a quote": b'{"traceEvents": [{"ph": "X", "name": "a"b"' + b" " * MANY + b"}]}",
    "space after a key": b'{"traceEvents": [{"ph": "X", "name"' + b"\t" * MANY + b'"a"}]}',
    "space in a list": b'{"traceEvents": [{"ph": "X", "args": {"a": ["b"c"' + b" " * MANY + b"]}}]}",
    "space before all": b" " * MANY + b'{"traceEvents": [{"ph": "X"}',
    "beginnings": b'{"traceEvents": [' + b'{"ph": \xff, ' * (MANY // 11),
    "nested events": b'{"traceEvents": [' + b'{"ph": "X", "args": [1, ' * (MANY // 24) + b"\xff",
    "escaped quotes": b'{"traceEvents": [{"ph": ' + b'\\"' * (MANY // 2) + b"}]}",
    "a key without a colon": b'{"traceEvents": [{a' + b" " * MANY + b"}]}",
    "deep args": b'{"traceEvents": [{"ph": "X", "args": ' + b"[" * MANY + b"]" * MANY + b"}]}",
}


@pytest.mark.parametrize("name", keep_some(ENDLESS, 3))
def test_work_is_linear_in_the_size_of_the_file(name: str, parsed_bytes: ParsedBytes) -> None:
    with contextlib.suppress(TraceError):
        decode_text(ENDLESS[name])
    assert 0 < parsed_bytes.count < 150 * len(ENDLESS[name])


def test_entries_between_endless_values_are_kept() -> None:
    text = (
        b'{"traceEvents": ['
        + b"1," * 200_000
        + entry_text(1).encode()
        + b","
        + b"," * 200_000
        + entry_text(2).encode()
        + b"]}"
    )
    decoded = decode_text(text)
    assert len(decoded.events) == 2
    assert decoded.not_objects == 200_000


def test_repairs_cost_a_bounded_multiple(parsed_bytes: ParsedBytes) -> None:
    """Every entry has a number that is too large to parse."""
    damaged = [entry_text(k).replace('"ts": ', '"ts": ' + "7" * 2000) for k in range(400)]
    decoded = decode_text(trace_text(*damaged))
    assert len(decoded.events) == 400
    assert count_problems(decoded)[problems.REPAIRED_NUMBER] == 400
    size = len(trace_text(*damaged))
    assert size < parsed_bytes.count < 60 * size


def test_new_signatures_are_processed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every entry has a thread of its own: each chunk appends to the columns, none rebuilds them."""
    moved = 0
    flush_pending = SignatureTable._flush_pending

    def counted(self: SignatureTable) -> Any:
        nonlocal moved
        moved += len(self._pending) // 2
        return flush_pending(self)

    monkeypatch.setattr(SignatureTable, "_flush_pending", counted)
    decode_text(trace_text(*(entry_text(k, tid=k) for k in range(4000))), chunk_size=2000)
    assert moved == 4000


def test_events_are_found_after_too_many_keys() -> None:
    many = ", ".join(f'"k{k}": {k}' for k in range(json_document.MAX_KEYS + 50)) + ", "
    decoded = decode_text(trace_text(entry_text(1), before=many, after=', "last": 3'))
    assert len(decoded.events) == 1
    assert count_problems(decoded) == {
        problems.UNREADABLE_HEADER: 2
    }  # one for the keys before the events, one for the key after them
    exactly = ", ".join(f'"k{k}": {k}' for k in range(json_document.MAX_KEYS)) + ", "
    decoded = decode_text(trace_text(entry_text(1), before=exactly))
    assert (len(decoded.events), decoded.problems) == (1, [])


def test_counters_beyond_the_limit_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "MAX_SERIES", 10)
    entries = [{"ph": "C", "name": f"c{k % 15}", "pid": 1, "ts": k, "args": {"a": k}} for k in range(30)]
    trace = build_from_text(json.dumps({"traceEvents": entries}).encode(), tmp_path)
    assert len(trace.counters) == 10
    assert trace.counts.not_drawn == {"counter beyond the 10,000th": 10}
    assert trace.counts.drawn == 20


def test_many_devices_take_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = [
        {
            "ph": "X",
            "cat": "kernel",
            "name": "k",
            "pid": k,
            "tid": 7,
            "ts": k,
            "dur": 2,
            "args": {"device": k, "stream": 7},
        }
        for k in range(300)
    ]
    trace = build_from_text(json.dumps({"traceEvents": kernels}).encode(), tmp_path)
    masked_events = 0
    work_mask = gpu_time.work_mask

    def counted(kinds: Any) -> Any:
        nonlocal masked_events
        masked_events += len(kinds)
        return work_mask(kinds)

    monkeypatch.setattr(gpu_time, "work_mask", counted)
    assert {device: busy.total for device, busy in compute_busy_by_device(trace).items()} == dict.fromkeys(
        range(300), 2000
    )
    assert masked_events == 300


# --- text that terminals act on ---------------------------------------------------------------------------------------

EVIL = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e[bold red]x[/]\x00\r\n\ud800"


def evil_trace(folder: Path) -> str:
    track = {"pid": f"pid{EVIL}", "tid": f"tid{EVIL}"}
    entries = [
        {"ph": "M", "name": "process_name", **track, "args": {"name": f"process{EVIL}"}},
        {"ph": "M", "name": "thread_name", **track, "args": {"name": f"thread{EVIL}"}},
        *(trace_builder.event(f"op{EVIL}{k}", k, 5, f"cat{EVIL}", **track, args={EVIL: EVIL}) for k in range(4)),
        kernel(f"k{EVIL}", 4, 2, corr=1),
        runtime(f"launch{EVIL}", 3, 2, corr=1),
        {"ph": "C", "name": f"c{EVIL}", "pid": 1, "ts": 2, "args": {f"s{EVIL}": 1}},
        annotation(f"ProfilerStep#1{EVIL}", 1, 9),
    ]
    header = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": f"GPU{EVIL}"}], EVIL: EVIL}
    path = folder / "evil\x1b[31m.json"
    path.write_text(json.dumps({**header, "traceEvents": entries}), encoding="utf-8")
    return str(path)


COMMANDS = {
    "info": [],
    "info --json": [],
    "table": [],
    "table --json": [],
    "table --csv": [],
    "table --markdown": [],
    "check": [],
    "check --problems": [],
    "check --markdown": [],
    "check --json": [],
    "chain": ["--event", f"k{EVIL}".replace("\ud800", "\ufffd")],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_prints_control_characters(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    name, *options = command.split()
    assert main([name, evil_trace(tmp_path), *options, *COMMANDS[command], "--no-cache"]) == 0
    out, err = capsys.readouterr()
    bad = [c for c in out + err if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u202e\ud800")]
    assert not bad
    assert len(out) > 20


def test_errors_print_no_control_characters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "no\x1b[31m\x07trace.json"
    path.write_text(f'{{"key{EVIL[:20]}": 1}}')
    for words in (
        ["info", str(path)],
        ["info", f"{path}.missing"],
        ["slice", str(path), "--range", "0:1", "-o", "\x1b.txt"],
    ):
        assert main([*words, "--no-cache"]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert not [c for c in err if c != "\n" and (ord(c) < 32 or 127 <= ord(c) < 160)]


# --- memory ---------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("name", keep_some(["open string", "long name", "open brackets"], 1))
def test_an_endless_entry_is_given_up(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded by the largest accepted entry, not by the file."""
    limit = 1 << 16
    monkeypatch.setattr(entry_decoder, "MAX_ENTRY_BYTES", limit)
    monkeypatch.setattr(entry_decoder, "_MAX_PLAUSIBLE_ENTRY_BYTES", limit)
    size = 16 << 20
    text = {
        "long name": entry_text(1)[:-1].encode() + b', "x": "' + b"a" * size + b'"}',
        "open string": entry_text(1).encode() + b', {"ph": "X", "name": "' + b"a" * size,
        "open brackets": entry_text(1).encode() + b", " + b"[" * size,
    }[name]
    blocks = [b'{"traceEvents": [', *(text[k : k + limit] for k in range(0, len(text), limit))]
    stream = iter(blocks)

    class BlockStream(io.RawIOBase):
        def read(self, _: int = -1, /) -> bytes:
            return next(stream, b"")

    gc.collect()
    with tempfile.TemporaryDirectory() as folder:
        tracemalloc.start()
        decoded = decode_trace(Source("hostile", BlockStream()), Path(folder))  # type: ignore[arg-type]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < size, peak
    assert decoded.problems
