"""Test `torchprof-tui hang`: text, JSON with its schema, MCP, remote folders, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.helpers.paths import FIXTURES
from tools.answer_schemas import read_schema
from torchprof_fleet.analysis.sketch_task import run_sketch_task
from torchprof_hang.command.main import explain_hang
from torchprof_tui.cli import main

SKIP = str(FIXTURES / "hang" / "skip_all_reduce.tar.xz")


def test_the_text_begins_with_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hang", SKIP]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("rank 1 skipped all_reduce [64] at program.py:")
    assert any(each.endswith("ranks 0 and 2 started; rank 1 other op") for each in lines)
    assert "stack of rank 1, innermost first" in lines


def test_json_has_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hang", SKIP, "--json", "--top", "2"]) == 0
    answer = json.loads(capsys.readouterr().out)
    jsonschema.validate(answer, read_schema("hang"))
    assert answer["ranks"] == [1]
    assert [each["number"] for each in answer["groups"][0]["collectives"]] == [6, 7]
    assert answer["waited_us"] > 1e6
    assert answer["sentence"] == explain_hang([SKIP]).sentence


def test_text_of_dumps_is_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = {
        "version": "2.4",
        "entries": [{"profiling_name": "nccl:\x1b[31mall", "state": "started", "process_group": ["\x1b]0;x", "\x1b"]}],
    }
    (tmp_path / "rank_0.json").write_text(json.dumps(content))
    assert main(["hang", str(tmp_path)]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_refusals_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["hang", str(tmp_path)], ["hang", str(tmp_path / "none")], ["hang", "-"]):
        assert main(words) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert error.startswith("torchprof-tui: ")


def test_the_rank_before_the_hang(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")

    def sketch(traces: Any, is_cancelled: Any, jobs: int) -> Any:  # in this process: starting others takes longer
        return [run_sketch_task(trace.spec, trace.identity) for trace in traces]

    monkeypatch.setattr("torchprof_fleet.command.main.sketch_locally", sketch)
    assert main(["hang", SKIP, "--trace", "sample:train_gpt_2ranks", "--json"]) == 0
    before = json.loads(capsys.readouterr().out)["before"]
    assert before.startswith("before the hang rank 1 came ")
