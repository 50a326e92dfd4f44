"""Write docs/keys.md, the keys of every screen, from the program's bindings: `python -m tools.keys_page`."""

from __future__ import annotations

from pathlib import Path

from textual.binding import Binding

from torchprof_tui.app import TorchprofApp
from torchprof_tui.ui.all_bindings import find_bindings
from torchprof_tui.ui.common import keys
from torchprof_tui.ui.common.bindings import SECTION_TITLES, format_key_name, list_bindings
from torchprof_tui.ui.common.keys import MAX_NUMBER_KEYS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "keys.md"

SCREENS = {
    "explorer": "The lanes",
    "table": "The profiler table",
    "tree": "The dispatch tree",
    "flame": "The flame graph",
    "memory": "Memory",
    "roofline": "The roofline",
    "snapshot": "A memory snapshot",
    "diff": "The comparison",
    "attach": "Jobs that are running",
    "fleet": "All ranks of a job",
    "hang": "Why a job hangs",
    "try": "Remedies that are tried",
    "source": "A source file",
    "learn": "Learn: guess, then look",
    "LessonPanel": "A case, above the lanes",
    "start": "The list of traces",
    "record": "What to record",
    "recording": "While it records",
    "loading": "While a trace loads",
    "help": "The help",
}
"""Screens by the first part of their class's name → heading, in the order of the page."""

INTRODUCTION = """\
# Keys

Written by `python -m tools.keys_page` from the program's table of keys. In the app `?` or `F1` shows the keys that act
on the screen, `ctrl+p` finds every command, `:` goes anywhere. `torchprof-tui config --keys` lists the ids by which a
[configuration](config.md) remaps them.

A key means the same on all screens: {verbs} verbs outside of text fields. A verb counts once with all of its keys, and
`1` to `9` are one. A capital letter is that key with shift. The mouse works, too: the wheel scrolls the lanes, with
`ctrl` it zooms, with `shift` it pans; a click selects, a double click fits, a drag marks a range. Where the terminal
keeps `ctrl` or `shift` for itself, use `alt`.
"""

TYPING = """\
## While you type

These also act in text fields. In a prompt `esc` closes it, `↑` and `↓` choose, `tab` completes.
"""

NAMED = """\
## By name

What is rarer has no key: `ctrl+p` finds it, and on the lanes `:` takes its name.
"""


def build_page() -> str:
    """Return the page: the verbs, then for each screen what they do there where that is more than the verb says."""
    verbs = {verb.id: verb for verb in keys.list_verbs()}
    parts = [INTRODUCTION.format(verbs=len(verbs))]
    for section, title in SECTION_TITLES.items():
        rows = [(_format_verb(verb), verb.tooltip) for name, verb in verbs.items() if name.startswith(f"{section}.")]
        if rows:
            parts.append(f"## {title}\n\n{_format_table(rows)}")
    app = list_bindings(TorchprofApp)
    typing = [[binding] for binding in app if binding.id not in verbs and binding.tooltip]
    parts.append(f"{TYPING}\n{_format_table([(_format_keys(each), _find_sentence(each)) for each in typing])}")
    named = [
        (f"`{key.keys}`", key.description.partition(": ")[2])
        for key in (*keys.KEYLESS_COMMANDS, *keys.PROGRAM_COMMANDS)
    ]
    parts.append(f"{NAMED}\n{_format_table(named)}")
    bindings = find_bindings()
    for name, heading in SCREENS.items():
        own, as_above = _list_rows(bindings[name])
        also = f"As above: {' '.join(as_above)}\n" if as_above else ""
        table = _format_table(own) if own else ""
        parts.append(f"## {heading}\n\n{table}{chr(10) if table and also else ''}{also}")
    return "\n".join(parts)


def _format_table(rows: list[tuple[str, str]]) -> str:
    lines = "".join(f"| {shown} | {_escape(text)} |\n" for shown, text in rows)
    return f"| keys | |\n|---|---|\n{lines}"


def _format_verb(verb: Binding) -> str:
    if verb.id == "panels.number":
        return "`1` … `9`"
    extra = [Binding("f1", "help")] if verb.id == "program.help" else []
    return _format_keys([verb, *extra])


def _list_rows(bindings: list[Binding]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return (keys, sentence) of what says more than its verb, and the keys of the others; by the order of verbs."""
    verbs = {verb.id: verb for verb in keys.list_verbs()}
    order = list(verbs)
    groups: dict[str, list[Binding]] = {}
    for binding in bindings:
        if binding.id:
            groups.setdefault(binding.id, []).append(binding)
    own, as_above = [], []
    for name in sorted(groups, key=lambda name: order.index(name) if name in verbs else len(order)):
        group = groups[name]
        shown = "`1` … `9`" if len(group) == MAX_NUMBER_KEYS else _format_keys(group)
        sentence = _find_sentence(group)
        if not sentence or (name in verbs and sentence == verbs[name].tooltip):
            as_above.append(shown)
        else:
            own.append((shown, sentence))
    return own, as_above


def _find_sentence(group: list[Binding]) -> str:
    return next((binding.tooltip for binding in group if binding.tooltip), "")


def _format_keys(group: list[Binding]) -> str:
    names = (binding.key_display or format_key_name(key) for binding in group for key in binding.key.split(","))
    return " ".join(f"`{_escape(name)}`" for name in dict.fromkeys(names))


def _escape(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(build_page(), encoding="utf-8")
