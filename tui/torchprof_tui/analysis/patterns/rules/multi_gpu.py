"""Beyond Part 1, several GPUs: communication that nothing hides, and ranks that arrive late."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.collectives.late_arrivals import Arrivals
from torchprof_tui.analysis.patterns.engine import thresholds as limits
from torchprof_tui.analysis.patterns.engine.pattern import (
    Answer,
    Section,
    Severity,
    absent_answer,
    cannot_tell_answer,
    fired_answer,
)
from torchprof_tui.analysis.patterns.engine.registry import register_pattern
from torchprof_tui.analysis.patterns.engine.scope_view import NO_GPU, ScopeView, format_count, format_percent, us
from torchprof_tui.analysis.patterns.engine.trace_tables import RankContext
from torchprof_tui.analysis.time.intervals import Intervals
from torchprof_tui.trace.core.arrays import Bool, sorted_unique
from torchprof_tui.trace.model.event_kind import Kind


@register_pattern(
    "exposed-comm",
    Section.BEYOND,
    "Communication that nothing hides",
    meaning="collectives run while the GPU computes nothing: every such moment lengthens the step",
    action="overlap: smaller or larger buckets, prefetch, start the collective earlier",
    code="DistributedDataParallel(model, bucket_cap_mb=100, gradient_as_bucket_view=True)",
    decided="For each device, the union of collectives minus the union of kernels and fills, in the steps' span.",
    thresholds=(limits.EXPOSED_SHARE,),
    severity=Severity.PROBLEM,
    fires_on_absence=True,
)
def exposed_comm(view: ScopeView) -> Answer:
    facts = view.tables
    if not len(facts.work):
        return cannot_tell_answer(NO_GPU)
    if not any(len(times) for times in facts.collective_intervals.values()):
        ranks = view.trace.world_size
        if ranks is None or ranks < 2:
            return cannot_tell_answer("one rank only: no collective was recorded")
        return absent_answer("no collective was recorded")
    if not view.window_length:
        return cannot_tell_answer("the program did nothing in this range")
    t0, t1 = view.window
    exposed = exposed_intervals(view)
    time = sum(one.total for one in exposed.values()) // len(facts.devices)
    share = time / view.window_length
    if share < limits.EXPOSED_SHARE.value:
        return absent_answer(f"{us(time)} of communication is exposed, {format_percent(share)}")
    work = view.work
    rows = work.events.select(work.kind == Kind.COLLECTIVE)
    alone = np.zeros(len(rows), dtype=np.int64)
    devices = work.device[work.kind == Kind.COLLECTIVE]
    for device, times in exposed.items():
        mine = devices == device
        alone[mine] = times.measure_before(rows.end[mine]) - times.measure_before(rows.start[mine])
    whole = sum(one.measure_between(t0, t1) for one in facts.collective_intervals.values()) // len(facts.devices)
    return fired_answer(
        f"{us(time)} of {us(whole)} in collectives is exposed: {format_percent(share)} of {view.window_label}{_format_waiting(view)}",
        np.sort(rows.row[alone > 0]),
        time,
    )


def exposed_intervals(view: ScopeView) -> dict[int, Intervals]:
    """device -> when a collective ran in the window and nothing was computed beside it."""
    t0, t1 = view.window
    facts = view.tables
    return {
        device: facts.collective_intervals[device].clip(t0, t1) - facts.compute_intervals[device].clip(t0, t1)
        for device in facts.devices
    }


def exposed_waiting_time(view: ScopeView) -> int:
    """ns of the window in which this rank waited for the last one and computed nothing, where the others are known:
    no overlap would win that."""
    across = view.tables.rank_context
    if across is None:
        return 0
    facts = view.tables
    waiting = across.arrivals.wait_intervals(across.rank_index).clip(*view.window)
    for device in facts.devices:
        waiting = waiting - facts.compute_intervals[device]
    return waiting.total


def _format_waiting(view: ScopeView) -> str:
    if view.tables.rank_context is None:
        return ""
    return f", {us(exposed_waiting_time(view))} of it waiting for the last rank"


STRAGGLER_ID = "straggler"


@register_pattern(
    STRAGGLER_ID,
    Section.BEYOND,
    "One rank arrives late",
    meaning="a collective ends for all when the last rank has come: all others wait for it",
    action="look at what the late rank does before the collective: its data, its clocks, its code",
    decided="Collectives joined over the ranks by process group, step and order (in one trace of several devices by "
    "name and order). A rank arrives when its kernel starts, and waits until the last one has. Fires where ranks wait "
    "for long in the mean; the rank that most of the waiting is for is named, and where one rank alone stands still "
    "before an operator, step after step. Needs several ranks: open their traces together.",
    thresholds=(limits.STRAGGLER_SHARE, limits.STRAGGLER_MIN, limits.STRAGGLER_SHARE_OF_WAITING),
    severity=Severity.PROBLEM,
    applies_to_all_ranks=True,
)
def straggler(view: ScopeView) -> Answer:
    facts = view.tables
    if facts.rank_context is not None:
        return _check_straggler_across_ranks(view, facts.rank_context)
    if not len(facts.work):
        return cannot_tell_answer(NO_GPU)
    work = facts.work.select(facts.work.kind == Kind.COLLECTIVE)
    devices = sorted_unique(work.device)
    if len(devices) < 2:
        return cannot_tell_answer("one rank only: the others' traces are needed")
    order = np.lexsort((work.events.start, work.device))
    work = work.select(order)
    per_device = [np.flatnonzero(work.device == device) for device in devices]
    names = {work.events.name[mine].tobytes() for mine in per_device}
    if len(names) != 1:
        return cannot_tell_answer("the ranks did not run the same collectives")
    place = np.stack(per_device)
    start, end = work.events.start[place], work.events.end[place]
    late = start.argmax(axis=0)
    spread = start.max(axis=0) - start.min(axis=0)
    inside = view.overlap_mask(start.min(axis=0), end.max(axis=0))
    wide = inside & (spread >= limits.STRAGGLER_MIN.value)
    lost = int(spread[wide].sum())
    share = lost / view.window_length if view.window_length else 0.0
    if share < limits.STRAGGLER_SHARE.value:
        return absent_answer(f"starts differ by {us(int(spread[inside].max()))} at most" if inside.any() else "")
    last = np.bincount(late[wide], weights=spread[wide], minlength=len(devices))
    worst = int(devices[int(last.argmax())])
    rows = view.select_in_scope(work.events.select(np.sort(place[:, wide].reshape(-1))))
    return fired_answer(
        f"{format_count(int(wide.sum()), 'collective')}: device {worst} comes last most often, {us(lost)} of waiting",
        np.sort(rows.row),
        min(lost, view.scope.length),
    )


def _check_straggler_across_ranks(view: ScopeView, across: RankContext) -> Answer:
    met = across.arrivals
    if not len(met):
        return cannot_tell_answer("no collective was joined over the ranks")
    if not view.window_length:
        return cannot_tell_answer("the program did nothing in this range")
    inside = view.overlap_mask(met.first_start, met.last_start)
    wide = inside & (met.spread >= limits.STRAGGLER_MIN.value)
    waited = [met.wait_intervals(place, wide).measure_between(*view.window) for place in range(len(met.ranks))]
    came = int(met.present[wide].any(axis=0).sum())  # a rank whose file was cut waits for nobody
    lost = sum(waited) // max(came, 1)
    share = lost / view.window_length
    if share < limits.STRAGGLER_SHARE.value:
        longest = us(int(met.spread[inside].max())) if inside.any() else "nothing"
        return absent_answer(
            f"ranks wait {us(lost)} for the last one in the mean, {format_percent(share)}; {longest} at most"
        )
    late = _find_latest_rank(met, wide)
    who = met.ranks.all[late.rank_index].label
    if late.is_main_cause:
        seen = f"{who} comes last to {late.frequency_text}, {us(late.median_delay)} after the others"
    else:
        seen = f"no one rank: most often {who} comes last to {late.frequency_text}"
    events = met.select_events(wide, across.rank_index)
    for pause in met.host_stalls[:1]:  # where to look comes before what it costs
        whose = met.ranks.all[pause.rank_index].label
        seen += f"; {whose} alone stands still {us(pause.excess)} before {pause.operator}, in {pause.step_count} of "
        seen += format_count(pause.compared_steps, "step")
        if pause.rank_index == across.rank_index:
            events = np.append(events, view.select_in_scope(view.tables.event_table(np.array([pause.event]))).row)
    return fired_answer(f"{seen}; ranks wait {us(lost)} in the mean", events, min(lost, view.scope.length))


@dataclass(frozen=True, slots=True)
class _LatestRank:
    """`place`: the rank that most of the waiting is for; `alone`: at least half of it. `often`: "21 of 21
    collectives", those to which it came last. `median`: ns by which it then came after the one before it."""

    rank_index: int
    is_main_cause: bool
    frequency_text: str
    median_delay: float


def _find_latest_rank(met: Arrivals, wide: Bool) -> _LatestRank:
    """Of these collectives, of which there are some."""
    causes = np.bincount(met.last_rank[wide], weights=met.wait_times[wide].sum(axis=1), minlength=len(met.ranks))
    worst = int(causes.argmax())
    last = wide & (met.last_rank == worst)
    often = f"{int(last.sum()):,} of {format_count(int(wide.sum()), 'collective')}"
    alone = bool(causes[worst] >= limits.STRAGGLER_SHARE_OF_WAITING.value * causes.sum())
    return _LatestRank(worst, alone, often, float(np.median(met.late_by[last])))


def describe_late_rank(view: ScopeView) -> str:
    """Whom the ranks wait for and where to look, as advice in a line; "" where the other ranks are not known, or
    nobody comes late."""
    across = view.tables.rank_context
    if across is None or not len(across.arrivals):
        return ""
    met = across.arrivals
    wide = view.overlap_mask(met.first_start, met.last_start) & (met.spread >= limits.STRAGGLER_MIN.value)
    if not wide.any():
        return ""
    late = _find_latest_rank(met, wide)
    who = met.ranks.all[late.rank_index].label
    if not late.is_main_cause:
        return f"ranks are late in turn, most often {who}, to {late.frequency_text}: look at what they do before"
    mine = "this rank" if late.rank_index == across.rank_index else who
    return f"{mine} is late to {late.frequency_text}: look at what it does before them"
