"""Test the actions of the keys of rows, on a list without a screen."""

from __future__ import annotations

from typing import Any

from torchprof_tui.ui.common.child_screen import ListScreen


class Rows:
    """Ten rows, of which four are on a page; a row beyond an end is the one at the end."""

    count, page_size, cursor = 10, 4, 5

    def move_to(self, row: int) -> None:
        self.cursor = max(min(row, self.count - 1), 0)


class Listed(ListScreen):
    def __init__(self) -> None:
        super().__init__()
        self.rows: Any = Rows()
        self.calls: list[str] = []

    def show_message(self, message: str) -> None:
        self.calls.append(f"message {message!r}")

    def handle_cursor_move(self) -> None:
        self.calls.append(f"row {self.rows.cursor}")


def test_keys_move_by_rows_pages_and_to_both_ends() -> None:
    screen = Listed()
    found = []
    for name, argument in [("move", -1), ("page", 1), ("page", -1), ("edge", True), ("edge", False), ("page", 1)]:
        getattr(screen, f"action_{name}")(argument)
        found.append(screen.rows.cursor)
    assert found == [4, 8, 4, 9, 0, 4]


def test_a_key_that_moves_nothing_says_where_the_cursor_is() -> None:
    screen = Listed()
    screen.action_edge(True)
    screen.action_move(1)
    screen.rows.cursor = 0
    screen.action_edge(False)
    screen.rows.count = 0
    screen.action_move(1)
    assert screen.calls == [
        *("message ''", "row 9", "message 'the last row'"),
        *("message 'the first row'", "message 'no rows'"),
    ]
