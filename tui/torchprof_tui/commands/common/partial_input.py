"""What a command without a screen says of a trace of which a part could not be read: a line on stderr, and a field."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchprof_tui.trace.core.problems import Problem
    from torchprof_tui.trace.model.trace import Trace

_MAX_LISTED_RANKS = 4
"""Ranks that are named; of more their number is told."""


def partial_as_json(trace: Trace) -> list[dict[str, Any]]:
    """`partial` of a JSON document: what was lost, as `problems` of `info` has it; [] where all could be read."""
    return [{"kind": each.kind, "count": each.count, "example": each.example} for each in _data_loss(trace)]


def report_partial(trace: Trace) -> bool:
    """Say on stderr, in a line, what was lost; whether anything was."""
    said = _describe_problems(trace)
    if said:
        from torchprof_tui.ui.common.name_display import (
            clean,  # which loads a screen's library: only who needs it waits for that
        )

        print(f"torchprof-tui: {clean(trace.label)} is partial: {said}; see `info`", file=sys.stderr)
    return bool(said)


def _describe_problems(trace: Trace) -> str:
    """Of several ranks which; those that could not be opened at all have lines of their own."""
    if trace.ranks is None:
        from torchprof_tui.analysis.doctor.read_problems import summarize_problem

        return ", ".join(map(summarize_problem, _data_loss(trace)))
    said = [f"{rank.label}: {words}" for rank in trace.ranks.all if (words := _describe_problems(rank.trace))]
    more = f"; and {len(said) - _MAX_LISTED_RANKS} more ranks" if len(said) > _MAX_LISTED_RANKS else ""
    return "; ".join(said[:_MAX_LISTED_RANKS]) + more


def _data_loss(trace: Trace) -> list[Problem]:
    from torchprof_tui.analysis.completeness.data_loss import list_losses

    return list_losses(trace)
