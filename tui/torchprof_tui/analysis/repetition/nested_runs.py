"""Find repetitions within repetitions: layers within a token, tokens within a request.

The innermost runs are found first. Each is then collapsed to one of its repetitions, so that a token of 36 layers
becomes one layer and what follows the layers, and the search is repeated until nothing repeats any more.

The first token comes with the prefill, the first layer adds no residual, the last one has another normalization. They
count as repetitions if most of their values belong to grams that the others have as well.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np

from torchprof_tui.analysis.repetition.periodic_runs import (
    TOLERANCE_DIVISOR,
    U64,
    Bounded,
    GramLinks,
    PeriodicRun,
    find_periodic_runs,
    measure_entropy,
)
from torchprof_tui.trace.core.arrays import I64, sorted_unique
from torchprof_tui.trace.core.records import record

MIN_LIKENESS = 0.7  # share of the values of a neighbour of one period that must belong to grams of the run

MIN_ENCLOSED_LIKENESS = 0.5
"""The same between two runs of one period, or between one and the end of the sequence, where its bounds are known."""

MIN_ALIGNED_LIKENESS = 0.5  # the same of a first repetition whose begin was not found because it differs

MAX_LENGTH, MIN_LENGTH = 2.0, 0.8
"""Lengths of an enclosed neighbour in periods; a shorter one is a repetition that was not recorded whole."""

MAX_ODD = 3  # repetitions between two runs of one period that may all differ from both
MIN_REGULAR = 3  # runs of one length from which that length is no accident

MAX_FOREIGN_SHARE = 0.1
"""Share of an odd repetition that may be values that no other has; with more of them it is something else."""

MAX_GRAMS = 4096  # values of a run whose grams are listed

MAX_RUNS = 4096
"""Runs of one pass that are extended at most, which bounds the time on sequences of very many short ones."""


def extend_runs(runs: list[PeriodicRun], links: GramLinks, values: I64) -> list[PeriodicRun]:
    """Return the runs of a sequence, by start, merged, aligned and extended by repetitions like the others."""
    size = len(values)
    if len(runs) > MAX_RUNS:
        return runs
    runs = _merge_runs(runs, links, values)
    runs = [
        _align_to_end(run, before.end if before else 0, links) for run, before in zip(runs, [None, *runs], strict=False)
    ]
    extended: list[PeriodicRun] = []
    for run, high in zip(runs, [*(run.start for run in runs[1:]), size], strict=True):
        low = extended[-1].end if extended else 0
        if run.start - low >= MIN_LENGTH * run.period or high - run.stop >= MIN_LENGTH * run.period:
            grams = _list_grams(run, links)
            bounds = _extend_to_earlier(run, grams, links, low, not extended)
            bounds = _extend_to_later(bounds, run, grams, links, high)
            run = PeriodicRun(run.period, bounds, max(run.end, int(bounds[-1])))
        extended.append(run)
    return extended


def _merge_runs(runs: list[PeriodicRun], links: GramLinks, values: I64) -> list[PeriodicRun]:
    """Merge runs of one period with nothing, or with one to MAX_ODD repetitions that differ, between them.

    Runs of the same number of repetitions are what something around them repeats: the layers of each token.
    """
    counts = Counter((run.period, len(run)) for run in runs)
    regular = {key for key, count in counts.items() if count >= MIN_REGULAR}
    merged: list[PeriodicRun] = []
    for run in runs:
        before = merged[-1] if merged else None
        between = None
        if before is not None and abs(before.period - run.period) * TOLERANCE_DIVISOR <= before.period:
            is_regular = (before.period, len(before)) in regular or (run.period, len(run)) in regular
            if not is_regular:
                run = _align_phase(run, before, links)
                between = _cut_between(before, run, links, values)
        if before is None or between is None:
            merged.append(run)
        else:
            begins_anew = (
                len(between) == 0
                and before.stop < run.start
                and bool((links.hash[before.bounds[:-1]] == links.hash[before.stop]).any())
            )
            parts = [before.bounds, run.bounds[1:]] if begins_anew else [before.bounds[:-1], between, run.bounds]
            bounds = np.concatenate(parts)
            merged[-1] = PeriodicRun(before.period, bounds, run.end)
    return merged


def _align_phase(run: PeriodicRun, before: PeriodicRun, links: GramLinks) -> PeriodicRun:
    """Shift the bounds of a run by less than half a period so that it begins with the same gram as `before`."""
    low = max(run.start - run.period // 2, before.stop)
    places = low + np.flatnonzero(links.hash[low : run.start + run.period // 2] == links.hash[before.bounds[-2]])
    if not len(places):
        return run
    shift = int(places[np.abs(places - run.start).argmin()]) - run.start
    bounds = run.bounds + shift
    if bounds[-1] > run.end + run.period // 20:
        bounds = bounds[:-1]
    elif run.end - bounds[-1] >= run.period - run.period // 20:
        bounds = np.append(bounds, run.end)
    return PeriodicRun(run.period, np.minimum(bounds, max(run.end, run.stop)), run.end)


def _cut_between(before: PeriodicRun, after: PeriodicRun, links: GramLinks, values: I64) -> I64 | None:
    """Cut what is between two runs into repetitions: their starts; None if it is something else."""
    length, period = after.start - before.stop, before.period
    if length * TOLERANCE_DIVISOR <= period:
        return np.empty(0, np.int64)  # the last repetition of the first run is longer
    odd, regular = values[before.stop : after.start], values[before.start : before.stop]
    count = round(length / period)
    once, frequency = np.unique(regular, return_counts=True)
    once = once[frequency == len(before)]  # what each repetition has once; 0: the last regular one has a layer more
    if len(once):  # a layer more makes the values of a layer more frequent, so the lower quartile counts
        count = int(np.sort([np.count_nonzero(odd == value) for value in once.tolist()])[len(once) // 4])
    if count > MAX_ODD or length > (MAX_ODD + 1) * period:
        return None
    grams = _list_grams(before, links)
    if measure_likeness(grams, links, before.stop, after.start) < MIN_ENCLOSED_LIKENESS:
        return None
    if np.count_nonzero(~np.isin(odd, regular)) > MAX_FOREIGN_SHARE * length:
        return None
    return before.stop + length * np.arange(count, dtype=np.int64) // max(count, 1)


def _list_grams(run: PeriodicRun, links: GramLinks) -> U64:
    """List the grams of a run, ascending. Two of its repetitions have all that recur, for runs of very many."""
    stop = min(run.stop, run.start + max(2, MAX_GRAMS // run.period) * run.period)
    return sorted_unique(links.hash[run.start : max(stop - links.length + 1, run.start)])


def _align_to_end(run: PeriodicRun, low: int, links: GramLinks) -> PeriodicRun:
    """Shift the bounds to earlier values so that the last repetition ends with the stretch, if that gives one more.

    A first repetition that begins differently is found from where it is like the second one: within a layer. `low`:
    where the run before ends.
    """
    rest = run.end - run.stop
    shift = run.period - rest
    if rest <= 0 or not low <= run.start - shift < run.start:
        return run
    bounds = np.append(run.bounds - shift, run.end)
    grams = _list_grams(run, links)
    if measure_likeness(grams, links, int(bounds[0]), int(bounds[1])) < MIN_ALIGNED_LIKENESS:
        return run
    return PeriodicRun(run.period, bounds, run.end)


def _extend_to_earlier(run: PeriodicRun, grams: U64, links: GramLinks, low: int, is_first: bool) -> I64:
    """Return the bounds of a run with the repetitions before it, not below `low`.

    `is_first`: there is no other run before, so that all before the run may be its first repetition.
    """
    bounds = run.bounds
    first_gram = _first_gram(run, links)
    while bounds[0] - low >= MIN_LENGTH * run.period:
        length = int(bounds[0]) - low
        is_enclosed = is_first and length <= MAX_LENGTH * run.period
        start = low if is_enclosed else int(bounds[0]) - run.period
        begins = np.flatnonzero(links.hash[low : int(bounds[0]) - run.period // 2] == first_gram)
        if len(begins) and bounds[0] - low - begins[-1] <= MAX_LENGTH * run.period:
            start = low + int(begins[-1])
        likeness = MIN_ENCLOSED_LIKENESS if is_enclosed else MIN_LIKENESS
        if start < low or measure_likeness(grams, links, start, int(bounds[0])) < likeness:
            break
        bounds = np.append(start, bounds)
    return bounds


def _first_gram(run: PeriodicRun, links: GramLinks) -> np.uint64:
    """Return the gram that the repetitions of a run begin with: that of the second one, which is like more others."""
    gram: np.uint64 = links.hash[min(int(run.bounds[1]), len(links.hash) - 1)]
    return gram


def _extend_to_later(bounds: I64, run: PeriodicRun, grams: U64, links: GramLinks, high: int) -> I64:
    """Return the bounds with the repetitions that follow, not beyond `high`; the last one may have a kernel more."""
    slack = run.period // TOLERANCE_DIVISOR
    first_gram = _first_gram(run, links)
    while high - bounds[-1] >= run.period:
        last = int(bounds[-1])
        places = np.flatnonzero(links.hash[last : last + slack + 1] == first_gram)
        start = last + (int(places[0]) if len(places) else 0)
        stop = high if high - start - run.period <= slack else start + run.period
        if stop > high or measure_likeness(grams, links, start, stop) < MIN_LIKENESS:
            break
        bounds = np.append(bounds[:-1], [start, stop])
    return bounds


def measure_likeness(grams: U64, links: GramLinks, start: int, stop: int) -> float:
    """Measure the share of the values of a stretch that belong to any of `grams` uint64[g], ascending."""
    places: I64 = np.flatnonzero(np.isin(links.hash[start : max(stop - links.length + 1, start)], grams))
    if not len(places):
        return 0.0
    covered = int(np.minimum(np.diff(places), links.length).sum()) + links.length
    return covered / (stop - start)


MAX_PASSES = 16  # most levels that are searched; real programs have two to four


@record
class NestedRun(Bounded):
    """A run in a sequence. `bounds` int64[r + 1]: the start of each repetition and the last end.

    `search`: number of the pass that found it. `parent`: index of the run whose repetitions contain it, -1 for none.
    `depth`: number of the runs around it.
    """

    bounds: I64
    search: int
    parent: int = -1
    depth: int = 0


def find_nested_runs(values: I64) -> list[NestedRun]:
    """Find all runs of a sequence int64[n], by start, each after the runs around it.

    Linear but for one sort per pass. A run of one value (the same kernel many times) is no repetition. A run that
    consists of shorter runs alone (32 tokens as twice 16) is left out for those.
    """
    entropy = measure_entropy(values)
    origin = np.arange(len(values) + 1, dtype=np.int64)  # where the values that each kept one stands for begin
    found: list[NestedRun] = []
    for search in range(MAX_PASSES):
        runs, links = find_periodic_runs(values, entropy)
        if links is None or not runs:
            break
        runs = extend_runs(runs, links, values)
        found += [NestedRun(origin[run.bounds], search) for run in runs if run.period > 1]
        is_kept = np.ones(len(values), np.bool_)
        for run in runs:  # its second repetition stays, which is more often like the others than the first is
            first, last = int(run.bounds[1]), int(run.bounds[2])
            is_kept[run.start : run.stop] = False
            is_kept[first:last] = True
            origin[first] = origin[run.start]
        values, origin = values[is_kept], origin[np.append(is_kept, True)]
    return _nest(found)


def _nest(runs: list[NestedRun]) -> list[NestedRun]:
    """Sort runs by start, the longest first, and find the parent of each.

    Runs of which shorter ones, one directly after the other, fill every repetition are dropped.

    What is found inside a run after that was collapsed is in one of its repetitions only, and is dropped as well.
    """
    runs = sorted(runs, key=lambda run: (run.start, -run.stop))
    starts: dict[int, list[NestedRun]] = {}
    for run in runs:
        starts.setdefault(run.start, []).append(run)
    nested: list[NestedRun] = []
    for run in runs:
        if all(_is_filled(starts, *bounds, run) for bounds in pairwise(run.bounds.tolist())):
            continue
        parent = len(nested) - 1
        while parent >= 0 and nested[parent].stop < run.stop:
            parent = nested[parent].parent
        if parent >= 0 and nested[parent].search < run.search:
            continue
        depth = nested[parent].depth + 1 if parent >= 0 else 0
        nested.append(replace(run, parent=parent, depth=depth))
    return nested


def _is_filled(starts: dict[int, list[NestedRun]], begin: int, end: int, parent: NestedRun) -> bool:
    """Tell whether runs inside `parent` follow each other without a gap from `begin` to `end`."""
    while begin < end:
        inner = [run for run in starts.get(begin, ()) if run is not parent and run.stop <= end]
        if not inner:
            return False
        begin = max(run.stop for run in inner)
    return True
