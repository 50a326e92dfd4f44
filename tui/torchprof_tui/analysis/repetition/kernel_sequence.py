"""Choose the sequence in which repetitions are searched: the kernels of the busiest stream, else ops of a thread."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace


@dataclass(frozen=True, slots=True)
class KernelSequence:
    """n events of one lane in the order of their starts; none of them contains another.

    `events` int32[n]: rows of the trace. `lane`: -1 without events. `is_gpu`: kernels of a stream, else ops.
    """

    events: I32
    lane: int
    is_gpu: bool

    def __len__(self) -> int:
        return len(self.events)

    @property
    def unit(self) -> str:
        """What its events are called: "kernels" or "ops"."""
        return "kernels" if self.is_gpu else "ops"


def choose_sequence(trace: Trace) -> KernelSequence:
    """Choose the stream with most kernels; in a trace without kernels the thread with most ops.

    One stream, because the order between streams differs from repetition to repetition.
    """
    kernels = np.flatnonzero((trace.kind == Kind.KERNEL) | (trace.kind == Kind.COLLECTIVE))
    if len(kernels):
        lane = int(np.bincount(trace.lane[kernels]).argmax())
        return KernelSequence(kernels[trace.lane[kernels] == lane].astype(np.int32), lane, True)
    ops = np.flatnonzero(trace.kind == Kind.OP)
    if not len(ops):
        return KernelSequence(np.empty(0, np.int32), -1, False)
    lane = int(np.bincount(trace.lane[ops]).argmax())
    return KernelSequence(_select_outermost(trace, ops[trace.lane[ops] == lane]), lane, False)


def _select_outermost(trace: Trace, events: I64) -> I32:
    """Select the events of one lane, sorted as in the trace, that are in no other of them."""
    start = trace.start[events]
    latest_end = np.maximum.accumulate(start + trace.duration[events])
    is_inside = np.append(False, start[1:] < latest_end[:-1])
    outermost: I32 = events[~is_inside].astype(np.int32)
    return outermost
