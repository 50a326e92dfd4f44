"""Record what the program does, phase by phase, with times and sizes; write it to `--log FILE` as it happens.

The last phases also stand in a crash report. Details are numbers and words of the program's own, never names, paths or
values from a trace. Standard library only: imported before the command is known.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Iterable

MAX_PHASES = 200  # phases that are kept for a crash report; the file has all

_start = time.monotonic()
_phases: deque[str] = deque(maxlen=MAX_PHASES)
_descriptor: int | None = None


def note_phase(name: str, **details: int | float | str) -> None:
    """Record that a phase begins; `details` are sizes and counts, by name."""
    texts = {key: f"{value:.4g}" if isinstance(value, float) else value for key, value in details.items()}
    shown = "".join(f" {key}={text}" for key, text in texts.items())
    line = f"{time.monotonic() - _start:10.4f} s  {name}{shown}"
    _phases.append(line)
    _write(line)


def note_lines(lines: Iterable[str]) -> bool:
    """Write further lines about the last phase to the file, and to nothing else. Returns whether one is open."""
    for line in lines:
        _write(f"    {line}")
    return _descriptor is not None


def open_log(path: str, header: list[str]) -> None:
    """Write the header, the phases so far and all later ones to a file, which is replaced. Raises OSError."""
    global _descriptor
    close_log()
    _descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o666)
    for line in (*header, *_phases):
        _write(line)


def close_log() -> None:
    """Close the file, if one is open."""
    global _descriptor
    if _descriptor is not None:
        os.close(_descriptor)
        _descriptor = None


def list_phases() -> list[str]:
    """Return the last phases, one line each: seconds since the start, name, details."""
    return list(_phases)


def _write(line: str) -> None:
    if _descriptor is not None:
        with contextlib.suppress(OSError):  # a full disk: the program matters more than its log
            os.write(_descriptor, f"{line}\n".encode(errors="replace"))
