"""Find passes and optimizer steps, and what allocated: the op, the phase of training, the module and the line."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import cached_property

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import find_nearest_ancestor
from torchprof_tui.analysis.dispatch.call_sites import CallSites
from torchprof_tui.analysis.dispatch.frame_names import (
    AUTOGRAD_ENGINE_PREFIX,
    MODULE_CALL_PREFIX,
    FrameOrigin,
    parse_frame,
)
from torchprof_tui.analysis.dispatch.source_line import find_open_names
from torchprof_tui.analysis.search.name_search import match_names
from torchprof_tui.trace.core.arrays import I32, I64, NONE, U8, Bool, sorted_unique
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import MemoryEvents, Trace
from torchprof_tui.trace.query.read_entries import read_entries

OPTIMIZER_STEP_PREFIX = "Optimizer.step#"
ZERO_GRAD_PREFIX = "Optimizer.zero_grad#"
FOREVER = np.iinfo(np.int64).max  # a time after all others, ns: the end of what is never freed


class Phase(IntEnum):
    """In which part of training memory was allocated."""

    FORWARD = 0
    BACKWARD = 1
    OPTIMIZER = 2
    OTHER = 3  # outside of these: the model is built, data is loaded
    BEFORE = 4  # before the recording

    @property
    def label(self) -> str:
        return _LABELS[self]


_LABELS = {
    Phase.FORWARD: "forward",
    Phase.BACKWARD: "backward",
    Phase.OPTIMIZER: "optimizer",
    Phase.OTHER: "outside",
    Phase.BEFORE: "before the recording",
}


@record
class Passes:
    """p passes, in the order of their start. `phase` uint8[p], `start`, `end` int64[p], ns.

    `mark` uint8[n]: the phase of each event that marks one, NO_MARK for all others.
    """

    phase: U8
    start: I64
    end: I64
    mark: U8

    def __len__(self) -> int:
        return len(self.phase)

    def has(self, phase: Phase) -> bool:
        return bool((self.phase == phase).any())

    def find_pass(self, times: I64, phase: Phase) -> I64:
        """Find the last pass of a phase that starts at or before each time: int64[k] into the passes, -1 for none."""
        passes = np.flatnonzero(self.phase == phase)
        index = np.searchsorted(self.start[passes], times, side="right") - 1
        return np.append(passes, NONE)[index]

    def find_next_start(self, times: I64, phase: Phase | None = None) -> I64:
        """Find when the next pass (of a phase) starts after each time: int64[k], FOREVER for none."""
        starts = self.start if phase is None else self.start[self.phase == phase]
        return np.append(starts, FOREVER)[np.searchsorted(starts, times, side="right")]

    def find_settled_time(self, passes: I64) -> I64:
        """Find when memory of a pass must still be alive to outlast it: int64[k].

        That is the start of the pass after it, because locals of the program are freed shortly after the end; the end
        of the last pass.
        """
        following = np.append(self.start[1:], FOREVER)[passes]
        return np.where(following == FOREVER, self.end[passes], np.maximum(following, self.end[passes]))


NO_MARK = 255


def find_passes(trace: Trace) -> Passes:
    """Find the passes: runs of outermost marked events of one phase, on all threads together.

    Marks are calls of modules and ops with a backward node (forward), calls of the autograd engine (backward), and the
    annotation that each optimizer makes of `step` (optimizer). A module called inside the backward pass, as by
    checkpointing, is no forward pass of its own.
    """
    mark = np.full(len(trace), NO_MARK, np.uint8)
    mark[trace.links.forward] = Phase.FORWARD
    mark[match_name_prefix(trace, MODULE_CALL_PREFIX) & (trace.kind == Kind.PYTHON)] = Phase.FORWARD
    mark[match_name_prefix(trace, AUTOGRAD_ENGINE_PREFIX)] = Phase.BACKWARD
    mark[trace.links.backward] = Phase.BACKWARD
    mark[match_name_prefix(trace, OPTIMIZER_STEP_PREFIX) & (trace.kind != Kind.GPU_ANNOTATION)] = Phase.OPTIMIZER
    marked = np.flatnonzero(mark != NO_MARK)
    marked = marked[find_nearest_ancestor(trace.parent, marked, mark != NO_MARK) == NONE]
    marked = marked[np.argsort(trace.start[marked], kind="stable")]
    phase = mark[marked]
    start, end = trace.start[marked], (trace.start + trace.duration)[marked]
    first = np.flatnonzero(np.diff(phase, prepend=NO_MARK) != 0)
    if not len(first):
        return Passes(np.zeros(0, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64), mark)
    return Passes(phase[first], start[first], np.maximum.reduceat(end, first), mark)


def match_name_prefix(trace: Trace, *prefixes: str) -> Bool:
    """Select the events whose name starts with one of these: bool[n]."""
    return match_names(trace, lambda name: name.startswith(prefixes))


def find_nearest_or_self(parent: I32, nodes: I32 | I64, mask: Bool) -> I64:
    """Find the innermost event with `mask` among each node and its ancestors: int64[k]; -1 for none, and of -1."""
    found = np.full(len(nodes), NONE, np.int64)
    known = np.flatnonzero(nodes != NONE)
    inside = np.asarray(nodes)[known].astype(np.int64)
    found[known] = np.where(mask[inside], inside, find_nearest_ancestor(parent, inside, mask)) if len(known) else NONE
    return found


def find_phases(trace: Trace, passes: Passes, owners: I32, lanes: I32, times: I64) -> U8:
    """Find the phase of allocations: uint8[k]. `owners` int32[k]: the events around them; `lanes` int32[k]: threads.

    The innermost marked event around an allocation decides. Without one, all of a thread of the autograd engine is
    backward; on other threads what happens within a forward pass, and from its end to the start of the backward pass
    after it, is forward. In a trace without any mark all ops are forward: nothing is trained there.
    """
    nearest = find_nearest_or_self(trace.parent, owners, passes.mark != NO_MARK)
    phase = np.full(len(nearest), Phase.OTHER, np.uint8)
    phase[nearest != NONE] = passes.mark[nearest[nearest != NONE]]
    undecided = np.flatnonzero(nearest == NONE)
    if not len(passes):
        phase[undecided[owners[undecided] != NONE]] = Phase.FORWARD
        return phase
    is_engine = np.zeros(len(trace.lanes) + 1, np.bool_)  # the last is for lane -1
    engine_events = np.flatnonzero((passes.mark == Phase.BACKWARD) & (trace.parent == NONE))
    is_engine[sorted_unique(trace.lane[engine_events])] = True
    others = np.flatnonzero(
        ((passes.mark == Phase.FORWARD) | (passes.mark == Phase.OPTIMIZER)) & (trace.parent == NONE)
    )
    is_engine[sorted_unique(trace.lane[others])] = False  # without a GPU it runs on the program's own thread
    on_engine = is_engine[lanes[undecided]]
    phase[undecided[on_engine]] = Phase.BACKWARD
    rest = undecided[~on_engine]
    current = np.searchsorted(passes.start, times[rest], side="right") - 1
    inside = current != NONE
    is_forward = inside & (passes.phase[current] == Phase.FORWARD)
    following = np.append(passes.phase, NO_MARK)[current + 1]
    within = times[rest] <= passes.end[current]
    phase[rest[is_forward & (within | (following == Phase.BACKWARD))]] = Phase.FORWARD
    return phase


ALLOCATING_OPS = frozenset(
    f"aten::{name}"
    for name in (
        *("empty", "empty_like", "empty_permuted", "empty_quantized", "empty_strided", "new_empty"),
        *("new_empty_strided", "resize_", "resize_as_", "_efficientzerotensor"),
    )
)
"""Ops that only allocate: the op that called one of them says what the memory is for."""


class Producers:
    """What allocated, for the `[memory]` records of one trace; arrays over all events are computed on first use.

    `owner` int32[records]: the innermost event around each record, -1 for none.
    """

    def __init__(self, trace: Trace, memory: MemoryEvents, passes: Passes, owner: I32) -> None:
        self.trace, self.memory, self.passes, self.owner = trace, memory, passes, owner

    def find_ops(self, records: I64) -> I64:
        """Find the op that allocated, for each record: int64[k] events; -1 for none.

        That is the innermost op that does more than to allocate; the op that allocates where no other is around it.
        """
        owners = self._owners_of(records)
        working = find_nearest_or_self(self.trace.parent, owners, self._is_op & ~self._only_allocates)
        any_op = find_nearest_or_self(self.trace.parent, owners, self._is_op)
        return np.where(working != NONE, working, any_op)

    def find_phases(self, records: I64) -> U8:
        """Find the phase of each record, Phase.BEFORE for record -1: uint8[k]."""
        phase = np.full(len(records), Phase.BEFORE, np.uint8)
        known = np.flatnonzero(records != NONE)
        rows = records[known]
        phase[known] = find_phases(
            self.trace, self.passes, self.owner[rows], self.memory.lane[rows], self.memory.time[rows]
        )
        return phase

    def factorize_modules(self, records: I64) -> tuple[I32, list[str]]:
        """Return (index int32[k], paths) of the modules around each record, outermost first; "" for none.

        Memory of the backward pass belongs to the module of its forward op.
        """
        return self._factorize(records, self.call_sites.factorize_modules)

    def factorize_lines(self, records: I64) -> tuple[I32, list[str]]:
        """Return (index int32[k], texts) of the innermost frame of the program around each record; "" for none.

        A frame of the user's own code is preferred to one of an installed package. The line is where the function
        begins, because the profiler records no other. Memory of the backward pass belongs to the line of its forward
        op where that is known.
        """
        return self._factorize(records, self._factorize_lines_of_events)

    def factorize_ops(self, ops: I64) -> tuple[I32, list[str]]:
        """Return (index int32[k], names) of op events; "" for -1."""
        name = np.where(ops != NONE, self.trace.name[ops], NONE) if len(self.trace) else np.full(len(ops), NONE)
        names, inverse = np.unique(name, return_inverse=True)
        return inverse.astype(np.int32), ["" if each == NONE else self.trace.names[each] for each in names.tolist()]

    def factorize_shapes(self, ops: I64) -> tuple[I32, list[str]]:
        """Return (index int32[k], shapes) of the inputs of op events, read from the file; "" where not recorded.

        Raises OSError, LookupError if the file is gone or changed.
        """
        known, inverse = np.unique(ops, return_inverse=True)
        events = known[known != NONE]
        index_of_text: dict[str, int] = {"": 0}
        index = np.zeros(len(known), np.int32)
        for position, entry in read_entries(self.trace, events):
            args = entry.get("args")
            dims = args.get("Input Dims") if isinstance(args, dict) else None
            text = str(dims) if isinstance(dims, list) else ""
            index[len(known) - len(events) + position] = index_of_text.setdefault(text, len(index_of_text))
        return index[inverse], list(index_of_text)

    @cached_property
    def call_sites(self) -> CallSites:
        return CallSites(self.trace)

    @cached_property
    def has_frames(self) -> bool:
        """Whether Python frames were recorded (with_stack=True)."""
        return bool((self.trace.kind == Kind.PYTHON).any())

    def _owners_of(self, records: I64) -> I64:
        return np.where(records != NONE, self.owner[records], NONE).astype(np.int64)

    def _factorize(self, records: I64, factorize: Callable[[I32], tuple[I32, list[str]]]) -> tuple[I32, list[str]]:
        owners = self._owners_of(records)
        known = np.flatnonzero(owners != NONE)
        index, texts = factorize(owners[known].astype(np.int32))
        out = np.zeros(len(records), np.int32)  # the first text is ""
        out[known] = index
        return out, texts

    def _factorize_lines_of_events(self, events: I32) -> tuple[I32, list[str]]:
        frame = self._calling_frame[events]
        name = np.where(frame != NONE, self.trace.name[frame], NONE)
        names, inverse = np.unique(np.append(name, NONE), return_inverse=True)
        index_of_text: dict[str, int] = {"": 0}
        index = []
        for each in names.tolist():
            found = parse_frame(self.trace.names[each]) if each != NONE else None
            text = ""
            if found is not None:
                has_line = found.line is not None and each not in self._open_names
                place = f"{found.file}:{found.line} " if has_line else f"{found.file}: "
                text = f"{place}{found.function}"
            index.append(index_of_text.setdefault(text, len(index_of_text)))
        return np.array(index, np.int32)[inverse[:-1]], list(index_of_text)

    @cached_property
    def _open_names(self) -> frozenset[int]:
        return find_open_names(self.trace)

    @cached_property
    def _calling_frame(self) -> I32:
        """int32[n]: the innermost frame of the user's code around each event, else of an installed package, else -1."""
        is_python = np.asarray(self.trace.kind == Kind.PYTHON)
        origins = np.full(len(self.trace.names) + 1, 255, np.uint8)  # 255 for names of other events
        for name in sorted_unique(self.trace.name[is_python]).tolist():
            frame = parse_frame(self.trace.names[name])
            if frame is not None:
                origins[name] = frame.origin
        origin = origins[self.trace.name]
        user = self.call_sites.find_callers(is_python & (origin == FrameOrigin.USER))
        library = self.call_sites.find_callers(is_python & (origin == FrameOrigin.LIBRARY))
        return np.where(user != NONE, user, library)

    @cached_property
    def _is_op(self) -> Bool:
        return np.asarray(self.trace.kind == Kind.OP)

    @cached_property
    def _only_allocates(self) -> Bool:
        return match_names(self.trace, ALLOCATING_OPS.__contains__)
