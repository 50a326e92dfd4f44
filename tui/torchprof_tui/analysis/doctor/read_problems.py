"""Define the remarks of the trace doctor; explain the problems that the reader found, and entries it did not draw."""

from __future__ import annotations

from collections.abc import Iterator

from torchprof_tui.analysis.completeness.data_loss import LOSS_MEANINGS, list_losses, read_slice_metadata
from torchprof_tui.trace.core import problems
from torchprof_tui.trace.core.extensions import find_source_named
from torchprof_tui.trace.core.problems import Problem
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.text_enum import TextEnum
from torchprof_tui.trace.core.time_format import format_time
from torchprof_tui.trace.model.trace import Trace


class Section(TextEnum):
    """Category of a remark, most severe first. The values appear in `info --json`."""

    LOST = "lost"
    REPAIRED = "repaired"
    ODD = "odd"
    MISSING = "not recorded"


@record
class Remark:
    """One finding about a trace.

    `kind`: a short stable identifier. `count`: the number of entries or events concerned. `meaning`: an explanation
    for a first-time reader. `example`: one of them, with text of the file escaped. `action`: a remedy, "" for none.
    `event`: an event that shows the problem, -1 for none.
    """

    section: Section
    kind: str
    count: int
    meaning: str
    example: str = ""
    action: str = ""
    event: int = -1


@record
class Diagnosis:
    """All remarks on a trace: by section, most frequent first within each."""

    remarks: list[Remark]

    def remarks_in(self, section: Section) -> list[Remark]:
        return [remark for remark in self.remarks if remark.section is section]

    @property
    def summary(self) -> str:
        """ "2 lost · 3 repaired · 5 odd · 1 not recorded": counts kinds, not events."""
        return " · ".join(f"{len(self.remarks_in(section))} {section.value}" for section in Section)


_REPAIR_MEANINGS = {
    problems.REPAIRED_BACKSLASH: "unescaped backslashes, such as of Windows paths, read as backslashes",
    problems.REPAIRED_CONTROL: "control characters inside names, shown escaped",
    problems.REPAIRED_ENCODING: "bytes that are not UTF-8, shown as \\xNN",
    problems.REPAIRED_SURROGATE: "half of a surrogate pair, read as U+FFFD",
    problems.REPAIRED_NUMBER: "NaN, Infinity and numbers that are too large, read as missing",
    problems.REPAIRED_COMMA: "extra commas, left out",
    problems.REPAIRED_QUOTE: "unescaped quotes inside names, or missing quotes around keys, repaired",
    problems.ROUNDED_TIME: "times with too many digits for a double: some ns are lost",
    "missing duration": "complete events without a dur, drawn without a duration",
    "negative duration": "negative durations, drawn as 0",
    "unclosed begin": "begin entries without an end, drawn to the end of their lane",
    "renamed end": "end entries that close a begin entry with another name",
    "clamped timestamp": "a ts of 0, long before all others: not a real time, so the event is placed at the start",
    "time out of range": "times more than 73 years away, cut off at 73 years",
    "duration out of range": "durations with a sum of more than 146 years, drawn as 0",
    **{kind: f"events with a {kind}: shown as unknown" for kind in problems.NUMBER_KINDS},
}

_ODDITY_MEANINGS = {
    problems.NOT_AN_OBJECT: ("entries that are null, numbers or lists instead of events", ""),
    problems.NESTED_TOO_DEEPLY: ("values nested deeper than 100 levels: deeper levels are not shown", ""),
    problems.UNREADABLE_METADATA: ("impossible values of the file's header: read as unknown", ""),
    problems.UNREADABLE_NAME: ("names of processes or threads that are lists or objects: left out", ""),
    problems.TOO_MANY_LANES: ("too many lanes to show: these are merged, with their events on free rows", ""),
    problems.LEFT_OUT: ("packets of a Perfetto trace that hold other data than events: not read", ""),
    problems.UNRELATED_RANKS: (
        "these ranks share no collective with the others, and seem to be from another run",
        "open only ranks of one run; results for all ranks are wrong otherwise",
    ),
}

_NOT_DRAWN_MEANINGS = {
    "no time": "entries without a ts that can be read",
    "no phase": "entries without a ph",
    "unknown phase": "entries with a ph that the format does not define",
    "end without begin": "end entries without a begin entry",
    "async end without begin": "end entries of async events without a begin entry",
    "counter without a number": "counter entries with no number in their args",
    "counter beyond the 10,000th": "too many different counters to show",
    "object snapshot": "creation, snapshots and deletion of objects (N, O, D): not shown on lanes",
    "sample": "stack samples (P): no duration",
    "memory dump": "memory dumps (v, V)",
    "clock sync": "clock synchronisation marks (c)",
    "context": "context marks",
}
"""Reasons given by `trace/build`. "unreadable" and "not an object" are reported as problems, with an example."""


def find_read_problems(trace: Trace) -> Iterator[Remark]:
    """Turn problems and undrawn entries into remarks; for a slice, also what its source had lost."""
    metadata = read_slice_metadata(trace)
    if metadata is not None:
        for problem in metadata.source_losses:
            if problem.kind in LOSS_MEANINGS:
                meaning = f"before this slice was cut: {LOSS_MEANINGS[problem.kind][0]}"
                yield Remark(Section.LOST, problem.kind, problem.count, meaning, problem.example)
        t0, t1 = metadata.source_range
        yield Remark(
            Section.ODD,
            "slice",
            1,
            f"a slice of {metadata.source_name or 'another trace'}: "
            f"{_format_instant(t0)} to {_format_instant(t1)} of the whole",
            action="outside this range the slice has only linked events: shares and idle time are valid only inside it",
        )
    source = find_source_named(trace.format)
    meanings = _ODDITY_MEANINGS | (dict(source.problems) if source else {})
    for problem in trace.problems:
        if problem.kind in LOSS_MEANINGS:
            meaning, action = LOSS_MEANINGS[problem.kind]
            yield Remark(Section.LOST, problem.kind, problem.count, meaning, problem.example, action)
        elif problem.kind in meanings:
            meaning, action = meanings[problem.kind]
            yield Remark(Section.ODD, problem.kind, problem.count, meaning, problem.example, action)
        else:
            meaning = _REPAIR_MEANINGS.get(problem.kind, "")
            yield Remark(Section.REPAIRED, problem.kind, problem.count, meaning, problem.example)
    for reason, count in trace.counts.not_drawn.items():
        if reason not in ("unreadable", "not an object"):
            meaning = _NOT_DRAWN_MEANINGS.get(reason, "")
            yield Remark(Section.ODD, f"not drawn: {reason}", count, meaning)


def _format_instant(ns: int) -> str:
    """Format an instant without trailing zeros: "14.4 ms"."""
    number, _, unit = format_time(ns).partition(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}"


def summarize_losses(trace: Trace) -> str:
    """Summarize losses for a status line, or warn that ranks may be of different runs; "" for a healthy trace."""
    losses = list_losses(trace)
    if not losses:
        unrelated = [problem for problem in trace.problems if problem.kind == problems.UNRELATED_RANKS]
        return f"{unrelated[0].kind} {unrelated[0].example} · :doctor shows details" if unrelated else ""
    words = ", ".join(map(summarize_problem, losses[:2]))
    if losses[0].kind == problems.CUT_CONNECTION:  # with its byte counts, the long form exceeds 80 columns
        return f"partial: {words}{', …' if len(losses) > 2 else ''} · :doctor shows details"
    subject = "file" if trace.merged_ranks is None else "run"
    return f"not all of this {subject} could be read: {words}{', …' if len(losses) > 2 else ''} · :doctor shows details"


def summarize_problem(problem: Problem) -> str:
    """Summarize one loss in a few words; the count is left out for truncated streams, where it means nothing."""
    match problem.kind:
        case problems.UNREADABLE_ENTRY:
            return f"{problem.count:,} {'entry' if problem.count == 1 else 'entries'} unreadable"
        case problems.CUT_CONNECTION:
            return problem.example.partition(";")[0]
        case problems.CUT_SHORT | problems.DAMAGED_COMPRESSION | problems.ENDLESS_TEXT:
            return problem.kind
        case _:
            return f"{problem.kind} ×{problem.count:,}" if problem.count > 1 else problem.kind
