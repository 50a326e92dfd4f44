"""When a recording begins and ends: steps, a window of time, the whole run."""

from __future__ import annotations

import pytest

from tests.profiler_runs.conftest import Start, train


def test_no_optimizer_records_the_whole_run(start: Start) -> None:
    script = "import torch\nfor _ in range(5): torch.ones(3).exp()\nprint('end')\n"
    for options in ((), ("--step", "none")):
        run = start(script, *options)
        assert run.wait() == 0, run.err
        assert run.out == "end\n"
        assert run.names().count("aten::exp") == 5
        assert run.steps() == []
        assert run.manifest["kept"][0]["steps"] is None


def test_the_recording_before_the_optimizer_is_discarded(start: Start) -> None:
    run = start("import torch\ntorch.ones(3).exp()\n" + train(12))
    assert run.wait() == 0
    assert "aten::exp" not in run.names()
    assert run.steps() == [3, 4, 5]


def test_a_window_that_never_comes(start: Start) -> None:
    short = start(train(2), "--step", "optimizer")
    no_steps = start("print('hello')", "--step", "optimizer")
    early = start("print('hello')", "--after", "60")
    cut_off = start(train(5))
    failed = start(train(12, "if step == 1: raise ValueError"), "--step", "optimizer")
    assert [run.wait() for run in (short, no_steps, early, cut_off, failed)] == [0, 0, 0, 0, 1]
    assert "nothing was recorded: the exception came after 2 steps, before those to record" in failed.err
    assert "the program took 2 steps, but the first 3 are for --wait and --warmup" in short.err
    assert "no optimizer step was called" in no_steps.err
    assert "before --after 60 was over" in early.err
    assert [run.manifest["kept"] for run in (short, no_steps, early)] == [[], [], []]
    assert cut_off.steps() == [3, 4, 5]  # the sixth had only begun
    assert cut_off.manifest["kept"][0]["partial"]
    assert cut_off.out.endswith("end\n")


ENDLESS = "import time, torch\nwhile True: torch.ones(4).exp(); time.sleep(0.001)\n"


@pytest.mark.long
def test_windows_of_time(start: Start) -> None:
    stopped = start(ENDLESS, "--after", "0.2", "--for", "0.3")
    at_once = start(ENDLESS, "--for", "0.2")
    slow = train(120, "import time; time.sleep(0.02)")
    finishing = start(slow, "--after", "1", "--for", "0.3", "--then", "finish")
    to_the_end = start(slow, "--after", "1")
    assert [run.wait() for run in (stopped, at_once, finishing, to_the_end)] == [0, 0, 0, 0]
    assert stopped.manifest["ended"] == at_once.manifest["ended"] == "stopped"
    assert 0 < stopped.names().count("aten::exp") < 1_000
    assert 0.1 < stopped.manifest["kept"][0]["seconds"] < 60
    assert finishing.out.endswith("end\n")
    # Steps of the program are marked, numbered from its start.
    steps = finishing.steps()
    assert steps == list(range(steps[0], steps[-1] + 1))
    assert steps[0] > 0
    assert to_the_end.steps()[-1] == 120
    assert not to_the_end.manifest["kept"][0]["partial"]


@pytest.mark.long
def test_a_window_that_begins_while_torch_is_loading(start: Start) -> None:
    """The window begins only when torch's modules are loaded, and keeps its length."""
    script = """
import importlib.machinery, importlib.util, sys, time, torch
spec = importlib.util.find_spec("torch.utils.hooks")
sys.modules["torch.slow"] = module = type(sys)("torch.slow")
module.__spec__ = spec
spec._initializing = True
end = time.monotonic() + 1.0
while time.monotonic() < end: torch.ones(2).sin()
spec._initializing = False
while True: torch.ones(2).cos()
"""
    run = start(script, "--after", "0.2", "--for", "0.5", "--no-table")
    assert run.wait() == 0, run.err
    names = run.names()
    assert "aten::sin" not in names
    assert "aten::cos" in names
    assert run.manifest["kept"][0]["seconds"] >= 0.45


def test_a_window_that_torch_refuses_does_not_stop_the_program(start: Start) -> None:
    script = """
import time, torch
def refuse(*args, **kwargs): raise RuntimeError("not here")
torch.profiler.profile.prepare_trace = refuse
time.sleep(0.6)
print("end")
"""
    run = start(script, "--after", "0.1", "--for", "0.1")
    assert run.wait() == 0, run.err
    assert run.out == "end\n"
    assert "torch refused to record: RuntimeError: not here" in run.err
    assert "recording complete" not in run.err
    assert "before --after" not in run.err


def test_the_end_of_the_program_is_announced_before_it_starts(start: Start) -> None:
    endings = {
        (): "records steps 3 to 5 of its optimizer if it has one, then ends the program (--keep-going lets it run on)",
        ("--step", "optimizer", "--wait", "0", "--warmup", "0", "--active", "1"): "records step 0, then ends",
        ("--step", "optimizer", "--repeat", "2"): "records steps 3 to 5 and 1 more cycle up to step 11, then ends",
        ("--after", "0.2", "--for", "0.1"): "records 0.1 s from 0.2 s on, then ends the program",
        ("--keep-going",): "",
        ("--repeat", "0"): "",
        ("--step", "none"): "",
    }
    for options, line in endings.items():
        run = start(train(14, "import time; time.sleep(0.05)"), *options)
        assert run.wait() == 0, run.err
        first = run.err.splitlines()[0]
        assert line in first if line else "then ends" not in run.err, (options, run.err)
        assert ("end\n" in run.out) == (not line), (options, run.out)
