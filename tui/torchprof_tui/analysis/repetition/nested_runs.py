"""Find repetitions within repetitions: layers within a token, tokens within a request.

The innermost runs are found first. Each is then collapsed to one of its repetitions, so that a token of 36 layers
becomes one layer and what follows the layers, and the search is repeated until nothing repeats any more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from torchprof_tui.analysis.repetition.gram_links import measure_entropy
from torchprof_tui.analysis.repetition.periodic_runs import PeriodicRun, find_periodic_runs
from torchprof_tui.analysis.repetition.run_extension import extend_runs
from torchprof_tui.trace.core.arrays import I64

MAX_PASSES = 16
"""Most levels that are searched; real programs have two to four."""


@dataclass(frozen=True, slots=True)
class NestedRun:
    """A run in a sequence. `bounds` int64[r + 1]: the start of each repetition and the last end.

    `search`: number of the pass that found it. `parent`: index of the run whose repetitions contain it, -1 for none.
    `depth`: number of the runs around it.
    """

    bounds: I64
    search: int
    parent: int = -1
    depth: int = 0

    @property
    def start(self) -> int:
        return int(self.bounds[0])

    @property
    def stop(self) -> int:
        return int(self.bounds[-1])

    def __len__(self) -> int:
        return len(self.bounds) - 1


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
        values, origin = _collapse(values, origin, runs)
    return _nest(found)


def _collapse(values: I64, origin: I64, runs: list[PeriodicRun]) -> tuple[I64, I64]:
    """Replace each run by its second repetition, which is more often like the others than the first is."""
    is_kept = np.ones(len(values), np.bool_)
    origin = origin.copy()
    for run in runs:
        first, last = int(run.bounds[1]), int(run.bounds[2])
        is_kept[run.start : run.stop] = False
        is_kept[first:last] = True
        origin[first] = origin[run.start]
    return values[is_kept], origin[np.append(is_kept, True)]


def _nest(runs: list[NestedRun]) -> list[NestedRun]:
    """Sort runs by start, the longest first, and find the parent of each; drop those that other runs fill.

    What is found inside a run after that was collapsed is in one of its repetitions only, and is dropped as well.
    """
    runs = sorted(runs, key=lambda run: (run.start, -run.stop))
    nested: list[NestedRun] = []
    for run in _drop_filled(runs):
        parent = len(nested) - 1
        while parent >= 0 and nested[parent].stop < run.stop:
            parent = nested[parent].parent
        if parent >= 0 and nested[parent].search < run.search:
            continue
        depth = nested[parent].depth + 1 if parent >= 0 else 0
        nested.append(replace(run, parent=parent, depth=depth))
    return nested


def _drop_filled(runs: list[NestedRun]) -> list[NestedRun]:
    """Drop runs of which shorter runs, one directly after the other, fill every repetition."""
    starts: dict[int, list[NestedRun]] = {}
    for run in runs:
        starts.setdefault(run.start, []).append(run)
    return [
        run for run in runs if not all(_is_filled(starts, *bounds, run) for bounds in pairwise(run.bounds.tolist()))
    ]


def _is_filled(starts: dict[int, list[NestedRun]], begin: int, end: int, parent: NestedRun) -> bool:
    """Tell whether runs inside `parent` follow each other without a gap from `begin` to `end`."""
    while begin < end:
        inner = [run for run in starts.get(begin, ()) if run is not parent and run.stop <= end]
        if not inner:
            return False
        begin = max(run.stop for run in inner)
    return True
