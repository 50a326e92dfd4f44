"""Files made to hurt: the work that they cause is bounded, and nothing in them is acted on.

Work is counted (bytes parsed, calls), never timed; sizes are small, and the path is the one of large files.
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
from tests.helpers.trace_builder import annotation, kernel, runtime
from tests.trace.decode.test_decoder import decode, event, events, found
from torchprof_tui.analysis.time.gpu_time import compute_busy_by_device
from torchprof_tui.cli import main
from torchprof_tui.trace.build import counters
from torchprof_tui.trace.build.build_trace import build_trace
from torchprof_tui.trace.core import problems
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.decode import chunker, json_document
from torchprof_tui.trace.decode.decoder import decode_trace
from torchprof_tui.trace.decode.interning import SignatureTable
from torchprof_tui.trace.json_text import repair, salvage, scan
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.sources.source import Source


class Work:
    """How many bytes went through the parser, the scan and the repairs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes = 0

        def counted(function: Any) -> Any:
            def call(text: bytes, *more: Any) -> Any:
                self.bytes += len(text)
                return function(text, *more)

            return call

        for module in (chunker, salvage, json_document):
            for name in ("readable", "scan", "repaired"):
                if hasattr(module, name):
                    original = getattr({"scan": scan}.get(name, repair), name)
                    monkeypatch.setattr(module, name, counted(original))


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    return Work(monkeypatch)


def opened(text: bytes, folder: Path) -> Trace:
    return build_trace(decode_trace(Source("made", io.BytesIO(text)), folder), "made")


MANY = 400_000

ENDLESS = {
    "commas": b'{"traceEvents": [' + b"," * MANY + b"]}",
    "numbers": b'{"traceEvents": [' + b"1," * (MANY // 2) + b'"\xff", 2]}',
    "brackets": b'{"traceEvents": [' + b"[" * MANY,
    "open string": b'{"traceEvents": [{"ph": "X", "name": "' + b"a" * MANY,
    "backslashes": b'{"traceEvents": [{"ph": "X", "name": "' + b"\\" * MANY + b'"}]}',
    "empty objects": b'{"traceEvents": [' + b"{}," * (MANY // 3) + b"\xff {}]}",
    "quotes": b'{"traceEvents": [' + b'"",' * (MANY // 3) + b'"]}',
    "keys": b"{" + b"".join(b'"k%d": {},' % k for k in range(MANY // 10)) + b'"traceEvents": [{"ph": "X"}]}',
    "deep args": b'{"traceEvents": [{"ph": "X", "args": ' + b"[" * MANY + b"]" * MANY + b"}]}",
}


@pytest.mark.parametrize("name", ENDLESS)
def test_the_work_grows_with_the_file_and_not_with_its_square(name: str, work: Work) -> None:
    with contextlib.suppress(TraceError):
        decode(ENDLESS[name])
    assert work.bytes < 150 * len(ENDLESS[name])


def test_what_is_good_between_endless_values_is_kept() -> None:
    text = (
        b'{"traceEvents": [' + b"1," * 200_000 + event(1).encode() + b"," + b"," * 200_000 + event(2).encode() + b"]}"
    )
    decoded = decode(text)
    assert len(decoded.events) == 2
    assert decoded.not_objects == 200_000


def test_entries_that_need_repair_cost_a_bounded_multiple(work: Work) -> None:
    """Numbers beyond any, in every entry."""
    damaged = [event(k).replace('"ts": ', '"ts": ' + "7" * 2000) for k in range(400)]
    decoded = decode(events(*damaged))
    assert len(decoded.events) == 400
    assert found(decoded)[problems.REPAIRED_NUMBER] == 400
    assert work.bytes < 60 * len(events(*damaged))


def test_new_shapes_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file where every entry has a thread of its own: each chunk adds to the columns, none makes them anew."""
    moved = 0
    settle = SignatureTable._flush_pending

    def counted(self: SignatureTable) -> Any:
        nonlocal moved
        moved += len(self._pending) // 2
        return settle(self)

    monkeypatch.setattr(SignatureTable, "_flush_pending", counted)
    decode(events(*(event(k, tid=k) for k in range(4000))), chunk_size=2000)
    assert moved == 4000


def test_keys_beyond_counting_are_skipped_and_the_events_found() -> None:
    many = ", ".join(f'"k{k}": {k}' for k in range(json_document.MAX_KEYS + 50)) + ", "
    decoded = decode(events(event(1), before=many, after=', "last": 3'))
    assert len(decoded.events) == 1
    assert found(decoded) == {problems.UNREADABLE_HEADER: 2}  # those before the events, and the one behind
    exactly = ", ".join(f'"k{k}": {k}' for k in range(json_document.MAX_KEYS)) + ", "
    decoded = decode(events(event(1), before=exactly))
    assert (len(decoded.events), decoded.problems) == (1, [])


def test_counters_beyond_counting_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "MAX_SERIES", 10)
    entries = [{"ph": "C", "name": f"c{k % 15}", "pid": 1, "ts": k, "args": {"a": k}} for k in range(30)]
    trace = opened(json.dumps({"traceEvents": entries}).encode(), tmp_path)
    assert len(trace.counters) == 10
    assert trace.counts.not_drawn == {"counter beyond the 10,000th": 10}
    assert trace.counts.drawn == 20


def test_a_device_for_each_kernel_is_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    trace = opened(json.dumps({"traceEvents": kernels}).encode(), tmp_path)
    looked_at = 0
    from torchprof_tui.analysis.time import gpu_time

    masks = gpu_time.work_mask

    def counted(kinds: Any) -> Any:
        nonlocal looked_at
        looked_at += len(kinds)
        return masks(kinds)

    monkeypatch.setattr(gpu_time, "work_mask", counted)
    assert {device: worked.total for device, worked in compute_busy_by_device(trace).items()} == dict.fromkeys(
        range(300), 2000
    )
    assert looked_at == 300


# --- nothing is acted on --------------------------------------------------------------------------------------------

EVIL = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e[bold red]x[/]\x00\r\n\ud800"

_SHOWN = {"\n"}


def evil_trace(folder: Path) -> str:
    named = {"pid": f"pid{EVIL}", "tid": f"tid{EVIL}"}
    entries = [
        {"ph": "M", "name": "process_name", **named, "args": {"name": f"process{EVIL}"}},
        {"ph": "M", "name": "thread_name", **named, "args": {"name": f"thread{EVIL}"}},
        *(trace_builder.event(f"op{EVIL}{k}", k, 5, f"cat{EVIL}", **named, args={EVIL: EVIL}) for k in range(4)),
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
    "check --json": [],
    "chain": ["--event", f"k{EVIL}".replace("\ud800", "\ufffd")],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_prints_what_a_terminal_acts_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    name, *options = command.split()
    assert main([name, evil_trace(tmp_path), *options, *COMMANDS[command], "--no-cache"]) == 0
    out, err = capsys.readouterr()
    bad = [c for c in out + err if c not in _SHOWN and (ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u202e\ud800")]
    assert not bad
    assert len(out) > 20


def test_refusals_print_nothing_raw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


@pytest.mark.parametrize("name", ["long name", "open string", "open brackets"])
def test_text_without_an_end_is_given_up(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory follows the largest entry that is believed in, not the file."""
    monkeypatch.setattr(chunker, "MAX_ENTRY_BYTES", 1 << 18)
    monkeypatch.setattr(chunker, "_MAX_PLAUSIBLE_ENTRY_BYTES", 1 << 18)
    size = 24 << 20
    text = {
        "long name": event(1)[:-1].encode() + b', "x": "' + b"a" * size + b'"}',
        "open string": event(1).encode() + b', {"ph": "X", "name": "' + b"a" * size,
        "open brackets": event(1).encode() + b", " + b"[" * size,
    }[name]
    blocks = [b'{"traceEvents": [', *(text[k : k + (1 << 18)] for k in range(0, len(text), 1 << 18))]
    stream = iter(blocks)

    class Slowly(io.RawIOBase):
        def read(self, _: int = -1, /) -> bytes:
            return next(stream, b"")

    gc.collect()
    with tempfile.TemporaryDirectory() as folder:
        tracemalloc.start()
        decoded = decode_trace(Source("made", Slowly()), Path(folder))  # type: ignore[arg-type]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < size, peak
    assert decoded.problems
