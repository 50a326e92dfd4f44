"""Tests of streams without an end: reading stops at a limit, with what was read before or one line."""

from __future__ import annotations

import gzip
import http.server
import io
import itertools
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.helpers.decoder_input import count_problems, entry_text
from tests.helpers.long_run import keep_some
from torchprof_tui.cli import main
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.problems import ENDLESS_TEXT
from torchprof_tui.trace.decode import entry_decoder
from torchprof_tui.trace.decode.general_decoder import decode_trace
from torchprof_tui.trace.sources.source import UNPACK_ALL, Source

LIMIT = 1 << 20
"""Bytes; damaged text is repaired at less than 1 MB/s."""

EVENT = entry_text(1).encode()


class EndlessStream:
    """A stream of a beginning and then the same bytes again and again; fails where far too much is read."""

    def __init__(self, head: bytes, filler: bytes, most: int = 40 * LIMIT) -> None:
        self._rest = head
        self._filler = filler * ((1 << 18) // len(filler))
        self._most = most
        self.read_bytes = 0

    def read(self, n: int, /) -> bytes:
        self._rest = self._rest or self._filler
        part, self._rest = self._rest[:n], self._rest[n:]
        self.read_bytes += len(part)
        assert self.read_bytes < self._most, "reading does not stop"
        return part

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def lower_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_decoder, "MAX_STREAM_BYTES_WITHOUT_EVENT", LIMIT)
    monkeypatch.setattr(entry_decoder, "MAX_STREAM_BYTES", 2 * LIMIT)
    monkeypatch.setattr(entry_decoder, "MAX_FILE_BYTES_WITHOUT_EVENT", LIMIT)


WITHOUT_EVENTS = {
    "space alone": (b"", b" "),
    "beginnings": (b'{"traceEvents": [', b'{"ph": \xff, '),  # slow
    "nested events": (b'{"traceEvents": [', b'{"ph": "X", "args": [1, '),  # slow
    "space in the list": (b'{"traceEvents": [', b"\n"),
    "space after the brace": (b"{", b" "),
    "a string": (b'{"traceEvents": [{"name": "', b"a"),
    "a header value": (b'{"a": "', b"a"),
    "header keys": (b"{", b'"a": 1, '),
    "numbers": (b"[", b"1, "),
    "brackets": (b'{"traceEvents": [', b"["),
}


@pytest.mark.parametrize("name", keep_some(WITHOUT_EVENTS, 3))
def test_a_stream_without_events_and_end_is_one_line(name: str, tmp_path: Path) -> None:
    head, filler = WITHOUT_EVENTS[name]
    stream = EndlessStream(head, filler)
    with pytest.raises(TraceError, match=r"^stdin: no event in 1 MiB of text; --unpack-all reads on$"):
        decode_trace(Source("stdin", stream), tmp_path)
    assert stream.read_bytes < 8 * LIMIT
    assert sum(path.stat().st_size for path in tmp_path.rglob("*")) < 8 * LIMIT


@pytest.mark.parametrize(
    ("after", "filler"), [(b"", b" "), (b",", b" "), (b"]}", b" "), (b"]}", b"y\n"), (b'], "a": [', b"1,")]
)
def test_the_events_before_endless_text_are_kept(after: bytes, filler: bytes, tmp_path: Path) -> None:
    stream = EndlessStream(b'{"traceEvents": [' + EVENT + b"," + EVENT + after, filler)
    decoded = decode_trace(Source("stdin", stream), tmp_path)
    assert len(decoded.events) == 2
    assert count_problems(decoded)[ENDLESS_TEXT] == 1


def test_events_without_end_are_read_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Above the size of the first part, whose events are decoded once all of it is read.
    monkeypatch.setattr(entry_decoder, "MAX_STREAM_BYTES_WITHOUT_EVENT", 2 * LIMIT)
    stream = EndlessStream(b"[", EVENT + b", ")
    decoded = decode_trace(Source("stdin", stream), tmp_path)
    assert len(decoded.events) > 1000
    [stop] = [problem for problem in decoded.problems if problem.kind == ENDLESS_TEXT]
    assert stop.example == "more than 2 MiB of text; --unpack-all reads on"


def test_unpack_all_reads_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(UNPACK_ALL, "1")
    text = b'{"traceEvents": [' + b" " * (3 * LIMIT) + EVENT + b"]}"
    decoded = decode_trace(Source("stdin", io.BytesIO(text)), tmp_path)
    assert decoded.problems == []
    assert len(decoded.events) == 1


@pytest.mark.long
def test_a_large_sparse_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sparse.json"
    with path.open("wb") as file:
        file.write(b'{"traceEvents": [')
        file.truncate(1 << 40)
    assert main(["info", "--no-cache", str(path)]) == 2
    assert capsys.readouterr().err.endswith("sparse.json: no event in 1 MiB of text; --unpack-all reads on\n")


def _repeat(data: bytes) -> Iterator[bytes]:
    return itertools.repeat(data)


def _gzip_without_end(data: bytes) -> Iterator[bytes]:
    """Yield one endless gzip stream that is not compressed, so that no ratio is remarkable."""
    compressor = zlib.compressobj(0, zlib.DEFLATED, 31)
    for block in _repeat(data):
        yield compressor.compress(block) + compressor.flush(zlib.Z_SYNC_FLUSH)


@pytest.mark.parametrize(
    "encode", keep_some([_repeat, _gzip_without_end, lambda data: _repeat(gzip.compress(data, 0))], 1)
)
def test_a_web_server_that_sends_space_without_end(
    encode: Callable[[bytes], Iterator[bytes]], capsys: pytest.CaptureFixture[str]
) -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(200)
            self.end_headers()

        def do_GET(self) -> None:
            self.do_HEAD()
            try:
                for block in encode(b" " * (1 << 18)):
                    self.wfile.write(block)
            except OSError:
                pass  # the reader has gone

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        address = f"http://127.0.0.1:{server.server_port}/trace.json"
        assert main(["info", "--no-cache", address]) == 2
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    captured = capsys.readouterr()
    assert captured.err.splitlines()[-1].endswith("no event in 1 MiB of text; --unpack-all reads on")
    assert "Traceback" not in captured.err
