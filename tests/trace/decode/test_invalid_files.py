"""Open every kind of invalid file that has been reported, through the command line.

The kinds are those of the format's description: errors of the writers (with the issue that reported them), damage that
happened to files later, and files that are not traces.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.long_run import keep_some
from torchprof_tui.cli import main
from torchprof_tui.trace.core import problems

BACKSLASH, QUOTE = problems.REPAIRED_BACKSLASH, problems.REPAIRED_QUOTE
CONTROL, ENCODING = problems.REPAIRED_CONTROL, problems.REPAIRED_ENCODING
NUMBER, COMMA = problems.REPAIRED_NUMBER, problems.REPAIRED_COMMA

EVENTS = 60
ENTRIES = [
    f'  {{\n    "ph": "X", "cat": "cpu_op", "name": "aten::op{k}", "pid": 7, "tid": 7,\n'
    f'    "ts": {10 * k}.125, "dur": 5,\n'
    f'    "args": {{\n      "External id": {k}\n    }}\n  }}'
    for k in range(EVENTS)
]
TEXT = ('{\n  "schemaVersion": 1,\n  "traceEvents": [\n' + ",\n".join(ENTRIES) + "\n  ]\n}\n").encode()
NAME = b'"aten::op30"'

REPAIRED: dict[str, tuple[bytes, str, str]] = {
    # error: (file, kind of the reported problem, name that is read)
    "Windows backslashes (pytorch#98432)": (
        TEXT.replace(NAME, rb'"C:\Users\new\x.py(3): f"'),
        BACKSLASH,
        "C:\\Users\\new\\x.py(3): f",
    ),
    "backslashes in the header (kineto#336)": (
        TEXT.replace(b"{\n", b'{\n  "traceName": "D:\\users\\x.json",\n', 1),
        BACKSLASH,
        "aten::op30",
    ),
    "bare quotes (pytorch#146900)": (TEXT.replace(NAME, b'"f(\'a\', "b")"'), QUOTE, "f('a', \"b\")"),
    "bare quotes around it all (kineto#1459)": (TEXT.replace(NAME, b'""quoted""'), QUOTE, '"quoted"'),
    "control bytes (pytorch#136180)": (
        TEXT.replace(NAME, b'"a\x01\x1b[2J"'),
        CONTROL,
        "a\x01\x1b[2J",
    ),
    "bytes that are not UTF-8 (pytorch#136180)": (
        TEXT.replace(NAME, b'"caf\xe9"'),
        ENCODING,
        "caf\\xe9",
    ),
    "a missing quote before tid (pytorch#33961)": (
        TEXT.replace(NAME + b', "pid": 7, "tid"', NAME + b', "pid": 7, tid"'),
        QUOTE,
        "aten::op30",
    ),
    "NaN": (
        TEXT.replace(b'"ts": 300.125, "dur": 5', b'"ts": 300.125, "dur": NaN'),
        NUMBER,
        "aten::op30",
    ),
    "Infinity": (
        TEXT.replace(b'"External id": 30', b'"External id": -Infinity'),
        NUMBER,
        "aten::op30",
    ),
    "a trailing comma in the list": (TEXT.replace(b"\n  ]", b",\n  ]"), COMMA, "aten::op30"),
    "a trailing comma in args": (
        TEXT.replace(b'"External id": 30\n', b'"External id": 30,\n'),
        COMMA,
        "aten::op30",
    ),
}


def run_info(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["info", str(path), "--json", "--no-cache"]) == 0
    summary: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert summary["events"] == summary["drawn"] + summary["metadata"] + summary["flows"] + sum(
        summary["not_drawn"].values()
    )
    return summary


@pytest.mark.parametrize("compressed", keep_some([False, True], 8))
@pytest.mark.parametrize("error", REPAIRED)
def test_errors_of_writers_lose_no_event(
    error: str, compressed: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, kind, name = REPAIRED[error]
    assert text != TEXT
    path = tmp_path / "trace"
    path.write_bytes(gzip.compress(text) if compressed else text)
    summary = run_info(path, capsys)
    assert summary["drawn"] == EVENTS
    assert [problem["kind"] for problem in summary["problems"] if problem["kind"].startswith("repaired")] == [kind]
    assert all(problem["count"] == 1 and problem["example"] for problem in summary["problems"])
    assert main(["chain", str(path), "--event", name, "--json", "--no-cache"]) == 0
    assert json.loads(capsys.readouterr().out)["chain"][-1]["name"] == name


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
@pytest.mark.parametrize("compressed", [False, True])
def test_a_truncated_file_keeps_its_complete_entries(
    compressed: bool, share: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace"
    data = (
        gzip.compress(TEXT, 0) if compressed else TEXT
    )  # stored, not deflated, so that both are cut at the same entry
    path.write_bytes(data[: int(len(data) * share)])
    summary = run_info(path, capsys)
    complete = sum(TEXT.find(entry.encode()) + len(entry) <= len(TEXT) * share for entry in ENTRIES)
    assert abs(summary["drawn"] - complete) <= 1
    assert [(problem["kind"], problem["count"]) for problem in summary["problems"]] == [(problems.CUT_SHORT, 1)]
    assert any(remark["section"] == "lost" and remark["action"] for remark in summary["doctor"])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "the file is empty"),
        (gzip.compress(b"", mtime=0), "an empty file"),
        (b"hello, world\n" * 50, "text that begins with: hello, world"),
        (b"null", "the JSON value null"),
        (b'{"a": 1}', "without traceEvents (keys: a)"),
        (bytes(range(256)) * 64, "binary data"),
        (b"PK\x03\x04" + b"\0" * 99, "a zip archive"),
        (b"<html>", "a page of HTML"),
        (b"[" * 100_000, "not a trace"),
        (None, "no .json or .json.gz trace"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_file_that_is_not_a_trace_is_refused_in_one_line(
    data: bytes | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "thing"
    if data is None:
        path.mkdir()
    else:
        path.write_bytes(data)
    assert main(["info", str(path), "--no-cache"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert words in err
