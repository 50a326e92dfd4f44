"""Steps that launched the same work, side by side: what lies at the same position of each can be compared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tui.analysis.patterns import thresholds as limits
from tui.analysis.patterns.facts import Facts
from tui.trace.arrays import F64, I64


@dataclass(frozen=True, slots=True)
class Repeats:
    """s steps of k pieces of work each. `steps` int64[s]: which of `Facts.steps`; `work` int64[s, k]: places in
    `Facts.work`, by start; `rows` int64[s, k]: their events. On the device with most work."""

    steps: I64
    work: I64
    rows: I64
    start: I64
    end: I64


def repeats_of(facts: Facts) -> Repeats:
    """The largest set of steps whose work has the same names in the same order."""
    work, step = facts.work, facts.launch_step
    nothing = np.empty((0, 0), dtype=np.int64)
    if not (step >= 0).any():
        return Repeats(np.empty(0, dtype=np.int64), nothing, nothing, nothing, nothing)
    device = np.bincount(np.searchsorted(facts.devices, work.device)).argmax()
    mine = np.flatnonzero((step >= 0) & (work.device == facts.devices[int(device)]))
    mine = mine[np.argsort(step[mine], kind="stable")]
    first = np.flatnonzero(np.diff(step[mine], prepend=-1))
    pieces = np.split(mine, first[1:])
    alike: dict[bytes, list[int]] = {}
    for k, piece in enumerate(pieces):
        alike.setdefault(work.rows.name[piece].tobytes(), []).append(k)
    same = max(alike.values(), key=len)
    places = np.stack([pieces[k] for k in same])
    steps = step[places[:, 0]]
    return Repeats(steps, places, work.rows.row[places], work.rows.start[places], work.rows.end[places])


@dataclass(frozen=True, slots=True)
class OneOff:
    """m gaps: before the work at `place` of the `step`-th repeated step; `usual` ns: the others' median."""

    step: I64
    place: I64
    begins: I64
    ends: I64
    usual: F64


def one_off_gaps(repeats: Repeats) -> OneOff:
    """Gaps between two pieces of work of one step that no other step has at that position. Needs three steps."""
    # Work on several streams overlaps: a gap is what no earlier piece reaches into.
    reach = np.maximum.accumulate(repeats.end, axis=1)[:, :-1]
    gap = np.maximum(repeats.start[:, 1:] - reach, 0)
    if not gap.size:
        nothing = np.empty(0, dtype=np.int64)
        return OneOff(nothing, nothing, nothing, nothing, np.empty(0))
    ordered = np.sort(gap, axis=0)
    count = len(gap)
    # The median of the others, once the longest is left out.
    others = ordered[:-1]
    usual = (others[(count - 2) // 2] + others[(count - 1) // 2]) / 2
    longest = gap.argmax(axis=0)
    limit = np.maximum(limits.ONE_OFF_RATIO.value * usual, limits.ONE_OFF_MIN.value)
    place = np.flatnonzero((ordered[-1] >= limit) & (ordered[-2] < limit))
    step = longest[place]
    return OneOff(step, place + 1, reach[step, place], repeats.start[step, place + 1], usual[place])
