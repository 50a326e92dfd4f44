"""Say why a key does nothing on a screen that has no binding for it."""

from __future__ import annotations

from collections.abc import Mapping

from textual import events
from textual.binding import Binding

from torchprof_tui.ui.common.keys import BINDINGS
from torchprof_tui.ui.common.remapped_keys import normalize_keys

_NAMED_KEYS = {"left", "right", "up", "down", "home", "end", "pageup", "pagedown", "enter", "escape", "backspace"}
_NAMED_KEYS |= {"tab", "shift+tab", "ctrl+c", "ctrl+r"}
"""Keys without a character that a user may try; others, such as shift alone, are reported by some terminals."""

_LANE_BINDINGS = [binding for binding in Binding.make_bindings(BINDINGS) if binding.description]


def explain_unbound_key(event: events.Key, keymap: Mapping[str, str]) -> str:
    """Return why a key that is not bound on this screen does nothing; "" for keys that nobody means to press.

    `keymap`: the user's keys by binding id.
    """
    if not event.is_printable and event.key not in _NAMED_KEYS:
        return ""
    name = event.character if event.is_printable and event.character and event.character != " " else event.key
    labels = {
        key: each.description for each in _LANE_BINDINGS for key in normalize_keys(keymap.get(each.id or "", each.key))
    }
    label = labels.get(event.key)
    return f"{name} ({label}) works only on the lanes" if label else f"{name} has no use here"
