"""What was found, and sessions that came close: literal cases, each with what it is about."""

from __future__ import annotations

import json
from typing import Any

from tests.helpers.hostile_traces import HEADER, NAMES, training
from tests.hostile.cases import TRACE, CommandCase, Inputs, ScreenCase, TerminalCase


def write_trace(**replaced: Any) -> bytes:
    """Write three steps in which these values replace those of every entry, or of its args."""
    entries = [*NAMES, *(entry for k in range(3) for entry in training(k))]
    for entry in entries:
        for key, value in replaced.items():
            if key in entry:
                entry[key] = value
            elif key in entry.get("args", {}):
                entry["args"][key] = value
    return json.dumps({**HEADER, "traceEvents": entries}).encode()


GOOD = write_trace()
EVIL_NAMES = write_trace(name="\x1b]0;EVIL\x07\x1b[31mEVIL\x9b2J\u202e")

COMMAND_CASES: dict[str, CommandCase] = {
    # The cache was made in `./~/.cache`.
    "no home folder": CommandCase(
        Inputs(GOOD, environment=(("HOME", None), ("TORCHPROF_TUI_CACHE", None)), cache_flips=()), ("cache",)
    ),
    # It was made in `/.cache`.
    "an empty HOME": CommandCase(
        Inputs(GOOD, environment=(("HOME", ""), ("TORCHPROF_TUI_CACHE", None)), cache_flips=()), ("info", TRACE)
    ),
    "a relative HOME": CommandCase(
        Inputs(GOOD, environment=(("HOME", "x"), ("TORCHPROF_TUI_CACHE", None)), cache_flips=()), ("info", TRACE)
    ),
    "control bytes in every name": CommandCase(Inputs(EVIL_NAMES), ("check", TRACE)),
    "no ASCII in ASCII": CommandCase(Inputs(write_trace(name="é → λ")), ("table", TRACE), "ascii"),
}

SCREEN_CASES: dict[str, ScreenCase] = {
    # The note "cut" had no lane: IndexError.
    "cut before the first event": ScreenCase(
        Inputs(b'{"traceEvents": [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "x"}}, {"ph": "X"'),
        (("n",), ("t",)),
    ),
    # The screen of runs was opened while the app ended: NoMatches.
    "keys after the last one": ScreenCase(
        Inputs(GOOD), (("ctrl+c", "slash", "o", "ctrl+c", "R", "d"),), opens_trace=False
    ),
    "one cell": ScreenCase(
        Inputs(GOOD), (("n", "k", "c"), ("t", "down", "enter"), ("escape", "?"), ("escape", "R")), (1, 1)
    ),
    # A list without a visible line has no pages: KeyError in textual.
    "pages of a list without room": ScreenCase(Inputs(GOOD), (("ctrl+p",), ("pageup", "pagedown")), (2, 1)),
    # The palette lay below the help: DuplicateIds.
    "the palette from its help": ScreenCase(Inputs(GOOD), (("ctrl+p",), ("f1",), ("ctrl+p", "escape"), ("escape",))),
    "control bytes in every name": ScreenCase(Inputs(EVIL_NAMES), (("n", "k"), ("c",), ("t",), ("escape", "s"))),
    "a request of somebody else": ScreenCase(
        Inputs(GOOD, (("request.json", b'{"command": ["rm", "-rf", "/"], "cwd": "/"}'),)), (("r",), ("escape",))
    ),
    "flipped bits in the cache": ScreenCase(
        Inputs(GOOD, cache_flips=tuple((file, 97 * file, file % 8) for file in range(20))), (("n", "c"), ("t", "d"))
    ),
}

TERMINAL_CASES: dict[str, TerminalCase] = {
    "control bytes in every name": TerminalCase(Inputs(EVIL_NAMES), keys=b"nkc"),
    "a terminal of one cell": TerminalCase(
        Inputs(GOOD, environment=(("TERM", "vt100"), ("LANG", "C"), ("COLUMNS", "0"))), keys=b"nt", size=(1, 1)
    ),
    "an unknown terminal, large, without a home": TerminalCase(
        Inputs(
            GOOD,
            environment=(("TERM", "no such terminal"), ("HOME", None), ("XDG_STATE_HOME", "{file}"), ("LINES", "x")),
        ),
        words=(),
        keys=b"jjg",
        size=(500, 200),
    ),
    "no trace": TerminalCase(Inputs(b"\x1b]0;EVIL\x07" * 20), keys=b"?"),
}
