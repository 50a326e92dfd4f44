"""Recording programs that ask as Kineto does, and everything that must not happen to them."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attach.conftest import StartJob, find_job, read_said, wait_for
from torchprof_attach.host import agent
from torchprof_attach.hosts import Host
from torchprof_attach.session import EMPTY, ENDS, REPEATED_WINDOW, STAYS, Job, Session, Wish, _Pace, name_output


def test_a_program_is_listed_with_its_rank_and_way(session: Session, start_job: StartJob) -> None:
    process = start_job(RANK="3", WORLD_SIZE="8", MASTER_ADDR="10.0.0.1", MASTER_PORT="29500", SECRET="hunter2")
    job = find_job(session, process)
    assert (job.rank, job.world_size, job.group, job.way) == (3, 8, "10.0.0.1:29500", "kineto")
    assert job.program == "fake_kineto"
    assert not job.launcher
    assert "hunter2" not in repr(job)


def test_a_trace_is_private_and_says_where_it_comes_from(
    session: Session, start_job: StartJob, folder: str, tmp_path: Path
) -> None:
    process = start_job(RANK="1", WORLD_SIZE="2", MASTER_PORT="1")
    (done,) = session.record([find_job(session, process)], Wish(steps=3), tmp_path / "new" / "t.json")
    assert (done.problem, done.way) == ("", "kineto")
    path = Path(done.paths[0])
    assert path == tmp_path / "new" / "t.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    document = json.loads(path.read_text())
    assert document["torchprof_attach"]["pid"] == process.pid
    assert document["torchprof_attach"]["rank"] == 1
    wait_for(lambda: os.listdir(path.parent) == ["t.json"])
    assert "ACTIVITIES_ITERATIONS=3;" in read_said(folder)[1]


@pytest.mark.parametrize("count", [12, pytest.param(200, marks=pytest.mark.long)])
def test_many_triggers_leave_nothing_behind(session: Session, start_job: StartJob, tmp_path: Path, count: int) -> None:
    process = start_job()
    job = find_job(session, process)
    descriptors = len(os.listdir(f"/proc/{process.pid}/fd"))
    threads = threading.active_count()
    for number in range(count):
        (done,) = session.record([job], Wish(), tmp_path / "t.json")
        assert done.problem == "", number
    assert process.poll() is None
    assert len(os.listdir(f"/proc/{process.pid}/fd")) == descriptors
    assert threading.active_count() <= threads + 1
    wait_for(lambda: os.listdir(tmp_path) == ["t.json"])  # the agent deletes its folders on its own thread


def test_a_trigger_during_a_trigger_is_refused(
    session: Session, start_job: StartJob, folder: str, tmp_path: Path
) -> None:
    process = start_job("slow")
    job = find_job(session, process)
    first = threading.Thread(target=session.record, args=([job], Wish(timeout=60), tmp_path / "a.json"))
    first.start()
    wait_for(lambda: len(read_said(folder)) > 1)  # it has the request
    assert find_job(session, process).state == "kineto"
    (second,) = session.record([job], Wish(), tmp_path / "b.json")
    assert second.problem == "it is being recorded; this request was left out"
    session.cancel()
    first.join(10)
    assert not first.is_alive()
    (third,) = session.record([job], Wish(), tmp_path / "c.json")
    assert third.problem == "it was asked before and has not begun: no iteration ended since, the job may hang"


def test_it_is_told_once_that_cupti_stays_loaded(session: Session, start_job: StartJob, tmp_path: Path) -> None:
    job = find_job(session, start_job())
    notes = [session.record([job], Wish(), tmp_path / f"{each}.json")[0].notes for each in range(2)]
    assert notes == [(f"{STAYS} (started with TEARDOWN_CUPTI=1 they are not)",), ()]


def test_a_job_that_another_recording_would_end_is_not_recorded_again(
    session: Session, start_job: StartJob, tmp_path: Path, trace: Path
) -> None:
    """With TEARDOWN_CUPTI=1 and CUDA graphs the second recording of a job on an H100 ended it (CUDA 13.0)."""
    graphs = tmp_path / "graphs.json"
    graphs.write_bytes(trace.read_bytes().replace(b"cudaLaunchKernel", b"cudaGraphLaunch", 1))
    first, second = (
        start_job(recorded=graphs),
        start_job(recorded=graphs, TEARDOWN_CUPTI="1"),
    )
    (done,) = session.record([find_job(session, first)], Wish(), tmp_path / "a.json")
    assert done.notes == (STAYS,)
    job = find_job(session, second)
    (done,) = session.record([job], Wish(), tmp_path / "b.json")
    assert done.notes == (ENDS,)
    (again,) = session.record([job], Wish(), tmp_path / "c.json")
    assert again.problem == "it replays CUDA graphs and has TEARDOWN_CUPTI=1: a second recording ends such a job"
    assert second.poll() is None


def test_a_job_that_counts_no_iterations_is_given_up(session: Session, start_job: StartJob, tmp_path: Path) -> None:
    (done,) = session.record([find_job(session, start_job("slow"))], Wish(timeout=1), tmp_path / "t.json")
    assert done.problem == "asked, and no trace came for 1 s: no iteration has ended, the job may hang"
    assert os.listdir(tmp_path) == []


def test_a_job_that_exits_meanwhile_is_told(session: Session, start_job: StartJob, tmp_path: Path) -> None:
    process = start_job("exit")
    (done,) = session.record([find_job(session, process)], Wish(), tmp_path / "t.json")
    assert done.problem == "the process has ended before it was recorded"
    assert process.wait(10) == 0


def test_a_full_disk_is_told_and_the_job_goes_on(
    session: Session, start_job: StartJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = start_job("full")
    job = find_job(session, process)
    monkeypatch.setattr(agent, "STALLED_SECONDS", 0.2)
    monkeypatch.setattr(agent.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 0}))
    (done,) = session.record([job], Wish(), tmp_path / "t.json")
    assert done.problem == f"the disk of {tmp_path} is full: the trace was not written, and the job goes on"
    assert process.poll() is None
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_written_to_is_told_before_the_job_is_asked(
    session: Session, start_job: StartJob, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = find_job(session, start_job())
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    with pytest.raises(PermissionError):
        session.record([job], Wish(), tmp_path / "trace.json")
    assert read_said(folder) == ["ready"]


def test_a_session_that_ends_leaves_no_socket_and_the_job_runs(
    start_job: StartJob, folder: str, tmp_path: Path
) -> None:
    process = start_job()
    with Session() as session:
        session.connect()
        session.record([find_job(session, process)], Wish(), tmp_path / "t.json")
        assert os.path.exists(f"{folder}/dynolog")
    wait_for(lambda: not os.path.exists(f"{folder}/dynolog"))
    assert process.poll() is None
    with Session() as session:
        session.connect()
        (done,) = session.record([find_job(session, process)], Wish(), tmp_path / "again.json")
        assert done.problem == ""


def test_an_agent_ignores_what_is_no_request() -> None:
    events: list[dict[str, object]] = []
    host = Host("localhost", lambda host, event: events.append(event)).start_local()
    host.ask(do="nothing")
    host.ask(do="record", id="r1")
    host.ask(do="record", id="r2", pid=1, start=0)
    host.ask(do="forget", path="/etc/passwd")
    wait_for(lambda: len(events) >= 3)
    host.close()
    assert [event.get("id") for event in events[:3]] == ["r1", "r2", None]
    assert events[2]["reason"] == "/etc/passwd: not a file of a recording"
    assert os.path.exists("/etc/passwd")


def test_an_empty_window_is_asked_again_by_iterations(
    session: Session, start_job: StartJob, folder: str, tmp_path: Path, trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty.json"
    empty.write_text('{"schemaVersion": 1, "traceEvents": [], "traceName": "x"}')
    job = find_job(session, start_job())
    scan = agent.scan
    contents = [scan(str(empty)), scan(str(trace))]
    monkeypatch.setattr(agent, "scan", lambda path: contents.pop(0))
    said: list[str] = []
    (done,) = session.record([job], Wish(window_ms=300), tmp_path / "t.json", said.append)
    assert done.notes[0] == REPEATED_WINDOW
    assert len(done.paths) == 1
    assert any(REPEATED_WINDOW in line for line in said)
    asked = read_said(folder)
    assert "ACTIVITIES_DURATION_MSECS=300" in asked[1]
    assert "ACTIVITIES_ITERATIONS=5" in asked[2]


def test_a_trace_without_work_says_so(
    session: Session, start_job: StartJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = find_job(session, start_job())
    empty = tmp_path / "empty.json"
    empty.write_text('{"traceEvents": [], "traceName": "x"}')
    content = agent.scan(str(empty))
    monkeypatch.setattr(agent, "scan", lambda path: content)
    (done,) = session.record([job], Wish(), tmp_path / "t.json")
    assert done.notes == (EMPTY,)


@pytest.mark.parametrize(("seconds", "multiple"), [(0.003, 4000), (0.25, 48), (5.0, 3), (60.0, 1)])
def test_a_multiple_takes_longer_than_all_ranks_need_to_ask(seconds: float, multiple: int) -> None:
    assert _Pace(seconds).choose_multiple() == multiple


def test_ranks_are_asked_right_after_a_multiple() -> None:
    now = time.time()
    pace = _Pace(0.01, 1200, now - 10.0)  # the next multiple comes in 2 s: less than the 5 s in which all ask
    assert pace.find_start(1200) == pytest.approx(now + 2.0, abs=0.1)
    assert _Pace(0.01, 1200, now - 1.0).find_start(1200) == 0.0
    assert _Pace(0.01, 1200, now - 10.0).find_start(600) == 0.0


def test_a_new_name_has_program_time_and_rank(session: Session, start_job: StartJob) -> None:
    job = find_job(session, start_job(RANK="5", MASTER_PORT="1"))
    assert name_output([job], Path("attached")).match("attached/fake_kineto-*-rank5.json")
    assert name_output([job, job], Path("attached")).match("attached/fake_kineto-*")


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("python train.py --lr 1", "train"),
        ("python -m train", "train"),
        ("python /x/torchprof_runs/harness.py --nproc 2 my/train.py", "train"),
        ("python /x/torchprof_runs/harness.py train_gpt", "harness"),
    ],
)
def test_a_program_is_named_by_its_script(command: str, program: str) -> None:
    assert Job("a", 1, 1, command=command).program == program


def test_every_keeps_the_last_traces_until_the_job_ends(start_job: StartJob, folder: str, tmp_path: Path) -> None:
    process = start_job()
    words = [str(process.pid), "--every", "0.2s", "--keep", "2", "-o", str(tmp_path / "t.json")]
    with start_attach(folder, words) as attach:
        wait_for(lambda: (tmp_path / "t-0004.json").exists())
        process.kill()
        process.wait()
        told = attach.communicate(timeout=60)[1].decode()
    assert told.endswith("the job has ended\n"), told
    names = sorted(os.listdir(tmp_path))
    assert len(names) == 2
    assert names[0] > "t-0002.json"
    assert all(json.loads((tmp_path / name).read_text())["torchprof_attach"]["pid"] == process.pid for name in names)


def test_a_job_outlives_an_attach_that_is_killed(
    start_job: StartJob, folder: str, tmp_path: Path, session: Session
) -> None:
    process = start_job("slow")
    with start_attach(folder, [str(process.pid), "-o", str(tmp_path / "t.json")]) as attach:
        wait_for(lambda: len(read_said(folder)) > 1)  # it has the request
        attach.kill()
    assert process.poll() is None
    second = start_job()
    (done,) = session.record([find_job(session, second)], Wish(), tmp_path / "again.json")
    assert done.problem == ""
    assert (process.poll(), second.poll()) == (None, None)


@contextlib.contextmanager
def start_attach(folder: str, words: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start the command beside the fake jobs of a folder. Kills it in the end."""
    environment = {**os.environ, "KINETO_IPC_SOCKET_DIR": folder}
    command = [sys.executable, "-m", "torchprof_tui", "attach", *words]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
