"""Files for the user: whole or not at all, and one line for everything that can be wrong with the target."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from torchprof_tui.trace.core.atomic_file import (
    MAX_NAME_BYTES,
    OutputError,
    check_target,
    expand_path,
    open_atomically,
    shorten_file_name,
    write_atomically,
)


def fail_to_write(path: Path) -> str:
    with pytest.raises(OutputError) as caught:
        write_atomically(path, "text")
    line = str(caught.value)
    assert "\n" not in line
    assert len(line) < 250
    return line


def test_a_file_is_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_atomically(path, "é")
    assert path.read_bytes() == "é".encode()
    path.chmod(0o600)
    write_atomically(path, b"new")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o600)
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


def test_lone_surrogates_do_not_end_a_write(tmp_path: Path) -> None:
    write_atomically(tmp_path / "a.txt", "a\ud800b")
    assert (tmp_path / "a.txt").read_text() == "a?b"


def test_a_failure_of_the_body_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")

    def write_half() -> None:
        with open_atomically(path) as file:
            file.write(b"half")
            raise FileNotFoundError(2, "the trace is gone")

    with pytest.raises(FileNotFoundError):
        write_half()
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "target.txt", tmp_path / "link.txt"
    target.write_text("old")
    link.symlink_to(target)
    write_atomically(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    dangling = tmp_path / "dangling.txt"
    dangling.symlink_to(tmp_path / "folder" / "new.txt")
    write_atomically(dangling, "through")
    assert (tmp_path / "folder" / "new.txt").read_text() == "through"


def test_each_wrong_target_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert fail_to_write(tmp_path).endswith(": that is a folder; add a file name")
    assert fail_to_write(tmp_path / "none" / "a.txt") == f"{tmp_path / 'none'}: no such folder"
    assert fail_to_write(tmp_path / "file" / "a.txt") == f"{tmp_path / 'file'}: no such folder"
    assert "longer than 255 bytes" in fail_to_write(tmp_path / f"{'é' * 130}.txt")
    assert "not a valid file name" in fail_to_write(tmp_path / "a\0b")
    assert "symbolic links" in fail_to_write(tmp_path / "loop")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "loop"]
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_a_full_device_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "full.txt").symlink_to("/dev/full")
    assert fail_to_write(tmp_path / "full.txt").endswith("no space left on the device; nothing was written")


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "a.txt").write_text("old")
    monkeypatch.setattr(Path, "replace", fail)
    assert "no space left" in fail_to_write(tmp_path / "a.txt")
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("a.txt", "old")]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_one_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "Permission denied" in fail_to_write(tmp_path / "a.txt")


def test_without_a_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", fail)
    with pytest.raises(OutputError, match=r"^~/a: the home folder is unknown; write the whole path$"):
        expand_path("~/a")


def test_names_are_cut_between_characters() -> None:
    assert shorten_file_name("a", ".json") == "a.json"
    name = shorten_file_name("é" * 200, "_0-5us.json.gz")
    assert len(name.encode()) in (MAX_NAME_BYTES - 1, MAX_NAME_BYTES)
    assert name.endswith("é_0-5us.json.gz")


def test_a_target_is_checked_without_being_touched(tmp_path: Path) -> None:
    assert not check_target(tmp_path / "new")
    (tmp_path / "there").write_text("")
    assert check_target(tmp_path / "there")
