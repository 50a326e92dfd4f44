"""Find what decode steps copy to make their KV cache longer, and attention that is planned anew for each length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.nearest_ancestors import outermost_ancestor
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.patterns.rules.generation_steps import GenerationSteps, find_generation_steps
from torchprof_tui.analysis.serving.serving_steps import StepKind
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.query.read_entries import read_entries

_CAT_REGEX = r"aten::cat$"
_ATTENTION_REGEX = r"aten::scaled_dot_product_attention$|aten::softmax$|\w+::\w*attention\w*$"
_MAX_DESCENDANTS = 64
"""Events after a call among which its inner ops are looked for."""

_MAX_CATS_READ = 256
"""Calls of `cat` whose shapes are read in each of two steps; a step of a large model has a few hundred."""

_MIN_SIZES = 3
"""Different grids that a kernel must have at one place of the steps, to be called growing."""


@dataclass(frozen=True, slots=True)
class CacheAppends:
    """Calls of `cat` in decode steps that append to a KV cache.

    `cats`: rows, int64[k]. `growth`: of the longest cache, "8×4×100×64 to 8×4×131×64", or of the kernels' grids.
    `step_count`: decode steps with equally many calls. `count`: calls of `cat` in one of them. `is_known`: whether
    shapes or grids say what the calls do.
    """

    cats: I64
    growth: str
    step_count: int
    count: int
    is_known: bool


_NO_CATS = np.empty(0, np.int64)


def find_cache_appends(tables: TraceTables) -> CacheAppends:
    """Find calls of `cat` at the same place of each decode step whose first tensor grows from step to step.

    By shapes: two tensors of three or more dimensions, equal in all but one, of which the second is the shorter: keys
    or values and the new ones. Ids and masks, which have two dimensions, grow as well, but cost nothing. Without shapes
    by the grids of their kernels, if there are at least as many such places as attention calls; a large tensor's grid
    is limited, so that grids that do not grow prove nothing.
    """
    steps: GenerationSteps = tables.compute_once(find_generation_steps)
    decoding = np.flatnonzero(steps.kind_mask(StepKind.DECODE))
    cats = tables.select_on_launch_lanes(tables.match_names(_CAT_REGEX, Kind.OP))
    cats = cats.select(np.argsort(cats.start, kind="stable"))
    first = cats.start.searchsorted(steps.start[decoding])
    count = cats.start.searchsorted(steps.end[decoding]) - first
    if len(decoding) < 2 or not count.any():
        return CacheAppends(_NO_CATS, "", len(decoding), 0, True)
    usual = int(np.bincount(count[count > 0]).argmax())
    first = first[count == usual]
    calls = cats.row[first[:, None] + np.arange(usual)]
    by_shape = _find_growing_shapes(tables, calls)
    if by_shape is not None:
        places, growth = by_shape
    else:
        places, growth = _find_growing_grids(tables, calls)
        if len(places) * len(steps) < count_attentions(tables, steps):
            return CacheAppends(_NO_CATS, "", len(calls), usual, False)
    return CacheAppends(np.sort(calls[:, places].ravel()), growth, len(calls), usual, True)


def _find_growing_shapes(tables: TraceTables, calls: I64) -> tuple[list[int], str] | None:
    """Find the places (columns of `calls` int64[steps, k]) whose tensors grow; None where no shapes were recorded."""
    pairs = dict.fromkeys([(0, len(calls) - 1), (0, 1), (len(calls) - 2, len(calls) - 1)]) if len(calls) > 1 else {}
    is_known = False
    for one, other in pairs:
        shapes = [_read_shapes(tables, calls[step][:_MAX_CATS_READ]) for step in (one, other)]
        is_known |= any(shapes[0]) and any(shapes[1])
        places = [place for place, (old, new) in enumerate(zip(*shapes, strict=True)) if _has_grown(old, new)]
        if places:
            longest = max(places, key=lambda place: float(np.prod(shapes[1][place][0])))
            old, new = ("×".join(map(str, each[longest][0])) for each in shapes)
            return places, f"{old} to {new}"
    return ([], "") if is_known else None


def _read_shapes(tables: TraceTables, rows: I64) -> list[list[list[int]]]:
    """Read the shapes of the tensors that each call concatenates; [] where they were not recorded."""
    shapes: list[list[list[int]]] = [[] for _ in rows]
    try:
        for index, entry in read_entries(tables.trace, rows):
            args = entry.get("args")
            dims: Any = args.get("Input Dims") if isinstance(args, dict) else None
            tensors = dims[0] if isinstance(dims, list) and dims else None
            if isinstance(tensors, list) and all(isinstance(each, list) and each for each in tensors):
                shapes[index] = tensors
    except (OSError, LookupError):
        return [[] for _ in rows]
    return shapes


def _has_grown(old: list[list[int]], new: list[list[int]]) -> bool:
    """Return whether both calls append a short tensor to a long one, which is longer in the second call."""
    if len(old) != 2 or len(new) != 2:
        return False
    first, second = _appended_dim(old), _appended_dim(new)
    return first is not None and first == second and new[0][first] > old[0][first]


def _appended_dim(tensors: list[list[int]]) -> int | None:
    """Return the one dimension in which the second of two tensors is shorter, None for other pairs."""
    long, short = tensors
    if len(long) < 3 or len(long) != len(short):
        return None
    differing = [dim for dim, (size, other) in enumerate(zip(long, short, strict=True)) if size != other]
    return differing[0] if len(differing) == 1 and short[differing[0]] < long[differing[0]] else None


def _find_growing_grids(tables: TraceTables, calls: I64) -> tuple[list[int], str]:
    """Find the places (columns of `calls` int64[steps, k]) whose kernels have more and more blocks."""
    trace, column = tables.trace, tables.trace.args.get("grid")
    if column is None or len(calls) < _MIN_SIZES:
        return [], ""
    is_call = np.zeros(len(trace), np.bool_)
    is_call[calls] = True
    work = tables.work.select(tables.work.launch >= 0)
    call = outermost_ancestor(trace, work.launch.astype(np.int64), is_call)
    work, call = work.select(call >= 0), call[call >= 0]
    blocks = np.zeros(len(trace), np.int64)
    np.maximum.at(blocks, call, column.values_at(work.events.row, 0).astype(np.int64).prod(axis=1))
    sizes = blocks[calls]
    change = np.diff(sizes, axis=0)
    rises, falls = (change > 0).sum(axis=0), (change < 0).sum(axis=0)
    kinds = np.array([len(np.unique(place)) for place in sizes.T])
    places = np.flatnonzero((kinds >= _MIN_SIZES) & (4 * falls <= rises))  # a fall: another text begins
    if not len(places):
        return [], ""
    # The growth in one text: the part with most sizes; another text begins with a fall, or the jump of its prompt.
    place = sizes[:, places[0]]
    texts = np.split(place, np.flatnonzero((np.diff(place) < 0) | (place[1:] > 2 * place[:-1])) + 1)
    longest = max(texts, key=lambda text: len(np.unique(text)))
    return places.tolist(), f"{longest[0]} to {longest[-1]} blocks"


def find_planned_attentions(tables: TraceTables) -> EventTable:
    """Find the attention calls of decode steps that take far longer than the others, in most steps.

    A library that chooses its kernel for each shape does so again for each length of the keys: the first layer of a
    step waits for it, the others reuse the choice.
    """
    steps: GenerationSteps = tables.compute_once(find_generation_steps)
    ops = tables.compute_once(_find_attentions)
    step = steps.start.searchsorted(ops.start, side="right") - 1
    decoding = np.flatnonzero(steps.kind_mask(StepKind.DECODE))
    ops, step = ops.select(np.isin(step, decoding)), step[np.isin(step, decoding)]
    if not len(ops):
        return ops
    limit = max(thresholds.PLANNING_RATIO.value * float(np.median(ops.duration)), thresholds.COLD_CALL_MIN.value)
    is_slow = ops.duration >= limit
    if 2 * len(np.unique(step[is_slow])) <= len(decoding):
        is_slow[:] = False
    return ops.select(np.sort(np.flatnonzero(is_slow)))


def name_planner(tables: TraceTables, planning: EventTable) -> str:
    """Name the innermost op that takes most of the longest of these calls."""
    row = int(planning.row[planning.duration.argmax()])
    trace = tables.trace
    children = np.flatnonzero(trace.parent[row + 1 :][:_MAX_DESCENDANTS] >= row) + row + 1
    half = int(trace.duration[row]) // 2
    inner = [int(child) for child in children if trace.duration[child] > half and trace.kind[child] == Kind.OP]
    return tables.name(inner[-1] if inner else row)


def _find_attentions(tables: TraceTables) -> EventTable:
    """Find the attention ops by start, without those inside another one."""
    ops = tables.select_on_launch_lanes(tables.match_names(_ATTENTION_REGEX, Kind.OP))
    ops = ops.select(np.argsort(ops.start, kind="stable"))
    return ops.select(ops.start >= np.maximum.accumulate(np.append(np.iinfo(np.int64).min, ops.end))[:-1])


def count_attentions(tables: TraceTables, steps: GenerationSteps) -> int:
    """Count the attention ops in the steps."""
    start = tables.compute_once(_find_attentions).start
    return int((start.searchsorted(steps.end) - start.searchsorted(steps.start)).sum())
