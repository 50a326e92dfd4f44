"""Write a report about a bug of the program that can be sent: versions, terminal, phases, traceback.

The report holds nothing of a trace and no path: messages of exceptions may quote both, so only those of types whose
messages are about code are kept, and files in the traceback are named from their package on.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from torchprof_tui import __version__
from torchprof_tui.program.phase_log import list_phases
from torchprof_tui.trace.core.user_files import create_state_folder

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
    values = [(name, os.environ[name][:60]) for name in TERMINAL_VARIABLES if name in os.environ]
    shown = [f"{name}={''.join(c if c.isprintable() else '·' for c in value)}" for name, value in values]
    between = [label for name, label in MULTIPLEXERS.items() if name in os.environ]
    streams = enumerate(("stdin", "stdout", "stderr"))
    on_terminal = ", ".join(f"{name} {'yes' if os.isatty(number) else 'no'}" for number, name in streams)
    return [
        f"terminal {size.columns}x{size.lines}, on a terminal: {on_terminal}",
        f"variables {' '.join(shown) or 'none'}",
        f"through {', '.join(between) or 'nothing known'}",
    ]


def _find_version(name: str) -> str:
    try:
        return f"{name} {importlib.metadata.version(name)}"
    except importlib.metadata.PackageNotFoundError:
        return ""


FOLDER_NAME = "crashes"
MAX_REPORTS = 20  # reports that are kept; the oldest are removed
MAX_FRAMES = 200  # frames of a traceback that are written; endless recursion has thousands

MESSAGES_ABOUT_CODE = (AttributeError, ImportError, IndexError, NameError, RecursionError, TypeError, ZeroDivisionError)
"""Types of exceptions whose messages name code, types and indices, never what a trace holds."""

LEFT_OUT = "(message left out: it may quote a trace; --debug prints it)"


def report_crash(error: BaseException, details: Sequence[str] = ()) -> str:
    """Write the report to a new file and return one line that says where. `details`: lines about the screen."""
    name = type(error).__name__
    try:
        path = write_report("traceback", format_traceback(error), details)
    except OSError:
        return f"crashed ({name}); please report it with the output of --debug: no report could be written"
    return f"crashed ({name}); please report it, the details are in {path}"


def write_report(title: str, lines: Sequence[str], details: Sequence[str] = ()) -> str:
    """Write a report that ends with these lines in the state folder, else the temporary one. Returns its path.

    Raises OSError.
    """
    text = format_report(title, lines, details)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    try:
        folder = create_state_folder() / FOLDER_NAME
        folder.mkdir(mode=0o700, exist_ok=True)
        with contextlib.suppress(OSError):
            reports = sorted(folder.glob("crash-*.txt"), key=lambda path: path.stat().st_mtime)
            for old in reports[: max(len(reports) - MAX_REPORTS + 1, 0)]:
                old.unlink()
    except OSError:
        folder = Path(tempfile.gettempdir())
    descriptor, path = tempfile.mkstemp(prefix=f"crash-{stamp}-", suffix=".txt", dir=folder)
    with open(descriptor, "w", encoding="utf-8", errors="replace") as file:
        file.write(text)
    return path


def format_report(title: str, lines: Sequence[str], details: Sequence[str] = ()) -> str:
    """Format versions, terminal and phases, then a section of these lines."""
    command = next((word for word in sys.argv[1:] if word.isidentifier()), "")
    sections = (
        ("program", [*describe_program(), f"command {command or '(none)'}, {max(len(sys.argv) - 1, 0)} arguments"]),
        ("terminal", [*describe_terminal(), *details]),
        ("phases", list_phases()),
        (title, lines),
    )
    return "\n".join(f"[{title}]\n" + "\n".join(lines) + "\n" for title, lines in sections)


def format_traceback(error: BaseException) -> list[str]:
    """Format an exception and its causes, oldest first, without messages that may quote a trace."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain and len(chain) < 10:
        chain.append(current)
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    lines: list[str] = []
    for link in reversed(chain):
        frames = traceback.extract_tb(link.__traceback__)
        if len(frames) > MAX_FRAMES:
            frames = traceback.StackSummary.from_list([*frames[: MAX_FRAMES // 2], *frames[-MAX_FRAMES // 2 :]])
        for frame in frames:
            lines.append(f"  {shorten_path(frame.filename)}:{frame.lineno} in {frame.name}")
            lines += [f"    {frame.line}"] if frame.line else []
        lines.append(f"{type(link).__name__}: {_keep_message(link)}")
    return lines


def _keep_message(error: BaseException) -> str:
    if not isinstance(error, MESSAGES_ABOUT_CODE):
        return LEFT_OUT
    words = " ".join(str(error).split())[:500].split(" ")
    return " ".join(os.path.basename(word) if word.startswith(("/", "'/", '"/')) else word for word in words)


def shorten_path(path: str) -> str:
    """Return a file's path from its package on: `torchprof_tui/ui/…`, `textual/app.py`; else its last part."""
    parts = Path(path).parts
    for marker in ("site-packages", "dist-packages", "tui"):
        if marker in parts[:-1]:
            return "/".join(parts[len(parts) - parts[::-1].index(marker) :])
    return parts[-1] if parts else path
