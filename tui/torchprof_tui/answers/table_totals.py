"""The totals of the tables: sums over all rows, by rank, by pattern."""

from __future__ import annotations

from typing import Annotated, Literal

from torchprof_tui.analysis.table import sheets as sums_of
from torchprof_tui.answers.record import Record, about, fill


class CallTotals(Record, frozen=True, kw_only=True):
    """Torch's totals."""

    self_cpu_us: Annotated[float, about("shares of CPU time are of it")]
    self_gpu_us: Annotated[float, about("shares of GPU time are of it")]
    outside_ops_us: Annotated[
        float | None, about("of the main thread, in which no op ran; only without GPU work and if it is long")
    ] = None
    outside_ops_of_us: Annotated[float | None, about("the time that this is a part of")] = None
    notes: Annotated[list[str], about("the lines below the printed table")]


class WorkTotals(Record, frozen=True, kw_only=True):
    """Sums over all rows."""

    calls: Annotated[int, about("events")]
    total_us: Annotated[float, about("sum of the durations")]
    bytes: Annotated[int | None, about("moved; null for kernels, and if unknown")]
    notes: Annotated[list[str], about("the lines below the printed table")]


class MemoryTotals(Record, frozen=True, kw_only=True):
    """Sums over all rows."""

    allocations: Annotated[int, about("number of allocations")]
    allocated_bytes: Annotated[int, about("sum of the allocations")]
    held_bytes: Annotated[int | None, about("never freed in the trace; null without recorded addresses")]
    frees: Annotated[int, about("number of frees")]
    freed_bytes: Annotated[int, about("sum of the frees")]
    freed_foreign_bytes: Annotated[int, about("of the whole trace: freed, but allocated before the recording")]
    notes: Annotated[list[str], about("the lines below the printed table")]


class RankArrivals(Record, frozen=True, kw_only=True):
    """How often a rank came last, and how long it waited."""

    rank: Annotated[int, about("number of the rank")]
    collectives: Annotated[int, about("those that it took part in")]
    last: Annotated[int, about("those at which it came last")]
    waited_us: Annotated[float | None, about("for other ranks; null if it took part in none")]


class ArrivalTotals(Record, frozen=True, kw_only=True):
    """Sums by rank, and what was not matched."""

    ranks: Annotated[list[RankArrivals], about("by number")]
    unmatched: Annotated[int, about("collectives without a match on another rank")]
    before_recording: Annotated[int, about("launched before the recording; left out")]
    incomplete: Annotated[int, about("missing on a rank of the group")]
    mismatched: Annotated[int, about("with another type or size on some ranks")]
    notes: Annotated[list[str], about("the lines below the printed table")]


class RepetitionDifference(Record, frozen=True, kw_only=True):
    """A kernel (or op) by which repetitions differ from the one that stands for all."""

    name: Annotated[str, about("as recorded")]
    more: Annotated[int, about("repetitions that have more of it")]
    fewer: Annotated[int, about("repetitions that have fewer of it, or none")]


class RepetitionPattern(Record, frozen=True, kw_only=True):
    """A pattern: what repeats, over all of its repetitions."""

    label: Annotated[str, about("level, with a letter where a level has several")]
    level: Annotated[int, about("1: the outermost")]
    parent: Annotated[str | None, about("label of the pattern around it; null for none")]
    is_unit: Annotated[bool, about("gone through like steps where the trace has none")]
    repetitions: Annotated[int, about("number of repetitions")]
    runs: Annotated[int, about("in how many runs, without anything between the repetitions of one")]
    events: Annotated[int, about("kernels (or ops) of one, the median")]
    p50_us: Annotated[float, about("median duration, from the first kernel to the last")]
    p95_us: Annotated[float, about("95 % are not longer")]
    min_us: Annotated[float, about("shortest")]
    max_us: Annotated[float, about("longest")]
    slowest: Annotated[int, about("number of the longest, from 0")]
    interval_us: Annotated[float | None, about("median from start to start; null without two in a run")]
    coverage: Annotated[float, about("share of the time of all kernels of the stream")]
    shown_start_us: Annotated[float, about("start of the one that stands for all, the most typical")]
    differing: Annotated[int, about("those with other kernels than that one")]
    kinds: Annotated[dict[str, int], about("launched by serving steps of each kind, as KIND_repetitions", "")]
    differences: Annotated[list[RepetitionDifference], about("in what, most frequent first; at most 16")]


class RepetitionTotals(Record, frozen=True, kw_only=True):
    """What was searched, and the patterns that were found."""

    unit: Annotated[Literal["kernels", "ops"], about("what was searched")]
    lane: Annotated[str, about("the stream, or the thread; empty if there is none")]
    events: Annotated[int, about("kernels of the stream, or outermost ops of the thread")]
    patterns: Annotated[list[RepetitionPattern], about("outermost first")]
    notes: Annotated[list[str], about("the lines below the printed table")]


def build_totals(sums: sums_of.SheetTotals | None, notes: list[str]) -> Record:
    if isinstance(sums, sums_of.CallTotals):
        window = sums.outside_window
        return fill(CallTotals, sums, outside_ops_of_us=None if window is None else window / 1000, notes=notes)
    if isinstance(sums, sums_of.WorkTotals):
        return WorkTotals(calls=sums.calls, total_us=sums.time / 1000, bytes=sums.bytes, notes=notes)
    if isinstance(sums, sums_of.MemoryTotals):
        return fill(MemoryTotals, sums, notes=notes)
    if isinstance(sums, sums_of.RepetitionTotals):
        patterns = [_build_pattern(pattern) for pattern in sums.patterns]
        unit = "kernels" if sums.unit == "kernels" else "ops"
        return fill(RepetitionTotals, sums, unit=unit, patterns=patterns, notes=notes)
    assert isinstance(sums, sums_of.ArrivalTotals)
    return fill(ArrivalTotals, sums, ranks=[fill(RankArrivals, rank) for rank in sums.ranks], notes=notes)


def _build_pattern(pattern: sums_of.PatternTotals) -> RepetitionPattern:
    return fill(
        RepetitionPattern,
        pattern,
        p50_us=pattern.median / 1000,
        min_us=pattern.shortest / 1000,
        max_us=pattern.longest / 1000,
        kinds=dict(pattern.kinds),
        differences=[
            RepetitionDifference(name=name, more=more, fewer=fewer) for name, more, fewer in pattern.differences
        ],
    )
