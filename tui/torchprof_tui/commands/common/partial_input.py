"""Report data loss of a trace: a line on stderr and a JSON field."""

from __future__ import annotations

import sys
from typing import Annotated

from torchprof_tui.analysis.completeness.data_loss import list_losses
from torchprof_tui.analysis.doctor.read_problems import summarize_problem
from torchprof_tui.commands.common.json_document import Record, about
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.problems import Problem
from torchprof_tui.trace.model.trace import Trace

_MAX_LISTED_RANKS = 4
"""Ranks named in the line; the others are counted."""


class ProblemRecord(Record, frozen=True, kw_only=True):
    """Entries of the file that could not be read as intended."""

    kind: Annotated[str, about("stable name of the problem")]
    count: Annotated[int, about("entries concerned")]
    example: Annotated[str, about("one of them, with its place in the file")]


def build_partial(trace: Trace) -> list[ProblemRecord]:
    """Build the field `partial`: what was lost, in the form of `problems` of `info`; [] if nothing was."""
    return [build_problem(each) for each in _data_loss(trace)]


def build_problem(problem: Problem) -> ProblemRecord:
    return ProblemRecord(kind=problem.kind, count=problem.count, example=problem.example)


def report_partial(trace: Trace) -> bool:
    """Report data loss in one line on stderr; return whether there is any."""
    said = _describe_problems(trace)
    if said:
        print(f"torchprof-tui: {clean(trace.label)} is partial: {said}; see `info`", file=sys.stderr)
    return bool(said)


def _describe_problems(trace: Trace) -> str:
    """Describe the losses, by rank if there are several; ranks that failed to open are reported elsewhere."""
    if trace.merged_ranks is None:
        return ", ".join(map(summarize_problem, _data_loss(trace)))
    said = [f"{rank.label}: {words}" for rank in trace.merged_ranks.all if (words := _describe_problems(rank.trace))]
    more = f"; and {len(said) - _MAX_LISTED_RANKS} more ranks" if len(said) > _MAX_LISTED_RANKS else ""
    return "; ".join(said[:_MAX_LISTED_RANKS]) + more


def _data_loss(trace: Trace) -> list[Problem]:
    return list_losses(trace)
