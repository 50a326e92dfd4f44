"""The rows of what a compared fleet is printed and shown as: ranks, hosts, steps, waits and what-ifs, slowest first.

`None` where something is unknown. Times are ns; a factor is the time of the same work over the median rank's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from torchprof_fleet.analysis.findings import find_slowest_stage
from torchprof_fleet.analysis.heat_map import Measure, measure_cells
from torchprof_fleet.analysis.report import FleetReport
from torchprof_fleet.analysis.waits import WaitedFor, measure_waits_for
from torchprof_tui.trace.core.arrays import F64


@dataclass(frozen=True, slots=True)
class RankRow:
    """One rank. `index`: in the fleet; `late_share`: of a step; `waited_for`: collectives in which it came last."""

    index: int
    late_share: float
    gpu_factor: float | None
    cpu_factor: float | None
    step_time: float
    waited_for: int
    delay: float


@dataclass(frozen=True, slots=True)
class HostRow:
    """One host: the medians of its ranks (indexes)."""

    host: str
    ranks: tuple[int, ...]
    late_share: float
    gpu_factor: float | None
    cpu_factor: float | None


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step (index): times over the ranks, shares of the median rank, and who was waited for most."""

    step: int
    median: float
    longest: float
    busy_share: float | None
    exposed_share: float | None
    cause: WaitedFor | None


@dataclass(frozen=True, slots=True)
class WaitRow:
    """A rank that others waited for, how many waited, and which of them (index) waited longest, for how long."""

    waited_for: WaitedFor
    waiting: int
    longest_rank: int
    longest: float


@dataclass(frozen=True, slots=True)
class WhatIfRow:
    """The job without the slowness of some ranks (indexes): its step time then, and the share of its time saved."""

    label: str
    ranks: tuple[int, ...]
    step_time: float
    saved_share: float


def list_rank_rows(report: FleetReport, limit: int) -> list[RankRow]:
    """List the slowest ranks."""
    checker, durations = report.checker, report.fleet.durations
    waits = {each.rank: each for each in report.waits}
    rows = []
    for index in report.list_slowest_ranks(limit):
        wait = waits.get(index)
        rows.append(
            RankRow(
                index,
                float(report.slowness[index]),
                _known(float(checker.gpu.factor[index])),
                _known(float(checker.cpu.factor[index])),
                float(np.nanmedian(durations[index])),
                0 if wait is None else wait.collectives,
                0.0 if wait is None else wait.delay,
            )
        )
    return rows


def list_host_rows(report: FleetReport, limit: int) -> list[HostRow]:
    """List the slowest hosts."""
    checker, hosts = report.checker, report.fleet.host_members
    return [
        HostRow(
            host,
            tuple(hosts[host].tolist()),
            float(np.median(report.slowness[hosts[host]])),
            find_median(checker.gpu.factor[hosts[host]]),
            find_median(checker.cpu.factor[hosts[host]]),
        )
        for host in report.list_slowest_hosts(limit)
    ]


def list_step_rows(report: FleetReport, limit: int) -> list[StepRow]:
    """List the longest steps."""
    fleet = report.fleet
    durations = fleet.durations
    busy, exposed = measure_cells(report, Measure.BUSY), measure_cells(report, Measure.EXPOSED)
    return [
        StepRow(
            step,
            float(np.nanmedian(durations[:, step])),
            float(np.nanmax(durations[:, step])),
            find_median(busy[:, step]),
            find_median(exposed[:, step]),
            report.find_cause_of_step(step),
        )
        for step in report.list_slowest_steps(limit)
    ]


def list_wait_rows(report: FleetReport, limit: int) -> list[WaitRow]:
    """List the ranks that came last to collectives, by the delay of the others, with the rank that waited longest."""
    rows = []
    for each in report.waits[:limit]:
        waits = measure_waits_for(report.checker.matched, each.rank)
        longest = int(waits.argmax())
        rows.append(WaitRow(each, int(np.count_nonzero(waits)), longest, float(waits[longest])))
    return rows


def list_what_if_rows(report: FleetReport, limit: int) -> list[WhatIfRow]:
    """List the job's step time without each of the slowest ranks and hosts, `limit` of each, and its slowest stage."""
    fleet = report.fleet
    chosen: list[tuple[str, Sequence[int]]] = [
        (fleet.label_rank(each.rank), (each.rank,)) for each in report.waits[:limit]
    ]
    chosen += [(f"host {host}", fleet.host_members[host].tolist()) for host in report.list_slowest_hosts(limit)]
    rows = []
    for label, ranks in chosen:
        removed = report.remove(ranks)
        if removed is not None:
            saved = removed.saved_share
            rows.append(WhatIfRow(label, tuple(ranks), fleet.step_time * (1 - saved), saved))
    stage = find_slowest_stage(report.checker)
    if stage is not None:
        saved = stage.saved_share
        rows.append(WhatIfRow(stage.label, stage.ranks, fleet.step_time * (1 - saved), saved))
    return rows


def find_median(values: F64) -> float | None:
    """Find the median of the known values; None without any."""
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else None


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
