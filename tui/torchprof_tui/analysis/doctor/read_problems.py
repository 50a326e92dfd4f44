"""Explain the problems that the reader found in a file, and the entries that it did not draw."""

from __future__ import annotations

from collections.abc import Iterator

from torchprof_tui.analysis.completeness.data_loss import list_losses
from torchprof_tui.analysis.completeness.slice_metadata import read_slice_metadata
from torchprof_tui.analysis.doctor.remark import Remark, Section
from torchprof_tui.trace.core import problems
from torchprof_tui.trace.core.problems import Problem
from torchprof_tui.trace.core.time_format import format_time
from torchprof_tui.trace.model.trace import Trace

_LOSS_MEANINGS = {
    problems.LOST_RANK: (
        "of several ranks these could not be opened; what is told of all ranks is told without them",
        "once they can be read, open the run again",
    ),
    problems.CUT_SHORT: (
        "the file ends before its text does; what came before the cut is here",
        "a killed job, a full disk or a broken copy: export or copy it again if the end matters",
    ),
    problems.CUT_CONNECTION: (
        "the connection ended before the trace did; what had arrived by then is here",
        "open it again: what has not changed and was read whole is not sent again",
    ),
    problems.DAMAGED_COMPRESSION: (
        "the packed data is wrong from somewhere on; what came before is here",
        "copy it again; packed files have no redundancy to mend them by",
    ),
    problems.UNREADABLE_ENTRY: ("no repair helped: these entries are on no lane", ""),
    problems.UNREADABLE_HEADER: ("a key of the file beside traceEvents could not be read", ""),
    problems.TEXT_AFTER_END: ("something follows the end of the file's object; it was left alone", ""),
    problems.BAD_TIME: ("a ts that is no time: such an entry has no place on a lane", ""),
    problems.BAD_DURATION: ("a dur that is no time: such an event is drawn without a duration", ""),
    problems.TOO_MANY_CATEGORIES: ("beyond 65,535 different categories an event's own is forgotten", ""),
}

_REPAIR_MEANINGS = {
    problems.REPAIRED_BACKSLASH: "Windows paths written without escaping, read as such",
    problems.REPAIRED_CONTROL: "control characters inside names, escaped",
    problems.REPAIRED_ENCODING: "bytes that are not UTF-8, shown as \\xNN",
    problems.REPAIRED_SURROGATE: "half of a surrogate pair, read as U+FFFD",
    problems.REPAIRED_NUMBER: "NaN, Infinity and numbers beyond any, read as nothing",
    problems.REPAIRED_COMMA: "a comma too many, left out",
    problems.REPAIRED_QUOTE: "quotes inside a name, or one missing around a key, put right",
    problems.ROUNDED_TIME: "times whose last digits a double could not hold: some ns are lost",
    "missing duration": "complete events without a dur, drawn without a duration",
    "negative duration": "durations below zero, drawn as none",
    "unclosed begin": "begins whose end is not in the file, drawn to the end of their lane",
    "renamed end": "ends that close a begin of another name",
    "clamped timestamp": "a ts of 0, long before all others: the writer had clamped it, so it is placed at the start",
    "time out of range": "times more than 73 years away, cut off there",
    "duration out of range": "durations so long that their sum is more than 146 years, drawn as none",
    **{kind: f"events with a {kind}: shown as unknown" for kind in problems.NUMBER_KINDS},
}

_ODDITY_MEANINGS = {
    problems.NOT_AN_OBJECT: ("entries that are null, numbers or lists instead of events", ""),
    problems.NESTED_TOO_DEEPLY: ("values nested deeper than 100 levels: what is deeper is not shown", ""),
    problems.UNREADABLE_METADATA: ("values of the file's own keys that cannot be right: read as unknown", ""),
    problems.UNREADABLE_NAME: ("names of processes or threads that are lists or objects: left out", ""),
    problems.TOO_MANY_LANES: (
        "more lanes than a screen can show: these share lines, their events on rows that are free",
        "",
    ),
    problems.UNRELATED_RANKS: (
        "no collective joins these ranks with the others, and they do not seem to be of one run",
        "open the ranks of one run; what is told of all ranks together means nothing otherwise",
    ),
}

_NOT_DRAWN_MEANINGS = {
    "no time": "entries without a ts that can be read",
    "no phase": "entries without a ph",
    "unknown phase": "entries of a phase that the format does not have",
    "end without begin": "ends whose begin is not in the file",
    "async end without begin": "ends of async events whose begin is not in the file",
    "counter without a number": "counter entries with no number in their args",
    "counter beyond the 10,000th": "so many different counters that no screen shows them",
    "object snapshot": "objects' life and snapshots (N, O, D): no time on a lane",
    "sample": "stack samples (P): no duration",
    "memory dump": "memory dumps (v, V)",
    "clock sync": "clock synchronisation marks (c)",
    "context": "context marks",
}
"""Reasons given by `trace/build`. "unreadable" and "not an object" are reported as problems, with an example."""


def find_read_problems(trace: Trace) -> Iterator[Remark]:
    """Turn problems and undrawn entries into remarks; for a slice, also the losses of its source."""
    yield from _find_source_problems(trace)
    for problem in trace.problems:
        if problem.kind in _LOSS_MEANINGS:
            meaning, action = _LOSS_MEANINGS[problem.kind]
            yield Remark(Section.LOST, problem.kind, problem.count, meaning, problem.example, action)
        elif problem.kind in _ODDITY_MEANINGS:
            meaning, action = _ODDITY_MEANINGS[problem.kind]
            yield Remark(Section.ODD, problem.kind, problem.count, meaning, problem.example, action)
        else:
            meaning = _REPAIR_MEANINGS.get(problem.kind, "")
            yield Remark(Section.REPAIRED, problem.kind, problem.count, meaning, problem.example)
    for reason, count in trace.counts.not_drawn.items():
        if reason not in ("unreadable", "not an object"):
            meaning = _NOT_DRAWN_MEANINGS.get(reason, "")
            yield Remark(Section.ODD, f"not drawn: {reason}", count, meaning)


def _find_source_problems(trace: Trace) -> Iterator[Remark]:
    """Report that a trace is a slice, and what its source had lost."""
    metadata = read_slice_metadata(trace)
    if metadata is None:
        return
    for problem in metadata.source_losses:
        if problem.kind in _LOSS_MEANINGS:
            meaning = f"before this slice was cut: {_LOSS_MEANINGS[problem.kind][0]}"
            yield Remark(Section.LOST, problem.kind, problem.count, meaning, problem.example)
    t0, t1 = metadata.source_range
    yield Remark(
        Section.ODD,
        "slice",
        1,
        f"a slice of {metadata.source_name or 'another trace'}: "
        f"{_format_instant(t0)} to {_format_instant(t1)} of the whole",
        action="around that lies only what it is linked to: read shares and idle time of the range alone",
    )


def _format_instant(ns: int) -> str:
    """Format an instant without trailing zeros: "14.4 ms"."""
    number, _, unit = format_time(ns).partition(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}"


def summarize_losses(trace: Trace) -> str:
    """Summarize losses for a status line, or warn that ranks may be of different runs; "" for a healthy trace."""
    losses = list_losses(trace)
    if not losses:
        unrelated = [problem for problem in trace.problems if problem.kind == problems.UNRELATED_RANKS]
        return f"{unrelated[0].kind} {unrelated[0].example} · ! says more" if unrelated else ""
    words = ", ".join(map(summarize_problem, losses[:2]))
    if losses[0].kind == problems.CUT_CONNECTION:  # with its byte counts, the long form exceeds 80 columns
        return f"partial: {words}{', …' if len(losses) > 2 else ''} · ! says more"
    subject = "file" if trace.merged_ranks is None else "run"
    return f"not all of this {subject} could be read: {words}{', …' if len(losses) > 2 else ''} · ! says more"


def summarize_problem(problem: Problem) -> str:
    """Summarize one loss in a few words; the count is left out for truncated streams, where it means nothing."""
    match problem.kind:
        case problems.UNREADABLE_ENTRY:
            return f"{problem.count:,} {'entry' if problem.count == 1 else 'entries'} unreadable"
        case problems.CUT_CONNECTION:
            return f"{problem.kind}, {problem.example.partition(';')[0]}"
        case problems.CUT_SHORT | problems.DAMAGED_COMPRESSION:
            return problem.kind
        case _:
            return f"{problem.kind} ×{problem.count:,}" if problem.count > 1 else problem.kind
