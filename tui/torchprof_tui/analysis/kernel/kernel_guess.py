"""Compare the kernels that a user expects in a range with those that were launched in it."""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np

from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.trace.core.arrays import I32, is_in
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import GPU_WORK
from torchprof_tui.trace.model.trace import Trace

_LONGEST_COUNT = 9
_COUNT_LAST = re.compile(rf"(?:[\s:=×]|\sx)\s?(\d{{1,{_LONGEST_COUNT}}})[×x]?$")
_COUNT_FIRST = re.compile(rf"(\d{{1,{_LONGEST_COUNT}}})\s?[×x]?\s")
_ALIASES = {"matmul": "gemm", "mm": "gemm", "pointwise": "elementwise", "memcpy": "memory", "copies": "copy"}


@record
class Guess:
    """A kernel class ("gemm") or part of a name ("flash"), and the expected count; None means at least one."""

    term: str
    count: int | None


@record
class GuessResult:
    """One row of the comparison. `guess`: None for kernels without a guess. `time`: of all matching events, ns."""

    term: str
    guess: Guess | None
    actual_count: int
    time: int
    example: str  # the name with the most time, "" if nothing matched
    longest_event: int  # -1 if nothing matched

    @property
    def is_correct(self) -> bool:
        if self.guess is None:
            return False
        return self.actual_count > 0 if self.guess.count is None else self.actual_count == self.guess.count


def parse_guesses(text: str) -> list[Guess]:
    """Parse comma-separated terms with counts: `gemm 2, elementwise, 3 x flash`. Repeated terms add up."""
    counts: dict[str, int | None] = {}
    for part in filter(None, (part.strip().lower() for part in text.split(","))):
        # "gemm 2", "gemm: 2", "gemm x2" and "2x gemm", in time linear in the text
        term, count = part, None
        if last := _COUNT_LAST.search(part, max(len(part) - 2 * _LONGEST_COUNT, 0)):
            term, count = part[: last.start()].rstrip(" \t:=×").removesuffix(" x"), int(last[1])
        elif first := _COUNT_FIRST.match(part):
            term, count = part[first.end() :].strip(), int(first[1])
        if not term:
            term, count = part, None
        previous = counts.get(term)
        counts[term] = count if previous is None or count is None else previous + count
    return [Guess(term, count) for term, count in counts.items()]


def find_work_launched_between(trace: Trace, t0: int, t1: int) -> I32:
    """Find GPU work whose launch started in the range; without a recorded launch, its own start decides."""
    work = np.flatnonzero(is_in(trace.kind, [int(kind) for kind in GPU_WORK])).astype(np.int32)
    launch = trace.links.launch_of[work]
    launch_start = np.where(launch >= 0, trace.start[launch], trace.start[work])
    return work[(launch_start >= t0) & (launch_start < t1)]


def compare_guesses(trace: Trace, t0: int, t1: int, guesses: list[Guess]) -> list[GuessResult]:
    """Compare guesses with launched kernels: mismatches first, then by time. Unguessed kernels are listed by class."""
    by_name: dict[int, list[int]] = defaultdict(list)
    for event in find_work_launched_between(trace, t0, t1).tolist():
        by_name[int(trace.name[event])].append(event)
    unmatched = set(by_name)
    rows = []
    for guess in guesses:
        wanted = _ALIASES.get(guess.term, guess.term)  # a class, or a part of the name
        matched = []
        for name in by_name:
            label = decode_kernel_name(trace.names[name]).kernel_class.label
            if wanted in (label, *label.split("/"), *label.split()) or guess.term in trace.names[name].lower():
                matched.append(name)
        unmatched.difference_update(matched)
        rows.append(_build_result(trace, guess.term, guess, {name: by_name[name] for name in matched}))
    unexpected: dict[KernelClass, dict[int, list[int]]] = defaultdict(dict)
    for name in unmatched:
        unexpected[decode_kernel_name(trace.names[name]).kernel_class][name] = by_name[name]
    rows += [_build_result(trace, kernel_class.label, None, names) for kernel_class, names in unexpected.items()]
    return sorted(rows, key=lambda row: (row.is_correct, -row.time))


def _build_result(trace: Trace, term: str, guess: Guess | None, events_by_name: dict[int, list[int]]) -> GuessResult:
    """Summarize the matching events, given by name index."""
    times = {name: int(trace.duration[np.array(events)].sum()) for name, events in events_by_name.items()}
    heaviest = max(times, key=lambda name: times[name], default=-1)
    all_events = [event for events in events_by_name.values() for event in events]
    longest = max(all_events, key=lambda event: int(trace.duration[event]), default=-1)
    return GuessResult(
        term=term,
        guess=guess,
        actual_count=len(all_events),
        time=sum(times.values()),
        example=trace.names[heaviest] if heaviest >= 0 else "",
        longest_event=longest,
    )
