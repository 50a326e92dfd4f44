"""Property: `fleet` says of each rank what the API, `check` and `table` say of that rank's trace."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

import torchprof_tui as tt
from tests.helpers.command_line import read_json_answer
from tests.helpers.paths import SAMPLES, SHARED_TRACES

pytest.importorskip("pyarrow")

MEMORY = ("train_gpt_stack_memory", "train_gpt_eager")


def list_runs() -> Iterator[Any]:
    yield pytest.param(SAMPLES / "train_gpt_2ranks", id="train_gpt_2ranks")
    missing = pytest.mark.skipif(not (SHARED_TRACES / "ddp_4ranks").exists(), reason="needs the shared traces")
    yield pytest.param(SHARED_TRACES / "ddp_4ranks", id="ddp_4ranks", marks=(missing, pytest.mark.long))
    yield pytest.param(SHARED_TRACES / "fsdp_4ranks", id="fsdp_4ranks", marks=(missing, pytest.mark.long))


@pytest.fixture(params=list_runs())
def run(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


def test_ranks_are_as_their_own_traces_say(capsys: pytest.CaptureFixture[str], run: Path) -> None:
    told, trace = read_json_answer(capsys, "fleet", run, "--json", "--jobs", "1"), tt.open(run)
    assert told["ranks"] == len(trace.ranks) == len(told["slowest_ranks"])
    for said in told["slowest_ranks"]:
        rank = tt.open(said["file"])
        assert said["rank"] == rank.rank
        assert said["step_us"] == median(step.duration_ns for step in rank.steps) / 1000
        assert said["regime"] == read_json_answer(capsys, "check", said["file"], "--json")["verdict"]["regime"]


def test_steps_are_the_medians_of_the_ranks(capsys: pytest.CaptureFixture[str], run: Path) -> None:
    told, trace = read_json_answer(capsys, "fleet", run, "--json", "--jobs", "1"), tt.open(run)
    times: dict[int, list[float]] = {}
    for step in trace.steps:
        times.setdefault(step.number, []).append(step.duration_ns)
    assert told["slowest_steps"]
    for said in told["slowest_steps"]:
        of_step = times[said["step"]]
        assert (said["median_us"], said["longest_us"]) == (median(of_step) / 1000, max(of_step) / 1000)
    assert told["step_us"]["p50"] == median(median(each) for each in times.values()) / 1000


def test_who_was_waited_for_agrees_with_the_arrivals(capsys: pytest.CaptureFixture[str], run: Path) -> None:
    """`fleet` leaves out the first collective of each group, in which ranks wait for the recordings to begin."""
    told = read_json_answer(capsys, "fleet", run, "--json", "--jobs", "1")
    table = read_json_answer(capsys, "table", run, "--of", "arrivals", "--limit", "0", "--json")
    rows = sorted(table["rows"], key=lambda row: row["start_us"])
    groups = {row["group"]: row for row in reversed(rows)}
    later = [row for row in rows if row not in groups.values()]
    assert later
    assert told["matched_collectives"] == len(rows)
    for said in told["slowest_ranks"]:
        last = [row for row in later if row["last_rank"] == said["rank"]]
        assert said["waited_for"] == len(last)
        if told["ranks"] == 2:  # the median rank waited half of what the other one did; clocks are aligned within a µs
            assert said["delay_us"] * 2 == pytest.approx(sum(row["waited_us"] for row in last), abs=len(last))


@pytest.mark.long
def test_the_peak_of_memory_is_that_of_memory(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    by_file = {}
    for number, name in enumerate(MEMORY):  # each alone: they are of different programs
        path = tmp_path / f"rank{number}.pt.trace.json.gz"
        path.write_bytes((SAMPLES / f"{name}.pt.trace.json.gz").read_bytes())
        (said,) = read_json_answer(capsys, "fleet", path, "--json", "--jobs", "1")["slowest_ranks"]
        by_file[path.name] = said["memory_peak_bytes"]
    with tt.open(f"sample:{MEMORY[0]}") as trace:
        assert by_file == {"rank0.pt.trace.json.gz": trace.memory_at().at.alive_bytes, "rank1.pt.trace.json.gz": None}


def test_exposed_communication_is_that_of_the_raw_events(capsys: pytest.CaptureFixture[str], run: Path) -> None:
    """Recompute from JSON, on a grid of 1 µs: a collective runs, and neither a kernel nor a memset does."""
    told = read_json_answer(capsys, "fleet", run, "--json", "--jobs", "1")
    shares: dict[int, list[float]] = {}
    for path in sorted(run.iterdir()):
        events = [event for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if "dur" in event]
        begin = min(event["ts"] for event in events)
        cells = int(max(event["ts"] + event["dur"] for event in events) - begin) + 2
        communicates, computes = np.zeros(cells, np.bool_), np.zeros(cells, np.bool_)
        for event in events:
            if event.get("cat") in ("kernel", "gpu_memset"):
                column = communicates if event["name"].startswith("nccl") else computes
                column[round(event["ts"] - begin) : round(event["ts"] + event["dur"] - begin)] = True
        for event in events:
            if event["name"].startswith("ProfilerStep#") and event["cat"] == "user_annotation":
                part = slice(round(event["ts"] - begin), round(event["ts"] + event["dur"] - begin))
                exposed = np.count_nonzero(communicates[part] & ~computes[part]) / event["dur"]
                shares.setdefault(int(event["name"].partition("#")[2]), []).append(exposed)
    assert {said["step"] for said in told["slowest_steps"]} <= shares.keys()
    for said in told["slowest_steps"]:
        assert said["exposed_share"] == pytest.approx(median(shares[said["step"]]), abs=0.01)
