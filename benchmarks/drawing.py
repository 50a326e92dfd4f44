"""Keys into a real (pseudo-)terminal of 200x50 at 256 colours: time to the last byte of the frame, and its bytes.

Each key is pressed at many zoom levels, from the whole trace down to a few ns a cell. A move is over with its first
frame; what the panels say about where one is (args, chain, footprint, cheatsheet) is worked out once one stands still,
and comes in frames of its own, up to the last byte that the key caused.

In tmux the program's frames are read and drawn anew by tmux, which does not pass on where one ends: there a frame is
over when nothing has come for a moment.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from benchmarks.measure import Answer, Terminal, median, percentile
from benchmarks.opening import LANES_DRAWN, program

COLUMNS, ROWS = 200, 50
LEVELS = 24
"""Zoom levels visited: each `w` is one; the last ones show single nanoseconds of a trace of seconds."""

BAND = 4
"""Zoom levels whose presses are counted together: 20, so that a busy moment of the machine is no zoom's median."""

QUIET_SECONDS = 2.0
"""What is read of a whole trace once its lanes are there (the cheatsheet, its gaps) is over when nothing has come for
so long."""

STILL_SECONDS = 1.5
"""Somebody who waits for the cheatsheet: of a scope that takes long it is asked a quarter of a second after the key,
and may take half a second."""

BURST_SECONDS = 0.012
"""Silence that ends a frame in tmux; the cheatsheet follows a move after 30 ms and more."""


@dataclass(frozen=True)
class Keys:
    """One kind of key: seconds at p50 and p95, bytes of the largest answer, how many were pressed.

    `is_frame`: the seconds end with a frame, not with what is read after it. `worst`, `worst_p95`: the largest median
    and p95 of a band of zoom levels, of keys that were pressed at several.
    """

    name: str
    p50: float
    p95: float
    most_bytes: int
    presses: int
    is_frame: bool
    worst: float
    worst_p95: float


def _summary(name: str, answers: list[Answer], levels: list[list[float]], is_frame: bool = True) -> Keys:
    seconds = [one for level in levels for one in level]
    bands = [list(chain.from_iterable(levels[k : k + BAND])) for k in range(0, len(levels), BAND)]
    return Keys(
        name,
        percentile(seconds, 0.5),
        percentile(seconds, 0.95),
        max(answer.first_size if is_frame else answer.size for answer in answers),
        len(answers),
        is_frame,
        max(map(median, bands)),
        max(percentile(band, 0.95) for band in bands),
    )


def press_keys(trace: Path) -> list[Keys]:
    """Walk through the trace as a user would; one entry per kind of key. Raises TimeoutError where it never opens."""
    with contextlib.closing(Terminal([program(), str(trace)], COLUMNS, ROWS)) as terminal:
        return _walk(terminal, "")


def press_keys_in_tmux(trace: Path) -> list[Keys]:
    """The same through tmux; nothing where tmux is not installed."""
    tmux = shutil.which("tmux")
    if tmux is None:
        return []
    with _server(tmux) as command:
        start = [*command, "new-session", "-x", str(COLUMNS), "-y", str(ROWS + 1), program(), str(trace)]
        with contextlib.closing(Terminal(start, COLUMNS, ROWS + 1, burst=BURST_SECONDS)) as terminal:
            return _walk(terminal, " in tmux")


@contextlib.contextmanager
def _server(tmux: str) -> Iterator[list[str]]:
    """A tmux server of our own: what a person has running is not touched."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder, "tmux.conf")
        settings.write_text("set -g default-terminal tmux-256color\nset -s escape-time 0\n")
        command = [tmux, "-S", os.path.join(folder, "socket"), "-f", str(settings)]
        try:
            yield command
        finally:
            subprocess.run([*command, "kill-server"], check=False, capture_output=True)


def _walk(terminal: Terminal, where: str) -> list[Keys]:
    terminal.wait_for(LANES_DRAWN, 300)
    terminal.settle(QUIET_SECONDS)
    levels = [[terminal.key(key) for key in (b"w", b"d", b"d", b"a")] for _ in range(LEVELS)]
    levels += [[terminal.key(b"s")] for _ in range(LEVELS)]
    terminal.key(b"0")
    terminal.key(b"w")
    down, right = b"\x1b[B", b"\x1b[C"
    moves = [terminal.key(key) for key in (down, right) * LEVELS]
    frames = [answer for level in levels for answer in level]
    in_first = [[answer.first for answer in level] for level in levels[:LEVELS]]
    back = [levels[LEVELS + k][0] for k in range(LEVELS)]
    for k, answer in enumerate(back):  # `s` leads back through the levels, from the last to the first
        in_first[LEVELS - 1 - k].append(answer.first)
    found = [_summary(f"full frame (w s a d){where}", frames, in_first)]
    if where:
        return [*found, _summary(f"selection moved (arrows){where}", moves, [[answer.first for answer in moves]])]
    terminal.key(b"\x1b")
    terminal.key(b"0")
    still = [terminal.key(b"w", STILL_SECONDS) for _ in range(LEVELS)]
    return [
        *found,
        _summary("… and the cheatsheet, standing still", still, [[answer.last] for answer in still], is_frame=False),
        _summary("selection moved (arrows)", moves, [[answer.first for answer in moves]]),
        _summary("… and its args, chain and footprint", moves, [[answer.last for answer in moves]], is_frame=False),
    ]
