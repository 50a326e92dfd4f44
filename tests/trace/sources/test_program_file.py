"""Files of the program, found and read on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.sources import program_file
from torchprof_tui.trace.sources.program_file import (
    find_local_program_file,
    list_remote_candidates,
    read_local_program_file,
)
from torchprof_tui.trace.specs.address import parse_ssh_path


def refusal(file: str, cwd: Path, trace_file: str = "") -> str:
    with pytest.raises(TraceError) as caught:
        read_local_program_file(file, trace_file, cwd)
    assert str(caught.value).isprintable()
    return str(caught.value)


def write(path: Path, text: str = "import torch\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_where_a_file_is_looked_for(tmp_path: Path) -> None:
    cwd, traces = tmp_path / "cwd", tmp_path / "project" / "runs" / "one"
    cwd.mkdir()
    traces.mkdir(parents=True)
    trace_file = str(traces / "trace.json.gz")
    at_project = write(tmp_path / "project" / "train.py")
    assert find_local_program_file(str(at_project), "", cwd) == at_project
    assert find_local_program_file("train.py", trace_file, cwd) == at_project
    beside_trace = write(traces / "train.py")
    assert find_local_program_file("train.py", trace_file, cwd) == beside_trace
    in_cwd = write(cwd / "train.py")
    assert find_local_program_file("train.py", trace_file, cwd) == in_cwd


def test_a_path_of_another_machine_is_found_by_its_end(tmp_path: Path) -> None:
    model = write(tmp_path / "src" / "mine" / "model.py")
    write(tmp_path / "other" / "model.py")
    for hidden in (".git", "node_modules", "venv"):
        write(tmp_path / hidden / "mine" / "model.py")
    assert find_local_program_file("/home/you/project/mine/model.py", "", tmp_path) == model
    assert find_local_program_file(r"C:\Users\you\mine\model.py", "", tmp_path) == model
    assert "no such file here" in refusal("/home/you/yours/model.py", tmp_path)
    write(tmp_path / "copy" / "mine" / "model.py")
    assert "2 files below" in refusal("/home/you/project/mine/model.py", tmp_path)
    longer = write(tmp_path / "project" / "mine" / "model.py")
    assert find_local_program_file("/home/you/project/mine/model.py", "", tmp_path) == longer


def test_lines_are_read_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_bytes("\ufeffa = 1\r\n\tb = 'ü'\r\nc = 3".encode())
    file = read_local_program_file(str(path), "", tmp_path)
    assert file.place == str(path)
    assert file.lines == ("a = 1", "\tb = 'ü'", "c = 3")
    path.write_bytes(b"\xff\xfe = 1\n")
    assert read_local_program_file(str(path), "", tmp_path).lines == ("\ufffd\ufffd = 1",)


def test_only_regular_text_files_of_limited_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fifo = tmp_path / "fifo.py"
    os.mkfifo(fifo)
    (tmp_path / "binary.py").write_bytes(b"a\0b")
    (tmp_path / "empty.py").touch()
    (tmp_path / "folder.py").mkdir()
    write(tmp_path / "large.py", "x" * 101)
    write(tmp_path / "fits.py", "x" * 100)
    monkeypatch.setattr(program_file, "MAX_FILE_BYTES", 100)
    refusals = {
        str(fifo): "not a regular file",
        "/dev/zero": "not a regular file",
        "/dev/tty": "",
        str(tmp_path / "folder.py"): "not a regular file",
        str(tmp_path / "binary.py"): "a binary file",
        str(tmp_path / "empty.py"): "empty",
        str(tmp_path / "large.py"): "larger than",
        "/proc/self/mem": "",
        "<string>": "no such file",
        "a\0b.py": "no such file",
        "a\nb\x1b.py": "a·b·.py: no such file",
        "x" * 5000: "no such file",
    }
    for file, reason in refusals.items():
        assert reason in refusal(file, tmp_path), file
    assert read_local_program_file("fits.py", "", tmp_path).lines == ("x" * 100,)


def test_an_unreadable_file_says_so(tmp_path: Path) -> None:
    path = write(tmp_path / "secret.py")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("root reads everything")
    assert "Permission denied" in refusal(str(path), tmp_path)


def test_paths_on_a_host() -> None:
    def candidates(file: str, spec: str) -> list[tuple[str, str]]:
        trace = parse_ssh_path(spec)
        assert trace is not None
        return [(path.path, path.spec) for path in list_remote_candidates(file, trace)]

    assert candidates("/home/me/train.py", "me@box:runs/t.json") == [("/home/me/train.py", "me@box:/home/me/train.py")]
    assert [path for path, _ in candidates("train.py", "box:runs/one/t.json")] == [
        "runs/one/train.py",
        "runs/train.py",
        "train.py",
    ]
    assert candidates("~/train.py", "box:t.json") == [("./~/train.py", "box:./~/train.py")]
    assert candidates("train.py", "ssh://box/data/t.json")[0] == ("/data/train.py", "ssh://box/data/train.py")
    assert candidates("<stdin>", "box:t.json") == candidates("a\nb", "box:t.json") == []


def test_without_a_home_folder_a_trace_in_it_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda _: {}["nobody"])
    assert "no such file here" in refusal("train.py", tmp_path, "~/a.json")
    assert "no such file here" in refusal("train.py", tmp_path, "~nobody-of-this-name/a.json")
