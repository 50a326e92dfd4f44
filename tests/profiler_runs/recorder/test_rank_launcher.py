"""Record several ranks: each has a trace of its own, all in one folder, also if a rank fails."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.later_imports import skip_without
from tests.profiler_runs.conftest import HARNESS, Start
from torchprof_runs.recorder import rank_environment as ranks
from torchprof_runs.recorder import rank_launcher
from torchprof_runs.recorder.options import UsageError, parse_options
from torchprof_runs.recorder.status_messages import STATUS_VARIABLE, Reporter

DDP = """
import os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(sys.argv[1])):
    if step == 6 and rank == 1: {mishap}
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    print("rank", rank, "step", step, flush=True)
dist.destroy_process_group()
"""


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def rank_environment(rank: int, size: int, port: str) -> dict[str, str]:
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    return {**{key: str(value) for key, value in numbers.items()}, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}


def events(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path) as file:
        entries: list[dict[str, Any]] = json.load(file)["traceEvents"]
    return entries


def test_ranks_that_another_launcher_started_share_one_folder(start: Start, tmp_path: Path) -> None:
    """As under torchrun without `rank_launcher`: only the environment shows that they are one launch."""
    port, folder = free_port(), tmp_path / "runs"
    runs = [
        start(DDP.format(mishap="pass"), args=("12",), env=rank_environment(rank, 2, port), runs=folder)
        for rank in range(2)
    ]
    assert [run.wait() for run in runs] == [0, 0], runs[0].err + runs[1].err
    (run_folder,) = folder.iterdir()
    assert {path.name for path in run_folder.iterdir()} == {
        ".launch", "log.txt",
        *(f"{kind}.rank{rank}.{suffix}" for rank in range(2) for kind, suffix in (
            ("manifest", "json"), ("table", "txt"), ("key_averages", "json"), ("script", "pt.trace.json.gz"))),
    }  # fmt: skip
    for rank, run in enumerate(runs):
        facts = json.loads((run_folder / f"manifest.rank{rank}.json").read_text())
        assert (facts["rank"], facts["world_size"], facts["ended"]) == (rank, 2, "stopped")
        assert run.statuses[-1]["rank"] == rank
        assert f"torchprof[rank {rank}]: kept steps 3 to 5" in run.err


RANK = """
import json, os, signal, sys, time
rank, folder = os.environ["RANK"], sys.argv[1]
def write(state, *kept):
    with open(f"{folder}/manifest.rank{rank}.json", "w") as file:
        json.dump({"rank": int(rank), "world_size": 2, "state": state, "kept": kept}, file)
def save(*_):
    write("ended", {"trace": "a.json"})
    sys.exit(1)
signal.signal(signal.SIGTERM, save)
write("running")
print(json.dumps({"phase": "recording", "rank": int(rank)}), file=os.fdopen(int(os.environ["TORCHPROF_STATUS"]), "w"))
if rank == "1":
    while not os.path.exists(f"{folder}/ready"):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
open(f"{folder}/ready", "w").close()
signal.pause()
"""


def test_the_first_rank_to_die_ends_the_others_which_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small programs as the ranks; `test_a_rank_that_dies_does_not_lose_the_others` has torch's in the long run."""
    monkeypatch.setattr(rank_launcher, "FAILURE_GRACE_SECONDS", 0.1)
    read_fd, write_fd = os.pipe()  # the channel is an inherited descriptor, which every rank must get
    monkeypatch.setenv(STATUS_VARIABLE, str(write_fd))
    reporter = Reporter(None, str(write_fd))
    launcher = rank_launcher._RankLauncher(parse_options(["--nproc", "2", "train.py"]), str(tmp_path), reporter)
    (tmp_path / "rank.py").write_text(RANK)
    command = [sys.executable, "-S", str(tmp_path / "rank.py"), str(tmp_path)]
    handlers = [signal.getsignal(signum) for signum in rank_launcher._FORWARDED_SIGNALS]
    try:
        status = launcher.run([(command, {"RANK": str(rank)}) for rank in range(2)])
    finally:
        for signum, handler in zip(rank_launcher._FORWARDED_SIGNALS, handlers, strict=True):
            signal.signal(signum, handler)
    assert status == 128 + signal.SIGKILL
    for descriptor in {write_fd, reporter.channel} - {None}:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    with open(read_fd, encoding="utf-8") as channel:
        messages = [json.loads(line) for line in channel]
    phases = {(message["rank"], message["phase"]) for message in messages if "phase" in message}
    assert phases >= {(0, "recording"), (1, "recording")}
    facts = json.loads((tmp_path / "manifest.json").read_text())
    assert (facts["state"], facts["exit_status"], facts["world_size"]) == ("ended", 137, 2)
    assert [entry["rank"] for entry in facts["ranks"]] == [0, 1]
    assert [entry["kept"] for entry in facts["ranks"]] == [[{"trace": "a.json"}], []]
    assert "rank 1 ended first, by SIGKILL" in (tmp_path / "log.txt").read_text()


@pytest.mark.long
@pytest.mark.slow
def test_a_rank_that_dies_does_not_lose_the_others(tmp_path: Path) -> None:
    skip_without("torch")
    (tmp_path / "train.py").write_text(DDP.format(mishap="os.kill(os.getpid(), 9)"))
    options = ("--wait", "0", "--warmup", "0", "--active", "1000", "--no-table")
    read_fd, write_fd = os.pipe()  # the channel is an inherited descriptor, which every rank must get
    process = subprocess.run(
        [sys.executable, str(HARNESS), "--nproc", "2", *options, "train.py", "1000"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TORCHPROF_STATUS": str(write_fd)},
        pass_fds=[write_fd],
    )
    os.close(write_fd)
    with open(read_fd, encoding="utf-8") as channel:
        messages = [json.loads(line) for line in channel]
    assert process.returncode == 128 + signal.SIGKILL, process.stderr
    (run_folder,) = (tmp_path / "torchprof_runs").iterdir()
    facts = json.loads((run_folder / "manifest.json").read_text())
    assert (facts["state"], facts["exit_status"], facts["world_size"]) == ("ended", 137, 2)
    assert [entry["rank"] for entry in facts["ranks"]] == [0, 1]
    survivor, dead = facts["ranks"]
    assert survivor["ended"] in ("exception", "SIGTERM")
    assert dead["kept"] == []
    (kept,) = survivor["kept"]
    assert kept["partial"]
    names = [event["name"] for event in events(run_folder / kept["trace"])]
    assert {f"ProfilerStep#{step}" for step in range(6)} <= set(names)
    assert "rank 1 ended first, by SIGKILL" in process.stderr
    phases = {(message["rank"], message["phase"]) for message in messages if "phase" in message}
    assert phases >= {(0, "recording"), (1, "recording")}


@pytest.mark.long
@pytest.mark.slow
def test_torchrun(tmp_path: Path) -> None:
    """Run torchrun's own command with the harness inserted before the script; SIGTERM ends all ranks, saved."""
    skip_without("torch")
    slow = DDP.format(mishap="pass").replace("print(", "import time; time.sleep(0.05); print(")
    (tmp_path / "train.py").write_text(slow)
    command = ("torchrun", "--standalone", "--nproc-per-node", "2", "train.py", "100000")
    with open(tmp_path / "out", "w") as out:
        process = subprocess.Popen(
            [sys.executable, str(HARNESS), "--wait", "0", "--warmup", "0", "--active", "100000", *command],
            cwd=tmp_path,
            stdout=out,
            stderr=out,
        )
        deadline = time.monotonic() + 400
        while "rank 1 step 5" not in (tmp_path / "out").read_text() and time.monotonic() < deadline:
            assert process.poll() is None, (tmp_path / "out").read_text()
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(400) == -signal.SIGTERM
    (run_folder,) = (tmp_path / "torchprof_runs").iterdir()
    assert run_folder.name.startswith("train-")
    facts = json.loads((run_folder / "manifest.json").read_text())
    assert facts["command"] == list(command)
    assert [entry["ended"] for entry in facts["ranks"]] == ["SIGTERM", "SIGTERM"], (tmp_path / "out").read_text()
    for entry in facts["ranks"]:
        names = [event["name"] for event in events(run_folder / entry["kept"][0]["trace"])]
        assert "ProfilerStep#3" in names
        assert any("all_reduce" in name or "allreduce" in name for name in names)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"RANK": "0", "WORLD_SIZE": "1"}, None),
        ({"RANK": "3", "WORLD_SIZE": "4"}, (3, 4)),
        ({"RANK": "x", "WORLD_SIZE": "4"}, None),
        ({"RANK": "4", "WORLD_SIZE": "4"}, None),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, (1, 2)),
        ({"SLURM_NTASKS": "2"}, None),  # inside salloc, not started by srun
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "8"}, (1, 8)),
        ({"RANK": "0", "WORLD_SIZE": "2", "SLURM_PROCID": "5", "SLURM_NTASKS": "9"}, (0, 2)),
    ],
)
def test_the_rank_is_read_from_the_environment(environment: dict[str, str], expected: tuple[int, int] | None) -> None:
    rank = ranks.identify_rank(environment)
    assert (rank and (rank.rank, rank.world_size)) == expected


def test_ranks_of_this_machine() -> None:
    rank = ranks.identify_rank({"RANK": "5", "WORLD_SIZE": "8"})
    assert rank is not None
    assert ranks.list_local_ranks({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}, rank) == [4, 5, 6, 7]
    assert ranks.list_local_ranks({}, rank) == [5]


def test_waiting_for_other_ranks_has_a_time_limit(tmp_path: Path) -> None:
    saved, running = tmp_path / "saved", tmp_path / "running"
    saved.write_text('{"state": "ended"}')
    running.write_text('{"state": "running"}')
    begin = time.monotonic()
    ranks.wait_for_manifests([str(saved)], 60)
    assert time.monotonic() - begin < 30
    begin = time.monotonic()
    ranks.wait_for_manifests([str(saved), str(running), str(tmp_path / "absent")], 0.2)
    assert time.monotonic() - begin >= 0.2


def test_commands_that_start_several_ranks() -> None:
    assert rank_launcher.is_multi_rank(parse_options(["--nproc", "2", "x.py"]))
    assert rank_launcher.is_multi_rank(parse_options(["torchrun", "x.py"]))
    assert rank_launcher.is_multi_rank(parse_options(["-m", "torch.distributed.run", "x.py"]))
    assert not rank_launcher.is_multi_rank(parse_options(["-m", "torchrun_like", "x.py"]))
    assert not rank_launcher.is_multi_rank(parse_options(["x.py", "torchrun"]))


@pytest.mark.torch
def test_torchrun_commands() -> None:
    skip_without("torch")
    command = "torchrun --nnodes 1 --nproc-per-node=2 -m pkg.train --lr 1 --module x"
    ((argv, environment),) = rank_launcher._build_torchrun_commands(parse_options(["--active", "7", *command.split()]))
    assert environment == {}
    index = argv.index(str(HARNESS))
    assert argv[index - 5 : index] == ["-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node=2"]
    assert argv[index + 1 :][-6:] == ["-m", "pkg.train", "--lr", "1", "--module", "x"]
    assert argv[index + 1 : index + 3] == ["--active", "7"]
    for wrong, says in (
        ("torchrun --no-python ./a.sh", "does not start a Python program"),
        ("torchrun --no-such-option x.py", "torchrun: "),
        ("torchrun", "training_script"),
    ):
        with pytest.raises(UsageError, match=says):
            rank_launcher._build_torchrun_commands(parse_options(wrong.split()))


@pytest.mark.parametrize(
    "text",
    [
        "[]", "null", "5", "", "\xff", "[" * 100_000, '{"rank": NaN}', '{"kept": 5}', '{"kept": [5, {"trace": 7}, {}]}',
        '{"rank": "1", "world_size": "two"}', '{"rank": [1], "world_size": null}', '{"rank": true, "seconds": 1e999}',
    ],
)  # fmt: skip
def test_a_damaged_manifest_of_a_rank_does_not_end_the_launcher(tmp_path: Path, text: str) -> None:
    intact = {"rank": 1, "world_size": 2, "state": "ended", "kept": [{"trace": "a.json"}], "pid": 7}
    (tmp_path / "manifest.rank1.json").write_text(json.dumps(intact))
    (tmp_path / "manifest.rank0.json").write_text(text, encoding="latin-1")
    os.mkfifo(tmp_path / "manifest.rank2.json")
    reporter = Reporter(None)
    launcher = rank_launcher._RankLauncher(parse_options(["--nproc", "3", "x.py"]), str(tmp_path), reporter)
    launcher._write_manifest("ended", 0)
    document = json.loads((tmp_path / "manifest.json").read_text(), parse_constant=pytest.fail)
    assert len(document["ranks"]) == 3
    assert [rank["kept"] for rank in document["ranks"] if rank["rank"] == 1] == [[{"trace": "a.json"}]]
    assert document["world_size"] == 2
