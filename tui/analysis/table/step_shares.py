"""What each step's GPU time went to, so that drift over the steps is seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tui.analysis.kernel_names import KernelClass
from tui.analysis.table.groups import by_class, step_of
from tui.analysis.table.profile import Profile
from tui.trace.arrays import I64
from tui.trace.trace import Step


@dataclass(frozen=True)
class StepShares:
    """`ns` int64[steps, classes]: GPU time of the work that each step launched, by kernel class.

    Work on several streams at once counts for each: a row may sum to more than its step took. `classes` are those that
    occur, the one with most time first.
    """

    steps: list[Step]
    classes: list[KernelClass]
    ns: I64


def step_shares(profile: Profile) -> StepShares:
    """Of every step of the trace; no rows where there is none."""
    calls = profile.calls
    groups = by_class(calls)
    step = step_of(profile.trace, profile.asked[calls.event])
    work = np.flatnonzero((groups.row >= 0) & (step >= 0))
    steps = profile.trace.steps
    shape = (len(steps), len(groups.names))
    cell = step[work].astype(np.int64) * shape[1] + groups.row[work]
    # float64 sums are exact up to 2**53 ns: a hundred days.
    ns = np.bincount(cell, weights=calls.gpu[work], minlength=shape[0] * shape[1]).astype(np.int64).reshape(shape)
    total = ns.sum(axis=0)
    order = [place for place in np.argsort(-total, kind="stable").tolist() if total[place] > 0]
    return StepShares(steps, [KernelClass(place) for place in order], ns[:, order])
