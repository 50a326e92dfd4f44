"""The beginning of a source is read before its decoder is chosen, and again by that decoder."""

from __future__ import annotations

import gzip
import io
import lzma
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from torchprof_tui.trace.sources.source import Source, open_source
from torchprof_tui.trace.sources.zstd_codec import zstd

_TEXT = random.Random(1).randbytes(400_000) + b"\n" * 400_000
_PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "xz": lzma.compress,
    "zstd": zstd.compress,
}


@pytest.mark.parametrize("packer", _PACKERS)
def test_a_file_is_whole_after_its_beginning_was_read(packer: str, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(_PACKERS[packer](_TEXT))
    threads = threading.active_count()
    source = open_source(str(path))
    head = source.peek()
    assert threading.active_count() == threads  # a decoder forks
    assert len(head) >= 64
    assert _TEXT.startswith(head)
    assert b"".join(source.blocks()) == _TEXT
    assert source.consumed == path.stat().st_size
    source.close()


@pytest.mark.parametrize("packer", _PACKERS)
def test_a_pipe_is_whole_after_its_beginning_was_read(packer: str) -> None:
    source = Source("pipe", io.BytesIO(_PACKERS[packer](_TEXT)))
    head = source.peek()
    assert head
    assert source.peek() == head
    assert b"".join(source.blocks()) == _TEXT


def test_an_empty_pipe_has_no_beginning() -> None:
    source = Source("pipe", io.BytesIO(b""))
    assert source.peek() == b""
    assert list(source.blocks()) == []


def test_damaged_data_is_reported_by_its_decoder_alone(tmp_path: Path) -> None:
    path = tmp_path / "f.gz"
    path.write_bytes(gzip.compress(_TEXT)[:15] + b"\xff" * 99)
    source = open_source(str(path))
    source.peek()
    assert not source.problems
    assert len(b"".join(source.blocks())) < len(_TEXT)
    assert len(source.problems) == 1
    source.close()
