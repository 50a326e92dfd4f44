"""The tree's key bindings and the hints on its last line. A binding's `id` and `tooltip` are for the help."""

from __future__ import annotations

from textual.binding import Binding

from torchprof_tui.ui.common.list_keys import LIST_BINDINGS

BINDINGS: list[Binding | tuple[str, str] | tuple[str, str, str]] = [
    *LIST_BINDINGS,
    Binding("right", "open", "open", id="tree.open", tooltip="open the node; again: its first child", show=False),
    Binding("left", "close", "close", id="tree.close", tooltip="close the node; again: its parent", show=False),
    Binding("space", "open_close", "open, close", id="tree.toggle", tooltip="open or close the node", show=False),
    Binding("plus", "all(True)", "open all", id="tree.open-all", tooltip="open all nodes", show=False),
    Binding("minus", "all(False)", "close all", id="tree.close-all", tooltip="close all nodes", show=False),
    Binding("enter", "show", "on the lanes", id="tree.show", tooltip="show the longest call on the lanes", show=False),
    Binding(
        "/",
        "search",
        "search",
        id="find.search",
        tooltip="search all names: text, or /regular expression/; a capital makes it case-sensitive; ↑ earlier ones",
        show=False,
    ),
    Binding("n", "match(1)", "next match", id="find.next", tooltip="next match", show=False),
    Binding("N", "match(-1)", "previous match", id="find.previous", tooltip="previous match", show=False),
    Binding("y", "copy(False)", "copy", id="rows.copy", tooltip="copy the node's full name", show=False),
    Binding(
        "Y", "copy(True)", "copy tree", id="rows.copy-all", tooltip="copy the rows on screen, 120 columns", show=False
    ),
    Binding("backspace", "go_back", "view back", id="tree.back", tooltip="the previous folding and node", show=False),
    Binding("escape", "back", "back", id="tree.clear", tooltip="show all nodes again; again: leave", show=False),
    Binding("q,T", "leave", "lanes", id="tree.leave", tooltip="back to the lanes", show=False),
    Binding("t", "table", "table", id="tree.table", tooltip="the profiler table", show=False),
    Binding("F", "flame", "flame graph", id="tree.flame", tooltip="the flame graph", show=False),
]

HINTS = (
    ("?", "help"),
    ("q", "back"),
    ("/", "search"),
    ("→ ←", "open, close"),
    ("enter", "on the lanes"),
    ("n N", "match"),
    ("+ -", "open, close all"),
    ("y Y", "copy"),
    ("t", "table"),
    ("backspace", "view back"),
)
