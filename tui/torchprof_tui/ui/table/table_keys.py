"""The keys of the table screen: its bindings, which are the source of its help and commands, and its hints."""

from __future__ import annotations

from textual.binding import Binding

from torchprof_tui.ui.common.list_keys import LIST_BINDINGS

BINDINGS: list[Binding | tuple[str, str] | tuple[str, str, str]] = [
    *LIST_BINDINGS,
    Binding("left", "sort(-1)", "sort", id="table.sort-left", tooltip="sort by the column before", show=False),
    Binding("right", "sort(1)", "sort", id="table.sort-right", tooltip="sort by the next column", show=False),
    Binding("r", "reverse", "reverse", id="table.reverse", tooltip="reverse the order", show=False),
    Binding(
        "tab",
        "tab(1)",
        "next table",
        id="table.next",
        tooltip="next table: kernels, copies, collectives, memory, pictures",
        show=False,
        priority=True,
    ),
    Binding(
        "shift+tab",
        "tab(-1)",
        "previous table",
        id="table.previous",
        tooltip="previous table",
        show=False,
        priority=True,
    ),
    Binding(
        "b",
        "group(1)",
        "group by",
        id="table.group",
        tooltip="group by the next of name, shape, stack, module, class, step",
        show=False,
    ),
    Binding("B", "group(-1)", "group back", id="table.group-back", tooltip="group by the one before", show=False),
    Binding(
        "v",
        "scope",
        "scope",
        id="table.scope",
        tooltip="count another part: the trace, the marked range, what is on screen, the lane",
        show=False,
    ),
    Binding(
        "/",
        "ask_filter",
        "filter",
        id="table.filter",
        tooltip="list only names with a text, or a /regular expression/",
        show=False,
    ),
    Binding(
        "n",
        "instance(1)",
        "next instance",
        id="table.next-instance",
        tooltip="next instance of the row",
        show=False,
    ),
    Binding(
        "N",
        "instance(-1)",
        "previous instance",
        id="table.previous-instance",
        tooltip="previous instance of the row",
        show=False,
    ),
    Binding("enter", "show", "on the lanes", id="table.show", tooltip="show the instance on the lanes", show=False),
    Binding(
        "e",
        "ask_export",
        "export",
        id="table.export",
        tooltip="write the listed rows to a .csv, .json or .md file",
        show=False,
    ),
    Binding("y", "copy(False)", "copy", id="table.copy", tooltip="copy the name of the row", show=False),
    Binding(
        "Y",
        "copy(True)",
        "copy all",
        id="table.copy-all",
        tooltip="copy all that the panel of the row says",
        show=False,
    ),
    Binding(
        "J",
        "panel(1)",
        "panel down",
        id="table.panel-down",
        tooltip="scroll the panel of the row, or the charts, down",
        show=False,
    ),
    Binding(
        "K",
        "panel(-1)",
        "panel up",
        id="table.panel-up",
        tooltip="scroll the panel of the row, or the charts, up",
        show=False,
    ),
    Binding(
        "escape,t", "back", "back", id="table.back", tooltip="clear the filter, or go back to the lanes", show=False
    ),
]

HINTS = (
    ("?", "help"),
    ("/", "filter"),
    ("q", "back"),
    ("← →", "sort"),
    ("enter", "on the lanes"),
    ("tab", "table"),
    ("b", "group by"),
    ("v", "scope"),
    ("n N", "instance"),
    ("r", "reverse"),
    ("e", "export"),
    ("y Y", "copy"),
)
