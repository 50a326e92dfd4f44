"""Results about memory at one time: what is alive, grouped, and each allocation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torchprof_tui.analysis.memory.categories import Category
from torchprof_tui.analysis.memory.device_memory import UNKNOWN_BYTES
from torchprof_tui.analysis.memory.memory_history import (
    DeviceHistory,
    GroupBy,
    build_memory_history,
    explain_missing_memory,
)
from torchprof_tui.analysis.memory.passes import Phase
from torchprof_tui.api.arguments import check_choice, check_time
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.model.trace import Trace

MemoryBy = Literal["category", "op", "module", "line", "phase", "shape"]
PEAK, END = "peak", "end"


@dataclass(frozen=True, slots=True)
class AliveGroup:
    """A group of what is alive. `allocations`: 0 where only the sum is known. Times: None outside of the trace."""

    label: str
    bytes: int
    allocations: int
    since_ns: int | None
    until_ns: int | None


@dataclass(frozen=True, slots=True)
class Allocation:
    """One allocation. `op`: the event that allocated it, a row of `Trace.events`; None for none."""

    bytes: int
    op: int | None
    op_name: str
    module: str
    line: str
    phase: str
    category: str
    since_ns: int | None
    until_ns: int | None


@dataclass(frozen=True, slots=True)
class AliveMemory:
    """What is alive on one device at one time; `groups` sum to `allocated_bytes`.

    `allocations`: the largest first. `before_window_bytes`: allocated before the recording and never freed in it.
    `unaccounted_bytes`: of the recorded total, what no record explains.
    """

    device: str
    rank: int | None
    time_ns: int
    allocated_bytes: int
    reserved_bytes: int | None
    by: str
    groups: tuple[AliveGroup, ...]
    allocations: tuple[Allocation, ...]
    before_window_bytes: int
    unaccounted_bytes: int


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
    history = _find_device(trace, device)
    if at == PEAK:
        state = history.find_peak()
    else:
        state = history.find_state(int(history.memory.time[-1]) if isinstance(at, str) else at)
    return AliveMemory(
        device=history.memory.label,
        rank=trace.rank,
        time_ns=state.time,
        allocated_bytes=state.allocated,
        reserved_bytes=None if state.reserved == UNKNOWN_BYTES else state.reserved,
        by=group_by.value,
        groups=tuple(
            AliveGroup(group.label, group.bytes, len(group.lifetimes), group.since, group.until)
            for group in history.group_state(state, group_by)
        ),
        allocations=_list_allocations(history, state.alive),
        before_window_bytes=state.older.bytes,
        unaccounted_bytes=state.unaccounted,
    )


def read_memory_curve(trace: Trace, device: str | None) -> MemoryCurve:
    """Read the curve of a device. Raises TraceError."""
    memory = _find_device(trace, device).memory
    return MemoryCurve(memory.label, memory.time, memory.allocated, memory.reserved)


def _find_device(trace: Trace, device: str | None) -> DeviceHistory:
    history = build_memory_history(trace)
    if history is None:
        raise TraceError(explain_missing_memory(trace))
    found = history.devices[0] if device is None else history.find_device(device)
    if found is None:
        known = ", ".join(each.memory.label for each in history.devices)
        raise TraceError(f"device={device!r}: no memory was recorded of it; there is {known}")
    return found


def _list_allocations(history: DeviceHistory, lifetimes: I64) -> tuple[Allocation, ...]:
    texts = []
    for by in (GroupBy.OP, GroupBy.MODULE, GroupBy.LINE):
        index, labels = history.label_lifetimes(lifetimes, by)
        texts.append([labels[number] for number in index.tolist()])
    return tuple(
        Allocation(
            bytes=int(history.lifetimes.bytes[lifetime]),
            op=int(history.op[lifetime]) if history.op[lifetime] >= 0 else None,
            op_name=texts[0][row],
            module=texts[1][row],
            line=texts[2][row],
            phase=Phase(int(history.phase[lifetime])).label,
            category=Category(int(history.category[lifetime])).label,
            since_ns=history.since(lifetime),
            until_ns=history.until(lifetime),
        )
        for row, lifetime in enumerate(lifetimes.tolist())
    )
