"""Fold what the options of `export --folded` and `--speedscope` ask for: which frames, which time, which events."""

from __future__ import annotations

import argparse

from torchprof_tui.analysis.flame.flame_tree import FlameTree, FoldBy, FoldTime, NoFramesError
from torchprof_tui.analysis.flame.fold import fold_trace
from torchprof_tui.analysis.table.event_scope import range_mask, step_mask
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.time_range import parse_time_range
from torchprof_tui.trace.core.arrays import Bool
from torchprof_tui.trace.model.trace import Trace

OTHER_FRAMES = {FoldBy.STACK: " (or: --by op)", FoldBy.MODULE: " (or: --by op)", FoldBy.OP: ""}


def fold_chosen(trace: Trace, options: argparse.Namespace) -> FlameTree:
    """Fold a trace as the options say; without --time by GPU time where there is GPU work. Raises UsageError."""
    fold_by = FoldBy(options.by or FoldBy.STACK.value)
    default = FoldTime.GPU if trace.links.gpu_events else FoldTime.CPU
    time = FoldTime(options.time) if options.time else default
    try:
        tree = fold_trace(trace, fold_by, time, _select_events(trace, options))
    except NoFramesError as error:
        raise UsageError(f"{error}{OTHER_FRAMES[fold_by]}") from error
    if not tree.total:
        raise UsageError(f"no {time.value.upper()} time in this range")
    return tree


def _select_events(trace: Trace, options: argparse.Namespace) -> Bool | None:
    """Select the events of --range or --step, None for all. Raises UsageError."""
    if options.range is not None:
        return range_mask(trace, *parse_time_range(options.range))
    if options.step is None:
        return None
    if trace.merged_ranks is not None:
        raise UsageError("--step needs --rank: each rank has steps of its own")
    for step in trace.steps:
        if step.number == options.step:
            return step_mask(trace, step)
    known = f"it has {trace.steps[0].number} to {trace.steps[-1].number}" if trace.steps else "it has none"
    raise UsageError(f"no step {options.step} in this trace ({known})")
