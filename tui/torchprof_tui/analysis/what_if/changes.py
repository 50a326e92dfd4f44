"""Apply scenarios to the delays of a step's graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torchprof_tui.analysis.critical_path.dependency_graph import EdgeKind
from torchprof_tui.analysis.critical_path.segments import SegmentKind
from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.what_if.back_to_back import GONE
from torchprof_tui.analysis.what_if.compiled_step import compile_step
from torchprof_tui.analysis.what_if.late_rank import find_late_rank
from torchprof_tui.analysis.what_if.merged_launches import fuse_optimizer, launch_as_graph
from torchprof_tui.analysis.what_if.rank_changes import RankChanges
from torchprof_tui.analysis.what_if.scenario import OVERLAPPED, Scenario, ScenarioError, ScenarioKind
from torchprof_tui.analysis.what_if.selections import select_inside
from torchprof_tui.analysis.what_if.step_model import RankModel, StepModel
from torchprof_tui.trace.core.arrays import I64, Bool
from torchprof_tui.trace.model.event_kind import Kind

_MERGED = {
    ScenarioKind.LAUNCH: launch_as_graph,
    ScenarioKind.COMPILE: compile_step,
    ScenarioKind.OPTIMIZER: fuse_optimizer,
}


def apply_scenarios(model: StepModel, scenarios: Sequence[Scenario]) -> tuple[list[RankChanges], I64, int | None]:
    """Apply scenarios: what they change, the delays int64[e], and the index of a rank that no other waits for.

    Raises ScenarioError for a scenario that changes nothing in this step.
    """
    changes = [RankChanges(rank) for rank in model.ranks]
    without = None
    for scenario in scenarios:
        if scenario.kind is ScenarioKind.LATE_RANK:
            without = find_late_rank(model)
            continue
        if not sum([_change_rank(each, scenario) for each in changes]):
            raise ScenarioError(f"{scenario.text!r} changes nothing: {_explain(scenario, model)}")
    delay: I64 = model.delay.copy()
    for each, edges in zip(changes, model.edge_of, strict=True):
        delay[edges] = each.compute_delay(model.delay[edges])
    for index, each in enumerate(changes):
        own = np.flatnonzero(model.transfer_rank == index)
        edges = model.transfer_edges[own]
        delay[edges] = np.rint(model.delay[edges] * each.work_factor[model.transfer_work[own]]).astype(np.int64)
    if without is not None:
        delay[model.arrival_edges[model.arrival_rank == without]] = GONE
    return changes, delay, without


def _change_rank(changes: RankChanges, scenario: Scenario) -> bool:
    """Apply one scenario to one rank; return whether it changes anything there."""
    rank, kind, factor = changes.rank, scenario.kind, scenario.factor
    if kind in _MERGED:
        return _MERGED[kind](changes)
    if kind is ScenarioKind.SYNC:
        return _drop_blocking(changes)
    if kind is ScenarioKind.COLLECTIVES and scenario.subject == OVERLAPPED:
        return _overlap_collectives(changes)
    pieces, work = _select(rank, scenario)
    return changes.scale(pieces, work, factor)


def _select(rank: RankModel, scenario: Scenario) -> tuple[Bool, Bool]:
    """Select the pieces of CPU time bool[p] and the work bool[m] that a scenario is about."""
    kind, subject = scenario.kind, scenario.subject
    pieces, work = np.zeros(len(rank.pieces), np.bool_), np.zeros(len(rank.work_class), np.bool_)
    event_kind = rank.trace.kind[rank.window.work.event]
    is_wait = rank.pieces.kind == SegmentKind.BLOCKING
    if kind is ScenarioKind.CLASS:
        work = rank.work_class == next(each for each in KernelClass if each.label == subject)
    elif kind is ScenarioKind.KERNEL:
        work = _match_names(rank, subject)
    elif kind is ScenarioKind.COPIES:
        work = np.isin(event_kind, (Kind.COPY, Kind.MEMSET))
    elif kind is ScenarioKind.COLLECTIVES:
        work = event_kind == Kind.COLLECTIVE
    elif kind is ScenarioKind.DATALOADER:
        pieces = rank.pieces.kind == SegmentKind.INPUT
    elif kind is ScenarioKind.CPU:
        pieces = ~is_wait
    elif kind is ScenarioKind.GPU:
        work = ~work
    elif kind is ScenarioKind.RANK and rank.number == int(subject):
        pieces, work = ~is_wait, ~work
    elif kind is ScenarioKind.OP:
        pieces, work = select_inside(rank, _find_rows(rank, subject))
    elif kind is ScenarioKind.EVENT:
        rows = np.array(scenario.rows or (int(subject),), np.int64) - rank.first_row
        rows = rows[(rows >= 0) & (rows < len(rank.trace))]
        pieces, work = select_inside(rank, rows)
        work |= np.isin(rank.window.work.event, rows)
    return pieces, work


def _find_rows(rank: RankModel, name: str) -> I64:
    """Find the ops of this name that begin in the step."""
    numbers = [number for number, each in enumerate(rank.trace.names) if each == name]
    trace, window = rank.trace, rank.window
    rows = np.flatnonzero(np.isin(trace.name, numbers) & (trace.kind != Kind.KERNEL))
    inside: I64 = rows[(trace.start[rows] >= window.start) & (trace.start[rows] < window.end)]
    return inside


def _match_names(rank: RankModel, text: str) -> Bool:
    """Select the work of this name, else that whose name contains the text."""
    used, index = np.unique(rank.trace.name[rank.window.work.event], return_inverse=True)
    names = [rank.trace.names[number] for number in used.tolist()]
    wanted = [name == text for name in names] if text in names else [text in name for name in names]
    return np.array(wanted, np.bool_)[index] if names else np.zeros(0, np.bool_)


def _drop_blocking(changes: RankChanges) -> bool:
    """Let no call wait for the GPU."""
    graph = changes.rank.graph
    gone = np.isin(graph.edge_kind, (EdgeKind.SYNC, EdgeKind.SYNC_BY_ORDER))
    changes.gone |= gone
    waits = changes.rank.pieces.kind == SegmentKind.BLOCKING
    changes.scale(waits, np.zeros(0, np.bool_), 0.0)
    return bool(gone.any() or waits.any())


def _overlap_collectives(changes: RankChanges) -> bool:
    """Let nothing but other collectives wait for a collective."""
    rank = changes.rank
    graph = rank.graph
    collective = rank.trace.kind[rank.window.work.event] == Kind.COLLECTIVE
    is_end, is_start = (np.zeros(len(graph.time), np.bool_) for _ in range(2))
    is_end[graph.work_end[collective]] = True
    is_start[graph.work_start[collective]] = True
    changes.gone |= is_end[graph.source] & ~is_start[graph.target]
    return bool(collective.any())


def _explain(scenario: Scenario, model: StepModel) -> str:
    """Say why a scenario changes nothing."""
    subject = scenario.subject
    reasons = {
        ScenarioKind.CLASS: f"no {subject} kernels in this step",
        ScenarioKind.OP: f"no op {subject!r} in this step",
        ScenarioKind.KERNEL: f"no GPU work in this step is called {subject!r} or contains it",
        ScenarioKind.EVENT: f"event {subject} is not part of this step",
        ScenarioKind.SYNC: "no blocking call in this step",
        ScenarioKind.DATALOADER: "no data loader in this step",
        ScenarioKind.COLLECTIVES: "no collectives in this step",
        ScenarioKind.COPIES: "no copies in this step",
        ScenarioKind.OPTIMIZER: "no Optimizer.step in this step",
        ScenarioKind.RANK: f"no rank {subject}; ranks: {', '.join(str(rank.number) for rank in model.ranks)}",
    }
    return reasons.get(scenario.kind, "no GPU work is launched in this step")
