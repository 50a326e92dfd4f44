"""Folded repeats on the time axis: which levels are folded, which repeat of each run is shown, and the changes to it.

The viewport carries the fold, so that everything drawn from it follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from torchprof_tui.analysis.repetition.repeat_fold import RepeatFold, RepeatRun, Seam, build_fold, list_levels
from torchprof_tui.analysis.repetition.step_list import are_repetitions, find_kept_repetitions, list_steps
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.ranks import Rank
from torchprof_tui.trace.query.viewport import Viewport


class RepeatFolding:
    """Hold the fold of an explorer; `fold` is None while nothing is folded."""

    fold: RepeatFold | None = None

    @property
    def seams(self) -> Sequence[Seam]:
        """The seams, in the order of the viewport's fold."""
        return () if self.fold is None else self.fold.seams

    def toggle(self, view: Viewport, rank: Rank, at: int | None) -> tuple[Viewport, str]:
        """Fold one level more, or unfold all after the last. Returns the viewport and a message.

        `at`: a time, ns, whose repeats are shown; None for the median ones.
        """
        steps, found = list_steps(rank), find_kept_repetitions(rank.trace)
        levels = list_levels(steps, found)
        if not levels and found is None:
            return view, "repetitions are still being looked for: try again in a moment"
        if not levels:
            return view, "nothing to fold: no steps were recorded, and no repetition was found"
        depth = len(self.fold.levels) if self.fold is not None else 0
        fold = self._fold_deeper(levels, depth, at)
        if fold is None:
            self.fold = None
            return replace(view, fold=None), "all repeats are shown again"
        centre = at if at is not None else view.midpoint(view.t0, view.t1)
        _, run, shown = min(
            (entry for entry in fold.iterate_runs() if entry[0] == len(fold.levels) - 1),
            key=lambda entry: max(entry[1].start - centre, centre - entry[1].end, 0),
        )
        has_more = len(levels) > len(fold.levels) or (found is None and not are_repetitions(steps))
        self.fold = fold
        return replace(view, fold=fold.time).fit(run.start, run.end), describe_run(run, shown, has_more)

    def _fold_deeper(self, levels: list[list[RepeatRun]], depth: int, at: int | None) -> RepeatFold | None:
        """Fold the next level that hides more; None where there is none."""
        hidden = self.fold.hidden_count if self.fold is not None else 0
        for count in range(depth + 1, len(levels) + 1):
            chosen = dict(self.fold.chosen) if self.fold is not None else {}
            if at is not None:
                chosen |= _choose_repeats(levels[:count], at)
            fold = build_fold(levels[:count], chosen)
            if fold is not None and fold.levels[-1] and fold.hidden_count > hidden:
                return fold
        return None

    def show_range(self, view: Viewport, start: int, end: int) -> Viewport:
        """Return the viewport in which a range, ns, is not hidden: the shown repeat changes, in its place."""
        if self.fold is None or self.fold.time.find_seam(start, end) < 0:
            return view
        fold = self.fold
        for _ in fold.levels:  # another repeat of the outer level has runs of its own inside
            if fold.time.find_seam(start, start + 1) < 0:
                break
            chosen = {**fold.chosen, **_choose_repeats(fold.all_levels, start)}
            if (changed := build_fold(fold.all_levels, chosen)) is None:
                break
            fold = changed
        moved = _keep_place(view, self.fold, fold, start)
        self.fold = fold
        return moved

    def find_run(self, time: int) -> tuple[RepeatRun, int] | None:
        """Find the innermost folded run at a time, ns, else the nearest one, and its shown repeat; None unfolded."""
        entries = [] if self.fold is None else list(self.fold.iterate_runs())
        if not entries:
            return None
        _, run, shown = min(
            entries, key=lambda entry: (max(entry[1].start - time, time - entry[1].end + 1, 0), -entry[0])
        )
        return run, shown

    def describe(self, time: int) -> str:
        """Describe the innermost folded run at a time, ns; "" where nothing is folded."""
        found = self.find_run(time)
        return "" if found is None else describe_run(*found)


def _choose_repeats(levels: Sequence[Sequence[RepeatRun]], at: int) -> dict[tuple[int, int], int]:
    """Choose the repeats at a time, by (level, start of the run)."""
    found = ((level, run, run.find(at)) for level, runs in enumerate(levels) for run in runs)
    return {(level, run.start): index for level, run, index in found if index >= 0}


def _keep_place(view: Viewport, before: RepeatFold, after: RepeatFold, time: int) -> Viewport:
    """Return the viewport with the fold `after`: the repeat at `time` stands where that of `before` stood."""
    changed = replace(view, fold=after.time)
    if view.is_whole:
        return changed
    shown = {run.start: (run, index) for _, run, index in after.iterate_runs() if run.find(time) == index}
    for _, run, index in before.iterate_runs():
        if run.start in shown:
            new_run, new_index = shown[run.start]
            old, new = int(run.bounds[index]), int(new_run.bounds[new_index])
            distance = view.measure(old, view.t0)
            return changed.place(new, distance, view.span)
    return changed


def describe_run(run: RepeatRun, shown: int, has_more: bool = False) -> str:
    """Describe a folded run in one line: which repeat is shown, how long the others took, which keys go on."""
    others = np.delete(run.duration, shown)
    p50, p95 = (format_duration(round(value)) for value in np.quantile(others, (0.5, 0.95)).tolist())
    slowest = f"slowest #{run.numbers[run.slowest]} {format_duration(int(run.duration[run.slowest]))}"
    key = "folds in it too" if has_more else "unfolds"
    return (
        f"{run.name} #{run.numbers[shown]} · {len(run) - 1:,} folded: p50 {p50}, p95 {p95} · {slowest}"
        f" · }} {{ p another, u {key}"
    )
