"""Write docs/keys.md, the keys of every screen, from the program's bindings: `python -m tools.keys_page`."""

from __future__ import annotations

from pathlib import Path

from textual.binding import Binding

from torchprof_tui.app import TorchprofApp
from torchprof_tui.ui.all_bindings import find_bindings
from torchprof_tui.ui.common.bindings import SECTION_TITLES, format_key_name, list_bindings

PAGE = Path(__file__).resolve().parent.parent / "docs" / "keys.md"

SCREENS = {
    "explorer": "The lanes",
    "table": "The profiler table",
    "tree": "The dispatch tree",
    "flame": "The flame graph",
    "memory": "Memory",
    "snapshot": "A memory snapshot",
    "diff": "The comparison",
    "attach": "Jobs that are running",
    "fleet": "All ranks of a job",
    "hang": "Why a job hangs",
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

Written by `python -m tools.keys_page` from the program's bindings. In the app `?` or `F1` shows the keys of the screen,
`ctrl+p` every command. `torchprof-tui config --keys` lists the ids by which a [configuration](config.md) remaps them.

A capital letter is that key with shift. Every action has a key. The mouse works, too: the wheel scrolls the lanes, with
`ctrl` it zooms, with `shift` it pans; a click selects, a double click fits, a drag marks a range. Where the terminal
keeps `ctrl` or `shift` for itself, use `alt`.
"""


def build_page() -> str:
    """Return the page: one table for each screen, its sections in the order of the help."""
    bindings = find_bindings()
    parts = [INTRODUCTION]
    for name, heading in {"": "Everywhere", **SCREENS}.items():
        rows = _list_rows(bindings[name] if name else list_bindings(TorchprofApp))
        lines = "".join(f"| {keys} | {text} |\n" for keys, text in rows)
        parts.append(f"## {heading}\n\n| keys | |\n|---|---|\n{lines}")
    return "\n".join(parts)


def _list_rows(bindings: list[Binding]) -> list[tuple[str, str]]:
    sections: dict[str, float] = {section: position for position, section in enumerate(SECTION_TITLES)}
    of_extension = sections["help"] - 0.5
    groups: dict[str, list[Binding]] = {}
    for binding in bindings:
        groups.setdefault(binding.id or binding.action, []).append(binding)
    shown = [name for name, group in groups.items() if any(binding.tooltip for binding in group)]
    ordered = sorted(
        shown,
        key=lambda name: sections.get(name.partition(".")[0], of_extension if "." in name else 99),
    )
    return [(_format_keys(groups[name]), _escape(_find_sentence(groups[name]))) for name in ordered]


def _find_sentence(group: list[Binding]) -> str:
    return next(binding.tooltip for binding in group if binding.tooltip)


def _format_keys(group: list[Binding]) -> str:
    names = (binding.key_display or format_key_name(key) for binding in group for key in binding.key.split(","))
    return " ".join(f"`{_escape(name)}`" for name in dict.fromkeys(names))


def _escape(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(build_page(), encoding="utf-8")
