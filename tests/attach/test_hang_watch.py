"""Watching jobs for hangs: what counts as progress, what is taken of a job, and that the job does not notice."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.attach.conftest import wait_for
from tests.attach.test_ways import make_process
from tests.helpers import desync, sshd
from tests.helpers.command_line import read_error_line
from tests.helpers.later_imports import skip_without
from tests.helpers.paths import ROOT
from torchprof_attach.command import AttachOptions
from torchprof_attach.command.main import choose_watched
from torchprof_attach.hang_watch import HangWatch, choose_ranks
from torchprof_attach.host import hang_dump
from torchprof_attach.host.hang_dump import NothingTakenError, ProgressReader, take_dump
from torchprof_attach.host.processes import Process
from torchprof_attach.session import Job, Recorded, Session
from torchprof_tui.cli import main
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.trace.sources.ssh_connections import SshConnections

PY_SPY = shutil.which("py-spy", path=os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"])))
SECOND = 1_000_000_000


# -- progress ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uses_gpu", "activity", "moved"),
    [
        (False, (0, 0), False),  # asleep in a collective of gloo
        (False, (100_000, 2), False),  # a loop that polls
        (False, (SECOND, 0), True),  # computes
        (True, (SECOND, 0), False),  # spins in a synchronisation with the GPU
        (True, (SECOND, 5), True),
        (True, (100_000, 5), False),
    ],
)
def test_a_main_thread_makes_progress(
    monkeypatch: pytest.MonkeyPatch, uses_gpu: bool, activity: tuple[int, int], moved: bool
) -> None:
    now = [100.0]
    answers = [(5 * SECOND, 70), (5 * SECOND + activity[0], 70 + activity[1])]
    monkeypatch.setattr(hang_dump, "read_activity", lambda pid: answers.pop(0))
    monkeypatch.setattr("torchprof_attach.host.hang_dump.time.monotonic", lambda: now[0])
    reader, process = ProgressReader(lambda: ""), make_process("python", "train.py")
    assert reader.read(process, uses_gpu)["still_seconds"] == 0
    now[0] += 2.0
    found = reader.read(process, uses_gpu)
    assert found["still_seconds"] == (0.0 if moved else 2.0)
    assert found["evidence"] == "its main thread has only waited"


def test_the_counters_of_the_kernel_are_those_of_the_main_thread() -> None:
    before = hang_dump.read_activity(os.getpid())
    until = time.thread_time_ns() + 20_000_000
    while time.thread_time_ns() < until:
        pass
    time.sleep(0.001)
    after = hang_dump.read_activity(os.getpid())
    assert after[0] - before[0] >= 15_000_000
    assert after[1] > before[1]


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The private folder of the user, with a pipe of a recorder in this process; nothing reads it yet."""
    folder = tmp_path / "scratch"
    folder.mkdir(0o700)
    monkeypatch.setattr(hang_dump, "scratch_folder", lambda: str(folder))
    process = make_process("python")
    os.mkfifo(folder / f"{process.pid}-{process.start}.pipe", 0o600)
    return folder


@pytest.fixture
def answer(tmp_path: Path) -> Callable[[Path, Callable[[str], None]], None]:
    """Answer what is written to a pipe, as torch and the recorder do: on a thread, until the test ends."""

    def start(pipe: Path, reply: Callable[[str], None]) -> None:
        descriptor = os.open(pipe, os.O_RDWR)

        def read() -> None:
            while True:
                reply(os.read(descriptor, 4096).decode())

        threading.Thread(target=read, daemon=True).start()

    return start


def test_steps_that_the_recorder_counts_are_better_evidence(
    scratch: Path, tmp_path: Path, answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, asked = make_process("python", "train.py"), list[dict[str, Any]]()
    told = {"steps": 0, "seconds_since_step": 90.0}

    def reply(line: str) -> None:
        request = json.loads(line)
        path = Path(request["folder"]) / "stacks_rank_0.json"
        path.with_suffix(".part").write_text(json.dumps({**told, "time_ns": time.time_ns()}))
        path.with_suffix(".part").rename(path)
        asked.append(request)

    answer(next(scratch.iterdir()), reply)
    folder = tmp_path / "asked"
    folder.mkdir()
    reader = ProgressReader(lambda: str(folder))
    for steps, evidence in ((0, "its main thread has only waited"), (7, "no step ended")):
        told["steps"] = steps
        for _ in range(2):  # an answer is read when the next question is asked
            found = reader.read(process, False)
            wait_for(lambda: (folder / "stacks_rank_0.json").exists())
        found = reader.read(process, False)
        assert found["evidence"] == evidence
        wait_for(lambda: (folder / "stacks_rank_0.json").exists())
    assert 90 <= found["still_seconds"] < 200
    assert not any(request["recorder"] for request in asked)  # the flight recorder takes longer to write


# -- dumps -------------------------------------------------------------------------------------------------------------


def test_torch_is_asked_by_its_pipe_for_the_dump_that_it_writes_then(
    tmp_path: Path, answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hang_dump, "find_py_spy", lambda process: "")
    process = make_process(
        "python",
        RANK="3",
        TORCH_NCCL_DEBUG_INFO_PIPE_FILE=f"{tmp_path}/pipe_",
        TORCH_NCCL_DEBUG_INFO_TEMP_FILE=f"{tmp_path}/dump_",
    )
    folder = tmp_path / "out"
    folder.mkdir()
    (tmp_path / "dump_3").write_bytes(b"of yesterday")
    (tmp_path / "pipe_3.pipe").write_bytes(b"")  # no pipe: not written to
    with pytest.raises(NothingTakenError, match="torch made no pipe"):
        take_dump(process, str(folder), lambda: False)
    (tmp_path / "pipe_3.pipe").unlink()
    os.mkfifo(tmp_path / "pipe_3.pipe")
    with pytest.raises(NothingTakenError, match="No such device or address"):  # nobody reads it
        take_dump(process, str(folder), lambda: False)
    said: list[str] = []

    def reply(text: str) -> None:
        said.append(text)
        if len(said) > 1:
            (tmp_path / "dump_3").write_bytes(b"of today")

    answer(tmp_path / "pipe_3.pipe", reply)
    monkeypatch.setattr(hang_dump, "TORCH_SECONDS", 0.2)
    with pytest.raises(NothingTakenError, match=r"did not answer for 0 s; py-spy is not installed"):
        take_dump(process, str(folder), lambda: False)
    monkeypatch.setattr(hang_dump, "TORCH_SECONDS", 30.0)
    files, notes = take_dump(process, str(folder), lambda: False)
    assert [Path(path).name for path in files] == ["nccl_trace_rank_3"]
    assert Path(files[0]).read_bytes() == b"of today"
    assert said == ["1\n", "1\n"]
    assert "py-spy is not installed" in notes  # a dump without stacks


def write_py_spy(folder: Path, text: str) -> None:
    (folder / "py-spy").write_text(f"#!/bin/sh\n{text}\n")
    (folder / "py-spy").chmod(0o755)


def test_py_spy_is_tried_again_and_its_reason_told(tmp_path: Path) -> None:
    process = make_process(f"{tmp_path}/python", "train.py", RANK="2", PATH="relative:/none")
    folder = tmp_path / "out"
    folder.mkdir()
    write_py_spy(tmp_path, "echo Process 1; echo Permission Denied >&2; exit 1")
    with pytest.raises(NothingTakenError, match="py-spy: Permission Denied"):
        take_dump(process, str(folder), lambda: False)
    write_py_spy(tmp_path, f'echo x >> {tmp_path}/tries; [ $(wc -l < {tmp_path}/tries) = 3 ] && echo "$@"')
    files, notes = take_dump(process, str(folder), lambda: False)
    assert ([Path(path).name for path in files], notes) == (["py_spy_stacks_rank_2.txt"], [])
    words = Path(files[0]).read_text().split()
    assert words == ["dump", "--nonblocking", "--full-filenames", "--pid", str(process.pid)]


def test_a_process_that_cannot_be_reached_is_not_touched(tmp_path: Path) -> None:
    process: Process = make_process("python")._replace(problem="it has a network of its own")
    with pytest.raises(NothingTakenError, match="a network of its own"):
        take_dump(process, str(tmp_path), lambda: False)


# -- when --------------------------------------------------------------------------------------------------------------

RANKS = [Job("a", 10 + rank, 1, rank, 4, "a:1", "python train.py") for rank in (0, 1)]


class FakeSession:
    """A session whose `progress` is what it tells next; dumps write nothing where `is_empty`."""

    def __init__(self, *progress: dict[int, float], is_empty: bool = False) -> None:
        self.progress, self.is_empty = list(progress), is_empty
        self.dumped = list[int]()

    def read_progress(self, jobs: Any) -> dict[tuple[str, int, int], tuple[float, str]]:
        return {("a", pid, 1): (seconds, "no step ended") for pid, seconds in self.progress.pop(0).items()}

    def dump(self, job: Job, folder: Path) -> Recorded:
        self.dumped.append(job.pid)
        folder.mkdir(parents=True, exist_ok=True)
        if self.is_empty:
            return Recorded(job, problem="there is no way")
        path = folder / f"rank{job.pid - 10}.txt"
        path.write_text('Thread 1 (idle): "MainThread"\n    step (train.py:1)\n')
        return Recorded(job, "dump", (str(path),), notes=("no stacks",) if job.rank else ())


def test_a_job_is_dumped_once_until_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchprof_attach.hang_watch.MAX_POLL_SECONDS", 0.001)
    session: Any = FakeSession({10: 9, 11: 0}, {10: 31, 11: 0}, {10: 40}, {10: 1, 11: 2}, {10: 0, 11: 30}, {})
    said: list[str] = []
    watch = HangWatch(session, 30, tmp_path, said.append)
    found = list(watch.watch(lambda: RANKS, threading.Event()))
    assert session.dumped == [10, 11, 10, 11]
    assert found[0].folder != found[1].folder
    assert [each.evidence for each in found] == [f"a rank {rank}: no step ended for {31 - rank} s" for rank in (0, 1)]
    assert said[0] == "a rank 0: no step ended for 31 s: taking what 2 ranks of train wait for"
    assert found[0].line == f"{found[0].sentence}: torchprof-tui hang {found[0].folder}"
    assert "train.py:1" in found[0].sentence
    assert found[0].problems == [
        "a rank 1: stacks are missing: no stacks",
        "2 of 4 ranks run on the hosts that were named",
    ]


def test_a_job_of_which_nothing_can_be_taken_leaves_no_folder(tmp_path: Path) -> None:
    session: Any = FakeSession(is_empty=True)
    dumped = HangWatch(session, 30, tmp_path).dump(RANKS, "asked")
    assert (dumped.has_files, dumped.command, dumped.line) == (False, "", "nothing could be taken")
    assert dumped.problems[0] == "a rank 0: there is no way"
    assert not list(tmp_path.iterdir())


def test_what_is_watched_is_all_ranks_of_a_job() -> None:
    launcher = Job("a", 9, 1, job="pid 9", command="torchrun t.py", launcher=True)
    alone = Job("a", 20, 1, job="pid 20", command="python notebook.py")
    jobs = [launcher, *RANKS, alone]
    assert choose_ranks(jobs) == RANKS
    assert choose_watched(jobs, AttachOptions(target=("11",))) == RANKS
    assert choose_watched(jobs, AttachOptions(all=True)) == RANKS
    assert choose_watched(jobs, AttachOptions(target=("20",))) == [alone]
    with pytest.raises(UsageError, match="no process of yours is a rank"):
        choose_watched([alone], AttachOptions(all=True))


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--watch-hang", "0", "1"], "is not a number of seconds from 1 to 86400"),
        (["--watch-hang", "5", "--list"], "--list only prints"),
        (["--watch-hang", "5", "1"], "1: no such process of yours"),
    ],
)
def test_what_makes_no_sense_is_refused(words: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert line in read_error_line(capsys, "attach", *words)


# -- real jobs ---------------------------------------------------------------------------------------------------------


def read_first_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(["hang", str(folder)]) == 0
    return capsys.readouterr().out.splitlines()[0]


@pytest.mark.long  # each push: its parts above, and a live job that hangs in tests/hang/test_faults.py
@pytest.mark.slow
def test_a_job_with_a_recorder_that_hangs_is_dumped_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    skip_without("torch")
    out = tmp_path / "out"
    with desync.running(tmp_path, "install") as ranks:
        command = [sys.executable, "-m", "torchprof_tui", "attach", str(ranks[1].pid)]
        command += ["--watch-hang", "5", "-o", str(out), "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT / "tui") as attach:
            try:
                desync.wait_for_steps(tmp_path, desync.read_steps(tmp_path) + 250)
                assert not out.exists()  # it makes progress
                desync.hang(tmp_path)
                wait_for(lambda: len(list(out.glob("*/*_rank_*"))) == 4)
                assert [process.poll() for process in ranks] == [None, None]
            finally:
                for process in ranks:
                    process.kill()  # the watch ends with the job
            assert attach.stdout is not None
            (hang,) = json.loads(attach.stdout.read())["hangs"]
        assert attach.returncode == 0
    line = read_first_line(Path(hang["folder"]), capsys)
    assert line == hang["sentence"]
    assert line.startswith(
        f"rank 1 called barrier at desync.py:{desync.find_line('called instead')} "
        f"where rank 0 called all_reduce [64] at desync.py:{desync.find_line('skipped')}"
    )
    assert hang["evidence"].startswith("rank ")
    assert "no step ended for" in hang["evidence"]
    assert hang["problems"] == []


@pytest.fixture
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sshd.Sshd]:
    if not (sshd.SSHD and sshd.SSH):
        pytest.skip("needs OpenSSH's server and client")
    with sshd.running(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.mark.long
@pytest.mark.slow
def test_a_job_without_a_recorder_is_dumped_over_ssh_and_goes_on(
    box: sshd.Sshd, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rank that is stopped holds up the others; py-spy says where; all go on when it does."""
    skip_without("torch")
    if PY_SPY is None:
        pytest.skip("needs py-spy")
    path = f"{os.path.dirname(PY_SPY)}{os.pathsep}{os.environ['PATH']}"
    with desync.running(tmp_path, PATH=path) as ranks, SshConnections() as connections, Session(["box"]) as session:
        if subprocess.run([PY_SPY, "dump", "--pid", str(ranks[0].pid)], capture_output=True).returncode:
            pytest.skip("py-spy may not read processes here")
        session.connect(connections)
        assert not session.problems
        jobs = [job for job in session.list_jobs() if job.pid in {process.pid for process in ranks}]
        stop, found = threading.Event(), list[Any]()
        watch = HangWatch(session, 5, tmp_path / "out")
        thread = threading.Thread(target=lambda: found.extend(watch.watch(lambda: jobs, stop)), daemon=True)
        thread.start()
        desync.wait_for_steps(tmp_path, desync.read_steps(tmp_path) + 250)
        assert not found
        ranks[1].send_signal(signal.SIGSTOP)
        wait_for(lambda: bool(list(tmp_path.glob("out/*/*_rank_1.txt"))))
        ranks[1].send_signal(signal.SIGCONT)
        desync.wait_for_steps(tmp_path, desync.read_steps(tmp_path) + 10)
        assert [process.poll() for process in ranks] == [None, None]
        stop.set()
        thread.join(60)
    assert "its main thread has only waited" in found[0].evidence
    files = sorted(file.name for file in found[0].folder.iterdir())
    assert files == ["py_spy_stacks_rank_0.txt", "py_spy_stacks_rank_1.txt"]
    assert "desync.py:" in read_first_line(found[0].folder, capsys)
