"""Diagnose a CPU that cannot launch as fast as the GPU runs: the sentence, its parts, and how to launch less."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.idle_causes import IdleCause
from torchprof_tui.analysis.patterns.engine.practices import OptimizerKind
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count, format_percent
from torchprof_tui.analysis.patterns.rules.graphs import describe_replay_costs
from torchprof_tui.analysis.patterns.rules.optimizer import measure_optimizer_share
from torchprof_tui.analysis.patterns.rules.serving import GenerationSteps, find_generation_steps
from torchprof_tui.analysis.patterns.verdict.diagnosis import Diagnosis, Evidence, diagnose_finding
from torchprof_tui.analysis.serving.serving_steps import KINDS, StepKind
from torchprof_tui.analysis.time.intervals import union
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
        times.append(sum((intervals & of_kind).total for intervals in idle.values()))
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
    pause = evidence.pause
    share = evidence.idle(*LAUNCHING) - (pause.time / evidence.device_time if pause else 0.0)
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
        what = f"the GPU waits {format_percent(share)} of the time for the CPU, mostly in {kind.value}"
        remedy = f"capture the {kind.value} steps as well: the others are graphs already"
        if kind is StepKind.PREFILL:
            remedy = "the decode steps are graphs already: compile the prefill, or read more tokens at once"
        return Diagnosis(IdleCause.DISPATCH.id, share, what, remedy, text, rows, explained=others)
    kernels = int((view.work.kind == Kind.KERNEL).sum())
    steps = len(view.steps)
    per_step = kernels / steps if steps else kernels
    count = format_count(round(per_step), "kernel") + (" a step" if steps else "")
    median = format_duration(find_median(view.work.events.duration)) if len(view.work) else ""
    median = f" (median {median})" if kernels > 1 and median else f" ({median})" if median else ""
    told = _include_short_pause(evidence, share)
    what = f"the GPU waits {format_percent(told)} of the time for the CPU to dispatch and launch {count}{median}"
    launches = sorted_unique(view.work.launch[view.work.launch >= 0]).astype(np.int64)
    why = describe_replay_costs(view) if evidence.practices.uses_cuda_graphs else _describe_launching(evidence, told)
    remedy = choose_launch_remedy(evidence, per_step)
    return Diagnosis(IdleCause.DISPATCH.id, share, what, remedy, why, launches, explained=others)


_SHORT_PAUSE = 0.1
"""Share of the waiting up to which a pause is counted with it in the text: as in the time tree and in the finding."""


def _include_short_pause(evidence: Evidence, share: float) -> float:
    """Return the share of waiting that a text names, with a pause that is too short to be named by itself."""
    pause = evidence.pause.time / evidence.device_time if evidence.pause else 0.0
    return share + pause if pause <= _SHORT_PAUSE * share else share


def _describe_launching(evidence: Evidence, share: float) -> str:
    """Describe which causes of the time tree a share of waiting consists of, and what explains most of it."""
    pause = max(evidence.idle(*LAUNCHING) - share, 0.0)  # which the share leaves out
    shares = {cause: evidence.idle(cause) - (pause if cause is IdleCause.HOST else 0.0) for cause in LAUNCHING}
    listed = sorted(
        (cause for cause in LAUNCHING if shares[cause] >= _MIN_LISTED_SHARE), key=lambda each: -shares[each]
    )
    parts = ", ".join(f"{cause.label} {format_percent(shares[cause])}" for cause in listed)
    text = f"of these {format_percent(share)}: {parts}" if len(listed) > 1 else ""
    largest, part = evidence.find_largest(*(cause.id for cause in LAUNCHING))
    if part >= thresholds.PROBLEM_MIN_SHARE.value:
        found = f"{largest} {format_percent(part)}"
        text = f"{text}; {found}: {evidence.fired[largest].answer.seen}" if text else ""
    return text


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
        return "too little work for a GPU: use larger inputs, or many such calls in one CUDA graph"
    if "decode-without-graphs" in evidence.fired:
        return 'replay CUDA graphs with a static KV cache: torch.compile(mode="reduce-overhead")'
    return 'replay CUDA graphs (torch.compile(mode="reduce-overhead")), or use larger batches'
