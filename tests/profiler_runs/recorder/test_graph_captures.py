"""`--capture`: each capture of a graph is a trace of its own. A graph is faked: there is no GPU."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.profiler_runs.conftest import Run, Start
from torchprof_tui.trace.loading.capture_files import CaptureFiles
from torchprof_tui.trace.loading.load_in_process import load_trace

FAKED = """
import torch

class Graph:  # what torch.cuda.CUDAGraph is derived from where torch has CUDA
    def __new__(cls, *args): return object.__new__(cls)
    def __init__(self, *args): pass
    def capture_begin(self, *args, **kwargs): {begin}
    def capture_end(self, *args, **kwargs): {end}
    capture_end_pre = capture_end  # what torch 2.14 calls instead, with the two below
    def capture_end_post(self): pass
    def instantiate(self): pass

for name in ("__new__", "__init__", *(name for name in vars(Graph) if not name.startswith("_"))):
    setattr(torch.cuda.CUDAGraph.__mro__[1], name, vars(Graph)[name])
"""

CAPTURE = """
model, x = torch.nn.Linear(4, 8), torch.ones(2, 4)

def capture(size):
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    try:
        model(x[:size]).relu()
    finally:
        graph.capture_end()
    return graph
"""

STEPS = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    model(x).sum().backward()
    optimizer.step()
"""


CAPTURED_STEPS = ("--capture", "--step", "optimizer")


def program(body: str, begin: str = "pass", end: str = "pass") -> str:
    return FAKED.format(begin=begin, end=end) + CAPTURE + body + STEPS


def list_captures(run: Run) -> list[dict[str, Any]]:
    paths = sorted((run.run_folder / "capture_traces").glob("*"))
    return [json.loads(gzip.decompress(path.read_bytes())) for path in paths]


def names_of(trace: dict[str, Any]) -> list[str]:
    return [event["name"] for event in trace["traceEvents"] if event.get("ph") == "X"]


def test_each_capture_is_a_trace_beside_that_of_the_run(start: Start) -> None:
    run = start(program("capture(2); model(x); capture(1)"), *CAPTURED_STEPS)
    assert run.wait() == 0, run.err
    captures = list_captures(run)
    assert [path.name for path in sorted((run.run_folder / "capture_traces").iterdir())] == [
        "graph001.pt.trace.json.gz",
        "graph002.pt.trace.json.gz",
    ]
    for size, trace in zip((2, 1), captures, strict=True):
        names = names_of(trace)
        assert names.count("aten::linear") == names.count("aten::relu") == 1
        assert "nn.Module: Linear_0" in names
        (linear,) = [event for event in trace["traceEvents"] if event["name"] == "aten::linear"]
        assert linear["args"]["Input Dims"][0] == [size, 4]
        assert not any("torchprof_runs" in name for name in names)
    assert run.manifest["captures"] == [f"capture_traces/graph00{number}.pt.trace.json.gz" for number in (1, 2)]
    assert "kept the capture of a graph" in run.err
    assert run.steps() == [3, 4, 5]  # the run itself is recorded as without captures


def test_the_viewer_finds_the_captures_beside_the_trace(start: Start) -> None:
    run = start(program("capture(2)"), *CAPTURED_STEPS)
    assert run.wait() == 0, run.err
    path = str(run.run_folder / run.manifest["kept"][0]["trace"])
    trace = load_trace(path, cache=False)
    (capture,) = CaptureFiles(path, cache=False).open_traces(trace)
    assert "nn.Module: Linear_0" in capture.names


def test_without_the_option_nothing_is_captured(start: Start) -> None:
    run = start(program("capture(2)"))
    assert run.wait() == 0, run.err
    assert not (run.run_folder / "capture_traces").exists()
    assert run.manifest["captures"] == []


def test_captures_of_a_rank_carry_its_number(start: Start) -> None:
    run = start(program("capture(2)"), *CAPTURED_STEPS, env={"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "3"})
    assert run.wait() == 0, run.err
    (folder,) = Path(run.folder).glob("**/capture_traces")
    assert [path.name for path in folder.iterdir()] == ["graph001.rank3.pt.trace.json.gz"]


def test_a_capture_while_the_run_is_recorded_is_part_of_its_trace(start: Start) -> None:
    run = start(program("capture(2)"), "--capture", "--step", "none")
    assert run.wait() == 0, run.err
    assert not (run.run_folder / "capture_traces").exists()
    assert "aten::relu" in run.names()


def test_a_capture_before_the_first_step_is_kept_where_the_run_was_recorded_until_then(start: Start) -> None:
    """Whether a program takes steps is known at the first one: the whole run is recorded until then, and dropped."""
    run = start(program("capture(2)"), "--capture")
    assert run.wait() == 0, run.err
    (trace,) = list_captures(run)
    assert names_of(trace).count("aten::relu") == 1
    assert run.steps() == [3, 4, 5]
    assert "aten::relu" not in run.names()


@pytest.mark.parametrize("failing", ["begin", "end"])
def test_a_failed_capture_is_not_kept_and_the_next_one_is(start: Start, failing: str) -> None:
    body = """
outcomes = [dict, lambda: 1 / 0]
try:
    capture(2)
except ZeroDivisionError:
    print("failed")
capture(1)
"""
    run = start(program(body, **{failing: "outcomes.pop()()"}), *CAPTURED_STEPS)
    assert run.wait() == 0, run.err
    assert run.out.startswith("failed")
    (trace,) = list_captures(run)
    (linear,) = [event for event in trace["traceEvents"] if event["name"] == "aten::linear"]
    assert linear["args"]["Input Dims"][0] == [1, 4]


def test_a_program_that_profiles_its_capture_itself_is_left_alone(start: Start) -> None:
    body = """
with torch.profiler.profile() as profile:
    capture(2)
print(any(row.key == "aten::relu" for row in profile.key_averages()))
capture(1)
"""
    run = start(program(body), *CAPTURED_STEPS)
    assert run.wait() == 0, run.err
    assert run.out.startswith("True")
    assert not (run.run_folder / "capture_traces").exists()
