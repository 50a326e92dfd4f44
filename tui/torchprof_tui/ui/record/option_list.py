"""The options of a run as a list: a value is typed where one stands, a switch is turned with space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option as Row

from torchprof_tui.runs.recording_request import Option
from torchprof_tui.ui.common.name_display import clean, truncate

FLAG_CELLS, VALUE_CELLS = 17, 9

_ALLOWED_CHARACTERS = {"count": "0123456789", "seconds": "0123456789."}
SWITCH_ON = "on"


class RunOptions(OptionList):
    """`values` by flag: what was typed, `ON` for a switch; what is not there is left to the run."""

    class Changed(Message):
        """A value has."""

    def __init__(self, options: Sequence[Option], *, id: str) -> None:  # noqa: A002  (textual's own word)
        super().__init__(id=id, markup=False)
        self._options_by_flag = {option.flag: option for option in options}
        self.values: dict[str, str] = {}

    def on_mount(self) -> None:
        self.add_options([Row(self._format_option(option), id=flag) for flag, option in self._options_by_flag.items()])
        self.highlighted = 0

    @property
    def current_option(self) -> Option | None:
        row = self.highlighted_option
        return None if row is None else self._options_by_flag.get(row.id or "")

    def to_arguments(self, excluded_flags: Sequence[str] = ()) -> tuple[str, ...]:
        """As they are written on a command line."""
        found: list[str] = []
        for flag, option in self._options_by_flag.items():
            if (value := self.values.get(flag)) and flag not in excluded_flags:
                found += [flag] if option.kind == "switch" else [flag, value]
        return tuple(found)

    def set_values(self, arguments: Sequence[str], extra_values: Mapping[str, str]) -> None:
        """The other way round: all values anew."""
        values = {flag: value for flag, value in extra_values.items() if value}
        rest = list(arguments)
        while rest:
            flag = rest.pop(0)
            option = self._options_by_flag.get(flag)
            if option is not None:
                values[flag] = SWITCH_ON if option.kind == "switch" or not rest else rest.pop(0)
        self.values = values
        for flag, option in self._options_by_flag.items():
            self.replace_option_prompt(flag, self._format_option(option))

    def on_key(self, event: events.Key) -> None:
        if event.key in ("up", "down"):
            # Here and not as a binding, which is looked at after the keys that were typed in one breath with it.
            event.stop()
            event.prevent_default()
            self.action_cursor_down() if event.key == "down" else self.action_cursor_up()
            return
        option = self.current_option
        if option is None:
            return
        value = self.values.get(option.flag, "")
        if event.key in ("space", "enter") and option.kind in ("switch", "choice"):
            choices = ["", *(option.values or (SWITCH_ON,))]
            value = choices[(choices.index(value) + 1) % len(choices)]
        elif event.key == "backspace":
            value = value[:-1] if option.kind not in ("switch", "choice") else ""
        elif event.key == "delete":
            value = ""
        elif event.is_printable and event.character:
            if option.kind in ("switch", "choice") or event.character not in _ALLOWED_CHARACTERS.get(
                option.kind, event.character
            ):
                event.stop()  # and it means nothing else here
                return
            value += event.character
        else:
            return
        event.stop()
        event.prevent_default()
        self.values[option.flag] = value
        self.replace_option_prompt(option.flag, self._format_option(option))
        self.post_message(self.Changed())

    def _format_option(self, option: Option) -> Content:
        value = clean(self.values.get(option.flag, ""))
        if cell_len(value) > VALUE_CELLS:
            value = "…" + value[1 - VALUE_CELLS :]  # its end, where one types
        shown = value or ("off" if option.kind == "switch" else "–")
        return Content.assemble(
            f" {truncate(option.flag, FLAG_CELLS):<{FLAG_CELLS}} ",
            (f"{shown:<{VALUE_CELLS}} ", "$accent bold" if value else "$text-muted"),
            (option.help, "$text-muted"),
        )
