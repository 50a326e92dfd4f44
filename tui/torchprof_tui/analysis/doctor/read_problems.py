"""What the reader found wrong with the file, and what it did not draw, in words."""

from __future__ import annotations

from collections.abc import Iterator

from torchprof_tui.analysis.doctor.remark import Remark, Section
from torchprof_tui.analysis.slicing.slice_metadata import slice_of
from torchprof_tui.trace.core import problems
from torchprof_tui.trace.core.problems import Problem
from torchprof_tui.trace.core.time_format import format_time
from torchprof_tui.trace.model.trace import Trace

_LOST = {
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

_REPAIRED = {
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
}

_ODD = {
    problems.NOT_AN_OBJECT: ("entries that are null, numbers or lists instead of events", ""),
    problems.TOO_MANY_LANES: (
        "more lanes than a screen can show: these share lines, their events on rows that are free",
        "",
    ),
    problems.UNRELATED: (
        "no collective joins these ranks with the others, and they do not seem to be of one run",
        "open the ranks of one run; what is told of all ranks together means nothing otherwise",
    ),
}

_NOT_DRAWN = {
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
"""Reasons of `phases.py`. "unreadable" and "not an object" are problems with an example of their own."""


def found_while_reading(trace: Trace) -> Iterator[Remark]:
    yield from _of_the_whole(trace)
    for problem in trace.problems:
        if problem.kind in _LOST:
            meaning, action = _LOST[problem.kind]
            yield Remark(Section.LOST, problem.kind, problem.count, meaning, problem.example, action)
        elif problem.kind in _ODD:
            meaning, action = _ODD[problem.kind]
            yield Remark(Section.ODD, problem.kind, problem.count, meaning, problem.example, action)
        else:
            meaning = _REPAIRED.get(problem.kind, "")
            yield Remark(Section.REPAIRED, problem.kind, problem.count, meaning, problem.example)
    for reason, count in trace.counts.not_drawn.items():
        if reason not in ("unreadable", "not an object"):
            meaning = _NOT_DRAWN.get(reason, "")
            yield Remark(Section.ODD, f"not drawn: {reason}", count, meaning)


def _of_the_whole(trace: Trace) -> Iterator[Remark]:
    """What a slice says of the trace that it was cut from."""
    mark = slice_of(trace)
    if mark is None:
        return
    for problem in mark.lost:
        if problem.kind in _LOST:
            meaning = f"before this slice was cut: {_LOST[problem.kind][0]}"
            yield Remark(Section.LOST, problem.kind, problem.count, meaning, problem.example)
    t0, t1 = mark.range
    yield Remark(
        Section.ODD,
        "slice",
        1,
        f"a slice of {mark.of or 'another trace'}: {_short(t0)} to {_short(t1)} of the whole",
        action="around that lies only what it is linked to: read shares and idle time of the range alone",
    )


def _short(ns: int) -> str:
    """ "14.4 ms": an instant without the zeros at its end."""
    number, _, unit = format_time(ns).partition(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}"


def lost_of(trace: Trace) -> list[Problem]:
    """What of the file is lost, not merely mended or odd; of a slice also what its whole had lost."""
    mark = slice_of(trace)
    before = mark.lost if mark is not None else ()
    return [problem for problem in (*trace.problems, *before) if problem.kind in _LOST]


def lost_in_a_line(trace: Trace) -> str:
    """What the file lost, for a status line, or that the ranks may be of different runs; "" where all is well."""
    lost = lost_of(trace)
    if not lost:
        unrelated = [problem for problem in trace.problems if problem.kind == problems.UNRELATED]
        return f"{unrelated[0].kind} {unrelated[0].example} · ! says more" if unrelated else ""
    words = ", ".join(map(briefly, lost[:2]))
    if lost[0].kind == problems.CUT_CONNECTION:  # with its bytes, a longer beginning would leave 80 columns no room
        return f"partial: {words}{', …' if len(lost) > 2 else ''} · ! says more"
    what = "file" if trace.ranks is None else "run"
    return f"not all of this {what} could be read: {words}{', …' if len(lost) > 2 else ''} · ! says more"


def briefly(problem: Problem) -> str:
    """What was lost, in a few words; of a stream that ended early, how often that was noticed says nothing."""
    match problem.kind:
        case problems.UNREADABLE_ENTRY:
            return f"{problem.count:,} {'entry' if problem.count == 1 else 'entries'} unreadable"
        case problems.CUT_CONNECTION:
            return f"{problem.kind}, {problem.example.partition(';')[0]}"
        case problems.CUT_SHORT | problems.DAMAGED_COMPRESSION:
            return problem.kind
        case _:
            return f"{problem.kind} ×{problem.count:,}" if problem.count > 1 else problem.kind
