"""Build the JSON document of `fleet --json`, which the text is printed from as well."""

from __future__ import annotations

from torchprof_tui.analysis.fleet.comparison_rows import (
    list_host_rows,
    list_rank_rows,
    list_step_rows,
    list_what_if_rows,
)
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
    return [
        WhatIfRecord(
            without=row.label,
            ranks=fleet.ranks[list(row.ranks)].tolist(),
            step_us=round(row.step_time / 1000, 3),
            saved_share=round(row.saved_share, DIGITS),
        )
        for row in list_what_if_rows(report, 1)
    ]


def _build_ranks(report: FleetReport, limit: int) -> list[FleetRankRecord]:
    fleet = report.fleet
    records = []
    for row in list_rank_rows(report, limit):
        sketch = fleet.sketches[row.index]
        records.append(
            FleetRankRecord(
                rank=int(fleet.ranks[row.index]),
                host=fleet.hosts[row.index] or None,
                file=sketch.file,
                late_share=round(row.late_share, DIGITS),
                gpu_factor=_round_known(row.gpu_factor),
                cpu_factor=_round_known(row.cpu_factor),
                step_us=row.step_time / 1000,
                memory_peak_bytes=None if sketch.memory_peak == UNKNOWN_BYTES else sketch.memory_peak,
                regime=sketch.regime,
                waited_for=row.waited_for,
                delay_us=row.delay / 1000,
            )
        )
    return records


def _build_hosts(report: FleetReport, limit: int) -> list[FleetHostRecord]:
    return [
        FleetHostRecord(
            host=row.host,
            ranks=report.fleet.ranks[list(row.ranks)].tolist(),
            late_share=round(row.late_share, DIGITS),
            gpu_factor=_round_known(row.gpu_factor),
            cpu_factor=_round_known(row.cpu_factor),
        )
        for row in list_host_rows(report, limit)
    ]


def _build_steps(report: FleetReport, limit: int) -> list[FleetStepRecord]:
    fleet = report.fleet
    return [
        FleetStepRecord(
            step=int(fleet.steps[row.step]),
            median_us=row.median / 1000,
            longest_us=row.longest / 1000,
            busy_share=_round_known(row.busy_share),
            exposed_share=_round_known(row.exposed_share),
            waited_for=None if row.cause is None else int(fleet.ranks[row.cause.rank]),
            delay_us=0.0 if row.cause is None else row.cause.delay / 1000,
        )
        for row in list_step_rows(report, limit)
    ]


def _round_known(value: float | None) -> float | None:
    return None if value is None else round(value, DIGITS)
