"""A one-line prompt for searches, filters and file names, shown in place of the status line while it is open."""

from __future__ import annotations

from dataclasses import dataclass

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input, Static
from textual.widgets.input import Selection

from torchprof_tui.ui.common import keys


@dataclass
class PromptChanged(Message):
    """The text in the prompt changed."""

    purpose: str
    text: str

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, PromptChanged)


@dataclass
class PromptSubmitted(Message):
    """Enter in the prompt."""

    purpose: str
    text: str


@dataclass
class PromptClosed(Message):
    """Escape in the prompt."""

    purpose: str


MAX_RECALLED = 50
"""Submitted texts that are kept for each purpose."""


class Prompt(Horizontal):
    """An input with a label and a hint. `open` shows it.

    Changes, enter, and escape or ctrl+c are posted as messages.
    """

    BINDINGS = keys.PROMPT
    DEFAULT_CSS = """
    Prompt { height: 1; display: none; }
    Prompt.open { display: block; }
    Prompt Static { width: auto; }
    Prompt Input { width: 1fr; }
    """

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._label = Static("", markup=False)
        self._input = Input(compact=True, select_on_focus=False)
        self._hint = Static("", markup=False)
        self._purpose = ""
        self._submitted: dict[str, list[str]] = {}  # by purpose, latest first
        self._recalled = -1  # index into the submitted texts of this purpose, -1 for the text before the first `up`
        self._draft = ""

    def compose(self) -> ComposeResult:
        yield from (self._label, self._input, self._hint)

    @property
    def is_open(self) -> bool:
        return self.has_class("open")

    def open(self, purpose: str, hint: str, text: str = "", replace: bool = False) -> None:
        """Show the prompt with `text` to edit and give it the focus; `replace`: typing replaces the text."""
        self._purpose, self._recalled, self._draft = purpose, -1, ""
        self._label.update(f" {purpose}: ")
        self._input.value = text
        self._input.selection = Selection(0 if replace else len(text), len(text))
        self.show_hint(hint)
        self.add_class("open")
        self.screen.set_focus(self._input)  # at once, unlike Widget.focus: the next key must reach the input

    def show_hint(self, text: str) -> None:
        """Show a hint at the right end: the syntax, or the number of matches."""
        self._hint.update(f" {text} " if text else "")

    def close(self) -> None:
        self.remove_class("open")
        self.screen.set_focus(None)

    def action_close(self) -> None:
        self.post_message(PromptClosed(self._purpose))

    def action_recall(self, distance: int) -> None:
        """Show an earlier (1) or later (-1) one of the texts that were submitted for this purpose."""
        texts = self._submitted.get(self._purpose, [])
        if self._recalled < 0:
            self._draft = self._input.value
            if distance > 0 and texts[:1] == [self._draft]:
                self._recalled = 0  # it is shown already
        self._recalled = max(min(self._recalled + distance, len(texts) - 1), -1)
        self._input.value = self._draft if self._recalled < 0 else texts[self._recalled]
        self._input.cursor_position = len(self._input.value)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if self.is_open:
            self.post_message(PromptChanged(self._purpose, event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if event.value:
            earlier = [text for text in self._submitted.get(self._purpose, []) if text != event.value]
            self._submitted[self._purpose] = [event.value, *earlier[: MAX_RECALLED - 1]]
        self.post_message(PromptSubmitted(self._purpose, event.value))
