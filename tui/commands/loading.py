"""Loading what a command without a screen was given: one trace, or the ranks of a run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tui.commands import UsageError
from tui.specs import Named, named

if TYPE_CHECKING:
    from tui.trace.loader import Loaded, Report
    from tui.trace.ranks import Rank
    from tui.trace.trace import Trace

RANKS_HELP = "several files, a folder or a pattern: the ranks of one run"


def add_trace(parser: argparse.ArgumentParser, what: str = "a trace, sample:NAME, or - for stdin") -> None:
    """TRACE…, --no-cache."""
    parser.add_argument("trace", nargs="+", metavar="TRACE", help=f"{what}; {RANKS_HELP}")
    parser.add_argument("--no-cache", action="store_true", help="neither use nor keep what was decoded")


def add_rank(parser: argparse.ArgumentParser) -> None:
    """--rank, for what is told of one process."""
    parser.add_argument("--rank", metavar="N", type=int, help="of several ranks: this one (the first)")


def load(specs: Sequence[str], cache: bool) -> Loaded:
    """Decoded now or mapped from the cache, with a line of progress. Raises TraceError."""
    meant = named(specs)
    from tui.commands.progress_line import ProgressLine
    from tui.trace import cache as kept
    from tui.trace.loader import load_place

    told = ProgressLine(sys.stderr)
    try:
        loaded = _ranks(meant, told, cache) if meant.files else load_place(meant.path, told, cache)
    finally:
        told.clear()
    if not loaded.cached:
        kept.prune()
    return loaded


def _ranks(meant: Named, told: Report, cache: bool) -> Loaded:
    import asyncio
    import time

    from tui.trace.child import LoadError
    from tui.trace.loader import Loaded
    from tui.trace.source import TraceError

    began = time.perf_counter()
    opening = meant.opening(cache)
    try:
        trace = asyncio.run(opening.trace(told))
    except LoadError as error:
        raise TraceError(str(error)) from error
    return Loaded(trace, None, opening.cached, time.perf_counter() - began)


def one_rank(trace: Trace, number: int | None) -> tuple[Trace, Rank | None]:
    """The trace of one rank, where there are several: `number`, else the first. Raises UsageError."""
    ranks = trace.ranks
    if ranks is None:
        if number is not None and number != trace.rank:
            known = "one trace, which does not say its rank" if trace.rank is None else f"rank {trace.rank} alone"
            raise UsageError(f"--rank {number}: this is {known}")
        return trace, None
    rank = ranks.all[0] if number is None else ranks.numbered(number)
    if rank is None:
        known = ", ".join(str(each.number) for each in ranks.all)
        raise UsageError(f"--rank {number}: there are ranks {known}")
    return rank.trace, rank
