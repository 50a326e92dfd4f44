"""The pattern of optimizers that update one parameter after the other."""

from __future__ import annotations

import re

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.launch_owners import find_launch_ancestors
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Remedy, register_fault
from torchprof_tui.analysis.patterns.engine.practices import OPTIMIZER_NAME_REGEX, OptimizerKind
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.patterns.engine.undecidable_reasons import NO_LINKS
from torchprof_tui.analysis.time.intervals import union
from torchprof_tui.trace.core.arrays import I64, find_median, is_in
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind

FUSED_OPTIMIZERS = frozenset({"Adam", "AdamW", "SGD"})  # classes of `torch.optim` with `fused=True` on a GPU

_FOREACH_OPTIMIZERS = frozenset({"Adagrad", "Adadelta", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop"})


@register_fault(
    "The optimizer updates one parameter at a time",
    meaning="a few small kernels for each parameter: hundreds of launches, where a dozen are enough",
    action="use the fused or foreach version of the optimizer",
    decided="Optimizer steps that launch more kernels than the limit, with neither foreach nor fused ops inside. Time "
    "at stake: the GPU's idle time during these steps and between their kernels.",
    thresholds=(thresholds.OPTIMIZER_MIN_LAUNCHES,),
    needs=(ScopeView.missing_gpu_reason, ScopeView.missing_ops_reason),
)
def optimizer_loop(view: ScopeView) -> Answer:
    tables, work = view.tables, view.work
    all_steps = tables.match_names(OPTIMIZER_NAME_REGEX)
    if not len(all_steps):
        if tables.practices.has_backward:
            return Answer.cannot_tell("no optimizer step was recorded")
        return Answer.absent("no training in this trace: no backward pass and no optimizer step")
    if not len(np.flatnonzero((work.kind == Kind.KERNEL) & (work.launch >= 0))):
        return Answer.cannot_tell(NO_LINKS)
    found = view.compute_once(count_optimizer_launches)
    looping = found.looping
    if not len(looping):
        kind = "" if not found.has_batched else ", foreach or fused"
        return Answer.absent(f"at most {int(found.counts.max(initial=0))} kernels in an optimizer step{kind}")
    is_looping = is_in(found.owner, looping)
    kernels, by_step = work.events.select(found.launched[is_looping]), found.owner[is_looping]
    steps = tables.event_table(looping)
    first = np.array([kernels.start[by_step == step].min() for step in looping])
    last = np.array([kernels.end[by_step == step].max() for step in looping])
    idle = view.clip((union(steps.start, steps.end) | union(first, last)) - work.events.intervals).total
    name = tables.name(int(looping[0]))
    per_step = int(find_median(found.counts[is_in(found.owners, looping)]))
    seen = (
        f"{name} launches {per_step:,} kernels a step, {format_duration(find_median(kernels.duration))} in the "
        f"median; {format_count(len(looping), 'such step')}, the GPU idle {format_duration(idle)} in them"
    )
    events = np.concatenate([view.select_in_scope(steps).row, kernels.row])
    return Answer.fired(seen, events, idle, choose_optimizer_remedy(name))


@record
class OptimizerLaunches:
    """Kernels of a view by the optimizer step that launched them.

    `launched` int64[k]: index of each kernel in the GPU work. `owner` int64[k]: row of its optimizer step, -1 for none.
    `owners`, `counts` int64[m]: the steps, and their kernels. `looping`: rows of the steps that loop over parameters.
    """

    launched: I64
    owner: I64
    owners: I64
    counts: I64
    looping: I64
    has_batched: bool


def count_optimizer_launches(view: ScopeView) -> OptimizerLaunches:
    """Count the kernels of a view by the optimizer step that launched them; use `ScopeView.compute_once`."""
    tables, work = view.tables, view.work
    launched = np.flatnonzero((work.kind == Kind.KERNEL) & (work.launch >= 0))
    owners_of_work = tables.compute_once(find_launch_ancestors, OPTIMIZER_NAME_REGEX)
    owner = owners_of_work[view.work_in_scope][launched].astype(np.int64)
    counts_of_row = np.bincount(owner[owner >= 0])
    owners = np.flatnonzero(counts_of_row)
    counts = counts_of_row[owners]
    batched = tables.compute_once(_find_batched_steps)
    looping = owners[(counts >= thresholds.OPTIMIZER_MIN_LAUNCHES.value) & ~is_in(owners, batched)]
    return OptimizerLaunches(launched, owner, owners, counts, looping, len(batched) > 0)


def _find_batched_steps(tables: TraceTables) -> I64:
    steps = tables.match_names(OPTIMIZER_NAME_REGEX).row
    batched_ops = tables.match_names(r"aten::_(foreach|fused)_", Kind.OP)
    return steps[is_in(steps, tables.outermost_ancestor(batched_ops.row, tables.mark_rows(steps)))]


def measure_optimizer_share(view: ScopeView) -> float:
    """Return the share of the scope in which an optimizer step runs on the CPU, 0..1."""
    return view.covered_time(view.match_names(OPTIMIZER_NAME_REGEX)) / max(view.scope.length, 1)


def choose_optimizer_remedy(step_name: str, kind: OptimizerKind | None = None) -> Remedy:
    """Choose the remedy by the optimizer's class, which its step is named after, and by the form that is in use."""
    if kind is OptimizerKind.FUSED:
        return Remedy("the optimizer is fused already: use smaller states (8 bits), or shard them over several GPUs")
    match = re.match(OPTIMIZER_NAME_REGEX, step_name)
    optimizer = match[1] if match else ""
    if optimizer in FUSED_OPTIMIZERS:
        return Remedy("let one kernel update many parameters", f"torch.optim.{optimizer}(params, fused=True)")
    if kind is OptimizerKind.FOREACH:
        return Remedy(
            "foreach ops are used already: compile the optimizer's step", "step = torch.compile(optimizer.step)"
        )
    if optimizer in _FOREACH_OPTIMIZERS:
        return Remedy(
            "update all parameters in one call per operation", f"torch.optim.{optimizer}(params, foreach=True)"
        )
    return Remedy(
        "update lists of parameters instead of one after the other, or compile the step",
        "torch._foreach_mul_(params, decay)  # and similar ops; or torch.compile(optimizer.step)",
    )
