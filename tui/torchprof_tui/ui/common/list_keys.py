"""The keys of screens with a list of rows."""

from __future__ import annotations

from typing import Any

from textual.screen import Screen

from torchprof_tui.ui.common.guarded_screen import GuardedScreen
from torchprof_tui.ui.common.row_list import RowList
from torchprof_tui.ui.common.status_line import StatusLine


class ListScreen(GuardedScreen[Any]):
    """A screen with one list, `rows`, and the actions of the keys of rows."""

    rows: RowList

    def show_message(self, message: str) -> None:
        """Show a message in the status line; "" shows the state of the screen again."""
        self.query_one(StatusLine).show_message(message)

    def handle_cursor_move(self) -> None:
        """Handle a move of the cursor to another row."""

    def action_move(self, distance: int) -> None:
        self._move_to(self.rows.cursor + distance)

    def action_page(self, pages: int) -> None:
        self.action_move(pages * self.rows.page_size)

    def action_edge(self, last: bool) -> None:
        self._move_to(self.rows.count if last else -1)

    def _move_to(self, row: int) -> None:
        before = self.rows.cursor
        self.rows.move_to(row)
        if self.rows.cursor != before:
            self.show_message("")
            self.handle_cursor_move()
        else:
            self.show_message(f"the {'first' if row < before else 'last'} row" if self.rows.count else "no rows")


def switch_child_screen(screen: Screen[Any], action: str) -> None:
    """Leave a child screen of the lanes, and open another one: `action` is the key's action there."""
    lanes = screen.app.screen_stack[-2]
    screen.dismiss(None)
    lanes.call_later(lanes.run_action, action)
