"""Traces with shapes, written to a file: shapes are read from the args in the file, not from columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.helpers.pattern_traces import H200, op_with_work
from tests.helpers.trace_builder import Entry
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.trace import Trace


def op_with_shapes(
    op: str, dims: list[Any], types: list[str], at: float, gpu_at: float, gpu_for: float, kernel: str, **where: object
) -> list[Entry]:
    """An op with its inputs, the launch call and the kernel; keywords `concrete`, `strides` and those of the kernel."""
    concrete, strides = where.pop("concrete", [""] * len(dims)), where.pop("strides", None)
    entries = op_with_work(op, at, gpu_at, gpu_for, kernel, **where)  # type: ignore[arg-type]
    entries[0]["args"] |= {"Input Dims": dims, "Input type": types, "Concrete Inputs": concrete}
    if strides is not None:
        entries[0]["args"]["Input Strides"] = strides
    return entries


def load_entries(folder: Path, entries: Sequence[Entry], device: dict[str, Any] | None = H200) -> Trace:
    """Write the entries to a file in this folder and load it."""
    path = folder / "trace.json"
    header = {"schemaVersion": 1, "deviceProperties": [] if device is None else [device]}
    path.write_text(json.dumps({**header, "traceEvents": list(entries)}))
    return load_trace(str(path), cache=False)
