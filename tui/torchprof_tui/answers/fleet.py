"""The answer of `fleet`: all ranks of a job, compared."""

from __future__ import annotations

from typing import Annotated

from torchprof_tui.analysis.fleet.comparison_rows import (
    list_host_rows,
    list_rank_rows,
    list_step_rows,
    list_what_if_rows,
)
from torchprof_tui.analysis.fleet.rank_sketch import UNKNOWN_BYTES
from torchprof_tui.analysis.fleet.report import FleetReport
from torchprof_tui.answers.record import Answer, Record, about


class FleetStep(Record, frozen=True, kw_only=True):
    """One step of the job."""

    step: Annotated[int, about("its number; -1: the whole recording of ranks without steps", "")]
    median_us: Annotated[float, about("of the ranks' step times")]
    longest_us: Annotated[float, about("of the ranks' step times")]
    busy_share: Annotated[float | None, about("of the median rank: GPU busy, of its step; null without a GPU")]
    exposed_share: Annotated[float | None, about("of the median rank: collectives while nothing computes, of its step")]
    waited_for: Annotated[int | None, about("number of the rank that others waited for most; null: nobody waited", "")]
    delay_us: Annotated[float, about("that the median rank waited for it in this step")]


class FleetRank(Record, frozen=True, kw_only=True):
    """One rank against the median rank."""

    rank: Annotated[int, about("its number", "")]
    host: Annotated[str | None, about("recorded in the name of its file, or the ranks of its node; null: unknown")]
    file: Annotated[str, about("as named")]
    late_share: Annotated[float, about("of a step: how much later than the median rank it comes, in the median step")]
    gpu_factor: Annotated[float | None, about("time for the same kernels over the median rank's; null: unknown", "")]
    cpu_factor: Annotated[float | None, about("time for the same ops over the median rank's; null: unknown", "")]
    step_us: Annotated[float, about("its median step time")]
    memory_peak_bytes: Annotated[int | None, about("allocated; null: not recorded")]
    regime: Annotated[str, about("of its own verdict, as check says it")]
    waited_for: Annotated[int, about("collectives in which it came last", "")]
    delay_us: Annotated[float, about("that the median rank waited in these")]


class FleetHost(Record, frozen=True, kw_only=True):
    """One host: the medians of its ranks."""

    host: Annotated[str, about("its name")]
    ranks: Annotated[list[int], about("its ranks")]
    late_share: Annotated[float, about("of a step")]
    gpu_factor: Annotated[float | None, about("as of a rank", "")]
    cpu_factor: Annotated[float | None, about("as of a rank", "")]


class FleetFinding(Record, frozen=True, kw_only=True):
    """Something that is wrong."""

    kind: Annotated[
        str,
        about(
            "slow_host, slow_gpu, slow_cpu, late_rank, stall, growing_steps, unbalanced_stages, unbalanced_experts or "
            "slow_network"
        ),
    ]
    ranks: Annotated[list[int], about("their numbers; []: the whole job")]
    host: Annotated[str | None, about("null: unknown, or several")]
    step: Annotated[int | None, about("of a stall; null: in most steps", "")]
    size: Annotated[float, about("a factor against the median rank; of late_rank and stall the share of a step", "")]
    text: Annotated[str, about("one line")]
    action: Annotated[str, about("what to do")]
    saved_share: Annotated[float | None, about("of the job's time, without it; null: cannot be told from sketches")]


class FleetWithout(Record, frozen=True, kw_only=True):
    """The job without the slowness of some ranks, replayed over its collectives."""

    without: Annotated[str, about("rank 17, host node2, or the excess of pipeline stage 3")]
    ranks: Annotated[list[int], about("their numbers")]
    step_us: Annotated[float, about("step time of the job then")]
    saved_share: Annotated[float, about("of the job's time")]


class Fleet(Answer, frozen=True, kw_only=True, tag="torchprof-tui/fleet/1"):
    """All ranks of a job, compared."""

    ranks: Annotated[int, about("that are compared", "")]
    world_size: Annotated[int | None, about("of the job, as recorded; null: unknown", "")]
    missing_ranks: Annotated[list[int], about("of the job, without a trace")]
    hosts: Annotated[int, about("that are known", "")]
    step_us: Annotated[float, about("median step time")]
    matched_collectives: Annotated[int, about("that at least two ranks have", "")]
    findings: Annotated[list[FleetFinding], about("what is wrong, slow machines first")]
    what_if: Annotated[list[FleetWithout], about("without the slowest rank, host and pipeline stage")]
    slowest_ranks: Annotated[list[FleetRank], about("latest first, as many as --top")]
    slowest_hosts: Annotated[list[FleetHost], about("latest first, as many as --top")]
    slowest_steps: Annotated[list[FleetStep], about("longest first, as many as --top")]
    lost: Annotated[list[str], about("files that could not be used, one line each; [] for none")]


DIGITS = 6
"""Digits of shares and factors after the point."""


def build_fleet(report: FleetReport, limit: int) -> Fleet:
    """Build the document of a compared fleet, with `limit` ranks, hosts and steps."""
    fleet = report.fleet
    return Fleet(
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


def _build_findings(report: FleetReport) -> list[FleetFinding]:
    records = []
    for finding in report.findings:
        removed = report.remove(finding.ranks)
        records.append(
            FleetFinding(
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


def _build_what_if(report: FleetReport) -> list[FleetWithout]:
    fleet = report.fleet
    return [
        FleetWithout(
            without=row.label,
            ranks=fleet.ranks[list(row.ranks)].tolist(),
            step_us=round(row.step_time / 1000, 3),
            saved_share=round(row.saved_share, DIGITS),
        )
        for row in list_what_if_rows(report, 1)
    ]


def _build_ranks(report: FleetReport, limit: int) -> list[FleetRank]:
    fleet = report.fleet
    records = []
    for row in list_rank_rows(report, limit):
        sketch = fleet.sketches[row.index]
        records.append(
            FleetRank(
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


def _build_hosts(report: FleetReport, limit: int) -> list[FleetHost]:
    return [
        FleetHost(
            host=row.host,
            ranks=report.fleet.ranks[list(row.ranks)].tolist(),
            late_share=round(row.late_share, DIGITS),
            gpu_factor=_round_known(row.gpu_factor),
            cpu_factor=_round_known(row.cpu_factor),
        )
        for row in list_host_rows(report, limit)
    ]


def _build_steps(report: FleetReport, limit: int) -> list[FleetStep]:
    fleet = report.fleet
    return [
        FleetStep(
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
