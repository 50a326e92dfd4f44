"""Find what a trace repeats without annotations: tokens or iterations, and the layers in each.

The order of the kernels' names is the only evidence. `find_repetitions(trace)` is the answer that the screen, the
table, the JSON and the Python API show.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from torchprof_tui.analysis.repetition.nested_runs import NestedRun, find_nested_runs
from torchprof_tui.analysis.repetition.periodic_runs import U64, mix_values
from torchprof_tui.analysis.repetition.step_list import REPETITION, REPETITIONS_KEY
from torchprof_tui.trace.core.arrays import F64, I32, I64
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Step, Trace


@record
class KernelSequence:
    """n events of one lane in the order of their starts; none of them contains another.

    `events` int32[n]: rows of the trace. `lane`: -1 without events. `is_gpu`: kernels of a stream, else ops.
    """

    events: I32
    lane: int
    is_gpu: bool

    def __len__(self) -> int:
        return len(self.events)

    @property
    def unit(self) -> str:
        """What its events are called: "kernels" or "ops"."""
        return "kernels" if self.is_gpu else "ops"


def choose_sequence(trace: Trace) -> KernelSequence:
    """Choose the stream with most kernels; in a trace without kernels the thread with most ops.

    One stream, because the order between streams differs from repetition to repetition.
    """
    kernels = np.flatnonzero((trace.kind == Kind.KERNEL) | (trace.kind == Kind.COLLECTIVE))
    if len(kernels):
        lane = int(np.bincount(trace.lane[kernels]).argmax())
        return KernelSequence(kernels[trace.lane[kernels] == lane].astype(np.int32), lane, True)
    ops = np.flatnonzero(trace.kind == Kind.OP)
    if not len(ops):
        return KernelSequence(np.empty(0, np.int32), -1, False)
    lane = int(np.bincount(trace.lane[ops]).argmax())
    events = ops[trace.lane[ops] == lane]
    start = trace.start[events]
    latest_end = np.maximum.accumulate(start + trace.duration[events])
    is_inside = np.append(False, start[1:] < latest_end[:-1])
    outermost: I32 = events[~is_inside].astype(np.int32)
    return KernelSequence(outermost, lane, False)


MIN_SHARED = 0.7  # share of the values that two runs must have in common to be of one group, counted with their number
MAX_VARIANTS = 256  # variants of a group that are compared with the shown one by name, the most frequent ones


@record
class RunGroup:
    """Runs of the same work inside the same group. `parent`: index of that group, -1 for none. `level`: from 1."""

    parent: int
    level: int
    runs: tuple[int, ...]


def group_runs(values: I64, runs: list[NestedRun]) -> list[RunGroup]:
    """Group runs by parent group and content, by level, then by first start. `values` int64[n] are small numbers."""
    size = int(values.max()) + 1 if len(values) else 0
    members: list[list[int]] = []
    counts: list[I64] = []
    parents: list[int] = []
    group_of: list[int] = []
    known: dict[tuple[int, bytes], int] = {}
    for index, run in enumerate(runs):
        parent = group_of[run.parent] if run.parent >= 0 else -1
        middle = min(1, len(run) - 1)
        content = values[run.bounds[middle] : run.bounds[middle + 1]]
        key = (parent, np.sort(content).tobytes())
        group = known.get(key, -1)
        if group < 0:
            count = np.bincount(content, minlength=size)
            alike = (
                other
                for other, at in enumerate(parents)
                if at == parent
                and np.minimum(counts[other], count).sum() >= MIN_SHARED * np.maximum(counts[other], count).sum()
            )
            group = next(alike, -1)
            if group < 0:
                group = len(members)
                members.append([])
                counts.append(count)
                parents.append(parent)
            known[key] = group
        members[group].append(index)
        group_of.append(group)
    levels = [runs[group[0]].depth + 1 for group in members]
    order = sorted(range(len(members)), key=lambda group: (levels[group], runs[members[group][0]].start))
    new_index = {group: index for index, group in enumerate(order)}
    return [RunGroup(new_index.get(parents[group], -1), levels[group], tuple(members[group])) for group in order]


def find_variants(values: I64, first: I64, last: I64) -> I32:
    """Number repetitions by content, in any order within each: int32[r], 0 for the most frequent content.

    `first`, `last` int64[r]: bounds in `values`. Of equally frequent ones the earlier has the lower number.
    """
    total: U64 = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mix_values(values), dtype=np.uint64)])
    _, index, inverse, count = np.unique(
        total[last] - total[first], return_index=True, return_inverse=True, return_counts=True
    )
    rank = np.empty(len(index), np.int32)
    rank[np.lexsort((index, -count))] = np.arange(len(index))
    variant: I32 = rank[inverse.ravel()]
    return variant


def list_differences(values: I64, first: I64, last: I64, variant: I32) -> list[tuple[int, int, int]]:
    """List by which values repetitions differ from variant 0, those of most repetitions first.

    Of each the value, how many repetitions have more of it, and how many fewer.
    """
    size = int(values.max()) + 1 if len(values) else 0
    more, fewer = np.zeros(size, np.int64), np.zeros(size, np.int64)
    shown: I64 | None = None
    _, index, count = np.unique(variant, return_index=True, return_counts=True)
    for place, repeats in zip(index[: MAX_VARIANTS + 1].tolist(), count[: MAX_VARIANTS + 1].tolist(), strict=True):
        found = np.bincount(values[first[place] : last[place]], minlength=size)
        if shown is None:
            shown = found
        more += repeats * (found > shown)
        fewer += repeats * (found < shown)
    changed = np.flatnonzero(more + fewer)
    changed = changed[np.argsort(-(more + fewer)[changed], kind="stable")]
    return list(zip(changed.tolist(), more[changed].tolist(), fewer[changed].tolist(), strict=True))


MAX_DIFFERENCES = 16  # names that are kept of those by which repetitions differ

MIN_FILLED_SHARE = 0.9
"""Share of two repetitions that must be tokens for these to be shown rather than the two requests."""


@record
class Difference:
    """A kernel (or op) of which `more` repetitions have more, and `fewer` have fewer, than the shown one."""

    name: str
    more: int
    fewer: int


@record(slots=False)
class Pattern:
    """r repetitions of the same work, by time.

    `label`: "1" for the outermost, "2" for what repeats in it, "2a" and "2b" if several do. `level`: from 1. `parent`:
    index of the pattern around it, -1 for none. `first`, `last` int64[r]: bounds in the sequence. `start`, `end`
    int64[r] ns: of the first kernel and of the last. `run` int32[r]: number of the run, repetitions of which follow
    each other directly. `position` int32[r]: index in the run. `variant` int32[r]: 0 where it has the same kernels as
    the shown one. `shown`: index of the one that stands for all, the most typical. `busy` int64[r] ns: time of its
    kernels. `coverage`: share of the time of the sequence's kernels.
    """

    label: str
    level: int
    parent: int
    first: I64
    last: I64
    start: I64
    end: I64
    run: I32
    position: I32
    variant: I32
    shown: int
    busy: I64
    coverage: float
    differences: tuple[Difference, ...]

    def __len__(self) -> int:
        return len(self.first)

    @cached_property
    def duration(self) -> I64:
        """Duration of each: int64[r] ns."""
        return self.end - self.start

    @cached_property
    def interval(self) -> I64:
        """From each start to the next of the same run: int64[at most r - 1] ns, with the idle time after it."""
        interval: I64 = np.diff(self.start)[np.diff(self.run) == 0]
        return interval

    @property
    def period(self) -> int:
        """Median number of kernels (or ops)."""
        return int(np.median(self.last - self.first))

    @property
    def runs(self) -> int:
        return int(self.run[-1]) + 1

    @property
    def differing(self) -> int:
        """The number of those that do not have the same kernels as the shown one."""
        return int(np.count_nonzero(self.variant))

    def quantile(self, share: float) -> float:
        """Return the duration that this share of the repetitions does not exceed, ns."""
        return float(np.quantile(self.duration, share))


@record(slots=False)
class Repetitions:
    """The patterns of a trace, outermost first. `unit`: index of the one to go through as if it were steps, or -1."""

    sequence: KernelSequence
    patterns: tuple[Pattern, ...]
    unit: int

    def __len__(self) -> int:
        return len(self.patterns)

    def list_steps(self, offset: int = 0) -> list[Step]:
        """List the repetitions of the pattern `unit` as steps; [] without patterns.

        The event of each is its first one, plus `offset`.
        """
        if self.unit < 0:
            return []
        pattern = self.patterns[self.unit]
        events = (self.sequence.events[pattern.first].astype(np.int64) + offset).tolist()
        rows = zip(events, pattern.start.tolist(), pattern.duration.tolist(), strict=True)
        return [
            Step(name=f"{REPETITION} #{number}", number=number, event=event, start=start, duration=duration)
            for number, (event, start, duration) in enumerate(rows)
        ]


def find_repetitions(trace: Trace) -> Repetitions:
    """Find the repetitions of one process; kept with the trace. 1 M kernels take about a second."""
    kept = trace.derived.get(REPETITIONS_KEY)
    if isinstance(kept, Repetitions):
        return kept
    sequence = choose_sequence(trace)
    _, values = np.unique(trace.name[sequence.events], return_inverse=True)
    values = values.astype(np.int64)
    runs = find_nested_runs(values)
    groups = group_runs(values, runs)
    labels = []
    for index, group in enumerate(groups):
        same = [other for other, found in enumerate(groups) if found.level == group.level]
        labels.append(f"{group.level}{_letters(same.index(index)) if len(same) > 1 else ''}")
    patterns = tuple(
        _build_pattern(trace, sequence, values, [runs[index] for index in group.runs], group, label)
        for group, label in zip(groups, labels, strict=True)
    )
    found = Repetitions(sequence, patterns, _choose_unit(patterns))
    trace.derived[REPETITIONS_KEY] = found
    return found


def _build_pattern(
    trace: Trace, sequence: KernelSequence, values: I64, runs: list[NestedRun], group: RunGroup, label: str
) -> Pattern:
    first = np.concatenate([run.bounds[:-1] for run in runs])
    last = np.concatenate([run.bounds[1:] for run in runs])
    lengths = np.array([len(run) for run in runs])
    start = trace.start[sequence.events[first]]
    last_event = sequence.events[last - 1]
    end = trace.start[last_event] + trace.duration[last_event]
    time = np.concatenate([[0], np.cumsum(trace.duration[sequence.events])])
    busy = time[last] - time[first]
    variant = find_variants(values, first, last)
    duration: F64 = np.where(variant == 0, end - start, np.nan)
    differences = list_differences(values, first, last, variant)[:MAX_DIFFERENCES]
    names = trace.name[sequence.events[np.unique(values, return_index=True)[1]]]
    return Pattern(
        label=label,
        level=group.level,
        parent=group.parent,
        first=first,
        last=last,
        start=start,
        end=end,
        run=np.repeat(np.arange(len(runs), dtype=np.int32), lengths),
        position=np.concatenate([np.arange(length, dtype=np.int32) for length in lengths]),
        variant=variant,
        shown=int(np.nanargmin(np.abs(duration - np.nanmedian(duration)))),
        busy=busy,
        coverage=float(busy.sum() / time[-1]) if time[-1] else 0.0,
        differences=tuple(Difference(trace.names[names[value]], more, fewer) for value, more, fewer in differences),
    )


def _letters(number: int) -> str:
    """Return a, b, …, z, aa, ab, … for 0, 1, …"""
    text = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        text = chr(ord("a") + rest) + text
    return text


def _choose_unit(patterns: tuple[Pattern, ...]) -> int:
    """Choose the pattern to go through: the outermost that covers most; of two requests the tokens in them.

    Two repetitions are passed over for a pattern that fills them and has a pattern inside itself: two requests of
    sixteen tokens of layers, but not two training steps.
    """
    outermost = [index for index, pattern in enumerate(patterns) if pattern.level == 1]
    if not outermost:
        return -1
    unit = max(outermost, key=lambda index: patterns[index].coverage)
    if len(patterns[unit]) > 2:
        return unit
    for index, pattern in enumerate(patterns):
        has_inner = any(other.parent == index for other in patterns)
        if pattern.parent == unit and has_inner and pattern.coverage >= MIN_FILLED_SHARE * patterns[unit].coverage:
            return index
    return unit
