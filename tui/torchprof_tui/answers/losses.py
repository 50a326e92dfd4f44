"""What was lost of a trace, in every answer about it."""

from __future__ import annotations

from typing import Annotated

from torchprof_tui.analysis.completeness.data_loss import list_losses
from torchprof_tui.answers.record import Record, about, fill
from torchprof_tui.trace.core.problems import Problem as ReadProblem
from torchprof_tui.trace.model.trace import Trace


class Problem(Record, frozen=True, kw_only=True):
    """Entries of the file that could not be read as intended."""

    kind: Annotated[str, about("stable name of the problem")]
    count: Annotated[int, about("entries concerned")]
    example: Annotated[str, about("one of them, with its place in the file")]


def build_losses(trace: Trace) -> list[Problem]:
    """Build the field `partial`: what was lost, in the form of `problems` of `info`; [] if nothing was."""
    return build_problems(list_losses(trace))


def build_problems(problems: list[ReadProblem] | tuple[ReadProblem, ...]) -> list[Problem]:
    return [fill(Problem, each) for each in problems]
