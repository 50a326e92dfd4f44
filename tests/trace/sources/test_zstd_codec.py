"""Tests of zstd: the module that finds the library, bounded blocks, files of many frames."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest

from tests.helpers.paths import ROOT
from torchprof_tui.trace.core.problems import CUT_SHORT, DAMAGED_COMPRESSION
from torchprof_tui.trace.sources import zstd_codec
from torchprof_tui.trace.sources.decompress import BLOCK_BYTES
from torchprof_tui.trace.sources.source import Source, open_source
from torchprof_tui.trace.sources.zstd_codec import zstd

LINES = [b'{"ph": "X", "name": "op %d", "ts": %d},\n' % (k % 97, k * k) for k in range(9_000)]
SKIPPABLE = (0x184D2A50).to_bytes(4, "little") + (6).to_bytes(4, "little") + b"index\n"
"""A frame without text, as the seekable format appends; RFC 8878, section 3.1.2."""


class ShortReads(io.BytesIO):
    """A stream that returns at most `most` bytes at a time, as a pipe may."""

    most = 7

    def read(self, size: int | None = -1) -> bytes:
        return super().read(self.most if size is None or size < 0 else min(size, self.most))


def test_python_itself_or_the_backport_is_used() -> None:
    name = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    assert zstd_codec.zstd.__name__ == name
    assert issubclass(zstd_codec.ZstdError, Exception)


def test_one_module_alone_names_the_library() -> None:
    imports = re.compile(r"^\s*(?:import|from) (?:zstandard|backports|compression)\b", re.MULTILINE)
    folders = ("tui", "profiler_runs", "sample_traces", "tests", "benchmarks", "tools")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    assert [path.name for path in files if imports.search(path.read_text(encoding="utf-8"))] == ["zstd_codec.py"]


def test_blocks_are_bounded_however_well_it_is_compressed(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.zst"
    path.write_bytes(zstd.compress(b" " * 20_000_001, 19))
    sizes = [len(block) for block in open_source(str(path)).blocks()]
    assert sum(sizes) == 20_000_001
    assert max(sizes) <= BLOCK_BYTES


@pytest.mark.parametrize("short", [False, True])
def test_every_frame_is_read_in_turn(short: bool) -> None:
    """`cat a.zst b.zst` is a valid file, and pzstd writes a frame for each thread."""
    frames = b"".join(zstd.compress(line, 1) for line in LINES[:300]) + zstd.compress(b"".join(LINES[300:]))
    source = Source("x", ShortReads(frames) if short else io.BytesIO(frames))
    assert b"".join(source.blocks()) == b"".join(LINES)
    assert not source.problems


def test_an_empty_frame_and_one_without_text_are_no_problem() -> None:
    data = zstd.compress(b"") + zstd.compress(LINES[0]) + SKIPPABLE + zstd.compress(LINES[1]) + SKIPPABLE
    source = Source("x", io.BytesIO(data))
    assert b"".join(source.blocks()) == LINES[0] + LINES[1]
    assert not source.problems


def test_a_frame_cut_short_keeps_its_text() -> None:
    text = b"".join(LINES)
    data = zstd.compress(text, 1)
    source = Source("x", io.BytesIO(data[: len(data) * 3 // 4]))
    found = b"".join(source.blocks())
    assert text.startswith(found)
    assert [problem.kind for problem in source.problems] == [CUT_SHORT]


def test_a_wrong_checksum_is_reported() -> None:
    text = b"".join(LINES)
    checksum: dict[int, int] = {zstd.CompressionParameter.checksum_flag: 1}
    data = zstd.compress(text, options=checksum)
    source = Source("x", io.BytesIO(data[:-1] + bytes([data[-1] ^ 1])))
    found = b"".join(source.blocks())
    assert text.startswith(found)
    assert len(found) > len(text) // 2  # all but the last block, which the wrong bytes belong to
    assert [problem.kind for problem in source.problems] == [DAMAGED_COMPRESSION]
