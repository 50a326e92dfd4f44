"""Describe the program and its surroundings for a log or a crash report: versions, system, terminal."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil

from torchprof_tui import __version__

PACKAGES = ("textual", "rich", "numpy", "msgspec", "orjson", "isal", "backports.zstd", "fsspec")

TERMINAL_VARIABLES = (
    "TERM",
    "TERM_PROGRAM",
    "TERM_PROGRAM_VERSION",
    "COLORTERM",
    "NO_COLOR",
    "TEXTUAL_COLOR_SYSTEM",
    "TEXTUAL_DRIVER",
    "LC_ALL",
    "LC_CTYPE",
    "LANG",
)
"""Variables that say which terminal it is; no others are read, because they may hold secrets."""

MULTIPLEXERS = {"TMUX": "tmux", "STY": "screen", "SSH_CONNECTION": "ssh"}
"""Variables of which only the presence is reported."""


def describe_program() -> list[str]:
    """Return lines with the versions of the program, of Python, of the system and of the packages in use."""
    found = filter(None, map(_find_version, PACKAGES))
    return [
        f"torchprof-tui {__version__}",
        f"Python {platform.python_version()} ({platform.python_implementation()})",
        f"system {platform.system()} {platform.release()} {platform.machine()}, {os.cpu_count()} CPUs",
        f"packages {', '.join(found)}",
    ]


def describe_terminal() -> list[str]:
    """Return lines about the terminal: its size, what it says it is, and what lies between it and the program."""
    size = shutil.get_terminal_size((0, 0))
    shown = [f"{name}={_shorten(os.environ[name])}" for name in TERMINAL_VARIABLES if name in os.environ]
    between = [label for name, label in MULTIPLEXERS.items() if name in os.environ]
    return [
        f"terminal {size.columns}x{size.lines}, on a terminal: "
        + ", ".join(f"{name} {'yes' if os.isatty(number) else 'no'}" for number, name in enumerate(_STREAMS)),
        f"variables {' '.join(shown) or 'none'}",
        f"through {', '.join(between) or 'nothing known'}",
    ]


def _find_version(name: str) -> str:
    try:
        return f"{name} {importlib.metadata.version(name)}"
    except importlib.metadata.PackageNotFoundError:
        return ""


_STREAMS = ("stdin", "stdout", "stderr")


def _shorten(value: str) -> str:
    return "".join(character if character.isprintable() else "·" for character in value[:60])
