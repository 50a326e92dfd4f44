"""List the keys of a screen by section, from its active bindings.

A binding's `id` is `section.name`, its `description` a short label, its `tooltip` the sentence in the help and in the
command palette. A binding without a tooltip is not listed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from textual.binding import ActiveBinding, Binding
from textual.dom import DOMNode

SECTION_TITLES = {
    "time": "Time",
    "events": "Events",
    "lanes": "Lanes",
    "find": "Finding and measuring",
    "panels": "Panels",
    "rows": "Rows",
    "table": "Table",
    "tree": "Tree",
    "flame": "Flame graph",
    "memory": "Memory",
    "snapshot": "Memory snapshot",
    "diff": "Comparison",
    "start": "Traces",
    "path": "Typing a path",
    "run": "Recording",
    "guess": "Guess",
    "source": "Source",
    "loading": "Loading",
    "help": "Help",
    "program": "Program",
}
"""Titles by the first part of a binding's id, in the order of the help. A screen of an extension has others in its
`KEY_SECTIONS`, which come before `help`."""

_SYMBOLS = {
    "left": "←",
    "right": "→",
    "up": "↑",
    "down": "↓",
    "comma": ",",
    "full_stop": ".",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "left_curly_bracket": "{",
    "right_curly_bracket": "}",
    "slash": "/",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "plus": "+",
    "minus": "-",
    "exclamation_mark": "!",
    "question_mark": "?",
    "escape": "esc",
    "pageup": "page up",
    "pagedown": "page down",
    "f1": "F1",
}


@dataclass(frozen=True, slots=True)
class KeyHelp:
    """Describe one action: all its keys, a sentence on what it does, the action string, and what runs the action.

    `namespace`: the widget, screen or app whose method the action is; None for the screen.
    """

    keys: str
    description: str
    action: str
    namespace: DOMNode | None = None


def group_by_section(active: Iterable[ActiveBinding]) -> dict[str, list[KeyHelp]]:
    """Group the enabled bindings that have a tooltip by section title; in a section, in the order of declaration."""
    active = list(active)
    added: dict[str, str] = {}
    for each in active:
        added |= getattr(each.node, "KEY_SECTIONS", {})
    last = {key: SECTION_TITLES[key] for key in ("help", "program")}
    titles = {key: title for key, title in SECTION_TITLES.items() if key not in last} | added | last
    sections: dict[str, dict[str, list[ActiveBinding]]] = {title: {} for title in titles.values()}
    for active_binding in active:
        binding = active_binding.binding
        if binding.tooltip and active_binding.enabled:
            section, _, _ = (binding.id or "").partition(".")
            title = titles.get(section, titles["program"])
            sections[title].setdefault(binding.id or binding.action, []).append(active_binding)
    return {title: [_describe_action(group) for group in by_id.values()] for title, by_id in sections.items() if by_id}


def _describe_action(group: list[ActiveBinding]) -> KeyHelp:
    first = group[0]
    keys = " ".join(dict.fromkeys(_format_key(active_binding.binding) for active_binding in group))
    return KeyHelp(keys, first.binding.tooltip, first.binding.action, first.node)


def _format_key(binding: Binding) -> str:
    return binding.key_display or format_key_name(binding.key)


def format_key_name(key: str) -> str:
    """Format textual's name of a key as it is on a keyboard: `/` for slash, `←` for left."""
    return _SYMBOLS.get(key, key)
