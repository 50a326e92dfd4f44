"""Try remedies on programs of the test: on two cores, with real processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.helpers.command_line import call_main
from tests.helpers.long_run import keep_some
from tests.helpers.warm_program import WarmTorchPopen, fork_torch
from torchprof_try import program_process, remedies
from torchprof_try.answers import build_tried
from torchprof_try.estimates import Saving
from torchprof_try.program_process import ProgramCommand, split_command
from torchprof_try.remedies import REMEDIES, Evidence, choose_remedies, combine, predict_saving
from torchprof_try.trials import TrialRequest, TrialRow, Trials
from torchprof_tui.runs.recording_request import HARNESS
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.loading.load_in_process import load_trace

LOOP = """
import os, shutil, subprocess, sys, torch
what = sys.argv[1] if len(sys.argv) > 1 else ""
if what == "rmtree": shutil.rmtree("out")
if what == "rename": os.rename("out", "out.old")
if what == "shell": subprocess.run(["sh", "-c", "echo changed > out/data.txt"])
if what == "overwrite": open("out/data.txt", "w").write("changed")
if what == "early": sys.exit(3)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
if __name__ == "__main__":
    for step in range(60):
        loss = model(torch.randn(4, 8)).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=what != "zero")
        if what == "save":
            os.makedirs("runs", exist_ok=True)
            torch.save(model.state_dict(), f"runs/{step}.pt")
        if what == "hang" and step == 20:
            import time; print(os.getpid(), file=open(sys.argv[2], "w")); time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "data.txt").write_text("mine")
    (tmp_path / "loop.py").write_text(LOOP)
    monkeypatch.chdir(tmp_path)
    fork_torch(monkeypatch, program_process)
    return tmp_path


def list_files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def try_all(*command: str, **more: object) -> Trials:
    request = TrialRequest(command, steps=6, warmup=2, repeat=0, **more)  # type: ignore[arg-type]
    with contextlib.closing(Trials(request)) as trials:
        for _ in trials.run():
            pass
    return trials


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "said"),
    keep_some(
        [
            ("rmtree", "would change"),
            ("rename", "would change"),
            ("overwrite", "would change"),
            ("early", "exit status 3"),
            ("shell", "would start another program"),
        ],
        1,
    ),
)
def test_what_cannot_be_repeated_is_refused_and_nothing_changes(folder: Path, what: str, said: str) -> None:
    before = list_files(folder)
    with pytest.raises(TraceError, match=said):
        try_all("loop.py", what, only=("gc-frozen",))
    assert list_files(folder) == before


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("unused", [(), pytest.param(("set-to-none",), marks=pytest.mark.long)], ids=str)
def test_new_files_are_removed_and_losses_are_equal(folder: Path, unused: tuple[str, ...]) -> None:
    before = list_files(folder)
    trials = try_all("loop.py", "save", only=("gc-frozen", *unused))
    assert list_files(folder) == before
    rows = {row.name: row for row in trials.rows}
    assert rows["baseline"].state == rows["gc-frozen"].state == "measured"
    assert rows["gc-frozen"].loss == "equal"
    for name in unused:
        assert (rows[name].state, rows[name].why) == ("unused", "nothing in the program uses it")
    assert trials.is_complete


@pytest.mark.slow
def test_an_interrupt_prints_what_is_known_and_leaves_no_process(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mark, has_ended = folder / "out" / "mark", threading.Event()

    def interrupt() -> None:
        while not (mark.exists() and mark.read_text().endswith("\n")):
            if has_ended.wait(0.1):
                return
        os.kill(os.getpid(), signal.SIGINT)  # as ctrl+c; the main thread waits for the program

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        words = ("try", "--only", "gc-frozen", "--allow-writes", "--json", "--", "loop.py", "hang", mark)
        status, out, _ = call_main(capsys, *words)
    finally:
        has_ended.set()
        thread.join()
    assert status == 130
    assert json.loads(out)["complete"] is False
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)


STARVED = """
import sys, time, torch
class Data(torch.utils.data.Dataset):
    def __len__(self): return 1000
    def __getitem__(self, index):
        time.sleep(0.05)
        return torch.full((4,), index / 1000)
class Model(torch.nn.Linear):
    def forward(self, x):
        time.sleep(0.05)
        return super().forward(x)
model = Model(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
workers = {"num_workers": int(sys.argv[1])} if len(sys.argv) > 1 else {}
for x in torch.utils.data.DataLoader(Data(), batch_size=1, **workers):
    model(x).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
"""Loading takes as long as the rest of a step, and neither needs a core: how busy the machine is matters little."""


@pytest.mark.long
@pytest.mark.slow
def test_workers_win_where_the_loader_starves_the_model(folder: Path) -> None:
    """The saving is that of a measurement by hand, where the program itself has the workers."""
    (folder / "starved.py").write_text(STARVED)
    with contextlib.closing(
        Trials(TrialRequest(("starved.py",), steps=6, warmup=2, repeat=0, only=("workers",)))
    ) as trials:
        for _ in trials.run():
            pass
        texts = [load_trace(path, cache=False).names for path in trials.record("workers")]
    assert [any("_MultiProcessingDataLoaderIter" in name for name in names) for names in texts] == [False, True]
    (remedy,) = build_tried(trials).remedies
    assert remedy.place == "starved.py:15"
    assert "+for x in torch.utils.data.DataLoader(Data(), batch_size=1, **workers, num_workers=1" in remedy.diff
    row = next(row for row in trials.rows if row.name == "workers")
    assert row.state == "measured", row.why
    assert row.saving is not None
    assert row.saving.is_won
    by_hand = try_all("starved.py", "1", only=("workers",))
    assert {row.name: row.state for row in by_hand.rows} == {"baseline": "measured", "workers": "unused"}
    step, baseline = by_hand.rows[0].step, trials.rows[0].step
    assert step is not None
    assert baseline is not None
    assert row.saving.share == pytest.approx(1 - step / baseline, abs=0.15)
    assert row.loss == "equal"


@pytest.mark.slow
def test_the_recorder_knows_every_remedy(tmp_path: Path) -> None:
    (tmp_path / "print.py").write_text(
        f"import sys; sys.path.insert(0, {str(HARNESS.parent.parent)!r}); "
        "from torchprof_runs.recorder import trial_remedies as t; "
        "print(*{*t.AT_START, *t.AFTER_FIRST_STEP, *t.BY_ENVIRONMENT})"
    )
    with WarmTorchPopen([sys.executable, tmp_path / "print.py"], stdout=subprocess.PIPE, text=True) as process:
        known, _ = process.communicate()
    assert {remedy.name for remedy in REMEDIES} == set(known.split())


def test_remedies_need_evidence() -> None:
    evidence = Evidence({"anomaly-mode": 0.5, "no-tensor-core": None}, has_gpu=False)
    assert [remedy.name for remedy in choose_remedies(evidence)] == ["no-anomaly-mode"]
    assert len(choose_remedies(evidence, everything=True)) < len(REMEDIES)
    with pytest.raises(TraceError, match="no remedy 'magic'"):
        choose_remedies(evidence, only=("magic",))
    names = {remedy.name: remedy for remedy in REMEDIES}
    best = combine([names["fused-optimizer"], names["foreach-optimizer"], names["compile"]])
    assert [remedy.name for remedy in best] == ["fused-optimizer", "compile"]


def test_forecasts_are_those_of_the_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {remedy.name: remedy for remedy in REMEDIES}
    evidence = Evidence({"input-starved": 0.8, "tiny-kernels": 0.2, "optimizer-loop": 0.3, "op-loop": None}, True)
    assert predict_saving(names["fused-optimizer"], evidence) == ("optimizer-loop", 0.3)
    assert predict_saving(names["threads-one"], evidence) == ("", None)
    assert predict_saving(names["no-anomaly-mode"], evidence) == ("", None)
    for workers, share in ((1, 0.2), (2, 0.6), (4, 0.8), (8, 0.8)):
        monkeypatch.setattr(remedies, "WORKERS", workers)
        finding, predicted = predict_saving(names["workers"], evidence)
        assert finding == "input-starved"
        assert predicted == pytest.approx(share)


def test_what_could_be_shown_by_more_runs_is_repeated() -> None:
    def row(name: str, share: float, low: float, loss: str = "equal") -> TrialRow:
        return TrialRow(name, state="measured", saving=Saving(share, low, 2 * share - low), loss=loss)

    names = ("tf32", "bf16", "compile", "keep-cache", "gc-frozen", "channels-last", "set-to-none")
    rows = [row("tf32", 0.3, 0.1), row("bf16", 0.4, -0.1, "different"), row("compile", 0.2, -0.2)]
    rows += [row("keep-cache", 0.5, -0.1), row("gc-frozen", 0.1, -0.2), row("channels-last", 0.01, -0.3)]
    trials = Trials(TrialRequest(("x.py",)), rows=[*rows, TrialRow("set-to-none", state="failed")])
    tried = [remedies.BY_NAME[name] for name in names]
    assert [each.name for each in trials._list_winners(tried)] == ["tf32"]
    assert [each.name for each in trials._list_undecided(tried)] == ["keep-cache", "compile"]


@pytest.mark.parametrize(("share", "fired"), [(0.3, {"gc-pause": 0.3}), (0.01, {})])
def test_the_collector_s_own_time_is_evidence(
    monkeypatch: pytest.MonkeyPatch, share: float, fired: dict[str, float]
) -> None:
    nothing = SimpleNamespace(patterns=[], verdict=SimpleNamespace(first=""))
    monkeypatch.setattr("torchprof_try.trials.load_trace", lambda *_, **__: None)
    monkeypatch.setattr("torchprof_try.trials.check_range", lambda *_: nothing)
    trials = Trials(TrialRequest(("x.py",)))
    trials._gc_share = share
    assert trials._check("trace.json").fired == fired


def test_commands_are_split() -> None:
    launched = (sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2")
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2")
    assert split_command((*torchrun, "train.py", "--lr", "1")) == ProgramCommand(
        launched, ("train.py", "--lr", "1"), False, True
    )
    assert split_command((*torchrun, "-m", "pkg.train", "-m")) == ProgramCommand(
        launched, ("pkg.train", "-m"), True, True
    )
    assert split_command(("-m", "pkg.train", "x"), sys.executable) == ProgramCommand(
        (sys.executable,), ("pkg.train", "x"), True
    )
    assert split_command((sys.executable, "-O", "train.py")) == ProgramCommand((sys.executable, "-O"), ("train.py",))
    with pytest.raises(TraceError, match="neither a workload"):
        split_command(("no-such-command", "train.py"))
