"""Take the text of a screen in a process of its own: the app needs a terminal's environment, and stdout is taken."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from torchprof_tui.commands.common.errors import UsageError

VIEW_KEYS = {
    "lanes": "",
    "cheatsheet": "c",
    "doctor": "colon,d,o,c,t,o,r,enter",
    "tree": "T",
    "flame": "F",
    "table": "t",
}

_KEYS = (
    "w a s d W S f 0 home end left right up down } { p u pageup pagedown m z tab shift+tab i l k c v x b T F "
    "J K n N t 1 2 3 4 5 6 7 8 9 space"
)
ALLOWED_KEYS = frozenset(_KEYS.split())
"""Keys that move about. Left out are those that open another trace or a source file, record, write or copy."""

_TEXTUAL_NAMES = {"{": "left_curly_bracket", "}": "right_curly_bracket"}
MAX_KEYS = 60
MAX_CELLS = 240 * 60
SECONDS = 60


def take_screen(path: str, view: str, keys: str, size: str) -> tuple[str, str]:
    """Return the keys as `snapshot` takes them, and the screen that they lead to. Raises UsageError."""
    columns, _, lines = size.partition("x")
    if int(columns) * int(lines) > MAX_CELLS:
        raise UsageError(f"size {size}: at most 240x60")
    pressed = [key for key in keys.replace(" ", "").split(",") if key]
    for key in pressed:
        if key not in ALLOWED_KEYS:
            raise UsageError(f"keys: {key!r} is not one of the keys that move about: {' '.join(sorted(ALLOWED_KEYS))}")
    if len(pressed) > MAX_KEYS:
        raise UsageError(f"keys: at most {MAX_KEYS}")
    pressed = [*(key for key in VIEW_KEYS[view].split(",") if key), *pressed]
    named = ",".join(_TEXTUAL_NAMES.get(key, key) for key in pressed)
    with tempfile.TemporaryDirectory(prefix="torchprof-tui-") as folder:
        out = Path(folder, "screen.txt")
        words = ["snapshot", path, f"--size={size}", f"--keys={named}", f"--output={out}"]
        command = [sys.executable, "-m", "torchprof_tui", *words]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))}
        try:
            # In the new folder: `python -m` imports from the working folder first, which may hold anybody's files.
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                env=environment,
                cwd=folder,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise UsageError(f"the screen was not drawn within {SECONDS} s") from None
        if done.returncode or not out.exists():
            said = done.stderr.strip().splitlines() or ["no screen was drawn"]
            raise UsageError(said[-1].removeprefix("torchprof-tui: "))
        return named, out.read_text(encoding="utf-8")
