"""Find the workspaces of cuBLAS, which torch's allocator holds until the program ends.

torch gives each cuBLAS handle, one for each thread, a workspace for each stream that it multiplies matrices on
(https://docs.pytorch.org/docs/stable/notes/cuda.html#cublas-workspaces). It is allocated with the first product, so
that a recording of steady steps sees memory of which nothing is known but that it is held.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.kernel.occupancy import parse_device
from torchprof_tui.analysis.memory.lifetimes import Lifetimes
from torchprof_tui.analysis.memory.passes import find_nearest_or_self
from torchprof_tui.analysis.memory.producers import Producers
from torchprof_tui.trace.core.arrays import I64, Bool
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

PRODUCT_OPS = frozenset(
    f"aten::{name}"
    for name in ("addmm", "addmv", "baddbmm", "bmm", "dot", "mm", "mv", "_scaled_mm", "_addmm_activation")
)
"""Ops that call cuBLAS."""

HOPPER_BYTES = 4096 * 8 * 1024
OLDER_BYTES = 4096 * 2 * 1024 + 16 * 8 * 1024
"""Bytes of one workspace with compute capability 9, and below it, unless CUBLAS_WORKSPACE_CONFIG says otherwise."""

_HOPPER = 9


@dataclass(frozen=True, slots=True)
class Workspaces:
    """The workspaces of one device: `size` bytes of each, and `count`, the pairs of a thread and a stream."""

    size: int
    count: int


def find_workspaces(trace: Trace, device_id: int) -> Workspaces | None:
    """Find how many workspaces a device's products need; None where the GPU is not described, or no product ran."""
    size = _find_size(trace, device_id)
    if size is None:
        return None
    on_device = np.array([lane.device == device_id for lane in trace.lanes], np.bool_)
    kernels = np.flatnonzero(trace.kind == Kind.KERNEL)
    kernels = kernels[on_device[trace.lane[kernels]]]
    launches = trace.links.launch_of[kernels]
    kernels, launches = kernels[launches >= 0], launches[launches >= 0]
    kernels = kernels[find_nearest_or_self(trace.parent, launches, mask_products(trace)) >= 0]
    if not len(kernels):
        return None
    thread = trace.lane[trace.links.launch_of[kernels]].astype(np.int64)
    pairs = np.unique(thread * len(trace.lanes) + trace.lane[kernels])
    return Workspaces(size, len(pairs))


def _find_size(trace: Trace, device_id: int) -> int | None:
    for properties in trace.devices:
        capability = parse_device(properties).capability if properties.id == device_id else None
        if capability is not None and "NVIDIA" in properties.name and capability[0] <= _HOPPER:
            return HOPPER_BYTES if capability[0] == _HOPPER else OLDER_BYTES
    return None


def find_new_workspaces(producers: Producers, lifetimes: Lifetimes) -> I64:
    """Find the workspaces that are allocated in the recording: rows of `lifetimes`, int64[w].

    Never freed, of a workspace's size, and allocated in the first product of a thread, directly.
    """
    trace = producers.trace
    nothing = np.zeros(0, np.int64)
    rows = np.flatnonzero((lifetimes.allocated_by >= 0) & ~lifetimes.is_freed)
    rows = rows[np.isin(lifetimes.bytes[rows], (HOPPER_BYTES, OLDER_BYTES))]
    if not len(rows):
        return nothing
    devices = producers.memory.device_id[lifetimes.allocated_by[rows]]
    sizes = {number: _find_size(trace, number) for number in np.unique(devices).tolist()}
    rows = rows[np.array([sizes[number] for number in devices.tolist()], object) == lifetimes.bytes[rows]]
    is_product = mask_products(trace)
    products = np.flatnonzero(is_product)
    first = np.full(len(trace.lanes), -1, np.int64)
    for lane in np.unique(trace.lane[products]).tolist():
        own = products[trace.lane[products] == lane]
        first[lane] = own[np.argmin(trace.start[own])]
    owner = producers.owner[lifetimes.allocated_by[rows]].astype(np.int64)
    inside = find_nearest_or_self(trace.parent, owner, is_product)
    is_first = (inside >= 0) & (first[trace.lane[np.maximum(inside, 0)]] == inside)
    new: I64 = rows[is_first]
    return new


def mask_products(trace: Trace) -> Bool:
    """Select the ops that multiply matrices by cuBLAS: bool[n]."""
    named = np.fromiter((name in PRODUCT_OPS for name in trace.names), np.bool_, len(trace.names))
    return np.asarray(named[trace.name] & (trace.kind == Kind.OP))
