"""The explorer's key bindings: the only source for its keys, help, hints and palette commands.

A binding's `id` is `section.name`, its `description` a short label, its `tooltip` the sentence in the help and in the
command palette. Keys are plain letters, because modifiers do not survive every terminal and tmux.
"""

from __future__ import annotations

from textual.binding import Binding

from torchprof_tui.ui.common.help.key_listing import KeyHelp

MAX_NUMBER_KEYS = 9
"""Findings that have a key of their own. Defined here: the panels import numpy, this is imported before a frame."""

BINDINGS: list[Binding | tuple[str, str] | tuple[str, str, str]] = [
    Binding("w", "zoom(1)", "zoom", id="time.zoom-in", tooltip="zoom in at the cursor"),
    Binding("s", "zoom(-1)", "zoom out", id="time.zoom-out", tooltip="zoom out at the cursor", show=False),
    Binding("a", "pan(-1)", "earlier", id="time.pan-left", tooltip="move to earlier times", show=False),
    Binding("d", "pan(1)", "later", id="time.pan-right", tooltip="move to later times", show=False),
    Binding("W", "zoom(5)", "zoom in far", id="time.zoom-in-far", tooltip="zoom in five times as far", show=False),
    Binding("S", "zoom(-5)", "zoom out far", id="time.zoom-out-far", tooltip="zoom out five times as far", show=False),
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
    Binding("f", "fit", "fit", id="time.fit", tooltip="fit the selected event to the screen; again: its parent"),
    Binding("0", "fit_all", "all", id="time.fit-all", tooltip="show the whole trace"),
    Binding("g", "go_to", "go to", id="time.go-to", tooltip="go to a time (12ms, 1.5s) or a step (#3)", show=False),
    Binding("home", "to_end(False)", "start", id="time.start", tooltip="go to the trace's start", show=False),
    Binding("end", "to_end(True)", "end", id="time.end", tooltip="go to the trace's end", show=False),
    Binding(
        "backspace", "go_back", "view back", id="time.back", tooltip="return to the view before a jump", show=False
    ),
    Binding("left,comma", "beside(-1)", "event", id="events.previous", tooltip="previous event in the row", show=False),
    Binding("right,full_stop", "beside(1)", "event", id="events.next", tooltip="next event in the row"),
    Binding(
        "up", "up", "parent", id="events.parent", tooltip="the parent; from the outermost: the lane above", show=False
    ),
    Binding("down", "down", "child", id="events.child", tooltip="the first child; from the innermost: the lane below"),
    Binding(
        "]", "follow(True)", "link", id="events.forward", tooltip="follow the link: launch ⇢ kernel, forward ⇢ backward"
    ),
    Binding(
        "[", "follow(False)", "back", id="events.back", tooltip="follow the link back: kernel ⇢ launch", show=False
    ),
    Binding(
        "}",
        "step(True)",
        "step",
        id="events.next-step",
        tooltip="next step; the next repetition where no steps were recorded",
    ),
    Binding(
        "{", "step(False)", "step back", id="events.previous-step", tooltip="previous step, or repetition", show=False
    ),
    Binding(
        "u",
        "fold_repeats",
        "one repeat",
        id="time.fold-repeats",
        tooltip="show one of the repeats (steps, tokens, then layers), p50 and p95 of the others; at last: all again",
        show=False,
    ),
    Binding(
        "U",
        "slowest_repeat",
        "slowest repeat",
        id="time.slowest-repeat",
        tooltip="show the slowest of the folded repeats; } { the next and the previous one",
        show=False,
    ),
    Binding(
        "escape", "clear", "clear", id="events.clear", tooltip="clear the mark, the search, the selection", show=False
    ),
    Binding("space", "fold", "fold", id="lanes.fold", tooltip="fold or unfold the lane, or the rank"),
    Binding("p", "pin", "pin", id="lanes.pin", tooltip="pin the lane on top, or unpin it", show=False),
    Binding("h", "hide", "hide", id="lanes.hide", tooltip="hide the lane; H shows it again", show=False),
    Binding("H", "show_hidden", "show", id="lanes.show", tooltip="show hidden lanes again", show=False),
    Binding(
        "pageup",
        "scroll_page(-1)",
        "page up",
        id="lanes.page-up",
        tooltip="scroll up: the lanes, or the panel that has the keys (↑↓ beside its title)",
        show=False,
    ),
    Binding(
        "pagedown",
        "scroll_page(1)",
        "page down",
        id="lanes.page-down",
        tooltip="scroll down: the lanes, or the panel",
        show=False,
    ),
    Binding(
        "/",
        "search",
        "search",
        id="find.search",
        tooltip="search all names: text, or /regular expression/; a capital makes it case-sensitive; ↑ earlier ones",
    ),
    Binding("n", "to_found(True)", "next found", id="find.next", tooltip="next event found", show=False),
    Binding("N", "to_found(False)", "previous found", id="find.previous", tooltip="previous event found", show=False),
    Binding("m", "mark", "mark", id="find.mark", tooltip="mark a range for its statistics; again: set its end"),
    *(
        Binding(
            str(number),
            f"finding({number})",
            f"finding {number}",
            id="panels.finding",
            tooltip="open the cheatsheet at this finding of the list, and show its first evidence on the lanes",
            show=False,
        )
        for number in range(1, MAX_NUMBER_KEYS + 1)
    ),
    Binding(
        "z",
        "enlarge",
        "enlarge",
        id="panels.enlarge",
        tooltip="enlarge the panels; again: the whole screen; again, or esc: their normal size",
    ),
    Binding("tab", "next_panel(1)", "panel", id="panels.next", tooltip="next panel"),
    Binding("shift+tab", "next_panel(-1)", "panel", id="panels.previous", tooltip="previous panel", show=False),
    Binding("i", "panel('details')", "details", id="panels.details", tooltip="show or hide the details", show=False),
    Binding(
        "l",
        "panel('chain')",
        "chain",
        id="panels.chain",
        tooltip="show or hide the chain: from the step down to the GPU work; then ↑ ↓ walk it, enter fits",
    ),
    Binding(
        "k",
        "panel('kernel')",
        "kernel",
        id="panels.kernel",
        tooltip="show or hide the kernel: its footprint, its occupancy and what limits it",
    ),
    Binding(
        "c",
        "panel('cheatsheet')",
        "cheatsheet",
        id="panels.cheatsheet",
        tooltip="show or hide the cheatsheet: patterns on screen; ↑ ↓ choose, enter and n N go through their evidence",
    ),
    Binding(
        "C",
        "path",
        "critical path",
        id="panels.path",
        tooltip="critical path of the step, or the marked range: dims the rest; ↑ ↓ choose, enter shows, n N walk it",
        show=False,
    ),
    Binding(
        "P",
        "what_if",
        "what if",
        id="panels.what-if",
        tooltip="predict, what if: the step time with changes, such as class=gemm*0.5; sync=0, and what limits it then",
        show=False,
    ),
    Binding(
        "v",
        "scope(1)",
        "scope",
        id="panels.scope",
        tooltip="scope of the cheatsheet: the screen, the selection, the whole trace; n N keep their list",
        show=False,
    ),
    Binding("V", "scope(-1)", "scope back", id="panels.scope-back", tooltip="the previous scope", show=False),
    Binding(
        "x",
        "labels",
        "labels",
        id="panels.labels",
        tooltip="show or hide labels: why the GPU was idle, kernel classes, the profiler's own events",
        show=False,
    ),
    Binding(
        "!",
        "panel('doctor')",
        "doctor",
        id="panels.doctor",
        tooltip="show or hide the trace doctor: data lost, repaired, odd, not recorded; ↑ ↓ choose, enter shows it",
        show=False,
    ),
    Binding("T", "tree", "tree", id="panels.tree", tooltip="dispatch tree: all calls by their path, heaviest first"),
    Binding(
        "F",
        "flame",
        "flame graph",
        id="panels.flame",
        tooltip="flame graph: stacks, modules or ops by self GPU or CPU time",
        show=False,
    ),
    Binding(
        "M",
        "memory",
        "memory",
        id="panels.memory",
        tooltip="memory: its curve by category, the lifetimes of allocations, and what is alive at the cursor",
        show=False,
    ),
    Binding(
        "enter",
        "jump",
        "jump",
        id="panels.jump",
        tooltip="show the panel's event on the lanes; on a line of the program: open its source",
        show=False,
    ),
    Binding(
        "L",
        "open_source",
        "source",
        id="panels.source",
        tooltip="open the source line that the finding or the chain names",
        show=False,
    ),
    Binding("J", "scroll_panel(1)", "panel down", id="panels.down", tooltip="scroll the panel down", show=False),
    Binding("K", "scroll_panel(-1)", "panel up", id="panels.up", tooltip="scroll the panel up", show=False),
    Binding(
        "y",
        "copy(False)",
        "copy",
        id="panels.copy",
        tooltip="copy the selected event's name, if the terminal takes it (OSC 52)",
        show=False,
    ),
    Binding(
        "Y",
        "copy(True)",
        "copy all",
        id="panels.copy-all",
        tooltip="copy the panel's text, at most 120 columns wide",
        show=False,
    ),
    Binding("t", "table", "table", id="panels.table", tooltip="the profiler table; from an event: its row"),
    Binding(
        "D",
        "compare",
        "compare",
        id="find.compare",
        tooltip="compare with another trace (path, sample:, host:path), two steps (step 3/4) or two ranks (rank 0/3)",
        show=False,
    ),
    Binding(
        "G",
        "guess",
        "guess",
        id="find.guess",
        tooltip="guess, then look: which kernels do you expect in the marked range, or the selected event?",
        show=False,
    ),
    Binding(
        "e",
        "slice",
        "slice",
        id="find.slice",
        tooltip="write the marked range (or the selected event, or the screen) as a smaller trace file",
        show=False,
    ),
]

HINTS = (
    ("?", "help"),
    ("/", "search"),
    ("t", "table"),
    ("c", "cheatsheet"),
    ("q", "quit"),
    ("l", "chain"),
    ("k", "kernel"),
    ("wasd", "zoom, pan"),
    ("←→↑↓", "events"),
    ("f 0", "fit"),
    ("] [", "link"),
    ("{ }", "steps"),
    ("m", "mark"),
    ("space", "fold"),
    ("tab", "panel"),
    ("T F", "tree, flame"),
    ("D", "compare"),
    ("R", "record"),
)

KEYLESS_COMMANDS = (
    KeyHelp("", "Lanes: fold all lanes", "fold_all(True)"),
    KeyHelp("", "Lanes: unfold all lanes", "fold_all(False)"),
)
"""Commands of the palette that are too rare for a key."""


def key_hints() -> tuple[tuple[str, str], ...]:
    """Return the (key, label) hints of the last line, most useful first."""
    return HINTS
