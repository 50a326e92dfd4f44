"""Results of a check: the verdict, what was found, where the time went."""

from __future__ import annotations

from dataclasses import dataclass, field

from torchprof_tui.analysis.doctor.examination import diagnose_trace
from torchprof_tui.analysis.doctor.remark import Remark
from torchprof_tui.analysis.patterns.engine.check_scope import default_scope, range_scope
from torchprof_tui.analysis.patterns.engine.code_location import find_code_location
from torchprof_tui.analysis.patterns.engine.largest_gaps import LargestGap
from torchprof_tui.analysis.patterns.engine.pattern import Finding as AnalysedFinding
from torchprof_tui.analysis.patterns.verdict.check_report import CheckReport, check_trace
from torchprof_tui.analysis.patterns.verdict.own_time import NO_TIME
from torchprof_tui.analysis.patterns.verdict.tree_model import TimePart as AnalysedPart
from torchprof_tui.analysis.patterns.verdict.tree_model import TimeTree
from torchprof_tui.analysis.patterns.verdict.verdict import Verdict as AnalysedVerdict
from torchprof_tui.analysis.serving.report import report_serving
from torchprof_tui.analysis.serving.serving_steps import ServingReport
from torchprof_tui.api.arguments import check_choice
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.model.trace import Trace


@dataclass(frozen=True, slots=True)
class TimePart:
    """A part of the checked time: its cause, µs (the mean of the GPUs), its share 0..1, and what lies inside."""

    cause: str
    label: str
    us: float
    share: float
    parts: tuple[TimePart, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer that is read first.

    `regime`: overhead-bound, compute-bound, … `gpu_busy`: share of the steps, 0..1, None without a GPU. `first`: what
    costs most and what to do. `cause`: the part of the time that it is about. `line`: "file:lineno". `recording_fault`:
    why the recording does not represent the program, "" if it does. `rank`: of several ranks, which one.
    """

    regime: str
    gpu_busy: float | None
    first: str
    cause: str
    what: str
    action: str
    why: str
    line: str | None
    recording_fault: str
    rank: int | None
    time: tuple[TimePart, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer of one pattern. `state`: fired, absent or cannot_tell (`reason` says why).

    `severity`: problem, notice or artefact. `is_significant`: a problem that costs half a percent of the time or more.
    `at_stake_us`: what a fix could save at most. `won_share`: what it saves of a step, predicted by a replay, None
    where that is not known; problems are ranked by it. `own_us`: the time that this pattern alone explains, None where
    the time is not divided. `events`: the rows that show it, int64[k].
    """

    id: str
    state: str
    severity: str
    is_significant: bool
    title: str
    seen: str
    meaning: str
    action: str
    code: str
    line: str | None
    reason: str
    at_stake_us: float
    share: float
    own_us: float | None
    own_share: float | None
    won_share: float | None
    events: I64 = field(repr=False, compare=False)

    @property
    def has_fired(self) -> bool:
        return self.state == "fired"


@dataclass(frozen=True, slots=True)
class Gap:
    """A stretch in which a GPU was idle. `place`: the ops around it. `next_event`: the row of the work that ends it."""

    start_ns: int
    duration_ns: int
    device: int
    rank: int | None
    cause: str
    place: str
    line: str | None
    next_event: int | None


@dataclass(frozen=True, slots=True)
class Check:
    """A checked range. `findings`: one per pattern, worst first. `verdicts`: one per rank. `gaps`: the longest ones.

    `serving`: one per rank: the steps of a serving engine by kind, of those that start in the range; `missing` says why
    there are none.
    """

    start_ns: int
    duration_ns: int
    verdicts: tuple[Verdict, ...]
    findings: tuple[Finding, ...]
    gaps: tuple[Gap, ...]
    serving: tuple[ServingReport, ...] = field(repr=False, compare=False)

    @property
    def verdict(self) -> Verdict:
        """The verdict; of several ranks that of the first."""
        return self.verdicts[0]

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The problems that cost enough time to be listed as such, worst first."""
        return tuple(found for found in self.findings if found.is_significant)

    def finding(self, pattern_id: str) -> Finding:
        """Return the answer of one pattern. Raises TraceError for an unknown id."""
        ids = [found.id for found in self.findings]
        return self.findings[ids.index(check_choice("pattern_id", pattern_id, ids, "the patterns are"))]


def check_range(trace: Trace, start_ns: int | None, end_ns: int | None) -> Check:
    """Check a range of a trace, by default all of it. Raises TraceError for an empty range, OSError, LookupError."""
    if start_ns is None and end_ns is None:
        return _build_check(check_trace(trace, default_scope(trace)))
    first, last = trace.span
    t0, t1 = first if start_ns is None else start_ns, last if end_ns is None else end_ns
    if t1 <= t0:
        raise TraceError(f"no time between {t0} and {t1} ns; the trace goes from {first} to {last} ns")
    return _build_check(check_trace(trace, range_scope(t0, t1)))


def list_remarks(trace: Trace) -> tuple[Remark, ...]:
    """List what the doctor says of a file."""
    return tuple(diagnose_trace(trace).remarks)


def _build_check(report: CheckReport) -> Check:
    merged = report.trace.merged_ranks
    ranks = [None] * len(report.verdicts) if merged is None else [rank.number for rank in merged.all]
    return Check(
        start_ns=report.scope.t0,
        duration_ns=report.scope.length,
        verdicts=tuple(_build_verdict(verdict, rank) for verdict, rank in zip(report.verdicts, ranks, strict=True)),
        findings=tuple(_build_finding(report, found) for found in report.findings),
        gaps=tuple(map(_build_gap, report.gaps)),
        serving=tuple(report_serving(rank.trace, report.serving_range) for rank in report.trace.all_ranks),
    )


def _build_verdict(verdict: AnalysedVerdict, rank: int | None) -> Verdict:
    tree = verdict.tree
    return Verdict(
        regime=verdict.regime.value,
        gpu_busy=verdict.busy,
        first=verdict.first,
        cause=verdict.cause,
        what=verdict.what,
        action=verdict.remedy,
        why=verdict.why,
        line=find_code_location(verdict),
        recording_fault=verdict.recording_fault,
        rank=rank,
        time=() if tree is None else tuple(_build_part(tree, part) for part in tree.parts),
    )


def _build_part(tree: TimeTree, part: AnalysedPart) -> TimePart:
    inside = tuple(_build_part(tree, inner) for inner in part.parts)
    return TimePart(part.id, part.label, part.time / tree.device_count / 1000, tree.share(part), inside)


def _build_finding(report: CheckReport, found: AnalysedFinding) -> Finding:
    tree, own = report.divided_tree, None
    if found.has_fired and tree is not None:
        own = report.own_times.get(found.id, NO_TIME)
    return Finding(
        id=found.id,
        state=found.state.value,
        severity=found.pattern.severity.value,
        is_significant=found.is_significant,
        title=found.pattern.title,
        seen=found.answer.seen,
        meaning=found.pattern.meaning,
        action=found.remedy.action,
        code=found.remedy.code,
        line=find_code_location(found),
        reason=found.answer.reason,
        at_stake_us=found.answer.at_stake / 1000,
        share=found.share,
        own_us=None if own is None or tree is None else own.time / (1000 * tree.device_count),
        own_share=None if own is None else own.share,
        won_share=found.won,
        events=found.answer.events,
    )


def _build_gap(gap: LargestGap) -> Gap:
    return Gap(
        start_ns=gap.start,
        duration_ns=gap.duration,
        device=gap.device,
        rank=gap.rank,
        cause=gap.cause.id,
        place=gap.place,
        line=None if gap.line is None else gap.line.location or None,
        next_event=None if gap.next_event < 0 else gap.next_event,
    )
