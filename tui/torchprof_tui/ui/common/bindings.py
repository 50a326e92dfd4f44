"""The bindings of screens: listed for the help, and remapped by the user.

A binding's `id` is `section.name`, its `description` a short label, its `tooltip` the sentence in the help and in the
command palette. A binding without a tooltip is not listed. Users remap keys by the id of their binding.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from textual.binding import ActiveBinding, Binding, BindingsMap
from textual.content import Content
from textual.dom import DOMNode
from textual.keys import _character_to_key

from torchprof_tui.trace.core.records import record

SECTION_TITLES = {
    "time": "Time",
    "move": "Move and open",
    "find": "Find and mark",
    "view": "Change the view",
    "panels": "Panels",
    "screens": "Screens",
    "write": "Copy and write",
    "path": "Typing a path",
    "lesson": "Case",
    "program": "Program",
}
"""Titles by the first part of a binding's id, in the order of the help."""

_SYMBOLS = {
    "left": "←",
    "right": "→",
    "up": "↑",
    "down": "↓",
    "comma": ",",
    "colon": ":",
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


@record
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
    titles = SECTION_TITLES
    sections: dict[str, dict[str, list[ActiveBinding]]] = {title: {} for title in titles.values()}
    for active_binding in active:
        binding = active_binding.binding
        if binding.tooltip and active_binding.enabled:
            section, _, _ = (binding.id or "").partition(".")
            title = titles.get(section, titles["program"])
            sections[title].setdefault(binding.id or binding.action, []).append(active_binding)
    described: dict[str, list[KeyHelp]] = {}
    for title, by_id in sections.items():
        for group in by_id.values():
            first, bindings = group[0], [active.binding for active in group]
            keys = " ".join(dict.fromkeys(binding.key_display or format_key_name(binding.key) for binding in bindings))
            key = KeyHelp(keys, first.binding.tooltip, first.binding.action, first.node)
            described.setdefault(title, []).append(key)
    return described


def format_key_name(key: str) -> str:
    """Format textual's name of a key as it is on a keyboard: `/` for slash, `←` for left."""
    return _SYMBOLS.get(key, key)


def list_bindings(owner: type[DOMNode]) -> list[Binding]:
    """List the bindings of a screen, a widget or the app with those of its base classes, one for each key."""
    merged: BindingsMap = owner._merge_bindings()
    return [binding for group in merged.key_to_bindings.values() for binding in group]


def normalize_keys(keys: str) -> list[str]:
    """Return textual's names of keys that are separated by commas: `?,ctrl+b` are question_mark and ctrl+b."""
    return [_character_to_key(key) if len(key) == 1 else key for key in keys.split(",") if key]


def rename_hint(keys: str, names: Mapping[str, str]) -> str:
    """Return the keys of a hint as they are now; `wasd` and `←→` are several keys in one word."""
    if not names:
        return keys
    return " ".join(_rename_word(word, names) for word in keys.split(" "))


def rename_hints(
    hints: Sequence[tuple[str, str]], bindings: Iterable[Binding], keymap: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Return (keys, label) hints with the keys as they are now."""
    names: dict[str, str] = {}  # by the name on a hint before, the name of the first key now
    for binding in bindings if keymap else ():
        if binding.id and binding.id in keymap:
            new = normalize_keys(keymap[binding.id])
            names[format_key_name(binding.key)] = format_key_name(new[0]) if new else ""
    return [(rename_hint(keys, names), label) for keys, label in hints]


def _rename_word(word: str, names: Mapping[str, str]) -> str:
    if word in names:
        return names[word]
    if (word.isalpha() and word in _KEY_WORDS) or not any(character in names for character in word):
        return word
    renamed = [names.get(character, character) for character in word]
    return ("" if all(len(name) == 1 for name in renamed) else " ").join(renamed)


_KEY_WORDS = {"space", "tab", "enter", "esc", "backspace", "home", "end", "delete", "page", "up", "down"}
"""Words on hints that are one key."""


def find_remappable_ids(owners: Sequence[Sequence[Binding]]) -> set[str]:
    """Return the ids that stand for one action on each screen or widget; `owners`: the bindings of each."""
    actions: dict[str, set[str]] = {}
    several = set()
    for bindings in owners:
        actions.clear()
        for binding in bindings:
            if binding.id:
                actions.setdefault(binding.id, set()).add(binding.action)
        several |= {name for name, done in actions.items() if len(done) > 1}
    known = {binding.id for bindings in owners for binding in bindings if binding.id}
    return known - several


def find_keymap_problems(
    keymap: Mapping[str, str], screens: Mapping[str, Sequence[Binding]], app_bindings: Sequence[Binding]
) -> list[str]:
    """Return one line for each unknown id and for each key that would do two things on a screen.

    `screens`: by title, the bindings of a screen or a widget, without the app's, which are active on every screen.
    """
    known = find_remappable_ids([*screens.values(), app_bindings])
    problems = [
        f'keys."{name}": no binding has this id; torchprof-tui config --keys lists them'
        for name in keymap
        if name not in known
    ]
    conflicts: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for title, bindings in screens.items():
        for key, ids in _collect_ids([*bindings, *app_bindings], keymap).items():
            for name in ids:
                if name in keymap and len(ids) > 1:
                    other = next(each for each in ids if each != name)
                    if other in keymap and (key, other, name) in conflicts:
                        continue
                    conflicts[key, name, other].append(title)
    for (key, name, other), titles in conflicts.items():
        where = ", ".join(titles[:3]) + (" …" if len(titles) > 3 else "")
        problems.append(f'keys."{name}": {format_key_name(key)} is also the key of {other} ({where})')
    return problems


def _collect_ids(bindings: Iterable[Binding], keymap: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the ids (without one: the description or the action) of what each key does."""
    ids: dict[str, list[str]] = defaultdict(list)
    for binding in bindings:
        name = binding.id or binding.description or binding.action
        for key in normalize_keys(keymap[name]) if name in keymap else [binding.key]:
            if name not in ids[key]:
                ids[key].append(name)
    return ids


_KEYS_OF_HINT = re.compile(r"(page up, down|(?!type )\S+(?: [↑↓←→])*)( .*)")


def style_hints(text: str) -> Content:
    """Style key hints that three spaces separate ("enter open   q quit"): the keys in the accent, on any screen."""
    hints = []
    for hint in text.split("   "):
        match = _KEYS_OF_HINT.fullmatch(hint)
        parts = [(match[1], "$accent bold"), match[2]] if match is not None else [hint]
        hints.append(Content.assemble(*parts))
    return Content("   ").join(hints)
