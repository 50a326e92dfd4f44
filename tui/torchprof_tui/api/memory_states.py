"""Find what is alive in memory at one time, and the memory over time, for the Python API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torchprof_tui.analysis.memory.memory_history import (
    DeviceHistory,
    GroupBy,
    MemoryHistory,
    build_memory_history,
    explain_missing_memory,
)
from torchprof_tui.answers.arguments import check_choice, check_time
from torchprof_tui.answers.memory import AliveMemory, build_alive_memory
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.model.trace import Trace

MemoryBy = Literal["category", "op", "module", "line", "phase", "shape"]
PEAK, END = "peak", "end"


@dataclass(frozen=True, slots=True)
class MemoryCurve:
    """The memory of one device: the state after each record. All int64[m]; reserved -1 where it is not recorded."""

    device: str
    time_ns: I64
    allocated_bytes: I64
    reserved_bytes: I64


def find_alive_memory(trace: Trace, at: int | str, by: str, device: str | None) -> AliveMemory:
    """Find what is alive at a time. Raises TraceError, OSError, LookupError."""
    group_by = GroupBy(check_choice("by", by, [each.value for each in GroupBy], "memory is grouped by"))
    if isinstance(at, str):
        check_choice("at", at, (PEAK, END), "give a time in ns or one of")
    else:
        at = check_time("at", at)
    history, memory = _find_device(trace, device)
    if at == PEAK:
        state = memory.find_peak()
    else:
        state = memory.find_state(int(memory.memory.time[-1]) if isinstance(at, str) else at)
    return build_alive_memory(history, memory, state, group_by, None, trace.rank)


def read_memory_curve(trace: Trace, device: str | None) -> MemoryCurve:
    """Read the curve of a device. Raises TraceError."""
    memory = _find_device(trace, device)[1].memory
    return MemoryCurve(memory.label, memory.time, memory.allocated, memory.reserved)


def _find_device(trace: Trace, device: str | None) -> tuple[MemoryHistory, DeviceHistory]:
    history = build_memory_history(trace)
    if history is None:
        raise TraceError(explain_missing_memory(trace))
    found = history.devices[0] if device is None else history.find_device(device)
    if found is None:
        known = ", ".join(each.memory.label for each in history.devices)
        raise TraceError(f"device={device!r}: no memory was recorded of it; there is {known}")
    return history, found
