"""Print what limits a step: `torchprof-tui critical-path`."""

from __future__ import annotations

import sys

from torchprof_tui.analysis.critical_path.critical_path import CriticalPath
from torchprof_tui.analysis.critical_path.step_window import WindowError
from torchprof_tui.analysis.rank_path.joined_path import find_path_of_rank, find_path_of_run
from torchprof_tui.answers.critical_path import build_critical_path
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.load import load_specs, select_rank
from torchprof_tui.commands.common.options import parse_time_range
from torchprof_tui.commands.common.output import import_text, print_answer
from torchprof_tui.commands.critical_path import CriticalPathOptions
from torchprof_tui.trace.model.ranks import Rank
from torchprof_tui.trace.model.trace import Trace


def run(options: CriticalPathOptions) -> int:
    time_range = None if options.range is None else parse_time_range(options.range)
    trace, rank, path = find_path(
        load_specs(options.trace, cache=not options.no_cache).trace, options.step, time_range, options.rank
    )
    if options.json:
        print_answer(build_critical_path(trace, path, options.top, trace.rank if rank is None else rank.number))
        return 0
    if path.rank_shares:
        print(
            f"{len(path.rank_shares)} of {len(trace.all_ranks)} ranks on the path; one alone: --rank N", file=sys.stderr
        )
    import_text("critical_path").print_path(trace, path, options.top)
    return 0


def find_path(
    trace: Trace, step: int | None, time_range: tuple[int, int] | None, number: int | None
) -> tuple[Trace, Rank | None, CriticalPath]:
    """Find a path: the trace whose rows it has, its rank, and the path; without a number that of all ranks.

    Raises UsageError.
    """
    ranks = trace.merged_ranks
    selected, rank = select_rank(trace, number) if number is not None or ranks is None else (trace, None)
    try:
        if rank is not None and ranks is not None:
            path = find_path_of_rank(ranks, ranks.all.index(rank), step, time_range)
        else:
            if ranks is not None and len(ranks) == 1:
                selected, rank = ranks.all[0].trace, ranks.all[0]
            path = find_path_of_run(trace, step, time_range)
    except WindowError as error:
        raise UsageError(f"{selected.label}: {error}") from error
    return selected, rank, path
