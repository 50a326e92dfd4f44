"""Steps that launched the same work, side by side: what lies at the same position of each can be compared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds as limits
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.trace.core.arrays import F64, I64


@dataclass(frozen=True, slots=True)
class RepeatedSteps:
    """s steps of k pieces of work each, on the device with most work; by stream, then start: several streams take
    turns in another order in each step, one stream never does.

    `steps` int64[s]: which of `Facts.steps`; `rows` int64[s, k]: the events; `begins` and `ends` int64[s, k]: the gap
    before each in which the device did nothing at all, empty before a step's first piece; `before` int64[s, k]: the
    event that ended last before it, -1 for none.
    """

    steps: I64
    events: I64
    gap_start: I64
    gap_end: I64
    previous_event: I64


def find_repeated_steps(tables: TraceTables) -> RepeatedSteps:
    """The largest set of steps whose streams run the same names in the same order."""
    work, step = tables.work, tables.launch_step
    nothing = np.empty((0, 0), dtype=np.int64)
    if not (step >= 0).any():
        return RepeatedSteps(np.empty(0, dtype=np.int64), nothing, nothing, nothing, nothing)
    device = np.bincount(np.searchsorted(tables.devices, work.device)).argmax()
    mine = np.flatnonzero(work.device == tables.devices[int(device)])
    step = step[mine]
    start, end = work.events.start[mine], work.events.end[mine]
    # All earlier work counts, of whatever stream and step: a gap is what none of it reaches into.
    reach = np.maximum.accumulate(end)
    last = np.maximum.accumulate(np.where(end == reach, np.arange(len(end)), 0))
    begins = np.minimum(np.append(start[:1], reach[:-1]), start)
    before = np.append(-1, work.events.row[mine[last[:-1]]])
    # By start, so the first of each step in this order is its first in time.
    first = np.unique(step, return_index=True)[1]
    begins[first] = start[first]

    inside = np.flatnonzero(step >= 0)
    order = inside[np.lexsort((start[inside], work.lane[mine][inside], step[inside]))]
    pieces = np.split(order, np.flatnonzero(np.diff(step[order])) + 1)
    alike: dict[bytes, list[int]] = {}
    for k, piece in enumerate(pieces):
        key = np.stack([work.events.name[mine[piece]], work.lane[mine[piece]]]).tobytes()
        alike.setdefault(key, []).append(k)
    places = np.stack([pieces[k] for k in max(alike.values(), key=len)])
    return RepeatedSteps(
        step[places[:, 0]], work.events.row[mine[places]], begins[places], start[places], before[places]
    )


@dataclass(frozen=True, slots=True)
class OneOffGaps:
    """m gaps: before the work at `place` of the `step`-th repeated step; `usual` ns: the others' median."""

    step: I64
    position: I64
    gap_start: I64
    gap_end: I64
    median_gap: F64


def find_one_off_gaps(repeats: RepeatedSteps) -> OneOffGaps:
    """Gaps between two pieces of work of one step that no other step has at that position. Needs three steps."""
    gap = repeats.gap_end - repeats.gap_start
    if not gap.size:
        nothing = np.empty(0, dtype=np.int64)
        return OneOffGaps(nothing, nothing, nothing, nothing, np.empty(0))
    ordered = np.sort(gap, axis=0)
    count = len(gap)
    # The median of the others, once the longest is left out.
    others = ordered[:-1]
    usual = (others[(count - 2) // 2] + others[(count - 1) // 2]) / 2
    longest = gap.argmax(axis=0)
    limit = np.maximum(limits.ONE_OFF_RATIO.value * usual, limits.ONE_OFF_MIN.value)
    place = np.flatnonzero((ordered[-1] >= limit) & (ordered[-2] < limit))
    step = longest[place]
    return OneOffGaps(step, place, repeats.gap_start[step, place], repeats.gap_end[step, place], usual[place])
