"""Export a trace: count its events, compress it, and keep as much as fits on the disk."""

from __future__ import annotations

import errno
import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.later_imports import import_later
from torchprof_runs.recorder import atomic_files, trace_export
from torchprof_runs.recorder.exit_handlers import SaveAbandoned
from torchprof_runs.recorder.run_folder import RunFolder
from torchprof_runs.recorder.trace_export import TraceCounts, TraceExporter, compress_chunks, count_events

torch = import_later("torch")
pytestmark = pytest.mark.torch

WORDS = (
    b'"ph": "X"', b'"ph": "M"', b'"cat": "kernel"', b'"cat": "gpu_memcpy"', b'"cat": "gpu_memset"', b'"cat": "cpu_op"',
    b'"name": "cudaLaunchKernel"', b'"name": "cuLaunchKernelEx"', b'"name": "aten::mm"', b", ", b"{", b'"ph": "',
)  # fmt: skip
CYCLE: Any = SimpleNamespace(  # a Cycle, whose module imports torch
    number=1, first_step=3, last_step=5, is_complete=True, counts_steps=True, seconds=0.1
)


@given(st.lists(st.sampled_from(WORDS)), st.integers(1, 40))
def test_counting_does_not_depend_on_where_chunks_end(words: list[bytes], size: int) -> None:
    text = b"".join(words)
    counts = TraceCounts()
    chunks = [text[start : start + size] for start in range(0, len(text), size)]
    assert b"".join(count_events(iter(chunks), counts)) == text
    assert counts.bytes == len(text)
    assert counts.events == text.count(b'"ph": "X"')
    assert counts.gpu_events == sum(
        text.count(b'"cat": "' + kind) for kind in (b"kernel", b"gpu_memcpy", b"gpu_memset")
    )
    assert counts.launches == text.count(b'"name": "cudaLaunchKernel') + text.count(b'"name": "cuLaunchKernel')


@given(st.lists(st.binary()))
def test_compressed_is_one_gzip_member(chunks: list[bytes]) -> None:
    compressed = b"".join(compress_chunks(iter(chunks)))
    assert gzip.decompress(compressed) == b"".join(chunks)


def recorded() -> Any:
    profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    profile.prepare_trace()
    profile.start_trace()
    for _ in range(50):
        torch.ones(2) + 1
    profile.stop_trace()
    return profile


@pytest.fixture  # one for each test: since torch 2.13 a trace can be exported only once
def profile() -> Any:
    return recorded()


class Disk:
    """An exporter into a folder, and its log lines."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, list[str]()
        self.exporter = TraceExporter(RunFolder(str(folder), "t", None), True, self.log.append, lambda *_, **__: None)

    def names(self) -> list[str]:
        return sorted(os.listdir(self.folder))


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    (tmp_path / "run").mkdir()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(trace_export.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    return Disk(tmp_path / "run")


def test_a_cycle_becomes_three_files(profile: Any, disk: Disk) -> None:
    kept = disk.exporter.save_cycle(profile, CYCLE)
    assert kept is not None
    assert not kept.partial
    assert disk.names() == ["key_averages.json", "t.pt.trace.json.gz", "table.txt"]
    document = json.loads(gzip.decompress(Path(kept.trace).read_bytes()))
    assert kept.counts.events == sum(event.get("ph") == "X" for event in document["traceEvents"]) >= 100
    rows = {row["key"]: row for row in json.loads((disk.folder / "key_averages.json").read_text())}
    assert rows["aten::add"]["count"] == 50
    assert rows["aten::add"]["cpu_us"] >= rows["aten::add"]["self_cpu_us"] > 0
    assert "aten::add" in (disk.folder / "table.txt").read_text()
    assert disk.log == []


def cut_short(profile: Any, monkeypatch: pytest.MonkeyPatch, folders: tuple[str, ...], once: bool = False) -> None:
    """Cut the JSON off, as torch does on a full disk without an error, in folders of these names.

    `once`: a second export raises, as since torch 2.13; earlier versions write the same file again.
    """
    export, written = profile.export_chrome_trace, list[bytes]()

    def cutting(path: str) -> None:
        if not written:
            export(path)
            written.append(Path(path).read_bytes())
        elif once:
            raise RuntimeError("Trace is already saved.")
        content = written[0]
        is_cut = os.path.basename(os.path.dirname(path)) in folders
        Path(path).write_bytes(content[: len(content) // 2] if is_cut else content)

    monkeypatch.setattr(profile, "export_chrome_trace", cutting)


def test_another_disk_is_used_if_the_first_is_full(
    profile: Any, disk: Disk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cut_short(profile, monkeypatch, ("run",))
    kept = disk.exporter.save_cycle(profile, CYCLE)
    assert kept is not None
    assert not kept.partial
    json.loads(gzip.decompress(Path(kept.trace).read_bytes()))
    assert len(disk.log) == 1
    assert "no room" in disk.log[0]
    assert os.listdir(tmp_path / "tmp") == []


def test_a_disk_that_is_nearly_full_is_not_tried_first(
    profile: Any, disk: Disk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cut_short(profile, monkeypatch, ("run",), once=True)
    free = {str(disk.folder): 3, str(tmp_path / "tmp"): 500}  # MB
    monkeypatch.setattr(trace_export, "_free_megabytes", lambda folder: free[folder])
    kept = disk.exporter.save_cycle(profile, CYCLE)
    assert kept is not None
    assert not kept.partial
    assert os.path.dirname(kept.trace) == str(disk.folder)
    assert disk.log == []
    assert os.listdir(tmp_path / "tmp") == []


@pytest.mark.parametrize("once", [False, True])
def test_the_part_that_fits_is_kept_if_every_disk_is_full(
    profile: Any, disk: Disk, monkeypatch: pytest.MonkeyPatch, once: bool, tmp_path: Path
) -> None:
    cut_short(profile, monkeypatch, ("run", "tmp"), once)
    kept = disk.exporter.save_cycle(profile, CYCLE)
    assert kept is not None
    assert kept.partial
    assert gzip.decompress(Path(kept.trace).read_bytes()).lstrip().startswith(b"{")
    assert any("cut short" in line and "-o" in line for line in disk.log)
    assert os.listdir(tmp_path / "tmp") == []
    assert not [name for name in disk.names() if name.startswith(".")]


def refuse(monkeypatch: pytest.MonkeyPatch, *suffixes: str) -> None:
    """Raise ENOSPC when files with these suffixes are written."""
    write = atomic_files.write_atomic

    def failing_write(path: str, chunks: Iterator[bytes]) -> int:
        if path.endswith(suffixes):
            for _ in chunks:
                raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, chunks)

    monkeypatch.setattr(trace_export, "write_atomic", failing_write)


def test_a_trace_that_cannot_be_compressed_is_kept_uncompressed(
    profile: Any, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, ".gz")
    kept = disk.exporter.save_cycle(profile, CYCLE)
    assert kept is not None
    assert kept.trace.endswith("t.pt.trace.json")
    json.loads(Path(kept.trace).read_text())
    assert "the disk is full" in disk.log[0]


def test_a_table_that_does_not_fit_loses_only_the_table(
    profile: Any, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, ".txt")
    kept = disk.exporter.save_cycle(profile, CYCLE)
    assert kept is not None
    assert kept.table is None
    assert disk.names() == ["t.pt.trace.json.gz"]
    assert len(disk.log) == 1
    assert "table.txt" in disk.log[0]


def test_too_many_events_for_torchs_table(profile: Any, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_export, "MAX_TABLE_EVENTS", 10)
    disk.exporter = TraceExporter(RunFolder(str(disk.folder), "t", None), None, disk.log.append, lambda *_, **__: None)
    kept = disk.exporter.save_cycle(profile, CYCLE)
    assert kept is not None
    assert disk.names() == ["t.pt.trace.json.gz"]
    assert len(disk.log) == 1
    assert "torch would need about" in disk.log[0]
    assert "--table" in disk.log[0]


def test_a_table_that_was_asked_for_is_made_of_any_number_of_events(
    profile: Any, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_export, "MAX_TABLE_EVENTS", 10)
    disk.exporter.save_cycle(profile, CYCLE)  # with --table
    assert "table.txt" in disk.names()


def test_a_table_that_is_skipped_while_it_is_written_leaves_the_trace(
    profile: Any, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def skip(*_: object) -> int:
        raise SaveAbandoned

    monkeypatch.setattr(trace_export, "format_averages_table", skip)
    kept = disk.exporter.save_cycle(profile, CYCLE)
    assert kept is not None
    assert (kept.table, disk.names()) == (None, ["t.pt.trace.json.gz"])
    assert "skipped torch's table; the trace is kept" in disk.log[0]


def test_measuring_leaves_nothing_behind(profile: Any, disk: Disk) -> None:
    counts = disk.exporter.measure_trace(profile)
    assert counts is not None
    assert counts.events >= 100
    assert counts.bytes > 10_000
    assert disk.names() == []


def test_a_step_that_cannot_be_measured_is_not_taken_for_an_empty_one(
    profile: Any, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_short(profile, monkeypatch, ("run",))
    assert disk.exporter.measure_trace(profile) is None
    assert disk.names() == []
    assert len(disk.log) == 1
    assert "the disk is full" in disk.log[0]


def test_traces_on_another_disk_do_not_overwrite_each_other(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(trace_export, "_free_megabytes", lambda folder: 0 if folder == str(disk.folder) else 500)
    refuse(monkeypatch, ".gz")
    first, second = disk.exporter.save_cycle(recorded(), CYCLE), disk.exporter.save_cycle(recorded(), CYCLE)
    assert first is not None
    assert second is not None
    assert first.trace != second.trace
    for kept in (first, second):
        assert Path(kept.trace).is_relative_to(tmp_path / "tmp")
        json.loads(Path(kept.trace).read_text())


def test_files_are_written_completely_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"before")

    def failing() -> Iterator[bytes]:
        yield b"half"
        raise OSError(errno.ENOSPC, "full")

    with pytest.raises(OSError, match="full"):
        atomic_files.write_atomic(str(target), failing())
    assert target.read_bytes() == b"before"
    assert os.listdir(tmp_path) == ["file"]
    assert atomic_files.write_atomic(str(target), [b"af", b"ter"]) == 5
    assert target.read_bytes() == b"after"
    unwritable = atomic_files.write_json(str(tmp_path / "no" / "file"), {})
    assert isinstance(unwritable, FileNotFoundError)
    assert atomic_files.explain_os_error(OSError(errno.ENOSPC, "")).startswith("the disk is full")
