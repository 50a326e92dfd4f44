"""Collect what scenarios change in the step of one rank."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.critical_path.dependency_graph import EdgeKind
from torchprof_tui.analysis.what_if.back_to_back import GONE
from torchprof_tui.analysis.what_if.step_model import RankModel
from torchprof_tui.trace.core.arrays import I64, Bool

_NO_CAP = np.iinfo(np.int64).max


class RankChanges:
    """Factors of the pieces of CPU time and of GPU work, edges that are gone, and limits of delays.

    `piece_factor` float64[p], `work_factor` float64[m]; `gone` bool[e]; `cap` int64[e]: ns, delays are at most that;
    `added` int64[e]: ns of CPU time that take the place of what is gone.
    """

    def __init__(self, rank: RankModel) -> None:
        edges = len(rank.graph.source)
        self.rank = rank
        self.piece_factor = np.ones(len(rank.pieces))
        self.work_factor = np.ones(len(rank.work_class))
        self.gone = np.zeros(edges, np.bool_)
        self.cap = np.full(edges, _NO_CAP, np.int64)
        self.added = np.zeros(edges, np.int64)

    def scale(self, pieces: Bool, work: Bool, factor: float) -> bool:
        """Multiply pieces bool[p] and work bool[m]; return whether there are any. Empty masks select none."""
        if len(pieces):
            self.piece_factor[pieces] *= factor
        if len(work):
            self.work_factor[work] *= factor
        return bool(pieces.any() or work.any())

    def compute_delay(self, base: I64) -> I64:
        """Compute the delays of the rank's edges from those of the unchanged step: int64[e] ns."""
        graph, pieces = self.rank.graph, self.rank.pieces
        delay: I64 = base.copy()
        changed = np.flatnonzero(self.work_factor != 1)
        edges = self.rank.work_edge[changed]
        delay[edges] = np.rint(base[edges] * self.work_factor[changed]).astype(np.int64)
        is_changed = np.zeros(len(base), np.bool_)
        is_changed[pieces.edge[self.piece_factor != 1]] = True
        is_changed |= self.added > 0
        is_changed &= graph.edge_kind == EdgeKind.THREAD
        edges = np.flatnonzero(is_changed)
        if len(edges):
            kept = np.bincount(pieces.edge, pieces.time * self.piece_factor, minlength=len(base))
            takes = np.rint(kept).astype(np.int64) + self.added
            rigid = base == graph.recorded  # else part of the edge is a wait, and its own time is the limit
            delay[edges] = np.where(rigid, takes, np.minimum(base, takes))[edges]
        np.minimum(delay, self.cap, out=delay)
        delay[self.gone] = GONE
        return delay
