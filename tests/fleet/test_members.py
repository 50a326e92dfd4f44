"""Files that are damaged or of another run are named and left out of every figure of the job."""

from __future__ import annotations

import dataclasses
import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.command_line import read_error_line, read_json_answer
from tests.helpers.fleet_runs import Faults, measure_step, name_rank_file, write_fleet
from tests.helpers.fleet_sketches import make_collectives, make_sketch
from tests.helpers.paths import SAMPLES
from torchprof_fleet.analysis.fleet import LeftOut, NoRanksError, select_members
from torchprof_fleet.analysis.rank_sketch import RankSketch
from torchprof_fleet.analysis.report import compare_fleet
from torchprof_fleet.analysis.sketch_trace import sketch_file
from torchprof_fleet.command import main as fleet_command

pytest.importorskip("pyarrow")

BASE = SAMPLES / "train_gpt_2ranks" / "rank0.pt.trace.json.gz"
RANKS, LATE = 16, 13
HOUR = 3_600_000_000_000


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sketch in this process: starting others takes longer."""

    def sketch(traces: Any, is_cancelled: Callable[[], bool], jobs: int) -> Any:
        return [sketch_file(trace.spec, trace.identity) for trace in traces]

    monkeypatch.setattr(fleet_command, "sketch_locally", sketch)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a job of 16 ranks, of which rank 13 is late in every step."""
    folder = tmp_path_factory.mktemp("job")
    faults = Faults(late_ranks={LATE: 0.4 * measure_step(BASE)})
    write_fleet(BASE, folder, RANKS, 8, faults, repeats=2)
    return folder


def damage(folder: Path, rank: int, change: Callable[[bytes], bytes]) -> str:
    path = folder / name_rank_file(rank, 8)
    path.write_bytes(change(path.read_bytes()))
    return str(path)


def rewrite(folder: Path, rank: int, change: Callable[[dict[str, Any]], object]) -> str:
    def apply(data: bytes) -> bytes:
        document = json.loads(gzip.decompress(data))
        change(document)
        return gzip.compress(json.dumps(document).encode(), 1)

    return damage(folder, rank, apply)


def shift_steps(document: dict[str, Any]) -> None:
    for entry in document["traceEvents"]:
        if entry["name"].startswith("ProfilerStep#"):
            entry["name"] = f"ProfilerStep#{int(entry['name'][13:]) + 100}"


@pytest.mark.long
def test_damaged_and_foreign_files_change_no_figure_of_the_others(
    job: Path, tmp_path: Path, in_this_process: None, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = {
        3: "truncated",
        4: "empty",
        5: "random",
        6: "of 2 ranks",
        7: "other steps",
        8: "other program",
        9: "empty list",
    }
    folder, clean = tmp_path / "job: 1", tmp_path / "clean"
    for each in (folder, clean):
        each.mkdir()
        for rank in range(RANKS):
            if each is folder or rank not in damaged:
                name = name_rank_file(rank, 8)
                (each / name).write_bytes((job / name).read_bytes())
    noise = random.Random(1).randbytes(5000)
    expected = {
        damage(folder, 3, lambda data: data[: len(data) * 6 // 10]): "not all of it could be read",
        damage(folder, 4, lambda data: b""): "",
        damage(folder, 5, lambda data: noise): "",
        rewrite(
            folder, 6, lambda job: job["distributedInfo"].update(world_size=2)
        ): "its job has 2 ranks, that of most files 16",
        rewrite(folder, 7, shift_steps): "its steps are 102 to 105, those of most files 2 to 5",
        damage(folder, 8, lambda data: (SAMPLES / "linear_eager.pt.trace.json.gz").read_bytes()): "",
        rewrite(folder, 9, lambda job: job.update(traceEvents=[])): "",
    }
    names = [*map(str, sorted(folder.iterdir()))]
    told, alone = (read_json_answer(capsys, "fleet", *paths, "--json") for paths in (names, [clean]))
    reasons = {each["source"]: each["reason"] for each in told["failed"]}
    assert reasons.keys() == expected.keys()  # whole names, though the folder's has a colon
    assert [name for name, part in expected.items() if part not in reasons[name]] == []
    assert told["missing_ranks"] == sorted(damaged)
    for field in ("world_size", "missing_ranks", "step_us", "steps", "what_if", "slowest_steps", "matched_collectives"):
        assert told[field] == alone[field], field
    for field in ("faults", "slowest_hosts"):
        assert told[field] == alone[field]
    (fault,) = told["faults"]
    assert (fault["kind"], fault["rank"]) == ("late", LATE)
    arrival = fault["arrival"]
    assert arrival["late_us"] == pytest.approx(0.4 * measure_step(BASE), rel=0.1)
    assert arrival["steps"] == [3, 4, 5]  # the first collective waits for the recordings to begin
    assert 3 <= arrival["last"] <= arrival["collectives"]
    assert "after the median rank, last in " in fault["why"]


def test_a_late_rank_says_why(in_this_process: None, capsys: pytest.CaptureFixture[str]) -> None:
    (fault,) = read_json_answer(capsys, "fleet", "sample:train_gpt_2ranks", "--json")["faults"]
    assert (fault["kind"], fault["rank"], fault["cause"]) == ("late", 1, "host code")


def test_where_no_rank_can_be_read_the_status_is_2_and_the_line_says_why(
    tmp_path: Path, in_this_process: None, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in range(5):
        (tmp_path / f"rank{rank}.json").write_text('{"traceEvents": [{"ph": "X", "na')
    line = read_error_line(capsys, "fleet", tmp_path)
    assert line.count(str(tmp_path)) == 3
    assert "; and 2 more" in line


# -- sketches by hand -------------------------------------------------------------------------------------------


def make_job(count: int = 5, **fields: Any) -> list[RankSketch]:
    rows = [
        (step, "dp", "allreduce", order, order * 1000, order * 1000 + 500) for step in range(3) for order in range(4)
    ]
    values = {"world_size": 8, "time_zero": 10**18 + 9 * HOUR, "collectives": make_collectives(rows)} | fields
    return [make_sketch(rank, np.full(3, 100.0), **values) for rank in range(count)]


def leave_out(sketches: list[RankSketch]) -> dict[str, str]:
    kept, left_out = select_members(sketches)
    assert len(kept) + len(left_out) == len(sketches)
    return {each.source: each.reason for each in left_out}


def test_a_healthy_job_is_whole() -> None:
    assert leave_out(make_job()) == {}
    assert leave_out(make_job(2)) == {}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"world_size": 2}, "of another run: its job has 2 ranks, that of most files 8"),
        ({"rank": 9, "world_size": 0}, "of another run: it is rank 9, the job of most files has 8 ranks"),
        ({"time_zero": 10**18 + 33 * HOUR}, "of another run: recorded 24.0 h after most files"),
        ({"time_zero": 10**18 + 5 * HOUR}, "of another run: recorded 4.0 h before most files"),
        ({"problems": ("cut short",)}, "not all of it could be read (cut short): copy or export it again"),
        ({"rank": 3}, "of rank 3, as rank3.json is"),
        (
            {"collectives": make_collectives([(step, "dp", "allreduce", 0, 0, 9) for step in range(3)])},
            "of another run: 1 collectives in step 0, most files 4",
        ),
    ],
)
def test_one_file_that_is_not_of_the_job_is_named(fields: dict[str, Any], reason: str) -> None:
    *others, last = make_job()
    assert leave_out([dataclasses.replace(last, file="x.json", **fields), *others]) == {"x.json": reason}


@pytest.mark.parametrize(
    "fields",
    [
        {"world_size": 0, "time_zero": 0},
        {"time_zero": 5},
        {"problems": ("repaired: quote",)},
        {"collectives": make_collectives([])},
        {"collectives": make_collectives([(0, "tp", "allreduce", 0, 0, 9), (1, "tp", "allreduce", 0, 0, 9)])},
    ],
)
def test_what_a_rank_may_lack_does_not_make_it_foreign(fields: dict[str, Any]) -> None:
    *others, last = make_job()
    assert leave_out([*others, dataclasses.replace(last, **fields)]) == {}


def test_a_line_about_a_source_with_colons_is_divided_behind_the_source() -> None:
    assert LeftOut.from_line("s3://b/a: b.json", "s3://b/a: b.json: no: such") == LeftOut(
        "s3://b/a: b.json", "no: such"
    )


def test_without_any_rank_all_files_are_named() -> None:
    with pytest.raises(NoRanksError, match=r"no rank can be compared: rank0\.json: it has no events; .*; and 2 more"):
        compare_fleet([make_sketch(rank, np.zeros(3), file=f"rank{rank}.json") for rank in range(5)])
