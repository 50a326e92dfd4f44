"""The answer about memory at one time: what is alive on one device of a trace."""

from __future__ import annotations

from typing import Annotated, Literal

from torchprof_tui.analysis.memory.categories import RULES, Category
from torchprof_tui.analysis.memory.device_memory import UNKNOWN_BYTES, DeviceMemory
from torchprof_tui.analysis.memory.findings.list_findings import list_memory_findings
from torchprof_tui.analysis.memory.findings.memory_finding import MemoryFinding as FoundMemory
from torchprof_tui.analysis.memory.memory_history import (
    DeviceHistory,
    GroupBy,
    MemoryHistory,
    MemoryState,
    explain_missing_addresses,
)
from torchprof_tui.analysis.memory.passes import Phase
from torchprof_tui.answers.losses import Problem, build_losses
from torchprof_tui.answers.record import Answer, Record, about
from torchprof_tui.trace.core.arrays import I64

SCHEMA = "torchprof-tui/memory/1"

PhaseName = Literal["forward", "backward", "optimizer", "outside", "before the recording"]
CategoryName = Literal[
    "parameter", "gradient", "optimizer state", "activation", "input", "temporary", "workspace", "unknown"
]


class Peak(Record, frozen=True, kw_only=True):
    """The peak of a device."""

    time_ns: Annotated[int, about("when most was allocated, the first of several")]
    allocated_bytes: Annotated[int, about("allocated then, as recorded")]
    reserved_bytes: Annotated[int | None, about("got from the driver then; null if not recorded")]


class DevicePeak(Record, frozen=True, kw_only=True):
    """One device of the trace."""

    device: Annotated[str, about("GPU 0, CPU, …")]
    peak: Annotated[Peak, about("its peak")]


class MemoryTime(Record, frozen=True, kw_only=True):
    """The time that is answered for."""

    time_ns: Annotated[int, about("from the trace's first event")]
    alive_bytes: Annotated[int, about("allocated then, as recorded")]
    reserved_bytes: Annotated[int | None, about("got from the driver then; null if not recorded")]


class Allocation(Record, frozen=True, kw_only=True):
    """One allocation that is alive."""

    bytes: Annotated[int, about("its size")]
    op: Annotated[str | None, about("op that allocated it; null for none")]
    module: Annotated[str | None, about("path of modules around the op, outermost first; null if not recorded")]
    line: Annotated[str | None, about("file:line function of the program; null if not recorded")]
    phase: Annotated[PhaseName, about("part of training in which it was allocated")]
    category: Annotated[CategoryName, about("what it is for")]
    since_ns: Annotated[int | None, about("when it was allocated; null before the recording")]
    until_ns: Annotated[int | None, about("when it was freed; null if never in the trace")]
    event: Annotated[int | None, about("number of that op in the trace, from 0; null for none")]


class OlderPart(Record, frozen=True, kw_only=True):
    """A part of what was allocated before the recording."""

    category: Annotated[CategoryName, about("what it is for")]
    bytes: Annotated[int, about("its size")]
    rule: Annotated[str, about("how it was estimated")]


class MemoryGroup(Record, frozen=True, kw_only=True):
    """A group of what is alive."""

    label: Annotated[str, about("category, op, module, line, phase or input shapes")]
    bytes: Annotated[int, about("sum of its allocations")]
    share: Annotated[float | None, about("of what is allocated; null if that is 0")]
    allocations: Annotated[int, about("how many; 0 where only the sum is known")]
    since_ns: Annotated[int | None, about("when the first was allocated; null before the recording")]
    until_ns: Annotated[int | None, about("when the last is freed; null if never in the trace")]


class MemoryFinding(Record, frozen=True, kw_only=True):
    """What could be changed about memory."""

    id: Annotated[str, about("stable name of the finding")]
    seen: Annotated[str, about("this recording's numbers")]
    saved_bytes: Annotated[int, about("what the action saves at the peak, at most; 0 where it saves none")]
    time_ns: Annotated[
        int | None,
        about("activation-memory: what the action costs a step; allocator-retries: what was lost; else null"),
    ]
    action: Annotated[str, about("what to do about it")]
    code: Annotated[str, about("a line to paste; empty where no line helps")]


class AliveMemory(Answer, frozen=True, kw_only=True, tag=SCHEMA):
    """What is alive at a time in a trace.

    `alive`, `before_window_bytes`, `rest_bytes` and `unaccounted_bytes` sum to `at.alive_bytes`, and so do `groups` and
    `categories`.
    """

    source: Annotated[Literal["trace"], about("what it was read from")]
    device: Annotated[str, about("device that is answered for")]
    devices: Annotated[list[DevicePeak], about("all devices of the trace, and their peaks")]
    peak: Annotated[Peak, about("peak of this device")]
    at: Annotated[MemoryTime, about("time that is answered for")]
    by: Annotated[Literal["category", "op", "module", "line", "phase", "shape"], about("what groups are by")]
    groups: Annotated[list[MemoryGroup], about("groups of what is alive, largest first")]
    alive: Annotated[list[Allocation], about("what is alive, largest first; at most --top")]
    rest_bytes: Annotated[int, about("of the allocations beyond --top; 0 without it")]
    categories: Annotated[
        dict[str, int], about("bytes of each category; what is not accounted for is in none", "bytes")
    ]
    rules: Annotated[dict[str, str], about("the rule that decides each category")]
    findings: Annotated[list[MemoryFinding], about("what could be changed, what saves most at the peak first")]
    before_window_bytes: Annotated[int, about("allocated before the recording and never freed in it")]
    before_window: Annotated[list[OlderPart], about("its parts, as far as they can be estimated")]
    unaccounted_bytes: Annotated[int, about("of the recorded total, what the records do not explain; usually 0")]
    cannot_tell: Annotated[
        str | None, about("why allocations are not told apart, and what records it; null if they are")
    ]
    rank: Annotated[int | None, about("rank that is answered for; null without ranks")]
    partial: Annotated[list[Problem], about("what was lost of the trace; [] for nothing")]


def build_alive_memory(
    history: MemoryHistory,
    device: DeviceHistory,
    state: MemoryState,
    by: GroupBy,
    limit: int | None,
    rank: int | None,
    first: int = 0,
) -> AliveMemory:
    """Build the answer about one device at one time. Raises OSError, LookupError by shape.

    `first`: number of the first event of the trace in that of all ranks.
    """
    shown = state.alive[:limit]
    groups = device.group_state(state, by)
    categories = {each.label: 0 for each in Category}
    for group in device.group_state(state, GroupBy.CATEGORY):
        if group.label in categories:
            categories[group.label] += group.bytes
    return AliveMemory(
        source="trace",
        device=device.memory.label,
        devices=[DevicePeak(device=each.memory.label, peak=_build_peak(each.memory)) for each in history.devices],
        peak=_build_peak(device.memory),
        at=MemoryTime(time_ns=state.time, alive_bytes=state.allocated, reserved_bytes=_none_if_unknown(state.reserved)),
        by=by.value,
        groups=[
            MemoryGroup(
                label=group.label,
                bytes=group.bytes,
                share=group.bytes / state.allocated if state.allocated else None,
                allocations=len(group.lifetimes),
                since_ns=group.since,
                until_ns=group.until,
            )
            for group in groups
        ],
        alive=_build_allocations(device, shown, first),
        rest_bytes=int(device.lifetimes.bytes[state.alive[len(shown) :]].sum()),
        categories=categories,
        rules={category.label: rule for category, rule in RULES.items()},
        findings=build_findings(list_memory_findings(device)),
        before_window_bytes=state.older.bytes,
        before_window=[
            OlderPart(category=part.category.label, bytes=part.bytes, rule=part.rule)  # type: ignore[arg-type]
            for part in state.older.parts
        ],
        unaccounted_bytes=state.unaccounted,
        cannot_tell=explain_missing_addresses(device.memory),
        rank=rank,
        partial=build_losses(history.trace),
    )


def build_findings(findings: list[FoundMemory]) -> list[MemoryFinding]:
    return [
        MemoryFinding(
            id=each.id,
            seen=each.seen,
            saved_bytes=each.saved,
            time_ns=each.time,
            action=each.action,
            code=each.code,
        )
        for each in findings
    ]


def _build_peak(memory: DeviceMemory) -> Peak:
    return Peak(
        time_ns=int(memory.time[memory.peak]),
        allocated_bytes=int(memory.allocated[memory.peak]),
        reserved_bytes=_none_if_unknown(int(memory.reserved[memory.peak])),
    )


def _none_if_unknown(size: int) -> int | None:
    return None if size == UNKNOWN_BYTES else size


def _build_allocations(device: DeviceHistory, lifetimes: I64, first: int) -> list[Allocation]:
    texts = {}
    for by in (GroupBy.OP, GroupBy.MODULE, GroupBy.LINE):
        index, labels = device.label_lifetimes(lifetimes, by)
        texts[by] = [labels[number] or None for number in index.tolist()]
    return [
        Allocation(
            bytes=int(device.lifetimes.bytes[lifetime]),
            op=texts[GroupBy.OP][row],
            module=texts[GroupBy.MODULE][row],
            line=texts[GroupBy.LINE][row],
            phase=Phase(int(device.phase[lifetime])).label,  # type: ignore[arg-type]
            category=Category(int(device.category[lifetime])).label,  # type: ignore[arg-type]
            since_ns=device.since(lifetime),
            until_ns=device.until(lifetime),
            event=int(device.op[lifetime]) + first if device.op[lifetime] >= 0 else None,
        )
        for row, lifetime in enumerate(lifetimes.tolist())
    ]
