"""Tiny traces with hostile values go through every command: an answer or one clear line, never an exception.

Traces are mostly right: a training step with a few events, of which a few values are replaced. numpy's errors of
overflow, division and invalid casts raise.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tests.helpers.command_line import call_main
from tests.helpers.hostile_traces import DEEP, DEEP_TEXT, HEADER, NAMES, documents, training
from tests.helpers.long_run import keep_some

COMMANDS = (
    ("info", "--json"),
    ("info",),
    ("check", "--json"),
    ("check", "--markdown"),
    ("table", "--json"),
    ("table", "--by", "shape", "--flops"),
    ("table", "--of", "kernels"),
    ("table", "--of", "copies"),
    ("table", "--of", "memory"),
    ("table", "--of", "collectives"),
    ("chain", "--event", "ampere_sgemm_128x64_nn", "--json"),
    ("chain", "--event", "aten::mm"),
)


@pytest.mark.long
@settings(
    max_examples=settings.default.max_examples // 4,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(text=documents())
def test_every_command_answers_or_says_why_not(
    text: str, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path_factory.mktemp("hostile")
    path = folder / "a.json"
    path.write_text(text)
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        for name, *options in COMMANDS:
            _call(capsys, name, path, *options)
        _call(capsys, "slice", path, "--range", "0:300", "-o", folder / "slice.json")
        for name in ("events.csv", "events.parquet", "events.arrow", "all.json.gz"):
            _call(capsys, "export", path, "-o", folder / name)


def _call(capsys: pytest.CaptureFixture[str], *words: object) -> None:
    status, out, err = call_main(capsys, *words, "--no-cache", "--debug")
    assert status in (0, 1, 2), words
    lines = [line for line in err.splitlines() if " is partial: " not in line]
    assert len(lines) == (status == 2), (words, err)
    if status != 2 and "--json" in words:
        json.loads(out)


def hostile(tmp_path: Path, **replaced: Any) -> Path:
    """A file of five steps in which every event has these values; of args where it has such an arg."""
    entries = [*NAMES, *(entry for k in range(5) for entry in training(k))]
    for entry in entries:
        for key, value in replaced.items():
            if key in entry:
                entry[key] = value
            elif key in entry.get("args", {}):
                entry["args"][key] = value
    path = tmp_path / "a.json"
    text = json.dumps({**HEADER, "traceEvents": entries})
    path.write_text(text.replace(json.dumps(DEEP), DEEP_TEXT))
    return path


@pytest.mark.parametrize(
    "replaced",
    keep_some(
        [
            {"device": 2**31, "stream": 2**31, "correlation": 2**31},
            {"device": 2**63, "stream": 2**63 + 1, "correlation": 2**64},
            {"dur": 0},
            {"ts": 0, "dur": 0},
            {"ts": 5, "dur": 4.6e15},
            {"dur": -3},
            {"bytes": 2**62, "In msg nelems": 2**62},
            {"grid": [2**31, 65535, 65535]},
            {"External id": DEEP, "Input Dims": DEEP, "Collective name": DEEP, "length": DEEP},
            {"name": "\ud800"},
        ],
        1,
    ),
    ids=str,
)
def test_one_kind_of_value_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], replaced: dict[str, Any]
) -> None:
    path = hostile(tmp_path, **replaced)
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        for name, *options in COMMANDS:
            _call(capsys, name, path, *options)
        _call(capsys, "slice", path, "--range", "0:300", "-o", tmp_path / "slice.json")


@pytest.mark.long
def test_a_trace_of_one_kind_of_entry(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    phases = {(entry["ph"], entry.get("cat")) for entry in training(0)}
    for number, (phase, category) in enumerate(sorted(phases, key=str)):
        entries = [
            entry for k in range(3) for entry in training(k) if (entry["ph"], entry.get("cat")) == (phase, category)
        ]
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps({**HEADER, "traceEvents": entries}))
        with np.errstate(over="raise", divide="raise", invalid="raise"):
            for name, *options in COMMANDS:
                _call(capsys, name, path, *options)


def test_a_phase_that_is_a_list_does_not_end_a_slice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = hostile(tmp_path)
    path.write_text(path.read_text().replace('"ph": "C"', '"ph": ["C"]'))
    _call(capsys, "slice", path, "--range", "0:300", "-o", tmp_path / "slice.json")
    assert len(json.loads((tmp_path / "slice.json").read_text())["traceEvents"]) > 9


@pytest.mark.long
@pytest.mark.parametrize(
    "replaced", keep_some([{"dur": 0}, {"grid": DEEP, "Input Dims": DEEP}, {"device": 2**31}], 1), ids=str
)
def test_the_screen_shows_what_it_can(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], replaced: dict[str, Any]
) -> None:
    path, picture = hostile(tmp_path, **replaced), tmp_path / "a.txt"
    keys = "n,n,n,l,right,k,c,down,escape,t"
    _call(capsys, "snapshot", path, "--size", "120x40", "--keys", keys, "-o", picture)
    assert picture.read_text()


def test_a_name_that_is_not_utf8_does_not_end_a_slice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = hostile(tmp_path).rename(tmp_path / "a\udcff.json")
    _call(capsys, "slice", path, "--range", "0:300", "-o", tmp_path / "slice.json")
    assert json.loads((tmp_path / "slice.json").read_text())["torchprof_tui_slice"]["of"] == "a?.json"
