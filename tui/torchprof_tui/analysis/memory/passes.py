"""Find the forward passes, backward passes and optimizer steps of a trace, in the order of time."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import find_nearest_ancestor
from torchprof_tui.analysis.dispatch.call_sites import MODULE_PREFIX
from torchprof_tui.analysis.dispatch.source_line import BACKWARD_ENGINE_PREFIX
from torchprof_tui.trace.core.arrays import I32, I64, U8, Bool
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

OPTIMIZER_STEP_PREFIX = "Optimizer.step#"
ZERO_GRAD_PREFIX = "Optimizer.zero_grad#"
FOREVER = np.iinfo(np.int64).max
"""A time after all others, ns: the end of what is never freed."""


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


@dataclass(frozen=True, slots=True)
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
        return np.where(index >= 0, np.append(passes, -1)[index], -1)

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
    mark = _mark_events(trace)
    marked = np.flatnonzero(mark != NO_MARK)
    marked = marked[find_nearest_ancestor(trace.parent, marked, mark != NO_MARK) < 0]
    marked = marked[np.argsort(trace.start[marked], kind="stable")]
    phase = mark[marked]
    start, end = trace.start[marked], (trace.start + trace.duration)[marked]
    first = np.flatnonzero(np.diff(phase, prepend=NO_MARK) != 0)
    if not len(first):
        return Passes(np.zeros(0, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64), mark)
    return Passes(phase[first], start[first], np.maximum.reduceat(end, first), mark)


def _mark_events(trace: Trace) -> U8:
    """Mark the events that tell a phase: uint8[n]."""
    mark = np.full(len(trace), NO_MARK, np.uint8)
    mark[trace.links.forward] = Phase.FORWARD
    mark[match_name_prefix(trace, MODULE_PREFIX) & (trace.kind == Kind.PYTHON)] = Phase.FORWARD
    mark[match_name_prefix(trace, BACKWARD_ENGINE_PREFIX)] = Phase.BACKWARD
    mark[trace.links.backward] = Phase.BACKWARD
    mark[match_name_prefix(trace, OPTIMIZER_STEP_PREFIX) & (trace.kind != Kind.GPU_ANNOTATION)] = Phase.OPTIMIZER
    return mark


def match_name_prefix(trace: Trace, prefix: str) -> Bool:
    """Select the events whose name starts with `prefix`: bool[n]."""
    matches = np.fromiter((name.startswith(prefix) for name in trace.names), np.bool_, len(trace.names))
    return np.asarray(matches[trace.name]) if len(trace.names) else np.zeros(len(trace), np.bool_)


def find_nearest_or_self(parent: I32, nodes: I32 | I64, mask: Bool) -> I64:
    """Find the innermost event with `mask` among each node and its ancestors: int64[k]; -1 for none, and of -1."""
    found = np.full(len(nodes), -1, np.int64)
    known = np.flatnonzero(nodes >= 0)
    inside = np.asarray(nodes)[known].astype(np.int64)
    found[known] = np.where(mask[inside], inside, find_nearest_ancestor(parent, inside, mask)) if len(known) else -1
    return found


def find_phases(trace: Trace, passes: Passes, owners: I32, lanes: I32, times: I64) -> U8:
    """Find the phase of allocations: uint8[k]. `owners` int32[k]: the events around them; `lanes` int32[k]: threads.

    The innermost marked event around an allocation decides. Without one, all of a thread of the autograd engine is
    backward; on other threads what happens within a forward pass, and from its end to the start of the backward pass
    after it, is forward. In a trace without any mark all ops are forward: nothing is trained there.
    """
    nearest = find_nearest_or_self(trace.parent, owners, passes.mark != NO_MARK)
    phase = np.full(len(nearest), Phase.OTHER, np.uint8)
    phase[nearest >= 0] = passes.mark[nearest[nearest >= 0]]
    undecided = np.flatnonzero(nearest < 0)
    if not len(passes):
        phase[undecided[owners[undecided] >= 0]] = Phase.FORWARD
        return phase
    is_engine = np.zeros(len(trace.lanes) + 1, np.bool_)  # the last is for lane -1
    engine_events = np.flatnonzero((passes.mark == Phase.BACKWARD) & (trace.parent < 0))
    is_engine[np.unique(trace.lane[engine_events])] = True
    others = np.flatnonzero(((passes.mark == Phase.FORWARD) | (passes.mark == Phase.OPTIMIZER)) & (trace.parent < 0))
    is_engine[np.unique(trace.lane[others])] = False  # without a GPU the backward pass runs on the program's own thread
    on_engine = is_engine[lanes[undecided]]
    phase[undecided[on_engine]] = Phase.BACKWARD
    rest = undecided[~on_engine]
    current = np.searchsorted(passes.start, times[rest], side="right") - 1
    inside = current >= 0
    is_forward = inside & (passes.phase[np.maximum(current, 0)] == Phase.FORWARD)
    following = np.append(passes.phase, NO_MARK)[current + 1]
    within = times[rest] <= passes.end[np.maximum(current, 0)]
    phase[rest[is_forward & (within | (following == Phase.BACKWARD))]] = Phase.FORWARD
    return phase
