"""Kinds of programs, tried for real: what can be repeated leaves nothing behind, the rest is refused in one line."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import pytest

from tests.helpers.long_run import keep_some
from tests.helpers.warm_program import fork_torch
from torchprof_try import program_process
from torchprof_try.trials import TrialRequest, Trials
from torchprof_tui.trace.core.errors import TraceError

pytestmark = pytest.mark.slow

TRAIN = """
import torch

def train(model, steps=400, loader=None):
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step, x in zip(range(steps), loader or iter(lambda: torch.ones(4, 8), None)):
        model(x).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        yield step
"""
"""A module that all programs import, as programs do."""

RANKS = """
import os, sys, torch, torch.distributed as dist
from training import train

def main():
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    os.makedirs("shared", exist_ok=True)
    with open("shared/log.txt", "a") as file:  # by both ranks
        file.write("began")
    open(f"rank{dist.get_rank()}.txt", "w").close()
    assert sys.argv[1:] == ["--lr", "0.1"] and dist.get_world_size() == 2
    for _ in train(model):
        pass
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
"""

CONFIGURED = """
import argparse, datetime, json, multiprocessing, os, torch
from pathlib import Path
from training import train

class Data(torch.utils.data.Dataset):
    def __init__(self, text): self.size = len(text)
    def __len__(self): return 1000
    def __getitem__(self, index): return torch.full((8,), self.size + index / 1000)

def main(args):
    text = Path(args.data).read_text()
    folder = Path("outputs", datetime.datetime.now().isoformat())  # another one for each run
    (folder / ".config").mkdir(parents=True)
    (folder / ".config" / "config.json").write_text(json.dumps(vars(args)))
    if os.path.lexists("latest"):
        os.remove("latest")
    os.symlink(folder, "latest")
    os.chdir(folder)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.map(abs, [-1]) == [1]
    loader = torch.utils.data.DataLoader(Data(text), batch_size=4, num_workers=1)
    model = torch.nn.Linear(8, 8)
    for step in train(model, loader=loader):
        with open("log.txt", "a") as log:
            log.write(f"step {step}\\n")
        torch.save(model.state_dict(), "last.part")
        os.replace("last.part", "last.pt")

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--lr", type=float, required=True)
    main(parser.parse_args())
"""

REFUSED = """
import multiprocessing, os, sys, torch
from training import train

def work(rank=0):
    for _ in train(torch.nn.Linear(8, 8)):
        pass

if __name__ == "__main__":
    kind = sys.argv[1]
    if kind == "spawn":
        torch.multiprocessing.spawn(work, nprocs=1)
    elif kind == "fork":
        process = multiprocessing.get_context("fork").Process(target=work)
        process.start()
        process.join()
    elif kind == "append":
        with open("results.csv", "a") as file:
            file.write("1,2")
    elif kind == "database":
        import sqlite3
        sqlite3.connect("results.csv")
    elif kind == "mode":
        os.chmod("results.csv", 0o600)
    elif kind == "swallow":
        try:
            os.remove("results.csv")
        except Exception:
            pass
    elif kind == "question":
        input("Overwrite? ")
    elif kind == "short":
        for _ in train(torch.nn.Linear(8, 8), 2):
            pass
        sys.exit()
    for _ in train(torch.nn.Linear(8, 8)):
        pass
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "results.csv").write_text("mine")
    (tmp_path / "training.py").write_text(TRAIN)
    for name, text in (("ranks.py", RANKS), ("configured.py", CONFIGURED), ("refused.py", REFUSED)):
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    fork_torch(monkeypatch, program_process)
    return tmp_path


def list_files(folder: Path) -> dict[str, tuple[str, int]]:
    return {
        str(path.relative_to(folder)): (path.read_text() if path.is_file() else "", path.lstat().st_mode)
        for path in folder.rglob("*")
        if "__pycache__" not in path.parts
    }


def list_processes(folder: Path) -> list[str]:
    """List the processes that run in a folder, but for this one."""
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if pid != str(os.getpid()) and os.readlink(f"/proc/{pid}/cwd").startswith(str(folder)):
                found.append(Path(f"/proc/{pid}/cmdline").read_text("utf-8", "replace"))
    return found


def try_one(*command: str) -> Trials:
    request = TrialRequest((sys.executable, *command), only=("gc-frozen",), steps=6, warmup=2, repeat=0)
    with contextlib.closing(Trials(request)) as trials:
        for _ in trials.run():
            pass
    return trials


@pytest.mark.long  # test_trials.py tries simpler programs on each push
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("-m", "torch.distributed.run", "--nproc-per-node", "2", "ranks.py", "--lr", "0.1"), id="ranks"),
        pytest.param(("configured.py", "results.csv", "--lr", "0.1"), id="configured"),
    ],
)
def test_what_can_be_repeated_leaves_nothing_behind(folder: Path, command: tuple[str, ...]) -> None:
    before = list_files(folder)
    trials = try_one(*command)
    assert {row.name: (row.state, row.why) for row in trials.rows} == {
        "baseline": ("measured", ""),
        "gc-frozen": ("measured", ""),
    }
    assert trials.is_complete
    assert trials.rows[1].loss == "equal"
    assert trials.places.script == str(folder / next(word for word in command if word.endswith(".py")))
    assert list_files(folder) == before
    assert not list_processes(folder)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "said"),
    keep_some(
        [
            ("append", "it would change .*results.csv, which was there before"),
            ("database", "it would change .*results.csv, which was there before"),
            ("mode", "it would change .*results.csv, which was there before"),
            ("swallow", "it would change .*results.csv, which was there before"),
            ("question", "EOFError"),
            ("short", "exit status 0 after 2 steps"),
            ("fork", "it would train in a process that it starts"),
            ("spawn", "it would start a process by spawn"),
        ],
        1,
    ),
)
def test_what_cannot_be_repeated_is_refused_in_one_line(folder: Path, kind: str, said: str) -> None:
    before = list_files(folder)
    with pytest.raises(TraceError, match=said) as raised:
        try_one("refused.py", kind)
    assert "\n" not in str(raised.value)
    assert list_files(folder) == before
    assert not list_processes(folder)
