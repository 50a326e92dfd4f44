"""Patterns of a recording that is not typical: cold calls, steps that still get faster, the profiler's own cost.

What a program does once, and the steady steps that its warm-up leaves.
"""

from __future__ import annotations

import re

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.host_activity import OP_COMPILATION_REGEX, mark_first_calls
from torchprof_tui.analysis.patterns.engine.idle_causes import DeviceTimeShares, IdleCause
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Remedy, register_artefact, register_pattern
from torchprof_tui.analysis.patterns.engine.practices import COMPILE_WORK_REGEX
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count, format_percent
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.patterns.rules.serving import find_comparable_steps
from torchprof_tui.analysis.time.chance import estimate_spread
from torchprof_tui.analysis.time.intervals import Intervals, union
from torchprof_tui.analysis.time.step_bounds import find_launch_starts
from torchprof_tui.trace.core.arrays import F64, I64, Bool, is_in, sorted_unique
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind

_SETUP_CALL_REGEX = (
    r"(cuda|cu|hip)(Malloc|MemAlloc|MemCreate|MemMap|HostAlloc|HostRegister|Free|MemFree|Module|Library|Kernel|Func|Link"
    r"|GetDevice|DeviceGet|CtxCreate|Init|StreamCreate|EventCreate|Get(Proc|Driver|Export)|GraphInstantiate)"
)
_SETUP_OVERHEAD_REGEX = r"(Lazy Function|Runtime Triggered Module) Loading|Resource"


def lacks_setup_work(tables: TraceTables, ranges: EventTable) -> bool:
    """Return whether a program does nothing in these ranges that it does once, where that would have been recorded.

    Such work are calls, the profiler's records of loading, and compilation that a warm program does not do again.
    """
    calls, compiling = tables.match_names(_SETUP_CALL_REGEX, Kind.RUNTIME), tables.match_names(COMPILE_WORK_REGEX)
    loading = tables.match_names(_SETUP_OVERHEAD_REGEX, Kind.OVERHEAD)
    starts = np.sort(np.concatenate([calls.start, loading.start, compiling.start]))
    is_inside = starts.searchsorted(ranges.start) < starts.searchsorted(ranges.end)
    return len(tables.calls) > 0 and not bool(is_inside.any())


_OTHER_CALL = re.compile(rf".*(Synchroni|Memcpy|GraphLaunch|StreamWaitEvent|EventQuery)|{OP_COMPILATION_REGEX}")
"""Calls that are long for other reasons: they wait, copy, launch hundreds of kernels at once, or compile ops each time
(`op-compilation`)."""


def find_cold_calls(tables: TraceTables) -> EventTable:
    """Find calls on launching threads that took over a millisecond without waiting for the GPU.

    A launch that lasts while the GPU works waits for room in a full queue: no cold call. Nor is a call that is as long
    whenever it is made, or that each step makes.
    """
    calls = tables.select_on_launch_lanes(
        tables.calls.select(tables.calls.duration >= int(thresholds.COLD_CALL_MIN.value))
    )
    calls = tables.filter_by_name(calls, lambda name: _OTHER_CALL.match(name) is None)
    busy = np.zeros(len(calls), dtype=np.int64)
    for device in tables.devices:
        intervals = tables.busy_intervals[device]
        busy = np.maximum(busy, intervals.measure_within(calls.start, calls.end))
    calls = calls.select(busy < thresholds.COLD_CALL_BUSY_SHARE.value * calls.duration)
    return calls.select(mark_first_calls(tables, calls))


@register_pattern(
    "A call loads or allocates",
    meaning="kernels are loaded, handles created and memory allocated from the driver at the first use, once",
    action="run a few steps before the recording, so that such calls happen earlier",
    code="schedule=torch.profiler.schedule(wait=1, warmup=3, active=3)",
    decided="Runtime and driver calls of a launching thread that take longer than the limit, do not wait or copy, "
    "and during which the GPU is busy for less than half of the time (else the call waits for a full queue). Not calls "
    "whose name takes as long in the median, nor those that each step makes as often. With them counts what ops take "
    "themselves the first time that they run, if that is much longer than later.",
    thresholds=(
        thresholds.COLD_CALL_MIN,
        thresholds.COLD_CALL_SHARE,
        thresholds.COLD_CALL_BUSY_SHARE,
        thresholds.RECURRING_RATE,
    ),
    needs=(ScopeView.missing_work_reason, ScopeView.missing_calls_reason),
)
def cold_call(view: ScopeView) -> Answer:
    tables = view.tables
    calls = view.select_in_scope(tables.compute_once(find_cold_calls))
    time = view.covered_time(calls)
    share = time / view.scope.length
    if not len(calls) or share < thresholds.COLD_CALL_SHARE.value:
        return Answer.absent(f"{format_count(len(calls), 'cold call')}, {format_percent(share)}" if len(calls) else "")
    longest = int(calls.row[calls.duration.argmax()])
    seen = (
        f"{format_count(len(calls), 'call')} over a millisecond: {format_duration(time)} in all; "
        f"the longest is {tables.name(longest)}, {format_duration(int(view.trace.duration[longest]))}"
    )
    cold = view.clip(calls.intervals | view.gap_finder.cold_ops)
    if cold.total > time:
        seen += f"; ops take {format_duration(cold.total - time)} more the first time that they run"
    return Answer.fired(seen, calls.row, cold.total, _choose_cold_remedy(view, calls), cold)


def _choose_cold_remedy(view: ScopeView, calls: EventTable) -> Remedy | None:
    names = [view.tables.name(int(row)) for row in calls.row]
    is_allocation = [re.match(r"(cuda|hip|cu)(Malloc|Free|Host|Mem)", name) is not None for name in names]
    if len(names) and all(is_allocation):
        return Remedy(
            "run a few steps before the recording, because the caching allocator keeps memory for reuse",
            "schedule=torch.profiler.schedule(wait=1, warmup=3, active=3)",
        )
    if not len(view.tables.steps):  # it starts up
        return Remedy(
            "run the code once before the recording; if the start-up is what matters, load all kernels at once",
            "CUDA_MODULE_LOADING=EAGER python serve.py" if not any(name.startswith("hip") for name in names) else "",
        )
    return None


@record
class WarmingSteps:
    """The first steps of a recording that still get faster: `count` of them, 0 for none.

    `durations` float64[s]: ns of all steps without the profiler's own work; `excess` int64[count]: ns of each above the
    last of them.
    """

    count: int
    durations: F64
    excess: I64


def find_warming_steps(tables: TraceTables) -> WarmingSteps:
    """Find the steps at the start that get faster one after the other; none if the GPU is behind all the while."""
    steps, overhead = tables.compute_once(find_comparable_steps), tables.overhead_intervals
    length = steps.end - steps.start - overhead.measure_within(steps.start, steps.end)
    durations = length.astype(np.float64)
    no_steps = WarmingSteps(0, durations, np.zeros(0, dtype=np.int64))
    if len(steps) < thresholds.WARMING_MIN_STEPS.value:
        return no_steps
    is_faster = durations[1:] <= thresholds.WARMING_STEP_RATIO.value * durations[:-1]
    count = 1 + (len(is_faster) if is_faster.all() else int(is_faster.argmin()))
    if (
        count < thresholds.WARMING_MIN_STEPS.value
        or durations[0] < thresholds.WARMING_TOTAL_RATIO.value * durations[count - 1]
    ):
        return no_steps
    slow = max(thresholds.FIRST_STEP_RATIO.value * durations[count - 1], thresholds.WIDE_AGAIN.value * durations[0])
    as_slow = durations[count:] >= slow
    if int(as_slow.sum()) > thresholds.WIDE_STEPS_SHARE.value * (len(steps) - 1):
        return no_steps  # slow steps recur: nothing that warms up
    in_steps = is_in(tables.launch_step, tables.steps.index_at(steps.start[:count]))
    if int(tables.work.events.duration[in_steps].sum()) > durations[:count].sum():
        return no_steps  # hidden behind the GPU: how long the CPU takes for a step does not matter
    excess: I64 = (durations[:count] - durations[count - 1]).astype(np.int64)
    return WarmingSteps(count, durations, excess)


@register_pattern(
    "The recording is not warmed up",
    meaning="steps still get faster, or loading takes much of the time, so these numbers are not typical of a long run",
    action="record later: skip several steps before the first recorded one",
    code="schedule=torch.profiler.schedule(wait=3, warmup=3, active=5)",
    decided="At least the first three steps, each a tenth or more faster than the one before (without the profiler's "
    "own work, and only if the CPU works longer on them than the GPU; of a language model's steps those that decode), "
    "if something is loaded, allocated or compiled in them, or runtime calls were not recorded; "
    "or cold calls that take a quarter of the scope.",
    thresholds=(
        thresholds.WARMING_STEP_RATIO,
        thresholds.WARMING_TOTAL_RATIO,
        thresholds.WARMING_MIN_STEPS,
        thresholds.COLD_WINDOW_SHARE,
    ),
)
def not_warmed_up(view: ScopeView) -> Answer:
    tables = view.tables
    steps, warming = tables.compute_once(find_comparable_steps), tables.compute_once(find_warming_steps)
    cold = view.select_in_scope(tables.compute_once(find_cold_calls))
    # Loading before the first step is no part of the steps that the numbers are of.
    cold_time = cold.intervals.clip(*view.window).total
    is_cold = cold_time >= thresholds.COLD_WINDOW_SHARE.value * max(view.window_length, 1) and len(tables.work) > 0
    in_scope = view.overlap_mask(steps.start[: warming.count], steps.end[: warming.count])
    getting_faster = tables.event_table(steps.row[: warming.count])
    if in_scope.any() and not is_cold and lacks_setup_work(tables, getting_faster):
        return Answer.absent(
            f"the first {warming.count} steps get faster, but nothing is loaded, allocated or compiled in them"
        )
    parts, events, time = [], [], 0
    if in_scope.any():
        rows = steps.row[: warming.count][in_scope]
        times = ", ".join(format_duration(float(duration)) for duration in warming.durations[: min(warming.count, 5)])
        parts.append(f"the first {warming.count} steps get faster: {times}")
        events.append(rows)
        covered = view.covered_time(tables.event_table(rows))
        time = min(int(warming.excess[in_scope].sum()), covered)
    if is_cold:
        cold_share = cold_time / view.scope.length
        parts.append(f"loading and allocating takes {format_duration(cold_time)}, {format_percent(cold_share)}")
        events.append(cold.row)
        time = max(time, cold_time)
    if parts:
        return Answer.fired("; ".join(parts), np.concatenate(events), time)
    if not len(steps) and tables.trace.steps:
        return Answer.cannot_tell(view.missing_steps_reason())
    if len(steps) < thresholds.WARMING_MIN_STEPS.value:
        return Answer.cannot_tell(
            f"{format_count(len(steps), 'step')} recorded: at least three are needed to see whether they get faster"
        )
    return Answer.absent(f"{len(steps)} steps: they do not get steadily faster")


@register_artefact(
    "The profiler slows the program",
    meaning="recording a Python frame takes CPU time, so steps get longer where the GPU waits for the CPU",
    action="record without stacks to measure times, and with stacks to find lines of code",
    code="torch.profiler.profile(with_stack=False, record_shapes=False, profile_memory=False)",
    decided="The number of recorded Python frames times the cost of one, at most the time in which the CPU worked "
    "while the GPU was idle, over the length of the scope, if the GPU is not the limit. The cost is an estimate "
    "from one program that was recorded with and without stacks.",
    thresholds=(thresholds.FRAME_COST, thresholds.INFLATION_SHARE, thresholds.GPU_BUSY_HIGH),
)
def profiler_inflation(view: ScopeView) -> Answer:
    tables = view.tables
    all_frames = tables.practices.python_frames
    if not len(all_frames):
        if not len(tables.ops):
            return Answer.cannot_tell("no CPU thread was recorded")
        return Answer.absent("recorded without Python stacks")
    frames = view.select_in_scope(tables.select_on_launch_lanes(all_frames))
    started, cost = estimate_frame_cost(view)
    share = min(cost / view.scope.length, 1.0)
    summary = f"{started:,} Python frames of 2 to 4 µs each cost up to {format_duration(cost)}"
    if len(tables.work) and view.busy_share > thresholds.GPU_BUSY_HIGH.value:
        return Answer.absent(f"{summary}, hidden behind the GPU")
    if share < thresholds.INFLATION_SHARE.value:
        return Answer.absent(f"{summary}: {format_percent(share)} of the time")
    evidence = view.steps.row
    if not len(evidence):
        outermost = frames.row[np.asarray(view.trace.parent[frames.row]) < 0]
        evidence = outermost if len(outermost) else frames.row[:1]
    return Answer.fired(f"{summary}: {format_percent(share)} of the time", evidence)


def estimate_frame_cost(view: ScopeView) -> tuple[int, int]:
    """Estimate what recording Python frames costs the program at most: (number of frames in the scope, ns).

    Frames of launching threads, and at most the time in which the CPU worked while the GPU had nothing to do: what is
    beyond that is hidden behind the GPU.
    """
    tables = view.tables
    frames = view.select_in_scope(tables.select_on_launch_lanes(tables.practices.python_frames))
    started = int((frames.start >= view.scope.t0).sum())
    cost = started * int(thresholds.FRAME_COST.value)
    if not len(tables.work):
        return started, min(cost, view.scope.length)
    times = view.gaps.time_by_cause()
    waited = sum(times.get(cause, 0) for cause in _CPU_WORKS) // len(tables.devices)
    return started, min(cost, waited)


_CPU_WORKS = (IdleCause.INPUT, *(cause for cause in DeviceTimeShares.OVERHEAD_CAUSES if cause is not IdleCause.SYNC))
"""Idle time of the GPU in which the CPU runs the program, and does not wait itself."""


_OUTLIER_SPREADS = 3.0
"""A first step that is this many standard deviations above the later ones is no steady step: by chance 1 in 700 is."""

_OUTLIER_SHARE = 0.1
"""It must also be a tenth longer: the spread of two or three steps can be next to nothing by chance."""

_MIN_STEADY_STEPS = 2  # steps that the warm-up leaves for a spread of their own, unless cold calls fill the others
_MAX_WARMUP_STEPS = 100  # no program warms up for longer; a file that says so is compared from here
_HALF_TOLERANCE = 0.05  # launches that go down by 45 to 55 % go down by half


@record
class SteadySteps:
    """The index of the first steady step, and why the steps before it are none: one sentence each."""

    first: int
    left_out: tuple[str, ...]


def find_steady_steps(tables: TraceTables) -> SteadySteps:
    """Find where the warm-up ends: the first steps are left out while they are no steps like the later ones.

    A step warms up where it lasts longer than the spread of the steps after it explains, where each step is faster than
    the one before, or where cold calls or the profiler's own start take it; the last step is always kept.
    """
    durations = np.diff(tables.step_bounds).astype(np.float64)
    count = len(durations)
    if count < 2:
        return SteadySteps(0, ())
    names = [f"step #{number}" for number in tables.steps.number.tolist()]
    cold, profiler = _measure_in_steps(tables, durations)
    first, reasons = 0, []
    warming = tables.compute_once(find_warming_steps)
    warming_count = min(max(warming.count - 1, 0), max(count - _MIN_STEADY_STEPS, 0))
    while first < min(count - 1, _MAX_WARMUP_STEPS):
        reason = _find_warmup_reason(durations[first:], cold[first:], profiler[first:])
        if not reason and first < warming_count:
            reason = "steps still get faster"
        if not reason:
            break
        usual = format_duration(float(np.median(durations[first + 1 :])))
        reasons.append(f"{names[first]} ({format_duration(durations[first])}, later ones {usual}): {reason}")
        first += 1
    return SteadySteps(first, tuple(reasons))


def _find_warmup_reason(durations: F64, cold: F64, profiler: F64) -> str:
    """Say why the first of these steps is none like the later ones, "" if it is. Shares of each step, 0..1."""
    for shares, what in ((cold, "cold calls take"), (profiler, "the profiler's own start takes")):
        if shares[0] >= thresholds.COLD_SHARE.value and 2 * float(np.median(shares[1:])) < shares[0]:
            return f"{what} {format_percent(float(shares[0]))} of it"
    later = durations[1:]
    usual = float(np.median(later))
    if len(later) < _MIN_STEADY_STEPS:
        return "longer than twice the other" if durations[0] > 2 * usual else ""
    limit = max(_OUTLIER_SPREADS * estimate_spread(later), _OUTLIER_SHARE * usual)
    return "longer than the spread of the later steps explains" if durations[0] > usual + limit else ""


def _measure_in_steps(tables: TraceTables, durations: F64) -> tuple[F64, F64]:
    """Measure the share of each step that cold calls take, and the profiler's own work: float64[s] each, 0..1."""
    bounds = tables.step_bounds
    calls = tables.compute_once(find_cold_calls)

    def share(times: Intervals) -> F64:
        shares: F64 = np.diff(times.measure_before(bounds)) / np.maximum(durations, 1)
        return shares

    return share(union(calls.start, calls.end)), share(tables.overhead_intervals)


def find_launched_work(tables: TraceTables, start: int, end: int) -> Bool:
    """Find the GPU work that was launched in a time range, ns: bool[work]."""
    launched_at = find_launch_starts(tables.trace, tables.work.events.row)
    launched: Bool = (launched_at >= start) & (launched_at < end)
    return launched


def find_launches(tables: TraceTables, launched: Bool) -> I64:
    """Find the launch of each piece of this GPU work, bool[work]: int64[k], without work of no known launch."""
    launch = tables.work.launch[launched]
    return launch[launch >= 0].astype(np.int64)


def count_calls(launches: I64) -> int:
    """Count the calls that launched GPU work: the launch of a graph is one call."""
    return len(sorted_unique(launches))


@record
class StepWork:
    """What a steady step of a trace does, on average: ns, calls that launch GPU work, kernels, copies and fills."""

    time: float
    launches: float
    kernels: float
    moves: float


def measure_step_work(tables: TraceTables) -> StepWork | None:
    """Measure the steady steps, as `diff` does; None for a trace without steps."""
    count = len(tables.steps)
    if not count:
        return None
    first = find_steady_steps(tables).first
    steps = count - first
    start, end = int(tables.steps.start[first]), int(tables.steps.end[first:].max())
    launched = find_launched_work(tables, start, max(end, start + 1))
    kernels = int((launched & tables.work.kind_mask(Kind.KERNEL, Kind.COLLECTIVE)).sum())
    return StepWork(
        float(tables.step_bounds[-1] - tables.step_bounds[first]) / steps,
        count_calls(find_launches(tables, launched)) / steps,
        kernels / steps,
        (int(launched.sum()) - kernels) / steps,
    )


def describe_launches(a: float, b: float) -> str:
    """Describe how many calls of a step launch GPU work, and whether they go down by half; "" without any."""
    if not a and not b:
        return ""
    counts = f"launches a step: {format_per_step(a)} → {format_per_step(b)}"
    if a == b or not a:
        return counts
    change = b / a - 1
    if change >= 0:
        return f"{counts} (+{format_percent(change)})"
    if abs(change + 0.5) <= _HALF_TOLERANCE:
        by_half = "down by half"
    else:
        by_half = f"down by {'more' if change < -0.5 else 'less'} than half"
    return f"{counts} (-{format_percent(-change)}, {by_half})"


def format_per_step(count: float) -> str:
    """Format a count per step, with a digit where it is no whole number."""
    return f"{count:,.0f}" if count == int(count) or count >= 100 else f"{count:.1f}"
