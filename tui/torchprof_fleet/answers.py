"""The answer of `fleet`: all ranks of a job, compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from torchprof_fleet.analysis.findings import find_median, find_slowest_stage
from torchprof_fleet.analysis.heat_map import Measure, measure_cells
from torchprof_fleet.analysis.rank_sketch import UNKNOWN_BYTES
from torchprof_fleet.analysis.report import FleetReport
from torchprof_fleet.analysis.waits import rank_waits
from torchprof_tui.answers.record import Answer, Record, about, fill
from torchprof_tui.trace.core.arrays import F64


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


class FleetArrival(Record, frozen=True, kw_only=True):
    """How ranks that others wait for come to the collectives, against the median rank."""

    late_us: Annotated[float, about("later, in the median step, or in the one of a stall")]
    late_share: Annotated[float, about("the same, of a step")]
    last: Annotated[int, about("collectives to which one of them came last", "")]
    collectives: Annotated[int, about("that they are in, without the first of each group")]
    steps: Annotated[list[int], about("numbers of the steps in which they are late")]


class FleetFault(Record, frozen=True, kw_only=True):
    """Something that is wrong."""

    kind: Annotated[
        str,
        about(
            "late, slow_host, slow_gpu, slow_cpu, stall, growing_steps, unbalanced_stages, unbalanced_experts or "
            "slow_network"
        ),
    ]
    rank: Annotated[int | None, about("the only one of `ranks`; null: several, or the whole job", "")]
    ranks: Annotated[list[int], about("their numbers; []: the whole job")]
    host: Annotated[str | None, about("null: unknown, or several")]
    step: Annotated[int | None, about("of a stall; null: in most steps", "")]
    size: Annotated[float, about("a factor against the median rank; of late and stall the share of a step", "")]
    arrival: Annotated[FleetArrival | None, about("of ranks that others wait for; null: nobody does")]
    cause: Annotated[str, about("why they are late: slow_cpu, slow_gpu, or what their GPU waits for; empty: unknown")]
    why: Annotated[str, about("one line")]
    action: Annotated[str, about("what to do")]
    us: Annotated[
        float | None,
        about("what a step of the job takes less without it; null: cannot be told, or an earlier fault names the rank"),
    ]
    share: Annotated[float | None, about("the same, of the job's time")]


class FleetWithout(Record, frozen=True, kw_only=True):
    """The job without the slowness of some ranks, replayed over its collectives."""

    without: Annotated[str, about("rank 17, host node2, or the excess of pipeline stage 3")]
    ranks: Annotated[list[int], about("their numbers")]
    step_us: Annotated[float, about("step time of the job then")]
    saved_share: Annotated[float, about("of the job's time")]


class FailedSource(Record, frozen=True, kw_only=True):
    """A file or a name that could not be used, or is of another run."""

    source: Annotated[str, about("as named")]
    reason: Annotated[str, about("why, one line")]


class FleetStepTime(Record, frozen=True, kw_only=True):
    """How long a step of the job takes: of each step the median of its ranks."""

    p50: Annotated[float, about("median of the steps", "µs")]
    p95: Annotated[float, about("95 % of the steps are not longer", "µs")]
    without_slowest: Annotated[
        float | None, about("median without the slowness of the slowest rank; null: cannot be told", "µs")
    ]


class Fleet(Answer, frozen=True, kw_only=True, tag="torchprof-tui/fleet/2"):
    """All ranks of a job, compared."""

    ranks: Annotated[int, about("that are compared", "")]
    world_size: Annotated[int | None, about("of the job, as recorded; null: unknown", "")]
    missing_ranks: Annotated[list[int], about("of the job, of which no trace is compared")]
    hosts: Annotated[int, about("that are known", "")]
    steps: Annotated[int, about("that are compared", "")]
    sketched: Annotated[int, about("traces that were read now", "")]
    kept: Annotated[int, about("traces whose sketch was kept from an earlier time", "")]
    step_us: Annotated[FleetStepTime, about("time of a step of the job", "")]
    matched_collectives: Annotated[int, about("that at least two ranks have", "")]
    faults: Annotated[list[FleetFault], about("what is wrong: late ranks, slow machines, then the rest")]
    what_if: Annotated[list[FleetWithout], about("without the slowest rank, host and pipeline stage")]
    slowest_ranks: Annotated[list[FleetRank], about("latest first, as many as --top")]
    slowest_hosts: Annotated[list[FleetHost], about("latest first, as many as --top")]
    slowest_steps: Annotated[list[FleetStep], about("longest first, as many as --top")]
    failed: Annotated[list[FailedSource], about("what could not be used; [] for none")]


ANSWERS = (Fleet,)  # what `--json` prints
DIGITS = 6  # digits of shares and factors after the point


def build_fleet(report: FleetReport, limit: int, kept: int = 0) -> Fleet:
    """Build the answer of a compared fleet, with `limit` ranks, hosts and steps. `kept`: sketches from the cache."""
    fleet = report.fleet
    what_if = list_what_ifs(report, 1)
    times = np.nanmedian(fleet.durations, axis=0) / 1000
    return Fleet(
        ranks=len(fleet),
        world_size=fleet.world_size or None,
        missing_ranks=list(fleet.missing_ranks),
        hosts=len(fleet.host_members),
        steps=len(fleet.steps),
        sketched=max(len(fleet) - kept, 0),
        kept=min(kept, len(fleet)),
        step_us=FleetStepTime(
            p50=fleet.step_time / 1000,
            p95=float(np.nanquantile(times, 0.95)),
            without_slowest=what_if[0].step_us if what_if and len(what_if[0].ranks) == 1 else None,
        ),
        matched_collectives=len(report.checker.matched),
        faults=_build_faults(report),
        what_if=what_if,
        slowest_ranks=list_ranks(report, limit),
        slowest_hosts=list_hosts(report, limit),
        slowest_steps=list_steps(report, limit),
        failed=[FailedSource(source=each.source, reason=each.reason) for each in report.lost],
    )


def _build_faults(report: FleetReport) -> list[FleetFault]:
    records = []
    for finding, share in zip(report.findings, report.savings, strict=True):
        arrival = None
        if (found := finding.arrival) is not None:
            late_us, late_share = round(found.late / 1000, 3), round(found.late_share, DIGITS)
            arrival = fill(FleetArrival, found, late_us=late_us, late_share=late_share, steps=list(found.steps))
        records.append(
            fill(
                FleetFault,
                finding,
                kind=finding.kind.value,
                rank=int(report.fleet.ranks[finding.ranks[0]]) if len(finding.ranks) == 1 else None,
                ranks=report.fleet.ranks[list(finding.ranks)].tolist() if finding.ranks else [],
                host=finding.host or None,
                size=round(finding.size, DIGITS),
                arrival=arrival,
                why=finding.text,
                action=finding.kind.action,
                us=None if share is None else round(share * report.fleet.step_time / 1000, 3),
                share=None if share is None else round(share, DIGITS),
            )
        )
    return records


def list_what_ifs(report: FleetReport, limit: int) -> list[FleetWithout]:
    """List the job without each of the slowest ranks and hosts, `limit` of each, and without its slowest stage."""
    fleet = report.fleet
    chosen: list[tuple[str, Sequence[int]]] = [
        (fleet.label_rank(each.rank), (each.rank,)) for each in report.waits[:limit]
    ]
    chosen += [(f"host {host}", fleet.host_members[host].tolist()) for host in report.list_slowest_hosts(limit)]
    found = [(label, ranks, share) for label, ranks in chosen if (share := report.remove(ranks)) is not None]
    stage = find_slowest_stage(report.checker)
    return [
        FleetWithout(
            without=label,
            ranks=fleet.ranks[list(ranks)].tolist(),
            step_us=round(fleet.step_time * (1 - share) / 1000, 3),
            saved_share=round(share, DIGITS),
        )
        for label, ranks, share in [*found, *([] if stage is None else [stage])]
    ]


def list_ranks(report: FleetReport, limit: int) -> list[FleetRank]:
    """List the ranks by how late they usually are, then by how slow their GPU and CPU are."""
    fleet, checker = report.fleet, report.checker
    waits = {each.rank: each for each in report.waits}
    records = []
    factor = np.fmax(np.nan_to_num(checker.gpu.factor), np.nan_to_num(checker.cpu.factor))
    for index in np.lexsort((-factor, -report.slowness))[:limit].tolist():
        sketch, wait = fleet.sketches[index], waits.get(index)
        records.append(
            fill(
                FleetRank,
                sketch,
                rank=int(fleet.ranks[index]),
                host=fleet.hosts[index] or None,
                late_share=round(float(report.slowness[index]), DIGITS),
                gpu_factor=_find_median(checker.gpu.factor[[index]]),
                cpu_factor=_find_median(checker.cpu.factor[[index]]),
                step_us=float(np.nanmedian(fleet.durations[index])) / 1000,
                memory_peak_bytes=None if sketch.memory_peak == UNKNOWN_BYTES else sketch.memory_peak,
                waited_for=0 if wait is None else wait.collectives,
                delay_us=0.0 if wait is None else wait.delay / 1000,
            )
        )
    return records


def list_hosts(report: FleetReport, limit: int) -> list[FleetHost]:
    """List the slowest hosts."""
    members = {host: report.fleet.host_members[host] for host in report.list_slowest_hosts(limit)}
    return [
        FleetHost(
            host=host,
            ranks=report.fleet.ranks[ranks].tolist(),
            late_share=round(float(np.median(report.slowness[ranks])), DIGITS),
            gpu_factor=_find_median(report.checker.gpu.factor[ranks]),
            cpu_factor=_find_median(report.checker.cpu.factor[ranks]),
        )
        for host, ranks in members.items()
    ]


def list_steps(report: FleetReport, limit: int) -> list[FleetStep]:
    """List the steps by their median duration, the longest first."""
    fleet, medians = report.fleet, np.nanmedian(report.fleet.durations, axis=0)
    busy, exposed = measure_cells(report, Measure.BUSY), measure_cells(report, Measure.EXPOSED)
    records = []
    for step in np.argsort(-medians, kind="stable")[:limit].tolist():
        cause = next(iter(rank_waits(report.checker.matched, [step])), None)
        records.append(
            FleetStep(
                step=int(fleet.steps[step]),
                median_us=float(medians[step]) / 1000,
                longest_us=float(np.nanmax(fleet.durations[:, step])) / 1000,
                busy_share=_find_median(busy[:, step]),
                exposed_share=_find_median(exposed[:, step]),
                waited_for=None if cause is None else int(fleet.ranks[cause.rank]),
                delay_us=0.0 if cause is None else cause.delay / 1000,
            )
        )
    return records


def _find_median(values: F64) -> float | None:
    median = find_median(values)
    return None if median is None else round(median, DIGITS)
