"""Faults that were put into copies of a real rank are found, and nothing else is."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.fleet_runs import Faults, choose_faults, measure_step, write_fleet
from tests.helpers.fleet_sketches import make_collectives, make_sketch
from tests.helpers.paths import SAMPLES
from torchprof_fleet.analysis.findings import FindingKind, find_slowest_stage
from torchprof_fleet.analysis.rank_sketch import decode_sketches
from torchprof_fleet.analysis.report import FleetReport, compare_fleet
from torchprof_fleet.analysis.sketch_trace import sketch_file

pytest.importorskip("pyarrow")

BASE = SAMPLES / "train_gpt_2ranks" / "rank0.pt.trace.json.gz"


def compare_files(paths: list[Path]) -> FleetReport:
    results = [sketch_file(str(path)) for path in paths]
    assert not [result.reason for result in results if result.reason]
    return compare_fleet([decode_sketches(result.data)[0] for result in results])


def name_findings(report: FleetReport) -> set[tuple[str, tuple[int, ...], int | None]]:
    return {
        (found.kind.value, tuple(report.fleet.ranks[list(found.ranks)].tolist()), found.step)
        for found in report.findings
    }


@pytest.fixture(scope="module", params=[32, pytest.param(64, marks=pytest.mark.long)])
def faulty_report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> FleetReport:
    faults = choose_faults(request.param, 8, measure_step(BASE))
    return compare_files(write_fleet(BASE, tmp_path_factory.mktemp("faulty"), request.param, 8, faults, repeats=2))


def test_every_fault_of_many_ranks_is_named_and_nothing_else(faulty_report: FleetReport) -> None:
    count = len(faulty_report.fleet)
    slow_host = count // 8 // 2 * 8
    assert name_findings(faulty_report) == {
        ("slow_host", tuple(range(slow_host, slow_host + 8)), None),
        ("slow_gpu", (count // 3,), None),
        ("late", (count - 3,), None),
        ("stall", (1,), 3),
    }
    assert not faulty_report.lost
    assert count == faulty_report.fleet.world_size
    assert count in (32, 64)


def test_sizes_of_the_faults_are_those_that_were_put_in(faulty_report: FleetReport) -> None:
    size = {found.kind: found.size for found in faulty_report.findings}
    assert size[FindingKind.SLOW_HOST] == pytest.approx(1.4, rel=0.02)
    assert size[FindingKind.SLOW_GPU] == pytest.approx(1.3, rel=0.02)
    host = next(found.host for found in faulty_report.findings if found.kind is FindingKind.SLOW_HOST)
    assert host == f"node{len(faulty_report.fleet) // 16:03}"


def test_healthy_ranks_have_no_findings(tmp_path: Path) -> None:
    assert not compare_files(write_fleet(BASE, tmp_path, 8, 4, repeats=2)).findings


@pytest.mark.long
def test_removing_the_slow_rank_saves_what_it_cost(tmp_path: Path) -> None:
    step = measure_step(BASE)
    healthy = compare_files(write_fleet(BASE, tmp_path / "healthy", 8, 8, repeats=2))
    late = compare_files(write_fleet(BASE, tmp_path / "late", 8, 8, Faults(late_ranks={5: 0.5 * step}), repeats=2))
    removed = late.remove([5])
    assert removed is not None
    assert late.replay.base > 1.2 * healthy.replay.base
    assert late.replay.without([5]) == pytest.approx(healthy.replay.base, rel=0.02)
    assert removed == pytest.approx(1 - late.replay.without([5]) / late.replay.base)
    (most,) = [late.fleet.ranks[each.rank] for each in late.waits[:1]]
    assert most == 5
    (finding,) = late.findings
    twice = dataclasses.replace(late, findings=(finding, dataclasses.replace(finding, kind=FindingKind.STALL)))
    assert twice.savings == [removed, None]  # the same time of the same rank is saved once


def test_growing_steps_are_found() -> None:
    times = np.linspace(100, 140, 9)
    growing = compare_fleet([make_sketch(rank, times) for rank in range(4)])
    assert [found.kind for found in growing.findings] == [FindingKind.GROWING_STEPS]
    steady = compare_fleet([make_sketch(rank, np.full(9, 100.0)) for rank in range(4)])
    assert not steady.findings


@pytest.mark.parametrize(
    ("group", "kind"),
    [("mesh_pp", FindingKind.UNBALANCED_STAGES), ("EXPERT_MODEL_PARALLEL", FindingKind.UNBALANCED_EXPERTS)],
)
def test_unbalanced_parts_are_found(group: str, kind: FindingKind) -> None:
    def compare(loads: list[float]) -> FleetReport:
        sketches = [
            make_sketch(rank, np.full(4, 100.0), compute=loads[rank % 4], groups=((group, rank % 4, 4),))
            for rank in range(8)
        ]
        return compare_fleet(sketches)

    (found,) = compare([10, 10, 14, 10]).findings
    assert (found.kind, found.ranks) == (kind, (2, 6))
    assert not compare([10, 10, 10.5, 10]).findings


def test_two_files_of_one_rank_are_named() -> None:
    sketches = [
        make_sketch(rank, np.full(3, 100.0), file=f"{name}.json") for name, rank in (("a", 0), ("b", 0), ("c", -1))
    ]
    report = compare_fleet(sketches)
    assert len(report.fleet) == 1
    assert [each.source for each in report.lost] == ["b.json", "c.json"]


def make_networked_job(time_between: dict[int, int], time_inside: int = 1_000_000) -> FleetReport:
    """Make 8 ranks on 4 hosts: TP inside each host, DP of two ranks between hosts; ns of each group's all-reduces."""
    sketches = []
    for rank in range(8):
        inside, between = f"tp #{rank // 2}", f"dp #{rank // 4}{rank % 2}"
        rows, clock = [], 0
        for step in range(4):
            clock = step * 100_000_000
            for order in range(2):
                for group, time in ((inside, time_inside), (between, time_between[rank // 4 * 2 + rank % 2])):
                    rows.append((step, group, "allreduce", order, clock, clock + time))
                    clock += time
        collectives = dataclasses.replace(make_collectives(rows), bytes=np.full(len(rows), 100_000_000))
        sketches.append(make_sketch(rank, np.full(4, 100.0), host=f"node{rank // 2}", collectives=collectives))
    return compare_fleet(sketches)


def test_a_network_far_slower_than_the_links_inside_hosts_is_found() -> None:
    slow = make_networked_job(dict.fromkeys(range(4), 40_000_000))
    (found,) = slow.findings
    assert (found.kind, found.ranks) == (FindingKind.SLOW_NETWORK, ())
    assert found.size == pytest.approx(40)
    # of two ranks an all-reduce moves all of its bytes over each link: 100 MB in 40 ms
    assert "between hosts move 2.5 GB/s, those inside hosts 100 GB/s" in found.text
    assert not make_networked_job(dict.fromkeys(range(4), 8_000_000)).findings


def test_a_slow_link_between_two_hosts_is_found() -> None:
    report = make_networked_job({0: 5_000_000, 1: 5_000_000, 2: 12_000_000, 3: 5_000_000})
    (found,) = report.findings
    assert (found.kind, found.ranks) == (FindingKind.SLOW_NETWORK, (4, 6))
    assert found.size == pytest.approx(2.4)
    assert "hosts node2, node3: a group of 2 ranks" in found.text


def test_the_slowest_stage_as_fast_as_the_next_saves_the_difference() -> None:
    def remove(loads: list[float]) -> tuple[str, tuple[int, ...], float] | None:
        groups = [(("mesh_pp", rank % 4, 4),) for rank in range(8)]
        sketches = [
            make_sketch(rank, np.full(4, 100.0), compute=loads[rank % 4], groups=groups[rank]) for rank in range(8)
        ]
        return find_slowest_stage(compare_fleet(sketches).checker)

    stage = remove([40, 50, 70, 40])
    assert stage is not None
    assert stage[:2] == ("the excess of pipeline stage 2", (2, 6))
    assert stage[2] == pytest.approx(0.2)
    assert remove([40, 40, 40, 40]) is None
