"""Tiny traces with hostile values go through every command: an answer or one clear line, never an exception.

Traces are mostly right: a training step with a few events, of which a few values are replaced. numpy's errors of
overflow, division and invalid casts raise.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.helpers.command_line import call_main
from tests.helpers.trace_builder import (
    annotation,
    begin,
    counter,
    cpu,
    event,
    flow,
    kernel,
    memory,
    metadata,
    python,
    runtime,
    step,
)

DEEP = "nested 1000 levels deep"
"""Stands for a value that `json` cannot write."""

DEEP_TEXT = "[" * 1000 + "]" * 1000

ODD_NUMBERS = [0, -1, -5, 2**31, 2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64, -(2**63), 1.5, 1e17, 1e308]
ODD_VALUES: list[Any] = [
    *ODD_NUMBERS,
    None,
    True,
    "",
    "text",
    "7",
    "9" * 5000,
    "\ud800",
    "é" * 3000,
    [],
    [1, [2]],
    {"a": {}},
    DEEP,
]

HEADER: dict[str, Any] = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0, "numSms": 132}],
    "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2},
    "baseTimeNanoseconds": 1_700_000_000_000_000_000,
    "record_shapes": 1,
    "traceName": "a.json",
    "torchprof_tui_slice": {"of": "b.json", "range_ns": [0, 500], "origin_ns": 0},
}

OP_ARGS: dict[str, Any] = {"External id": 3, "Sequence number": 1, "Fwd thread id": 0, "Input Dims": [[8, 8], [8, 8]]}
SHAPE = {"grid": [4, 1, 1], "block": [128, 1, 1], "registers per thread": 32, "shared memory": 0, "External id": 3}
COLLECTIVE = {"Collective name": "allreduce", "In msg nelems": 64, "Group size": 2, "dtype": "Float"}


def training(k: int) -> list[dict[str, Any]]:
    """The entries of step k."""
    t = 100 * k
    return [
        step(k, t, 90),
        python("train.py(3): step", t, 80),
        annotation("## forward ##", t + 1, 40),
        cpu("aten::mm", t + 2, 20, **OP_ARGS),
        runtime("cudaLaunchKernel", t + 3, 5, corr=10 * k + 1),
        kernel("ampere_sgemm_128x64_nn", t + 9, 30, corr=10 * k + 1, **SHAPE),
        event(
            "Memcpy HtoD (Pageable -> Device)", t + 40, 5, "gpu_memcpy", args={"device": 0, "stream": 7, "bytes": 64}
        ),
        runtime("cudaStreamSynchronize", t + 50, 20, corr=10 * k + 2),
        kernel("ncclDevKernel_AllReduce_Sum_f32", t + 60, 20, corr=10 * k + 3, **COLLECTIVE),
        memory(t + 5, 1024, 1024),
        counter("queue", t + 6, length=3),
        begin("open", t + 7),
        flow("s", "fwdbwd", k, t + 2),
        flow("f", "fwdbwd", k, t + 70),
    ]


NAMES = [
    metadata("process_name", "python"),
    metadata("process_labels", "CPU"),
    metadata("process_sort_index", 5),
    metadata("thread_name", "main", tid=100),
]


@st.composite
def documents(draw: st.DrawFn) -> str:
    """The text of a trace with a few odd values, or all times of a kind replaced."""
    entries = copy.deepcopy([*NAMES, *(entry for k in range(draw(st.integers(1, 5))) for entry in training(k))])
    header = copy.deepcopy(HEADER)
    for _ in range(draw(st.integers(0, 4))):
        value = draw(st.sampled_from(ODD_VALUES))
        target: Any = draw(st.sampled_from([*entries, header]))
        while True:  # into args or a list, or not
            key = draw(st.sampled_from(sorted(target) if isinstance(target, dict) else range(len(target))))
            if not isinstance(target[key], (dict, list)) or not target[key] or draw(st.booleans()):
                break
            target = target[key]
        target[key] = value
    _replace_times(draw, entries)
    kept = draw(st.sampled_from([None, 1, 2, "user_annotation", "kernel", "cpu_op"]))
    if isinstance(kept, int):
        entries = entries[-kept:]
    elif kept is not None:
        entries = [entry for entry in entries if entry.get("cat") == kept]
    text = json.dumps({**header, "traceEvents": entries})
    return text.replace(json.dumps(DEEP), DEEP_TEXT)


def _replace_times(draw: st.DrawFn, entries: list[dict[str, Any]]) -> None:
    key, category = draw(st.sampled_from(["", "ts", "dur"])), draw(st.sampled_from(["", "user_annotation", "kernel"]))
    value = draw(st.sampled_from([0, 1, -3, 1e15, 4.6e15]))
    for entry in entries:
        if key in entry and entry.get("cat", "").startswith(category) if isinstance(entry.get("cat", ""), str) else key:
            entry[key] = value


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


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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


@pytest.mark.parametrize("replaced", [{"dur": 0}, {"grid": DEEP, "Input Dims": DEEP}, {"device": 2**31}], ids=str)
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
