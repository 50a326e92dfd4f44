"""A recording that would be large: the user is asked, and where nobody can be asked fewer steps are recorded."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

import pytest

from tests.helpers.later_imports import LaterModule, skip_without
from tests.helpers.paths import ROOT
from tests.helpers.terminal import Terminal
from tests.profiler_runs.conftest import HARNESS, Start, train
from torchprof_runs.recorder.size_question import SizeQuestion

skip_without("torch")
plans = LaterModule("torchprof_runs.recorder.schedule")

LARGE = ("--with-stack", "--active", "30", "--max-size", "1", "--no-table")  # 30 steps of some 100 kB
STEPS = 40
FIRST = 3  # the first recorded step


def test_without_a_terminal_fewer_steps_are_recorded_and_one_line_says_so(start: Start) -> None:
    run = start(train(STEPS), *LARGE)
    assert run.wait() == 0, run.err
    kept = run.steps()
    assert 1 <= len(kept) < 30
    assert kept == list(range(FIRST, FIRST + len(kept)))
    (line,) = [line for line in run.err.splitlines() if "no terminal to ask on" in line]
    assert f"recording {len(kept)} of 30 steps, about " in line
    assert "--yes" in line
    assert run.manifest["preflight"]["recorded_steps"] == len(kept)
    assert f"step {FIRST + len(kept)}" not in run.out  # it was stopped after the last recorded step
    recording = [status for status in run.statuses if status.get("phase") == "recording" and status["step"]]
    assert recording[-1]["of"] == len(kept)


def test_yes_records_all_without_asking(start: Start) -> None:
    run = start(train(STEPS), *LARGE, "--yes")
    assert run.wait() == 0, run.err
    assert len(run.steps()) == 30
    assert "slow to write and to open" in run.err


@pytest.mark.parametrize("answer", ["y", "f", "n", "xf"])
def test_the_app_is_asked_through_its_pipe(start: Start, tmp_path: Path, answer: str) -> None:
    pipe = tmp_path / "answers"
    os.mkfifo(pipe)
    script = train(STEPS).replace("import sys", "import os, sys") + "\nprint(os.environ.get('TORCHPROF_ANSWERS'))"
    run = start(script, *LARGE, env={"TORCHPROF_ANSWERS": str(pipe)})
    run.wait_for('"asking"')
    assert f"step {FIRST}" not in run.out  # the program waits for the answer
    (asked,) = [status for status in run.statuses if status.get("phase") == "asking"]
    assert list(asked["choices"]) == ["y", "f", "n"]
    assert asked["choices"]["y"].startswith("record 30 steps, about ")
    writer = threading.Thread(target=pipe.write_text, args=(answer,))
    writer.start()
    assert run.wait() == 0, run.err
    writer.join()
    assert str(pipe) not in run.out
    if answer == "n":
        assert run.manifest["kept"] == []
        assert "nothing is recorded, as you chose" in run.err
        assert "nothing was recorded:" not in run.err
    else:
        assert (len(run.steps()) == 30) == (answer == "y")


ASK = """
from torchprof_runs.recorder.size_question import SizeQuestion, find_answerer
ask = find_answerer({}, None)
print("answered", ask(SizeQuestion(30, 30 * 10**6, 3, 3 * 10**6)))
"""


def test_a_terminal_is_asked_until_an_answer_makes_sense(tmp_path: Path) -> None:
    with Terminal([sys.executable, "-c", ASK], folder=tmp_path, PYTHONPATH=str(ROOT / "profiler_runs")) as terminal:
        for line in ("what?", "Fewer"):
            terminal.wait_for("[y] record 30 steps, about 30 MB  [f] record 3 steps, about 3.0 MB  [n] stop")
            terminal.send(line + "\n")
        terminal.wait_for("answered f")
        assert terminal.text.count("[n] stop, record nothing ?") == 2


@pytest.mark.long  # each push: the question alone, above, and runs that an app answers
@pytest.mark.parametrize(("lines", "is_whole"), [(["what?", "y"], True), (["f"], False)])
def test_in_a_terminal_the_user_is_asked(tmp_path: Path, lines: list[str], is_whole: bool) -> None:
    (tmp_path / "script.py").write_text(train(STEPS))
    command = [sys.executable, str(HARNESS), "-o", "runs", *LARGE, "script.py"]
    with Terminal(command, folder=tmp_path, CUDA_VISIBLE_DEVICES="-1") as terminal:
        for line in lines:
            terminal.wait_for("[y] record 30 steps", "[f] record", "[n] stop")
            terminal.send(line + "\n")
        terminal.wait_for("trace kept")
    (manifest,) = tmp_path.glob("runs/*/manifest.json")
    facts = json.loads(manifest.read_text())
    assert len(facts["kept"]) == 1
    assert ("recorded_steps" not in facts["preflight"]) == is_whole


def test_a_question_offers_only_what_makes_a_difference() -> None:
    question = SizeQuestion(steps=1, bytes=2 * 10**9, fewer=1, fewer_bytes=2 * 10**9)
    assert question.choices == {"y": "record 1 step, about 2,000 MB", "n": "stop, record nothing"}
    question = SizeQuestion(steps=3, bytes=21 * 10**8, fewer=1, fewer_bytes=7 * 10**8)
    assert question.choices["f"] == "record 1 step, about 700 MB"


@pytest.mark.torch
@pytest.mark.parametrize("warmup", [0, 1, 2])
def test_a_plan_with_fewer_steps(warmup: int) -> None:
    plan, fewer = plans.StepPlan(2, warmup, 5, 2), plans.StepPlan(2, warmup, 2, 2)
    plan.record_fewer(2, ends_early=True)
    steps = range(30)
    assert [plan.action(step) for step in steps] == [fewer.action(step) for step in steps]
    assert [plan.phase(step) for step in steps] == [fewer.phase(step) for step in steps]
    assert [plan.is_done(step) for step in steps] == [fewer.is_done(step) for step in steps]


@pytest.mark.torch
@pytest.mark.parametrize("warmup", [0, 1, 2])
def test_ranks_are_done_in_the_same_step_as_before(warmup: int) -> None:
    whole, plan = plans.StepPlan(2, warmup, 5, 2), plans.StepPlan(2, warmup, 5, 2)
    plan.record_fewer(2, ends_early=False)
    length = 2 + warmup + 5
    for cycle in range(2):
        first = cycle * length + 2 + warmup
        actions = [plan.action(step) for step in range(first, first + 5)]
        assert actions == ["RECORD", "RECORD_AND_SAVE", "NONE", "NONE", "NONE"]
        before = range(cycle * length, first)
        assert [plan.action(step) for step in before] == [whole.action(step) for step in before]
    assert [plan.is_done(step) for step in range(30)] == [whole.is_done(step) for step in range(30)]
