"""The records of `fleet --json`."""

from __future__ import annotations

from typing import Annotated

from torchprof_tui.commands.common.json_document import Document, Record, about


class FleetStepRecord(Record, frozen=True, kw_only=True):
    """One step of the job."""

    step: Annotated[int, about("its number; -1: the whole recording of ranks without steps", "")]
    median_us: Annotated[float, about("of the ranks' step times")]
    longest_us: Annotated[float, about("of the ranks' step times")]
    busy_share: Annotated[float | None, about("of the median rank: GPU busy, of its step; null without a GPU")]
    exposed_share: Annotated[float | None, about("of the median rank: collectives while nothing computes, of its step")]
    waited_for: Annotated[int | None, about("number of the rank that others waited for most; null: nobody waited", "")]
    delay_us: Annotated[float, about("that the median rank waited for it in this step")]


class FleetRankRecord(Record, frozen=True, kw_only=True):
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


class FleetHostRecord(Record, frozen=True, kw_only=True):
    """One host: the medians of its ranks."""

    host: Annotated[str, about("its name")]
    ranks: Annotated[list[int], about("its ranks")]
    late_share: Annotated[float, about("of a step")]
    gpu_factor: Annotated[float | None, about("as of a rank", "")]
    cpu_factor: Annotated[float | None, about("as of a rank", "")]


class FleetFindingRecord(Record, frozen=True, kw_only=True):
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


class WhatIfRecord(Record, frozen=True, kw_only=True):
    """The job without the slowness of some ranks, replayed over its collectives."""

    without: Annotated[str, about("rank 17, host node2, or the excess of pipeline stage 3")]
    ranks: Annotated[list[int], about("their numbers")]
    step_us: Annotated[float, about("step time of the job then")]
    saved_share: Annotated[float, about("of the job's time")]


class FleetDocument(Document, frozen=True, kw_only=True, tag="torchprof-tui/fleet/1"):
    """All ranks of a job, compared."""

    ranks: Annotated[int, about("that are compared", "")]
    world_size: Annotated[int | None, about("of the job, as recorded; null: unknown", "")]
    missing_ranks: Annotated[list[int], about("of the job, without a trace")]
    hosts: Annotated[int, about("that are known", "")]
    step_us: Annotated[float, about("median step time")]
    matched_collectives: Annotated[int, about("that at least two ranks have", "")]
    findings: Annotated[list[FleetFindingRecord], about("what is wrong, slow machines first")]
    what_if: Annotated[list[WhatIfRecord], about("without the slowest rank, host and pipeline stage")]
    slowest_ranks: Annotated[list[FleetRankRecord], about("latest first, as many as --top")]
    slowest_hosts: Annotated[list[FleetHostRecord], about("latest first, as many as --top")]
    slowest_steps: Annotated[list[FleetStepRecord], about("longest first, as many as --top")]
    lost: Annotated[list[str], about("files that could not be used, one line each; [] for none")]
