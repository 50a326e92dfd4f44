"""What a command without a screen says of a trace of which a part could not be read: a line on stderr, and a field."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchprof_tui.trace.core.problems import Problem
    from torchprof_tui.trace.model.trace import Trace

_LISTED = 4
"""Ranks that are named; of more their number is told."""


def partial_of(trace: Trace) -> list[dict[str, Any]]:
    """`partial` of a JSON document: what was lost, as `problems` of `info` has it; [] where all could be read."""
    return [{"kind": each.kind, "count": each.count, "example": each.example} for each in _lost(trace)]


def tell_partial(trace: Trace) -> bool:
    """Say on stderr, in a line, what was lost; whether anything was."""
    said = _said(trace)
    if said:
        from torchprof_tui.ui.common.name_display import (
            clean,  # which loads a screen's library: only who needs it waits for that
        )

        print(f"torchprof-tui: {clean(trace.label)} is partial: {said}; see `info`", file=sys.stderr)
    return bool(said)


def _said(trace: Trace) -> str:
    """Of several ranks which; those that could not be opened at all have lines of their own."""
    if trace.ranks is None:
        from torchprof_tui.analysis.doctor.read_problems import briefly

        return ", ".join(map(briefly, _lost(trace)))
    said = [f"{rank.label}: {words}" for rank in trace.ranks.all if (words := _said(rank.trace))]
    more = f"; and {len(said) - _LISTED} more ranks" if len(said) > _LISTED else ""
    return "; ".join(said[:_LISTED]) + more


def _lost(trace: Trace) -> list[Problem]:
    from torchprof_tui.analysis.doctor.read_problems import lost_of

    return lost_of(trace)
