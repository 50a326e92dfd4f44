"""Build the JSON document of `table --json`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET

from torchprof_tui.analysis.table.empty_sheets import explain_missing_records
from torchprof_tui.analysis.table.export import to_records
from torchprof_tui.analysis.table.sheets import Sheet
from torchprof_tui.analysis.table.totals import (
    ArrivalTotals,
    CallTotals,
    MemoryTotals,
    PatternTotals,
    RepetitionTotals,
    SheetTotals,
    WorkTotals,
)
from torchprof_tui.commands.common.json_document import Record
from torchprof_tui.commands.table.records import (
    ArrivalsDocument,
    ArrivalTotalsRecord,
    CallsDocument,
    CallTotalsRecord,
    CollectivesDocument,
    CopiesDocument,
    DifferenceRecord,
    KernelsDocument,
    MemoryDocument,
    MemoryTotalsRecord,
    PatternRecord,
    RankArrivalsRecord,
    RepetitionsDocument,
    RepetitionTotalsRecord,
    TableDocument,
    WorkTotalsRecord,
)
from torchprof_tui.trace.model.trace import Trace

_DOCUMENTS: dict[str, type[TableDocument]] = {
    "kernels": KernelsDocument,
    "copies": CopiesDocument,
    "collectives": CollectivesDocument,
    "memory": MemoryDocument,
    "arrivals": ArrivalsDocument,
    "repetitions": RepetitionsDocument,
}


@dataclass(frozen=True, slots=True)
class TableQuestion:
    """Which table was asked for: `of` as in TABLE_NAMES, `by` as in GROUPINGS, of a `step` or all, of a `rank`."""

    of: str = "calls"
    by: str = "name"
    step: int | None = None
    rank: int | None = None


def build_document(trace: Trace, asked: TableQuestion, sheet: Sheet, rows: Sequence[int]) -> TableDocument:
    """Build the document of a sheet: its `rows` in this order, and the totals of all rows.

    The rows are those of `to_records`, which the CSV has as well; times in µs.
    """
    reason = "" if len(sheet) else explain_missing_records(trace, asked.of, is_restricted=asked.step is not None)
    fields: dict[str, Any] = {
        "of": asked.of,
        "step": asked.step,
        "rank": UNSET if asked.rank is None else asked.rank,
        "row_count": len(sheet),
        "cannot_tell": reason or UNSET,
        "rows": to_records(sheet, rows),
        "totals": _build_totals(sheet.sums, list(sheet.totals)),
    }
    if asked.of == "calls":
        return CallsDocument(**fields, by=asked.by)  # type: ignore[arg-type]
    return _DOCUMENTS[asked.of](**fields)


def _build_totals(sums: SheetTotals | None, notes: list[str]) -> Record:
    if isinstance(sums, CallTotals):
        outside, window = sums.outside_ops, sums.outside_window
        return CallTotalsRecord(
            self_cpu_us=sums.self_cpu / 1000,
            self_gpu_us=sums.self_gpu / 1000,
            outside_ops_us=UNSET if outside is None else outside / 1000,
            outside_ops_of_us=UNSET if window is None else window / 1000,
            notes=notes,
        )
    if isinstance(sums, WorkTotals):
        return WorkTotalsRecord(calls=sums.calls, total_us=sums.time / 1000, bytes=sums.bytes, notes=notes)
    if isinstance(sums, MemoryTotals):
        return MemoryTotalsRecord(
            allocations=sums.allocations,
            allocated_bytes=sums.allocated,
            held_bytes=sums.held,
            frees=sums.frees,
            freed_bytes=sums.freed,
            freed_foreign_bytes=sums.freed_foreign,
            notes=notes,
        )
    if isinstance(sums, RepetitionTotals):
        patterns = [_build_pattern(pattern) for pattern in sums.patterns]
        return RepetitionTotalsRecord(
            unit="kernels" if sums.unit == "kernels" else "ops",
            lane=sums.lane,
            events=sums.events,
            patterns=patterns,
            notes=notes,
        )
    assert isinstance(sums, ArrivalTotals)
    return _build_arrival_totals(sums, notes)


def _build_pattern(pattern: PatternTotals) -> PatternRecord:
    return PatternRecord(
        label=pattern.label,
        level=pattern.level,
        parent=pattern.parent,
        is_unit=pattern.is_unit,
        repetitions=pattern.repetitions,
        runs=pattern.runs,
        events=pattern.events,
        p50_us=pattern.median / 1000,
        p95_us=pattern.p95 / 1000,
        min_us=pattern.shortest / 1000,
        max_us=pattern.longest / 1000,
        slowest=pattern.slowest,
        interval_us=None if pattern.interval is None else pattern.interval / 1000,
        coverage=pattern.coverage,
        shown_start_us=pattern.shown_start / 1000,
        differing=pattern.differing,
        kinds=dict(pattern.kinds),
        differences=[DifferenceRecord(name=name, more=more, fewer=fewer) for name, more, fewer in pattern.differences],
    )


def _build_arrival_totals(sums: ArrivalTotals, notes: list[str]) -> ArrivalTotalsRecord:
    return ArrivalTotalsRecord(
        ranks=[
            RankArrivalsRecord(
                rank=rank.rank,
                collectives=rank.collectives,
                last=rank.last,
                waited_us=None if rank.waited is None else rank.waited / 1000,
            )
            for rank in sums.ranks
        ],
        unmatched=sums.unmatched,
        before_recording=sums.before_recording,
        incomplete=sums.incomplete,
        mismatched=sums.mismatched,
        notes=notes,
    )
