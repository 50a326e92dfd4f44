"""The answer of a check: the verdict, where the time goes, which patterns the trace shows, the longest gaps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

from torchprof_tui.analysis.patterns.engine.pattern import Finding as CheckedPattern
from torchprof_tui.analysis.patterns.engine.pattern import Pattern, Section, Severity, State, find_code_location
from torchprof_tui.analysis.patterns.verdict.check_report import CheckReport
from torchprof_tui.analysis.patterns.verdict.verdict import Regime
from torchprof_tui.analysis.patterns.verdict.verdict import Verdict as DecidedVerdict
from torchprof_tui.answers import html
from torchprof_tui.answers.arguments import check_choice
from torchprof_tui.answers.losses import Problem, build_losses
from torchprof_tui.answers.record import Answer, Record, about, attach, fill
from torchprof_tui.answers.serving import Serving, list_serving
from torchprof_tui.answers.time_parts import TimePart, build_time_parts
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.model.trace import Trace

SCHEMA = "torchprof-tui/check/3"

MAX_EVIDENCE = 50  # events listed as evidence of a pattern; `evidence_count` has the total


class Scope(Record, frozen=True, kw_only=True):
    """The part of the trace that was checked."""

    label: Annotated[str, about("in words")]
    start_ns: Annotated[int, about("from the trace's first event")]
    duration_ns: Annotated[int, about("shares are of it")]


class Verdict(Record, frozen=True, kw_only=True):
    """The answer that is read first: what limits the program and what to do about it."""

    regime: Annotated[Regime, about("what limits the program")]
    cannot_tell: Annotated[str | None, about("why the regime is unknown; only then")] = None
    gpu_busy: Annotated[float | None, about("of the steps (else of the scope), time in which the GPU works", "share")]
    first: Annotated[str, about("what costs most and what to do about it, one sentence")]
    cause: Annotated[str | None, about("the cause of `causes` that `first` is about")]
    what: Annotated[str, about("the part of `first` that says what costs most")]
    action: Annotated[str, about("the part of `first` that says what to do; empty for nothing")]
    why: Annotated[str, about("the numbers behind it")]
    line: Annotated[str | None, about("file:lineno of the code behind it; null if not recorded")]
    causes: Annotated[list[TimePart], about("the scope's time by cause; they sum to its duration; [] if unknown")]
    representative: Annotated[bool, about("whether the recording represents the program")]
    recording_fault: Annotated[str | None, about("why it does not, such as a first step; only then")] = None


class Threshold(Record, frozen=True, kw_only=True):
    """A number that a pattern is decided by."""

    name: Annotated[str, about("what is compared with it")]
    value: Annotated[float, about("in its unit", "")]
    unit: Annotated[str, about("ns, share, bytes, or what is counted")]
    reason: Annotated[str, about("why it has this value")]


class EvidenceEvent(Record, frozen=True, kw_only=True):
    """An event of the trace."""

    name: Annotated[str, about("as recorded")]
    start_ns: Annotated[int, about("from the trace's first event")]
    duration_ns: Annotated[int, about("with what it calls")]
    lane: Annotated[str, about("thread or stream, with its rank")]
    event: Annotated[int, about("number of the event in the trace, from 0")]


class Finding(Record, frozen=True, kw_only=True, dict=True):
    """A pattern and whether it occurs in the scope."""

    id: Annotated[str, about("stable name of the pattern")]
    section: Annotated[Section, about("section of the cheatsheet")]
    state: Annotated[State, about("a pattern that cannot be checked is cannot_tell, never absent")]
    severity: Annotated[Severity, about("if it fired: only a problem costs time that a change could save")]
    significant: Annotated[bool, about("a problem that fired and costs enough time")]
    title: Annotated[str, about("the pattern in a few words")]
    seen: Annotated[str, about("this trace's numbers, one line")]
    meaning: Annotated[str, about("what the pattern means")]
    action: Annotated[str, about("what to do, chosen for this trace")]
    code: Annotated[str, about("a line to paste; empty where none helps")]
    line: Annotated[str | None, about("file:lineno of the code behind it; null if not recorded")]
    reason: Annotated[str, about("what is missing, where the state is cannot_tell; else empty")]
    cannot_tell: Annotated[str | None, about("the same reason; only where the state is cannot_tell")] = None
    at_stake_us: Annotated[float, about("what it costs of `base`: at most what its evidence takes, without others'")]
    share: Annotated[float, about("the same, of `base`")]
    leading: Annotated[bool, about("the verdict is about it")]
    won_share: Annotated[
        float | None, about("what a fix saves at most, of `base`; only where the trace can tell, else null")
    ] = None
    decided: Annotated[str, about("how the pattern is decided")]
    thresholds: Annotated[list[Threshold], about("the numbers that it is decided by")]
    evidence_count: Annotated[int, about("events that show it")]
    evidence: Annotated[list[EvidenceEvent], about("the first of them, at most 50, in time order")]

    @property
    def has_fired(self) -> bool:
        return self.state is State.FIRED

    @property
    def events(self) -> I64:
        """The rows of all events that show it, int64[evidence_count]; only in Python."""
        events: I64 = self.__dict__["events"]
        return events


class NextEvent(Record, frozen=True, kw_only=True):
    """The GPU work that ended a gap."""

    name: Annotated[str, about("as recorded")]
    event: Annotated[int, about("number of the event in the trace, from 0")]


class Gap(Record, frozen=True, kw_only=True):
    """A stretch in which a GPU was idle."""

    start_ns: Annotated[int, about("from the trace's first event")]
    duration_ns: Annotated[int, about("of the gap")]
    rank: Annotated[int | None, about("rank; null for a single one")]
    device: Annotated[int, about("GPU, as its process numbers it")]
    cause: Annotated[str, about("the cause that explains most of it: dispatch, sync, host_code, …")]
    causes: Annotated[dict[str, float], about("all of them, as CAUSE_us; they sum to the duration", "µs")]
    place: Annotated[str, about("the ops around it")]
    line: Annotated[str | None, about("file:lineno where the launching thread was; null if not recorded")]
    line_text: Annotated[str | None, about("the same to show; also an annotation or module")]
    next_event: Annotated[NextEvent | None, about("the work that ended it")]


class Base(Record, frozen=True, kw_only=True):
    """The time that costs are shares of."""

    label: Annotated[str, about("in words: a step, all 3 steps, the recording, the range")]
    duration_ns: Annotated[
        int, about("of it, without the profiler's own time; of several ranks, of the one that takes longest")
    ]
    steps: Annotated[int, about("steps whose mean or sum it is; 0 without steps")]
    replayed: Annotated[list[str], about("names of the steps that were replayed for what fixes save; [] for none")]


class RankVerdict(Record, frozen=True, kw_only=True):
    """The verdict of one rank."""

    rank: Annotated[int, about("number of the rank")]
    verdict: Annotated[Verdict, about("its verdict")]


class Check(Answer, frozen=True, kw_only=True, tag=SCHEMA):
    """The verdict on a trace, where its time goes, and which patterns it shows."""

    scope: Annotated[Scope, about("what was checked")]
    verdict: Annotated[Verdict, about("the answer to read first; with several ranks that of the first one")]
    base: Annotated[Base, about("what costs are shares of")]
    patterns: Annotated[list[Finding], about("all patterns but the notes; problems by what they cost")]
    notes: Annotated[list[Finding], about("patterns that only help to read the trace; those that fired first")]
    not_predicted: Annotated[str | None, about("why what fixes save could not be predicted; else null")]
    gaps: Annotated[list[Gap], about("the longest gaps of the GPUs, longest first, at most 10")]
    serving: Annotated[list[Serving], about("steps of a serving engine that start in the scope, of each rank")]
    partial: Annotated[list[Problem], about("what was lost of the trace; [] for nothing")]
    ranks: Annotated[list[RankVerdict] | None, about("verdict of each rank; only with several")] = None
    failed_on: Annotated[
        list[str] | None, about("patterns of `--fail-on` that fired: the exit status is 1; only with `--fail-on`")
    ] = None
    undetermined: Annotated[
        list[str] | None,
        about(
            "patterns of `--fail-on` that cannot be checked here: the exit status is 3 if one is named and none fired; "
            "only with `--fail-on`"
        ),
    ] = None

    @property
    def problems(self) -> list[Finding]:
        """The problems that cost enough time to be listed as such, worst first."""
        return [found for found in self.patterns if found.significant]

    def _repr_html_(self) -> str:
        causes = ((part.label, html.format_share(part.share), part.us) for part in self.verdict.causes)
        problems = [
            (found.id, found.at_stake_us, html.format_share(found.share), found.seen, found.action, found.line)
            for found in self.problems
        ]
        untold = sum(found.state == "cannot_tell" for found in self.patterns)
        remark = f"{untold} of {len(self.patterns)} patterns cannot be checked in this trace." if untold else ""
        return html.build_block(
            f"{self.verdict.regime}: {self.verdict.first}",
            [self.verdict.why, self.verdict.recording_fault or "", remark],
            html.build_table(("time goes to", "share", "µs"), causes),
            html.build_table(("problem", "at stake µs", "share", "seen", "do", "line"), problems) if problems else "",
        )

    def finding(self, pattern_id: str) -> Finding:
        """Return the answer of one pattern. Raises TraceError for an unknown id."""
        known = [*self.patterns, *self.notes]
        ids = [found.id for found in known]
        return known[ids.index(check_choice("pattern_id", pattern_id, ids, "the patterns are"))]


class PatternEntry(Record, frozen=True, kw_only=True):
    """A pattern that `check` looks for."""

    id: Annotated[str, about("stable name of the pattern")]
    section: Annotated[Section, about("section of the cheatsheet")]
    severity: Annotated[Severity, about("what it means if it fires")]
    title: Annotated[str, about("the pattern in a few words")]
    meaning: Annotated[str, about("what it means")]
    action: Annotated[str, about("what to do")]
    code: Annotated[str, about("a line to paste; empty where none helps")]
    decided: Annotated[str, about("how it is decided")]
    thresholds: Annotated[list[Threshold], about("the numbers that it is decided by")]


class PatternList(Answer, frozen=True, kw_only=True, tag=SCHEMA):
    """`check --list --json`: all patterns, without a trace."""

    patterns: Annotated[list[PatternEntry], about("by section")]


def build_check(report: CheckReport, failed_on: Sequence[str] | None = None, undetermined: Sequence[str] = ()) -> Check:
    """Build the answer of a check. With several ranks `verdict` is that of the first, and `ranks` has all.

    `failed_on`, `undetermined`: ids of the patterns of `--fail-on` that fired or cannot be checked; None without it.
    """
    trace, scope = report.trace, report.scope
    verdicts = [_build_verdict(verdict) for verdict in report.verdicts]
    base = report.base
    return Check(
        scope=Scope(label=scope.label, start_ns=scope.t0, duration_ns=scope.length),
        verdict=verdicts[0],
        base=Base(label=base.label, duration_ns=base.unit, steps=base.steps, replayed=list(report.wins.steps)),
        patterns=[_build_finding(report, found) for found in report.findings if not found.is_note],
        notes=[_build_finding(report, found) for found in report.findings if found.is_note],
        not_predicted=report.wins.problem or None,
        gaps=[
            fill(
                Gap,
                gap,
                cause=gap.cause.id,
                causes={f"{cause.id}_us": time / 1000 for cause, time in gap.time_by_cause.items()},
                line=None if gap.line is None else gap.line.location,
                line_text=None if gap.line is None else gap.line.text or None,
                next_event=None if gap.next_event < 0 else NextEvent(name=gap.next_name, event=gap.next_event),
            )
            for gap in report.gaps
        ],
        serving=list_serving(trace, report.serving_range),
        partial=build_losses(trace),
        ranks=None
        if trace.merged_ranks is None
        else [
            RankVerdict(rank=rank.number, verdict=verdict)
            for rank, verdict in zip(trace.merged_ranks.all, verdicts, strict=True)
        ],
        failed_on=None if failed_on is None else list(failed_on),
        undetermined=None if failed_on is None else list(undetermined),
    )


def build_pattern_list(patterns: Iterable[Pattern]) -> PatternList:
    """Build the list of all patterns, by section."""
    return PatternList(
        patterns=[fill(PatternEntry, pattern, thresholds=_build_thresholds(pattern)) for pattern in patterns]
    )


def _build_verdict(verdict: DecidedVerdict) -> Verdict:
    return fill(
        Verdict,
        verdict,
        cannot_tell=verdict.first if verdict.regime is Regime.UNKNOWN else None,
        gpu_busy=verdict.busy,
        cause=verdict.cause or None,
        action=verdict.remedy,
        line=find_code_location(verdict),
        causes=build_time_parts(verdict.tree),
        representative=not verdict.recording_fault,
        recording_fault=verdict.recording_fault or None,
    )


def _build_finding(report: CheckReport, checked: CheckedPattern) -> Finding:
    pattern, said = checked.pattern, checked.answer
    finding = fill(
        Finding,
        pattern,
        state=said.state,
        significant=checked.is_significant,
        seen=said.seen,
        action=checked.remedy.action,
        code=checked.remedy.code,
        line=find_code_location(checked),
        reason=said.reason,
        cannot_tell=said.reason if said.state is State.CANNOT_TELL else None,
        at_stake_us=report.base.price(checked) / 1000 if checked.is_problem else 0.0,
        share=round(checked.share, 6) if checked.is_problem else 0.0,
        won_share=None if checked.claimed is None else round(checked.claimed, 6),
        leading=checked.is_leading,
        thresholds=_build_thresholds(pattern),
        evidence_count=len(said.events),
        evidence=[_build_event(report.trace, row) for row in said.events[:MAX_EVIDENCE].tolist()],
    )
    attach(finding, events=said.events)
    return finding


def _build_thresholds(pattern: Pattern) -> list[Threshold]:
    return [fill(Threshold, limit) for limit in pattern.thresholds]


def _build_event(trace: Trace, row: int) -> EvidenceEvent:
    event = trace.event(row)
    whose = "" if event.lane.rank is None else f"rank {event.lane.rank} "
    lane = whose + event.lane.label
    return EvidenceEvent(name=event.name, start_ns=event.start, duration_ns=event.duration, lane=lane, event=row)
