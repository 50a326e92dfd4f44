"""Compare both sides on a worker thread and post each answer as soon as it is known, the fastest first.

The account takes longest, because it checks both sides for patterns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from textual.message import Message

from torchprof_tui.analysis.compare.comparison import Comparison
from torchprof_tui.analysis.compare.comparison_error import ComparisonError
from torchprof_tui.analysis.compare.event_matches import match_events
from torchprof_tui.analysis.compare.matched_rows import By
from torchprof_tui.analysis.compare.side_choice import RankNumbers, analyse_side, compare_ranks_of_runs
from torchprof_tui.analysis.compare.step_selection import AUTOMATIC, StepSelection
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.diff.diff_messages import (
    AccountBuilt,
    ComparisonFailed,
    EventsMatched,
    RanksCompared,
    RowsMatched,
    SidesChosen,
)

Post = Callable[[Message], object]


@dataclass(frozen=True, slots=True)
class ComparedInput:
    """One side as asked for: `trace` of one rank, `whole` as it was opened, how it is called, the steps asked for."""

    trace: Trace
    whole: Trace
    label: str
    selection: StepSelection = AUTOMATIC


def compare_inputs(a: ComparedInput, b: ComparedInput, numbers: RankNumbers, post: Post) -> None:
    """Compare two sides; every answer is computed here, so that the UI thread only reads it."""
    try:
        sides = [
            analyse_side(side.trace, f"{letter} ({side.label})", side.label, side.selection)
            for letter, side in (("A", a), ("B", b))
        ]
    except ComparisonError as error:
        post(ComparisonFailed(str(error)))
        return
    for side in sides:
        side.step_bounds  # noqa: B018
    comparison = Comparison(sides[0], sides[1])
    post(SidesChosen(comparison))
    post(EventsMatched(match_events(comparison.tree_match, sides[0].side, sides[1].side)))
    match_rows(comparison, "op", post)
    _compute(comparison)
    post(AccountBuilt(comparison))
    ranks = compare_ranks_of_runs(a.whole, b.whole, numbers, (a.selection, b.selection))
    if ranks:
        post(RanksCompared(ranks))


def match_rows(comparison: Comparison, by: By, post: Post) -> None:
    """Match the rows by op, module, kernel or class."""
    post(RowsMatched(by, comparison.match_rows(by)))


def _compute(comparison: Comparison) -> None:
    """Compute what the screen reads of a comparison."""
    if not comparison.is_same_recording:
        comparison.verdict  # noqa: B018
        comparison.differences  # noqa: B018
    comparison.account  # noqa: B018
