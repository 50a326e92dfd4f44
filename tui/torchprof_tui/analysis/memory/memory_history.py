"""Answer what is alive: at any time and at the peak, on each device, by what allocated it and what it is for.

A recording of a few steady steps sees neither the parameters nor the optimizer's state being allocated. What it sees is
the gradients: each has the size of its parameter, and the optimizers of the Adam family keep two tensors of that size.
"""

from __future__ import annotations

import re
from dataclasses import field, replace
from enum import Enum
from functools import cached_property

import numpy as np

from torchprof_tui.analysis.memory.categories import Category, decide_categories, find_workspaces
from torchprof_tui.analysis.memory.device_memory import (
    UNKNOWN_BYTES,
    DeviceMemory,
    Lifetimes,
    build_device_memory,
    find_enclosing_events,
)
from torchprof_tui.analysis.memory.producers import (
    OPTIMIZER_STEP_PREFIX,
    Passes,
    Phase,
    Producers,
    find_nearest_or_self,
    find_passes,
    match_name_prefix,
)
from torchprof_tui.analysis.search.name_search import match_names
from torchprof_tui.trace.core.arrays import I32, I64, NONE, U8, Bool, sum_by_index
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

STATE_TENSORS = {"Adam": 2, "AdamW": 2, "NAdam": 2, "RAdam": 2, "Adamax": 2, "Adagrad": 1}
"""Tensors of a parameter's size that torch's optimizers keep for each parameter; others depend on their options.

SGD keeps one if it has momentum, which the ops of its step tell.
"""

_OPTIMIZER_NAME = re.compile(re.escape(OPTIMIZER_STEP_PREFIX) + r"(\w+)\.")


_MOMENTUM_OPS = ("aten::mul_", "aten::_foreach_mul_")


@record
class OlderPart:
    """A part of it: its category, bytes, and how it was estimated."""

    category: Category
    bytes: int
    rule: str


@record
class OlderMemory:
    """What was allocated before the recording and is never freed in it: `parts` sum to `bytes`."""

    bytes: int
    parts: tuple[OlderPart, ...]


def estimate_older_memory(
    producers: Producers, memory: DeviceMemory, lifetimes: Lifetimes, category: U8
) -> OlderMemory:
    """Divide `memory.held_before` into parameters, optimizer state, workspaces and unknown.

    Only what the recording does not see allocated is missing: fewer parameters than gradients, fewer tensors of state.
    """
    rest = memory.held_before
    parts: list[OlderPart] = []
    count, gradients = _measure_gradients(producers, lifetimes, category)
    parameters = min(rest, _find_missing(lifetimes, category == Category.PARAMETER, count, gradients))
    if parameters:
        parts.append(OlderPart(Category.PARAMETER, parameters, "as large as the gradients of one backward pass"))
        rest -= parameters
    names = {match[1] for name in producers.trace.names if (match := _OPTIMIZER_NAME.match(name))}
    name = names.pop() if len(names) == 1 else ""
    tensors = STATE_TENSORS.get(name, 0)
    if name == "SGD":  # its step multiplies in place only with the momentum of each parameter
        trace = producers.trace
        rows = np.flatnonzero(match_names(trace, _MOMENTUM_OPS.__contains__) & (trace.kind == Kind.OP))
        steps = match_name_prefix(trace, OPTIMIZER_STEP_PREFIX)
        tensors = int((find_nearest_or_self(trace.parent, rows, steps) != NONE).any())
    missing = _find_missing(lifetimes, category == Category.OPTIMIZER_STATE, tensors * count, tensors * gradients)
    state = min(rest, missing)
    if state:
        parts.append(OlderPart(Category.OPTIMIZER_STATE, state, f"{name} keeps {tensors} × the bytes of the gradients"))
        rest -= state
    workspaces = None if memory.is_cpu else find_workspaces(producers.trace, memory.device_id)
    if workspaces is not None:
        seen = int(np.count_nonzero(category == Category.WORKSPACE))
        number = min(workspaces.count - seen, rest // workspaces.size)
        if number > 0:
            mib = workspaces.size / (1 << 20)
            rule = f"cuBLAS keeps {mib:.4g} MiB for each thread and stream with products: {number}"
            parts.append(OlderPart(Category.WORKSPACE, number * workspaces.size, rule))
            rest -= number * workspaces.size
    if rest:
        parts.append(OlderPart(Category.UNKNOWN, rest, "allocated before the recording and not freed in it"))
    return OlderMemory(memory.held_before, tuple(parts))


def _find_missing(lifetimes: Lifetimes, seen: Bool, count: int, total: int) -> int:
    """Return what is missing of `count` tensors of `total` bytes, of which `seen` bool[k] were allocated here.

    Compared by number first: the allocator may give a tensor a larger block than its gradient.
    """
    return max(total - int(lifetimes.bytes[seen].sum()), 0) if np.count_nonzero(seen) < count else 0


def _measure_gradients(producers: Producers, lifetimes: Lifetimes, category: U8) -> tuple[int, int]:
    """Return (number, bytes) of the gradients of one backward pass: of those with most gradients the smallest."""
    rows = np.flatnonzero((category == Category.GRADIENT) & (lifetimes.allocated_by != NONE))
    if not len(rows):
        return 0, 0
    within = producers.passes.find_pass(producers.memory.time[lifetimes.allocated_by[rows]], Phase.BACKWARD)
    counts = np.bincount(within)
    sums = sum_by_index(within, lifetimes.bytes[rows], len(counts))
    return int(counts.max()), int(sums[counts == counts.max()].min())


class GroupBy(str, Enum):
    """What memory is grouped by."""

    CATEGORY = "category"
    OP = "op"
    MODULE = "module"
    LINE = "line"
    PHASE = "phase"
    SHAPE = "shape"


@record
class MemoryState:
    """What is alive on one device at one time. Sizes are bytes.

    `position`: index into `DeviceMemory.records`, -1 before the first. `allocated`, `reserved`: as recorded. `alive`
    int64[a]: lifetimes, the largest first. `older`: what was allocated before the recording and is never freed in it.
    `unaccounted`: the rest; other than 0 where records are missing. The bytes of `alive`, `older` and `unaccounted`
    sum to `allocated`.
    """

    time: int
    position: int
    allocated: int
    reserved: int
    alive: I64
    older: OlderMemory
    unaccounted: int


@record
class MemoryGroup:
    """A part of what is alive. `since`, `until`: ns, of its first and last lifetime; None before and after the trace.

    `lifetimes` int64[c]: its lifetimes, the largest first; none where only the sum is known.
    """

    label: str
    bytes: int
    lifetimes: I64
    since: int | None
    until: int | None


@record(slots=False)
class DeviceHistory:
    """One device: its memory, and for each of its k lifetimes the category (uint8[k]), phase (uint8[k]) and op."""

    memory: DeviceMemory
    producers: Producers = field(repr=False)
    lifetimes: Lifetimes
    phase: U8
    category: U8

    @cached_property
    def op(self) -> I64:
        """int64[k]: the op that allocated each lifetime, an event; -1 for none."""
        return self.producers.find_ops(self.lifetimes.allocated_by)

    @cached_property
    def older(self) -> OlderMemory:
        return estimate_older_memory(self.producers, self.memory, self.lifetimes, self.category)

    def find_state(self, time: int) -> MemoryState:
        """Find what is alive at a time, ns of the trace."""
        return self._build_state(self.memory.find_position(time), time)

    def find_peak(self) -> MemoryState:
        """Find what is alive when most is allocated."""
        return self._build_state(self.memory.peak, int(self.memory.time[self.memory.peak]))

    def _build_state(self, position: int, time: int) -> MemoryState:
        memory = self.memory
        record = int(memory.records[position]) if position != NONE else NONE
        alive = self.lifetimes.find_alive(record)
        allocated = int(memory.allocated[position]) if position != NONE else memory.base
        reserved = int(memory.reserved[position]) if position != NONE else UNKNOWN_BYTES
        known = int(self.lifetimes.bytes[alive].sum()) + memory.held_before
        return MemoryState(time, position, allocated, reserved, alive, self.older, allocated - known)

    def since(self, lifetime: int) -> int | None:
        """Return when a lifetime begins, ns; None before the recording."""
        return self._read_time(int(self.lifetimes.allocated_by[lifetime]))

    def until(self, lifetime: int) -> int | None:
        """Return when a lifetime ends, ns; None if it is never freed in the trace."""
        return self._read_time(int(self.lifetimes.freed_by[lifetime]))

    def _read_time(self, record: int) -> int | None:
        return int(self.producers.memory.time[record]) if record != NONE else None

    def label_lifetimes(self, lifetimes: I64, by: GroupBy) -> tuple[I32, list[str]]:
        """Return (index int32[a], labels) of lifetimes; "" where nothing is known.

        Raises OSError, LookupError by shape: shapes are read from the file.
        """
        records = self.lifetimes.allocated_by[lifetimes]
        if by is GroupBy.CATEGORY:
            return self.category[lifetimes].astype(np.int32), [each.label for each in Category]
        if by is GroupBy.PHASE:
            return self.phase[lifetimes].astype(np.int32), [each.label for each in Phase]
        if by is GroupBy.MODULE:
            return self.producers.factorize_modules(records)
        if by is GroupBy.LINE:
            return self.producers.factorize_lines(records)
        if by is GroupBy.SHAPE:
            return self.producers.factorize_shapes(self.op[lifetimes])
        return self.producers.factorize_ops(self.op[lifetimes])

    def group_state(self, state: MemoryState, by: GroupBy) -> list[MemoryGroup]:
        """Group what is alive, the largest group first; the groups sum to `state.allocated`.

        Raises OSError, LookupError by shape.
        """
        index, labels = self.label_lifetimes(state.alive, by)
        groups: dict[str, MemoryGroup] = {}
        counts = np.bincount(index, minlength=len(labels))
        parts = np.split(state.alive[np.argsort(index, kind="stable")], np.cumsum(counts)[:-1])
        for label, members in zip(labels, parts, strict=False):
            if len(members):
                first = int(members[np.argmin(self.lifetimes.begin[members])])
                last = int(members[np.argmax(self.lifetimes.end[members])])
                shown, total = label or NOT_KNOWN[by], int(self.lifetimes.bytes[members].sum())
                groups[shown] = MemoryGroup(shown, total, members, self.since(first), self.until(last))
        older = [(part.category.label, part.bytes) for part in state.older.parts]
        if by is not GroupBy.CATEGORY:
            older = [(BEFORE, state.older.bytes)] if state.older.bytes else []
        nothing = np.zeros(0, np.int64)
        for label, size in older:  # a category may have parts from the recording and from before
            other = groups.get(label, MemoryGroup(label, 0, nothing, None, None))
            groups[label] = replace(other, bytes=other.bytes + size, since=None, until=None)
        if state.unaccounted:
            groups[UNACCOUNTED] = MemoryGroup(UNACCOUNTED, state.unaccounted, nothing, None, None)
        return sorted(groups.values(), key=lambda group: -group.bytes)


UNACCOUNTED = "not accounted for"  # the label of what the recorded total has beyond the records

BEFORE = Phase.BEFORE.label

NOT_KNOWN = {
    GroupBy.CATEGORY: Category.UNKNOWN.label,
    GroupBy.OP: "(no op)",
    GroupBy.MODULE: "(no module)",
    GroupBy.LINE: "(no line)",
    GroupBy.PHASE: Phase.OTHER.label,
    GroupBy.SHAPE: "(no shapes)",
}
"""The label of memory of which this is not known."""


@record(slots=False)
class MemoryHistory:
    """The memory of all devices of a trace, GPUs first, those with the highest peak first."""

    trace: Trace = field(repr=False)
    devices: tuple[DeviceHistory, ...]

    def find_device(self, label: str) -> DeviceHistory | None:
        """Find a device by its label ("GPU 0", "CPU"), ignoring case and spaces; None if there is none."""
        wanted = label.lower().replace(" ", "")
        return next((each for each in self.devices if each.memory.label.lower().replace(" ", "") == wanted), None)


_KEY = "memory history"  # where the history is kept in `Trace.derived`

NOTHING = Lifetimes(*(np.zeros(0, np.int64) for _ in range(5)))


@record
class _KeptHistory:
    """What is kept of a history with its trace: what takes time to find, without a reference to the trace.

    `devices`: the memory of each, and the phase and the category of its k lifetimes, uint8[k] each.
    """

    passes: Passes
    owner: I32
    devices: tuple[tuple[DeviceMemory, U8, U8], ...]


def build_memory_history(trace: Trace) -> MemoryHistory | None:
    """Build the history of all devices; None where no memory was recorded. It is found once for each trace."""
    memory = trace.memory
    if memory is None or not len(memory.time):
        return None
    kept = trace.derived.get(_KEY)
    if not isinstance(kept, _KeptHistory):
        producers = Producers(trace, memory, find_passes(trace), find_enclosing_events(trace, memory))
        found = []
        for device in build_device_memory(trace, memory):
            lifetimes = device.lifetimes or NOTHING
            phase = producers.find_phases(lifetimes.allocated_by)
            found.append((device, phase, decide_categories(producers, lifetimes, phase)))
        kept = trace.derived[_KEY] = _KeptHistory(producers.passes, producers.owner, tuple(found))
    producers = Producers(trace, memory, kept.passes, kept.owner)
    devices = (DeviceHistory(each[0], producers, each[0].lifetimes or NOTHING, *each[1:]) for each in kept.devices)
    return MemoryHistory(trace, tuple(devices))


def explain_missing_memory(trace: Trace) -> str:
    """Explain why nothing is known about memory, and what records it."""
    return (
        f"{trace.label}: no memory was recorded; to record it: profile_memory=True (torchprof-tui run --profile-memory)"
    )


def explain_missing_addresses(memory: DeviceMemory) -> str | None:
    """Explain why the allocations of a device are not told apart, and what records it; None if they are."""
    if memory.lifetimes is not None:
        return None
    return (
        f"the records of {memory.label} carry no addresses, so that frees cannot be matched with allocations; torch 2 "
        f"and later record them with profile_memory=True"
    )


BANDS = (*(category.label for category in Category), "not accounted for")
"""The bands of a stacked curve, from the bottom: the categories, then what the records do not explain."""

REST = len(BANDS) - 1


class CategoryTotals:
    """The bytes alive by category after any record of one device.

    Built once from running sums over the k lifetimes, so that a state costs two binary searches for each category.
    """

    def __init__(self, device: DeviceHistory) -> None:
        self.device = device
        lifetimes = device.lifetimes
        self._begins: list[tuple[I64, I64]] = []  # by category: (records ascending, bytes of all up to each)
        self._ends: list[tuple[I64, I64]] = []
        for category in Category:
            rows = np.flatnonzero(device.category == category)
            for out, at in ((self._begins, lifetimes.begin[rows]), (self._ends, lifetimes.end[rows])):
                order = np.argsort(at, kind="stable")
                total = np.concatenate([np.zeros(1, np.int64), np.cumsum(lifetimes.bytes[rows][order])])
                out.append((at[order], total))
        self._older = np.zeros(len(BANDS), np.int64)
        for part in device.older.parts:
            self._older[part.category] += part.bytes

    def sum_at(self, positions: I64) -> I64:
        """Sum what is alive after records: int64[p, bands] bytes, which sum to `allocated` in each row.

        `positions` int64[p]: indices into `DeviceMemory.records`, -1 before the first one. The last band is the rest,
        negative where the records explain more than was allocated.
        """
        memory = self.device.memory
        inside = positions != NONE
        record = np.where(inside, memory.records[positions], NONE)
        allocated = np.where(inside, memory.allocated[positions], memory.base)
        sums = np.tile(self._older, (len(positions), 1))
        for category in Category:
            for sign, (at, total) in ((1, self._begins[category]), (-1, self._ends[category])):
                sums[:, category] += sign * total[np.searchsorted(at, record, side="right")]
        sums[:, REST] = allocated - sums.sum(axis=1)
        return sums


def find_highest_positions(device: DeviceHistory, edges: I64) -> I64:
    """Find the record after which most is allocated in each of w cells: int64[w], -1 before the first record.

    `edges` int64[w + 1]: ns, ascending. A cell without a record of its own has the state that it begins with, and so
    does a cell in which nothing higher follows: the peak of the trace is always the highest of its cell.
    """
    memory = device.memory
    bounds = np.searchsorted(memory.time, edges, side="left")
    first, last = bounds[:-1], bounds[1:]
    best = first.astype(np.int64) - 1
    has_records = np.flatnonzero(last > first)
    if not len(has_records):
        return best
    begin, end = int(first[has_records[0]]), int(last[has_records[-1]])
    starts = first[has_records] - begin
    values = memory.allocated[begin:end]
    highest = np.maximum.reduceat(values, starts)
    is_highest = np.flatnonzero(values == np.repeat(highest, np.diff(np.append(starts, end - begin))))
    found = begin + is_highest[np.searchsorted(is_highest, starts)]
    before = best[has_records]
    level_before = np.where(before != NONE, memory.allocated[before], memory.base)
    best[has_records] = np.where(highest >= level_before, found, before)
    return best


def read_reserved(device: DeviceHistory, positions: I64) -> I64:
    """Read the reserved bytes after records: int64[p], UNKNOWN_BYTES where they are not recorded."""
    known = positions != NONE
    return np.where(known, device.memory.reserved[positions], np.int64(UNKNOWN_BYTES))
