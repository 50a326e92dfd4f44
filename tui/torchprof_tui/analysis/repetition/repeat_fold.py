"""Fold repeated work on the time axis: of each run of repeats one stays, the others become seams with their quantiles.

Repeats are the recorded steps of one kind that follow each other directly, else the repetitions that were found, and
within these what repeats in them (the layers of a token). It imports none of the search (see `step_list`).
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from torchprof_tui.analysis.repetition.step_list import REPETITION, are_repetitions
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.query.folded_time import FoldedTime

if TYPE_CHECKING:
    from torchprof_tui.analysis.repetition.repetitions import Repetitions
    from torchprof_tui.trace.model.trace import Step

SEAM_SHARE = 0.45  # length of a seam on the axis, as a share of the repeat that stays beside it: room for its label
MAX_PAUSE = 4
"""From one repeat to the next at most this many times as long as in the middle of the run; else another run begins."""

MIN_INNER_RATIO = 2  # repeats inside others are at least this many times as many; fewer are the same ones again


@record(slots=False)
class RepeatRun:
    """r >= 2 repeats that follow each other directly.

    `name`: what each is ("repetition", "step", "decode", "layer"). `bounds` int64[r + 1] ns: the start of each, and the
    end of the last. `duration` int64[r] ns, without the idle time after each. `numbers`: their numbers on the screen.
    """

    name: str
    bounds: I64
    duration: I64
    numbers: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.duration)

    @property
    def start(self) -> int:
        return int(self.bounds[0])

    @property
    def end(self) -> int:
        return int(self.bounds[-1])

    @property
    def median(self) -> int:
        """Index of the repeat with the median duration (of an even number the shorter one of the two)."""
        return int(np.argsort(self.duration, kind="stable")[(len(self) - 1) // 2])

    @property
    def slowest(self) -> int:
        """Index of the longest repeat."""
        return int(self.duration.argmax())

    def find(self, time: int) -> int:
        """Return the index of the repeat at a time, ns; -1 outside of the run."""
        return int(self.bounds.searchsorted(time, side="right")) - 1 if self.start <= time < self.end else -1


@record
class Seam:
    """Hidden repeats in a row: `count` of the run, from `start` to `end` ns; quantiles of their durations in ns."""

    start: int
    end: int
    count: int
    p50: float
    p95: float


@record(slots=False)
class RepeatFold:
    """What is folded. `levels`: the runs of each folded level, outermost first; `shown`: the repeat that stays, by run.

    Only runs that are on the axis are in `levels`: of the layers those in the tokens that are shown; `all_levels` has
    those in the other tokens as well. `seams` are in the order of `time`'s hidden ranges. `chosen`: the user's choice
    of repeats, by (level, start of the run).
    """

    all_levels: tuple[tuple[RepeatRun, ...], ...]
    levels: tuple[tuple[RepeatRun, ...], ...]
    shown: tuple[tuple[int, ...], ...]
    seams: tuple[Seam, ...]
    time: FoldedTime
    chosen: Mapping[tuple[int, int], int]

    def iterate_runs(self) -> Iterator[tuple[int, RepeatRun, int]]:
        """Yield (level, run, index of the shown repeat), outermost level first."""
        for level, (runs, shown) in enumerate(zip(self.levels, self.shown, strict=True)):
            for run, index in zip(runs, shown, strict=True):
                yield level, run, index

    @property
    def hidden_count(self) -> int:
        return sum(seam.count for seam in self.seams)


def list_levels(steps: Sequence[Step], found: Repetitions | None) -> list[list[RepeatRun]]:
    """List the runs that can be folded by level, outermost first: the steps, then what repeats within them.

    `steps`: those of the screen, recorded or repetitions. `found`: the repetitions, None while they are unknown.
    """
    levels = [list_step_runs(steps)]
    if found is not None:
        unit = found.patterns[found.unit] if are_repetitions(steps) and found.unit >= 0 else None
        least = MIN_INNER_RATIO * max(sum(map(len, levels[0])), 1)
        by_level: dict[int, list[RepeatRun]] = {}
        for pattern in found.patterns:
            if len(pattern) < least or (unit is not None and pattern.level <= unit.level):
                continue
            edges = np.flatnonzero(np.diff(pattern.run)) + 1
            for first, last in itertools.pairwise([0, *edges.tolist(), len(pattern)]):
                bounds = np.append(pattern.start[first:last], pattern.end[last - 1])
                if last - first < 2 or not (np.diff(bounds) > 0).all():  # repeats that overlap on several streams
                    continue
                run = RepeatRun(
                    f"{REPETITION} {pattern.label}", bounds, pattern.duration[first:last], tuple(range(last - first))
                )
                by_level.setdefault(pattern.level, []).append(run)
        levels += [sorted(by_level[level], key=lambda run: run.start) for level in sorted(by_level)]
    return [runs for runs in levels if runs]


def list_step_runs(steps: Sequence[Step]) -> list[RepeatRun]:
    """List the runs of steps of one kind, with at least two each, by time.

    A run ends where a step begins MAX_PAUSE times as late as is usual in it: the recorder was off, or a request ended.
    """
    ordered = sorted(steps, key=lambda step: step.start)
    runs: list[list[Step]] = []
    for _, same in itertools.groupby(ordered, _name_kind):
        group = list(same)
        starts = np.array([step.start for step in group], dtype=np.int64)
        interval = np.diff(starts)
        pause = interval > MAX_PAUSE * np.median(interval) if len(interval) else interval > 0
        edges = (np.flatnonzero(pause | (interval <= 0)) + 1).tolist()
        runs += [group[first:last] for first, last in itertools.pairwise([0, *edges, len(group)])]
    return [
        RepeatRun(
            _name_kind(run[0]),
            np.array([*(step.start for step in run), run[-1].start + max(run[-1].duration, 1)], dtype=np.int64),
            np.array([step.duration for step in run], dtype=np.int64),
            tuple(step.number for step in run),
        )
        for run in runs
        if len(run) > 1
    ]


def _name_kind(step: Step) -> str:
    """Name the kind by which steps belong together: prefill, decode, mixed; else the name without its number."""
    if step.serving is not None:
        return step.serving.kind.value
    name = re.sub(r"[#\s]*[0-9]+$", "", step.name)
    return "step" if name == "ProfilerStep" else name or "step"


def build_fold(
    levels: Sequence[Sequence[RepeatRun]], chosen: Mapping[tuple[int, int], int] | None = None
) -> RepeatFold | None:
    """Fold the runs of the given levels (see `list_levels`); None where nothing can be folded.

    `chosen`: the repeat to show, by (level, start of the run); else the median one.
    """
    chosen = dict(chosen or {})
    kept_levels: list[tuple[RepeatRun, ...]] = []
    shown_levels: list[tuple[int, ...]] = []
    hidden: list[tuple[int, int, int]] = []  # (start, end, level), apart from each other, by start
    for level, runs in enumerate(levels):
        kept = _list_visible(runs, hidden)
        shown = tuple(chosen.get((level, run.start), run.median) for run in kept)
        kept_levels.append(kept)
        shown_levels.append(shown)
        for run, index in zip(kept, shown, strict=True):
            low, high = int(run.bounds[index]), int(run.bounds[index + 1])
            hidden += [(start, end, level) for start, end in ((run.start, low), (high, run.end)) if end > start]
        hidden.sort()
    if not hidden:
        return None
    ranges: list[tuple[int, int, int]] = []
    levels_inwards = list(zip(kept_levels, shown_levels, strict=True))
    for kept, shown in reversed(levels_inwards):  # inner seams have lengths first
        inner = FoldedTime.of_ranges(ranges)
        for run, index in zip(kept, shown, strict=True):
            low, high = int(run.bounds[index]), int(run.bounds[index + 1])
            width = round((inner.position(high) - inner.position(low)) * SEAM_SHARE)
            ranges += [(start, end, width) for start, end in ((run.start, low), (high, run.end)) if end > start]
    seams = [
        seam for kept, shown in levels_inwards for each in zip(kept, shown, strict=True) for seam in _list_seams(*each)
    ]
    seams.sort(key=lambda seam: seam.start)
    return RepeatFold(
        tuple(tuple(runs) for runs in levels),
        tuple(kept_levels),
        tuple(shown_levels),
        tuple(seams),
        FoldedTime.of_ranges(ranges),
        chosen,
    )


def _list_visible(runs: Sequence[RepeatRun], hidden: Sequence[tuple[int, int, int]]) -> tuple[RepeatRun, ...]:
    """List the runs that no hidden range touches and that do not overlap each other."""
    starts = [start for start, _, _ in hidden]
    kept: list[RepeatRun] = []
    for run in runs:
        before = bisect_right(starts, run.start) - 1
        is_free = before < 0 or hidden[before][1] <= run.start
        is_free = is_free and (before + 1 == len(hidden) or starts[before + 1] >= run.end)
        if is_free and (not kept or kept[-1].end <= run.start):
            kept.append(run)
    return tuple(kept)


def _list_seams(run: RepeatRun, shown: int) -> list[Seam]:
    seams = []
    for first, last in ((0, shown), (shown + 1, len(run))):
        if last > first:
            p50, p95 = np.quantile(run.duration[first:last], (0.5, 0.95)).tolist()
            seams.append(Seam(int(run.bounds[first]), int(run.bounds[last]), last - first, p50, p95))
    return seams
