"""Repair classes of textual's for the rest of the process: its own widgets use them, so they cannot be derived from.

- A timer that is due already never let the event loop run again where its delay was negative, as that of a message
  which expired while its screen was built: the program hung. A single timer was skipped for ever where its delay had
  passed before its task ran on, as on a busy machine: nothing was painted any more, or no resize handled.
- An option list raised KeyError for page keys where no line of it is visible, as the command palette's in a terminal of
  a few cells, and IndexError for a click on an option that has left the list since it was painted.
"""

from __future__ import annotations

from typing import Any

from textual.events import Click
from textual.timer import Timer
from textual.widgets import OptionList

_create_timer: Any = Timer.__init__
_move_page: Any = OptionList._move_page
_click_option: Any = OptionList._on_click


def create_timer(timer: Timer, target: Any, interval: float, **options: Any) -> None:
    """Create a timer as textual does, of at least zero seconds; one that fires once is never skipped."""
    is_single = options.get("repeat") == 0
    _create_timer(timer, target, max(interval, 0.0), **options, **({"skip": False} if is_single else {}))


def move_visible_page(option_list: OptionList, direction: int) -> None:
    """Move the highlight by a page, as textual does, where the list is visible."""
    if option_list.scrollable_content_region:
        _move_page(option_list, direction)


async def click_listed_option(option_list: OptionList, event: Click) -> None:
    """Select the option that was clicked, as textual does, if it is still in the list."""
    if event.style.meta.get("option", 0) < option_list.option_count:
        await _click_option(option_list, event)


def repair_textual() -> None:
    """Change textual's classes. Calling it again changes nothing."""
    Timer.__init__ = create_timer  # type: ignore[assignment,method-assign]
    OptionList._move_page = move_visible_page  # type: ignore[assignment,method-assign]
    OptionList._on_click = click_listed_option  # type: ignore[assignment,method-assign]
