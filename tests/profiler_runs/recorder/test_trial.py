"""Take turns between trials on one host."""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

import pytest

trial = pytest.importorskip("torchprof_runs.recorder.trial")


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"torchprof-try-{os.getuid()}.lock"


def test_one_of_two_trials_has_the_turn(lock: Path) -> None:
    first, second = trial.Turn(), trial.Turn()
    assert first.take(1.0)
    assert not second.take(0.05)
    assert lock.stat().st_mode & 0o777 == 0o600


def test_the_turn_begins_with_the_end_of_the_first_step(lock: Path) -> None:
    step = trial.FirstStep(1.0)
    other = os.open(lock, os.O_RDWR)
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(other, fcntl.LOCK_UN)
    step.note_step()
    with pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_link_in_the_way_is_not_followed(lock: Path, tmp_path: Path) -> None:
    lock.symlink_to(tmp_path / "mine.txt")
    assert not trial.Turn().take(1.0)
    assert not (tmp_path / "mine.txt").exists()
