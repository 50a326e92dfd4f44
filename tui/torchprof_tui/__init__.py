"""torchprof-tui: read a torch.profiler trace in the terminal where it was made, or from Python.

    import torchprof_tui as tt
    trace = tt.open("trace.json.gz")

The names of the Python API (docs/api.md) are imported when they are first used: the program starts without them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchprof_tui.answers.chain import Chain
    from torchprof_tui.answers.check import Check, Finding, Verdict
    from torchprof_tui.answers.diff import Diff
    from torchprof_tui.answers.steps import Step
    from torchprof_tui.answers.table import MemoryRow, MemoryTable, Table, TableRow
    from torchprof_tui.api.events import Event, Events
    from torchprof_tui.api.recording import Recording, record
    from torchprof_tui.api.tables import Repetition
    from torchprof_tui.api.trace import (
        Trace,
        open,  # noqa: A004  (as tt.open)
    )
    from torchprof_tui.trace.core.errors import TraceError
    from torchprof_tui.trace.core.extensions import MissingExtraError

__version__ = "0.1.0"

__all__ = [
    "Chain",
    "Check",
    "Diff",
    "Event",
    "Events",
    "Finding",
    "MemoryRow",
    "MemoryTable",
    "MissingExtraError",
    "Recording",
    "Repetition",
    "Step",
    "Table",
    "TableRow",
    "Trace",
    "TraceError",
    "Verdict",
    "__version__",
    "open",
    "record",
]

_MODULES = {
    "Chain": "answers.chain",
    "Check": "answers.check",
    "Diff": "answers.diff",
    "Event": "api.events",
    "Events": "api.events",
    "Finding": "answers.check",
    "MemoryTable": "answers.table",
    "MemoryRow": "answers.table",
    "MissingExtraError": "trace.core.extensions",
    "Recording": "api.recording",
    "Repetition": "api.tables",
    "Step": "answers.steps",
    "Table": "answers.table",
    "TableRow": "answers.table",
    "Trace": "api.trace",
    "TraceError": "trace.core.errors",
    "Verdict": "answers.check",
    "open": "api.trace",
    "record": "api.recording",
}
"""Module of each name of the API."""


def __getattr__(name: str) -> Any:
    """Import a name of the API (PEP 562)."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if module.startswith("api."):
        system = importlib.import_module(f"{__name__}.trace.core.extensions")
        if unsupported := system.explain_unsupported_system():
            raise system.MissingExtraError(f"torchprof-tui {unsupported}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
