"""The user's state folder, and files that are replaced as a whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchprof_tui.trace.core.user_files import (
    create_state_folder,
    find_home_folder,
    find_state_folder,
    make_absolute,
    replace_file,
)


def test_only_the_user_can_read_the_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "a" / "b"))
    assert create_state_folder() == tmp_path / "a" / "b" / "torchprof-tui"
    assert create_state_folder().stat().st_mode & 0o777 == 0o700
    create_state_folder().chmod(0o755)  # as earlier versions created it
    assert create_state_folder().stat().st_mode & 0o777 == 0o700


def test_without_a_home_folder_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # what it does for a user without one
    assert find_state_folder() is None
    with pytest.raises(OSError, match="no home folder"):
        create_state_folder()
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert find_state_folder() is None


def test_an_empty_home_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python expands `~` to `/` there."""
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", "")
    assert (find_home_folder(), find_state_folder()) == (None, None)


def test_a_file_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / ("x" * 255)  # the longest name that the file system takes
    replace_file(path, b"one", mode=0o600)
    replace_file(path, b"two", mode=0o600)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"two", 0o600)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="No space"):
        replace_file(path, b"three")
    assert path.read_bytes() == b"two"
    assert len(list(tmp_path.iterdir())) == 1  # no draft is left


def test_a_current_folder_that_vanished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert make_absolute("a") == str(folder / "a")
    folder.rmdir()
    assert make_absolute("a") == "a"
