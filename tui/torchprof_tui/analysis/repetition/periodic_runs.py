"""Find the stretches of a sequence that repeat with one period, some places excepted.

A gram is k consecutive values. k is chosen so that two grams of a random sequence with the same frequencies of values
are hardly ever equal: a link is then evidence of a repetition by itself.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from torchprof_tui.trace.core.arrays import I64, Bool
from torchprof_tui.trace.core.records import record

U64 = npt.NDArray[np.uint64]

MIN_GRAM = 3
MARGIN_BITS = 6.0
"""Bits of a gram above log2(n): then about n / 2^(MARGIN_BITS + 1) pairs of grams of a random sequence are equal."""

MIN_ENTROPY = 0.2  # bits per value below which a sequence is one value with few others, whose grams say nothing
_MULTIPLIER = np.uint64(0xD6E8FEB86659FD93)


@record
class GramLinks:
    """Links of a sequence of n values: m = max(n - length + 1, 0) grams.

    `hash` uint64[m]: of the gram that begins at each place. `distance` int64[m]: to the previous equal gram, 0: none.
    """

    length: int
    hash: U64
    distance: I64


def measure_entropy(values: I64) -> float:
    """Measure the collision entropy of a sequence in bits per value: -log2(sum of squared frequencies)."""
    if not len(values):
        return 0.0
    shares = np.unique(values, return_counts=True)[1] / len(values)
    return float(-np.log2(np.square(shares).sum()))


def link_grams(values: I64, entropy: float) -> GramLinks | None:
    """Link the grams of `values` int64[n]; None where it is too short, or too uniform, for any evidence."""
    if len(values) < 2 * MIN_GRAM or entropy < MIN_ENTROPY:
        return None
    length = max(MIN_GRAM, math.ceil((math.log2(len(values)) + MARGIN_BITS) / entropy))
    if 2 * length > len(values):
        return None
    mixed = mix_values(values)
    hashes = np.zeros(len(values) - length + 1, np.uint64)  # a polynomial modulo 2^64
    for offset in range(length):
        hashes *= _MULTIPLIER
        hashes += mixed[offset : offset + len(hashes)]
    order = np.argsort(hashes, kind="stable")
    is_equal = hashes[order[1:]] == hashes[order[:-1]]
    distance = np.zeros(len(hashes), np.int64)
    distance[order[1:][is_equal]] = np.diff(order)[is_equal]
    return GramLinks(length, hashes, distance)


def mix_values(values: I64) -> U64:
    """Spread the bits of each value (the finalizer of SplitMix64): uint64[n]."""
    mixed: U64 = (values.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return mixed


MIN_REPETITIONS = 3
MIN_SHARE_OF_TWO = 0.6
"""Share of a sequence from which a stretch of only two repetitions counts: two training steps, not two projections."""

MIN_EQUAL_SHARE = 0.6  # share of the values after the first repetition that must be equal to the one a period before
MIN_LINKED_SHARE = 0.3
"""Share of them that must belong to linked grams. Grams that recur within a repetition are linked there instead."""

MIN_LINKED_SHARE_IF_VARYING = 0.5  # the same where the period varies, so that values cannot be compared

TOLERANCE_DIVISOR = 10
"""A period may vary by a tenth where none is exact: some repetitions have a kernel more than the one before."""

MAX_CANDIDATES = 48  # periods that are tried in one pass, those of most links


class Bounded:
    """Repetitions one after the other: `bounds` int64[r + 1] has the start of each and the last end."""

    __slots__ = ()
    bounds: I64

    @property
    def start(self) -> int:
        return int(self.bounds[0])

    @property
    def stop(self) -> int:
        return int(self.bounds[-1])

    def __len__(self) -> int:
        return len(self.bounds) - 1


@record
class PeriodicRun(Bounded):
    """A stretch of repetitions without anything between.

    `bounds` int64[r + 1]: the start of each repetition and the last end. `end`: where the stretch itself ends, which
    may be within another repetition that is not whole.
    """

    period: int
    bounds: I64
    end: int


def find_periodic_runs(values: I64, entropy: float) -> tuple[list[PeriodicRun], GramLinks | None]:
    """Find runs that do not overlap in `values` int64[n], by start, and the links that they were found by.

    Of runs that overlap the one of the shortest period is returned: what is around it is found once it is collapsed.
    Periods may vary only where no run has an exact one, or one of at least two of them: layers of two kinds by turns.
    """
    links = link_grams(values, entropy)
    if links is None:
        return [], None
    runs = _find_runs(values, links, 0)
    longest = max((run.period for run in runs), default=2 * len(values))
    varying = _find_runs(values, links, TOLERANCE_DIVISOR, longest // 2 + 1)
    if varying and runs:
        varying = sorted(varying, key=lambda run: run.start)
        starts = np.array([run.start for run in varying])
        runs = [_choose_shorter(run, varying, int(starts.searchsorted(run.start))) for run in runs]
    return sorted(runs or varying, key=lambda run: run.start), links


def _choose_shorter(exact: PeriodicRun, varying: list[PeriodicRun], index: int) -> PeriodicRun:
    """Return the run of a varying period instead of an exact one if it fills that with at least twice as many.

    `index`: of the first varying run that does not start before the exact one.
    """
    for run in varying[max(index - 1, 0) : index + 1]:
        shared = min(run.end, exact.end) - max(run.start, exact.start)
        # The length of one period may be missing at an end.
        if 2 * run.period <= exact.period + 2 and shared + run.period >= exact.end - exact.start:
            return run
    return exact


def _find_runs(values: I64, links: GramLinks, divisor: int, max_period: int = 0) -> list[PeriodicRun]:
    """Find runs of exact periods, or with a `divisor` of those up to `max_period` that vary by that part."""
    order = np.argsort(links.distance, kind="stable")
    distance = links.distance[order]
    taken_by = np.zeros(len(values), np.int64)  # the period of the run there
    runs: list[PeriodicRun] = []
    blocked: list[int] = []
    for period in _choose_periods(links.distance, divisor, max_period):
        slack = period // divisor if divisor else 0
        first, last = np.searchsorted(distance, (period - slack, period + slack + 1))
        linked = order[first:last] if not slack else np.sort(order[first:last])
        min_share = MIN_LINKED_SHARE_IF_VARYING if slack else MIN_LINKED_SHARE
        for start, stop in _find_stretches(linked, period, links.length, len(values), min_share):
            if not slack:
                equal = np.count_nonzero(values[start + period : stop] == values[start : stop - period])
                if equal < MIN_EQUAL_SHARE * (stop - start - period):
                    continue
            start = _skip_overlap(taken_by, start, stop, period)
            taken = taken_by[start:stop]
            if start >= stop:
                continue
            if taken.any():
                blocked += [period] if ((taken > 0) & (taken * 10 < period * 9)).any() else []
                continue
            if slack:
                bounds = _cut_at_anchors(links, start, stop, period)
            else:  # the last repetition may lack a twentieth, which then varies in it
                count = int((stop - start + period // 20) // period)
                bounds = np.minimum(start + period * np.arange(count + 1, dtype=np.int64), stop)
            if len(bounds) > 2:
                taken_by[start:stop] = period
                runs.append(PeriodicRun(period, bounds, stop))
    # A period of which some runs overlap shorter ones is left to the next pass, which finds it in one piece.
    return [run for run in runs if not any(abs(run.period - period) * 10 <= period for period in blocked)]


def _choose_periods(distance: I64, divisor: int, max_period: int) -> list[int]:
    """Choose the periods to try, ascending: those with most links of this distance, or within a tolerance of it."""
    count = np.bincount(distance)
    count[0] = 0
    weight = count
    if divisor:
        total = np.concatenate([[0], np.cumsum(count)])
        period = np.arange(len(count))
        slack = period // divisor
        weight = total[np.minimum(period + slack + 1, len(count))] - total[np.maximum(period - slack, 1)]
        weight[(count == 0) | (slack == 0) | (period > max_period)] = 0
    chosen = np.argsort(-weight, kind="stable")[:MAX_CANDIDATES]
    return sorted(chosen[weight[chosen] > 0].tolist())


def _skip_overlap(taken_by: I64, start: int, stop: int, period: int) -> int:
    """Return where a stretch starts that a run of about the same period overlaps at its first repetition.

    The first repetition is only inferred from the second one; it may be the last one of the run before.
    """
    length = int(np.count_nonzero(taken_by[start : start + period]))
    before = int(taken_by[start])
    if not 0 < length <= period or abs(before - period) * TOLERANCE_DIVISOR > period:
        return start
    later = start + period
    return later if stop - later >= MIN_REPETITIONS * period else start


def _find_stretches(linked: I64, period: int, gram: int, size: int, min_share: float) -> list[tuple[int, int]]:
    """Find stretches (start, stop) of which at least `min_share` belongs to grams that recur after a period.

    `linked` int64[c] ascending: the places of grams that are equal to the one a period before.
    """
    if not len(linked):
        return []
    cut = np.flatnonzero(np.diff(linked) > max(period // 2, 1) + gram)
    first, last = np.append(0, cut + 1), np.append(cut, len(linked) - 1)
    covered = np.concatenate([[0], np.cumsum(np.minimum(np.append(np.diff(linked), gram), gram))])
    matched = covered[last] - covered[first] + gram
    start, stop = np.maximum(linked[first] - period, 0), linked[last] + gram
    repeated = stop - linked[first]
    enough = repeated * 20 >= np.where(stop - start >= MIN_SHARE_OF_TWO * size, 1, MIN_REPETITIONS - 1) * period * 19
    is_run: Bool = enough & (matched >= min_share * repeated)
    return list(zip(start[is_run].tolist(), stop[is_run].tolist(), strict=True))


def _cut_at_anchors(links: GramLinks, start: int, stop: int, period: int) -> I64:
    """Cut a stretch whose period varies at the gram that recurs most regularly, the first of those that do."""
    slack = max(period // TOLERANCE_DIVISOR, 1)
    end = min(stop, len(links.hash))
    kind, place = np.unique(links.hash[start:end], return_inverse=True)
    order = np.argsort(place, kind="stable")
    is_step = (place[order[1:]] == place[order[:-1]]) & (np.abs(np.diff(order) - period) <= 2 * slack)
    regular = np.bincount(place[order[1:]][is_step], minlength=len(kind))
    total = np.bincount(place, minlength=len(kind))
    regular[total > regular + 1] = 0  # those that also recur within a repetition
    best = np.flatnonzero(regular >= max(0.9 * regular.max(), 1))
    if not len(best):
        return np.empty(0, np.int64)
    places = [np.flatnonzero(place == index) for index in best[:MAX_CANDIDATES].tolist()]
    anchors = min(places, key=lambda found: int(found[0]))
    bounds = start + anchors - min(int(anchors[0]), period)
    last = int(bounds[-1]) + period
    if last - stop <= slack:
        bounds = np.append(bounds, min(last, stop))
    return bounds.astype(np.int64)
