"""What is recorded: every option, on real runs of small programs."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from .conftest import Start, train


def test_steps_of_an_optimizer(start: Start) -> None:
    run = start(train(12), args=("--lr", "1"))
    assert run.wait() == 0
    assert run.steps() == [3, 4, 5]  # two wait, one warms up, three
    assert run.out.splitlines() == [f"step {number}" for number in range(5)]  # stopped at the end of the sixth
    names = run.names()
    assert names.count("Optimizer.step#SGD.step") == 3
    assert names.count("aten::linear") == 3
    # Nothing of Kineto's own comes between what the program prints.
    assert all(line.startswith("torchprof: ") for line in run.err.splitlines()), run.err
    kept = run.manifest["kept"]
    assert [one["steps"] for one in kept] == [[3, 5]]
    assert not kept[0]["partial"]
    assert kept[0]["events"] == len(names)


def test_a_step_holds_its_optimizers_range_whole(start: Start) -> None:
    """The range that torch records around Optimizer.step closes before the step does."""
    run = start(train(12))
    assert run.wait() == 0
    spans = {
        event["name"]: (event["ts"], event["ts"] + event["dur"])
        for event in run.trace()["traceEvents"]
        if event.get("ph") == "X" and event["name"].startswith("ProfilerStep")
    }
    steps = sorted(spans.values())
    for event in run.trace()["traceEvents"]:
        if event["name"] == "Optimizer.step#SGD.step" and event["ph"] == "X":
            begin, end = event["ts"], event["ts"] + event["dur"]
            assert any(first <= begin and end <= last for first, last in steps)


def test_what_a_manifest_says(start: Start) -> None:
    run = start(train(12), "--record-shapes", args=("--lr", "1"))
    assert run.wait() == 0
    facts = run.manifest
    assert facts["command"] == ["script.py", "--lr", "1"]
    assert facts["cwd"] == str(run.folder)
    assert facts["options"]["record_shapes"] is True
    assert (facts["state"], facts["ended"], facts["exit_status"]) == ("ended", "stopped", 0)
    assert facts["seconds"] > 0
    assert facts["environment"]["torch"]
    assert [phase["phase"] for phase in facts["phases"]][-4:] == ["measuring", "warming up", "recording", "running on"]
    assert facts["preflight"]["events_per_step"] > 10
    assert not facts["preflight"]["warning"]
    assert any("one step is" in line for line in facts["messages"])
    assert re.fullmatch(r"script-\d{8}-\d{6}", run.made.name)
    assert sorted(os.listdir(run.made)) == [
        "key_averages.json", "log.txt", "manifest.json", "script.pt.trace.json.gz", "table.txt",
    ]  # fmt: skip
    assert (run.made / "log.txt").read_text() in run.err


def test_what_the_app_is_told(start: Start) -> None:
    run = start(train(12))
    assert run.wait() == 0
    told = [line for line in run.statuses if "phase" in line]
    order = list(dict.fromkeys(line["phase"] for line in told))
    expected = ["starting", "recording", "waiting", "measuring", "warming up", "recording", "exporting", "tabulating"]
    assert order == list(dict.fromkeys([*expected, "running on", "done"]))
    assert told[1]["folder"] == str(run.made)
    first = next(line for line in told if line["phase"] == "recording" and line["of"])
    assert (first["step"], first["of"], first["cycle"], first["cycles"]) == (1, 3, 1, 1)
    assert told[-1]["exit_status"] == 0
    assert told[-1]["kept"] == [str(run.made / "script.pt.trace.json.gz")]
    assert {line["pid"] for line in told} == {run.pid}


def test_cycles_and_a_program_that_goes_on(start: Start) -> None:
    schedule = ("--wait", "1", "--warmup", "0", "--active", "2", "--repeat", "2", "--then", "finish")
    run = start(train(9), *schedule)
    assert run.wait() == 0
    assert run.out.endswith("end\n")
    assert [run.steps(0), run.steps(1)] == [[1, 2], [4, 5]]
    assert [one["trace"] for one in run.manifest["kept"]] == [
        "script.pt.trace.json.gz", "script.cycle2.pt.trace.json.gz",
    ]  # fmt: skip
    assert {"table.txt", "table.cycle2.txt"} <= set(os.listdir(run.made))
    assert run.manifest["ended"] == "finished"


def test_for_ever(start: Start) -> None:
    run = start(train(8), "--wait", "0", "--warmup", "1", "--active", "1", "--repeat", "0", "--no-table")
    assert run.wait() == 0
    assert run.out.endswith("end\n")
    assert [run.steps(index) for index in range(4)] == [[1], [3], [5], [7]]
    assert len(run.manifest["kept"]) == 4
    assert not list(run.made.glob("table*"))


def test_the_first_step_of_all(start: Start) -> None:
    run = start(train(3), "--wait", "0", "--warmup", "0", "--active", "1")
    assert run.wait() == 0
    assert run.steps() == [0]
    assert run.out == ""


def test_each_flag_of_the_profiler(start: Start) -> None:
    script = train(9)
    flags = ("--record-shapes", "--profile-memory", "--with-stack", "--with-flops", "--with-modules")
    runs = {flag: start(script, flag, "--no-table") for flag in flags}
    for flag, run in runs.items():
        assert run.wait() == 0, run.err
        assert run.trace()[flag[2:].replace("-", "_")] == 1
    shapes = [event.get("args", {}).get("Input Dims") for event in runs["--record-shapes"].trace()["traceEvents"]]
    assert [[2, 4], [4, 4], [4]] in shapes
    assert any(event["name"] == "[memory]" for event in runs["--profile-memory"].trace()["traceEvents"])
    assert any("script.py" in name for name in runs["--with-stack"].names())


def test_a_function_of_the_script(start: Start) -> None:
    script = """
import torch
class Loop:
    @staticmethod
    def quick(x): return x + 1
    def step(self, depth=2):
        torch.ones(2).mul(3)
        return self.step(depth - 1) if depth else depth  # a recursive call is no step of its own
def main():
    loop = Loop()
    for _ in range(9): loop.step(); Loop.quick(torch.ones(1))
if __name__ == "__main__":
    try:
        def other(): pass
    finally:
        main()
"""
    steps = start(script, "--step", "__main__:Loop.step", "--active", "2")
    quick = start(script, "--step", "__main__:Loop.quick", "--active", "2")
    missing = start(script, "--step", "__main__:Loop.walk")
    named = start(script, "--step", "script:Loop.step", "--active", "2")  # as one would import it
    assert steps.wait() == 0, steps.err
    assert steps.steps() == [3, 4]
    assert steps.names().count("aten::mul") == 6
    assert named.wait() == 0, named.err
    assert named.steps() == [3, 4]
    assert quick.wait() == 0, quick.err
    assert quick.names().count("aten::mul") == 6
    assert missing.wait() == 2
    assert "defines no walk" in missing.err
    assert not (missing.folder / "runs").exists()


def test_a_function_of_another_module(start: Start, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "__init__.py").touch()
    (tmp_path / "lib" / "work.py").write_text(
        "import torch\ndef step(x): return x * 2\nclass Net(torch.nn.Module):\n    def forward(self, x): return x + 1\n"
    )
    script = f"""
import sys; sys.path.insert(0, {str(tmp_path)!r})
import torch
from lib.work import step, Net
net = Net()
for number in range(9): step(net(torch.ones(1)))
print("end")
"""
    module = start(script, "--step", "lib.work:step", "--then", "finish")
    method = start(script, "--step", "lib.work:Net.forward")
    absent = start(script, "--step", "lib.work:stop")
    never = start(script, "--step", "no.such.module:step")
    assert module.wait() == 0, module.err
    assert module.steps() == [3, 4, 5]
    assert module.out == "end\n"
    assert method.wait() == 0, method.err
    assert method.names().count("aten::add") == 3
    assert absent.wait() == 0
    assert "has no function stop" in absent.err
    assert never.wait() == 0
    assert "nothing was recorded: no.such.module:step was never called" in never.err


def test_a_coroutine_function(start: Start) -> None:
    script = """
import asyncio, torch
async def step():
    torch.ones(1).exp()
    await asyncio.sleep(0)
async def main():
    for _ in range(9): await step()
asyncio.run(main())
"""
    run = start(script, "--step", "__main__:step", "--then", "finish")
    assert run.wait() == 0, run.err
    assert run.names().count("aten::exp") == 3


def test_code_that_is_compiled(start: Start) -> None:
    """Counting never breaks a graph: fullgraph=True would refuse it. Such steps are not seen, which is said."""
    script = """
import torch
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def forward(x): return model(x).sum()
@torch.compile(backend="eager", fullgraph=True)
def whole(x): return forward(x)
@torch.compile(backend="eager")
def update(): optimizer.step()
for _ in range(9): whole(torch.ones(1, 2)).backward(); update()
print("end")
"""
    inner = start(script, "--step", "__main__:forward")
    outer = start(script, "--step", "__main__:whole", "--then", "finish")
    optimizer = start(script, "--step", "optimizer", "--then", "finish")
    for run in (inner, outer, optimizer):
        assert run.wait() == 0, run.err
        assert run.out == "end\n"
    assert "__main__:forward was never called (calls from compiled code" in inner.err
    assert outer.steps() == [3, 4, 5]
    # torch.compile runs an optimizer's own frame as it is, and has not a look at ours.
    assert optimizer.steps() == [3, 4, 5]
    assert "Dynamo does not know" not in optimizer.err


def test_several_optimizers_make_one_step_a_loop(start: Start) -> None:
    script = """
import torch
class Both(torch.optim.SGD):
    def step(self, closure=None): return super().step(closure)
def make(kind): return kind(torch.nn.Linear(2, 2).parameters(), lr=0.1)
first, second = make(torch.optim.SGD), make(Both)
for _ in range(9):
    torch.ones(1).exp(); first.step(); second.step()
third = make(torch.optim.Adam)
for _ in range(20): torch.ones(1).log(); third.step()
"""
    run = start(script, "--wait", "8", "--active", "3")
    assert run.wait() == 0, run.err
    # Step 8 warms up; 9, 10, 11 are recorded: the replacement is counted from its third step alone on.
    assert run.steps() == [9, 10, 11]
    assert run.names().count("aten::log") >= 3


def test_no_optimizer_records_the_whole_run(start: Start) -> None:
    script = "import torch\nfor _ in range(5): torch.ones(3).exp()\nprint('end')\n"
    for options in ((), ("--step", "none")):
        run = start(script, *options)
        assert run.wait() == 0, run.err
        assert run.out == "end\n"
        assert run.names().count("aten::exp") == 5
        assert run.steps() == []
        assert run.manifest["kept"][0]["steps"] is None


def test_what_ran_before_the_optimizer_is_thrown_away(start: Start) -> None:
    run = start("import torch\ntorch.ones(3).exp()\n" + train(12))
    assert run.wait() == 0
    assert "aten::exp" not in run.names()
    assert run.steps() == [3, 4, 5]


def test_a_window_that_never_comes(start: Start) -> None:
    short = start(train(2), "--step", "optimizer")
    no_steps = start("print('hello')", "--step", "optimizer")
    early = start("print('hello')", "--after", "60")
    cut = start(train(5))
    assert [run.wait() for run in (short, no_steps, early, cut)] == [0, 0, 0, 0]
    assert "the program took 2 steps, and the first 3 wait and warm up" in short.err
    assert "no optimizer took a step" in no_steps.err
    assert "before --after 60 was over" in early.err
    assert [run.manifest["kept"] for run in (short, no_steps, early)] == [[], [], []]
    assert cut.steps() == [3, 4, 5]  # the sixth had only begun
    assert cut.manifest["kept"][0]["partial"]
    assert cut.out.endswith("end\n")


FOR_EVER = "import time, torch\nwhile True: torch.ones(4).exp(); time.sleep(0.001)\n"


def test_windows_of_time(start: Start) -> None:
    stopped = start(FOR_EVER, "--after", "0.2", "--for", "0.3")
    at_once = start(FOR_EVER, "--for", "0.2")
    slow = train(120, "import time; time.sleep(0.02)")
    finishing = start(slow, "--after", "1", "--for", "0.3", "--then", "finish")
    to_the_end = start(slow, "--after", "1")
    assert [run.wait() for run in (stopped, at_once, finishing, to_the_end)] == [0, 0, 0, 0]
    assert stopped.manifest["ended"] == at_once.manifest["ended"] == "stopped"
    assert 0 < stopped.names().count("aten::exp") < 1_000
    assert 0.1 < stopped.manifest["kept"][0]["seconds"] < 60
    assert finishing.out.endswith("end\n")
    # In a program that takes steps they are marked, with the numbers that they have from its start.
    steps = finishing.steps()
    assert steps == list(range(steps[0], steps[-1] + 1))
    assert steps[0] > 0
    assert to_the_end.steps()[-1] == 120
    assert not to_the_end.manifest["kept"][0]["partial"]


def test_a_window_that_begins_while_torch_is_loading(start: Start) -> None:
    """A profiler made just then finds half of torch: it is put off, and the window is as long as it was to be."""
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
    assert "recorded what was asked" not in run.err
    assert "before --after" not in run.err


def test_the_program_is_run_unchanged(start: Start) -> None:
    script = """
import json, os, pickle, sys
import status, schedule  # its own, though the harness has modules of these names
class Thing: pass
pickle.loads(pickle.dumps(Thing()))
print(json.dumps([sys.argv, sys.path[0], __name__, __file__, __spec__, __package__, status.mine, schedule.mine,
    sorted({"TORCHPROF_STATUS", "TORCHPROF_RUN_FOLDER", "KINETO_LOG_LEVEL"} & {*os.environ}),
    sys.modules["__main__"].Thing.__module__,
    [path for path in sys.path if path.endswith("profiler_runs")], "annotations" in globals(), 1 / 2]))
def f(x: undefined_name_is_an_error): pass
"""
    (start_folder := Path(start("", name="empty.py").folder.parent) / "mine").mkdir()
    (start_folder / "status.py").write_text("mine = 1\n")
    (start_folder / "schedule.py").write_text("mine = 2\n")
    (start_folder / "main.py").write_text(script)
    run = start([str(start_folder / "main.py"), "-x", "--active", "2"])
    assert run.wait() == 1
    main = str(start_folder / "main.py")
    assert json.loads(run.out.splitlines()[0]) == [
        [main, "-x", "--active", "2"], str(start_folder), "__main__", main, None, None, 1, 2, [], "__main__", [], False,
        0.5,
    ]  # fmt: skip
    # Its traceback is its own, without our frames.
    assert "NameError: name 'undefined_name_is_an_error'" in run.err
    assert "profiler_runs" not in run.err.replace(str(run.folder), "").split("NameError")[0].split("Traceback")[1]


def test_modules_folders_and_archives(start: Start) -> None:
    import zipfile

    empty = start("", name="empty.py")
    base = empty.folder
    empty.wait()
    package = base / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    body = (
        "import sys, torch\ntorch.ones(1).exp()\nprint(sys.argv, sys.path[0], __name__, __package__, bool(__spec__))\n"
    )
    (package / "__main__.py").write_text(body)
    (package / "inner.py").write_text("from . import __name__ as parent\n" + body)
    with zipfile.ZipFile(base / "app.pyz", "w") as archive:
        archive.writestr("__main__.py", body)
    bare = base / "bare"
    bare.mkdir()
    for command, says in (
        (["-m", "package", "-a"], f"['{package}/__main__.py', '-a'] {base} __main__ package True"),
        (["-m", "package.inner"], f"['{package}/inner.py'] {base} __main__ package True"),
        ([str(package)], f"['{package}'] {package} __main__  False"),
        ([str(base / "app.pyz")], f"['{base}/app.pyz'] {base}/app.pyz __main__  False"),
    ):
        run = start(command, cwd=base)
        assert run.wait() == 0, run.err
        assert run.out.strip() == says, command
        assert "aten::exp" in run.names()
    for command, says in (
        ([str(bare)], "folder without a __main__.py"),
        (["-m", "no_such_module_at_all"], "no module no_such_module_at_all"),
        (["nothing.py"], "no file nothing.py"),
    ):
        run = start(command)
        assert run.wait() == 2
        assert run.err.startswith("torchprof: ")
        assert says in run.err
        assert len(run.err.splitlines()) == 1


def test_a_script_that_is_no_python(start: Start) -> None:
    broken = start("def f(:\n")
    assert broken.wait() == 2
    assert "is not Python: invalid syntax" in broken.err
    assert len(broken.err.splitlines()) == 1


def test_memory_ends_a_recording(start: Start) -> None:
    script = """
import time, torch
held = []
for number in range(600):
    held.append(torch.ones(250_000))  # a megabyte each
    time.sleep(0.005)
print("end")
"""
    run = start(script, "--step", "none", "--max-memory", "50")
    goes_on = start(script.replace("600", "200"), "--step", "none", "--max-memory", "50", "--then", "finish")
    assert run.wait() == 0
    assert run.manifest["ended"] == "stopped"
    assert "while recording: ending the recording" in run.err
    assert 20 < run.names().count("aten::ones") < 600
    assert goes_on.wait() == 0
    assert goes_on.out == "end\n"
    assert len(goes_on.manifest["kept"]) == 1


def test_runs_do_not_overwrite_each_other(start: Start, tmp_path: Path) -> None:
    runs = [start("print(1)", runs=tmp_path / "together") for _ in range(4)]
    assert [run.wait() for run in runs] == [0] * 4
    assert len(os.listdir(tmp_path / "together")) == 4


def test_a_folder_that_cannot_be_made(start: Start, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    run = start("print(1)", runs=tmp_path / "file" / "runs")
    assert run.wait() == 2
    assert run.out == ""
    assert "cannot make a folder in" in run.err
    assert len(run.err.splitlines()) == 1
