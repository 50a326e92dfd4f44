"""torchprof-tui: read a torch.profiler trace in the terminal where it was made, or from Python.

    import torchprof_tui as tt
    trace = tt.open("trace.json.gz")

The names of the Python API (docs/api.md) are imported when they are first used: the program starts without them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchprof_tui.api.chains import Chain
    from torchprof_tui.api.checks import Check, Finding, Verdict
    from torchprof_tui.api.diffs import Diff
    from torchprof_tui.api.events import Event, Events
    from torchprof_tui.api.opening import open  # noqa: A004  (as tt.open)
    from torchprof_tui.api.repetitions import Repetition
    from torchprof_tui.api.tables import Memory, MemoryRow, Table, TableRow
    from torchprof_tui.api.trace import Step, Trace
    from torchprof_tui.trace.core.errors import TraceError
    from torchprof_tui.trace.core.optional_modules import MissingExtraError

__version__ = "0.1.0"

__all__ = [
    "Chain",
    "Check",
    "Diff",
    "Event",
    "Events",
    "Finding",
    "Memory",
    "MemoryRow",
    "MissingExtraError",
    "Repetition",
    "Step",
    "Table",
    "TableRow",
    "Trace",
    "TraceError",
    "Verdict",
    "__version__",
    "open",
]

_MODULES = {
    "Chain": "api.chains",
    "Check": "api.checks",
    "Diff": "api.diffs",
    "Event": "api.events",
    "Events": "api.events",
    "Finding": "api.checks",
    "Memory": "api.tables",
    "MemoryRow": "api.tables",
    "MissingExtraError": "trace.core.optional_modules",
    "Repetition": "api.repetitions",
    "Step": "api.trace",
    "Table": "api.tables",
    "TableRow": "api.tables",
    "Trace": "api.trace",
    "TraceError": "trace.core.errors",
    "Verdict": "api.checks",
    "open": "api.opening",
}
"""Module of each name of the API."""


def __getattr__(name: str) -> Any:
    """Import a name of the API (PEP 562)."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
