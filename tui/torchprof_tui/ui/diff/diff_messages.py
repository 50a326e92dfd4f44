"""Messages of the diff screen: what was done with the mouse on a side, and what the background worker has found."""

from __future__ import annotations

from dataclasses import dataclass

from textual.message import Message

from torchprof_tui.analysis.compare.comparison import Comparison
from torchprof_tui.analysis.compare.event_matches import EventMatches
from torchprof_tui.analysis.compare.matched_rows import By, ComparedRows
from torchprof_tui.analysis.compare.rank_changes import RankChange


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

    by: By
    rows: ComparedRows


@dataclass
class RanksCompared(Message):
    """The step of each rank of two runs has been compared."""

    ranks: list[RankChange]


@dataclass
class ComparisonFailed(Message):
    """The sides cannot be compared: one line that says what can be."""

    line: str
