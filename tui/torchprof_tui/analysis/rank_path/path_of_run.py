"""Find the critical path of a trace of one process, or of a run of several ranks: of one of them, or of all."""

from __future__ import annotations

from dataclasses import replace

from torchprof_tui.analysis.critical_path.critical_path import CriticalPath, find_critical_path
from torchprof_tui.analysis.rank_path.joined_path import find_joined_path
from torchprof_tui.analysis.rank_path.rank_waits import split_rank_waits
from torchprof_tui.trace.model.ranks import Ranks
from torchprof_tui.trace.model.trace import Trace


def find_path_of_run(trace: Trace, step: int | None = None, time_range: tuple[int, int] | None = None) -> CriticalPath:
    """Find the path of a step or of a range, ns; of several ranks that of all, with the rows of the merged trace.

    Raises WindowError.
    """
    ranks = trace.merged_ranks
    if ranks is None or len(ranks) == 1:
        return find_critical_path(trace if ranks is None else ranks.all[0].trace, step, time_range)
    return find_joined_path(ranks, step, time_range)


def find_path_of_rank(
    ranks: Ranks, index: int, step: int | None = None, time_range: tuple[int, int] | None = None
) -> CriticalPath:
    """Find the path of one rank, an index of `ranks.all`, with the rows of its own trace.

    In a collective it waits until the last rank has come. Raises WindowError.
    """
    return split_path(find_critical_path(ranks.all[index].trace, step, time_range), ranks, index)


def split_path(path: CriticalPath, ranks: Ranks, index: int) -> CriticalPath:
    """Split the collectives on the path of a rank into the wait for the last rank and the transfer."""
    return replace(path, segments=split_rank_waits(path.segments, ranks, index))
