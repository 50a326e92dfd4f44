"""Which files of a folder are listed as traces: the same ones on this disk, over ssh and behind URLs."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.helpers import sshd
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.sources.listing import list_remote_traces
from torchprof_tui.trace.sources.source import open_source
from torchprof_tui.trace.specs.rank_files import expand_spec
from torchprof_tui.trace.specs.runs_by_name import FolderError
from torchprof_tui.ui.start.recent_traces import find_traces
from torchprof_tui.ui.start.start_screen import list_completions

SUFFIXES = (".json", ".json.gz", ".json.xz", ".json.zst", ".trace", ".trace.gz", ".pftrace.xz", ".pftrace.zst")
NAMES = sorted(f"rank0{suffix}" for suffix in SUFFIXES)
TEXT = b'{"traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 1, "pid": 1, "tid": 1}]}'
XZ_MAGIC, ZSTD_MAGIC = b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"


def write_folder(folder: Path) -> Path:
    """Write one file of each suffix, and files that are no traces."""
    folder.mkdir()
    for name in NAMES:
        data = {"gz": gzip.compress(TEXT), "xz": XZ_MAGIC, "zst": ZSTD_MAGIC}.get(name.rpartition(".")[2], TEXT)
        (folder / name).write_bytes(data)
    for name in ("notes.txt", "table.key_averages.json", "rank0.pt", "trace"):
        (folder / name).write_text("no trace")
    return folder


def list_names(spec: str) -> list[str]:
    """List the traces of a remote folder, as the ranks of a run are listed."""
    with ExitStack() as connections:
        (listing,) = list_remote_traces([spec], connections)
    assert not listing.error
    return sorted(trace.spec.rpartition("/")[2] for trace in listing.traces)


def refused_names(spec: str) -> list[str]:
    """List the traces that the error about a remote folder names."""
    with pytest.raises(FolderError) as caught:
        open_source(spec)
    return sorted(trace.spec.rpartition("/")[2] for trace in caught.value.traces)


def test_local(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "run")
    assert sorted(Path(path).name for path in expand_spec(str(folder))) == NAMES
    assert sorted(Path(trace.spec).name for trace in find_traces(folder)) == NAMES
    assert [Path(path).name for path in list_completions(f"{folder}/")][: len(NAMES)] == sorted(NAMES)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_local_folder_error(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"rank0{suffix}").touch()
    with pytest.raises(TraceError, match=f"such as .*/rank0{suffix}$"):
        open_source(str(tmp_path))


@pytest.mark.skipif(not (sshd.SSHD and sshd.SSH), reason="needs OpenSSH's server and client")
def test_ssh(tmp_path_factory: pytest.TempPathFactory) -> None:
    with sshd.running(tmp_path_factory.mktemp("sshd")) as server:
        folder = write_folder(server.home / "run")
        assert list_names(f"shared:{folder}") == NAMES
        assert refused_names(f"shared:{folder}") == NAMES


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base class's own word)
        """Log nothing."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    pytest.importorskip("fsspec")
    pytest.importorskip("aiohttp")
    write_folder(tmp_path / "run")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(tmp_path))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_http(site: str) -> None:
    assert list_names(f"{site}/run/") == NAMES
    assert refused_names(f"{site}/run/") == NAMES
