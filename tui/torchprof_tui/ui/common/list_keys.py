"""Bindings shared by all screens that consist of one long list."""

from __future__ import annotations

from typing import Any

from textual.binding import Binding
from textual.screen import Screen

from torchprof_tui.ui.common.row_list import RowList

LIST_BINDINGS = [
    Binding("up", "move(-1)", show=False),
    Binding("down", "move(1)", show=False),
    Binding("pageup", "page(-1)", show=False),
    Binding("pagedown", "page(1)", show=False),
    Binding("home", "edge(False)", show=False),
    Binding("end", "edge(True)", show=False),
]


class ListScreen(Screen[Any]):
    """A screen with one list, `rows`. Subclasses add `LIST_BINDINGS` to their BINDINGS."""

    rows: RowList

    def handle_cursor_move(self) -> None:
        """Handle a move of the cursor to another row."""

    def action_move(self, distance: int) -> None:
        self.rows.move_by(distance)
        self.handle_cursor_move()

    def action_page(self, pages: int) -> None:
        self.action_move(pages * self.rows.page_size)

    def action_edge(self, last: bool) -> None:
        self.rows.move_to(self.rows.count if last else 0)
        self.handle_cursor_move()


def switch_child_screen(screen: Screen[Any], action: str) -> None:
    """Leave a child screen of the lanes, and open another one: `action` is the key's action there."""
    lanes = screen.app.screen_stack[-2]
    screen.dismiss(None)
    lanes.call_later(lanes.run_action, action)
