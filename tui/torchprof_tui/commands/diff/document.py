"""Build the JSON document of a comparison."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from torchprof_tui.analysis.compare.account import Account, PartChange
from torchprof_tui.analysis.compare.by_name import Device, compare_by_name
from torchprof_tui.analysis.compare.comparison import Comparison
from torchprof_tui.analysis.compare.comparison_verdict import ChangeCause, ComparisonVerdict
from torchprof_tui.analysis.compare.matched_rows import ComparedRow
from torchprof_tui.analysis.compare.memory_change import PeakChange
from torchprof_tui.analysis.compare.side import Side
from torchprof_tui.analysis.compare.side_analysis import SideAnalysis
from torchprof_tui.analysis.patterns.engine.pattern import Finding
from torchprof_tui.analysis.patterns.verdict.verdict import Verdict
from torchprof_tui.commands.diff.records import (
    ChangeCauseRecord,
    DiffDocument,
    DifferenceRecord,
    DiffVerdictRecord,
    GroupRecord,
    NameRecord,
    PartRecord,
    PeakChangeRecord,
    PeakPartRecord,
    PerStepRecord,
    RankChangeRecord,
    RowRecord,
    SidePatternRecord,
    SideRecord,
    SideVerdictRecord,
    StepTimeRecord,
)
from torchprof_tui.commands.diff.rows import CAUSE, CLASS, choose_matching, group_account
from torchprof_tui.commands.diff.time_limit import TimeLimit

ONE_STEP = "one step: its spread over steps is not known"


def build_document(comparison: Comparison, by: str, limit: TimeLimit | None = None) -> DiffDocument:
    """Build the document of a comparison; times are µs of one step, and `parts` sum to `step_us.delta`.

    `by`: op, module, kernel, class or cause, as of `--by`; `limit`: that of `--fail-on`.
    """
    account = comparison.account
    matched = comparison.match_rows(choose_matching(by))
    return DiffDocument(
        a=_build_side(comparison.a),
        b=_build_side(comparison.b),
        same_recording=comparison.is_same_recording,
        comparable=[
            DifferenceRecord(what=each.what, a=each.a, b=each.b, consequence=each.consequence)
            for each in comparison.differences
        ],
        step_us=_build_step(account),
        divided="gpu" if account.is_of_gpu else "cpu",
        parts=[_build_part(part) for part in account.parts],
        launches=PerStepRecord(a=comparison.a.launches_per_step, b=comparison.b.launches_per_step),
        gpu_work=PerStepRecord(a=comparison.a.work_per_step, b=comparison.b.work_per_step),
        verdict=_build_verdict(comparison.verdict),
        ranks=[
            RankChangeRecord(rank=each.rank, a_us=each.a / 1000, b_us=each.b / 1000, delta_us=each.delta / 1000)
            for each in comparison.ranks
        ],
        by=by,  # type: ignore[arg-type]
        ops=[_build_row(row) for row in matched.rows],
        ops_not_matched=_build_row(matched.not_matched),
        ops_total=_build_row(matched.total),
        memory=_build_peak_change(comparison.peak_change),
        by_name=_list_names(comparison),
        rows=_list_groups(account, by),
        failed=UNSET if limit is None else limit.is_exceeded(account),
    )


def _list_groups(account: Account, by: str) -> list[GroupRecord] | UnsetType:
    if by not in (CLASS, CAUSE):
        return UNSET
    return [
        GroupRecord(name=row.label, a_us=row.a / 1000, b_us=row.b / 1000, delta_us=row.delta / 1000)
        for row in group_account(account, by)
    ]


def _build_peak_change(change: PeakChange | None) -> PeakChangeRecord | None:
    if change is None:
        return None
    return PeakChangeRecord(
        device=change.device,
        a_bytes=change.a,
        b_bytes=change.b,
        delta_bytes=change.delta,
        parts=[
            PeakPartRecord(
                category=part.category,
                op=part.op or None,
                line=part.line or None,
                a_bytes=part.a,
                b_bytes=part.b,
                delta_bytes=part.delta,
            )
            for part in change.parts
            if part.delta
        ],
    )


def _build_row(row: ComparedRow) -> RowRecord:
    """Build a row of matched calls: a step's calls, CPU self time and GPU time; `share` of the total difference."""
    return RowRecord(
        status=row.status,
        name_a=row.name_a,
        name_b=row.name_b,
        below=row.below,
        calls_a=row.calls_a,
        calls_b=row.calls_b,
        cpu_us_a=row.cpu_ns_a / 1000,
        cpu_us_b=row.cpu_ns_b / 1000,
        gpu_us_a=row.gpu_ns_a / 1000,
        gpu_us_b=row.gpu_ns_b / 1000,
        delta_us=row.delta_ns / 1000,
        share=round(row.share, 6),
    )


def _list_names(comparison: Comparison) -> list[NameRecord]:
    """Build the list of all names: calls and time, with that of what they call, in the whole of both traces."""
    a, b = (
        Side(side.trace, side.side.label, (side.trace.span[0], side.trace.span[1] + 1), ())
        for side in (comparison.a, comparison.b)
    )
    devices: tuple[Device, ...] = ("cpu", "gpu")
    return [
        NameRecord(
            name=row.name,
            device="CPU" if device == "cpu" else "GPU",
            calls_a=row.count_a,
            calls_b=row.count_b,
            us_a=row.total_a / 1000,
            us_b=row.total_b / 1000,
        )
        for device in devices
        for row in compare_by_name(a, b, device)
    ]


def _build_side(side: SideAnalysis) -> SideRecord:
    return SideRecord(
        label=side.side.label,
        steps=[step.number for step in side.side.steps],
        start_ns=side.span[0],
        duration_ns=side.span[1] - side.span[0],
        left_out=list(side.side.left_out),
    )


def _build_step(account: Account) -> StepTimeRecord:
    return StepTimeRecord(
        a=account.a / 1000,
        b=account.b / 1000,
        delta=account.delta / 1000,
        noise=None if account.noise is None else account.noise / 1000,
        within_noise=account.is_within_noise,
        cannot_tell=ONE_STEP if account.noise is None else UNSET,
    )


def _build_part(part: PartChange) -> PartRecord:
    return PartRecord(
        id=part.id,
        name=part.label,
        a_us=part.a / 1000,
        b_us=part.b / 1000,
        delta_us=part.delta / 1000,
        noise_us=None if part.noise is None else part.noise / 1000,
        within_noise=part.is_within_noise,
    )


def _build_verdict(verdict: ComparisonVerdict) -> DiffVerdictRecord:
    return DiffVerdictRecord(
        first=verdict.headline,
        launches=verdict.launches or None,
        a=_build_side_verdict(verdict.a),
        b=_build_side_verdict(verdict.b),
        causes=[_build_cause(cause) for cause in verdict.causes],
        patterns_a_only=[_build_pattern(found) for found in verdict.patterns_a_only],
        patterns_b_only=[_build_pattern(found) for found in verdict.patterns_b_only],
    )


def _build_side_verdict(verdict: Verdict) -> SideVerdictRecord:
    return SideVerdictRecord(regime=verdict.regime, gpu_busy=verdict.busy, first=verdict.first)


def _build_cause(cause: ChangeCause) -> ChangeCauseRecord:
    return ChangeCauseRecord(
        cause=cause.part.id,
        name=cause.part.label,
        delta_us=cause.part.delta / 1000,
        within_noise=cause.part.is_within_noise,
        pattern=None if cause.pattern is None else cause.pattern.id,
        side=cause.side,
        line=cause.location,
        line_text=cause.line or None,
    )


def _build_pattern(found: Finding) -> SidePatternRecord:
    return SidePatternRecord(id=found.id, seen=found.answer.seen, share=round(found.share, 6))
