"""List the steps of a rank: those that were recorded, else the repetitions once they are found.

The seam between the two. It imports none of the search, so that the screen can use it before the first frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from torchprof_tui.trace.model.ranks import Rank
from torchprof_tui.trace.model.trace import Step, Trace

if TYPE_CHECKING:  # deferred: the search is not needed for the first frame
    from torchprof_tui.analysis.repetition.repetitions import Repetitions

REPETITION = "repetition"  # first word of the names of steps that are repetitions
REPETITIONS_KEY = "repetitions"  # where `find_repetitions` keeps its answer in `Trace.derived`

_KEY = "repeated steps"


def list_steps(rank: Rank) -> list[Step]:
    """List the steps of a rank with event indices of the whole trace; the same list each time."""
    if rank.trace.steps:
        return rank.steps
    kept = rank.trace.derived.get(_KEY)
    return kept if isinstance(kept, list) else rank.steps


def keep_repeated_steps(rank: Rank, steps: list[Step]) -> None:
    """Keep the repetitions of a rank, with event indices of the whole trace, for `list_steps`."""
    rank.trace.derived[_KEY] = steps


def are_repetitions(steps: Sequence[Step]) -> bool:
    """Tell whether steps are repetitions that were found, not steps that were recorded."""
    return bool(steps) and steps[0].name.startswith(REPETITION)


def find_kept_repetitions(trace: Trace) -> Repetitions | None:
    """Return the repetitions of a process where they were searched already, else None."""
    return cast("Repetitions | None", trace.derived.get(REPETITIONS_KEY))
