"""The flame graph's key bindings and the hints on its last line. A binding's `id` and `tooltip` are for the help."""

from __future__ import annotations

from textual.binding import Binding

BINDINGS: list[Binding | tuple[str, str] | tuple[str, str, str]] = [
    Binding("up,w", "up", "caller", id="flame.up", tooltip="the frame above: its caller", show=False),
    Binding("down,s", "down", "called", id="flame.down", tooltip="the heaviest frame below", show=False),
    Binding("left,a", "beside(-1)", "left", id="flame.left", tooltip="the frame to the left", show=False),
    Binding("right,d", "beside(1)", "right", id="flame.right", tooltip="the frame to the right", show=False),
    Binding("pageup", "page(-1)", "page up", id="flame.page-up", tooltip="a page of frames up", show=False),
    Binding("pagedown", "page(1)", "page down", id="flame.page-down", tooltip="a page of frames down", show=False),
    Binding("home", "edge(False)", "first", id="flame.first", tooltip="the first frame of the row", show=False),
    Binding("end", "edge(True)", "last", id="flame.last", tooltip="the last frame of the row", show=False),
    Binding(
        "enter",
        "zoom_in",
        "zoom",
        id="flame.zoom-in",
        tooltip="zoom into the frame; into ░, frames too narrow to draw; again: show it on the lanes",
        show=False,
    ),
    Binding(
        "backspace", "go_back", "view back", id="flame.back", tooltip="the view before the last change", show=False
    ),
    Binding("0", "zoom_out", "all", id="flame.all", tooltip="zoom out to all frames", show=False),
    Binding("f", "show", "on the lanes", id="flame.show", tooltip="show the frame's first event on the lanes"),
    Binding("tab", "frames(1)", "frames", id="flame.next", tooltip="stacks, modules or ops", show=False, priority=True),
    Binding(
        "shift+tab",
        "frames(-1)",
        "frames",
        id="flame.previous",
        tooltip="the previous kind of frames",
        show=False,
        priority=True,
    ),
    Binding("g", "time", "GPU or CPU", id="flame.time", tooltip="GPU time or CPU time", show=False),
    Binding(
        "v",
        "scope(1)",
        "scope",
        id="flame.scope",
        tooltip="scope: whole trace, marked range, screen, step, lane; V goes back",
        show=False,
    ),
    Binding("V", "scope(-1)", "scope", id="flame.scope-back", tooltip="the previous scope", show=False),
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
    Binding("y", "copy(False)", "copy", id="rows.copy", tooltip="copy the frame's full name", show=False),
    Binding(
        "Y", "copy(True)", "copy path", id="rows.copy-all", tooltip="copy the frames from the outermost", show=False
    ),
    Binding(
        "e",
        "ask_export",
        "export",
        id="flame.export",
        tooltip="write all frames as folded stacks (.folded) or for speedscope (.speedscope.json)",
        show=False,
    ),
    Binding(
        "escape", "back", "back", id="flame.clear", tooltip="clear the search, then zoom out; again: leave", show=False
    ),
    Binding("q,F", "leave", "lanes", id="flame.leave", tooltip="back to the lanes", show=False),
    Binding("t", "child('table')", "table", id="flame.table", tooltip="the profiler table", show=False),
    Binding("T", "child('tree')", "tree", id="flame.tree", tooltip="the dispatch tree", show=False),
]

HINTS = (
    ("?", "help"),
    ("q", "back"),
    ("enter", "zoom"),
    ("tab", "stacks, modules, ops"),
    ("g", "GPU, CPU"),
    ("f", "on the lanes"),
    ("/", "search"),
    ("v", "scope"),
    ("n N", "match"),
    ("backspace", "view back"),
    ("e", "export"),
    ("y Y", "copy"),
)
