"""The beginning of a recording, which is shown while the rest of a large file is decoded."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from torchprof_tui.trace.core.time_format import format_duration

if TYPE_CHECKING:
    from torchprof_tui.trace.model.trace import Trace


@dataclass(frozen=True, slots=True)
class EarlyTrace:
    """A trace that ends at `end`, ns, where the recording goes on; `share`: the part of the file that it is, 0 to 1."""

    trace: Trace
    end: int
    share: float


@runtime_checkable
class ShowsEarly(Protocol):
    """An opener that announces the beginning of a large trace to `receive_early`, set before `load_trace`."""

    receive_early: Callable[[EarlyTrace], None] | None


def map_early(folder: Path, label: str, message: Mapping[str, Any]) -> EarlyTrace | None:
    """Map the part that a worker has announced with `message`, and remove its files, which stay mapped.

    Returns None where it cannot be used: the whole trace follows anyway.
    """
    trace_store = importlib.import_module("torchprof_tui.trace.storage.trace_store")  # here, because it imports numpy
    part = folder / Path(message["early"]).name
    try:
        trace = replace(trace_store.open_trace(part), label=label, part=f"first {format_duration(message['end'])}")
        return EarlyTrace(trace, message["end"], message["share"])
    except (OSError, LookupError, ValueError, TypeError):
        return None
    finally:
        shutil.rmtree(part, ignore_errors=True)
