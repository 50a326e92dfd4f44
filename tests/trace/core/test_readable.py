"""Test that no file of a folder is waited for: not a pipe, a device, nor a file of the kernel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchprof_tui.analysis.memory.snapshots.snapshot_file import is_snapshot_file
from torchprof_tui.trace.core import readable
from torchprof_tui.trace.specs.rank_files import read_trace_head


def test_only_regular_files_with_content_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    (tmp_path / "full").write_bytes(b"abcdef")
    for path in (tmp_path / "pipe", tmp_path / "empty", "/dev/zero", tmp_path):
        assert readable.read_begin(path, 3) == b""
    assert readable.read_begin(tmp_path / "full", 3) == b"abc"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_a_link_to_a_file_of_the_kernel_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`/proc/kmsg` is a regular file of 0 bytes by its status, and a read waits until the kernel prints something."""
    link = tmp_path / "x.json"
    link.symlink_to("/proc/self/status")

    def refuse(descriptor: int, size: int) -> bytes:
        raise AssertionError("it was read")

    monkeypatch.setattr(readable.os, "read", refuse)
    assert readable.read_begin(link, 10) == b""
    assert not read_trace_head(str(link)).looks_like_trace
    assert not is_snapshot_file(link)
