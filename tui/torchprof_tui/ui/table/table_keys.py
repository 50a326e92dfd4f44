"""The table's key bindings and the hints on its last line. A binding's `id` and `tooltip` are for the help."""

from __future__ import annotations

from textual.binding import Binding

from torchprof_tui.ui.common.list_keys import LIST_BINDINGS

BINDINGS: list[Binding | tuple[str, str] | tuple[str, str, str]] = [
    *LIST_BINDINGS,
    Binding("tab", "tab(1)", "table", id="table.next", tooltip="next table", show=False, priority=True),
    Binding("shift+tab", "tab(-1)", "table", id="table.previous", tooltip="previous table", show=False, priority=True),
    Binding("right", "sort(1)", "sort", id="table.sort-right", tooltip="sort by the next column", show=False),
    Binding("left", "sort(-1)", "sort", id="table.sort-left", tooltip="sort by the previous column", show=False),
    Binding("r", "reverse", "reverse", id="table.reverse", tooltip="reverse the order", show=False),
    Binding(
        "b",
        "group(1)",
        "group by",
        id="table.group",
        tooltip="group calls by name, shape, stack, module, kernel class, step; B goes back",
        show=False,
    ),
    Binding("B", "group(-1)", "group by", id="table.group-back", tooltip="the previous grouping", show=False),
    Binding(
        "v",
        "scope(1)",
        "scope",
        id="table.scope",
        tooltip="scope of the table: whole trace, marked range, screen, step, lane; V goes back",
        show=False,
    ),
    Binding("V", "scope(-1)", "scope", id="table.scope-back", tooltip="the previous scope", show=False),
    Binding(
        "/",
        "ask_filter",
        "filter",
        id="find.filter",
        tooltip="list only rows with this text, or /regular expression/; a capital makes it case-sensitive; ↑ "
        "earlier ones",
        show=False,
    ),
    Binding("n", "match(1)", "next match", id="find.next", tooltip="next matching row", show=False),
    Binding("N", "match(-1)", "previous match", id="find.previous", tooltip="previous matching row", show=False),
    Binding("full_stop", "instance(1)", "instance", id="rows.next-instance", tooltip="next instance", show=False),
    Binding("comma", "instance(-1)", "instance", id="rows.instance", tooltip="previous instance", show=False),
    Binding("enter", "show", "on the lanes", id="rows.show", tooltip="show the instance on the lanes", show=False),
    Binding("y", "copy(False)", "copy", id="rows.copy", tooltip="copy the row's full name", show=False),
    Binding(
        "Y", "copy(True)", "copy table", id="rows.copy-all", tooltip="copy the rows on screen, 120 columns", show=False
    ),
    Binding("J", "panel(1)", "panel down", id="panels.down", tooltip="scroll the panel down", show=False),
    Binding("K", "panel(-1)", "panel up", id="panels.up", tooltip="scroll the panel up", show=False),
    Binding("e", "ask_export", "export", id="table.export", tooltip="write the rows as .csv, .json or .md", show=False),
    Binding(
        "backspace", "go_back", "view back", id="table.back", tooltip="the previous table, order and row", show=False
    ),
    Binding("escape", "back", "back", id="table.clear", tooltip="clear the filter; again: leave", show=False),
    Binding("q,t", "leave", "lanes", id="table.leave", tooltip="back to the lanes", show=False),
    Binding("T", "tree", "tree", id="table.tree", tooltip="the dispatch tree", show=False),
    Binding("F", "flame", "flame graph", id="table.flame", tooltip="the flame graph", show=False),
]

HINTS = (
    ("?", "help"),
    ("q", "back"),
    ("/", "filter"),
    ("tab", "table"),
    ("← →", "sort"),
    ("enter", "on the lanes"),
    ("v", "scope"),
    ("b", "group by"),
    ("r", "reverse"),
    (", .", "instance"),
    ("n N", "match"),
    ("e", "export"),
    ("y Y", "copy"),
    ("J K", "panel"),
    ("backspace", "view back"),
)
