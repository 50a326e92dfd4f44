"""Tests of sources: detection of compression, decompression, and errors reported in one line."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import lzma
import os
import random
import subprocess
import sys
import tempfile
import threading
import zlib
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.long_run import keep_some
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.problems import CUT_SHORT, DAMAGED_COMPRESSION
from torchprof_tui.trace.sources import gzip_codec
from torchprof_tui.trace.sources import source as source_module
from torchprof_tui.trace.sources.source import Source, open_source
from torchprof_tui.trace.sources.zstd_codec import zstd
from torchprof_tui.trace.text.block_text import BlockWriter

TEXT = b"".join(b'{"ph": "X", "name": "op %d", "ts": %d},\n' % (k % 97, k * k) for k in range(40_000))

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "xz": lambda text: lzma.compress(text, preset=0),
    "zstd": lambda text: zstd.compress(text, 1),
}


def write(folder: Path, data: bytes, name: str = "trace.json") -> str:
    path = folder / name
    path.write_bytes(data)
    return str(path)


def text_of(source: Source) -> bytes:
    blocks = list(source.blocks())
    assert all(blocks)
    return b"".join(blocks)


def kinds(source: Source) -> list[str]:
    return [problem.kind for problem in source.problems]


def test_plain_file_is_read_in_place(tmp_path: Path) -> None:
    name = write(tmp_path, TEXT)
    source = open_source(name)
    assert (source.name, source.total, source.compression) == (name, len(TEXT), "")
    assert source.plain_path == Path(name)
    assert text_of(source) == TEXT
    assert source.consumed == len(TEXT)
    assert source.problems == []


@pytest.mark.parametrize("kind", COMPRESS)
def test_compression_is_detected_by_content(tmp_path: Path, kind: str) -> None:
    compressed = COMPRESS[kind](TEXT)
    source = open_source(write(tmp_path, compressed, "trace.json"))
    assert source.compression == kind
    assert source.plain_path is None
    assert text_of(source) == TEXT
    assert source.consumed == source.total == len(compressed)
    assert source.problems == []


@pytest.mark.parametrize("kind", COMPRESS)
def test_several_members(tmp_path: Path, kind: str) -> None:
    cuts = [0, 1, 70_000, 70_001, len(TEXT)]
    compressed = b"".join(COMPRESS[kind](TEXT[a:b]) for a, b in itertools.pairwise(cuts))
    source = open_source(write(tmp_path, compressed))
    assert text_of(source) == TEXT
    assert source.problems == []


@pytest.mark.parametrize("kind", COMPRESS)
def test_zeros_after_the_end_are_padding(tmp_path: Path, kind: str) -> None:
    source = open_source(write(tmp_path, COMPRESS[kind](TEXT) + b"\0" * 5000))
    assert text_of(source) == TEXT
    assert source.problems == []


@pytest.mark.parametrize("kind", COMPRESS)
def test_truncated_stream_yields_the_text_before_its_end(tmp_path: Path, kind: str) -> None:
    compressed = COMPRESS[kind](TEXT)
    source = open_source(write(tmp_path, compressed[: len(compressed) // 2]))
    text = text_of(source)
    assert TEXT.startswith(text)
    assert len(text) > len(TEXT) // 10
    assert kinds(source) == [CUT_SHORT]
    assert str(len(compressed) // 2) in source.problems[0].example


@pytest.mark.parametrize("kind", COMPRESS)
def test_other_data_after_the_end_is_reported(tmp_path: Path, kind: str) -> None:
    source = open_source(write(tmp_path, COMPRESS[kind](TEXT) + b"and now something different " * 3))
    assert text_of(source) == TEXT
    assert kinds(source) == [DAMAGED_COMPRESSION]
    assert "other data follows" in source.problems[0].example


def test_damaged_gzip_is_a_problem_not_an_error(tmp_path: Path) -> None:
    compressed = bytearray(gzip.compress(os.urandom(3_000_000)))
    compressed[1_500_000:1_500_100] = b"\xff" * 100
    source = open_source(write(tmp_path, bytes(compressed)))
    text_of(source)
    assert kinds(source) == [DAMAGED_COMPRESSION]


def common_prefix_length(one: bytes, other: bytes) -> int:
    size = min(len(one), len(other))
    differ = np.flatnonzero(np.frombuffer(one, np.uint8, size) != np.frombuffer(other, np.uint8, size))
    return int(differ[0]) if len(differ) else size


def damaged(compressed: bytes, offset: int) -> bytes:
    """Overwrite bytes with noise, which none of the three formats can decode."""
    noise = bytes(random.Random(offset).randbytes(400))
    return compressed[:offset] + noise + compressed[offset + len(noise) :]


def readable_text_before(kind: str, compressed: bytes, offset: int) -> int:
    """Length of the text that the library returns for the undamaged beginning, fed byte by byte."""
    one: dict[str, Callable[[], Any]] = {
        "gzip": lambda: zlib.decompressobj(wbits=31),
        "xz": lzma.LZMADecompressor,
        "zstd": lambda: zstd.ZstdDecompressor(),
    }
    inflater = one[kind]()
    return sum(len(inflater.decompress(compressed[k : k + 1])) for k in range(offset))


@pytest.mark.parametrize(("kind", "share"), keep_some(product(COMPRESS, [0.05, 0.5, 0.95]), 1))
def test_text_before_damaged_bytes_is_recovered(tmp_path: Path, kind: str, share: float) -> None:
    text = TEXT + random.Random(1).randbytes(1_500_000).hex().encode()  # larger than one read when compressed
    # as the zstd command does
    with_checksum: dict[int, int] = {
        zstd.CompressionParameter.checksum_flag: 1,
        zstd.CompressionParameter.compression_level: 1,
    }
    compressed = zstd.compress(text, options=with_checksum) if kind == "zstd" else COMPRESS[kind](text)
    offset = int(len(compressed) * share)
    min_length = readable_text_before(kind, compressed, offset - 64)
    name = write(tmp_path, damaged(compressed, offset))
    streamed = Source("x", io.BytesIO(damaged(compressed, offset)))
    for source in (open_source(name), streamed):
        found = text_of(source)
        assert kinds(source) == [DAMAGED_COMPRESSION]
        assert common_prefix_length(found, text) >= min_length


def test_text_before_a_damaged_member_is_recovered(tmp_path: Path) -> None:
    first, second = gzip.compress(TEXT, mtime=0), gzip.compress(TEXT, mtime=0)
    offset = len(second) // 2
    found = text_of(open_source(write(tmp_path, first + b"\0\0" + damaged(second, offset))))
    assert common_prefix_length(found, TEXT + TEXT) >= len(TEXT) + readable_text_before("gzip", second, offset - 64)


def test_full_disk_disables_the_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile.SpooledTemporaryFile, "write", full)
    source = Source("x", io.BytesIO(gzip.compress(TEXT, mtime=0)))
    assert text_of(source) == TEXT


@pytest.mark.parametrize("kind", keep_some(COMPRESS, 1))
def test_decompression_bomb_is_refused_in_one_line(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "_BOMB_BYTES", 10_000_000)
    name = write(tmp_path, COMPRESS[kind](b" " * 40_000_000))
    blocks: list[int] = []
    with pytest.raises(TraceError, match=r"unpacks to more than [\d,]+ times its size .*--unpack-all reads it anyway$"):
        blocks.extend(map(len, open_source(name).blocks()))
    assert sum(blocks) <= 10_000_000
    monkeypatch.setenv("TORCHPROF_TUI_UNPACK_ALL", "1")
    assert len(text_of(open_source(name))) == 40_000_000


@pytest.mark.parametrize("kind", COMPRESS)
def test_well_compressed_trace_is_not_a_bomb(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "_BOMB_BYTES", 100_000)
    assert text_of(open_source(write(tmp_path, COMPRESS[kind](TEXT)))) == TEXT


def test_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(TEXT, mtime=0))))
    source = open_source("-")
    assert (source.name, source.total, source.plain_path, source.compression) == ("stdin", None, None, "gzip")
    assert text_of(source) == TEXT


def test_terminal_as_stdin_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.TextIOWrapper(io.BytesIO(b""))
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)
    with pytest.raises(TraceError, match="terminal"):
        open_source("-")


def test_named_pipe_has_no_size_and_no_plain_path(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(TEXT,))
    writer.start()
    source = open_source(str(pipe))
    assert (source.total, source.plain_path) == (None, None)
    assert text_of(source) == TEXT
    writer.join()


def test_streams_with_short_reads() -> None:
    class Trickle(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(min(size or 1, 7))

    compressed = gzip.compress(TEXT[:5000], mtime=0)
    assert text_of(Source("x", Trickle(compressed))) == TEXT[:5000]
    assert text_of(Source("x", Trickle(TEXT[:5000]))) == TEXT[:5000]


def test_closing_the_iterator_ends_the_thread(tmp_path: Path) -> None:
    source = open_source(write(tmp_path, gzip.compress(TEXT * 20, 1, mtime=0)))
    before = set(threading.enumerate())
    blocks = source.blocks()
    next(blocks)
    assert set(threading.enumerate()) - before
    blocks.close()  # type: ignore[attr-defined]
    assert not set(threading.enumerate()) - before


@pytest.mark.parametrize("head", [b"", gzip.compress(b"x", mtime=0)])
def test_read_error_is_reported_in_one_line(head: bytes) -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            got = super().read(size)
            if not got:
                raise OSError(5, "Input/output error")
            return got

    with pytest.raises(TraceError, match="Input/output error"):
        text_of(Source("disk.json", Broken(head[:12])))


def refusal(spec: str) -> str:
    with pytest.raises(TraceError) as caught:
        open_source(spec)
    line = str(caught.value)
    assert "\n" not in line
    return line


def test_missing_file(tmp_path: Path) -> None:
    assert refusal(str(tmp_path / "none.json")) == f"{tmp_path}/none.json: no such file"
    assert refusal(write(tmp_path, b"x") + "/below.json").endswith(": no such file")
    assert "no such file" in refusal("a\0b.json")
    assert refusal("x" * 5000).endswith(": no such file")


def test_empty_file(tmp_path: Path) -> None:
    assert refusal(write(tmp_path, b"")).endswith(": the file is empty")


def test_folder_error_names_a_file_in_it(tmp_path: Path) -> None:
    assert "no .json or .json.gz file" in refusal(str(tmp_path))
    write(tmp_path, TEXT, "rank1.json.gz")
    write(tmp_path, TEXT, "rank0.json.gz")
    assert refusal(str(tmp_path)).endswith(f"name a file in it, such as {tmp_path}/rank0.json.gz")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission(tmp_path: Path) -> None:
    name = write(tmp_path, TEXT)
    os.chmod(name, 0)
    assert refusal(name).endswith(": no permission to read it")


def test_home_folder_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path, TEXT)
    assert text_of(open_source("~/trace.json")) == TEXT


@pytest.mark.long
def test_zlib_gives_the_same_result_without_isal(tmp_path: Path) -> None:
    """Run in a subprocess in which isal cannot be imported."""
    path = tmp_path / "trace.json.gz"
    text = json.dumps({"traceEvents": [{"ph": "X", "name": f"e{k}", "ts": k, "dur": 1} for k in range(5000)]}).encode()
    path.write_bytes(gzip.compress(text)[:-900])  # also truncated
    code = (
        "import sys; sys.modules['isal'] = None\n"
        "from torchprof_tui.cli import main; sys.exit(main(['info', sys.argv[1], '--json', '--no-cache']))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    without_isal = json.loads(done.stdout)
    expected = subprocess.run(
        [sys.executable, "-m", "torchprof_tui", "info", str(path), "--json", "--no-cache"],
        capture_output=True,
        check=False,
    )
    with_isal = json.loads(expected.stdout)
    del without_isal["seconds"], with_isal["seconds"]
    assert without_isal == with_isal
    assert 1000 < without_isal["drawn"] < 5000


def test_failed_block_writer_raises_and_does_not_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: bytes) -> bytes:
        raise MemoryError("no room")

    monkeypatch.setattr(gzip_codec, "compress", refuse)
    writer = BlockWriter(tmp_path / "text")

    def write() -> None:
        for _ in range(100):  # more than its queue holds
            writer.put(b"x" * 100)
        writer.close()

    with pytest.raises(MemoryError):
        write()
