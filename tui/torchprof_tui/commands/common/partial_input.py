"""Report data loss of a trace on stderr."""

from __future__ import annotations

import sys

from torchprof_tui.analysis.completeness.data_loss import list_losses
from torchprof_tui.analysis.doctor.read_problems import summarize_problem
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.model.trace import Trace

_MAX_LISTED_RANKS = 4
"""Ranks named in the line; the others are counted."""


def report_partial(trace: Trace) -> bool:
    """Report data loss in one line on stderr; return whether there is any."""
    said = _describe_problems(trace)
    if said:
        print(f"torchprof-tui: {clean(trace.label)} is partial: {said}; see `info`", file=sys.stderr)
    return bool(said)


def _describe_problems(trace: Trace) -> str:
    """Describe the losses, by rank if there are several; ranks that failed to open are reported elsewhere."""
    if trace.merged_ranks is None:
        return ", ".join(map(summarize_problem, list_losses(trace)))
    said = [f"{rank.label}: {words}" for rank in trace.merged_ranks.all if (words := _describe_problems(rank.trace))]
    more = f"; and {len(said) - _MAX_LISTED_RANKS} more ranks" if len(said) > _MAX_LISTED_RANKS else ""
    return "; ".join(said[:_MAX_LISTED_RANKS]) + more
