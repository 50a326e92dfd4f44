"""Decide what memory is for, from what allocated it and how long it lives.

torch's own memory profiler (`torch/profiler/_memory_profiler.py`) follows the tensors of each op, which an exported
trace does not identify. What it does tell is the phase of an allocation, the code around it, and its lifetime.

torch gives each cuBLAS handle, one for each thread, a workspace for each stream that it multiplies matrices on
(https://docs.pytorch.org/docs/stable/notes/cuda.html#cublas-workspaces), and holds it until the program ends. It is
allocated with the first product, so a recording of steady steps sees memory of which only this is known.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import find_outermost_ancestor, include_ancestors
from torchprof_tui.analysis.dispatch.frame_names import MODULE_CALL_PREFIX
from torchprof_tui.analysis.kernel.names.copies import is_to_device
from torchprof_tui.analysis.kernel.occupancy import parse_device
from torchprof_tui.analysis.memory.device_memory import Lifetimes
from torchprof_tui.analysis.memory.producers import (
    FOREVER,
    ZERO_GRAD_PREFIX,
    Passes,
    Phase,
    Producers,
    find_nearest_or_self,
    match_name_prefix,
)
from torchprof_tui.analysis.search.name_search import match_names
from torchprof_tui.trace.core.arrays import I64, NONE, U8, Bool, is_in, sorted_unique
from torchprof_tui.trace.core.records import record
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


@record
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
    kernels = kernels[on_device[trace.lane[kernels]] & (trace.links.launch_of[kernels] != NONE)]
    launches = trace.links.launch_of[kernels]
    multiplies = find_nearest_or_self(trace.parent, launches, mask_products(trace)) != NONE
    if not multiplies.any():
        return None
    thread = trace.lane[launches[multiplies]].astype(np.int64)
    pairs = sorted_unique(thread * len(trace.lanes) + trace.lane[kernels[multiplies]])
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
    rows = np.flatnonzero((lifetimes.allocated_by != NONE) & ~lifetimes.is_freed)
    rows = rows[is_in(lifetimes.bytes[rows], (HOPPER_BYTES, OLDER_BYTES))]
    if not len(rows):
        return rows
    devices = producers.memory.device_id[lifetimes.allocated_by[rows]]
    sizes = {number: _find_size(trace, number) for number in sorted_unique(devices).tolist()}
    rows = rows[np.array([sizes[number] for number in devices.tolist()], object) == lifetimes.bytes[rows]]
    is_product = mask_products(trace)
    products = np.flatnonzero(is_product)
    first = np.full(len(trace.lanes), NONE, np.int64)
    lanes, index = np.unique(trace.lane[products], return_index=True)
    first[lanes] = products[index]  # events are sorted by lane, then start
    owner = producers.owner[lifetimes.allocated_by[rows]].astype(np.int64)
    inside = find_nearest_or_self(trace.parent, owner, is_product)
    is_first = (inside != NONE) & (first[trace.lane[inside]] == inside)
    new: I64 = rows[is_first]
    return new


def mask_products(trace: Trace) -> Bool:
    """Select the ops that multiply matrices by cuBLAS: bool[n]."""
    return np.asarray(match_names(trace, PRODUCT_OPS.__contains__) & (trace.kind == Kind.OP))


class Category(IntEnum):
    """What memory is for."""

    PARAMETER = 0
    GRADIENT = 1
    OPTIMIZER_STATE = 2
    ACTIVATION = 3
    INPUT = 4
    TEMPORARY = 5
    WORKSPACE = 6
    UNKNOWN = 7

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", " ")


RULES = {
    Category.PARAMETER: "allocated outside of the passes by nn.Module's code (creation, .to()), or, before the first "
    "pass, never freed and of the size of a gradient; buffers count as parameters",
    Category.GRADIENT: "allocated in a backward pass, and still alive when the next phase begins; or allocated before "
    "the recording and freed by zero_grad",
    Category.OPTIMIZER_STATE: "allocated in Optimizer.step, and still alive when the next phase begins",
    Category.ACTIVATION: "allocated in a forward pass, and still alive when the backward pass begins; or allocated "
    "before the recording or outside of the passes, and freed in a backward pass",
    Category.INPUT: "copied to the device or created outside of all modules, and still alive when the next phase "
    "begins",
    Category.TEMPORARY: "freed before the phase that it was allocated in is over",
    Category.WORKSPACE: "the workspaces of cuBLAS, one for each thread and stream that multiplies matrices: of their "
    "size, and never freed from a thread's first product on; or estimated of what was allocated before the recording",
    Category.UNKNOWN: "none of the other rules applies",
}
"""Category → the rule that decides it."""

FACTORY_OPS = frozenset(
    f"aten::{name}"
    for name in (
        *("arange", "from_file", "full", "linspace", "ones", "rand", "randint", "randn", "randperm"),
        *("scalar_tensor", "tensor", "zeros"),
    )
)
"""Ops that create a tensor from nothing: outside of all modules they create inputs."""

_MODULE_FILES = "torch/nn/modules/"
_LOADER_FILES = "torch/utils/data/"
_LOADER_ANNOTATION = "enumerate(DataLoader)"


def decide_categories(producers: Producers, lifetimes: Lifetimes, phase: U8) -> U8:
    """Decide the category of each lifetime: uint8[k]. `phase` uint8[k]: see `Producers.find_phases`.

    Every rule is in RULES. Memory of a forward pass that is never freed is an activation where a backward pass is
    recorded at all, because its own may come after the recording.
    """
    times, passes = producers.memory.time, producers.passes
    born = np.where(lifetimes.allocated_by != NONE, times[lifetimes.allocated_by], 0)
    died = np.where(lifetimes.is_freed, times[lifetimes.freed_by], FOREVER)
    category = np.full(len(lifetimes), Category.UNKNOWN, np.uint8)
    for of_phase, lasting in ((Phase.BACKWARD, Category.GRADIENT), (Phase.OPTIMIZER, Category.OPTIMIZER_STATE)):
        rows = np.flatnonzero(phase == of_phase)
        within = passes.find_pass(born[rows], of_phase)
        rows, within = rows[within != NONE], within[within != NONE]
        lasts = died[rows] >= passes.find_settled_time(within)
        category[rows] = np.where(lasts, lasting, Category.TEMPORARY)
    rows = np.flatnonzero(phase == Phase.FORWARD)  # activations outlive the start of the backward pass
    freed = died[rows] < FOREVER
    lasts = (died[rows] > passes.find_next_start(born[rows], Phase.BACKWARD)) | (~freed & passes.has(Phase.BACKWARD))
    category[rows] = np.where(lasts, Category.ACTIVATION, np.where(freed, Category.TEMPORARY, Category.UNKNOWN))
    outside = phase == Phase.OTHER
    outlives_phase = died > passes.find_next_start(born)
    category[outside & ~outlives_phase & (died < FOREVER)] = Category.TEMPORARY
    # A forward pass that torch.compile made, recorded without Python frames, has neither calls of modules nor ops with
    # a node of their own: its allocations seem to be outside of the passes, but are freed in a backward pass.
    rows = np.flatnonzero(outside & outlives_phase & (lifetimes.allocated_by != NONE) & lifetimes.is_freed)
    category[rows[producers.find_phases(lifetimes.freed_by[rows]) == Phase.BACKWARD]] = Category.ACTIVATION
    rows = np.flatnonzero((outside | (phase == Phase.FORWARD)) & outlives_phase)
    category[rows[_create_inputs(producers, lifetimes.allocated_by[rows])]] = Category.INPUT
    rows = np.flatnonzero(outside)
    category[rows[_create_parameters(producers, lifetimes.allocated_by[rows], died[rows])]] = Category.PARAMETER
    held = outside & ~lifetimes.is_freed & (born < (passes.start[0] if len(passes) else 0))
    if not producers.has_frames:  # a copy to the device may be a buffer as well
        category[held & (category == Category.INPUT)] = Category.UNKNOWN
    category[_find_held_parameters(passes, lifetimes, held, category, born)] = Category.PARAMETER
    category[find_new_workspaces(producers, lifetimes)] = Category.WORKSPACE
    _decide_older(category, producers, lifetimes)
    return category


def _find_held_parameters(passes: Passes, lifetimes: Lifetimes, held: Bool, category: U8, born: I64) -> I64:
    """Find parameters by their size: as large as a gradient, and no more of a size than gradients: int64[p].

    `held` bool[k]: never freed, and allocated before the first pass. Of more than there are gradients, the first ones
    are parameters: a model is built before its inputs.
    """
    gradients: I64 = np.flatnonzero((category == Category.GRADIENT) & (lifetimes.allocated_by != NONE))
    if not len(gradients):
        return gradients
    within = passes.find_pass(born[gradients], Phase.BACKWARD)
    fullest = np.bincount(within).argmax()
    sizes, counts = np.unique(lifetimes.bytes[gradients[within == fullest]], return_counts=True)
    rows = np.flatnonzero(held & is_in(lifetimes.bytes, sizes))
    rows = rows[np.lexsort((born[rows], category[rows] != Category.PARAMETER, lifetimes.bytes[rows]))]
    size = lifetimes.bytes[rows]
    rank = np.arange(len(rows)) - np.searchsorted(size, size)
    return rows[rank < counts[np.searchsorted(sizes, size)]]


def _decide_older(category: U8, producers: Producers, lifetimes: Lifetimes) -> None:
    """Decide what is older than the recording by where it is freed."""
    rows = np.flatnonzero(lifetimes.allocated_by == NONE)
    if not len(rows):
        return
    freed_by = lifetimes.freed_by[rows]
    trace = producers.trace
    zero_grad = find_nearest_or_self(
        trace.parent, producers.owner[freed_by], match_name_prefix(trace, ZERO_GRAD_PREFIX)
    )
    phase = producers.find_phases(freed_by)
    category[rows] = np.select(
        [zero_grad != NONE, phase == Phase.BACKWARD],
        [np.uint8(Category.GRADIENT), np.uint8(Category.ACTIVATION)],
        np.uint8(Category.UNKNOWN),
    )


def _create_inputs(producers: Producers, records: I64) -> Bool:
    """Test which records allocate inputs, by what is around them outside of all modules: bool[r]."""
    trace = producers.trace
    op = producers.find_ops(records)
    owner = producers.owner[records].astype(np.int64)
    if not len(trace):
        return np.zeros(len(records), np.bool_)

    def is_within(events: I64, mask: Bool) -> Bool:
        return np.asarray(find_nearest_or_self(trace.parent, events, mask) != NONE)

    creates = is_within(op, match_names(trace, FACTORY_OPS.__contains__)) | find_host_copies(trace)[op]
    loads = is_within(owner, match_name_prefix(trace, _LOADER_FILES, _LOADER_ANNOTATION))
    in_module = is_within(owner, match_name_prefix(trace, MODULE_CALL_PREFIX, _MODULE_FILES))
    return np.asarray((op != NONE) & (creates | loads) & ~in_module)


def _create_parameters(producers: Producers, records: I64, died: I64) -> Bool:
    """Test which records are allocated by nn.Module's code and outlive it: bool[r]. `died` int64[r], ns."""
    trace = producers.trace
    owner = producers.owner[records].astype(np.int64)
    created = np.zeros(len(records), np.bool_)
    known = np.flatnonzero(owner != NONE)
    is_code = match_name_prefix(trace, _MODULE_FILES)
    frame = find_outermost_ancestor(trace.parent, owner[known], is_code)
    frame = np.where((frame == NONE) & is_code[owner[known]], owner[known], frame)
    end = np.where(frame != NONE, (trace.start + trace.duration)[frame], FOREVER)
    created[known] = (frame != NONE) & (died[known] > end)
    return created


def find_host_copies(trace: Trace) -> Bool:
    """Find the events that copy from the host to a device, with all that is around their launches: bool[n]."""
    copies = np.flatnonzero((trace.kind == Kind.COPY) & match_names(trace, is_to_device))
    launches = trace.links.launch_of[copies]
    mask = np.zeros(len(trace), np.bool_)
    mask[launches[launches != NONE]] = True
    return np.asarray(include_ancestors(trace.parent, mask) & (trace.kind == Kind.OP))
