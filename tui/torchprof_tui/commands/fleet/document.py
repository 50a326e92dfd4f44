"""Build the JSON document of `fleet --json`, which the text is printed from as well."""

from __future__ import annotations

import math

import numpy as np

from torchprof_tui.analysis.fleet.rank_sketch import UNKNOWN_BYTES
from torchprof_tui.analysis.fleet.report import FleetReport
from torchprof_tui.commands.fleet.records import (
    FleetDocument,
    FleetFindingRecord,
    FleetHostRecord,
    FleetRankRecord,
    FleetStepRecord,
    WhatIfRecord,
)
from torchprof_tui.trace.core.arrays import F64

DIGITS = 6
"""Digits of shares and factors after the point."""


def build_document(report: FleetReport, limit: int) -> FleetDocument:
    """Build the document of a compared fleet, with `limit` ranks, hosts and steps."""
    fleet = report.fleet
    return FleetDocument(
        ranks=len(fleet),
        world_size=fleet.world_size or None,
        missing_ranks=list(fleet.missing_ranks),
        hosts=len(fleet.host_members),
        step_us=fleet.step_time / 1000,
        matched_collectives=len(report.checker.matched),
        findings=_build_findings(report),
        what_if=_build_what_if(report),
        slowest_ranks=_build_ranks(report, limit),
        slowest_hosts=_build_hosts(report, limit),
        slowest_steps=_build_steps(report, limit),
        lost=list(report.lost),
    )


def _build_findings(report: FleetReport) -> list[FleetFindingRecord]:
    records = []
    for finding in report.findings:
        removed = report.remove(finding.ranks)
        records.append(
            FleetFindingRecord(
                kind=finding.kind.value,
                ranks=report.fleet.ranks[list(finding.ranks)].tolist() if finding.ranks else [],
                host=finding.host or None,
                step=finding.step,
                size=round(finding.size, DIGITS),
                text=finding.text,
                action=finding.action,
                saved_share=None if removed is None else round(removed.saved_share, DIGITS),
            )
        )
    return records


def _build_what_if(report: FleetReport) -> list[WhatIfRecord]:
    fleet = report.fleet
    chosen: list[tuple[str, list[int]]] = []
    if report.waits:
        chosen.append((fleet.label_rank(report.waits[0].rank), [report.waits[0].rank]))
    chosen += [(f"host {host}", fleet.host_members[host].tolist()) for host in report.list_slowest_hosts(1)]
    records = []
    for label, ranks in chosen:
        removed = report.remove(ranks)
        if removed is not None:
            saved = removed.saved_share
            records.append(
                WhatIfRecord(
                    without=label,
                    ranks=fleet.ranks[ranks].tolist(),
                    step_us=round(fleet.step_time * (1 - saved) / 1000, 3),
                    saved_share=round(saved, DIGITS),
                )
            )
    return records


def _build_ranks(report: FleetReport, limit: int) -> list[FleetRankRecord]:
    fleet, checker = report.fleet, report.checker
    waits = {each.rank: each for each in report.waits}
    records = []
    for index in report.list_slowest_ranks(limit):
        sketch, wait = fleet.sketches[index], waits.get(index)
        records.append(
            FleetRankRecord(
                rank=int(fleet.ranks[index]),
                host=fleet.hosts[index] or None,
                file=sketch.file,
                late_share=round(float(report.slowness[index]), DIGITS),
                gpu_factor=_round_known(float(checker.gpu.factor[index])),
                cpu_factor=_round_known(float(checker.cpu.factor[index])),
                step_us=float(np.nanmedian(fleet.durations[index])) / 1000,
                memory_peak_bytes=None if sketch.memory_peak == UNKNOWN_BYTES else sketch.memory_peak,
                regime=sketch.regime,
                waited_for=0 if wait is None else wait.collectives,
                delay_us=0.0 if wait is None else wait.delay / 1000,
            )
        )
    return records


def _build_hosts(report: FleetReport, limit: int) -> list[FleetHostRecord]:
    fleet, checker = report.fleet, report.checker
    return [
        FleetHostRecord(
            host=host,
            ranks=fleet.ranks[members].tolist(),
            late_share=round(float(np.median(report.slowness[members])), DIGITS),
            gpu_factor=_median_known(checker.gpu.factor[members]),
            cpu_factor=_median_known(checker.cpu.factor[members]),
        )
        for host in report.list_slowest_hosts(limit)
        for members in [fleet.host_members[host]]
    ]


def _build_steps(report: FleetReport, limit: int) -> list[FleetStepRecord]:
    fleet = report.fleet
    durations = fleet.durations
    has_gpu = bool(np.nansum(fleet.gather_steps("busy")))

    busy, exposed = (fleet.gather_steps(field) / durations for field in ("busy", "exposed"))
    records = []
    for step in report.list_slowest_steps(limit):
        cause = report.find_cause_of_step(step)
        records.append(
            FleetStepRecord(
                step=int(fleet.steps[step]),
                median_us=float(np.nanmedian(durations[:, step])) / 1000,
                longest_us=float(np.nanmax(durations[:, step])) / 1000,
                busy_share=_median_known(busy[:, step]) if has_gpu else None,
                exposed_share=_median_known(exposed[:, step]) if has_gpu else None,
                waited_for=None if cause is None else int(fleet.ranks[cause.rank]),
                delay_us=0.0 if cause is None else cause.delay / 1000,
            )
        )
    return records


def _round_known(value: float) -> float | None:
    return round(value, DIGITS) if math.isfinite(value) else None


def _median_known(values: F64) -> float | None:
    known = values[np.isfinite(values)]
    return round(float(np.median(known)), DIGITS) if len(known) else None
