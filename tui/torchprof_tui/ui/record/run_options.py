"""Editable list of a run's options: type a value at the cursor, or toggle a switch with space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option as Row

from torchprof_tui.runs.recording_request import Option
from torchprof_tui.ui.common.cell_text import cut_clauses
from torchprof_tui.ui.common.name_display import clean, truncate

FLAG_CELLS, VALUE_CELLS = 17, 9

_ALLOWED_CHARACTERS = {"count": "0123456789", "seconds": "0123456789."}
SWITCH_ON = "on"


class RunOptions(OptionList):
    """The options with their values.

    `values`: flag → the typed value, SWITCH_ON for a switch. Options without a value keep the run's default.
    """

    class Changed(Message):
        """A value was changed by the user."""

    def __init__(self, options: Sequence[Option], *, id: str) -> None:  # noqa: A002  (textual's own word)
        super().__init__(id=id, markup=False)
        self._options_by_flag = {option.flag: option for option in options}
        self.values: dict[str, str] = {}
        self._chosen: set[str] = set()  # flags that the user set, which `set_values` can keep

    def on_mount(self) -> None:
        self.add_options([Row(self._format_option(option), id=flag) for flag, option in self._options_by_flag.items()])
        self.highlighted = 0

    def on_resize(self) -> None:
        """Shorten the help to the new width: the screen shows all of that of the current option."""
        for flag, option in self._options_by_flag.items():
            self.replace_option_prompt(flag, self._format_option(option))

    @property
    def current_option(self) -> Option | None:
        row = self.highlighted_option
        return None if row is None else self._options_by_flag.get(row.id or "")

    def to_arguments(self, excluded_flags: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the options as words of a command line."""
        arguments: list[str] = []
        for flag, option in self._options_by_flag.items():
            if (value := self.values.get(flag)) and flag not in excluded_flags:
                arguments += [flag] if option.kind == "switch" else [flag, value]
        return tuple(arguments)

    def switch_on(self, flag: str) -> None:
        """Switch an option on, as if the user had done it, and move the cursor to it."""
        self.highlighted = self.get_option_index(flag)
        self._chosen.add(flag)
        self.values[flag] = SWITCH_ON
        self.replace_option_prompt(flag, self._format_option(self._options_by_flag[flag]))

    def set_values(
        self, arguments: Sequence[str], extra_values: Mapping[str, str], keep_chosen: bool = False
    ) -> list[str]:
        """Replace all values by those in the words of a command line and in `extra_values` (by flag).

        `keep_chosen`: options that the user has set keep their values, also where those are empty.
        Returns the words that are left out, because no option takes them.
        """
        ignored: list[str] = []
        values = {flag: value for flag, value in extra_values.items() if value}
        words = list(arguments)
        while words:
            flag = words.pop(0)
            option = self._options_by_flag.get(flag)
            is_switch = option is not None and option.kind == "switch"
            value = SWITCH_ON if is_switch else words[0] if words else ""
            if option is None or not value or (option.values and value not in option.values):
                ignored.append(flag)
                continue
            values[flag] = value
            del words[: 0 if is_switch else 1]
        if keep_chosen:
            values = {flag: value for flag, value in values.items() if flag not in self._chosen}
            values |= {flag: value for flag, value in self.values.items() if flag in self._chosen}
        else:
            self._chosen.clear()
        self.values = values
        for flag, option in self._options_by_flag.items():
            self.replace_option_prompt(flag, self._format_option(option))
        return ignored

    def on_key(self, event: events.Key) -> None:
        if event.key in ("up", "down"):
            # Handled here because a binding would run only after keys that were typed right after this one.
            event.stop()
            event.prevent_default()
            self.action_cursor_down() if event.key == "down" else self.action_cursor_up()
            return
        option = self.current_option
        if option is None:
            return
        value = _edit_value(option, self.values.get(option.flag, ""), event)
        if value is None:
            if event.is_printable and event.character:
                event.stop()  # an invalid character must not start a command in the screen
            return
        event.stop()
        event.prevent_default()
        self.values[option.flag] = value
        self._chosen.add(option.flag)
        self.replace_option_prompt(option.flag, self._format_option(option))
        self.post_message(self.Changed())

    def _format_option(self, option: Option) -> Content:
        value = clean(self.values.get(option.flag, ""))
        if cell_len(value) > VALUE_CELLS:
            value = "…" + value[1 - VALUE_CELLS :]  # keep the end, where the user types
        room = self.scrollable_content_region.width - FLAG_CELLS - VALUE_CELLS - 3
        value_text = value or ("off" if option.kind == "switch" else "–")
        return Content.assemble(
            f" {truncate(option.flag, FLAG_CELLS):<{FLAG_CELLS}} ",
            (f"{value_text:<{VALUE_CELLS}} ", "$accent bold" if value else "$text-muted"),
            (cut_clauses(option.help, room), "$text-muted"),
        )


def _edit_value(option: Option, value: str, event: events.Key) -> str | None:
    """Apply a key to the value of an option. Returns the new value, None if the key does not edit it."""
    is_toggle = option.kind in ("switch", "choice")
    if event.key in ("space", "enter") and is_toggle:
        choices = ["", *(option.values or (SWITCH_ON,))]
        return choices[(choices.index(value) + 1) % len(choices)]
    if event.key == "backspace":
        return "" if is_toggle else value[:-1]
    if event.key == "delete":
        return ""
    if event.is_printable and event.character and not is_toggle:
        allowed = _ALLOWED_CHARACTERS.get(option.kind, event.character)
        return value + event.character if event.character in allowed else None
    return None
