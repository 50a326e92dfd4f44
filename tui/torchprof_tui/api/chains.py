"""Results about one event: its dispatch chain, and the resources of its kernel."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from torchprof_tui.analysis.dispatch import chain as analysis
from torchprof_tui.analysis.dispatch.source_line import SourceLine, SourceLineFinder
from torchprof_tui.analysis.kernel.footprint import compute_footprint
from torchprof_tui.trace.model.trace import Trace

MAX_WORK = 20
"""Pieces of GPU work that a chain lists, as `chain --json`; count and total cover all of them."""


@dataclass(frozen=True, slots=True)
class Hop:
    """One event of a chain. `event`: its row. `role`: step, annotation, python, op, launch or gpu."""

    role: str
    event: int
    name: str
    start_ns: int
    duration_ns: int
    self_ns: int


@dataclass(frozen=True, slots=True)
class GpuWork:
    """GPU work that an event launched. `share`: of all GPU time that the event launched, 0..1."""

    event: int
    name: str
    duration_ns: int
    share: float


@dataclass(frozen=True, slots=True)
class Footprint:
    """Resources of a kernel; None for what is not recorded. `theoretical_occupancy` is in percent, as in traces."""

    kernel_class: str
    grid: tuple[int, ...] | None
    block: tuple[int, ...] | None
    threads_per_block: int | None
    registers_per_thread: int | None
    shared_memory_bytes: int | None
    theoretical_occupancy: float | None
    limited_by: tuple[str, ...]
    waves: float | None
    tail_waste: float | None
    idle_sms: int | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Chain:
    """The way of an event from the step to the GPU, outermost hop first.

    `joined_by`: how the GPU work was found. `launch_latency_ns`: from the start of the launch to the start on the GPU;
    `queue_delay_ns`: from its end; `held_up_ns`: the part in which earlier work, `held_up_by`, ran on the stream.
    `backward_of`, `backward`: the forward op of this backward op, and the reverse. `line`: "file:lineno" of the user's
    code. `gpu_work`: the longest pieces, of `gpu_work_count` pieces that take `gpu_work_ns` in total.
    """

    event: int
    hops: tuple[Hop, ...]
    joined_by: str
    note: str
    launch_latency_ns: int | None
    queue_delay_ns: int | None
    held_up_ns: int
    held_up_by: str | None
    backward_of: str | None
    backward: str | None
    line: str | None
    gpu_work: tuple[GpuWork, ...]
    gpu_work_count: int
    gpu_work_ns: int
    footprint: Footprint | None


class ChainFinder:
    """Find the chains of a trace; what is needed for several is computed once."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._lines = SourceLineFinder(trace)

    def build_chain(self, event: int) -> Chain:
        """Build the chain through an event. Raises IndexError outside the trace, OSError, LookupError."""
        found = analysis.find_chain(self._trace, event)
        return _build_chain(self._trace, found, self._lines.find_chain_line(found))


def _build_chain(trace: Trace, found: analysis.Chain, line: SourceLine | None) -> Chain:
    resources = compute_footprint(trace, found.work[0].event) if found.work else None
    return Chain(
        event=found.event,
        hops=tuple(
            Hop(hop.role.value, hop.event, hop.name, hop.start, hop.duration, hop.self_duration) for hop in found.hops
        ),
        joined_by=found.join_method.value,
        note=found.note,
        launch_latency_ns=found.launch_latency,
        queue_delay_ns=found.queue_delay,
        held_up_ns=found.held_up,
        held_up_by=_name_of(trace, found.held_up_by),
        backward_of=_name_of(trace, found.forward_op),
        backward=_name_of(trace, found.backward_node),
        line=None if line is None else line.location,
        gpu_work=tuple(
            GpuWork(piece.event, trace.event(piece.event).name, piece.duration, piece.share)
            for piece in found.work[:MAX_WORK]
        ),
        gpu_work_count=len(found.work),
        gpu_work_ns=found.work.total,
        footprint=None if resources is None else _build_footprint(resources.as_dict()),
    )


def _name_of(trace: Trace, event: int) -> str | None:
    return trace.event(event).name if event >= 0 else None


def _build_footprint(values: dict[str, Any]) -> Footprint:
    chosen: dict[str, Any] = {each.name: values[each.name] for each in fields(Footprint)}
    chosen |= {name: tuple(value) for name, value in chosen.items() if isinstance(value, list)}
    return Footprint(**chosen)
