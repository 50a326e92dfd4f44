"""Print an answer as JSON, or import the module that prints it as text."""

from __future__ import annotations

import importlib
import json
from types import ModuleType

from torchprof_tui.answers.record import Answer, as_fields


def print_answer(answer: Answer) -> None:
    """Print an answer on one line of stdout."""
    # Not msgspec's encoder: it refuses lone surrogates, which names in a trace may contain.
    print(json.dumps(as_fields(answer)))


def import_text(command: str, module: str = "text") -> ModuleType:
    """Import `commands/COMMAND/MODULE.py`: JSON needs no rich, whose import takes a tenth of the start."""
    return importlib.import_module(f"torchprof_tui.commands.{command}.{module}")
