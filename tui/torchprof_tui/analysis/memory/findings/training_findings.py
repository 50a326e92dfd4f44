"""Find what training holds at its peak: activations, optimizer states, and in which phase the peak is."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.memory.categories import Category
from torchprof_tui.analysis.memory.findings.memory_finding import (
    MIN_SAVED,
    MemoryFinding,
    add_owner,
    compute_saving,
    format_number,
    format_size,
    is_worth_it,
    name_largest,
)
from torchprof_tui.analysis.memory.memory_history import DeviceHistory
from torchprof_tui.analysis.memory.passes import Phase
from torchprof_tui.analysis.time.intervals import union
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind

MIN_ACTIVATION_SHARE = 0.3
"""Share of the peak from which activations are worth computing twice."""

MIN_STATE_SHARE = 0.25
"""Share of the peak from which the optimizer's states are worth a smaller form: Adam's own share is a half."""

_STATE_SAVED = 0.75
"""What 8 instead of 32 bits for each value save of the states."""

_CHECKPOINT_NAMES = ("torch/utils/checkpoint", "CheckpointFunction")


def find_peak_phase(device: DeviceHistory) -> list[MemoryFinding]:
    """Tell in which phase of training the peak is: at the end of forward, activations are what matters."""
    passes = device.producers.passes
    state = device.find_peak()
    if not passes.has(Phase.BACKWARD) or not len(state.alive) or state.allocated < MIN_SAVED:
        return []
    current = int(np.searchsorted(passes.start, state.time, side="right")) - 1
    if current < 0:
        return []
    phase = Phase(int(passes.phase[current]))
    if state.time > passes.end[current]:
        where = f"after the {phase.label} pass"
    else:
        where = "in the optimizer's step" if phase is Phase.OPTIMIZER else f"in the {phase.label} pass"
    if phase is Phase.OPTIMIZER:
        action = "smaller optimizer states and a foreach=False step lower this peak; smaller batches do not"
    else:
        action = "what is alive here decides the largest batch: see `memory --by category`"
    return [MemoryFinding("peak-phase", f"the peak of {format_size(state.allocated)} is {where}", 0, action)]


def find_checkpointing(device: DeviceHistory) -> list[MemoryFinding]:
    """Find activations that checkpointing would save, and the forward time that it would cost again."""
    passes, state = device.producers.passes, device.find_peak()
    names = device.producers.trace.names
    if not passes.has(Phase.BACKWARD) or any(part in name for name in names for part in _CHECKPOINT_NAMES):
        return []
    held = state.alive[device.category[state.alive] == Category.ACTIVATION]
    total = int(device.lifetimes.bytes[held].sum())
    if total < max(MIN_SAVED, MIN_ACTIVATION_SHARE * state.allocated):
        return []
    everywhere = np.flatnonzero(device.category == Category.ACTIVATION)  # of the other steps as well
    saved = min(compute_saving(device, everywhere), total)
    if not is_worth_it(device, saved):
        return []
    cost = measure_forward_time(device, state.time)
    again = "" if cost is None else f"; computing them again takes {format_duration(cost)} a step"
    return [
        MemoryFinding(
            "activation-memory",
            add_owner(
                f"{format_number(len(held), 'activation')}, {format_size(total)} of the peak's "
                f"{format_size(state.allocated)}{again}",
                name_largest(device, held),
            ),
            saved,
            "do not keep the activations of each layer: compute them again in the backward pass",
            "x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)",
            cost,
            held,
        )
    ]


def measure_forward_time(device: DeviceHistory, time: int) -> int | None:
    """Measure the time of the last forward pass that starts before a time, ns: on the GPU where it launched work.

    None without a forward pass before it.
    """
    trace, passes = device.producers.trace, device.producers.passes
    number = int(passes.find_pass(np.array([time], np.int64), Phase.FORWARD)[0])
    if number < 0:
        return None
    start, end = int(passes.start[number]), int(passes.end[number])
    work = np.flatnonzero(np.isin(trace.kind, (Kind.KERNEL, Kind.COPY, Kind.MEMSET)))
    launch = trace.links.launch_of[work]
    work, launch = work[launch >= 0], launch[launch >= 0]
    work = work[(trace.start[launch] >= start) & (trace.start[launch] < end)]
    if not len(work):
        return end - start
    return int(union(trace.start[work], trace.start[work] + trace.duration[work]).total)


def find_optimizer_states(device: DeviceHistory) -> list[MemoryFinding]:
    """Find optimizer states that are a large part of the peak."""
    state = device.find_peak()
    if not device.producers.passes.has(Phase.OPTIMIZER):
        return []
    held = state.alive[device.category[state.alive] == Category.OPTIMIZER_STATE]
    older = sum(part.bytes for part in state.older.parts if part.category is Category.OPTIMIZER_STATE)
    total = int(device.lifetimes.bytes[held].sum()) + older
    saved = int(_STATE_SAVED * total)
    if total < MIN_STATE_SHARE * state.allocated or not is_worth_it(device, saved):
        return []
    return [
        MemoryFinding(
            "optimizer-states",
            f"the optimizer's states are {format_size(total)} of the peak's {format_size(state.allocated)}",
            saved,
            "keep them in 8 bits, which saves three quarters of 32; or shard them over the GPUs, which saves all but "
            "one share",
            "torch.distributed.optim.ZeroRedundancyOptimizer(params, torch.optim.AdamW)  # or torchao's AdamW8bit",
            None,
            held,
        )
    ]
