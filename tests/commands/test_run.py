"""`torchprof-tui run`, on real runs on the CPU."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.json_schemas import check_answer
from tests.helpers.paths import ROOT
from tests.helpers.terminal import Terminal
from tests.helpers.warm_program import fork_torch
from torchprof_tui.cli import main
from torchprof_tui.commands.open import OpenOptions
from torchprof_tui.commands.open import main as open_command
from torchprof_tui.commands.run import RunOptions
from torchprof_tui.commands.run import main as run_command
from torchprof_tui.commands.run.main import _open_explorer, _ProgressLine
from torchprof_tui.runs.history import list_past_runs
from torchprof_tui.runs.recording_request import remember_interpreter
from torchprof_tui.runs.run_result import RunResult
from torchprof_tui.runs.status_channel import StatusMessage
from torchprof_tui.trace.loading.load_in_process import load_trace

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch: pip install '.[run]'")

ENDLESS = """
import sys, time, torch
optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
for step in range(100_000):
    optimizer.step()
    print("step", step, flush=True)
    time.sleep(0.005)
"""
FROM_THE_FIRST = ("--wait", "0", "--warmup", "0", "--active", "100000", "--no-table")


@pytest.fixture(autouse=True)
def _warm_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork what these tests record in this process from one that has imported torch."""
    if needs_torch.args[0] is False:
        fork_torch(monkeypatch, run_command)


def started(folder: Path, *words: str) -> subprocess.Popen[str]:
    """The program with no terminal, once its run has taken some steps; what it prints is in `out` and `err`."""
    (folder / "train.py").write_text(ENDLESS)
    with open(folder / "out", "w") as out, open(folder / "err", "w") as err:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "torchprof_tui",
                "run",
                *words,
                "--python",
                sys.executable,
                "--",
                "python",
                "train.py",
            ],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            # Whoever runs the tests in the background may have ctrl+c ignored, which children inherit.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    wait_until(lambda: "step 5" in said(folder), folder)
    return process


def said(folder: Path) -> str:
    return (folder / "out").read_text() + (folder / "err").read_text()


def wait_until(holds: object, folder: Path) -> None:
    deadline = time.monotonic() + 300
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < deadline, said(folder)
        time.sleep(0.05)


@needs_torch
@pytest.mark.long
def test_options_after_a_workload(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What a workload has no option for is ours; --active is its own, and still says how many steps are recorded."""
    words = ["--size", "8", "--json", "--active", "2", "--device", "cpu", "--no-table", "-o", str(tmp_path / "runs")]
    assert main(["run", "--python", sys.executable, "matmul_add", *words]) == 0
    result = json.loads(capfd.readouterr().out)
    assert result["table"] is None
    assert Path(result["folder"]).parent == tmp_path / "runs"
    assert [step.number for step in load_trace(result["traces"][0], cache=False).steps] == [2, 3]
    (past,) = list_past_runs(str(tmp_path / "runs"))
    assert past.request.command == ("matmul_add", "--size", "8", "--active", "2", "--device", "cpu")


@pytest.mark.long
@needs_torch
def test_the_help_of_a_workload_is_no_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "-o", str(tmp_path / "runs"), "--python", sys.executable, "matmul_add", "--help"]) == 0
    out, err = capfd.readouterr()
    assert "--mode {default,reduce-overhead,max-autotune}" in out + err
    assert "torchprof-tui:" not in err
    assert not (tmp_path / "runs").exists()


@needs_torch
def test_a_workload(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What is printed is one document, and what it names opens with the ops that the workload promises."""
    words = ["--active", "2", "-o", str(tmp_path / "runs"), "--python", sys.executable, "--json"]
    assert main(["run", *words, "matmul_add", "--size", "8", "--device", "cpu"]) == 0
    out, err = capfd.readouterr()
    result = json.loads(out)
    check_answer(result, "run", "Recording")
    assert not {"diff", "cannot_tell"} & {*result}  # only with --compare-to
    (path,) = result["traces"]
    trace = load_trace(path, cache=False)
    assert [step.name for step in trace.steps] == ["ProfilerStep#2", "ProfilerStep#3"]
    assert trace.names.count("aten::mm") == 1
    assert "aten::mm" in Path(result["table"]).read_text()
    assert "matmul_add (8, 8)" in err  # the program's own output is out of the way
    assert Path(result["folder"]).parent == tmp_path / "runs"
    (past,) = list_past_runs(str(tmp_path / "runs"))
    assert past.request.options == ("--active", "2")
    assert list(past.result.traces) == result["traces"]


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_a_signal_to_us_ends_the_run_and_keeps_it(tmp_path: Path, signum: signal.Signals) -> None:
    process = started(tmp_path, *FROM_THE_FIRST, "--json")
    process.send_signal(signum)
    assert process.wait(300) == 128 + signum, said(tmp_path)
    result = json.loads((tmp_path / "out").read_text())
    assert result["exit_status"] == 128 + signum
    numbers = [step.number for step in load_trace(result["traces"][0], cache=False).steps]
    assert numbers == list(range(len(numbers)))  # --wait 0 --warmup 0: from the first one on
    assert len(numbers) > 5
    assert result["ended"] == ("interrupted" if signum == signal.SIGINT else "SIGTERM")


@pytest.mark.slow
@needs_torch
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent was killed")
def test_killed_we_leave_no_orphan_and_lose_nothing(tmp_path: Path) -> None:
    process = started(tmp_path, *FROM_THE_FIRST)
    process.kill()
    process.wait(300)
    wait_until(lambda: "kept in" in said(tmp_path), tmp_path)
    (manifest,) = (tmp_path / "torchprof_runs").glob("*/manifest.json")
    facts = json.loads(manifest.read_text())
    assert facts["ended"] == "SIGTERM"
    assert facts["kept"]
    assert (manifest.parent / "request.json").exists()  # and it can be repeated
    wait_until(lambda: not os.path.exists(f"/proc/{facts['pid']}"), tmp_path)


@pytest.mark.long  # tests/ui/record/test_record_screen.py opens what runs recorded on each push
@needs_torch
def test_in_a_terminal_it_opens_what_it_recorded(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torchprof_tui", "run", "--python", sys.executable, "matmul_add", "--size", "8"]
    with Terminal(command, folder=tmp_path, PYTHONPATH=str(ROOT), CUDA_VISIBLE_DEVICES="") as terminal:
        terminal.wait_for("matmul_add · 3 steps", "CPU", "no GPU work in this trace")
        terminal.send("q")
        assert terminal.wait_for_end() == 0
    assert "Traceback" not in terminal.text


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_progress_of_a_save_is_one_line(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "isatty", lambda descriptor: is_terminal)
    line = _ProgressLine()
    assert not line.show(0.0)
    for done in (0, 100, 200, 300):
        line.update(StatusMessage(0.0, 0, "exporting", compressed=done * 10**6, total=400 * 10**6))
        assert line.show(float(done + 1))
        assert line.show(float(done + 1))  # unchanged text is not written again
    line.update(StatusMessage(0.0, 0, "tabulating"))
    assert not line.show(500.0)
    said = capfd.readouterr().err
    if is_terminal:
        assert said.count("\r") == 2 * 4
        assert "\n" not in said
        assert "torchprof-tui: compressing: 200 of 400 MB, 2 min left" in said
        assert said.endswith("\x1b[K")
    else:
        assert [words.split(":")[1].strip() for words in said.splitlines()] == ["compressing"] * 3


def test_the_ranks_of_a_run_open_as_one(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[OpenOptions] = []
    monkeypatch.setattr(open_command, "run", seen.append)
    result = RunResult("runs/x", ("r0", "r0.cycle2", "r1"), (), 0, 1.0, "finished", (), ("r0", "r1"))
    _open_explorer(result, RunOptions(theme="light"))
    assert (seen[0].trace, seen[0].theme) == (("r0", "r1"), "light")
    assert "opening 2 of 3 traces; the others are in runs/x" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "nothing to run"),
        (["--active", "x", "mlp"], "--active"),
        (["--then", "go", "mlp"], "--then"),
        (["--", "no_such_program"], "neither a workload"),
        (["--python", "/no/such/python", "mlp"], "no interpreter /no/such/python"),
        (["--python", sys.executable, "--step", "none", "--active", "3", "mlp"], "--step none has none"),
        pytest.param(["--python", sys.executable, "--", "no_such_file.py"], "no_such_file.py", marks=needs_torch),
    ],
)
def test_a_wrong_call_is_one_line(words: list[str], says: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *words]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("torchprof-tui: ")
    assert len(err.splitlines()) == 1
    assert says in err


def test_an_interpreter_without_torch(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # leaves out site-packages
    bare.chmod(0o755)
    assert main(["run", "--json", "--python", str(bare), "-o", str(tmp_path / "runs"), "mlp"]) == 2
    out, err = capfd.readouterr()
    check_answer(json.loads(out), "run", "Recording")
    assert json.loads(out)["traces"] == []
    assert err.startswith("torchprof-tui: no torch in ")
    assert "--python" in err
    assert not (tmp_path / "runs").exists()


def test_a_default_interpreter_without_torch_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    bare = tmp_path / "env" / "bin" / "python"
    bare.parent.mkdir(parents=True)
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path / "env"))
    remember_interpreter(sys.executable)
    assert main(["run", "-o", str(tmp_path / "runs"), "mlp"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert f"tried $VIRTUAL_ENV: not set, $CONDA_PREFIX: {bare}" in line
    assert f"the last run that worked had --python {sys.executable}" in line
    assert "torchprof-tui run --python PATH" in line


@pytest.mark.long
@needs_torch
def test_from_the_start_screen_to_the_lanes_and_once_more(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torchprof_tui"]
    state = str(tmp_path / "state")  # no interpreter of an earlier test is remembered
    with Terminal(
        command, folder=tmp_path, PYTHONPATH=str(ROOT), OMP_NUM_THREADS="1", XDG_STATE_HOME=state
    ) as terminal:
        terminal.wait_for("Record a run")
        terminal.send("r")
        terminal.wait_for("Workloads", "train_gpt")
        terminal.send("\r")
        terminal.wait_for("$ torchprof-tui run matmul_add")
        terminal.send(" --size 8\r")
        terminal.wait_for("1 cell", "#2", "matmul")
        terminal.send("r")
        terminal.wait_for("Recording matmul_add --size 8")
        terminal.wait_for("1 cell", gone=True)  # a frame arrives in pieces: the lanes of before
        terminal.wait_for("1 cell", "#2", "matmul")
        terminal.send("q")
        assert terminal.wait_for_end() == 0
    past = list_past_runs(str(tmp_path / "torchprof_runs"))
    assert [each.request.command for each in past] == [("matmul_add", "--size", "8")] * 2
    assert all("matmul_add (8, 8)" in Path(each.result.folder or "", "output.txt").read_text() for each in past)


@pytest.mark.long
@needs_torch
def test_a_hangup_in_a_run_saves_it_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ENDLESS)
    with Terminal([sys.executable, "-m", "torchprof_tui"], folder=tmp_path, PYTHONPATH=str(ROOT)) as terminal:
        terminal.wait_for("Record a run")
        terminal.send("r")
        terminal.wait_for("Workloads")
        terminal.send("train.py")
        terminal.wait_for("run -- train.py")
        terminal.send("\t0\x1b[B0\x1b[B100000")
        terminal.wait_for("--active 100000")
        terminal.send("\x12")
        terminal.wait_for("step 5", "recording, step")
        os.kill(terminal.pid, signal.SIGHUP)
        terminal.wait_for_end()
    wait_until(lambda: any(past.result.traces for past in list_past_runs(str(tmp_path / "torchprof_runs"))), tmp_path)
    (past,) = list_past_runs(str(tmp_path / "torchprof_runs"))
    assert past.result.end_reason in ("KeyboardInterrupt", "interrupted", "SIGTERM", "SIGHUP")
    assert load_trace(past.result.traces[0]).steps
