"""What the screens beside the lanes share: a status line, a prompt in its place, a worker, and the keys of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from torchprof_tui.trace.core.atomic_file import OutputError, check_target, expand_path, write_atomically
from torchprof_tui.ui.common.comparison_prompt import GO_TO, GO_TO_HINT, ComparisonPrompt
from torchprof_tui.ui.common.comparison_request import COMPARE, ComparisonRequest
from torchprof_tui.ui.common.debounced_worker import DebouncedWorker
from torchprof_tui.ui.common.guarded_screen import GuardedScreen
from torchprof_tui.ui.common.keys import EXPORT
from torchprof_tui.ui.common.painted_widget import RowList, RowPicked, follow_theme
from torchprof_tui.ui.common.status_line import (
    Choice,
    Prompt,
    PromptChanged,
    PromptClosed,
    PromptSubmitted,
    StatusLine,
    format_copy_message,
)

if TYPE_CHECKING:
    from torchprof_tui.trace.core.arrays import I64  # imports numpy

MAX_VIEWS = 50  # earlier views of a screen that are kept for the key that goes back; the oldest one is dropped

Item = TypeVar("Item")

SEARCH_HINT = "text, or /regular expression/ · ↑ earlier"


class PromptedScreen(GuardedScreen[Any]):
    """A screen whose status line gives way to a prompt."""

    AUTO_FOCUS = ""

    def __init__(self, status: str) -> None:
        """`status`: the id of the status line."""
        super().__init__()
        self._status = StatusLine(id=status)
        self._prompt = Prompt(id="prompt")
        self._comparison = ComparisonPrompt(self, self._prompt, self.compare)
        self._worker = DebouncedWorker(self)

    def compare(self, request: ComparisonRequest) -> None:
        """Ask for a comparison, which closes the prompt."""
        raise NotImplementedError

    def show_message(self, message: str) -> None:
        """Show a message in the status line; "" shows the state of the screen again."""
        self._status.show_message(message)

    def follow_theme(self, hints: Sequence[tuple[str, str]]) -> None:
        """Paint the widgets of the mounted screen in the colours of the theme, and show the keys of these hints."""
        follow_theme(self)
        self._status.show_keys(hints)

    def copy_text(self, text: str, label: str) -> None:
        """Copy a text, if the terminal takes it, and say what was copied."""
        self.app.copy_to_clipboard(text)
        self.show_message(format_copy_message(label))

    def _open_prompt(
        self, purpose: str, hint: str, text: str = "", choices: Sequence[Choice] = (), replace: bool = True
    ) -> None:
        """Ask for a text; `replace`: typing replaces what there is; `choices`: what is listed above it."""
        self.add_class("asking")
        self._prompt.open(purpose, hint, text, replace, choices)

    def _close_prompt(self) -> None:
        self.remove_class("asking")
        self._prompt.close()


class ChildScreen(PromptedScreen):
    """A screen above the lanes, or in their place. The id of its status line has the name of the class."""

    def __init__(self) -> None:
        super().__init__(f"{type(self).__name__.removesuffix('Screen').lower()}-status")

    def on_prompt_closed(self, message: PromptClosed) -> None:
        self._close_prompt()

    @property
    def _lanes(self) -> Any:
        """The explorer below this screen; None, which is then said, without one."""
        lanes = next((screen for screen in self.app.screen_stack if screen.TITLE == "explorer"), None)
        if lanes is None:
            self.show_message("there are no lanes below this screen")
        return lanes

    def action_go_to(self) -> None:
        """Ask where to go: this screen is left for the lanes, which go there."""
        if (lanes := self._lanes) is not None:
            self._open_prompt(GO_TO, GO_TO_HINT, "", choices=lanes.list_places())

    def action_compare(self) -> None:
        """Ask what to compare the trace of the lanes with."""
        if (lanes := self._lanes) is not None:
            self._ask_comparison(lanes.list_comparisons())

    def _ask_comparison(self, own: Sequence[Choice]) -> None:
        """Open the prompt of a comparison. `own`: comparisons of the trace with itself."""
        self._comparison.open(partial(self._open_prompt, COMPARE), own)

    def on_prompt_changed(self, message: PromptChanged) -> None:
        if message.purpose == COMPARE:
            self._comparison.show_hint(message.text)

    def on_prompt_submitted(self, message: PromptSubmitted) -> None:
        """Handle the prompts that all of these screens have; textual calls this after the handler of a subclass."""
        if message.purpose == GO_TO:
            self._close_prompt()
            if message.text.strip() == EXPORT:  # of this screen
                self.app.call_later(self.app.run_action, f"app.{EXPORT}")
            elif (lanes := self._lanes) is not None:  # what lies above them is left
                self.dismiss(None)
                lanes.call_later(lanes.go_anywhere, message.text)
        elif message.purpose == COMPARE:
            self._comparison.submit(message.text)

    def compare(self, request: ComparisonRequest) -> None:
        self._close_prompt()
        if (lanes := self._lanes) is not None:
            self.dismiss(None)
            lanes.call_later(lanes.compare, request)

    def action_leave(self) -> None:
        self.dismiss(None)

    def action_child(self, name: str) -> None:
        """Leave this screen above the lanes, and open another one."""
        lanes = self.app.screen_stack[-2]
        self.dismiss(None)
        lanes.call_later(lanes.run_action, f"child({name!r})")


class SearchScreen(ChildScreen):
    """A screen whose prompt searches, or filters, while the text is typed. `SEARCH`: the label of that prompt."""

    SEARCH: ClassVar[str] = "search"

    def search(self, text: str) -> str:
        """Show what matches a text; "" ends the search. Returns what is wrong with the text, else ""."""
        raise NotImplementedError

    def describe_found(self, text: str) -> str:
        """Describe how much matches, beside the text that is being typed."""
        raise NotImplementedError

    def finish_search(self, text: str) -> None:
        """Show the first match after enter, if that is not done by `search`."""

    def cancel_search(self) -> None:
        """End the search that escape has left."""
        self.search("")

    def submit(self, text: str) -> str:
        """Do what another prompt asked for. Returns what is wrong with the text, else ""."""
        raise NotImplementedError

    def report_written(self, line: str, is_written: bool) -> str:
        """Show that a file was written. Returns why it was not, for `submit`, else ""."""
        if is_written:
            self.show_message(line)
        return "" if is_written else line

    def on_prompt_changed(self, message: PromptChanged) -> None:
        if message.purpose == self.SEARCH:
            self._worker.debounce("search", partial(self._preview_search, message.text))

    def _preview_search(self, text: str) -> None:
        if self._prompt.is_open:
            problem = self.search(text)
            self._prompt.show_hint(problem or (self.describe_found(text) if text else SEARCH_HINT))

    def on_prompt_submitted(self, message: PromptSubmitted) -> None:
        """Do what was asked; on an error the prompt stays open, so that no further character becomes a key."""
        if message.purpose in (GO_TO, COMPARE):  # handled by the base class
            return
        is_search = message.purpose == self.SEARCH
        if problem := self.search(message.text) if is_search else self.submit(message.text):
            self._prompt.show_hint(problem)
            return
        self._close_prompt()
        if is_search:
            self.finish_search(message.text)

    def on_prompt_closed(self, message: PromptClosed) -> None:
        if message.purpose == self.SEARCH:
            self.cancel_search()


class ListScreen(SearchScreen):
    """A screen with one list, `rows`, and the actions of the keys of rows."""

    rows: RowList

    def handle_cursor_move(self) -> None:
        """Handle a move of the cursor to another row."""

    def on_row_picked(self, message: RowPicked) -> None:
        """Handle a click, and a wheel that moved the cursor; textual calls this after the handler of a subclass."""
        if not message.opened:
            self.handle_cursor_move()

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


def cycle(choices: Sequence[Item], current: Item, distance: int) -> Item:
    """Return the choice that is `distance` after the current one, cyclically."""
    return choices[(choices.index(current) + distance) % len(choices)]


def find_adjacent(found: I64, current: int, distance: int) -> int:
    """Find the next (1) or previous (-1) of ascending numbers int64[k] from one on, cyclically: its index; -1: none."""
    if not len(found):
        return -1
    index = int(found.searchsorted(current, "right")) if distance > 0 else int(found.searchsorted(current)) - 1
    return index % len(found)


def write_new_file(name: str, formatters: Mapping[str, Callable[[], str]], content: str) -> tuple[str, bool]:
    """Write a file that the user named. `formatters`: what makes its text, by suffix; `content`: what that is.

    Returns (a line that reports the outcome, whether the file was written). Existing files are never overwritten.
    """
    formatter = next((each for suffix, each in formatters.items() if name.lower().endswith(suffix)), None)
    if formatter is None:
        *others, last = formatters
        return f"{Path(name).name}: the name must end in {', '.join(others)} or {last}", False
    try:
        path = expand_path(name)
        if check_target(path):
            return f"{path} exists already and was not overwritten; choose another name", False
        write_atomically(path, formatter())
    except OutputError as error:
        return str(error), False
    return f"wrote {content} to {path}", True
