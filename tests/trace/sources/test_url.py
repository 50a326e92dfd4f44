"""Tests of traces behind URLs: an HTTP server and other file systems of fsspec."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import ssl
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.command_line import read_error_line
from tests.helpers.later_imports import skip_without
from tests.helpers.paths import list_cache
from tests.helpers.rank_traces import late_rank
from tests.helpers.remote_traces import opened, read, refusal
from torchprof_tui.cli import main
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.problems import CUT_CONNECTION
from torchprof_tui.trace.loading import open_ranks
from torchprof_tui.trace.loading.load_in_process import load_opened_trace
from torchprof_tui.trace.loading.opener import SingleTraceOpener
from torchprof_tui.trace.loading.resolve import check_readable
from torchprof_tui.trace.sources.source import open_source
from torchprof_tui.trace.specs.runs_by_name import FolderError

fsspec = pytest.importorskip("fsspec")
skip_without("aiohttp")

pytestmark = pytest.mark.usefixtures("cache_home")

EVENTS = 20_000
TEXT = json.dumps(
    {
        "traceEvents": [
            {
                "ph": "X",
                "cat": "cpu_op",
                "name": f"op {k % 50}",
                "pid": 1,
                "tid": 1,
                "ts": 10 * k,
                "dur": 5,
                "args": {"k": k},
            }
            for k in range(EVENTS)
        ]
    }
).encode()


RESUMED = ("ranges", "whole", "changed", "unknown")


class Server(SimpleHTTPRequestHandler):
    """Serve a folder: below /cut half of each file, below /forbidden none, below /packed gzip-encoded.

    Below /ranges, /whole, /changed and /unknown the first answer is cut: the rest can be requested, the file can only
    be sent again, it is another one then, or nothing tells whether it is the same.
    """

    requests: list[str] = []

    def do_GET(self) -> None:
        if self.command == "GET":
            self.requests.append(self.path)
        kind, _, name = self.path.lstrip("/").partition("/")
        if kind == "forbidden":
            self.send_error(403)
        elif kind == "cut":
            data = (Path(self.directory) / name).read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("ETag", '"1"')
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data[: len(data) // 2])
                time.sleep(0.1)  # aiohttp discards data that was not read when the connection ends
        elif kind in RESUMED:
            data, first = (Path(self.directory) / name).read_bytes(), self.requests.count(self.path) <= 1
            begin = int((self.headers.get("Range") or "bytes=0-")[6:-1]) if kind == "ranges" else 0
            self.send_response(206 if begin else 200)
            self.send_header("Content-Length", str(len(data) - begin))
            if begin:
                self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
            if kind != "unknown":
                self.send_header("ETag", f'"{first}"' if kind == "changed" else '"1"')
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data[: len(data) // 2] if first else data[begin:])
                time.sleep(0.1 if first else 0)  # as above
        elif kind == "packed":
            data = gzip.compress((Path(self.directory) / name).read_bytes(), 1)
            self.send_response(200)
            self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(data)
        else:
            super().do_GET()

    def do_HEAD(self) -> None:
        if self.path.split("/")[1] in ("forbidden", "cut", "packed", *RESUMED):
            self.do_GET()
        else:
            super().do_HEAD()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the base class's own word)
        """Log nothing."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    (folder / "trace.json").write_bytes(TEXT)
    (folder / "trace.json.gz").write_bytes(gzip.compress(TEXT, 1))
    (folder / "stored.json.gz").write_bytes(gzip.compress(TEXT, 0))
    (folder / "empty.json").touch()
    (folder / "below").mkdir()
    return folder


@pytest.fixture(scope="module")
def site(folder: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Server, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def reset_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    # One process decodes one rank after the other: starting more takes longer here than what they do.
    monkeypatch.setattr(open_ranks, "MAX_WORKERS", 1)
    monkeypatch.setattr(open_ranks, "MAX_WORKERS_PER_HOST", 1)
    Server.requests.clear()


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_received_text_equals_the_file(site: str, folder: Path, name: str) -> None:
    source = open_source(f"{site}/{name}")
    assert source.plain_path is None
    assert source.total == (folder / name).stat().st_size
    assert read(source) == TEXT
    assert source.consumed == source.total
    assert source.problems == []
    assert Server.requests == [f"/{name}"]  # a single request


def test_content_encoding_is_decoded(site: str) -> None:
    assert read(open_source(f"{site}/packed/trace.json")) == TEXT


@pytest.mark.long
async def test_reopening_uses_the_cache(site: str, folder: Path) -> None:
    opening = SingleTraceOpener(f"{site}/trace.json.gz")
    trace, reports = await opened(opening)
    assert reports[0].phase == "connecting"
    size = (folder / "trace.json.gz").stat().st_size
    assert (reports[-1].bytes, reports[-1].total, reports[-1].events) == (size, size, EVENTS)
    assert trace.event(7).read_args() == {"k": 7}
    assert load_opened_trace(f"{site}/trace.json.gz").cached
    opening.close()


@pytest.mark.parametrize("name", ["trace.json", "stored.json.gz"])
def test_interrupted_download_keeps_the_received_part(site: str, folder: Path, name: str, cache_home: Path) -> None:
    loaded = load_opened_trace(f"{site}/cut/{name}")
    assert EVENTS * 0.05 < loaded.trace.counts.drawn < EVENTS * 0.7
    cut = next(problem for problem in loaded.trace.problems if problem.kind == CUT_CONNECTION)
    total = (folder / name).stat().st_size / 1e6
    words = f"connection to {site.removeprefix('http://')} lost at {total / 2:,.1f} of {total:,.1f} MB; "
    assert cut.example == f"{words}the download ended early: the server closed the connection"
    assert [problem.count for problem in loaded.trace.problems] == [1]
    loaded.cache_entry.close()
    assert list_cache(cache_home) == []


@pytest.mark.parametrize("command", ["info", "check"])
def test_a_command_refuses_a_part_of_a_trace(site: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = read_error_line(capsys, command, f"{site}/cut/trace.json", "--no-cache")
    assert f": connection to {site.removeprefix('http://')} lost at " in line
    assert line.endswith("the server closed the connection; try again\n")


@pytest.mark.parametrize("kind", ["ranges", "whole"])
@pytest.mark.parametrize("name", ["trace.json", "stored.json.gz"])
def test_interrupted_download_is_resumed(site: str, kind: str, name: str) -> None:
    source = open_source(f"{site}/{kind}/{name}")
    assert read(source) == TEXT
    assert source.problems == []
    assert source.consumed == source.total
    assert Server.requests == [f"/{kind}/{name}"] * 2


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("changed", "it has changed since"), ("unknown", "the server does not tell whether it is still the same")],
)
def test_another_file_is_not_taken_for_the_rest(site: str, kind: str, reason: str) -> None:
    source = open_source(f"{site}/{kind}/trace.json")
    assert read(source) == TEXT[: len(TEXT) // 2]
    (cut,) = source.problems
    assert cut.kind == CUT_CONNECTION
    assert cut.example.endswith(f"; the rest of the file was not taken: {reason}")


def test_unreadable_urls(site: str) -> None:
    assert refusal(f"{site}/none.json") == "no such file there"
    assert refusal(f"{site}/forbidden/trace.json") == "the server answered 403 Forbidden"
    assert refusal(f"{site}/empty.json") == "the file is empty"
    assert refusal("http://127.0.0.1:9/t.json") == "the server refused the connection"
    assert refusal("http://nowhere.invalid/t.json") == "there is no host nowhere.invalid"


@pytest.fixture
def untrusted_site(folder: Path, tmp_path: Path) -> Iterator[str]:
    """Serve the folder over https with a certificate that nobody signed."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subject = (
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=DNS:localhost",
        "-days",
        "2",
        "-keyout",
        str(key),
        "-out",
        str(certificate),
    )
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *subject], check=True, capture_output=True
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Server, directory=str(folder))) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a refused handshake is no news
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"https://localhost:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.long
def test_connection_errors_say_what_is_wrong(site: str, untrusted_site: str, tmp_path: Path) -> None:
    said = refusal(f"{untrusted_site}/trace.json")
    assert said.startswith("the server's certificate is not trusted (self")
    assert said.endswith("; SSL_CERT_FILE=FILE adds your own")
    program = [sys.executable, "-m", "torchprof_tui", "info", "--json", f"{untrusted_site}/trace.json"]
    environment = {**os.environ, "SSL_CERT_FILE": str(tmp_path / "certificate.pem")}
    assert subprocess.run(program, env=environment, check=True, capture_output=True).stdout
    assert refusal(f"{site.replace('http', 'https')}/trace.json").startswith("no secure connection: ")
    assert refusal("ftp://nowhere.invalid/t.json") == "there is no host of that name"
    assert refusal("ftp://127.0.0.1:9/t.json") == "the server refused the connection"


def test_html_page_is_refused(site: str) -> None:
    with pytest.raises(TraceError, match="not a trace, but a page of HTML"):
        load_opened_trace(f"{site}/below/")


@pytest.fixture
def ranks(folder: Path) -> Path:
    """A folder with three ranks and another file, whose name must be escaped in a URL."""
    run_folder = folder / "the run %1"
    if not run_folder.exists():
        run_folder.mkdir()
        late_rank(3).write(run_folder, packed=True)
        (run_folder / "notes.txt").write_text("no trace")
    return run_folder


def info(capsys: pytest.CaptureFixture[str], *names: object) -> tuple[dict[str, Any], str]:
    assert main(["info", "--json", *map(str, names)]) == 0
    out, err = capsys.readouterr()
    return json.loads(out), err


@pytest.mark.long
def test_ranks_by_pattern_by_name_and_mixed(site: str, ranks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    below = f"{site}/the%20run%20%251"
    here, _ = info(capsys, ranks)
    for names in (
        [f"{below}/rank*.json.gz"],
        [f"{below}/rank[0-2]*"],
        [f"{below}/rank{k}.json.gz" for k in (2, 0, 1)],
        [f"{below}/rank1.json.gz", ranks / "rank0.json.gz", f"{below}/rank2.json.gz"],
    ):
        result, err = info(capsys, *names)
        assert err == ""
        assert [rank["rank"] for rank in result["ranks"]] == [0, 1, 2]
        for key in ("events", "by_category", "duration_ns", "collectives"):
            assert result[key] == here[key]
    assert result["cached"]  # the server's response identifies each rank
    Server.requests.clear()
    assert main(["info", f"{site}/**/rank0.json.gz"]) == 2
    assert "** would follow every link of that server" in capsys.readouterr().err
    assert len(Server.requests) <= 1
    assert main(["info", f"{below}/none*"]) == 2
    assert capsys.readouterr().err == f"torchprof-tui: {below}/none*: no match there\n"


@pytest.mark.long
def test_one_rank_interrupted_and_one_missing(site: str, ranks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    below = "the%20run%20%251"
    whole, missing = f"{site}/{below}/rank0.json.gz", f"{site}/{below}/rank7.json.gz"
    (ranks.parent / "rank1.json").write_bytes(gzip.decompress((ranks / "rank1.json.gz").read_bytes()))
    result, err = info(capsys, whole, f"{site}/cut/rank1.json", missing)
    assert [rank["rank"] for rank in result["ranks"]] == [0, 1]
    assert result["ranks"][1]["events"] < result["ranks"][0]["events"]
    kinds = {problem["kind"]: problem["example"] for problem in result["problems"]}
    assert "; the download ended early: the server closed the connection" in kinds[CUT_CONNECTION]
    assert err == f"torchprof-tui: left out: rank 7: {missing}: no such file there\n"


@pytest.mark.long
def test_page_with_links_to_traces_is_a_folder(site: str, ranks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = f"{site}/the%20run%20%251/"
    result, _ = info(capsys, page)
    assert [each["trace"] for each in result["traces"]] == [f"{page}rank{k}.json.gz" for k in range(3)]
    assert result["runs"] == [[f"{page}rank{k}.json.gz" for k in range(3)]]
    assert main(["check", page, "--json"]) == 0
    assert [rank["rank"] for rank in json.loads(capsys.readouterr().out)["ranks"]] == [0, 1, 2]


def test_other_file_systems(tmp_path: Path) -> None:
    files = fsspec.filesystem("memory")
    files.pipe("/runs/trace.json.gz", gzip.compress(TEXT, 1))
    files.pipe("/runs/notes.txt", b"-")
    assert read(open_source("memory://runs/trace.json.gz")) == TEXT
    with pytest.raises(FolderError) as caught:
        open_source("memory://runs")
    assert [each.spec for each in caught.value.traces] == ["memory:///runs/trace.json.gz"]
    assert read(open_source(caught.value.traces[0].spec)) == TEXT
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("trace.json", TEXT)
    assert read(open_source(f"zip://trace.json::file://{tmp_path}/a.zip")) == TEXT


@pytest.mark.parametrize(
    ("protocol", "module", "package"),
    [
        ("s3", "s3fs", "'torchprof-tui[s3]'"),
        ("gs", "gcsfs", "'torchprof-tui[gcs]'"),
        ("gcs", "gcsfs", "'torchprof-tui[gcs]'"),
        ("hf", "huggingface_hub", "huggingface_hub"),
        ("abfs", "adlfs", "adlfs"),
    ],
)
def test_missing_backend_is_named(protocol: str, module: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is installed here or not."""
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, protocol, raising=False)
    assert refusal(f"{protocol}://bucket/t.json") == f"{protocol}:// needs {module}: pip install {package}"


def test_unknown_protocol() -> None:
    assert refusal("nonsense://x/t.json") == "fsspec does not support nonsense://, and no file has that name"


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)  # as if not installed
    assert main(["info", "https://x.org/t.json"]) == 2
    said = capsys.readouterr().err
    assert said == "torchprof-tui: https://x.org/t.json: a URL needs fsspec: pip install 'torchprof-tui[remote]'\n"


def test_missing_http_client_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, "https", raising=False)
    for name in [name for name in sys.modules if name.startswith("fsspec.implementations.http")]:
        monkeypatch.delitem(sys.modules, name)
    check_readable("https://x.org/t.json")
    assert refusal("https://x.org/t.json") == "https:// needs aiohttp: pip install 'torchprof-tui[remote]'"
