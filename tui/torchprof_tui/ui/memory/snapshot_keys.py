"""The key bindings of the screen of a memory snapshot, and the hints on its last line."""

from __future__ import annotations

from textual.binding import Binding

from torchprof_tui.ui.common.list_keys import ROW_BINDINGS
from torchprof_tui.ui.memory.time_keys import list_time_bindings

BINDINGS = [
    Binding("question_mark", "app.help", "help", id="program.help", tooltip="help", show=False),
    *list_time_bindings("snapshot"),
    Binding("0", "fit_all", "all", id="time.fit-all", tooltip="show the whole history", show=False),
    Binding("left", "step(-1)", "cursor", id="snapshot.left", tooltip="move the cursor a cell back", show=False),
    Binding("right", "step(1)", "cursor", id="snapshot.right", tooltip="move the cursor a cell on", show=False),
    Binding("home", "to_end(False)", "start", id="time.start", tooltip="go to the start of the history", show=False),
    Binding("end", "to_end(True)", "end", id="time.end", tooltip="go to the end: the snapshot itself", show=False),
    Binding("p", "peak", "peak", id="snapshot.peak", tooltip="move the cursor to the peak of the history"),
    *ROW_BINDINGS,
    Binding(
        "tab",
        "list(1)",
        "list",
        id="snapshot.next",
        tooltip="list what is alive by line, by stack or one by one; segments; failed allocations; findings",
        show=False,
        priority=True,
    ),
    Binding(
        "shift+tab", "list(-1)", "list", id="snapshot.previous", tooltip="the previous list", show=False, priority=True
    ),
    Binding("g", "device", "device", id="snapshot.device", tooltip="the next GPU of the snapshot", show=False),
    Binding("y", "copy(False)", "copy", id="rows.copy", tooltip="copy the row, with its whole stack", show=False),
    Binding("Y", "copy(True)", "copy all", id="rows.copy-all", tooltip="copy the list", show=False),
    Binding("escape", "app.leave", "back", id="snapshot.back", tooltip="leave the snapshot", show=False),
]

HINTS = (
    ("?", "help"),
    ("q", "leave"),
    ("tab", "list"),
    ("p", "peak"),
    ("←→", "cursor"),
    ("wasd", "zoom, pan"),
    ("end", "the snapshot"),
    ("o", "open"),
    ("y Y", "copy"),
    ("g", "device"),
)
