"""Read the recordings of memory with their truth: tests/fixtures/memory."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import torchprof_tui as tt
from tests.helpers.paths import FIXTURES
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

MEMORY = FIXTURES / "memory"


@cache
def read_numbers() -> dict[str, Any]:
    """Read what was counted while recording."""
    numbers: dict[str, Any] = json.loads((MEMORY / "numbers.json").read_text(encoding="utf-8"))
    return numbers


@cache
def open_trace(path: Path) -> tt.Trace:
    """Open a trace once for all tests; its text is deleted with the object."""
    return tt.open(path, cache=False)


def open_recording(name: str) -> Trace:
    """Open one of the recordings: start or steady."""
    return open_trace(MEMORY / f"{name}.pt.trace.json.xz")._model


def find_mark(trace: Trace, label: str) -> int:
    """Find when a truth was counted, ns of the trace."""
    name = trace.names.index(f"truth: {label}")
    return int(trace.start[np.flatnonzero((trace.name == name) & (trace.kind == Kind.ANNOTATION))[0]])
