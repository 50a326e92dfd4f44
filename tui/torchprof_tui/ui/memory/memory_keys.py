"""The memory screen's key bindings and the hints on its last line. A binding's `id` and `tooltip` are for the help."""

from __future__ import annotations

from textual.binding import Binding

from torchprof_tui.ui.common.list_keys import ROW_BINDINGS
from torchprof_tui.ui.memory.time_keys import list_time_bindings

BINDINGS: list[Binding | tuple[str, str] | tuple[str, str, str]] = [
    *list_time_bindings("memory"),
    Binding("0", "fit_all", "all", id="time.fit-all", tooltip="show the whole trace", show=False),
    Binding("f", "fit", "fit", id="memory.fit", tooltip="fit the lifetime of the allocation to the screen", show=False),
    Binding("left", "step(-1)", "cursor", id="memory.left", tooltip="move the cursor a cell back", show=False),
    Binding("right", "step(1)", "cursor", id="memory.right", tooltip="move the cursor a cell on", show=False),
    Binding("home", "to_end(False)", "start", id="time.start", tooltip="go to the trace's start", show=False),
    Binding("end", "to_end(True)", "end", id="time.end", tooltip="go to the trace's end", show=False),
    Binding("p", "peak", "peak", id="memory.peak", tooltip="move the cursor to the peak of the trace"),
    *ROW_BINDINGS,
    Binding("J", "scroll(1)", "groups down", id="memory.down", tooltip="scroll the groups down", show=False),
    Binding("K", "scroll(-1)", "groups up", id="memory.up", tooltip="scroll the groups up", show=False),
    Binding(
        "tab",
        "group(1)",
        "group by",
        id="memory.next",
        tooltip="group what is alive by category, op, module, line, phase or shape",
        show=False,
        priority=True,
    ),
    Binding(
        "shift+tab",
        "group(-1)",
        "group by",
        id="memory.previous",
        tooltip="the previous grouping",
        show=False,
        priority=True,
    ),
    Binding(
        "v",
        "alive",
        "alive",
        id="memory.alive",
        tooltip="list the allocations on screen, or those that are alive at the cursor",
        show=False,
    ),
    Binding("g", "device", "device", id="memory.device", tooltip="the next device: GPUs, then the CPU", show=False),
    Binding(
        "enter",
        "show",
        "on the lanes",
        id="memory.show",
        tooltip="select the op that made the allocation, on the lanes",
        show=False,
    ),
    Binding("backspace", "go_back", "view back", id="memory.back", tooltip="the view before a jump", show=False),
    Binding(
        "/",
        "search",
        "filter",
        id="memory.filter",
        tooltip="list only allocations whose op, module, line, category or phase has a text or /expression/",
        show=False,
    ),
    Binding("n", "match(1)", "next", id="memory.later", tooltip="the listed allocation made next", show=False),
    Binding("N", "match(-1)", "previous", id="memory.earlier", tooltip="the one made before", show=False),
    Binding("y", "copy(False)", "copy", id="rows.copy", tooltip="copy the row", show=False),
    Binding("Y", "copy(True)", "copy all", id="rows.copy-all", tooltip="copy the groups at the cursor", show=False),
    Binding("escape", "back", "back", id="memory.clear", tooltip="clear the filter; again: leave", show=False),
    Binding("q,M", "leave", "lanes", id="memory.leave", tooltip="back to the lanes", show=False),
    Binding("t", "child('table')", "table", id="memory.table", tooltip="the profiler table", show=False),
    Binding("T", "child('tree')", "tree", id="memory.tree", tooltip="the dispatch tree", show=False),
    Binding("F", "child('flame')", "flame graph", id="memory.flame", tooltip="the flame graph", show=False),
]

HINTS = (
    ("?", "help"),
    ("q", "back"),
    ("enter", "on the lanes"),
    ("p", "peak"),
    ("tab", "group by"),
    ("wasd", "zoom, pan"),
    ("←→", "cursor"),
    ("/", "filter"),
    ("v", "alive, on screen"),
    ("g", "device"),
    ("J K", "groups"),
    ("n N", "by time"),
    ("y Y", "copy"),
)
