"""Fold a trace in a worker for the flame graph that is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from textual.message import Message

from torchprof_tui.analysis.flame.flame_tree import FlameTree, FoldBy, FoldTime, NoFramesError
from torchprof_tui.analysis.flame.fold import fold_trace
from torchprof_tui.analysis.kernel.names.distinct_labels import label_kernels
from torchprof_tui.trace.model.event_kind import GPU_WORK
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.name_display import clean
from torchprof_tui.ui.flame.icicle_layout import Zoom
from torchprof_tui.ui.table.scope_choices import TableScope


class FlameQuery(NamedTuple):
    """The flame graph to show; results for an earlier query are dropped."""

    fold_by: FoldBy
    time: FoldTime
    scope: int


class FlameMade(Message):
    """A trace was folded, or `problem` says why not. `labels`: of GPU work, by index of its name."""

    def __init__(self, query: FlameQuery, tree: FlameTree | None, labels: dict[int, str], problem: str = "") -> None:
        super().__init__()
        self.query, self.tree, self.labels, self.problem = query, tree, labels, problem


def fold_scope(trace: Trace, query: FlameQuery, scope: TableScope) -> FlameMade:
    """Fold the events of a scope, and label the GPU work among them as the other screens do."""
    try:
        tree = fold_trace(trace, query.fold_by, query.time, scope.select_events())
    except NoFramesError as error:
        return FlameMade(query, None, {}, str(error))
    work = np.unique(tree.name[np.isin(tree.kind, [int(kind) for kind in GPU_WORK])]).tolist()
    labels = label_kernels([tree.names[index] for index in work])
    return FlameMade(query, tree, dict(zip(work, map(clean, labels), strict=True)))


@dataclass(frozen=True, slots=True)
class FlameView:
    """What the flame graph shows: which one, its zoom, the search, and the node of the cursor."""

    query: FlameQuery
    zoom: Zoom
    search: str
    node: int
