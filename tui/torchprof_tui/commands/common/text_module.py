"""Import the module that prints the text of a command: JSON needs no rich, whose import takes a tenth of the start."""

from __future__ import annotations

import importlib
from types import ModuleType


def import_text(command: str, module: str = "text") -> ModuleType:
    """Import `commands/COMMAND/MODULE.py`; `command` is the name of the package."""
    return importlib.import_module(f"torchprof_tui.commands.{command}.{module}")
