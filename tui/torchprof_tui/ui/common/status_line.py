"""The last line of a screen: a message or the state, and the most useful keys; in its place, a prompt while it asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.strip import Strip
from textual.widgets import Input, Static
from textual.widgets.input import Selection

from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.records import record
from torchprof_tui.ui.common import keys
from torchprof_tui.ui.common.bindings import list_bindings, rename_hints
from torchprof_tui.ui.common.cell_text import find_common_prefix, truncate, truncate_start
from torchprof_tui.ui.common.painted_widget import LatestMessage, PaintedWidget, TextRun, build_strip, wrap_text
from torchprof_tui.ui.common.path_completions import complete_path, type_text


def format_copy_message(label: str) -> str:
    """Return the message about a copy. A terminal never answers OSC 52, so nobody knows whether it took the text."""
    return f"sent to the terminal's clipboard: {label}"


KEPT_HINTS, KEPT_HINTS_MIN_WIDTH = 3, 60
"""Hints that a state leaves room for, and the width from which it does; a message is shown for a moment, so in full."""


class StatusLine(PaintedWidget):
    """One line with a message (`show_message`), else the state of the screen (`show_state`), and key hints.

    In a higher one a message is wrapped.
    """

    _message = ""
    _state = ""
    _work = ""
    _is_warning = False
    _key_hints: tuple[tuple[str, str], ...] = ()

    def show_message(self, message: str, is_warning: bool = False) -> None:
        """Show one line, which is escaped here; it stays until the next message."""
        if (message, is_warning) != (self._message, self._is_warning):
            self._message, self._is_warning = message, is_warning
            self.repaint()

    def show_state(self, state: str) -> None:
        """Show the state of the screen, which is escaped here, in place of the last message and after later ones."""
        self._state = state
        self.show_message("")
        self.repaint()

    def show_work(self, work: str) -> None:
        """Show what is being worked on in place of the state, "" for nothing."""
        if work != self._work:
            self._work = work
            self.repaint()

    @property
    def message(self) -> str:
        """The last message, else the state."""
        return self._message or self._state

    def show_keys(self, keys: Sequence[tuple[str, str]]) -> None:
        """Show as many of these (key, description) hints as fit; the most useful come first."""
        keymap = getattr(self.app, "remapped_keys", None) if self.is_attached else None
        if keymap:
            keys = rename_hints(keys, [*list_bindings(type(self.screen)), *list_bindings(type(self.app))], keymap)
        if tuple(keys) != self._key_hints:
            self._key_hints = tuple(keys)
            self.repaint()

    def paint(self, y: int, width: int) -> Strip:
        palette = self.palette
        if self.size.height > 1:
            lines = [
                "".join(text for text, _ in line) for line in wrap_text(clean(self._message), width - 2, palette.text)
            ]
            text = " ".join(lines[y:]) if y == self.size.height - 1 else "".join(lines[y : y + 1])
            return build_strip([(" ", palette.text), (truncate(text, width - 2), palette.text)], width, palette.text)
        lead = self._key_hints[: 0 if self._message or width < KEPT_HINTS_MIN_WIDTH else KEPT_HINTS]
        kept = sum(_measure_hint(*hint) + 2 for hint in lead)
        message = truncate(clean(self._message or self._work or self._state), max(width - 2 - kept, 0))
        style = palette.warning if self._is_warning and self._message else palette.text
        available = width - cell_len(message) - 4
        hints: list[TextRun] = []
        used = 0
        for key, description in self._key_hints:
            needed = _measure_hint(key, description) + (2 if hints else 0)
            if used + needed > available:
                continue  # a shorter one may fit
            if hints:
                hints.append(("  ", palette.text))
            hints += [(key, palette.key), (f" {description}", palette.muted)]
            used += needed
        gap = " " * (width - used - cell_len(message) - 2)
        runs: list[TextRun] = [(" ", palette.text), (message, style), (gap, palette.text), *hints]
        return build_strip(runs, width, palette.text)


def _measure_hint(key: str, description: str) -> int:
    return cell_len(key) + 1 + cell_len(description)


@dataclass
class PromptChanged(LatestMessage):
    """The text in the prompt changed."""

    purpose: str
    text: str


@dataclass
class PromptSubmitted(Message):
    """Enter in the prompt."""

    purpose: str
    text: str


@dataclass
class PromptClosed(Message):
    """Escape in the prompt."""

    purpose: str


@record
class Choice:
    """A text that a prompt offers, and what it stands for."""

    text: str
    note: str = ""


MAX_CHOICES = 8  # choices above a prompt: more would hide what the prompt is about


def find_choices(choices: Sequence[Choice], typed: str) -> list[Choice]:
    """Return the choices that contain what is typed in any case; first those where it begins the text or the file."""
    wanted = typed.strip().casefold()
    found = [choice for choice in choices if wanted in choice.text.casefold()]
    return sorted(found, key=lambda choice: f"/{wanted}" not in f"/{choice.text.casefold()}")


PATH_PURPOSES = ("compare with", "go to")  # of the prompts that take the path of a trace

MAX_RECALLED = 50  # submitted texts that are kept for each purpose


class Prompt(Horizontal):
    """An input with a label and a hint, and a list of choices above it. `open` shows it.

    With choices, ↑ ↓ take one and tab completes; without, ↑ ↓ recall earlier texts.
    Changes, enter, and escape or ctrl+c are posted as messages.
    """

    BINDINGS = keys.PROMPT
    DEFAULT_CSS = """
    Prompt { height: 1; display: none; }
    Prompt.open { display: block; }
    Prompt Static { width: auto; }
    Prompt #prompt-choices { overlay: screen; constrain: none inside; position: absolute; display: none; }
    Prompt #prompt-choices { width: 100%; background: $panel; }
    Prompt.choosing #prompt-choices { display: block; }
    Prompt Input { width: 1fr; }
    """

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._label = Static("", markup=False)
        self._input = Input(compact=True, select_on_focus=False)
        self._hint = Static("", markup=False)
        self.purpose = ""
        self._submitted: dict[str, list[str]] = {}  # by purpose, latest first
        self._recalled = -1  # index into the submitted texts of this purpose, -1 for the text before the first `up`
        self._draft = ""
        self._initial = ""
        self._choices: Sequence[Choice] = ()
        self._found: list[Choice] = []  # the choices for what was typed
        self._chosen = -1  # index into the found choices; -1: the text is as typed
        self._list = Static("", id="prompt-choices", markup=False)

    def compose(self) -> ComposeResult:
        yield from (self._label, self._input, self._hint, self._list)

    @property
    def is_open(self) -> bool:
        return self.has_class("open")

    def open(
        self, purpose: str, hint: str, text: str = "", replace: bool = False, choices: Sequence[Choice] = ()
    ) -> None:
        """Show the prompt with `text` to edit and give it the focus; `replace`: typing replaces the text."""
        self.purpose, self._recalled, self._draft, self._initial = purpose, -1, "", text
        self.offer(choices)
        self._label.update(f" {purpose}: ")
        self._input.value = text
        self._input.selection = Selection(0 if replace else len(text), len(text))
        self.show_hint(hint)
        self.add_class("open")
        self.screen.set_focus(self._input)  # at once, unlike Widget.focus: the next key must reach the input

    @property
    def text(self) -> str:
        return self._input.value

    @property
    def found(self) -> list[str]:
        """The choices for what was typed, all of them where nothing was."""
        return [choice.text for choice in self._found]

    def offer(self, choices: Sequence[Choice]) -> None:
        """List choices above the prompt, all of them until something is typed; () for none."""
        self._choices = choices
        typed = self._input.value if self.is_open and self._chosen < 0 else self._draft
        self._find("" if typed == self._initial else typed)

    def _find(self, typed: str) -> None:
        self._found, self._chosen, self._draft = find_choices(self._choices, typed), -1, typed
        self._show_choices()

    def _show_choices(self) -> None:
        """Draw the part of the list that has the chosen one."""
        first = max(0, min(self._chosen - MAX_CHOICES // 2, len(self._found) - MAX_CHOICES))
        shown = self._found[first : first + MAX_CHOICES]
        screen_width = self.screen.size.width if self.is_attached else 80
        notes = max((cell_len(clean(choice.note)) for choice in shown), default=0)
        width = max((cell_len(clean(choice.text)) for choice in shown), default=0)
        width = min(width, max(screen_width - notes - 4, screen_width // 2))  # a name is cut, not what it is
        lines = []
        for index, choice in enumerate(shown, first):
            mark = "▶" if index == self._chosen else " "
            text = truncate_start(clean(choice.text), width)
            lines.append(f"{mark} {text}{' ' * (width - cell_len(text))}  {clean(choice.note)}".rstrip())
        if len(self._found) > len(shown):
            lines.append(f"  {len(self._found):,} in all: type to filter, ↑ ↓ choose")
        self._list.update(Content("\n".join(truncate(line, screen_width) for line in lines)))
        self._list.styles.offset = (0, -len(lines))
        self.set_class(bool(lines), "choosing")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave tab to the screen where there is nothing to complete."""
        return action != "complete" or bool(self._choices)

    def action_complete(self) -> None:
        """Type what all choices that begin with the text share, or the path; else take the next choice."""
        typed = self._input.value
        if self.purpose in PATH_PURPOSES and self._chosen < 0 and ("/" in typed or typed.startswith(("~", "."))):
            self.run_worker(complete_path(self._input, only_traces=True), exclusive=True, group="complete")
            return
        starts = [choice.text for choice in self._found if choice.text.casefold().startswith(typed.casefold())]
        shared = find_common_prefix(starts)
        if self._chosen < 0 and len(shared) > len(typed):
            type_text(self._input, shared)
        else:
            self._choose(1)

    def _choose(self, distance: int) -> None:
        """Type the next (1) or previous (-1) of the found choices; before the first is what was typed."""
        self._chosen = (self._chosen + 1 + distance) % (len(self._found) + 1) - 1
        type_text(self._input, self._draft if self._chosen < 0 else self._found[self._chosen].text)
        self._show_choices()

    def show_hint(self, text: str) -> None:
        """Show a hint at the right end: the syntax, or the number of matches."""
        self._hint.update(f" {text} " if text else "")

    def close(self) -> None:
        self.remove_class("open", "choosing")
        self.screen.set_focus(None)

    def action_close(self) -> None:
        self.post_message(PromptClosed(self.purpose))

    def action_recall(self, distance: int) -> None:
        """Show an earlier (1) or later (-1) one of the texts that were submitted for this purpose."""
        if self._found:
            self._choose(-distance)
            return
        texts = self._submitted.get(self.purpose, [])
        if self._recalled < 0:
            self._draft = self._input.value
            if distance > 0 and texts[:1] == [self._draft]:
                self._recalled = 0  # it is shown already
        self._recalled = max(min(self._recalled + distance, len(texts) - 1), -1)
        type_text(self._input, self._draft if self._recalled < 0 else texts[self._recalled])

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if self.is_open:
            is_chosen = self._chosen >= 0 and event.value == self._found[self._chosen].text
            if self._choices and not is_chosen and event.value not in (self._draft, self._initial):
                self._find(event.value)
            self.post_message(PromptChanged(self.purpose, event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if event.value:
            earlier = [text for text in self._submitted.get(self.purpose, []) if text != event.value]
            self._submitted[self.purpose] = [event.value, *earlier[: MAX_RECALLED - 1]]
        self.post_message(PromptSubmitted(self.purpose, event.value))
