"""Every sort of invalid file that people have met, one by one, through the command line as they would open it.

The list is the one of the format's description: what writers got wrong (the issues where it was reported are named),
what happened to files afterwards, and what is no trace at all.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

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

MENDED: dict[str, tuple[bytes, str, str]] = {
    # what is wrong: the file, the problem that tells it, the name that is read
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


def told(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["info", str(path), "--json", "--no-cache"]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert answer["events"] == answer["drawn"] + answer["metadata"] + answer["flows"] + sum(
        answer["not_drawn"].values()
    )
    return answer


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("what", MENDED)
def test_what_writers_got_wrong_costs_no_event(
    what: str, packed: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, kind, name = MENDED[what]
    assert text != TEXT
    path = tmp_path / "trace"
    path.write_bytes(gzip.compress(text) if packed else text)
    answer = told(path, capsys)
    assert answer["drawn"] == EVENTS
    assert [problem["kind"] for problem in answer["problems"] if problem["kind"].startswith("repaired")] == [kind]
    assert all(problem["count"] == 1 and problem["example"] for problem in answer["problems"])
    assert main(["chain", str(path), "--event", name, "--json", "--no-cache"]) == 0
    assert json.loads(capsys.readouterr().out)["chain"][-1]["name"] == name


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
@pytest.mark.parametrize("packed", [False, True])
def test_a_file_cut_short_keeps_what_is_whole(
    packed: bool, share: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace"
    data = gzip.compress(TEXT, 0) if packed else TEXT  # stored, so that a share of one is a share of the other
    path.write_bytes(data[: int(len(data) * share)])
    answer = told(path, capsys)
    whole = sum(TEXT.find(entry.encode()) + len(entry) <= len(TEXT) * share for entry in ENTRIES)
    assert abs(answer["drawn"] - whole) <= 1
    assert [(problem["kind"], problem["count"]) for problem in answer["problems"]] == [(problems.CUT_SHORT, 1)]
    assert any(remark["section"] == "lost" and remark["action"] for remark in answer["doctor"])


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
def test_what_is_no_trace_is_one_line(
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
