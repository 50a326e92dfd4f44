"""Results of a comparison of two traces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torchprof_tui.analysis.compare.account import PartChange as AnalysedPart
from torchprof_tui.analysis.compare.comparison import Comparison
from torchprof_tui.analysis.compare.comparison_verdict import ChangeCause
from torchprof_tui.analysis.compare.matched_rows import ComparedRow
from torchprof_tui.analysis.compare.side_choice import (
    RankNumbers,
    analyse_side,
    compare_ranks_of_runs,
    format_label,
    select_ranks,
)
from torchprof_tui.analysis.compare.step_selection import StepSelection
from torchprof_tui.api.arguments import check_choice
from torchprof_tui.trace.model.trace import Trace

By = Literal["op", "module", "kernel"]
StepNumbers = tuple[int, int] | None
"""Numbers of the first and the last step, None for the steady ones."""

_BY = ("op", "module", "kernel")


@dataclass(frozen=True, slots=True)
class PartChange:
    """A part of a step on both sides, µs; `noise_us`: what the difference may be by chance, None if unknown."""

    id: str
    name: str
    a_us: float
    b_us: float
    delta_us: float
    noise_us: float | None
    within_noise: bool | None


@dataclass(frozen=True, slots=True)
class Cause:
    """A part of the step that changed. `pattern`: the id of the fired pattern that explains most of it, on `side`."""

    cause: str
    name: str
    delta_us: float
    pattern: str | None
    side: str
    line: str | None


@dataclass(frozen=True, slots=True)
class DiffRow:
    """Matched calls, per step. `status`: matched, changed, added or removed. `share`: of the whole difference."""

    status: str
    name_a: str
    name_b: str
    below: str
    calls_a: float
    calls_b: float
    cpu_us_a: float
    cpu_us_b: float
    gpu_us_a: float
    gpu_us_b: float
    delta_us: float
    share: float


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that was recorded differently, and what it means for the comparison."""

    what: str
    a: str
    b: str
    consequence: str


@dataclass(frozen=True, slots=True)
class RankChange:
    """The mean step of one rank of both runs, µs."""

    rank: int
    a_us: float
    b_us: float
    delta_us: float


@dataclass(frozen=True, slots=True)
class Diff:
    """What changed from A to B in one step; `parts` sum to `delta_us`, `rows` and `not_matched` to `total`.

    `headline`: the answer that is read first. `divided`: whether the parts are of the "gpu" or the "cpu".
    `noise_us`, `within_noise`: None where a side has one step. `steps_a`, `steps_b`: numbers of the compared steps.
    """

    headline: str
    is_same_recording: bool
    step_us_a: float
    step_us_b: float
    delta_us: float
    noise_us: float | None
    within_noise: bool | None
    divided: str
    parts: tuple[PartChange, ...]
    causes: tuple[Cause, ...]
    by: str
    rows: tuple[DiffRow, ...]
    not_matched: DiffRow
    total: DiffRow
    differences: tuple[Difference, ...]
    ranks: tuple[RankChange, ...]
    steps_a: tuple[int, ...]
    steps_b: tuple[int, ...]
    launches_per_step_a: float
    launches_per_step_b: float


def compare_traces(a: Trace, b: Trace, ranks: RankNumbers, steps: tuple[StepNumbers, StepNumbers], by: By) -> Diff:
    """Compare two traces. Raises ComparisonError, TraceError, OSError, LookupError."""
    check_choice("by", by, _BY, "rows are matched by")
    traces = select_ranks(a, b, ranks)
    selections = StepSelection(numbers=steps[0]), StepSelection(numbers=steps[1])
    sides = [
        analyse_side(trace, f"{name} ({original.label})", format_label(original.label, original, trace), selection)
        for name, original, trace, selection in zip(("A", "B"), (a, b), traces, selections, strict=True)
    ]
    return _build_diff(Comparison(sides[0], sides[1], compare_ranks_of_runs(a, b, ranks, selections)), by)


def _build_diff(comparison: Comparison, by: By) -> Diff:
    account, matched = comparison.account, comparison.match_rows(by)
    a, b = comparison.a, comparison.b
    return Diff(
        headline=comparison.verdict.headline,
        is_same_recording=comparison.is_same_recording,
        step_us_a=account.a / 1000,
        step_us_b=account.b / 1000,
        delta_us=account.delta / 1000,
        noise_us=None if account.noise is None else account.noise / 1000,
        within_noise=account.is_within_noise,
        divided="gpu" if account.is_of_gpu else "cpu",
        parts=tuple(map(_build_part, account.parts)),
        causes=tuple(map(_build_cause, comparison.verdict.causes)),
        by=by,
        rows=tuple(map(_build_row, matched.rows)),
        not_matched=_build_row(matched.not_matched),
        total=_build_row(matched.total),
        differences=tuple(Difference(each.what, each.a, each.b, each.consequence) for each in comparison.differences),
        ranks=tuple(
            RankChange(each.rank, each.a / 1000, each.b / 1000, each.delta / 1000) for each in comparison.ranks
        ),
        steps_a=tuple(step.number for step in a.side.steps),
        steps_b=tuple(step.number for step in b.side.steps),
        launches_per_step_a=a.launches_per_step,
        launches_per_step_b=b.launches_per_step,
    )


def _build_part(part: AnalysedPart) -> PartChange:
    noise = None if part.noise is None else part.noise / 1000
    return PartChange(part.id, part.label, part.a / 1000, part.b / 1000, part.delta / 1000, noise, part.is_within_noise)


def _build_cause(cause: ChangeCause) -> Cause:
    pattern = None if cause.pattern is None else cause.pattern.id
    return Cause(cause.part.id, cause.part.label, cause.part.delta / 1000, pattern, cause.side, cause.location)


def _build_row(row: ComparedRow) -> DiffRow:
    return DiffRow(
        status=row.status.value,
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
        share=row.share,
    )
