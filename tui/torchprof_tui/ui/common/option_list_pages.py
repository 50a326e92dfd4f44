"""Make page keys do nothing in an option list without a visible line, where textual raises KeyError.

A terminal of a few cells has no room for the list. textual's own command palette has such a list, so its class is
changed and not derived from.
"""

from __future__ import annotations

from typing import Any

from textual.widgets import OptionList

_move_page: Any = OptionList._move_page


def move_visible_page(option_list: OptionList, direction: int) -> None:
    """Move the highlight by a page, as textual does, where the list is visible."""
    if option_list.scrollable_content_region:
        _move_page(option_list, direction)


def ignore_pages_of_hidden_lists() -> None:
    """Change textual's class for the rest of the process."""
    OptionList._move_page = move_visible_page  # type: ignore[assignment,method-assign]
