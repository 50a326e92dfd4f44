"""Test when the allocator's history is recorded and its snapshot written, with torch replaced."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from torchprof_runs.recorder import torch_capabilities
from torchprof_runs.recorder.memory_snapshot import MAX_ENTRIES, MemorySnapshot


class FakeCuda:
    """torch.cuda as far as a snapshot uses it: calls are queued until CUDA is initialized."""

    def __init__(self, refuse: Exception | None = None, fail: Exception | None = None) -> None:
        self.queue: list[Any] = []
        self.requests: list[dict[str, Any]] = []
        self.refuse, self.fail, self.initialized = refuse, fail, False
        self.memory = SimpleNamespace(_record_memory_history=self.record, _dump_snapshot=self.dump)

    def _lazy_call(self, call: Any) -> None:
        self.queue.append(call)

    def is_initialized(self) -> bool:
        return self.initialized

    def initialize(self) -> None:
        self.initialized = True
        for call in self.queue:
            call()

    def record(self, **options: Any) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.requests.append(options)

    def dump(self, path: str) -> None:
        Path(path).write_bytes(b"\x80\x04N.")
        if self.fail is not None:
            raise self.fail


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_capabilities, "is_gpu_present", lambda torch: torch.version.cuda is not None)


def create(tmp_path: Path, cuda: FakeCuda, build: str | None = "13.0") -> tuple[MemorySnapshot, list[str], Path]:
    lines: list[str] = []
    path = tmp_path / "memory_snapshot.pickle"
    torch = SimpleNamespace(cuda=cuda, __version__="2.13.0+cpu", version=SimpleNamespace(cuda=build, hip=None))
    snapshot = MemorySnapshot(torch, str(path), lines.append)
    snapshot.start()
    return snapshot, lines, path


def test_a_snapshot_is_recorded_from_the_first_use_of_a_gpu(tmp_path: Path) -> None:
    cuda = FakeCuda()
    snapshot, lines, path = create(tmp_path, cuda)
    assert cuda.requests == []  # a program that forks first finds CUDA as it was
    cuda.initialize()
    assert cuda.requests == [{"max_entries": MAX_ENTRIES, "stacks": "python"}]
    assert snapshot.save() == path.name
    assert path.exists()
    assert lines == [f"kept the memory snapshot {path.name}: torchprof-tui memory {path}"]
    assert snapshot.save() is None


def test_without_a_gpu_the_reason_is_logged(tmp_path: Path) -> None:
    snapshot, lines, path = create(tmp_path, FakeCuda())
    assert snapshot.save() is None
    assert not path.exists()
    assert lines == ["no memory snapshot: the program used no GPU"]


def test_a_refusal_of_torch_does_not_end_the_program(tmp_path: Path) -> None:
    cuda = FakeCuda(refuse=TypeError("unexpected keyword 'stacks'\nmore"))
    snapshot, lines, _ = create(tmp_path, cuda)
    cuda.initialize()
    assert snapshot.save() is None
    assert lines == ["no memory snapshot: torch refused to record it: TypeError: unexpected keyword 'stacks'"]


def test_a_failed_write_leaves_no_file(tmp_path: Path) -> None:
    cuda = FakeCuda(fail=OSError(28, "No space left on device"))
    snapshot, lines, _ = create(tmp_path, cuda)
    cuda.initialize()
    assert snapshot.save() is None
    assert list(tmp_path.iterdir()) == []
    assert lines == ["no memory snapshot: the disk is full: free some space, or name another one with -o"]


def test_a_cpu_build_is_named_before_the_program_runs(tmp_path: Path) -> None:
    cuda = FakeCuda()
    snapshot, lines, _ = create(tmp_path, cuda, build=None)
    assert lines == [
        "no memory snapshot: it is the history of the CUDA allocator, and torch 2.13.0+cpu is a CPU build; "
        "--profile-memory records memory on the CPU"
    ]
    assert cuda.queue == []
    assert snapshot.save() is None
    assert len(lines) == 1
