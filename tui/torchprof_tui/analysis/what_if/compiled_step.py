"""Scenario of a compiled step: kernels that Inductor merges, and what its generated code costs on the CPU.

What is merged follows from the ops and the classes of their kernels alone (benchmarks/what_if.md compares the number
of launches with that of compiled programs).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.what_if.merged_launches import OFF_CPU, cap_gaps, find_launch_region, select_optimizer
from torchprof_tui.analysis.what_if.rank_changes import RankChanges
from torchprof_tui.analysis.what_if.step_model import RankModel
from torchprof_tui.trace.core.arrays import I32, Bool
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

EXTERN = (
    KernelClass.GEMM,
    KernelClass.ATTENTION,
    KernelClass.CONV,
    KernelClass.COLLECTIVE,
    KernelClass.OPTIMIZER,
    KernelClass.TRITON,
)
"""Classes whose kernels compiled code calls as they are. The rest of ATen is computed by generated kernels."""

FUSED_CALL = 4.5
"""CPU time of compiled code for each kernel that Inductor generated, its launch included, by the median launch call of
the recording, which takes longer on a slower CPU too. This and the next two were measured in the compiled variants of
13 pairs with torch 2.11 (benchmarks/what_if.md)."""

EXTERN_CALL = 2.6
"""CPU time of generated Python for each op that compiled code calls, by the median launch call."""

EXTERN_DISPATCH = 0.8
"""Dispatch of such an op by that of the same op in the model: it is given its output."""

COMPILED_REGION = 100_000
"""ns of guards and wrappers for each thread that runs compiled code, as measured in one recording with torch 2.11."""


def compile_step(changes: RankChanges) -> bool:
    """Merge neighbouring small kernels, and leave of the dispatch what compiled code pays for each launch.

    A group of kernels that can be merged takes as long as its longest. A reduction that is split stays alone, in two
    kernels. The op that launches another kernel is called as before, by generated Python instead of that of the
    modules. The optimizer is left as it is.
    """
    rank = changes.rank
    optimizer_pieces, optimizer_work = select_optimizer(rank)
    inside = find_launch_region(rank) & ~optimizer_pieces & np.isin(rank.pieces.kind, OFF_CPU)
    model_work = rank.is_own & ~optimizer_work & rank.window.work.is_launched
    if not inside.any() or not model_work.any():
        return False
    fusible = model_work & select_fusible(rank)
    cleared = fusible & (rank.trace.kind[rank.window.work.event] == Kind.MEMSET)  # for results of kernels that are gone
    changes.work_factor[cleared] = 0.0
    model_work, fusible = model_work & ~cleared, fusible & ~cleared
    split = fusible & select_split_reductions(rank)
    head = _merge_groups(changes, fusible, split, model_work)
    cap_gaps(changes, fusible & ~head, 0)
    changes.scale(inside, np.zeros(0, np.bool_), 0.0)
    _keep_launches(changes, inside, model_work & ~fusible, head, split)
    return True


def select_fusible(rank: RankModel) -> Bool:
    """Select the work that Inductor does in its own kernels: bool[m].

    All that an op launches stays as it is where one kernel of it does, as a memset before a matrix product does. Ops
    outside of ATen stay, those that only sort or select, and copies from and to the host.
    """
    trace, work = rank.trace, rank.window.work
    op = np.where(work.is_launched, trace.parent[work.launch], -1)
    is_aten = (op >= 0) & _match_names(trace, trace.name[op], lambda name: name.startswith("aten::"))
    crosses = _match_names(trace, trace.name[work.event], lambda name: name.startswith("Memcpy") and "DtoD" not in name)
    sorts = np.isin(rank.work_class, (KernelClass.SORT, KernelClass.MEMORY))
    only_sorts = ~np.isin(op, op[~sorts]) & np.isin(op, op[rank.work_class == KernelClass.SORT])
    stays = np.isin(rank.work_class, EXTERN) | ~is_aten | only_sorts | crosses
    fusible: Bool = ~np.isin(op, op[stays])
    return fusible


def _match_names(trace: Trace, names: I32, matches: Callable[[str], bool]) -> Bool:
    """Match the text of each name, int32[m], once: bool[m]."""
    unique, inverse = np.unique(names, return_inverse=True)
    found: Bool = np.array([matches(trace.names[name]) for name in unique.tolist()], np.bool_)[inverse]
    return found


def select_split_reductions(rank: RankModel) -> Bool:
    """Select reductions over the rows of a batch, as of statistics and of gradients of parameters: bool[m].

    Inductor computes partial results in one kernel and adds them in another, and what uses the result comes after both.
    They are the reductions of a backward pass for which memory is cleared, because several blocks compute one result,
    and in training the first of several normalization kernels of one op: of batch normalization the statistics, in a
    backward pass what is reduced over another dimension than the rest.
    """
    work = rank.window.work
    is_backward: Bool = work.is_launched & (rank.trace.lane[work.launch] != rank.window.lane)
    if not is_backward.any():
        return is_backward
    op = rank.trace.parent[work.launch]
    clears = op[rank.work_class == KernelClass.MEMORY]
    split: Bool = is_backward & (rank.work_class == KernelClass.REDUCTION) & np.isin(op, clears)
    norms = np.flatnonzero(work.is_launched & (rank.work_class == KernelClass.NORM) & (op >= 0))
    norms = norms[np.argsort(work.start[norms], kind="stable")]
    _, first, count = np.unique(op[norms], return_index=True, return_counts=True)
    split[norms[first[count > 1]]] = True
    return split


def _merge_groups(changes: RankChanges, fusible: Bool, split: Bool, model_work: Bool) -> Bool:
    """Give each run of fusible work on a stream the time of its longest; return the first of each: bool[m].

    `split`: work that is a run of its own.
    """
    work = changes.rank.window.work
    order = np.lexsort((work.start, work.lane))
    order = order[model_work[order]]
    can = fusible[order]
    starts = np.ones(len(order), np.bool_)
    is_alone, lane = split[order], work.lane[order]
    starts[1:] = ~(can[1:] & can[:-1] & (lane[1:] == lane[:-1])) | is_alone[1:] | is_alone[:-1]
    group = np.cumsum(starts) - 1
    time = (work.end - work.start)[order]
    longest = np.zeros(int(group[-1]) + 1, np.int64)
    np.maximum.at(longest, group, time)
    total = np.bincount(group, time)
    share = np.where(can, (longest / np.maximum(total, 1))[group], 1.0)
    changes.work_factor[order] *= share
    head = np.zeros(len(work), np.bool_)
    head[order[starts & can]] = True
    return head


def _keep_launches(changes: RankChanges, inside: Bool, extern: Bool, head: Bool, split: Bool) -> None:
    """Leave the dispatch of extern kernels, and a launch for each merged group, two for each split reduction."""
    rank = changes.rank
    pieces, trace = rank.pieces, rank.trace
    launch = rank.window.work.launch
    calls = launch[extern]
    callers = trace.parent[calls]
    kept = inside & (np.isin(pieces.event, calls) | np.isin(pieces.event, callers[callers >= 0]))
    changes.piece_factor[kept] = EXTERN_DISPATCH
    own = np.flatnonzero(inside)
    _, first = np.unique(pieces.lane[own], return_index=True)
    np.add.at(changes.added, pieces.edge[own[first]], COMPILED_REGION)
    unit = float(np.median(trace.duration[launch[extern | head]]))
    for chosen, takes in ((extern, EXTERN_CALL), (head, FUSED_CALL), (split, FUSED_CALL)):
        merged = np.flatnonzero(inside & np.isin(pieces.event, launch[chosen]))
        _, first = np.unique(pieces.event[merged], return_index=True)
        np.add.at(changes.added, pieces.edge[merged[first]], round(takes * unit))
