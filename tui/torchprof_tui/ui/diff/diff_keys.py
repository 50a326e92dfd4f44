"""The diff screen's key bindings and the hints on its last line. A binding's `id` and `tooltip` are for the help."""

from __future__ import annotations

from textual.binding import Binding

EXPLORER_PANELS = {"i": "details", "l": "chain", "k": "kernel", "c": "cheatsheet"}
"""Keys that open a side's explorer with the panel that has this key there."""

BINDINGS: list[Binding | tuple[str, str] | tuple[str, str, str]] = [
    Binding("n", "difference(1)", "difference", id="diff.next", tooltip="the next difference, by size", show=False),
    Binding("N", "difference(-1)", "difference", id="diff.previous", tooltip="the previous difference", show=False),
    Binding("enter", "fit", "fit both", id="diff.fit", tooltip="fit both sides to the difference", show=False),
    Binding("f", "fit", "fit both", id="diff.fit", show=False, tooltip="fit both sides to the difference"),
    Binding(
        "M",
        "lock",
        "lock at ops",
        id="diff.lock",
        tooltip="align both sides at the selected op instead of the step's start; again: at the steps",
        show=False,
    ),
    Binding("}", "step(1)", "step", id="diff.next-step", tooltip="the next pair of compared steps", show=False),
    Binding("{", "step(-1)", "step", id="diff.previous-step", tooltip="the previous pair of steps", show=False),
    Binding("1", "explore(0)", "explorer of A", id="diff.explore-a", tooltip="A's explorer at this event", show=False),
    Binding("2", "explore(1)", "explorer of B", id="diff.explore-b", tooltip="B's explorer at this event", show=False),
    *(
        Binding(
            key,
            f"explore_panel('{panel}')",
            panel,
            id="diff.explore-panel",
            tooltip="the explorer of the side with the keys (else of B), with its details, chain, kernel, cheatsheet",
            show=False,
        )
        for key, panel in EXPLORER_PANELS.items()
    ),
    Binding("X", "swap", "swap", id="diff.swap", tooltip="swap A and B", show=False),
    Binding(
        "D",
        "compare",
        "compare",
        id="diff.compare",
        tooltip="compare with another trace, step or rank",
        show=False,
    ),
    Binding("w", "zoom(1)", "zoom", id="time.zoom-in", tooltip="zoom both sides in", show=False),
    Binding("s", "zoom(-1)", "zoom out", id="time.zoom-out", tooltip="zoom both sides out", show=False),
    Binding("W", "zoom(5)", "zoom in far", id="time.zoom-in-far", tooltip="zoom in five times as far", show=False),
    Binding("S", "zoom(-5)", "zoom out far", id="time.zoom-out-far", tooltip="zoom out five times as far", show=False),
    Binding("a,left", "pan(-1)", "earlier", id="time.pan-left", tooltip="move both to earlier times", show=False),
    Binding("d,right", "pan(1)", "later", id="time.pan-right", tooltip="move both to later times", show=False),
    Binding(
        "A,less_than_sign",
        "pan(-5)",
        "much earlier",
        id="time.pan-left-far",
        tooltip="move five times as far back",
        show=False,
    ),
    Binding(
        "greater_than_sign",
        "pan(5)",
        "much later",
        id="time.pan-right-far",
        tooltip="move five times as far on",
        show=False,
    ),
    Binding("home", "to_end(False)", "start", id="time.start", tooltip="go to the start", show=False),
    Binding("end", "to_end(True)", "end", id="time.end", tooltip="go to the end", show=False),
    Binding("0", "fit_all", "all", id="time.fit-all", tooltip="show all of both traces", show=False),
    Binding(
        "backspace", "go_back", "view back", id="time.back", tooltip="return to the view before a jump", show=False
    ),
    Binding(
        "up", "move(-1)", "up", id="rows.up", tooltip="scroll up the part with the keys; in the rows: up", show=False
    ),
    Binding("down", "move(1)", "down", id="rows.down", tooltip="scroll down the part with the keys", show=False),
    Binding("pageup", "page(-1)", "page up", id="rows.page-up", tooltip="a page up", show=False),
    Binding("pagedown", "page(1)", "page down", id="rows.page-down", tooltip="a page down", show=False),
    Binding("space", "fold", "fold", id="lanes.fold", tooltip="fold or unfold the lanes", show=False),
    Binding(
        "/",
        "ask_filter",
        "filter",
        id="find.filter",
        tooltip="list only rows with this text, or /regular expression/; n N then go through them; ↑ earlier ones",
        show=False,
    ),
    Binding("b", "group(1)", "rows by", id="panels.group", tooltip="rows by op, kernel, module, class", show=False),
    Binding("B", "group(-1)", "rows by", id="panels.group-back", tooltip="the previous grouping", show=False),
    Binding(
        "tab",
        "part(1)",
        "part",
        id="panels.next",
        tooltip="the next part: account, rows, remarks, A, B",
        show=False,
        priority=True,
    ),
    Binding(
        "shift+tab", "part(-1)", "part", id="panels.previous", tooltip="the previous part", show=False, priority=True
    ),
    Binding("z", "enlarge", "enlarge", id="panels.enlarge", tooltip="enlarge the panels, or back", show=False),
    Binding("J", "scroll_panel(1)", "panel down", id="panels.down", tooltip="scroll the panel down", show=False),
    Binding("K", "scroll_panel(-1)", "panel up", id="panels.up", tooltip="scroll the panel up", show=False),
    Binding("y", "copy(False)", "copy", id="panels.copy", tooltip="copy the names of the difference", show=False),
    Binding("Y", "copy(True)", "copy all", id="panels.copy-all", tooltip="copy the panel's text", show=False),
    Binding(
        "escape", "back", "back", id="diff.clear", tooltip="clear the filter, the selection; then leave", show=False
    ),
]

HINTS = (
    ("?", "help"),
    ("n N", "difference"),
    ("q", "back"),
    ("enter", "fit both"),
    ("tab", "part"),
    ("1 2", "explorer of A, B"),
    ("M", "lock at ops"),
    ("/", "filter"),
    ("b", "rows by"),
    ("{ }", "step"),
    ("wasd", "zoom, pan"),
    ("X", "swap"),
    ("D", "compare other"),
    ("space", "fold"),
    ("y Y", "copy"),
)

FAILED_HINTS = (("?", "help"), ("D", "compare others"), ("esc", "back"), ("q", "back"))
"""Hints where the two cannot be compared."""
