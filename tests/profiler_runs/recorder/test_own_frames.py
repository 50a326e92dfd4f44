"""The recorder's Python frames are removed from a trace; the program's and torch's are kept."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.profiler_runs.conftest import Start, train
from torchprof_runs.recorder.own_frames import remove_own_frames

RECORDER = "/venv/site-packages/torchprof_runs/recorder"


def frame(number: int, parent: int | None, name: str, ts: float, dur: float) -> dict[str, Any]:
    args = {"Python parent id": parent, "Python id": number, "Ev Idx": number}
    return {"ph": "X", "cat": "python_function", "name": name, "ts": ts, "dur": dur, "args": args}


STACK = [
    {"ph": "M", "name": "process_name", "ts": 0, "pid": 1, "tid": 0, "args": {"name": "python"}},
    frame(1, None, "threading.py(1002): _bootstrap", 0, 100),
    frame(2, 1, "threading.py(1045): _bootstrap_inner", 0, 100),
    frame(3, 2, "threading.py(982): run", 0, 100),
    frame(4, 3, f"{RECORDER}/size_estimate.py(112): _watch", 0, 100),
    frame(5, 4, "threading.py(655): wait", 0, 100),
    frame(6, None, "threading.py(1002): _bootstrap", 0, 100),
    frame(7, 6, "threading.py(1045): _bootstrap_inner", 0, 100),
    frame(8, 7, "threading.py(982): run", 0, 100),
    frame(9, 8, "loader.py(9): fetch", 0, 100),
    frame(10, None, "torchprof_runs/harness.py(55): <module>", 0, 100),
    frame(11, 10, f"{RECORDER}/recording_session.py(53): main", 0, 100),
    frame(12, 11, f"{RECORDER}/target_program.py(51): run", 0, 100),
    frame(13, 12, "<built-in function vars>", 0, 1),
    frame(14, 12, "<built-in method exec of dict object at 0x1>", 1, 99),
    frame(15, 14, "train.py(1): <module>", 1, 99),
    frame(16, 15, f"{RECORDER}/step_detection.py(81): counted_step", 5, 30),
    frame(17, 16, "torch/optim/optimizer.py(500): wrapper", 5, 10),
    frame(18, 17, "torch/optim/sgd.py(90): step", 6, 8),
    frame(19, 16, f"{RECORDER}/step_detection.py(107): _count_step", 16, 18),
    frame(20, 19, "<built-in function isinstance>", 17, 1),
    frame(21, 19, "torch/autograd/profiler.py(800): __exit__", 19, 10),
    frame(22, 21, "torch/_ops.py(1): __call__", 20, 2),
    frame(23, 15, "train.py(7): forward", 40, 20),
    frame(24, 23, "torch/profiler/_cupti_monitor.py(1190): push_user_annotation", 41, 1),
    frame(25, 23, "torchprof_runs/workloads/mlp.py(3): step", 45, 5),
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 46, "dur": 2, "args": {"External id": 1}},
]
KEPT = {6: None, 7: 6, 8: 7, 9: 8, 15: None, 17: 15, 18: 17, 23: 15, 25: 23}
"""Frames that stay → their parents."""


def format_trace(events: list[dict[str, Any]], one_line: bool = False) -> bytes:
    """Format a trace as torch does: each event on lines of its own, or (before 2.13) with its fields on one line."""
    bodies = [json.dumps(event, indent=None if one_line else 4) for event in events]
    lines = ["  {\n  " + body[1:-1].strip() + "\n  }" for body in bodies]
    return ('{\n  "schemaVersion": 1,\n  "traceEvents": [\n' + ",\n".join(lines) + "\n  ]\n}\n").encode()


@pytest.mark.parametrize("one_line", [False, True])
@pytest.mark.parametrize("chunk", [1, 7, 100, 1000, 1 << 20])
def test_own_frames_are_removed_whatever_the_chunks(chunk: int, one_line: bool) -> None:
    text = format_trace(STACK, one_line)
    chunks = (text[start : start + chunk] for start in range(0, len(text), chunk))
    events = json.loads(b"".join(remove_own_frames(chunks)))["traceEvents"]
    frames = {
        event["args"]["Python id"]: event["args"]["Python parent id"]
        for event in events
        if "dur" in event and event["cat"] == "python_function"
    }
    assert frames == KEPT
    assert events[-1]["name"] == "aten::mm"


def test_any_other_text_is_unchanged() -> None:
    others = [event for event in STACK if event["args"].get("Python id") in (6, 7, 8, 9, None)]
    for text in (
        format_trace(others),
        b"",
        b"{}",
        b"torchprof_runs/recorder/x.py",
        b'{"traceEvents": [\n  {"python_function',
    ):
        assert b"".join(remove_own_frames(iter([text]))) == text


def test_a_recorded_stack_begins_with_the_program(start: Start) -> None:
    run = start(train(), "--with-stack", "--no-table")
    assert run.wait() == 0, run.err
    frames = [event for event in run.trace()["traceEvents"] if event.get("cat") == "python_function"]
    names = [event["name"] for event in frames]
    assert not [name for name in names if "torchprof_runs" in name or "torch/profiler/" in name]
    program = next(event for event in frames if event["name"].startswith("script.py("))
    parents = {event["args"]["Python id"]: event for event in frames}
    above = parents.get(program["args"].get("Python parent id"))
    assert above is None or "runpy" in above["name"]  # the process that the tests fork runs the harness with runpy
    assert any("torch/optim/optimizer.py" in name for name in names)
    numbers = {event["args"]["Python id"] for event in frames}
    assert {event["args"].get("Python parent id") for event in frames} <= numbers | {None}
