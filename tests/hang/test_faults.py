"""Twenty jobs with one known fault each (tools/hang_faults): rank, operation, line and cause must be named."""

from __future__ import annotations

import re
import tarfile
from functools import cache
from pathlib import Path

import pytest

from tests.helpers.later_imports import skip_without
from tests.helpers.long_run import keep_some
from tests.helpers.paths import FIXTURES
from tests.helpers.warm_program import fork_torch
from tools.hang_faults import __main__ as hang_faults
from tools.hang_faults.registry import FAULTS, NCCL_FAULTS, NCCL_PROGRAM, find_lines
from torchprof_hang.analysis.diagnosis import diagnose
from torchprof_hang.analysis.evidence import gather_evidence
from torchprof_hang.answers import Hang, build_hang
from torchprof_hang.command.files import read_evidence

LIVE = ("skip_all_reduce", "slow_healthy")


@cache
def explain(folder: Path) -> Hang:
    return build_hang(read_evidence([str(folder)]), 50)


def check(name: str, hang: Hang) -> None:
    fault, lines = FAULTS[name], find_lines(name)
    assert hang.ranks == ([] if fault.rank is None else [fault.rank]), hang.sentence
    assert hang.operation == fault.operation, hang.sentence
    assert hang.cause == fault.cause, hang.sentence
    if lines:
        assert hang.place in {f"program.py:{line}" for line in lines}, hang.sentence


@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_is_named(name: str) -> None:
    hang = explain(FIXTURES / "hang" / f"{name}.tar.xz")
    check(name, hang)
    assert not hang.failed
    assert hang.world_size == FAULTS[name].ranks
    for each in hang.groups:  # each rank is in one state of each collective
        for collective in each.collectives:
            ranks = [rank for state in collective.states for rank in state.ranks]
            assert sorted(ranks) == sorted(set(ranks))
            assert len(ranks) == each.ranks


@pytest.mark.parametrize("name", FAULTS)
def test_a_fixture_names_no_path_of_the_machine_that_recorded_it(name: str) -> None:
    for _, data in _list_files(FIXTURES / "hang" / f"{name}.tar.xz"):
        assert not re.search(rb"/(?:work|root|home)/", data)


@pytest.mark.parametrize("name", NCCL_FAULTS)
def test_the_watchdogs_dumps_of_nccl_name_the_fault(name: str) -> None:
    fault, hang = NCCL_FAULTS[name], explain(FIXTURES / "hang_nccl" / f"{name}.tar.xz")
    assert (hang.ranks, hang.cause) == ([] if fault.rank is None else [fault.rank], fault.cause), hang.sentence
    assert hang.operation == fault.operation
    lines = find_lines(name, NCCL_PROGRAM)
    if lines and fault.cause != "rank behind":  # whose line is in no dump
        assert any(f"nccl_program.py:{line}" in f"{hang.place} {hang.sentence}" for line in lines), hang.sentence
    assert hang.waited_us is None or 10e6 <= hang.waited_us <= 12e6  # the watchdog waits for 10 s
    for _, data in _list_files(FIXTURES / "hang_nccl" / f"{name}.tar.xz"):
        assert not re.search(rb"/(?:work|root|home)/", data)


def _list_files(path: Path) -> list[tuple[str, bytes]]:
    with tarfile.open(path) as archive:
        return [(each.name, archive.extractfile(each).read()) for each in archive]  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["skip_all_reduce", "order_swapped", "group_of_half", "skip_in_branch"])
def test_the_flight_recorders_alone_name_the_rank(name: str) -> None:
    dumps = [each for each in _list_files(FIXTURES / "hang" / f"{name}.tar.xz") if each[0].startswith("comm_trace")]
    found = diagnose(gather_evidence(dumps))
    assert found.ranks == (FAULTS[name].rank,)
    assert found.operation == FAULTS[name].operation


@pytest.mark.slow
@pytest.mark.parametrize("name", keep_some(LIVE, 1))
def test_a_live_job_is_explained(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_without("torch")
    fork_torch(monkeypatch, hang_faults)
    hang_faults.provoke(name, tmp_path / name)
    check(name, explain(tmp_path / name))
