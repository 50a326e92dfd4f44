"""Compare both sides on a worker thread and post each answer as soon as it is known, the fastest first.

The account takes longest, because it checks both sides for patterns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from textual.message import Message

from torchprof_tui.analysis.compare.comparison import Comparison, RankChange
from torchprof_tui.analysis.compare.event_matches import EventMatches, match_events
from torchprof_tui.analysis.compare.matched_rows import By, ComparedRows
from torchprof_tui.analysis.compare.side_choice import RankNumbers, analyse_side, compare_ranks_of_runs, match_steps
from torchprof_tui.analysis.compare.step_selection import AUTOMATIC, ComparisonError, StepSelection
from torchprof_tui.trace.model.trace import Trace


@dataclass
class SideEventPicked(Message):
    """A click on the lanes of a side; `event` -1 beside all events, `fit`: a double click."""

    side: int
    event: int
    fit: bool


@dataclass
class SideZoomAsked(Message):
    """The wheel zooms around a distance from the references, ns."""

    steps: float
    distance: int


@dataclass
class SideChanged(Message):
    """The lanes of a side were scrolled, folded or resized by the mouse or the layout."""

    side: int
    reason: str = ""  # why nothing changed


@dataclass
class SidesChosen(Message):
    """The compared steps of both sides are known."""

    comparison: Comparison


@dataclass
class AccountBuilt(Message):
    """The account, the verdict and the remarks of `comparison` have been computed."""

    comparison: Comparison


@dataclass
class EventsMatched(Message):
    """The events of A and of B have been matched."""

    matches: tuple[EventMatches, EventMatches]


@dataclass
class RowsMatched(Message):
    """The rows by op, module, kernel or class have been computed."""

    rows: ComparedRows


@dataclass
class RanksCompared(Message):
    """The step of each rank of two runs has been compared."""

    ranks: list[RankChange]


@dataclass
class ComparisonFailed(Message):
    """The sides cannot be compared: one line that says what can be."""

    line: str


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
        found = [
            analyse_side(side.trace, f"{letter} ({side.label})", side.label, side.selection)
            for letter, side in (("A", a), ("B", b))
        ]
    except ComparisonError as error:
        post(ComparisonFailed(str(error)))
        return
    sides = match_steps(found[0], found[1])
    for side in sides:
        side.step_bounds  # noqa: B018
    comparison = Comparison(*sides)
    post(SidesChosen(comparison))
    post(EventsMatched(match_events(comparison.tree_match, sides[0].side, sides[1].side)))
    match_rows(comparison, "op", post)
    if not comparison.is_same_recording:  # computed here: the UI thread only reads them
        comparison.verdict  # noqa: B018
        comparison.differences  # noqa: B018
    comparison.account  # noqa: B018
    post(AccountBuilt(comparison))
    ranks = compare_ranks_of_runs(a.whole, b.whole, numbers, (a.selection, b.selection))
    if ranks:
        post(RanksCompared(ranks))


def match_rows(comparison: Comparison, by: By, post: Post) -> None:
    """Match the rows by op, module, kernel or class."""
    post(RowsMatched(comparison.match_rows(by)))
