"""Guess, then look: the kernels that somebody expects in a range, beside those that were launched in it."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.trace.core.arrays import I32
from torchprof_tui.trace.model.event_kind import GPU_WORK
from torchprof_tui.trace.model.trace import Trace

_COUNT_PATTERN = re.compile(r"^(.*?)[\s×x:=]*\b(\d+)[×x]?$|^(\d+)\s*[×x]?\s+(.*)$")
_ALIASES = {"matmul": "gemm", "mm": "gemm", "pointwise": "elementwise", "memcpy": "memory", "copies": "copy"}


@dataclass(frozen=True, slots=True)
class Guess:
    """A class ("gemm") or a part of a name ("flash"), and how many; None: at least one."""

    term: str
    count: int | None


@dataclass(frozen=True, slots=True)
class GuessResult:
    """One line of the answer. `guessed` is None for what nobody expected; `time` ns of all that matched."""

    term: str
    guess: Guess | None
    actual_count: int
    time: int
    example: str  # the name that took most of the time, "" where nothing matched
    longest_event: int  # the longest of them, -1 where nothing matched

    @property
    def is_correct(self) -> bool:
        if self.guess is None:
            return False
        return self.actual_count > 0 if self.guess.count is None else self.actual_count == self.guess.count


def parse_guesses(text: str) -> list[Guess]:
    """`gemm 2, elementwise, 3 x flash`: terms with counts, separated by commas. Terms said twice add up."""
    counts: dict[str, int | None] = {}
    for part in text.split(","):
        piece = part.strip().lower()
        if not piece:
            continue
        found = _COUNT_PATTERN.match(piece)
        term, number = piece, None
        if found:
            term = (found[1] if found[1] is not None else found[4]).strip() or piece
            number = int(found[2] or found[3]) if term != piece else None
        before = counts.get(term)
        counts[term] = number if before is None or number is None else before + number
    return [Guess(term, number) for term, number in counts.items()]


def find_work_launched_between(trace: Trace, t0: int, t1: int) -> I32:
    """GPU work whose launch began in the range; where the launch was not recorded, that itself began in it."""
    work = np.flatnonzero(np.isin(trace.kind, [int(kind) for kind in GPU_WORK])).astype(np.int32)
    launch = trace.links.launch_of[work]
    begun = np.where(launch >= 0, trace.start[launch], trace.start[work])
    return work[(begun >= t0) & (begun < t1)]


def compare_guesses(trace: Trace, t0: int, t1: int, guesses: list[Guess]) -> list[GuessResult]:
    """Expectation beside reality, mismatches first, heavier before lighter. What no guess covers is listed by class."""
    by_name: dict[int, list[int]] = defaultdict(list)
    for event in find_work_launched_between(trace, t0, t1).tolist():
        by_name[int(trace.name[event])].append(event)
    left = set(by_name)
    rows = []
    for guess in guesses:
        matched = [name for name in by_name if _matches(guess.term, trace.names[name])]
        left.difference_update(matched)
        rows.append(_build_result(trace, guess.term, guess, {name: by_name[name] for name in matched}))
    unexpected: dict[KernelClass, dict[int, list[int]]] = defaultdict(dict)
    for name in left:
        unexpected[decode_kernel_name(trace.names[name]).kernel_class][name] = by_name[name]
    rows += [_build_result(trace, which.label, None, found) for which, found in unexpected.items()]
    return sorted(rows, key=lambda row: (row.is_correct, -row.time))


def _matches(term: str, name: str) -> bool:
    """By class, or as a part of the name."""
    wanted = _ALIASES.get(term, term)
    label = decode_kernel_name(name).kernel_class.label
    return wanted in (label, *label.split("/"), *label.split()) or term in name.lower()


def _build_result(trace: Trace, term: str, guess: Guess | None, found: dict[int, list[int]]) -> GuessResult:
    times = {name: int(trace.duration[np.array(events)].sum()) for name, events in found.items()}
    heaviest = max(times, key=lambda name: times[name], default=-1)
    longest = max(
        (event for events in found.values() for event in events), key=lambda e: int(trace.duration[e]), default=-1
    )
    return GuessResult(
        term=term,
        guess=guess,
        actual_count=sum(len(events) for events in found.values()),
        time=sum(times.values()),
        example=trace.names[heaviest] if heaviest >= 0 else "",
        longest_event=longest,
    )
