"""The answer of a comparison: what changed from recording A to recording B. Times are µs of one step."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, UnsetType

from torchprof_tui.analysis.compare.account import CAUSE, CLASS, group_account
from torchprof_tui.analysis.compare.comparison import Comparison
from torchprof_tui.analysis.compare.comparison_verdict import ChangeCause as FoundCause
from torchprof_tui.analysis.compare.comparison_verdict import ComparisonVerdict
from torchprof_tui.analysis.compare.matched_rows import ComparedRow, Device, RowStatus, choose_matching, compare_by_name
from torchprof_tui.analysis.compare.op_tree import Side
from torchprof_tui.analysis.compare.side_analysis import SideAnalysis
from torchprof_tui.analysis.patterns.verdict.verdict import Regime
from torchprof_tui.answers import html
from torchprof_tui.answers.record import Answer, Record, about, fill


class DiffSide(Record, frozen=True, kw_only=True):
    """One of the two recordings and what of it is compared."""

    label: Annotated[str, about("name of the trace")]
    steps: Annotated[list[int], about("numbers of the compared steps; [] for a range or a trace without steps")]
    start_ns: Annotated[int, about("of what is compared, from the trace's first event")]
    duration_ns: Annotated[int, about("of what is compared")]
    left_out: Annotated[list[str], about("steps that are not compared, and why")]


class Difference(Record, frozen=True, kw_only=True):
    """A property in which the recordings differ, so that times may not be comparable."""

    what: Annotated[str, about("the property")]
    a: Annotated[str, about("its value in A")]
    b: Annotated[str, about("its value in B")]
    consequence: Annotated[str, about("what that means for the comparison")]


class StepChange(Record, frozen=True, kw_only=True):
    """How long a step takes."""

    a: Annotated[float, about("in A", "µs")]
    b: Annotated[float, about("in B", "µs")]
    delta: Annotated[float, about("B less A", "µs")]
    noise: Annotated[float | None, about("differences up to this may be chance; null if unknown", "µs")]
    within_noise: Annotated[bool | None, about("the difference may be chance; null if unknown")]
    cannot_tell: Annotated[str | None, about("why the noise is unknown; only then")] = None


class PartChange(Record, frozen=True, kw_only=True):
    """A part of the step's time."""

    id: Annotated[str, about("stable name of the part")]
    name: Annotated[str, about("the part in words")]
    a_us: Annotated[float, about("in A")]
    b_us: Annotated[float, about("in B")]
    delta_us: Annotated[float, about("B less A")]
    noise_us: Annotated[float | None, about("differences up to this may be chance; null if unknown")]
    within_noise: Annotated[bool | None, about("the difference may be chance; null if unknown")]


class PerStep(Record, frozen=True, kw_only=True):
    """A number per step on both sides."""

    a: Annotated[float, about("in A")]
    b: Annotated[float, about("in B")]


class SideVerdict(Record, frozen=True, kw_only=True):
    """The verdict on one side, as `check` gives it."""

    regime: Annotated[Regime, about("what limits the program")]
    gpu_busy: Annotated[float | None, about("time in which the GPU works; null without a GPU", "share")]
    first: Annotated[str, about("what costs most and what to do about it")]


class OpChange(Record, frozen=True, kw_only=True):
    """An op by which a part of the step changed."""

    name: Annotated[str, about("as recorded")]
    delta_us: Annotated[float, about("B less A, of that part")]


class ChangeCause(Record, frozen=True, kw_only=True):
    """A part of the step that changed, and what explains it."""

    cause: Annotated[str, about("id of the part")]
    name: Annotated[str, about("the part in words")]
    delta_us: Annotated[float, about("B less A")]
    within_noise: Annotated[bool | None, about("the difference may be chance; null if unknown")]
    pattern: Annotated[str | None, about("id of the pattern that explains most of it; null for none")]
    side: Annotated[str, about("side on which the pattern fired: a or b; empty for none")]
    line: Annotated[str | None, about("file:lineno of the code behind it; null if not recorded")]
    line_text: Annotated[str | None, about("the same to show")]
    ops: Annotated[list[OpChange], about("ops that changed most in it; [] where none has a quarter of the change")]


class SidePattern(Record, frozen=True, kw_only=True):
    """A pattern that fired on one side only."""

    id: Annotated[str, about("stable name of the pattern")]
    seen: Annotated[str, about("that trace's numbers")]
    share: Annotated[float, about("time at stake of the compared time")]


class DiffVerdict(Record, frozen=True, kw_only=True):
    """The answer that is read first."""

    first: Annotated[
        str, about("how much longer or shorter a step is, why, and what to do; or why they cannot be compared")
    ]
    launches: Annotated[str | None, about("how the number of launches changed; null if it did not")]
    a: Annotated[SideVerdict, about("verdict on A")]
    b: Annotated[SideVerdict, about("verdict on B")]
    causes: Annotated[list[ChangeCause], about("largest changes")]
    patterns_a_only: Annotated[list[SidePattern], about("problems of A that B does not have")]
    patterns_b_only: Annotated[list[SidePattern], about("problems of B that A does not have")]


class RankChange(Record, frozen=True, kw_only=True):
    """The step of one rank."""

    rank: Annotated[int, about("number of the rank")]
    a_us: Annotated[float, about("in A")]
    b_us: Annotated[float, about("in B")]
    delta_us: Annotated[float, about("B less A")]


class DiffRow(Record, frozen=True, kw_only=True):
    """Matched calls of one step."""

    status: Annotated[RowStatus, about("how the two sides correspond")]
    name_a: Annotated[str, about("in A; empty if it is only in B")]
    name_b: Annotated[str, about("in B; empty if it is only in A")]
    below: Annotated[str, about("lowest common caller of a changed, added or removed row; empty for matched ones")]
    calls_a: Annotated[float, about("in A")]
    calls_b: Annotated[float, about("in B")]
    cpu_us_a: Annotated[float, about("CPU self time in A", "µs")]
    cpu_us_b: Annotated[float, about("CPU self time in B", "µs")]
    gpu_us_a: Annotated[float, about("GPU time in A", "µs")]
    gpu_us_b: Annotated[float, about("GPU time in B", "µs")]
    delta_us: Annotated[float, about("B less A, of GPU time, or of CPU self time without a GPU")]
    share: Annotated[float, about("of the total difference; negative where the row moves the other way")]


class NameChange(Record, frozen=True, kw_only=True):
    """All calls of one name in the whole of both traces."""

    name: Annotated[str, about("as recorded")]
    device: Annotated[Literal["CPU", "GPU"], about("where it ran")]
    calls_a: Annotated[int, about("in A")]
    calls_b: Annotated[int, about("in B")]
    us_a: Annotated[float, about("in A, with what it calls; of the whole trace", "µs")]
    us_b: Annotated[float, about("in B, with what it calls; of the whole trace", "µs")]


class GroupChange(Record, frozen=True, kw_only=True):
    """A class of kernels or a cause."""

    name: Annotated[str, about("in words")]
    a_us: Annotated[float, about("in A")]
    b_us: Annotated[float, about("in B")]
    delta_us: Annotated[float, about("B less A")]


class PeakPart(Record, frozen=True, kw_only=True):
    """Memory that is alive at the peak of A or of B."""

    category: Annotated[str, about("what it is for, as `memory` tells")]
    op: Annotated[str | None, about("op that allocated it; null for none")]
    line: Annotated[str | None, about("file:line function of the program; null if not recorded")]
    a_bytes: Annotated[int, about("at the peak of A")]
    b_bytes: Annotated[int, about("at the peak of B")]
    delta_bytes: Annotated[int, about("B less A")]


class PeakChange(Record, frozen=True, kw_only=True):
    """The peak of memory in the whole of both recordings."""

    device: Annotated[str, about("device with the highest peak of A")]
    a_bytes: Annotated[int, about("peak of A")]
    b_bytes: Annotated[int, about("peak of B")]
    delta_bytes: Annotated[int, about("B less A")]
    parts: Annotated[list[PeakPart], about("what differs, largest change first; they sum to `delta_bytes`")]


class Diff(Answer, frozen=True, kw_only=True, tag="torchprof-tui/diff/1"):
    """What changed from recording A to recording B. `parts` sum to `step_us.delta`."""

    a: Annotated[DiffSide, about("the first recording")]
    b: Annotated[DiffSide, about("the second recording")]
    same_recording: Annotated[bool, about("both are the same file")]
    comparable: Annotated[list[Difference], about("properties in which they differ; [] for none")]
    step_us: Annotated[StepChange, about("how long a step takes")]
    divided: Annotated[Literal["gpu", "cpu"], about("whose time the parts divide: the GPUs', or the main thread's")]
    parts: Annotated[list[PartChange], about("those beyond the noise first")]
    launches: Annotated[PerStep, about("calls of a step that launch GPU work")]
    gpu_work: Annotated[PerStep, about("kernels, copies and fills of a step")]
    verdict: Annotated[DiffVerdict, about("the answer to read first")]
    ranks: Annotated[list[RankChange], about("step by rank; [] for a single one")]
    by: Annotated[Literal["op", "module", "kernel", "class", "cause"], about("value of --by")]
    ops: Annotated[list[DiffRow], about("matched calls, largest difference first")]
    ops_not_matched: Annotated[DiffRow, about("what no row has")]
    ops_total: Annotated[DiffRow, about("sum of all rows and of what is not matched")]
    memory: Annotated[PeakChange | None, about("what is new at the peak of memory; null where a side recorded none")]
    by_name: Annotated[list[NameChange], about("all names, in the whole of both traces")]
    rows: Annotated[list[GroupChange] | None, about("rows of the table; only with --by class or cause")] = None
    failed: Annotated[
        bool | UnsetType | None,
        about("the limit of `--fail-on` is exceeded; null, and exit status 3, if unknown; only with `--fail-on`"),
    ] = UNSET

    def _repr_html_(self) -> str:
        step = self.step_us
        line = f"a step: {step.a:,.1f} → {step.b:,.1f} µs ({step.delta:+,.1f} µs)"
        parts = ((part.name, part.a_us, part.b_us, part.delta_us, part.noise_us) for part in self.parts)
        ops = sorted(self.ops, key=lambda row: -abs(row.delta_us))
        side = ("gpu_us_a", "gpu_us_b") if self.divided == "gpu" else ("cpu_us_a", "cpu_us_b")
        calls = [(row.name_a or row.name_b, *(getattr(row, name) for name in side), row.delta_us) for row in ops]
        return html.build_block(
            self.verdict.first,
            [line, *(f"{each.what}: {each.a}, {each.b}: {each.consequence}" for each in self.comparable)],
            html.build_table(("part of a step", "A µs", "B µs", "B - A µs", "noise µs"), parts),
            html.build_table(("call", "A µs", "B µs", "B - A µs"), calls[:10], len(calls)) if calls else "",
        )


ONE_STEP = "one step: its spread over steps is not known"


def build_diff(comparison: Comparison, by: str, failed: bool | UnsetType | None = UNSET) -> Diff:
    """Build the document of a comparison. `by`: as of `--by`; `failed`: whether `--fail-on` fired."""
    account = comparison.account
    matched, peak = comparison.match_rows(choose_matching(by)), comparison.peak_change
    peak_parts = [] if peak is None else [part for part in peak.parts if part.delta]
    return Diff(
        a=_build_side(comparison.a),
        b=_build_side(comparison.b),
        same_recording=comparison.is_same_recording,
        comparable=[fill(Difference, each) for each in comparison.differences],
        step_us=StepChange(
            a=account.a / 1000,
            b=account.b / 1000,
            delta=account.delta / 1000,
            noise=None if account.noise is None else account.noise / 1000,
            within_noise=account.is_within_noise,
            cannot_tell=ONE_STEP if account.noise is None else None,
        ),
        divided="gpu" if account.is_of_gpu else "cpu",
        parts=[fill(PartChange, part, name=part.label, within_noise=part.is_within_noise) for part in account.parts],
        launches=PerStep(a=comparison.a.launches_per_step, b=comparison.b.launches_per_step),
        gpu_work=PerStep(a=comparison.a.work_per_step, b=comparison.b.work_per_step),
        verdict=_build_verdict(comparison.verdict),
        ranks=[fill(RankChange, each) for each in comparison.ranks],
        by=by,  # type: ignore[arg-type]
        ops=[_build_row(row) for row in matched.rows],
        ops_not_matched=_build_row(matched.not_matched),
        ops_total=_build_row(matched.total),
        memory=None
        if peak is None
        else fill(
            PeakChange,
            peak,
            parts=[fill(PeakPart, part, op=part.op or None, line=part.line or None) for part in peak_parts],
        ),
        by_name=_list_names(comparison),
        rows=[fill(GroupChange, row, name=row.label) for row in group_account(account, by)]
        if by in (CLASS, CAUSE)
        else None,
        failed=failed,
    )


def _build_row(row: ComparedRow) -> DiffRow:
    return fill(
        DiffRow,
        row,
        cpu_us_a=row.cpu_ns_a / 1000,
        cpu_us_b=row.cpu_ns_b / 1000,
        gpu_us_a=row.gpu_ns_a / 1000,
        gpu_us_b=row.gpu_ns_b / 1000,
        delta_us=row.delta_ns / 1000,
        share=round(row.share, 6),
    )


def _list_names(comparison: Comparison) -> list[NameChange]:
    """Build the list of all names: calls and time, with that of what they call, in the whole of both traces."""
    a, b = (
        Side(side.trace, side.side.label, (side.trace.span[0], side.trace.span[1] + 1), ())
        for side in (comparison.a, comparison.b)
    )
    devices: tuple[Device, ...] = ("cpu", "gpu")
    return [
        NameChange(
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


def _build_side(side: SideAnalysis) -> DiffSide:
    return DiffSide(
        label=side.side.label,
        steps=[step.number for step in side.side.steps],
        start_ns=side.span[0],
        duration_ns=side.span[1] - side.span[0],
        left_out=list(side.side.left_out),
    )


def _build_verdict(verdict: ComparisonVerdict) -> DiffVerdict:
    a, b = (fill(SideVerdict, side, gpu_busy=side.busy) for side in (verdict.a, verdict.b))
    only_a, only_b = (
        [SidePattern(id=found.id, seen=found.answer.seen, share=round(found.share, 6)) for found in findings]
        for findings in (verdict.patterns_a_only, verdict.patterns_b_only)
    )
    causes = [_build_cause(cause) for cause in verdict.causes]
    launches = verdict.launches or None
    return fill(
        DiffVerdict, verdict, launches=launches, a=a, b=b, causes=causes, patterns_a_only=only_a, patterns_b_only=only_b
    )


def _build_cause(cause: FoundCause) -> ChangeCause:
    return ChangeCause(
        cause=cause.part.id,
        name=cause.part.label,
        delta_us=cause.part.delta / 1000,
        within_noise=cause.part.is_within_noise,
        pattern=None if cause.pattern is None else cause.pattern.id,
        side=cause.side,
        line=cause.location,
        line_text=cause.line or None,
        ops=[OpChange(name=op.text, delta_us=op.delta / 1000) for op in cause.ops],
    )
