"""Measure keys in a pseudo-terminal of 200x50 with 256 colours: time to the last byte of the frame, and its bytes.

Each key is pressed at many zoom levels, from the whole trace down to a few ns per cell. A move ends with its first
frame; the panels (args, chain, footprint, cheatsheet) are computed once the selection rests, and are drawn in further
frames, up to the last byte that the key caused.

tmux redraws the program's frames and does not forward where one ends: there a frame ends when no output has come for a
moment.
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
from benchmarks.opening import LANES_DRAWN, find_program

COLUMNS, ROWS = 200, 50
LEVELS = 24
"""Zoom levels, one per `w`; the last ones show single nanoseconds of a trace of seconds."""

BAND = 4
"""Zoom levels whose 20 presses are combined, so that a busy moment of the machine does not become a median."""

QUIET_SECONDS = 2.0
"""Silence after which the analysis of the whole trace that follows its lanes (cheatsheet, gaps) is complete."""

STILL_SECONDS = 1.5
"""Silence after which the cheatsheet is complete: for a large range it starts a quarter of a second after the key and
may take half a second."""

BURST_SECONDS = 0.012
"""Silence that ends a frame in tmux; the cheatsheet follows a move after at least 30 ms."""


@dataclass(frozen=True)
class Keys:
    """One kind of key: seconds at p50 and p95, bytes of the largest answer, number of presses.

    `is_frame`: the time ends with the first frame, not with the panels. `worst`, `worst_p95`: the largest median and
    p95 of a band of zoom levels, for keys that are pressed at several.
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
    seconds = list(chain.from_iterable(levels))
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
    """Press keys as a user would. Returns one result per kind of key. Raises TimeoutError if no lane is drawn."""
    with contextlib.closing(Terminal([find_program(), str(trace)], COLUMNS, ROWS)) as terminal:
        return _press_all(terminal, "")


def press_keys_in_tmux(trace: Path) -> list[Keys]:
    """The same in tmux; nothing if tmux is not installed."""
    tmux = shutil.which("tmux")
    if tmux is None:
        return []
    with _tmux_server(tmux) as command:
        start = [*command, "new-session", "-x", str(COLUMNS), "-y", str(ROWS + 1), find_program(), str(trace)]
        with contextlib.closing(Terminal(start, COLUMNS, ROWS + 1, burst=BURST_SECONDS)) as terminal:
            return _press_all(terminal, " in tmux")


@contextlib.contextmanager
def _tmux_server(tmux: str) -> Iterator[list[str]]:
    """Start a separate tmux server, so that the user's own is not affected."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder, "tmux.conf")
        settings.write_text("set -g default-terminal tmux-256color\nset -s escape-time 0\n")
        command = [tmux, "-S", os.path.join(folder, "socket"), "-f", str(settings)]
        try:
            yield command
        finally:
            subprocess.run([*command, "kill-server"], check=False, capture_output=True)


def _press_all(terminal: Terminal, suffix: str) -> list[Keys]:
    terminal.wait_for(LANES_DRAWN, 300)
    terminal.settle(QUIET_SECONDS)
    levels = [[terminal.key(key) for key in (b"w", b"d", b"d", b"a")] for _ in range(LEVELS)]
    levels += [[terminal.key(b"s")] for _ in range(LEVELS)]
    terminal.key(b"0")
    terminal.key(b"w")
    down, right = b"\x1b[B", b"\x1b[C"
    moves = [terminal.key(key) for key in (down, right) * LEVELS]
    frames = [answer for level in levels for answer in level]
    first_seconds = [[answer.first for answer in level] for level in levels[:LEVELS]]
    zoom_out = [levels[LEVELS + k][0] for k in range(LEVELS)]
    for k, answer in enumerate(zoom_out):  # `s` returns through the levels, from the last to the first
        first_seconds[LEVELS - 1 - k].append(answer.first)
    results = [_summary(f"full frame (w s a d){suffix}", frames, first_seconds)]
    if suffix:
        return [*results, _summary(f"selection moved (arrows){suffix}", moves, [[answer.first for answer in moves]])]
    terminal.key(b"\x1b")
    terminal.key(b"0")
    resting = [terminal.key(b"w", STILL_SECONDS) for _ in range(LEVELS)]
    return [
        *results,
        _summary(
            "… and the cheatsheet, standing still", resting, [[answer.last] for answer in resting], is_frame=False
        ),
        _summary("selection moved (arrows)", moves, [[answer.first for answer in moves]]),
        _summary("… and its args, chain and footprint", moves, [[answer.last for answer in moves]], is_frame=False),
    ]
