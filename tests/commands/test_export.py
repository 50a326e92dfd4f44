"""Test `torchprof-tui export`, and what it and `slice` leave out of a file that carries its environment."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from tests.helpers.command_line import call_main, read_error_line, read_json_answer
from tests.helpers.paths import SAMPLES
from tests.helpers.rank_traces import late_rank
from tests.helpers.trace_builder import cpu
from torchprof_tui.commands.export import FORMATS

LINEAR = SAMPLES / "linear_eager.pt.trace.json.gz"
VARIABLES = {f"VARIABLE_{number}": f"value-{number}" for number in range(59)} | {"PATH": "value", "HOME": "value"}


@pytest.fixture
def private_trace(tmp_path: Path) -> Path:
    """A file that carries the 61 variables of its process, a token, and a large key with another one."""
    path = tmp_path / "private.json"
    document = {
        "schemaVersion": 1,
        "metadata": {"system": {"env": VARIABLES, "node": "box"}, "hf_token": "value-of-a-token"},
        "files": {"text": "x" * 100_000, "password": "value-of-a-password"},
        "traceEvents": [cpu("aten::mm", 1, 5), cpu("aten::add", 10, 5)],
    }
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "feather", "csv", "json", "json.gz"])
def test_every_format_by_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str) -> None:
    out = tmp_path / f"out.{suffix}"
    status, said, err = call_main(capsys, "export", LINEAR, "-o", out)
    assert (status, err) == (0, "")
    assert said.startswith(f"wrote {out}: ")
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


def test_json_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.parquet"
    told = read_json_answer(capsys, "export", LINEAR, "-o", out, "--json")
    assert told == {
        "schema": "torchprof-tui/export/1",
        "trace": str(out),
        "format": "parquet",
        "count": 34,
        "unit": "events",
        "bytes": out.stat().st_size,
        "left_out": [],
        "partial": [],
    }


def test_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    late_rank(ranks=3).write(folder)
    call_main(capsys, "export", folder, "-o", tmp_path / "all.parquet")
    call_main(capsys, "export", folder, "--rank", "2", "-o", tmp_path / "one.parquet")
    every, one = (pyarrow.parquet.read_table(tmp_path / f"{name}.parquet") for name in ("all", "one"))
    assert set(every["rank"].to_pylist()) == {0, 1, 2}
    assert set(one["rank"].to_pylist()) == {2}
    assert every.num_rows == 3 * one.num_rows
    call_main(capsys, "export", folder, "--chrome", "-o", tmp_path / "all.json.gz")
    told = read_json_answer(capsys, "info", tmp_path / "all.json.gz", "--json")
    assert told["drawn"] == every.num_rows


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("-o", "{}/out.xlsx"), "-o: the format is unknown"),
        (("-o", "{}/out"), "-o: the format is unknown"),
        (("-o", "{}/none/out.csv"), "no such folder"),
        (("-o", "{}"), "-o: the format is unknown"),
        (("--chrome", "-o", "{}/out.csv"), "-o: a file of --chrome ends in .json or .json.gz"),
        (("--csv", "--arrow", "-o", "{}/out.csv"), "not allowed with"),
        (("--rank", "5", "-o", "{}/out.csv"), "--rank 5: no such rank"),
        ((), "-o"),
    ],
)
def test_wrong_calls(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], expected: str) -> None:
    assert expected in read_error_line(capsys, "export", LINEAR, *(word.format(tmp_path) for word in words))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", ["json", "json.gz"])
def test_the_trace_itself_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str) -> None:
    path = tmp_path / f"trace.{suffix}"
    text = gzip.decompress(LINEAR.read_bytes())
    path.write_bytes(text if suffix == "json" else gzip.compress(text))
    before = path.read_bytes()
    link = tmp_path / f"link.{suffix}"
    link.symlink_to(path)
    for out in (path, link):
        assert "this is the trace itself" in read_error_line(capsys, "export", path, "-o", out)
    assert path.read_bytes() == before


def test_no_rank_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = late_rank(ranks=2).write(tmp_path)
    assert "this is the trace itself" in read_error_line(capsys, "export", tmp_path, "-o", paths[1])


def test_a_missing_package_is_one_line_before_the_trace_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    line = read_error_line(capsys, "export", tmp_path / "gone.json", "-o", tmp_path / "out.parquet")
    assert line == "torchprof-tui: pyarrow is not installed: pip install 'torchprof-tui[arrow]'\n"


def test_a_failure_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.csv"
    out.write_text("what was there")

    def fail(*_: Any) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("torchprof_tui.analysis.export.event_columns._format_rows", fail)
    assert "No space" in read_error_line(capsys, "export", LINEAR, "-o", out)
    assert out.read_text() == "what was there"
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]


def test_help_lists_every_format(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        call_main(capsys, "export", "--help")
    text = capsys.readouterr().out
    assert all(f"--{name}" in text for name in FORMATS)


@pytest.mark.parametrize("words", [("slice", "--range", "0:100"), ("export",)])
def test_private_metadata_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], private_trace: Path, words: tuple[str, ...]
) -> None:
    command, *options = words
    out = tmp_path / "out.json"
    status, said, err = call_main(capsys, command, private_trace, *options, "-o", out)
    assert status == 0
    assert err == (
        "torchprof-tui: left out: metadata.system.env (61 environment variables), metadata.hf_token (looks like a "
        "secret), files.password (looks like a secret); --keep-metadata keeps it\n"
        "torchprof-tui: kept: metadata, files; nothing private was found there, which is no guarantee\n"
    )
    document = json.loads(out.read_text())
    assert document["metadata"] == {"system": {"node": "box"}}
    assert document["files"] == {"text": "x" * 100_000}
    assert "value" not in out.read_text() + said + err

    told = read_json_answer(capsys, command, private_trace, *options, "-o", out, "--json")
    assert told["left_out"] == ["metadata.system.env", "metadata.hf_token", "files.password"]

    status, _, err = call_main(capsys, command, private_trace, *options, "-o", out, "--keep-metadata")
    assert (status, err) == (0, "")
    assert json.loads(out.read_text())["metadata"]["system"]["env"] == VARIABLES
    assert json.loads(out.read_text())["files"]["password"] == "value-of-a-password"


def test_private_metadata_of_ranks_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    for path in late_rank(ranks=2).write(folder):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"env": VARIABLES, f"more of {path.name}": 1}))
    out = tmp_path / "all.json"
    status, _, err = call_main(capsys, "export", folder, "-o", out)
    assert (status, err.splitlines()) == (
        0,
        [
            "torchprof-tui: left out: more of rank1.json",
            "torchprof-tui: left out: env (61 environment variables); --keep-metadata keeps it",
            "torchprof-tui: kept: more of rank0.json; nothing private was found there, which is no guarantee",
        ],
    )
    assert "value-1" not in out.read_text()


def test_the_doctor_names_private_metadata_without_values(
    capsys: pytest.CaptureFixture[str], private_trace: Path
) -> None:
    told = read_json_answer(capsys, "info", private_trace, "--json")
    remarks = {remark["kind"]: remark for remark in told["doctor"]}
    variables, secrets = remarks["environment variables"], remarks["secrets"]
    assert (variables["count"], variables["example"]) == (61, "metadata.system.env")
    assert (secrets["count"], secrets["example"]) == (2, "metadata.hf_token and 1 more")
    assert "export" in variables["action"]
    _, text, _ = call_main(capsys, "info", private_trace)
    assert "environment variables" in text
    assert "value" not in text + json.dumps(told["doctor"])
