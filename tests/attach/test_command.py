"""The command line of `attach`: what it prints, refuses and keeps; SIGUSR2 in a program that has called install()."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.attach.conftest import StartJob, wait_for
from tests.helpers.command_line import read_error_line
from tests.helpers.mcp_sessions import Session as McpSession
from tests.helpers.paths import ROOT
from tests.helpers.terminal import Terminal
from torchprof_attach.command import AttachOptions, parse_seconds
from torchprof_attach.command.main import _delete, choose_jobs
from torchprof_attach.session import Job
from torchprof_tui.cli import main
from torchprof_tui.commands.common.errors import UsageError

INSTALLED = """
import mmap, sys, time, types
folder, root = sys.argv[1:]
sys.path.insert(0, root + "/profiler_runs")
class Profile:
    def __init__(self, **options): pass
    def start(self): pass
    def stop(self): pass
    def export_chrome_trace(self, path):
        open(path, "w").write('{"traceEvents": [{"cat": "cpu_op"}], "traceName": "x"}')
hooks = []
for name in ("torch", "torch.profiler", "torch.optim", "torch.optim.optimizer"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["torch"]._C = types.SimpleNamespace(_autograd=types.SimpleNamespace(_profiler_enabled=lambda: False))
sys.modules["torch.profiler"].profile = Profile
sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook = hooks.append
with open(folder + "/libtorch_cpu.so", "wb") as file:
    file.write(b"0" * 4096)
with open(folder + "/libtorch_cpu.so", "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
import torchprof_runs
print(torchprof_runs.install(), torchprof_runs.install(), flush=True)
while True:
    time.sleep(0.005)
    for hook in hooks: hook(None, (), {})
"""


@pytest.mark.long
def test_the_screen_has_the_colours_that_are_asked_for(tmp_path: Path) -> None:
    """textual reads the variables for them when it is imported."""
    command = (sys.executable, "-m", "torchprof_tui", "attach", "--color", "16")
    with Terminal(command, folder=tmp_path, COLORTERM="truecolor") as terminal:
        terminal.wait_for("can be recorded")
        colours = {cell.fg for line in terminal.screen.buffer.values() for cell in line.values()}
    assert not [colour for colour in colours if len(colour) == 6 and set(colour) <= set("0123456789abcdef")]


def test_a_program_with_install_is_recorded_by_a_signal(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open(f"{folder}/said", "w") as said:
        process = subprocess.Popen([sys.executable, "-S", "-c", INSTALLED, folder, str(ROOT)], stdout=said)
    try:
        wait_for(lambda: Path(folder, "said").read_text() == "True False\n")
        out = tmp_path / "t.json"
        assert main(["attach", str(process.pid), "--steps", "3", "-o", str(out), "--json"]) == 0
        (recording,) = json.loads(capsys.readouterr().out)["recordings"]
        assert (recording["way"], recording["problem"]) == ("signal", "")
        assert recording["first_iteration"] > 0
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def test_a_pid_is_recorded_into_a_file(start_job: StartJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    process = start_job()
    out = tmp_path / "t.json"
    assert main(["attach", str(process.pid), "-o", str(out)]) == 0
    assert f"pid {process.pid}: " in capsys.readouterr().out
    assert json.loads(out.read_text())["torchprof_attach"]["pid"] == process.pid


def test_the_list_as_json_and_as_text(start_job: StartJob, capsys: pytest.CaptureFixture[str]) -> None:
    process = start_job(RANK="2", WORLD_SIZE="4", MASTER_PORT="3")
    assert main(["attach", "--list", "--json"]) == 0
    jobs = json.loads(capsys.readouterr().out)["jobs"]
    (job,) = [job for job in jobs if job["pid"] == process.pid]
    assert (job["rank"], job["world_size"], job["way"]) == (2, 4, "kineto")
    assert main(["attach", "--list"]) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if f" {process.pid} " in line]
    assert row.split()[:4] == ["localhost", str(process.pid), "2", "kineto"]


def test_a_list_answers_no_profiler(start_job: StartJob, folder: str) -> None:
    start_job()
    assert main(["attach", "--list"]) == 0
    assert "dynolog" not in os.listdir(folder)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["1"], "1: no such process of yours that uses torch"),
        (["--every", "5x", "1"], "'5x' is no time"),
        (["--every", "5m"], "--every needs a PID or --all"),
        (["--list", "1"], "--list takes hosts, not pids"),
        (["--list", "--all"], "not allowed with"),
        (["--steps", "0", "1"], "is not a number from 1 to 10000"),
        (["--steps", "4", "--window", "3ms", "1"], "not allowed with argument"),
    ],
)
def test_what_makes_no_sense_is_refused(words: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert line in read_error_line(capsys, "attach", *words)


def test_all_needs_one_job_and_says_what_to_set() -> None:
    ranks = [Job("localhost", 10 + rank, 1, rank, 2, "a:1", "python t.py", "kineto") for rank in (0, 1)]
    launcher = Job("localhost", 9, 1, job="pid 9", command="torchrun t.py", way="kineto", launcher=True)
    assert choose_jobs([launcher, *ranks], AttachOptions(all=True)) == ranks
    other = Job("localhost", 20, 1, job="pid 20", command="python o.py", way="kineto")
    with pytest.raises(UsageError, match=r"several jobs run: t \(rank 1\), o \(pid 20\)"):
        choose_jobs([*ranks, other], AttachOptions(all=True))
    with pytest.raises(UsageError, match="torchrun: KINETO_USE_DAEMON=1 torchrun"):
        choose_jobs([], AttachOptions(all=True))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("300ms", 0.3), ("90s", 90), ("30m", 1800), ("2h", 7200), ("5", None), ("", None), ("-1s", None)],
)
def test_times(text: str, seconds: float | None) -> None:
    assert parse_seconds(text) == seconds


def test_what_is_not_kept_is_deleted_with_its_folder(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    for name in ("rank0.json", "rank1.json"):
        (old / name).write_text("{}")
    _delete([str(old / "rank0.json"), str(old / "rank1.json")])
    assert os.listdir(tmp_path) == []


@pytest.mark.long
async def test_the_tool_lists_and_records_nothing(start_job: StartJob, folder: str) -> None:
    process = start_job()
    said = await McpSession(["."]).ask("attach", max_tokens=8000)
    assert str(process.pid) in json.dumps(said)
    assert "dynolog" not in os.listdir(folder)
