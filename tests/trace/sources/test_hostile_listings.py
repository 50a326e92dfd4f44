"""Tests of listings that a host, a web server or an object store made up: limits, odd names, wrong types.

ssh is replaced by a script that prints a prepared answer.
"""

from __future__ import annotations

import contextlib
import http.server
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.remote_traces import refusal
from torchprof_tui.cli import main
from torchprof_tui.commands.info.main import print_folder
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.sources import listing, ssh_stream
from torchprof_tui.trace.sources.listing import MAX_LISTED, read_entry, run_limited
from torchprof_tui.trace.sources.program_file import ProgramFileReader
from torchprof_tui.trace.sources.source import open_source
from torchprof_tui.trace.sources.ssh_file import list_host_paths
from torchprof_tui.trace.specs.address import ListedTrace, parse_ssh_path
from torchprof_tui.trace.specs.runs_by_name import FolderError

MARK = b"\n\x1etorchprof-tui "

HOSTILE_NAMES = [
    b"../../etc/rank0.json",
    b"/etc/rank1.json",
    b"a/../../rank2.json",
    b"nul\0.json",
    b"escape\x1b[31m.json",
    b"tab\t.json",
    b"x" * 10_000 + b".json",
    b"a/b/c/d/deep.json",
    b"..",
    b"",
]

SAFE_NAMES = [b"-rf.json", b"it's $(x) `y`.json", b"\xff\xfe.json", "ü \u202e.json".encode()]


@pytest.fixture
def answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Replace ssh by a program that prints what the test prepares, whatever it is asked."""
    client = tmp_path / "bin" / "ssh"
    client.parent.mkdir()
    client.write_text(f'#!/bin/sh\ncase "$*" in *"-G "*) exit 1;; esac\nexec cat {tmp_path}/answer\n')
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{client.parent}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return (tmp_path / "answer").write_bytes  # type: ignore[return-value]


def list_spec(spec: str) -> list[ListedTrace] | str:
    path = parse_ssh_path(spec)
    assert path is not None
    return list_host_paths([path])[0][0]


def folder_error(spec: str) -> FolderError:
    with pytest.raises(FolderError) as caught:
        open_source(spec)
    return caught.value


def test_only_names_in_the_folder_are_listed(answer: Callable[[bytes], None]) -> None:
    names = HOSTILE_NAMES + SAFE_NAMES
    answer(MARK + b"folder\n" + b"".join(b"7:1700000000:./" + name + b"\n" for name in names))
    expected = sorted(f"box:runs/{os.fsdecode(name)}" for name in SAFE_NAMES)
    assert sorted(trace.spec for trace in folder_error("box:runs").traces) == expected
    for spec, folder in (("box:runs", b"./runs/"), ("box:/data/", b"/data/"), ("box:runs/*.json", b"./runs/")):
        kind = b"pattern" if b"*" in spec.encode() else b"folder"
        lines = b"".join(b"7 1700000000 1700000000 5 " + folder + name + b"\n" for name in names)
        other = b"7 1700000000 1700000000 5 /etc/passwd.json\n7 1 1 5 ./other/x.json\n"
        answer(MARK + kind + b"\n" + lines + other + MARK + b"end\n")
        listed = list_spec(spec)
        assert not isinstance(listed, str)
        prefix = "box:/data/" if "/data" in spec else "box:runs/"
        assert sorted(trace.spec for trace in listed) == sorted(f"{prefix}{os.fsdecode(name)}" for name in SAFE_NAMES)


@pytest.mark.parametrize("number", [b"-1", b"9" * 400, b"9" * 5000, b"inf", b"nan", b"1e9", b"", b"\xd9\xa3"])
def test_numbers_out_of_range_are_unknown(answer: Callable[[bytes], None], number: bytes) -> None:
    """They cannot end in dates that no calendar shows."""
    answer(
        MARK
        + b"folder\n"
        + number
        + b":1:./a.json\n1:"
        + number
        + b":./b.json\n1:999999999999:./c.json\n1:5:./d.json\n"
    )
    traces = {trace.spec: trace for trace in folder_error("box:runs").traces}
    assert (traces["box:runs/d.json"].size, traces["box:runs/d.json"].modified) == (1, 5.0)
    assert all(0 <= trace.modified < 1e12 and (trace.size or 0) >= 0 for trace in traces.values())
    for as_json in (False, True):
        print_folder(folder_error("box:runs"), as_json)
    answer(MARK + b"file cat " + number + b" 1 2 3\nhello")
    source = open_source("box:a.json")
    assert source.total is None or 0 <= source.total < 1 << 63
    source.close()


@pytest.mark.long
def test_many_names_are_cut_with_a_line(answer: Callable[[bytes], None], capsys: pytest.CaptureFixture[str]) -> None:
    answer(MARK + b"folder\n" + b"".join(b"1:%d:./%d.json\n" % (number, number) for number in range(100_000)))
    folder = folder_error("box:runs")
    assert len(folder.traces) == MAX_LISTED
    assert folder.traces[0].spec == "box:runs/99999.json"
    print_folder(folder, as_json=False)
    assert "only the newest 2,000 are listed; name a subfolder to see others" in capsys.readouterr().err


def test_endless_answers_end_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh_stream, "MAX_LISTING_BYTES", 1 << 20)
    client = tmp_path / "ssh"
    header = 'printf "\\n\\036torchprof-tui folder\\n"'
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    client.write_text(f'#!/bin/sh\ncase "$*" in *"-G "*) exit 1;; esac\n{header}\nexec yes 1:1:./rank0.json\n')
    client.chmod(0o755)
    assert "the list is longer than 1 MB" in refusal("box:runs")
    with pytest.raises(TraceError, match="the list is longer than 1 MB; name a subfolder"):
        list_spec("box:runs/*")
    client.write_text('#!/bin/sh\ncase "$*" in *"-G "*) exit 1;; esac\nexec yes\n')
    assert "did not run the requested command" in refusal("box:runs")


@pytest.mark.parametrize(
    "header",
    [b"file", b"file cat", b"file zstd \xff", b"file 7", b"folder x", b"", b"denied", b"\xff\xfe", b"file 1 2 3 4 5"],
)
def test_any_header_is_a_line_or_a_source(answer: Callable[[bytes], None], header: bytes) -> None:
    answer(MARK + header + b"\n[]")
    for read in (
        lambda: open_source("box:a.json").close(),
        lambda: list_spec("box:a*"),
        lambda: ProgramFileReader("x/a.py", "box:a.json", Path()).read(),
    ):
        with contextlib.suppress(TraceError):
            read()


def test_random_answers_raise_nothing_else(answer: Callable[[bytes], None]) -> None:
    rng = random.Random(3)
    words = [
        MARK,
        b"\n",
        b"end",
        b"folder",
        b"file",
        b"pattern",
        b"missing",
        b"1",
        b" ",
        b":",
        b"./a.json",
        b"\0",
        b"\xff",
    ]
    for _ in range(25):
        answer(MARK + b"".join(rng.choices(words, k=rng.randrange(12))) + MARK + b"end\n")
        for spec in ("box:a", "box:a*"):
            with contextlib.suppress(TraceError):
                list_spec(spec)


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.binary(max_size=5),
    st.lists(st.integers(), max_size=2),
    st.datetimes(),
)


@pytest.mark.long
@given(st.dictionaries(st.sampled_from(["name", "size", "type", "mtime", "LastModified", "ETag", "created"]), VALUES))
@settings(max_examples=200, deadline=None)
def test_entries_of_any_type(fields: dict[str, Any]) -> None:
    entry = read_entry(fields)
    if entry is None:
        return
    assert entry.size is None or 0 <= entry.size < 1 << 63
    assert entry.modified >= 0
    datetime.fromtimestamp(entry.modified)
    assert ".." not in entry.name.split("/")
    assert entry.identity("s") is None or entry.size


@pytest.mark.parametrize("entry", [None, [], "a.json", {"name": 7}, {"name": "a/../b.json"}, {"name": "a\n.json"}, {}])
def test_entries_without_a_usable_name_are_left_out(entry: object) -> None:
    assert read_entry(entry) is None


def test_a_listing_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MAX_LISTING_SECONDS", 0.05)
    ended = threading.Event()
    with pytest.raises(TraceError, match="s3://b/x/: the list takes longer than"):
        run_limited("s3://b/x/", lambda: ended.wait(30))
    ended.set()
    with pytest.raises(FileNotFoundError):
        run_limited("s3://b/x/", lambda: Path("/nowhere").stat())


PAGE = """
<html><a href="rank0.json">x</a><a href='rank%201.json.gz'>y</a>
<a href="../rank2.json">out</a><a href="/etc/rank3.json">out</a><a href="http://evil.invalid/rank4.json">out</a>
<a href="//evil.invalid/rank5.json">out</a><a href="a/../../rank6.json">out</a><a href="%2e%2e/rank7.json">out</a>
<a href="..%2frank8.json">out</a><a href="es%1bcape.json">bad</a><a href="nul%00.json">bad</a>
<a href="javascript:x.json">bad</a><a href="http://[bad/rank.json">bad</a><a href="{long}.json">long</a>
<a href="&#114;ank9.json">entity</a><a href=>none</a>
<a href="below/">folder</a><a href="rank0.json?sort=1">query</a>""".replace("{long}", "x" * 10_000)


SILENT_SECONDS = 3.0
"""Time that a server takes for no answer; each request is repeated."""


class Hostile(http.server.BaseHTTPRequestHandler):
    """Answer with a page of hostile links, one without end, or one that comes too slowly."""

    def do_GET(self) -> None:
        if self.path.startswith("/silent/"):
            time.sleep(SILENT_SECONDS)
            self.close_connection = True
            return None
        if self.path == "/many/":
            body = "".join(f'<a href="{number}.json">x</a>' for number in range(50_000)).encode()
        elif self.path.startswith("/runs/") and not self.path.startswith("/runs/rank"):
            body = PAGE.encode()
        elif self.path == "/reason.json":
            return self.send_error(503, "\x1b[31m" + "x" * 300)
        elif self.path == "/loop.json":
            self.send_response(302)
            self.send_header("Location", self.path)
            return self.end_headers()
        else:
            body = b""
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        if self.path not in ("/endless/", "/slow/"):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            try:
                self.wfile.write(body)
                while self.path == "/endless/":
                    self.wfile.write(b'<a href="x.json">' * 4000)
                while self.path == "/slow/":
                    self.wfile.write(b'<a href="x.json">')
                    time.sleep(0.02)
            except OSError:
                self.close_connection = True
        return None

    do_HEAD = do_GET  # noqa: N815  (the base class's own word)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the base class's own word)
        """Log nothing."""


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    pytest.importorskip("aiohttp")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hostile) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.long
def test_only_links_below_a_page_are_listed(site: str, capsys: pytest.CaptureFixture[str]) -> None:
    expected = [f"{site}/runs/{name}" for name in ("rank%201.json.gz", "rank0.json", "rank9.json")]
    assert sorted(trace.spec for trace in folder_error(f"{site}/runs/").traces) == expected
    assert main(["info", f"{site}/runs/"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    folder = folder_error(f"{site}/many/")
    assert (len(folder.traces), folder.omitted) == (MAX_LISTED, 50_000 - MAX_LISTED)


def test_pages_without_end_are_given_up(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module("torchprof_tui.trace.sources.url")
    assert refusal(f"{site}/endless/") == "the page is longer than 8 MB; name a trace"
    monkeypatch.setattr(module, "MAX_LISTING_SECONDS", 0.2)
    assert refusal(f"{site}/slow/").startswith("the list takes longer than 0.2 s")


@pytest.mark.parametrize("place", ["a.json", "runs/", "*/*.json"])
def test_a_server_that_does_not_answer_is_given_up(site: str, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Each address is asked for several times, and each request is repeated: minutes, with a timeout for each."""
    monkeypatch.setattr(listing, "MAX_LISTING_SECONDS", 0.2)
    said = refusal(f"{site}/silent/{place}")
    assert said.startswith(("the server does not answer within", "the list takes longer than"))


def test_answers_that_are_none(site: str) -> None:
    said = refusal(f"{site}/reason.json")
    assert said.startswith("the server answered 503 ")
    assert len(said) < 150
    assert refusal(f"{site}/loop.json") == "the server redirects endlessly"
    for address in ("http://", "https:///a.json", "http://h:99999/a.json", "http://[::1/a.json"):
        assert refusal(address) == "not a valid address; write http://host/path"


def test_proxies_are_named(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert refusal("http://example.invalid/a.json").startswith(
        "the proxy 127.0.0.1 cannot be reached; check http_proxy, "
    )
    monkeypatch.setenv("http_proxy", "http://nowhere.invalid:9")
    assert refusal("http://example.invalid/a.json").startswith("the proxy nowhere.invalid cannot be reached")
