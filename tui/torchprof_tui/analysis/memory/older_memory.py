"""Divide what was allocated before the recording and is never freed in it, as far as the recording tells.

A recording of a few steady steps sees neither the parameters nor the optimizer's state being allocated. What it sees is
the gradients: each has the size of its parameter, and the optimizers of the Adam family keep two tensors of that size.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.memory.categories import Category
from torchprof_tui.analysis.memory.device_memory import DeviceMemory
from torchprof_tui.analysis.memory.lifetimes import Lifetimes
from torchprof_tui.analysis.memory.passes import (
    OPTIMIZER_STEP_PREFIX,
    Phase,
    find_nearest_or_self,
    match_name_prefix,
)
from torchprof_tui.analysis.memory.producers import Producers
from torchprof_tui.analysis.memory.workspaces import find_workspaces
from torchprof_tui.trace.core.arrays import U8, Bool
from torchprof_tui.trace.model.event_kind import Kind

STATE_TENSORS = {"Adam": 2, "AdamW": 2, "NAdam": 2, "RAdam": 2, "Adamax": 2, "Adagrad": 1}
"""Tensors of a parameter's size that torch's optimizers keep for each parameter; others depend on their options.

SGD keeps one if it has momentum, which the ops of its step tell.
"""

_OPTIMIZER_NAME = re.compile(re.escape(OPTIMIZER_STEP_PREFIX) + r"(\w+)\.")


@dataclass(frozen=True, slots=True)
class OlderPart:
    """A part of it: its category, bytes, and how it was estimated."""

    category: Category
    bytes: int
    rule: str


@dataclass(frozen=True, slots=True)
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
    name = _find_optimizer(producers)
    tensors = 1 if name == "SGD" and _keeps_momentum(producers) else STATE_TENSORS.get(name, 0)
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
            rule = (
                f"cuBLAS keeps {workspaces.size / (1 << 20):.4g} MiB for each thread and stream with products: {number}"
            )
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
    rows = np.flatnonzero((category == Category.GRADIENT) & (lifetimes.allocated_by >= 0))
    if not len(rows):
        return 0, 0
    within = producers.passes.find_pass(producers.memory.time[lifetimes.allocated_by[rows]], Phase.BACKWARD)
    counts, sums = (np.zeros(len(producers.passes) + 1, np.int64) for _ in range(2))
    np.add.at(counts, within, 1)
    np.add.at(sums, within, lifetimes.bytes[rows])
    return int(counts.max()), int(sums[counts == counts.max()].min())


def _keeps_momentum(producers: Producers) -> bool:
    """Return whether a step of SGD multiplies in place, as it does with the momentum of each parameter only."""
    trace = producers.trace
    named = np.fromiter((name in ("aten::mul_", "aten::_foreach_mul_") for name in trace.names), np.bool_)
    rows = np.flatnonzero(named[trace.name] & (trace.kind == Kind.OP))
    steps = match_name_prefix(trace, OPTIMIZER_STEP_PREFIX)
    return bool((find_nearest_or_self(trace.parent, rows, steps) >= 0).any())


def _find_optimizer(producers: Producers) -> str:
    """Find the class of the only optimizer that steps; "" where there is none, or several."""
    trace = producers.trace
    names = {match[1] for name in trace.names if (match := _OPTIMIZER_NAME.match(name))}
    return names.pop() if len(names) == 1 else ""
