"""Trials of the run that recorded a trace: only of one that this user has made; and the MCP tool that asks for them."""

from __future__ import annotations

import math
import shutil
import sys
from pathlib import Path

import pytest

from tests.helpers.mcp_sessions import Session
from torchprof_try.command import TryOptions
from torchprof_try.command.main import build_request
from torchprof_try.trials import read_recorded_run
from torchprof_tui.runs.history import save_request
from torchprof_tui.runs.recording_request import RecordingRequest
from torchprof_tui.trace.core.errors import TraceError

LOOP = """
import torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in range(200):
    model(torch.randn(4, 8)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
"""


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a trace of a run that this user has made; the program lies in another folder than the trace."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "loop.py").write_text(LOOP)
    folder = tmp_path / "runs" / "loop"
    folder.mkdir(parents=True)
    path = folder / "loop.pt.trace.json"
    path.write_text('{"traceEvents": []}')
    request = RecordingRequest(("loop.py", "--lr", "1"), ("--active", "2", "--step", "m:f"), sys.executable)
    save_request(str(folder), request, str(tmp_path / "code"))
    return path


def test_the_run_of_a_trace_is_repeated(trace: Path, tmp_path: Path) -> None:
    request = read_recorded_run(str(trace))
    assert (request.command, request.python, request.step) == (("loop.py", "--lr", "1"), sys.executable, "m:f")
    assert request.cwd == str(tmp_path / "code")
    built = build_request(TryOptions(command=(str(trace),), max_runs=6, step="a:b"))
    assert (built.command, built.max_runs, built.max_seconds, built.step) == (request.command, 6, math.inf, "a:b")


def test_a_run_of_somebody_else_is_refused(trace: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere"
    shutil.copytree(trace.parent, copy)  # the signature is of the folder
    with pytest.raises(TraceError, match="not made by you"):
        read_recorded_run(str(copy / trace.name))
    for path in trace.parent.iterdir():
        if path.name != trace.name:
            path.unlink()
    with pytest.raises(TraceError, match="unknown how this trace was recorded"):
        read_recorded_run(str(trace))


def test_ranks_of_run_nproc_name_torchrun(trace: Path) -> None:
    save_request(str(trace.parent), RecordingRequest(("loop.py",), ("--nproc", "2")))
    with pytest.raises(TraceError, match="torchrun --nproc-per-node 2"):
        read_recorded_run(str(trace))


@pytest.mark.long
async def test_an_agent_can_name_no_program_and_no_trace_of_others(trace: Path, tmp_path: Path) -> None:
    session = Session([tmp_path / "runs", tmp_path / "code"])
    assert "name the file of a trace" in await session.read_error("try", trace=str(tmp_path / "code" / "loop.py"))
    assert "outside of the folders" in await session.read_error("try", trace="/etc/passwd")
    copy = tmp_path / "runs" / "copied"
    shutil.copytree(trace.parent, copy)
    assert "not made by you" in await session.read_error("try", trace=str(copy / trace.name))


@pytest.mark.long
@pytest.mark.slow
async def test_an_agent_tries_within_its_limits(trace: Path, tmp_path: Path) -> None:
    save_request(str(trace.parent), RecordingRequest(("loop.py",), (), sys.executable), str(tmp_path / "code"))
    answer = await Session([tmp_path / "runs"]).ask(
        "try", trace=str(trace), only=["set-to-none", "gc-frozen"], max_runs=5
    )
    names = answer["remedies"]["columns"]
    rows = [dict(zip(names, row, strict=True)) for row in answer["remedies"]["rows"]]
    assert {row["name"]: row["state"] for row in rows} == {"set-to-none": "measured", "gc-frozen": "waiting"}
    assert answer["complete"] is False
    assert "zero_grad(set_to_none=True)" in next(row for row in rows if row["name"] == "set-to-none")["diff"]
    assert answer["command"].startswith("torchprof-tui try ")
    assert "--max-runs=5 --max-time=300" in answer["command"]
    assert sorted(path.name for path in (tmp_path / "code").iterdir()) == ["loop.py"]
