"""The records of `check --json`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, UnsetType

from torchprof_tui.analysis.patterns.engine.pattern import Section, Severity, State
from torchprof_tui.analysis.patterns.verdict.verdict import Regime
from torchprof_tui.commands.common.json_document import Document, Record, about
from torchprof_tui.commands.common.partial_input import ProblemRecord
from torchprof_tui.commands.common.serving_records import ServingRecord
from torchprof_tui.commands.common.time_tree import TimeRecord

SCHEMA = "torchprof-tui/check/1"

SUMMARY: Literal["summary"] = "summary"
"""Stands for the causes of a pattern that sums up what others explain: no time is its own."""


class ScopeRecord(Record, frozen=True, kw_only=True):
    """The part of the trace that was checked."""

    label: Annotated[str, about("in words")]
    start_ns: Annotated[int, about("from the trace's first event")]
    duration_ns: Annotated[int, about("shares are of it")]


class VerdictRecord(Record, frozen=True, kw_only=True):
    """The answer that is read first: what limits the program and what to do about it."""

    regime: Annotated[Regime, about("what limits the program")]
    cannot_tell: Annotated[str | UnsetType, about("why the regime is unknown; only then")] = UNSET
    gpu_busy: Annotated[float | None, about("of the steps (else of the scope), time in which the GPU works", "share")]
    first: Annotated[str, about("what costs most and what to do about it, one sentence")]
    cause: Annotated[str | None, about("the cause of `causes` that `first` is about")]
    what: Annotated[str, about("the part of `first` that says what costs most")]
    action: Annotated[str, about("the part of `first` that says what to do; empty for nothing")]
    why: Annotated[str, about("the numbers behind it")]
    line: Annotated[str | None, about("file:lineno of the code behind it; null if not recorded")]
    causes: Annotated[list[TimeRecord], about("the scope's time by cause; they sum to its duration; [] if unknown")]
    representative: Annotated[
        bool | str, about("true, or why the recording does not represent the program, such as a first step")
    ]


class ThresholdRecord(Record, frozen=True, kw_only=True):
    """A number that a pattern is decided by."""

    name: Annotated[str, about("what is compared with it")]
    value: Annotated[float, about("in its unit", "")]
    unit: Annotated[str, about("ns, share, bytes, or what is counted")]
    reason: Annotated[str, about("why it has this value")]


class EventRecord(Record, frozen=True, kw_only=True):
    """An event of the trace."""

    name: Annotated[str, about("as recorded")]
    start_ns: Annotated[int, about("from the trace's first event")]
    duration_ns: Annotated[int, about("with what it calls")]
    lane: Annotated[str, about("thread or stream, with its rank")]
    event: Annotated[int, about("number of the event in the trace, from 0")]


class OwnCauseRecord(Record, frozen=True, kw_only=True):
    """A part of the time that a pattern alone explains."""

    cause: Annotated[str, about("id of the cause in `verdict.causes`")]
    us: Annotated[float, about("of the pattern's own time in it")]


class FindingRecord(Record, frozen=True, kw_only=True):
    """A pattern and whether it occurs in the scope."""

    id: Annotated[str, about("stable name of the pattern")]
    section: Annotated[Section, about("section of the cheatsheet")]
    state: Annotated[State, about("a pattern that cannot be checked is cannot_tell, never absent")]
    weight: Annotated[Severity, about("what it means if it fired: only a problem costs time that a change could save")]
    significant: Annotated[bool, about("a problem that fired and costs enough time")]
    title: Annotated[str, about("the pattern in a few words")]
    seen: Annotated[str, about("this trace's numbers, one line")]
    meaning: Annotated[str, about("what the pattern means")]
    action: Annotated[str, about("what to do, chosen for this trace")]
    code: Annotated[str, about("a line to paste; empty where none helps")]
    line: Annotated[str | None, about("file:lineno of the code behind it; null if not recorded")]
    reason: Annotated[str, about("what is missing, where the state is cannot_tell; else empty")]
    cannot_tell: Annotated[str | UnsetType, about("the same reason; only where the state is cannot_tell")] = UNSET
    at_stake_us: Annotated[float, about("what a fix could save at most")]
    share: Annotated[float, about("time at stake of the scope")]
    won_share: Annotated[
        float | UnsetType, about("of a step, predicted by what-if; only of problems whose fix can be predicted")
    ] = UNSET
    own_us: Annotated[
        float | UnsetType | None, about("time that no other pattern explains; null if not divided; only if fired")
    ] = UNSET
    own_share: Annotated[float | UnsetType | None, about("the same, of the scope; only if fired")] = UNSET
    within: Annotated[
        list[OwnCauseRecord] | Literal["summary"] | UnsetType,
        about('where its own time lies; "summary" for a pattern that sums up others; only if fired'),
    ] = UNSET
    decided: Annotated[str, about("how the pattern is decided")]
    thresholds: Annotated[list[ThresholdRecord], about("the numbers that it is decided by")]
    evidence_count: Annotated[int, about("events that show it")]
    evidence: Annotated[list[EventRecord], about("the first of them, at most 50, in time order")]


class NextEventRecord(Record, frozen=True, kw_only=True):
    """The GPU work that ended a gap."""

    name: Annotated[str, about("as recorded")]
    event: Annotated[int, about("number of the event in the trace, from 0")]


class GapRecord(Record, frozen=True, kw_only=True):
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
    next_event: Annotated[NextEventRecord | None, about("the work that ended it")]


class RankVerdictRecord(Record, frozen=True, kw_only=True):
    """The verdict of one rank."""

    rank: Annotated[int, about("number of the rank")]
    verdict: Annotated[VerdictRecord, about("its verdict")]


class CheckDocument(Document, frozen=True, kw_only=True, tag=SCHEMA):
    """The verdict on a trace, where its time goes, and which patterns it shows."""

    scope: Annotated[ScopeRecord, about("what was checked")]
    verdict: Annotated[VerdictRecord, about("the answer to read first; with several ranks that of the first one")]
    patterns: Annotated[list[FindingRecord], about("all patterns, worst first")]
    not_predicted: Annotated[
        str | None, about("why what fixes save could not be predicted, and problems are ranked by share; else null")
    ]
    gaps: Annotated[list[GapRecord], about("the longest gaps of the GPUs, longest first, at most 10")]
    serving: Annotated[list[ServingRecord], about("steps of a serving engine that start in the scope, of each rank")]
    partial: Annotated[list[ProblemRecord], about("what was lost of the trace; [] for nothing")]
    ranks: Annotated[list[RankVerdictRecord] | UnsetType, about("verdict of each rank; only with several")] = UNSET
    failed_on: Annotated[
        list[str] | UnsetType, about("patterns of `--fail-on` that fired: the exit status is 1; only with `--fail-on`")
    ] = UNSET
    undetermined: Annotated[
        list[str] | UnsetType, about("patterns of `--fail-on` that cannot be checked here; only with `--fail-on`")
    ] = UNSET


class PatternRecord(Record, frozen=True, kw_only=True):
    """A pattern that `check` looks for."""

    id: Annotated[str, about("stable name of the pattern")]
    section: Annotated[Section, about("section of the cheatsheet")]
    weight: Annotated[Severity, about("what it means if it fires")]
    title: Annotated[str, about("the pattern in a few words")]
    meaning: Annotated[str, about("what it means")]
    action: Annotated[str, about("what to do")]
    code: Annotated[str, about("a line to paste; empty where none helps")]
    decided: Annotated[str, about("how it is decided")]
    thresholds: Annotated[list[ThresholdRecord], about("the numbers that it is decided by")]


class PatternListDocument(Document, frozen=True, kw_only=True, tag=SCHEMA):
    """`check --list --json`: all patterns, without a trace."""

    patterns: Annotated[list[PatternRecord], about("by section")]
