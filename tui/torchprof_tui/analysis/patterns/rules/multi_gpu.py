"""Beyond Part 1, several GPUs: communication that nothing hides, and ranks that arrive late."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.collectives.late_arrivals import Arrivals
from torchprof_tui.analysis.patterns.engine import thresholds as limits
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Section, Weight, absent, cannot_tell, fired
from torchprof_tui.analysis.patterns.engine.registry import pattern
from torchprof_tui.analysis.patterns.engine.scope_view import NO_GPU, View, percent, several, us
from torchprof_tui.analysis.patterns.engine.trace_tables import Across
from torchprof_tui.analysis.time.intervals import Intervals
from torchprof_tui.trace.core.arrays import Bool, distinct
from torchprof_tui.trace.model.event_kind import Kind


@pattern(
    "exposed-comm",
    Section.BEYOND,
    "Communication that nothing hides",
    meaning="collectives run while the GPU computes nothing: every such moment lengthens the step",
    action="overlap: smaller or larger buckets, prefetch, start the collective earlier",
    code="DistributedDataParallel(model, bucket_cap_mb=100, gradient_as_bucket_view=True)",
    decided="For each device, the union of collectives minus the union of kernels and fills, in the steps' span.",
    thresholds=(limits.EXPOSED_SHARE,),
    weight=Weight.PROBLEM,
    by_absence=True,
)
def exposed_comm(view: View) -> Answer:
    facts = view.facts
    if not len(facts.work):
        return cannot_tell(NO_GPU)
    if not any(len(times) for times in facts.collective_time.values()):
        ranks = view.trace.world_size
        if ranks is None or ranks < 2:
            return cannot_tell("one rank only: no collective was recorded")
        return absent("no collective was recorded")
    if not view.length:
        return cannot_tell("the program did nothing in this range")
    t0, t1 = view.window
    exposed = exposed_times(view)
    time = sum(one.total for one in exposed.values()) // len(facts.devices)
    share = time / view.length
    if share < limits.EXPOSED_SHARE.value:
        return absent(f"{us(time)} of communication is exposed, {percent(share)}")
    work = view.work
    rows = work.rows.where(work.kind == Kind.COLLECTIVE)
    alone = np.zeros(len(rows), dtype=np.int64)
    devices = work.device[work.kind == Kind.COLLECTIVE]
    for device, times in exposed.items():
        mine = devices == device
        alone[mine] = times.before(rows.end[mine]) - times.before(rows.start[mine])
    whole = sum(one.within(t0, t1) for one in facts.collective_time.values()) // len(facts.devices)
    return fired(
        f"{us(time)} of {us(whole)} in collectives is exposed: {percent(share)} of {view.base}{_of_it_waiting(view)}",
        np.sort(rows.row[alone > 0]),
        time,
    )


def exposed_times(view: View) -> dict[int, Intervals]:
    """device -> when a collective ran in the window and nothing was computed beside it."""
    t0, t1 = view.window
    facts = view.facts
    return {
        device: facts.collective_time[device].clip(t0, t1) - facts.kernel_time[device].clip(t0, t1)
        for device in facts.devices
    }


def exposed_waiting(view: View) -> int:
    """ns of the window in which this rank waited for the last one and computed nothing, where the others are known:
    no overlap would win that."""
    across = view.facts.across
    if across is None:
        return 0
    facts = view.facts
    waiting = across.arrivals.waiting(across.place).clip(*view.window)
    for device in facts.devices:
        waiting = waiting - facts.kernel_time[device]
    return waiting.total


def _of_it_waiting(view: View) -> str:
    if view.facts.across is None:
        return ""
    return f", {us(exposed_waiting(view))} of it waiting for the last rank"


STRAGGLER = "straggler"


@pattern(
    STRAGGLER,
    Section.BEYOND,
    "One rank arrives late",
    meaning="a collective ends for all when the last rank has come: all others wait for it",
    action="look at what the late rank does before the collective: its data, its clocks, its code",
    decided="Collectives joined over the ranks by process group, step and order (in one trace of several devices by "
    "name and order). A rank arrives when its kernel starts, and waits until the last one has. Fires where ranks wait "
    "for long in the mean; the rank that most of the waiting is for is named, and where one rank alone stands still "
    "before an operator, step after step. Needs several ranks: open their traces together.",
    thresholds=(limits.STRAGGLER_SHARE, limits.STRAGGLER_MIN, limits.STRAGGLER_OF_WAITING),
    weight=Weight.PROBLEM,
    of_all=True,
)
def straggler(view: View) -> Answer:
    facts = view.facts
    if facts.across is not None:
        return _straggler_across(view, facts.across)
    if not len(facts.work):
        return cannot_tell(NO_GPU)
    work = facts.work.where(facts.work.kind == Kind.COLLECTIVE)
    devices = distinct(work.device)
    if len(devices) < 2:
        return cannot_tell("one rank only: the others' traces are needed")
    order = np.lexsort((work.rows.start, work.device))
    work = work.where(order)
    per_device = [np.flatnonzero(work.device == device) for device in devices]
    names = {work.rows.name[mine].tobytes() for mine in per_device}
    if len(names) != 1:
        return cannot_tell("the ranks did not run the same collectives")
    place = np.stack(per_device)
    start, end = work.rows.start[place], work.rows.end[place]
    late = start.argmax(axis=0)
    spread = start.max(axis=0) - start.min(axis=0)
    inside = view.touches(start.min(axis=0), end.max(axis=0))
    wide = inside & (spread >= limits.STRAGGLER_MIN.value)
    lost = int(spread[wide].sum())
    share = lost / view.length if view.length else 0.0
    if share < limits.STRAGGLER_SHARE.value:
        return absent(f"starts differ by {us(int(spread[inside].max()))} at most" if inside.any() else "")
    last = np.bincount(late[wide], weights=spread[wide], minlength=len(devices))
    worst = int(devices[int(last.argmax())])
    rows = view.cut(work.rows.where(np.sort(place[:, wide].reshape(-1))))
    return fired(
        f"{several(int(wide.sum()), 'collective')}: device {worst} comes last most often, {us(lost)} of waiting",
        np.sort(rows.row),
        min(lost, view.scope.length),
    )


def _straggler_across(view: View, across: Across) -> Answer:
    met = across.arrivals
    if not len(met):
        return cannot_tell("no collective was joined over the ranks")
    if not view.length:
        return cannot_tell("the program did nothing in this range")
    inside = view.touches(met.first_start, met.last_start)
    wide = inside & (met.spread >= limits.STRAGGLER_MIN.value)
    waited = [met.waiting(place, wide).within(*view.window) for place in range(len(met.ranks))]
    came = int(met.present[wide].any(axis=0).sum())  # a rank whose file was cut waits for nobody
    lost = sum(waited) // max(came, 1)
    share = lost / view.length
    if share < limits.STRAGGLER_SHARE.value:
        longest = us(int(met.spread[inside].max())) if inside.any() else "nothing"
        return absent(f"ranks wait {us(lost)} for the last one in the mean, {percent(share)}; {longest} at most")
    late = _latest(met, wide)
    who = met.ranks.all[late.place].label
    if late.alone:
        seen = f"{who} comes last to {late.often}, {us(late.median)} after the others"
    else:
        seen = f"no one rank: most often {who} comes last to {late.often}"
    events = met.events(wide, across.place)
    for pause in met.pauses[:1]:  # where to look comes before what it costs
        whose = met.ranks.all[pause.rank].label
        seen += f"; {whose} alone stands still {us(pause.longer)} before {pause.operator}, in {pause.times} of "
        seen += several(pause.of, "step")
        if pause.rank == across.place:
            events = np.append(events, view.cut(view.facts.rows(np.array([pause.event]))).row)
    return fired(f"{seen}; ranks wait {us(lost)} in the mean", events, min(lost, view.scope.length))


@dataclass(frozen=True, slots=True)
class _Latest:
    """`place`: the rank that most of the waiting is for; `alone`: at least half of it. `often`: "21 of 21
    collectives", those to which it came last. `median`: ns by which it then came after the one before it."""

    place: int
    alone: bool
    often: str
    median: float


def _latest(met: Arrivals, wide: Bool) -> _Latest:
    """Of these collectives, of which there are some."""
    causes = np.bincount(met.last[wide], weights=met.waits[wide].sum(axis=1), minlength=len(met.ranks))
    worst = int(causes.argmax())
    last = wide & (met.last == worst)
    often = f"{int(last.sum()):,} of {several(int(wide.sum()), 'collective')}"
    alone = bool(causes[worst] >= limits.STRAGGLER_OF_WAITING.value * causes.sum())
    return _Latest(worst, alone, often, float(np.median(met.late_by[last])))


def late_rank(view: View) -> str:
    """Whom the ranks wait for and where to look, as advice in a line; "" where the other ranks are not known, or
    nobody comes late."""
    across = view.facts.across
    if across is None or not len(across.arrivals):
        return ""
    met = across.arrivals
    wide = view.touches(met.first_start, met.last_start) & (met.spread >= limits.STRAGGLER_MIN.value)
    if not wide.any():
        return ""
    late = _latest(met, wide)
    who = met.ranks.all[late.place].label
    if not late.alone:
        return f"ranks are late in turn, most often {who}, to {late.often}: look at what they do before"
    mine = "this rank" if late.place == across.place else who
    return f"{mine} is late to {late.often}: look at what it does before them"
