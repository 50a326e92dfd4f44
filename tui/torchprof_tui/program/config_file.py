"""Find the user's configuration file, and apply it to a command where it exists.

Standard library only, and without a file nothing is imported: this runs before every command.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torchprof_tui.program.phase_log import note_phase
from torchprof_tui.trace.core.process_state import JOBS
from torchprof_tui.trace.core.user_files import find_home_folder

if TYPE_CHECKING:
    from torchprof_tui.program.settings import Configuration

FILE_NAME = "config.toml"

PICTURES_VARIABLE = "TORCHPROF_TUI_PICTURES"


def find_config_file() -> str | None:
    """Return `$XDG_CONFIG_HOME/torchprof-tui/config.toml`, by default below `~/.config`; None without a home folder."""
    configured = os.environ.get("XDG_CONFIG_HOME")
    if configured and os.path.isabs(configured):
        return os.path.join(configured, "torchprof-tui", FILE_NAME)
    home = find_home_folder()
    return None if home is None else os.path.join(home, ".config", "torchprof-tui", FILE_NAME)


def load_configuration() -> Configuration | None:
    """Read the file; None where there is none."""
    path = find_config_file()
    if path is None or not os.path.lexists(path):
        return None
    # Imported by name: without a file, no command needs what reads one.
    configuration: Configuration = importlib.import_module("torchprof_tui.program.settings").read_configuration(path)
    note_phase("configuration", settings=len(configuration.values), problems=len(configuration.problems))
    return configuration


def apply_configuration(configuration: Configuration, parser: argparse.ArgumentParser) -> None:
    """Make the file's values the defaults of a command: of its options, and of variables that worker processes inherit.

    Options and variables that are set already win.
    """
    # Only of commands that open the app: `snapshot` gives the same picture everywhere.
    if any("--no-mouse" in action.option_strings for action in parser._actions):
        parser.set_defaults(**find_appearance(configuration))
    for name, variable in VARIABLES.items():
        if name in configuration.values:
            os.environ.setdefault(variable, str(configuration.values[name]))


def find_appearance(configuration: Configuration) -> dict[str, Any]:
    """Return the file's values of `theme`, `color` and `no_mouse`. Environment variables about colours win."""
    values = configuration.values
    found: dict[str, Any] = {name: values[name] for name in ("theme",) if name in values}
    if "mouse" in values:
        found["no_mouse"] = not values["mouse"]
    if "colors" in values and not (os.environ.get("NO_COLOR") or os.environ.get("TEXTUAL_COLOR_SYSTEM")):
        found["color"] = values["colors"]
    return found


def report_problems(configuration: Configuration, command: str) -> None:
    """Print one line on stderr for each mistake in what a command without a screen uses."""
    for problem in configuration.problems:
        section = problem.key.partition(".")[0]
        if section in ("", "cache", "jobs") or (section == "interpreter" and command == "run"):
            print(f"torchprof-tui: {problem.line}", file=sys.stderr)


def summarize_problems(lines: Sequence[str]) -> str:
    """Return the first mistakes, one per line, and how to list the others."""
    more = len(lines) - MAX_SHOWN
    return "\n".join([*lines[:MAX_SHOWN], *([f"{more} more: torchprof-tui config --check"] if more > 0 else [])])


MAX_SHOWN = 3  # mistakes in one message of the app

VARIABLES = {
    "interpreter": "TORCHPROF_TUI_PYTHON",
    "cache.folder": "TORCHPROF_TUI_CACHE",
    "cache.limit": "TORCHPROF_TUI_CACHE_LIMIT",
    "jobs": JOBS,
    "pictures": PICTURES_VARIABLE,
}
"""Environment variables by the setting for which they are the seam to worker processes and recordings."""
