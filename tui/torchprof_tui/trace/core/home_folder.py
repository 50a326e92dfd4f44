"""Find the user's home folder. Standard library only, and little of it: imported before the command is known."""

from __future__ import annotations

import os


def find_home() -> str | None:
    """Return the user's home folder; None if HOME is empty or relative, or if HOME is unset and the user has none."""
    home = os.path.expanduser("~")
    return home if os.path.isabs(home) and os.environ.get("HOME") != "" else None
