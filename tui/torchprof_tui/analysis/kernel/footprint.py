"""Footprint of a kernel: the GPU resources it uses and its occupancy, for the footprint panel and `chain --json`.

The launch shape comes from the sparse columns; data needed for a single event is read from its args in the file. On
ROCm, kernels have at most grid and block; the other values are on the launching call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from math import ceil, isfinite, prod
from typing import Any

import numpy as np

from torchprof_tui.analysis.kernel.names.model import KernelClass, KernelName
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.analysis.kernel.occupancy import (
    LIMIT_NAMES,
    Device,
    LaunchConfig,
    Occupancy,
    OccupancyChange,
    compute_occupancy,
    find_occupancy_changes,
    parse_device,
)
from torchprof_tui.trace.core.arrays import is_in
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Trace


def measure_concurrent_share(trace: Trace, event: int) -> float:
    """Measure the share of an event's duration, 0..1, during which another kernel runs on its device.

    Copies do not count: they use no SM. 0 for an event without duration.
    """
    view = trace.event(event)
    start, end, lane = view.start, view.start + view.duration, view.lane
    if end <= start:
        return 0.0
    parts = [np.zeros(0, np.int64)]
    for other in trace.lanes:
        if other.role is Role.STREAM and (other.device, other.rank, other.pid) == (lane.device, lane.rank, lane.pid):
            before_end = int(np.searchsorted(trace.start[other.first : other.last], end))
            rows = np.arange(other.first, other.first + before_end)
            overlaps = (trace.start[rows] + trace.duration[rows] > start) & is_in(trace.kind[rows], KERNEL_KINDS)
            parts.append(rows[overlaps & (rows != event)])
    others = np.concatenate(parts)
    others = others[np.argsort(trace.start[others], kind="stable")]
    ends = np.minimum(trace.start[others] + trace.duration[others], end)
    # Of each count only the time after all earlier ones have ended.
    reached = np.maximum.accumulate(np.append(start, ends))[:-1]
    return int(np.maximum(ends - np.maximum(trace.start[others], reached), 0).sum()) / (end - start)


KERNEL_KINDS = (Kind.KERNEL, Kind.COLLECTIVE)

DEFAULT_SHARED_MEMORY = 48 * 1024  # bytes per block without opt-in. Kineto's estimate ignores the opt-in.

LOW_OCCUPANCY = 0.5
"""Occupancy below which an explanation helps: half of the warps is enough for most kernels to hide latency."""

LOW_BY_DESIGN_CLASSES = (KernelClass.GEMM, KernelClass.ATTENTION, KernelClass.CONV)
"""Their tiles are in registers and shared memory, and their pipelines hide latency inside the block."""

NOTABLE_TAIL_WASTE = 0.2  # minimum share of block slots left empty by the last wave for a note

NOTABLE_CONCURRENT_SHARE = 0.1
"""Share of the duration with another kernel on the device, from which idle SMs are not reported: the other kernel may
have them, often on purpose (20 SMs for the exchange of tokens, 112 for a matrix product)."""

_TRITON_LIBRARIES = ("torch.compile (Triton)", "Triton")
_LIBRARY_CLASSES = (KernelClass.GEMM, KernelClass.CONV, KernelClass.ATTENTION, KernelClass.COLLECTIVE)
"""Known kernels of these classes come from a library, also where the name does not give it."""

_LIBRARY_NAMESPACE = re.compile(r"\bat::|cudnn|cublas|cutlass|\bcub::|\bthrust::|\brocprim::|miopen|nccl")

Dim3 = tuple[int, int, int]


@record
class ReportedOccupancy:
    """Occupancy values that Kineto wrote for a kernel; None if absent."""

    occupancy: float | None = None  # `est. achieved occupancy %`, 0..100
    blocks_per_sm: float | None = None  # grid / SMs; inf in traces of devices that report no SMs
    active_blocks: int | None = None  # from the `occupancy` object, since 2026
    limits: Mapping[str, int] | None = None
    limited_by: tuple[str, ...] = ()


@record
class Footprint:
    """Footprint of one kernel. `occupancy` is None if the block size is unknown."""

    event: int
    kernel: KernelName
    duration: int  # ns
    device: Device | None
    grid: Dim3 | None  # in blocks, also on ROCm
    block: Dim3 | None
    registers: int | None  # per thread
    shared_memory: int | None  # bytes per block, static and dynamic
    dynamic_shared_memory: int | None  # set if the trace has only this part (ROCm)
    occupancy: Occupancy | None
    reported: ReportedOccupancy
    changes: tuple[OccupancyChange, ...]
    launched_by: str | None  # the runtime or driver call's name
    concurrent_share: float = 0.0  # of its duration, during which another kernel runs on the device
    notes: tuple[str, ...] = ()

    @property
    def threads_per_block(self) -> int | None:
        return prod(self.block) if self.block else None

    @property
    def block_count(self) -> int | None:
        return prod(self.grid) if self.grid else None

    @property
    def blocks_per_sm(self) -> float | None:
        """Blocks of the grid per SM, on average."""
        sms = self.device.sms if self.device else None
        return self.block_count / sms if self.block_count is not None and sms else None

    @property
    def agrees_with_kineto(self) -> bool | None:
        """Whether Kineto's `occupancy` object has the same active blocks; None without one."""
        active_blocks = self.occupancy.active_blocks if self.occupancy else None
        if self.reported.active_blocks is None or active_blocks is None:
            return None
        return self.reported.active_blocks == active_blocks

    def as_dict(self) -> dict[str, Any]:
        """Convert to `footprint` of `chain --json`. Occupancies in percent, as in traces."""
        occupancy = self.occupancy
        percent = None if occupancy is None or occupancy.fraction is None else round(100 * occupancy.fraction, 3)
        return {
            "grid": list(self.grid) if self.grid else None,
            "block": list(self.block) if self.block else None,
            "threads_per_block": self.threads_per_block,
            "registers_per_thread": self.registers,
            "shared_memory_bytes": self.shared_memory,
            "dynamic_shared_memory_bytes": self.dynamic_shared_memory,
            "blocks_per_sm_limit": dict(occupancy.limits) if occupancy else dict.fromkeys(LIMIT_NAMES),
            "active_blocks_per_sm": occupancy.active_blocks if occupancy else None,
            "active_warps_per_sm": occupancy.active_warps if occupancy else None,
            "theoretical_occupancy": percent,
            "limited_by": list(occupancy.limited_by) if occupancy else [],
            "reported_occupancy": self.reported.occupancy,
            "reported_active_blocks_per_sm": self.reported.active_blocks,
            "waves": occupancy.waves if occupancy else None,
            "tail_waste": occupancy.tail_waste if occupancy else None,
            "last_wave_fill": occupancy.last_wave_fill if occupancy else None,
            "idle_sms": occupancy.idle_sms if occupancy else None,
            "concurrent_share": round(self.concurrent_share, 4),
            "launch_is_fixed": not is_launch_adjustable(self.kernel),
            "what_if": [
                {
                    "change": change.parameter,
                    "from": change.before,
                    "to": change.after,
                    "active_blocks_per_sm": change.active_blocks,
                    "theoretical_occupancy": round(100 * change.occupancy, 3),
                }
                for change in self.changes
            ],
            "kernel_class": self.kernel.kernel_class.label,
            "decoded": self.kernel.as_dict(),
            "notes": list(self.notes),
        }


def compute_footprint(trace: Trace, event: int) -> Footprint | None:
    """Compute the footprint of a kernel or collective; None for any other event.

    Reads the values that Kineto reported from the file; if it cannot be read, only these are missing. Raises
    IndexError outside the trace.
    """
    view = trace.event(event)
    if view.kind not in KERNEL_KINDS:
        return None
    kernel = decode_kernel_name(view.name)
    call = int(trace.links.launch_of[event])
    device = find_device(trace, event)
    grid, block, launch = _read_launch(trace, event)
    occupancy: Occupancy | None = None
    changes: tuple[OccupancyChange, ...] = ()
    if launch is not None and device is not None:
        occupancy = compute_occupancy(device, launch)
        changes = find_occupancy_changes(device, launch) if is_launch_adjustable(kernel) else ()
    shared = read_column(trace, "shared_memory", event)
    footprint = Footprint(
        event=event,
        kernel=kernel,
        duration=view.duration,
        device=device,
        grid=grid,
        block=block,
        registers=read_column(trace, "registers", event),
        shared_memory=shared,
        dynamic_shared_memory=read_column(trace, "shared_memory", call) if shared is None and call >= 0 else None,
        occupancy=occupancy,
        reported=parse_reported_occupancy(read_args_if_readable(trace, event)),
        changes=changes,
        launched_by=trace.event(call).name if call >= 0 else None,
        concurrent_share=measure_concurrent_share(trace, event),
    )
    return replace(footprint, notes=build_notes(footprint))


def is_launch_adjustable(kernel: KernelName) -> bool:
    """Return whether the reader can change a kernel's block size and registers: own kernels and Triton's.

    Libraries (cuBLAS, CUTLASS, cuDNN, PyTorch, …) choose the launch by themselves.
    """
    if kernel.library is not None:
        return kernel.library in _TRITON_LIBRARIES
    if kernel.known:
        return kernel.kernel_class not in _LIBRARY_CLASSES
    return not _LIBRARY_NAMESPACE.search(kernel.name)


def find_occupancy(trace: Trace, event: int) -> Occupancy | None:
    """Compute the occupancy of a kernel from the columns alone, without its args in the file; None if unknown."""
    device = find_device(trace, event)
    launch = _read_launch(trace, event)[2]
    return None if device is None or launch is None else compute_occupancy(device, launch)


def _read_launch(trace: Trace, event: int) -> tuple[Dim3 | None, Dim3 | None, LaunchConfig | None]:
    """Read (grid in blocks, block, launch) of a kernel from the columns; the launch is None without a block."""
    call = int(trace.links.launch_of[event])
    block = _read_dim3(trace, "block", event, call)
    launched_by = trace.event(call).name if call >= 0 else None
    grid = grid_in_blocks(_read_dim3(trace, "grid", event, call), block, launched_by)
    if block is None or prod(block) <= 0:
        return grid, block, None
    shared = read_column(trace, "shared_memory", event)
    dynamic = read_column(trace, "shared_memory", call) if shared is None and call >= 0 else None
    registers = read_column(trace, "registers", event)
    return grid, block, LaunchConfig(prod(block), registers, shared, prod(grid) if grid else None, dynamic)


def find_device(trace: Trace, event: int) -> Device | None:
    """Find the GPU that an event ran on in `deviceProperties`; None if the trace does not describe it."""
    number = read_column(trace, "device", event)
    if number is None:
        number = trace.event(event).lane.device
    devices = trace.devices_of_event(event)
    for properties in devices:
        if properties.id == number:
            return parse_device(properties)
    # Nodes usually have one kind of GPU: if the event has no device number, any description applies.
    names = {properties.name for properties in devices}
    return parse_device(devices[0]) if len(names) == 1 and number is None else None


def grid_in_blocks(grid: Dim3 | None, block: Dim3 | None, launched_by: str | None) -> Dim3 | None:
    """Convert a grid to blocks. `hipExtModuleLaunchKernel` takes the grid in threads, and ROCm traces record it so.

    HIP API: "globalWorkSizeX: X grid dimension specified in work-items". MIOpen and Tensile kernels use that call.
    """
    if grid is None or launched_by is None or "ExtModuleLaunch" not in launched_by:
        return grid
    if block is None or any(size <= 0 for size in block):
        return None
    x, y, z = (-(-threads // size) for threads, size in zip(grid, block, strict=True))
    return x, y, z


_REPORTED_LIMITS = {
    "WARPS": ("warps", "blockLimitWarps"),
    "REGS": ("registers", "blockLimitRegs"),
    "SMEM": ("shared_memory", "blockLimitSharedMem"),
    "BLOCKS": ("blocks", "blockLimitBlocks"),
    "BARRIERS": ("barriers", "blockLimitBarriers"),
}
"""Limiting factor of Kineto → (our name of the limit, the key of its value)."""


def parse_reported_occupancy(args: Mapping[str, Any]) -> ReportedOccupancy:
    """Parse the occupancy values that Kineto wrote into a kernel's args."""
    computed = args.get("occupancy")
    computed = computed if isinstance(computed, Mapping) else {}
    limits = {
        name: value
        for name, key in _REPORTED_LIMITS.values()
        if (value := _parse_integer(computed.get(key))) is not None
    }
    factors = str(computed.get("limitingFactors") or "").split("|")
    return ReportedOccupancy(
        occupancy=_parse_float(args.get("est. achieved occupancy %")),
        blocks_per_sm=_parse_float(args.get("blocks per SM")),
        active_blocks=_parse_integer(computed.get("activeBlocksPerMultiprocessor")),
        limits=limits or None,
        limited_by=tuple(_REPORTED_LIMITS[factor][0] for factor in factors if factor in _REPORTED_LIMITS),
    )


def read_args_if_readable(trace: Trace, event: int) -> dict[str, Any]:
    """Read the args of an event from the file; {} if the file is gone or has changed."""
    try:
        return trace.event(event).read_args()
    except (OSError, LookupError):
        return {}


def _read_dim3(trace: Trace, column: str, event: int, call: int) -> Dim3 | None:
    """Read grid or block of the kernel, else of the call that launched it."""
    sparse = trace.args.get(column)
    if sparse is None:
        return None
    for row in (event, call):
        values = sparse.get(row) if row >= 0 else None
        if values is not None and len(values) == 3:
            x, y, z = (int(value) for value in values)
            return x, y, z
    return None


def read_column(trace: Trace, column: str, event: int) -> int | None:
    """Read a number of an event from a sparse column; None where it is missing or negative."""
    sparse = trace.args.get(column)
    value = sparse.get(event) if sparse is not None else None
    return None if value is None or int(value) < 0 else int(value)


def _parse_float(value: Any) -> float | None:
    """Parse numbers, and the "inf" and "NaN" that Kineto writes as text."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _parse_integer(value: Any) -> int | None:
    number = _parse_float(value)
    return None if number is None or not isfinite(number) else int(number)


def build_notes(footprint: Footprint) -> tuple[str, ...]:
    """Build the notes on a footprint, most important first; () if nothing is notable."""
    explanations = (
        _explain_reported_zero(footprint),
        _explain_low_occupancy(footprint),
        _explain_small_grid(footprint),
        _explain_tail(footprint),
        _explain_missing_data(footprint),
    )
    return tuple(filter(None, explanations))


def _explain_reported_zero(footprint: Footprint) -> str | None:
    """Explain 0%: Kineto writes min(resident blocks, grid / SMs) x threads / max threads, in whole percent."""
    if footprint.reported.occupancy != 0:
        return None
    if footprint.shared_memory is not None and footprint.shared_memory > DEFAULT_SHARED_MEMORY:
        size = footprint.shared_memory / 1024
        return (
            "The trace reports 0 % because its estimate allows a block at most 48 KiB of shared memory, and this one "
            f"uses {size:.0f} KiB: use the computed occupancy."
        )
    if footprint.blocks_per_sm is not None and footprint.blocks_per_sm < 1:
        return (
            f"The trace reports 0 % because the grid is tiny: {footprint.block_count} "
            f"{'block' if footprint.block_count == 1 else 'blocks'} over all SMs round to 0. It is "
            "no measure of the kernel's quality."
        )
    return None


def _explain_low_occupancy(footprint: Footprint) -> str | None:
    kernel = footprint.kernel
    fraction = footprint.occupancy.fraction if footprint.occupancy else None
    is_by_design = kernel.kernel_class in LOW_BY_DESIGN_CLASSES and kernel.tensor_core is not False
    if fraction is None or not 0 < fraction < LOW_OCCUPANCY or not is_by_design:
        return None
    label = {"gemm": "matrix product", "conv": "convolution"}.get(kernel.kernel_class.label, kernel.kernel_class.label)
    return (
        f"Low occupancy is intended in {'an' if label[0] in 'aeiou' else 'a'} {label} kernel: "
        "large tiles in registers and shared memory, with a pipeline inside the block that hides latency."
    )


def _explain_small_grid(footprint: Footprint) -> str | None:
    sms = footprint.device.sms if footprint.device else None
    idle = footprint.occupancy.idle_sms if footprint.occupancy else None
    if not idle or sms is None or footprint.concurrent_share >= NOTABLE_CONCURRENT_SHARE:
        return None
    unit = "compute unit" if footprint.device and footprint.device.vendor == "AMD" else "SM"
    blocks = footprint.block_count
    return f"The grid has {blocks} of the {sms} blocks that would give each {unit} one: {idle} {unit}s stay idle."


def _explain_tail(footprint: Footprint) -> str | None:
    occupancy = footprint.occupancy
    if occupancy is None or occupancy.waves is None or occupancy.tail_waste is None or occupancy.waves <= 1:
        return None
    if occupancy.tail_waste < NOTABLE_TAIL_WASTE:
        return None
    started_waves = ceil(occupancy.waves)
    return (
        f"{occupancy.waves:.2f} waves take as long as {started_waves}: the last one is "
        f"{occupancy.last_wave_fill:.0%} full, and {occupancy.tail_waste:.0%} of all slots stay empty."
    )


def _explain_missing_data(footprint: Footprint) -> str | None:
    """Explain which data the trace lacks, instead of guessing it."""
    if footprint.device is None:
        return "The trace does not describe this GPU: occupancy cannot be computed."
    if footprint.device.vendor == "AMD":
        missing = "ROCm traces contain no registers and no static shared memory: occupancy cannot be computed"
        max_blocks = footprint.occupancy.active_blocks_bound if footprint.occupancy else None
        if max_blocks is None:
            return f"{missing}."
        return f"{missing}, at most {max_blocks} workgroups fit a compute unit by their size."
    if footprint.block is None:
        return "The trace has no launch shape for this kernel."
    if footprint.device.capability_limits is None:
        capability = ".".join(map(str, footprint.device.capability or ())) or "unknown"
        return f"Compute capability {capability} is unknown to this version: its limits are not in the table."
    if footprint.registers is None or footprint.shared_memory is None:
        return "The trace lacks registers or shared memory for this kernel."
    if footprint.agrees_with_kineto is False:
        return (
            f"Kineto computed {footprint.reported.active_blocks} blocks per SM: "
            "it may use limits that are not in the trace, such as barriers."
        )
    return None
