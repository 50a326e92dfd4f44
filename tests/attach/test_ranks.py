"""A real job: two ranks of DDP over gloo in torch, recorded here and over ssh, together and one by one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attach.conftest import wait_for
from tests.helpers import sshd
from tests.helpers.later_imports import skip_without
from torchprof_attach import session as module
from torchprof_attach.session import Session, Wish
from torchprof_tui.cli import main
from torchprof_tui.trace.sources.ssh_connections import SshConnections

skip_without("torch")
pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.xdist_group("attach ranks")]

PROGRAM = """
import sys, time, torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=int(sys.argv[2]), world_size=2)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(32, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs, end = torch.ones(8, 32), torch.zeros(1)
began = time.time()
while not end:
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()
    time.sleep(0.01)
    end[0] = time.time() - began > 120
    dist.all_reduce(end)
    open(sys.argv[1] + sys.argv[2], "w").close()
"""

POLL = 1
"""Seconds after which the profilers ask; Kineto's default is 5."""


@pytest.fixture(scope="module")
def pids() -> Iterator[list[int]]:
    """The two ranks of a job, started as torchrun would, whose profilers ask often."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="tt") as folder:
        Path(folder, "train.py").write_text(PROGRAM)
        Path(folder, "kineto.conf").write_text(f"ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS={POLL}\n")
        shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517", "KINETO_LOG_LEVEL": "99"}
        shared |= {"KINETO_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": folder, "KINETO_CONFIG": f"{folder}/kineto.conf"}
        ranks = [
            subprocess.Popen(
                [sys.executable, f"{folder}/train.py", f"{folder}/meeting", str(rank)],
                env={**os.environ, **shared, "RANK": str(rank)},
            )
            for rank in (0, 1)
        ]
        wait_for(lambda: sum(name.startswith("dynoconfigclient") for name in os.listdir(folder)) == 2)
        wait_for(lambda: {"meeting0", "meeting1"} <= set(os.listdir(folder)))  # both are in their loops
        yield [rank.pid for rank in ranks]
        for rank in ranks:
            rank.kill()
            rank.wait()


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOGETHER_SECONDS", POLL * 5.0)
    monkeypatch.setattr(module, "POLL_SECONDS", float(POLL))


def find_collectives(trace: dict[str, object]) -> int:
    events = trace["traceEvents"]
    assert isinstance(events, list)
    return sum("gloo:all_reduce" in event["name"] for event in events)


def test_all_ranks_begin_at_the_same_iteration(
    pids: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command; its traces open as one view, in which the collectives of both ranks are matched."""
    folder = tmp_path / "both"
    assert main(["attach", *map(str, pids), "--steps", "5", "-o", str(folder), "--json"]) == 0
    out, said = capsys.readouterr()
    answer = json.loads(out)
    assert answer["same_iterations"] is True, said
    recordings = answer["recordings"]
    assert [(each["rank"], each["way"], each["problem"]) for each in recordings] == [
        (0, "kineto", ""),
        (1, "kineto", ""),
    ]
    # all-reduces end at the same time in both ranks: an iteration is 10 ms at least, the clock is the same
    assert abs(recordings[0]["begin_ns"] - recordings[1]["begin_ns"]) < 10_000_000
    assert all(4 <= each["iterations"] <= 6 for each in recordings)
    assert sorted(os.listdir(folder)) == ["rank0.json", "rank1.json"]
    traces = [json.loads((folder / name).read_text()) for name in sorted(os.listdir(folder))]
    assert [trace["distributedInfo"]["rank"] for trace in traces] == [0, 1]
    assert all(find_collectives(trace) >= 5 for trace in traces)
    assert main(["info", str(folder), "--json"]) == 0
    info = json.loads(capsys.readouterr().out)
    assert info["world_size"] == 2
    assert info["events"] > sum(len(trace["traceEvents"]) for trace in traces) // 4


def test_options_that_kineto_ignores_are_told(pids: list[int], tmp_path: Path) -> None:
    with Session() as session:
        session.connect()
        job = next(job for job in session.list_jobs() if job.pid == pids[0])
        wish = Wish(steps=3, options=("shapes", "memory", "stacks"))
        (done,) = session.record([job], wish, tmp_path / "t.json")
        assert done.notes == ("asked for, and not in the trace: memory (this way does not take it)",)
        again = next(each for each in session.list_jobs() if each.pid == pids[0])
        assert again.step_seconds == pytest.approx(0.015, abs=0.2)
    names = {event["name"] for event in json.loads((tmp_path / "t.json").read_text())["traceEvents"]}
    assert any("train.py" in name for name in names)


@pytest.mark.skipif(not (sshd.SSHD and sshd.SSH), reason="needs OpenSSH's server and client")
def test_a_rank_of_another_host_is_recorded_over_ssh(
    pids: list[int], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with (
        sshd.running(tmp_path_factory.mktemp("sshd")),
        SshConnections() as connections,
        Session(["home", "refusing"]) as session,  # `home` prints a greeting first
    ):
        session.connect(connections)
        assert list(session.hosts) == ["home"]
        assert "refused the connection" in session.problems["refusing"]
        job = next(job for job in session.list_jobs() if job.pid == pids[1])
        assert (job.host, job.rank, job.way) == ("home", 1, "kineto")
        (done,) = session.record([job], Wish(steps=3), tmp_path / "far.json")
        assert done.problem == ""
    document = json.loads((tmp_path / "far.json").read_text())
    assert document["torchprof_attach"]["pid"] == pids[1]
    assert (tmp_path / "far.json").stat().st_mode & 0o777 == 0o600


def test_a_job_that_was_recorded_goes_on(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat") as file:
            before = file.read().rpartition(")")[2].split()[11]
        time.sleep(0.3)
        with open(f"/proc/{pid}/stat") as file:
            assert int(file.read().rpartition(")")[2].split()[11]) >= int(before)
