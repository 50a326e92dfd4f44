"""Only a request that this user made, in the folder where it was written, counts as the user's own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from torchprof_tui.runs.history import read_request, save_request
from torchprof_tui.runs.recording_request import RecordingRequest
from torchprof_tui.runs.request_signature import add_signature, is_signed_by_user
from torchprof_tui.trace.core.errors import UnreadableFileError

REQUEST = RecordingRequest(("python", "train.py"))


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "torchprof-tui"


@pytest.fixture
def run_folder(tmp_path: Path, state: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    save_request(str(folder), REQUEST, "/project")
    return folder


def is_own(folder: Path) -> bool:
    stored = read_request(str(folder / "x.pt.trace.json.gz"))
    assert stored is not None
    return stored.is_own


def test_a_request_of_this_user_is_own(run_folder: Path, state: Path) -> None:
    assert is_own(run_folder)
    assert (state / "request.key").stat().st_mode & 0o777 == 0o600
    link = run_folder.with_name("link")
    link.symlink_to(run_folder)
    assert is_own(link)  # the same folder by another name
    save_request(str(run_folder), REQUEST, "/project")  # the key is kept
    assert is_own(run_folder)


def test_any_changed_byte_makes_it_foreign(run_folder: Path) -> None:
    path = run_folder / "request.json"
    document = path.read_bytes()
    for position in range(len(document)):
        changed = bytearray(document)
        changed[position] ^= 1
        assert not is_signed_by_user(bytes(changed), str(run_folder))
    for other in (document + b" ", document[:-1], b" " + document, document.replace(b"\n", b"", 1)):
        assert not is_signed_by_user(other, str(run_folder))
    path.write_bytes(document.replace(b"train.py", b"evil_.py"))
    assert not is_own(run_folder)


def test_a_copy_in_another_folder_is_foreign(run_folder: Path) -> None:
    copy = run_folder.with_name("copy")
    shutil.copytree(run_folder, copy)
    assert not is_own(copy)
    assert is_own(run_folder)


def test_another_users_or_machines_request_is_foreign(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    assert not is_own(run_folder)  # there is no key
    folder = tmp_path / "run2"
    folder.mkdir()
    save_request(str(folder), REQUEST)
    assert not is_own(run_folder)  # there is another key
    assert is_own(folder)


def test_an_unsigned_request_is_foreign(run_folder: Path) -> None:
    (run_folder / "request.json").write_text('{"command": ["mlp"], "cwd": "/"}')
    assert not is_own(run_folder)
    (run_folder / "request.json").write_text('{"signature": "' + "0" * 64 + '",\n"command": ["mlp"], "cwd": "/"}')
    assert not is_own(run_folder)


@pytest.mark.parametrize("damage", ["readable", "short", "link", "folder"])
def test_a_key_that_others_may_know_is_replaced(run_folder: Path, state: Path, damage: str) -> None:
    key = state / "request.key"
    content = key.read_bytes()
    if damage == "readable":
        key.chmod(0o644)
    elif damage == "short":
        key.write_bytes(content[:5])
    else:
        key.unlink()
        if damage == "folder":
            key.mkdir()
        else:
            other = state / "elsewhere"
            other.write_bytes(content)
            other.chmod(0o600)
            key.symlink_to(other)
    assert not is_own(run_folder)
    save_request(str(run_folder), REQUEST)
    assert is_own(run_folder) == (damage != "folder")
    if damage != "folder":
        assert key.read_bytes() != content


def test_without_a_state_folder_requests_are_kept_unsigned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))  # no folder can be created below a file
    save_request(str(tmp_path), REQUEST, "/project")
    stored = read_request(str(tmp_path / "x.json"))
    assert stored is not None
    assert (stored.request.command, stored.is_own) == (REQUEST.command, False)
    assert add_signature(b"{}", str(tmp_path)) == b"{}"


def test_a_request_that_cannot_be_read_is_one_line(run_folder: Path) -> None:
    path = run_folder / "request.json"
    for content, line in (
        (b'{"command": [1], "cwd": "/"}', "request.json: command[0] is not text"),
        (b"[" * 100_000, "request.json: the file is not an object"),
        (b" " * (2 << 20), "request.json: larger than 1,024 KiB"),
    ):
        path.write_bytes(content)
        with pytest.raises(UnreadableFileError) as caught:
            read_request(str(run_folder / "x.json"))
        assert str(caught.value) == line
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UnreadableFileError, match="not a file"):
        read_request(str(run_folder / "x.json"))
