"""Small files: each becomes a typed value, or one line that says why it cannot."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.hostile_json import documents
from torchprof_tui.runs.run_result import Manifest, RequestFile
from torchprof_tui.runs.status_channel import StatusMessage
from torchprof_tui.trace.core.errors import UnreadableFileError
from torchprof_tui.trace.core.typed_json import (
    MAX_TEXT,
    MAX_UNIX_SECONDS,
    decode_typed_json,
    explain_version,
    read_small_file,
    read_typed_file,
)
from torchprof_tui.ui.start.recent_traces import RecentFile

KINDS: dict[str, Any] = {
    "manifest.json": Manifest,
    "request.json": RequestFile,
    "status": StatusMessage,
    "recent.json": RecentFile,
}
NESTED = 1_000_000
"""Python 3.14 limits the stack instead of the depth: it reads 100,000 levels."""


def reason(data: bytes, name: str) -> str:
    with pytest.raises(UnreadableFileError) as caught:
        decode_typed_json(data, KINDS[name], name)
    return str(caught.value)


@pytest.mark.parametrize(
    ("data", "name", "line"),
    [
        ('{"rank": "0"}', "manifest.json", "rank is not a whole number"),
        ('{"rank": true}', "manifest.json", "rank is not a whole number"),
        ('{"rank": 1e400}', "manifest.json", "rank is out of range"),
        ('{"rank": -1}', "manifest.json", "rank is out of range"),
        (f'{{"rank": {"9" * 5000}}}', "manifest.json", "rank is out of range"),
        ('{"seconds": 1e300}', "manifest.json", "seconds is out of range"),
        ('{"seconds": Infinity}', "manifest.json", "not JSON"),
        ('{"started": "yesterday"}', "manifest.json", "started is not a time"),
        ('{"started": "2026-01-01T00:00:00"}', "manifest.json", "started has no time zone"),
        ('{"kept": null}', "manifest.json", "kept is not a list"),
        ('{"kept": [null]}', "manifest.json", "kept[0] is not an object"),
        ('{"kept": [{}]}', "manifest.json", "kept[0].trace is missing"),
        ('{"kept": [{"trace": ["a"]}]}', "manifest.json", "kept[0].trace is not text"),
        (
            r'{"kept": [{"trace": "a\u0000"}]}',
            "manifest.json",
            "kept[0].trace contains a character that no path can have",
        ),
        (
            r'{"script_traces": ["/\ud800"]}',
            "manifest.json",
            "script_traces[0] contains a character that no path can have",
        ),
        (f'{{"ended": "{"x" * 5000}"}}', "manifest.json", "ended is too long"),
        ("[1]", "manifest.json", "the file is not an object"),
        ("{", "manifest.json", "not JSON"),
        ('{"cwd": "/"}', "request.json", "command is missing"),
        ('{"command": "rm -rf", "cwd": "/"}', "request.json", "command is not a list"),
        ('{"command": ["a", 3], "cwd": "/"}', "request.json", "command[1] is not text"),
        ('{"command": [], "cwd": null}', "request.json", "cwd is not text"),
        ('{"time": "1", "rank": 0}', "status", "time is not a number"),
        ('{"time": 1, "rank": 0, "step": "2"}', "status", "step is not a whole number"),
        ('[["a"]]', "recent.json", "[0] has the wrong length"),
        ('[["a", 1e400]]', "recent.json", "[0][1] is out of range"),
        ('{"a": 1}', "recent.json", "the file is not a list"),
    ],
)
def test_the_reason_is_one_plain_line(data: str, name: str, line: str) -> None:
    assert reason(data.encode(), name) == f"{name}: {line}"


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(
    "data",
    [
        b"[" * NESTED,
        b"[" * NESTED + b"]" * NESTED,
        b'{"x":' * NESTED,
        b'{"x":' + b"[" * NESTED + b"]" * NESTED + b"}",
        rb'{"y": "\udcff", "x":' + b"[" * NESTED + b"]" * NESTED + b"}",
        b"\xff\xfe[",
        b"",
        b"\0",
    ],
)
def test_deep_nesting_and_no_json(name: str, data: bytes) -> None:
    assert reason(data, name).startswith(f"{name}: ")


def test_a_path_that_is_not_utf_8_is_read_as_json_dumps_writes_it() -> None:
    path = os.fsdecode(b"/runs/caf\xe9.json")
    manifest = decode_typed_json(json.dumps({"kept": [{"trace": path}]}).encode(), Manifest, "m")
    assert [os.fsencode(kept.trace) for kept in manifest.kept] == [b"/runs/caf\xe9.json"]
    assert reason(rb'{"ended": "\udcff", "seconds": 1e400}', "manifest.json") == "manifest.json: not JSON"
    assert reason(rb'{"ended": "\udcff", "rank": "0"}', "manifest.json").endswith("rank is not a whole number")


def test_unknown_fields_are_ignored_and_a_newer_version_is_reported() -> None:
    manifest = decode_typed_json(b'{"schema": 7, "new": [{"a": null}], "ended": "finished"}', Manifest, "m")
    assert manifest.ended == "finished"
    assert (
        explain_version("m", manifest.schema, 1)
        == "m: written by a newer version (7, known is 1); the known part was read"
    )
    assert explain_version("m", 1, 1) is None


@pytest.mark.long
@given(st.sampled_from(sorted(KINDS)), documents())
def test_any_json_is_a_typed_value_or_one_line(name: str, document: object) -> None:
    _is_typed_or_one_line(json.dumps(document).encode(), name)


@given(st.sampled_from(sorted(KINDS)), st.binary(max_size=200))
def test_any_bytes_are_a_typed_value_or_one_line(name: str, data: bytes) -> None:
    _is_typed_or_one_line(data, name)


@given(st.sampled_from(sorted(KINDS)), st.data())
def test_any_valid_document_with_one_changed_byte(name: str, data: st.DataObject) -> None:
    valid = {
        "manifest.json": b'{"schema": 1, "rank": 0, "started": "2026-01-01T00:00:00Z", "kept": [{"trace": "a"}]}',
        "request.json": rb'{"command": ["python", "caf\u00e9"], "cwd": "/", "python": null, "options": ["--active"]}',
        "status": b'{"time": 1.5, "rank": 0, "phase": "recording", "step": 2, "of": 3, "cycle": 1, "cycles": 0}',
        "recent.json": b'[["/a/b.json", 1700000000.5], ["host:c", 1]]',
    }[name]
    position = data.draw(st.integers(0, len(valid) - 1))
    byte = data.draw(st.binary(min_size=0, max_size=2))
    _is_typed_or_one_line(valid[:position] + byte + valid[position + 1 :], name)


def _is_typed_or_one_line(data: bytes, name: str) -> None:
    try:
        value = decode_typed_json(data, KINDS[name], name)
    except UnreadableFileError as error:
        line = str(error)
    else:
        _check_value(value)
        return
    assert line.startswith(f"{name}: ")
    assert line.isprintable()
    assert len(line) < 200


def _check_value(value: object) -> None:
    if isinstance(value, StatusMessage):
        assert 0 <= value.time <= MAX_UNIX_SECONDS
        assert isinstance(value.text, str)
    elif isinstance(value, Manifest):
        assert all("\0" not in kept.trace and len(kept.trace) <= MAX_TEXT for kept in value.kept)
        assert value.started is None or isinstance(value.started.timestamp(), float)
    elif isinstance(value, RequestFile):
        assert all(isinstance(word, str) and "\0" not in word for word in (*value.command, *value.options, value.cwd))
    else:
        assert isinstance(value, tuple)
        assert all(abs(opened_at) < float("inf") and spec for spec, opened_at in value)


def test_only_a_small_regular_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "large.json").write_bytes(b" " * 2049)
    os.mkfifo(tmp_path / "pipe.json")  # opening it for reading would block
    (tmp_path / "device.json").symlink_to("/dev/zero")
    for name, line in (("large", "larger than 2 KiB"), ("pipe", "not a file"), ("device", "not a file")):
        with pytest.raises(UnreadableFileError, match=rf"^{name}\.json: {line}$"):
            read_typed_file(tmp_path / f"{name}.json", Manifest, 2048)
    assert len(read_small_file(tmp_path / "large.json", 2049)) == 2049
    descriptors = len(os.listdir("/dev/fd"))
    with pytest.raises(UnreadableFileError, match="not a file"):
        read_small_file(tmp_path, 10)
    with pytest.raises(FileNotFoundError):
        read_small_file(tmp_path / "missing.json", 10)
    assert len(os.listdir("/dev/fd")) == descriptors
