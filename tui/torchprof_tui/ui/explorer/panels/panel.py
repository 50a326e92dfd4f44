"""What a panel of the explorer is: a text with a name, what it requests after a move, and what keys do in it.

A new panel is a file with a subclass of `Panel`, and one line in `panel_controller`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from torchprof_tui.ui.common.painted_widget import TextPanel

if TYPE_CHECKING:
    from torchprof_tui.analysis.dispatch.source_line import SourceLine
    from torchprof_tui.analysis.patterns.engine.pattern import Finding
    from torchprof_tui.trace.model.ranks import Rank
    from torchprof_tui.ui.common.debounced_worker import DebouncedWorker
    from torchprof_tui.ui.explorer.background_queries import BackgroundQueries
    from torchprof_tui.ui.lanes.timeline import Timeline
    from torchprof_tui.ui.lanes.view_state import ViewState

RECORD_STACKS_HINT = "R: record again with stacks (--with-stack)"
NO_SOURCE_PANEL = "L opens the source line of a finding (c) or of an event's chain (l): open one of them"

SourceTarget: TypeAlias = "tuple[SourceLine | None, Rank, str]"
"""The line of the program that a panel names, None where it cannot be opened; its rank; why it cannot be opened."""


@dataclass(frozen=True)
class PanelContext:
    """What the panels share.

    `show_panel` makes the panel of a name the active one, `leave_panel` the details instead of it.
    """

    view_state: ViewState
    timeline: Timeline
    queries: BackgroundQueries
    worker: DebouncedWorker
    show_panel: Callable[[str], None]
    leave_panel: Callable[[str], None]


class Panel(TextPanel):
    """A panel of the explorer. Its handlers of results (`on_chain_read`) may return a message for the status line."""

    NAME: ClassVar[str]
    """Its id, and its title in the dock."""

    context: PanelContext
    """Set once by the controller, before the first update."""

    def __init__(self) -> None:
        super().__init__(id=self.NAME)

    @property
    def has_keys(self) -> bool:
        """Whether the arrow and page keys act on this panel; else on the lanes."""
        return False

    @property
    def shows_chain(self) -> bool:
        """Whether the selection's chain is highlighted on the lanes while this panel is the active one."""
        return True

    @property
    def finding(self) -> Finding | None:
        """The finding whose evidence is highlighted on the lanes instead of the chain."""
        return None

    def update(self) -> None:
        """Show the state after a move. Cheap: data that takes longer than a frame is requested and arrives later."""

    def move(self, distance: int) -> str:
        """Handle ↑ ↓, where the panel has the keys. Returns a message."""
        raise NotImplementedError

    def enter(self) -> str | None:
        """Handle enter. Returns a message, or None where the selection is to be fitted."""
        return None

    def next_evidence(self, distance: int) -> str | None:
        """Handle n N. Returns a message, or None where the search should handle the key."""
        return None

    @property
    def is_on_line(self) -> bool:
        """Whether the cursor is on a line of the program, so that enter opens its source."""
        return False

    def find_source_line(self) -> SourceTarget:
        """Handle L: find the line of the program that the panel names."""
        state = self.context.view_state
        return None, state.trace.rank_of_event(max(state.selected, 0)), NO_SOURCE_PANEL


def check_line(line: SourceLine | None, rank: Rank, owner: str) -> SourceTarget:
    """Check whether a line can be opened; `owner`: what it is the line of."""
    if line is None:
        return None, rank, f"{owner}: no source line known; {RECORD_STACKS_HINT}"
    if line.file is None:
        return None, rank, f"the file of this {line.kind} is unknown; {RECORD_STACKS_HINT}"
    return line, rank, ""
