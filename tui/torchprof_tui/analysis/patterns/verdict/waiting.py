"""Diagnose what the GPU waits for most: input, a sync, cold calls, other ranks, host code, or a CPU slow to launch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.idle_causes import IdleCause
from torchprof_tui.analysis.patterns.engine.practices import OptimizerKind
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count, format_percent
from torchprof_tui.analysis.patterns.rules import communication
from torchprof_tui.analysis.patterns.rules.graphs import describe_replay_costs
from torchprof_tui.analysis.patterns.rules.host_code import measure_cpu_work
from torchprof_tui.analysis.patterns.rules.multi_gpu import exposed_waiting_time, find_late_rank
from torchprof_tui.analysis.patterns.rules.optimizer import measure_optimizer_share
from torchprof_tui.analysis.patterns.rules.serving import GenerationSteps, find_generation_steps
from torchprof_tui.analysis.patterns.verdict.diagnosis import (
    Diagnosis,
    Evidence,
    Says,
    always,
    diagnose_finding,
    say_share,
)
from torchprof_tui.analysis.patterns.verdict.tree_model import EXPOSED
from torchprof_tui.analysis.serving.serving_steps import KINDS, StepKind
from torchprof_tui.analysis.time.intervals import union, unite
from torchprof_tui.trace.core.arrays import I64, find_median, sorted_unique
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind

LAUNCHING = (IdleCause.DISPATCH, IdleCause.LAUNCH, IdleCause.HOST)

_MOST_OF_THE_WAITING = 0.8  # share of the waiting time in steps that is in steps of one kind, for that kind to be named
_MIN_LISTED_SHARE = 0.005  # share of the time below which a cause is not listed


def find_waiting_kind(view: ScopeView) -> tuple[StepKind, I64, str] | None:
    """Find the kind of steps with most of the waiting; None unless it alone is launched without graphs.

    (The kind; the steps' events, int64[k]; where the waiting is, and how these steps launch their work.)
    """
    steps: GenerationSteps = view.tables.compute_once(find_generation_steps)
    t0, t1 = view.window
    inside = (steps.start < t1) & (steps.end > t0)
    kinds = [kind for kind in KINDS if (inside & steps.kind_mask(kind)).any()]
    if len(kinds) < 2:
        return None
    idle = view.gap_finder.known_idle_intervals
    times = []
    for kind in kinds:
        chosen = inside & steps.kind_mask(kind)
        of_kind = union(steps.start[chosen], steps.end[chosen]).clip(t0, t1)
        times.append(sum(intervals.measure_overlap(of_kind) for intervals in idle.values()))
    worst = int(np.argmax(times))
    chosen = inside & steps.kind_mask(kinds[worst])
    kernels = int(steps.kernels[chosen].sum())
    if times[worst] < _MOST_OF_THE_WAITING * sum(times) or not kernels:
        return None
    others = inside & ~chosen
    is_replayed = [
        float(steps.graph_kernels[mask].sum()) >= thresholds.GRAPH_SHARE.value * max(int(steps.kernels[mask].sum()), 1)
        for mask in (chosen, others)
    ]
    if is_replayed != [False, True]:
        return None
    rows = steps.row[chosen].astype(np.int64)
    text = (
        f"{format_duration(times[worst])} of {format_duration(sum(times))} in {format_count(len(rows), 'step')} of "
        f"{kinds[worst].value}, {kernels // len(rows):,} kernels each, launched one by one; the other steps replay "
        "graphs"
    )
    return kinds[worst], rows, text


def diagnose_launching(evidence: Evidence) -> Diagnosis | None:
    """Diagnose a CPU that cannot launch as fast as the GPU runs: by what takes its time, else in general."""
    told = evidence.idle(*LAUNCHING)  # with its pauses, as in the time tree and in the finding
    share = told - (evidence.pause.time / evidence.device_time if evidence.pause else 0.0)
    if share <= 0:
        return None
    causes = [cause.id for cause in LAUNCHING]
    pattern_id, pattern_share = evidence.find_largest(*causes)
    if pattern_id and pattern_share >= thresholds.EXPLAINED_SHARE_OF_WAIT.value * share:
        return diagnose_finding(evidence.fired[pattern_id], IdleCause.DISPATCH.id, pattern_share)
    others = sum(evidence.explained_time(*causes).values()) / evidence.device_time
    view = evidence.view
    if waits := find_waiting_kind(view):
        kind, rows, text = waits
        say = say_share("the GPU waits", f" for the CPU, mostly in {kind.value}")
        remedy = f"capture the {kind.value} steps as well: the others are graphs already"
        if kind is StepKind.PREFILL:
            remedy = "the decode steps are graphs already: compile the prefill, or read more tokens at once"
        why = always(text)
        return Diagnosis(IdleCause.DISPATCH.id, share, say, remedy, why, rows, explained=others, told=told)
    kernels = int((view.work.kind == Kind.KERNEL).sum())
    steps = len(view.steps)
    per_step = kernels / steps if steps else kernels
    count = format_count(round(per_step), "kernel") + (" a step" if steps else "")
    median = format_duration(find_median(view.work.events.duration)) if len(view.work) else ""
    median = f" (median {median})" if kernels > 1 and median else f" ({median})" if median else ""
    say = say_share("the GPU waits", f" for the CPU to dispatch and launch {count}{median}")
    launches = sorted_unique(view.work.launch[view.work.launch >= 0]).astype(np.int64)
    is_replayed, remedy = evidence.practices.uses_cuda_graphs, choose_launch_remedy(evidence, per_step)
    why = always(describe_replay_costs(view)) if is_replayed else _describe_launching(evidence, told)
    return Diagnosis(IdleCause.DISPATCH.id, share, say, remedy, why, launches, explained=others, told=told)


def _describe_launching(evidence: Evidence, measured: float) -> Says:
    """Describe which causes of the time tree a share of waiting consists of, and what explains most of it.

    Where less or more than the `measured` share is said to be waiting, the causes are those of the idle time.
    """
    shares = {cause: evidence.idle(cause) for cause in LAUNCHING}
    listed = sorted(
        (cause for cause in LAUNCHING if shares[cause] >= _MIN_LISTED_SHARE), key=lambda each: -shares[each]
    )
    parts = ", ".join(f"{cause.label} {format_percent(shares[cause])}" for cause in listed)
    largest, part = evidence.find_largest(*(cause.id for cause in LAUNCHING))
    if len(listed) <= 1:
        return always("")
    if part >= thresholds.PROBLEM_MIN_SHARE.value:
        parts += f"; {largest}: {evidence.fired[largest].answer.seen}"
    total = format_percent(measured)

    def say(share: float) -> str:
        if format_percent(share) == total:
            return f"of these {total}: {parts}"
        return f"{total} with what other findings explain: {parts}" if share < measured else f"idle: {parts}"

    return say


def choose_launch_remedy(evidence: Evidence, kernels_per_step: float) -> str:
    """Choose how to launch less or faster, by what the program does already."""
    practices = evidence.practices
    if practices.uses_cuda_graphs:
        return "graphs are replayed already: capture what still runs outside them, or give each replay more work"
    if op := practices.data_dependent_op:
        return (
            f"{op} reads a size from the GPU, which no CUDA graph replays: give it a fixed size, or use larger batches"
        )
    if practices.uses_compile:
        return 'torch.compile is used already: add mode="reduce-overhead" (CUDA graphs), or use larger batches'
    if practices.has_backward or practices.optimizer_kind:
        is_fused = practices.optimizer_kind is None or practices.optimizer_kind is OptimizerKind.FUSED
        is_short = evidence.view.compute_once(measure_optimizer_share) < thresholds.OPTIMIZER_SHARE.value
        return "try a larger batch, torch.compile" + ("" if is_fused or is_short else ", a fused optimizer")
    if kernels_per_step <= thresholds.FEW_KERNELS.value:
        step = evidence.device_time / len(evidence.view.tables.devices) / max(len(evidence.view.steps), 1)
        mean = evidence.shares.busy * step / max(kernels_per_step, 1)
        if mean >= thresholds.LONG_KERNEL.value and evidence.shares.busy >= evidence.idle(*LAUNCHING):
            return (
                "record more steps (active=20), in which the CPU gets ahead of the GPU: kernels as long as these "
                f"({format_duration(mean)} on average) hide their launches; where it does not, capture a CUDA graph"
            )
        work, whole = format_duration(evidence.shares.busy * step), format_duration(step)
        whole = f"a step of {whole}" if len(evidence.view.steps) else whole
        return f"give the GPU more to do than {work} in {whole}: larger inputs, or many such calls in one CUDA graph"
    if "decode-without-graphs" in evidence.fired:
        return 'replay CUDA graphs with a static KV cache: torch.compile(mode="reduce-overhead")'
    return 'replay CUDA graphs (torch.compile(mode="reduce-overhead")), or use larger batches'


def measure_turn_taking(view: ScopeView) -> float:
    """Return the share of the device time in which a GPU waits for its turn, 0 where the GPUs take none.

    They take turns where they hardly work at the same time, and most of the time in which launched work does not start
    is time in which another GPU works: a model that was divided over GPUs layer by layer.
    """
    devices = view.tables.devices
    if len(devices) < 2 or not view.device_time:
        return 0.0
    busy = {device: view.tables.busy_intervals[device].clip(*view.window) for device in devices}
    together, total = unite(busy.values()), sum(part.total for part in busy.values())
    if total - together.total > thresholds.TURNS_OVERLAP.value * total:
        return 0.0
    gaps = view.gaps
    held, elsewhere = 0, 0
    for device in devices:
        waiting = view.gap_finder.list_cause_intervals(gaps, IdleCause.QUEUED, device)
        held += waiting.total
        elsewhere += waiting.measure_overlap(together - busy[device])
    return elsewhere / view.device_time if elsewhere >= thresholds.TURNS_SHARE.value * held else 0.0


def diagnose_waiting(evidence: Evidence) -> Diagnosis | None:
    """Diagnose the largest wait of the GPUs; None where they hardly wait."""
    candidates = [
        _diagnose_input(evidence),
        _diagnose_communication(evidence),
        _diagnose_cold_calls(evidence),
        _diagnose_cpu_work(evidence),
        _diagnose_sync(evidence),
        _diagnose_pause(evidence),
        diagnose_launching(evidence),
        _diagnose_queue(evidence),
    ]
    found = [candidate for candidate in candidates if candidate is not None]
    worst = max(found, key=lambda candidate: candidate.own_share, default=None)
    if worst is not None and worst.cause == IdleCause.DISPATCH.id and not worst.pattern:
        least = thresholds.EXPLAINED_SHARE_OF_WAIT.value * (1 - evidence.shares.busy)
        ops = (each for each in found if each.cause == IdleCause.CPU_COMPUTE.id and not each.is_recording_fault)
        worst = next((each for each in ops if each.share >= least), worst)  # ops by name say more than "launches"
    return worst if worst is not None and worst.share >= thresholds.WAIT_WORTH_A_WORD.value else None


def _diagnose_input(evidence: Evidence) -> Diagnosis | None:
    share = evidence.shares.input
    if not share:
        return None
    finding = evidence.fired.get("input-starved")
    waits = evidence.view.select_in_scope(evidence.view.gap_finder.input_waits)
    has_loader = len(evidence.view.gap_finder.loader_calls) > 0
    source = "for the data loader" if has_loader else "at the start of steps, where no op runs"
    remedy = finding.remedy.action if finding else "load in worker processes, ahead of the step, into pinned memory"
    why = always(finding.answer.seen if finding else "")
    return Diagnosis(IdleCause.INPUT.id, share, say_share("the GPU waits", f" {source}"), remedy, why, waits.row)


def _diagnose_communication(evidence: Evidence) -> Diagnosis | None:
    view, share = evidence.view, evidence.shares.communication
    if not share:
        return None
    card = communication.build_card_of_view(view)
    waiting_time = exposed_waiting_time(view) if view.tables.rank_context is not None else card.exposed_waiting
    is_waiting = waiting_time > thresholds.WAITING_SHARE_OF_EXPOSED.value * card.exposed
    finding = evidence.fired.get("exposed-comm")
    events = finding.answer.events if finding else view.work.events.row[view.work.kind == Kind.COLLECTIVE]
    longest = max(card.rows, key=lambda row: row.time, default=None)
    is_one_kind = longest is not None and 2 * longest.time >= sum(row.time for row in card.rows)
    collectives = longest.operation.value if longest is not None and is_one_kind else "communication"
    compared, add = always(card.describe()), ""
    late_rank, late_text = find_late_rank(view)
    if late_text and is_waiting:
        return replace(_diagnose_late_rank(evidence, late_rank, late_text), share=share, events=events)
    reduces = communication.describe_unbucketed_reduces(view, card)
    if reduces and (view.tables.rank_context is None or not is_waiting):
        sections = view.compute_once(communication.find_reduce_sections).values()
        section = max(share, sum(part.total for part in sections) / evidence.device_time)
        say = say_share(f"{reduces}, take", " with nothing computed beside, gaps included")
        return Diagnosis(EXPOSED, section, say, communication.BUCKET_REMEDY.action, compared, events)
    remedy = finding.remedy.action if finding else "overlap them with compute"
    if is_waiting:
        add = f", {format_percent(min(waiting_time / max(card.exposed, 1), 1.0))} of it in a wait for a late rank"
    elif view.tables.rank_context is None and (rate := communication.find_slow_rate(card)):
        add = f", at {rate:.2g} GB/s (a late rank, or a slow network)"
    remedy = "open the traces of all ranks together" if add else remedy
    say = say_share(f"{collectives} takes", f" while no kernel computes{add}")
    return Diagnosis(EXPOSED, share, say, remedy, compared, events)


def _diagnose_late_rank(evidence: Evidence, late_rank: int | None, text: str) -> Diagnosis:
    """Diagnose whom the ranks wait for, and why if it is known: a slow host, or a pause at one place.

    A pause of another rank is named as well: that rank is waited for next.
    """
    straggler, slow_host = evidence.fired.get("straggler"), evidence.fired.get("slow-host")
    remedy = "check what they do before them" if late_rank is None else "check what it does before them"
    why = straggler.answer.seen if straggler else ""
    rank_context = evidence.view.tables.rank_context
    assert rank_context is not None
    arrivals = rank_context.arrivals
    speed, stalls = arrivals.host_speed, arrivals.host_stalls
    waiting = straggler.answer.at_stake if straggler else 0
    own = next((stall for stall in stalls if stall.rank_index == late_rank), None)
    is_slow = slow_host is not None and speed.slowest == late_rank and 4 * slow_host.answer.at_stake >= waiting
    if is_slow:
        remedy = f"its host is slow, aten ops take {speed.slowest_factor:.2f}× as long as on the fastest rank"
    elif own is not None:
        remedy = f"it {own.text}"
    if other := next((stall for stall in stalls if stall.rank_index != late_rank), None):
        is_this = other.rank_index == rank_context.rank_index
        label = "this rank" if is_this else arrivals.ranks.all[other.rank_index].label
        remedy += f"; {label} {other.text}"
    return Diagnosis(
        EXPOSED,
        0.0,
        say_share(f"{text}, which costs"),
        remedy,
        always(why),
        late_rank=None if is_slow or own is not None else late_rank,
    )


def _diagnose_cold_calls(evidence: Evidence) -> Diagnosis | None:
    share = evidence.idle(IdleCause.COLD_CALL)
    if not share:
        return None
    compiling = evidence.op_compilation
    if 2 * compiling >= share:
        return diagnose_finding(evidence.fired["op-compilation"], IdleCause.COLD_CALL.id, compiling)
    view, share = evidence.view, share - compiling
    calls = view.select_in_scope(view.gap_finder.cold_calls)
    longest_call = ""
    if len(calls):
        row = int(calls.row[view.time_in_scope(calls).argmax()])
        longest, in_ops = int(view.trace.duration[row]), view.clip(view.gap_finder.cold_ops).total
        longest_call = f" ({view.tables.name(row)} takes {format_duration(longest)}"
        longest_call += f", ops {format_duration(in_ops)} the first time that they run)" if in_ops > longest else ")"
    say, remedy = say_cold(longest_call), "run some steps before you record; such calls happen once"
    return Diagnosis(IdleCause.COLD_CALL.id, share, say, remedy, events=calls.row, is_recording_fault=True)


def say_cold(what: str) -> Says:
    return say_share("not warmed up: cold calls take", what)


def _diagnose_cpu_work(evidence: Evidence) -> Diagnosis | None:
    share, finding = evidence.idle(IdleCause.CPU_COMPUTE), evidence.fired.get("cpu-work")
    if finding is None or not share:
        return None
    work = evidence.view.compute_once(measure_cpu_work)
    before = ", before its first kernel" if work.is_setup else ""
    say, remedy = (
        say_share("the GPU waits", f" for ops that compute on the CPU ({work.text}){before}"),
        finding.remedy.action,
    )
    is_fault, events = work.is_setup, finding.answer.events
    return Diagnosis(IdleCause.CPU_COMPUTE.id, share, say, remedy, events=events, is_recording_fault=is_fault)


def _diagnose_sync(evidence: Evidence) -> Diagnosis | None:
    share = evidence.idle(IdleCause.SYNC)
    finding = evidence.fired.get("sync-in-step")
    if finding is None:
        if not share:
            return None
        calls = evidence.view.select_in_scope(evidence.view.gap_finder.sync_calls)
        say = say_share("calls that wait for the GPU leave it idle")
        return Diagnosis(IdleCause.SYNC.id, share, say, "keep values on the GPU", events=calls.row)
    after_tokens = evidence.fired.get("token-sync")
    if after_tokens is not None and 2 * after_tokens.answer.at_stake >= finding.answer.at_stake:
        finding = after_tokens  # says when it waits, and what for
    delayed = finding.answer.at_stake * len(evidence.view.tables.devices) / evidence.device_time
    return diagnose_finding(finding, IdleCause.SYNC.id, max(share, min(delayed, 1 - evidence.shares.busy)))


def _diagnose_pause(evidence: Evidence) -> Diagnosis | None:
    pause = evidence.pause
    if pause is None:
        return None
    share = pause.time / evidence.device_time
    for finding in filter(None, map(evidence.fired.get, ("gc-pause", "scheduler-bound"))):
        lost = finding.answer.at_stake * len(evidence.view.tables.devices)
        if 2 * lost >= pause.time:  # else another pause is the larger one
            largest = max(share, evidence.idle(IdleCause.HOST))
            return diagnose_finding(finding, IdleCause.HOST.id, min(lost / evidence.device_time, largest))
    line = evidence.view.tables.line_finder.find_gap_line(*pause.longest)
    remedy = (
        "move it out of the step, or launch GPU work before it"
        if line is not None or len(evidence.practices.python_frames)
        else "record with stacks (with_stack=True) to see which code it is"
    )
    library = f", most of it in {line.library}" if line is not None and line.library else ""
    place = f"in {line.text}{library}" if line is not None else f"outside any op, {pause.place}"
    often = f"{pause.count:,}× {format_duration(pause.typical)}"
    steps = len(evidence.view.steps)
    if pause.steps == 1 and steps > 1:
        often += f", in one step of {steps}"
        stacks = "" if line is not None else ", with stacks (with_stack=True)"
        remedy = f"record more steps{stacks}: a checkpoint, an evaluation or the garbage collector comes now and then"
    say = say_share("the GPU waits", f" for host code {place} ({often})")
    return Diagnosis(IdleCause.HOST.id, share, say, remedy, events=pause.events, pause=pause)


def _diagnose_queue(evidence: Evidence) -> Diagnosis | None:
    """Diagnose work that had been launched and did not start: nothing that the CPU does."""
    view = evidence.view
    is_long = view.gaps.time[:, IdleCause.QUEUED] > thresholds.PROMPT_START.value
    events = view.gaps.next_event[is_long]
    events = events[events >= 0]
    if turns := measure_turn_taking(view):
        remedy = "split the batch into micro-batches (a pipeline), or keep the model on one GPU"
        say = say_share("the GPUs take turns: each waits", " while another one computes")
        return Diagnosis(IdleCause.QUEUED.id, turns, say, remedy, events=events)
    time = int(view.gaps.time[is_long, IdleCause.QUEUED].sum())
    if not time:
        return None
    share = time / evidence.device_time
    rows = np.concatenate([view.gap_finder.sync_calls.row, view.gap_finder.blocking_copies.row])
    waits = view.select_in_scope(view.tables.event_table(sorted_unique(rows)))
    held = ""
    if len(waits):
        durations = view.time_in_scope(waits)
        call = view.tables.name(int(waits.row[durations.argmax()]))
        held = f"; at that time the CPU is in {call} for {format_duration(int(durations.max()))}"
    remedy = "record a longer window, with the work before it, and look for waits between streams"
    say = say_share("for", f" the next work is launched but does not start{held}; the reason was not recorded")
    return Diagnosis(IdleCause.QUEUED.id, share, say, remedy, events=events)
