"""Keys into a real (pseudo-)terminal of 200x50 at 256 colours: time to the last byte of the frame, and its bytes.

Each key is pressed at many zoom levels, from the whole trace down to a few ns a cell. A move is over with its first
frame; what the panels say about where one is (args, chain, footprint, cheatsheet) is worked out once one stands still,
and comes in frames of its own, up to the last byte that the key caused.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import Answer, Terminal, percentile
from benchmarks.opening import LANES_DRAWN, program

COLUMNS, ROWS = 200, 50
LEVELS = 24
"""Zoom levels visited: each `w` is one; the last ones show single nanoseconds of a trace of seconds."""


@dataclass(frozen=True)
class Keys:
    """One kind of key: seconds at p50 and p95, bytes of the largest answer, how many were pressed.

    `is_frame`: the seconds end with a frame, not with what is read after it.
    """

    name: str
    p50: float
    p95: float
    most_bytes: int
    presses: int
    is_frame: bool


def _summary(name: str, answers: list[Answer], seconds: list[float], is_frame: bool = True) -> Keys:
    return Keys(
        name,
        percentile(seconds, 0.5),
        percentile(seconds, 0.95),
        max(answer.size for answer in answers),
        len(answers),
        is_frame,
    )


def press_keys(trace: Path) -> list[Keys]:
    """Walk through the trace as a user would; one entry per kind of key. Raises TimeoutError where it never opens."""
    terminal = Terminal([program(), str(trace)], COLUMNS, ROWS)
    try:
        terminal.wait_for(LANES_DRAWN, 300)
        terminal.settle(0.5)
        frames: list[Answer] = []
        for _ in range(LEVELS):
            frames.append(terminal.key(b"w"))
            frames.extend(terminal.key(key) for key in (b"d", b"d", b"a"))
        frames.extend(terminal.key(b"s") for _ in range(LEVELS))
        terminal.key(b"0")
        terminal.key(b"w")
        down, right = b"\x1b[B", b"\x1b[C"
        moves = [terminal.key(key) for key in (down, right) * LEVELS]
        return [
            _summary("full frame (w s a d)", frames, [answer.first for answer in frames]),
            _summary("… and the cheatsheet", frames, [answer.last for answer in frames], is_frame=False),
            _summary("selection moved (arrows)", moves, [answer.first for answer in moves]),
            _summary("… and its args, chain and footprint", moves, [answer.last for answer in moves], is_frame=False),
        ]
    finally:
        terminal.close()
