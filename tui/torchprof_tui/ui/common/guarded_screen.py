"""Screens that ignore messages after they are closed, and an app that stops their timers and workers.

textual handles what was on its way to a screen after the screen has been left: a second click or enter dismisses it
again, which removes another screen or runs a command twice; a timer, a worker or a resize looks for widgets that are
gone. Each of these ended the app.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from textual import events
from textual.app import App
from textual.await_complete import AwaitComplete
from textual.command import CommandPalette
from textual.errors import NoWidget
from textual.events import Click
from textual.geometry import Offset
from textual.message import Message
from textual.messages import CloseMessages, InvokeLater, Prune
from textual.screen import ModalScreen, Screen, ScreenResultType
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import OptionList

from torchprof_tui.ui.common.terminal_driver import find_graphics

Answer = TypeVar("Answer")

KEPT_MESSAGES = (Prune, CloseMessages, events.Unmount, events.Callback, InvokeLater)
"""What a screen that was left still handles: its removal, and calls that somebody may wait for."""


class GuardedScreen(Screen[ScreenResultType]):
    """A screen that is left once, and ignores messages from then on. Every screen of this program is one."""

    @property
    def is_left(self) -> bool:
        """Whether the screen is no longer on the stack of screens."""
        return self not in self.app.screen_stack

    def show_later(self, show: Callable[[Answer], object], answer: Answer) -> None:
        """Show an answer of a worker on the UI thread, unless the screen was left."""
        if self.is_attached:
            self.call_later(lambda: None if self.is_left else show(answer))

    def keep_key(self, event: events.Key) -> bool:
        """Keep a key until work of an earlier key is done; return whether it was kept, and has no effect now."""
        return False

    def on_screen_suspend(self) -> None:
        """Repaint pictures as characters below another screen, and as pictures when it is left."""
        if (graphics := find_graphics(self.app)) is not None and graphics.sent:
            graphics.repaint()
            self.app.screen.refresh()

    on_screen_resume = on_screen_suspend

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        """Leave this screen, and those above it, unless it was left before: textual would leave the screen on top."""
        if self.is_left:
            return AwaitComplete()
        while self.app.screen is not self:
            self.app.pop_screen()
        return super().dismiss(result)

    def get_widget_and_offset_at(self, x: int, y: int) -> tuple[Widget | None, Offset | None]:
        """Return what can be selected at a cell; a widget that was removed since the last layout cannot be."""
        widget, offset = super().get_widget_and_offset_at(x, y)
        return (widget, offset) if widget is None or widget.is_attached else (None, None)

    async def _dispatch_message(self, message: Message) -> None:
        if isinstance(message, KEPT_MESSAGES) or not self.is_left:
            await super()._dispatch_message(message)
        elif isinstance(message, events.Key):
            self.app.post_message(message)  # typed for the screen that is shown now


class ScrollActions:
    """The keys of a screen that is one text, `_text`."""

    _text: Any

    def action_move(self, lines: int) -> None:
        self._text.scroll_lines(lines)

    def action_page(self, pages: int) -> None:
        self._text.scroll_lines(pages * self._text.page_size)

    def action_edge(self, last: bool) -> None:
        self._text.scroll_lines(10_000_000 if last else -10_000_000)


# textual takes styles and bindings from the first base class only.


class GuardedModalScreen(ModalScreen[ScreenResultType], GuardedScreen[ScreenResultType]):
    """A guarded screen that shows the one below it."""


class GuardedCommandPalette(CommandPalette, GuardedScreen[None]):
    """textual's command palette, whose search goes on after it was cancelled."""

    def _on_click(self, event: events.Click) -> None:  # type: ignore[override]
        """Ignore a click outside of the terminal, which has been made smaller since."""
        try:
            self.get_widget_at(event.screen_x, event.screen_y)
        except NoWidget:
            event.prevent_default()

    def _watch__list_visible(self) -> None:
        if not self.is_left:
            super()._watch__list_visible()

    async def _watch__show_busy(self) -> None:
        if not self.is_left:
            await super()._watch__show_busy()


class GuardingApp(App[None]):
    """An app that stops the timers and cancels the workers of a screen when it is left, not when it is removed."""

    def pop_screen(self) -> AwaitComplete:
        screen = self.screen
        removal = super().pop_screen()
        self._stop_activity(screen)
        return removal

    def switch_screen(self, screen: Any) -> AwaitComplete:
        previous = self.screen
        removal = super().switch_screen(screen)
        if previous is not self.screen:
            self._stop_activity(previous)
        return removal

    def _stop_activity(self, screen: Screen[Any]) -> None:
        nodes = {screen, *screen.walk_children()}
        for node in nodes:
            for timer in list(node._timers):
                timer.stop()
        for worker in list(self.workers):
            if worker.node in nodes and worker._task is not asyncio.current_task():
                worker.cancel()


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
    """Change textual's classes, whose own widgets use them, so they cannot be derived from. May be called again.

    A timer that is due already never let the event loop run again where its delay was negative, as that of a message
    which expired while its screen was built: the program hung. A single timer was skipped for ever where its delay had
    passed before its task ran on, as on a busy machine: nothing was painted any more, or no resize handled.

    An option list raised KeyError for page keys where no line of it is visible, as the command palette's in a terminal
    of a few cells, and IndexError for a click on an option that has left the list since it was painted.
    """
    Timer.__init__ = create_timer  # type: ignore[assignment,method-assign]
    OptionList._move_page = move_visible_page  # type: ignore[assignment,method-assign]
    OptionList._on_click = click_listed_option  # type: ignore[assignment,method-assign]
