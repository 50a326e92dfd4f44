"""Compute theoretical occupancy: how many blocks of a kernel fit on an SM, the limiting resource, and improvements.

Theoretical occupancy as the CUDA occupancy calculator defines it: the blocks that an SM can hold at once, times their
warps, over the warps that it could hold. Four limits, the smallest one decides (CUDA C++ Programming Guide, "Compute
Capabilities", table "Technical Specifications per Compute Capability", and the CUDA toolkit's `cuda_occupancy.h`):

    warps           floor(warps per SM / warps of the block)
    registers       registers are allocated per warp, `threads x registers` rounded up to 256, from one quarter of the
                    SM's registers (each of the four sub-partitions has its own)
    shared memory   the block's bytes plus 1 KB reserved by the system (since 8.0), rounded up to 128 bytes (256
                    before 8.0), from the SM's largest carve-out
    blocks          a fixed number for the capability

Values of the GPU are read from the trace's `deviceProperties`; values that no trace has come from the table here.
AMD traces have neither registers nor static shared memory, so those limits are None: unknown, not unlimited.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import ceil

from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.trace_metadata import DeviceProperties

KIB = 1024


@record
class CapabilityLimits:
    """One column of the table of technical specifications. Bytes, and numbers per SM."""

    max_blocks: int
    max_threads: int
    shared_memory: int
    shared_memory_granularity: int = 128
    reserved_shared_memory: int = KIB  # per block; not included in `shared memory` of a trace
    sub_partitions: int = 4


_PRE_AMPERE_RULES = {"shared_memory_granularity": 256, "reserved_shared_memory": 0}
CAPABILITY_LIMITS: dict[tuple[int, int], CapabilityLimits] = {
    (6, 0): CapabilityLimits(32, 2048, 64 * KIB, 256, 0, sub_partitions=2),
    (6, 1): CapabilityLimits(32, 2048, 96 * KIB, **_PRE_AMPERE_RULES),
    (6, 2): CapabilityLimits(32, 2048, 64 * KIB, **_PRE_AMPERE_RULES),
    (7, 0): CapabilityLimits(32, 2048, 96 * KIB, **_PRE_AMPERE_RULES),
    (7, 2): CapabilityLimits(32, 2048, 96 * KIB, **_PRE_AMPERE_RULES),
    (7, 5): CapabilityLimits(16, 1024, 64 * KIB, **_PRE_AMPERE_RULES),
    (8, 0): CapabilityLimits(32, 2048, 164 * KIB),
    (8, 6): CapabilityLimits(16, 1536, 100 * KIB),
    (8, 7): CapabilityLimits(16, 1536, 164 * KIB),
    (8, 9): CapabilityLimits(24, 1536, 100 * KIB),
    (9, 0): CapabilityLimits(32, 2048, 228 * KIB),
    (10, 0): CapabilityLimits(32, 2048, 228 * KIB),
    (10, 1): CapabilityLimits(24, 1536, 228 * KIB),
    (10, 3): CapabilityLimits(32, 2048, 228 * KIB),
    (11, 0): CapabilityLimits(24, 1536, 228 * KIB),
    (12, 0): CapabilityLimits(24, 1536, 100 * KIB),
    (12, 1): CapabilityLimits(24, 1536, 100 * KIB),
}

REGISTER_GRANULARITY = 256  # registers are allocated to a warp in units of 256 on every capability in the table

ASSUMED_SUB_PARTITIONS = 4  # sub-partitions that the check at launch assumes, regardless of the SM (`cuda_occupancy.h`)
MAX_REGISTERS_PER_THREAD = 255  # hardware limit of registers per thread

LIMIT_NAMES = ("warps", "registers", "shared_memory", "blocks")


@record
class Device:
    """A GPU as described by `deviceProperties`; None for values that are neither in the trace nor in the table."""

    name: str
    vendor: str  # "NVIDIA", "AMD"
    capability: tuple[int, int] | None
    capability_limits: CapabilityLimits | None
    sms: int | None  # compute units on AMD
    warp_size: int
    max_threads: int | None  # per SM
    max_threads_per_block: int
    registers: int | None  # per SM
    registers_per_block: int | None
    shared_memory: int | None  # per SM
    shared_memory_per_block: int | None  # with the opt-in

    @property
    def max_warps(self) -> int | None:
        return None if self.max_threads is None else self.max_threads // self.warp_size


def parse_device(properties: DeviceProperties) -> Device:
    """Parse one entry of `deviceProperties`. Missing fields (old torch, other vendors) come from the table, else None.

    AMD is recognized by its own key or a wavefront of 64: its compute capability (9.4 for an MI300X) is no CUDA one.
    """

    def number(*keys: str) -> int | None:
        for key in keys:
            value = properties.numbers.get(key)
            if value:
                return value
        return None

    warp_size = number("warpSize") or 32
    amd = "maxSharedMemoryPerMultiProcessor" in properties.numbers or warp_size == 64
    major, minor = number("computeMajor"), properties.numbers.get("computeMinor")
    capability = (major, minor) if major is not None and minor is not None else None
    table = None if amd or capability is None else CAPABILITY_LIMITS.get(capability)
    return Device(
        name=properties.name,
        vendor="AMD" if amd else "NVIDIA",
        capability=capability,
        capability_limits=table,
        sms=number("numSms"),
        warp_size=warp_size,
        max_threads=number("maxThreadsPerMultiprocessor") or (table.max_threads if table else None),
        max_threads_per_block=number("maxThreadsPerBlock") or 1024,
        registers=number("regsPerMultiprocessor") or (64 * KIB if table else None),
        registers_per_block=number("regsPerBlock") or (64 * KIB if table else None),
        shared_memory=number("sharedMemPerMultiprocessor", "maxSharedMemoryPerMultiProcessor")
        or (table.shared_memory if table else None),
        shared_memory_per_block=number("sharedMemPerBlockOptin", "sharedMemPerBlock"),
    )


@record
class LaunchConfig:
    """Resources that a kernel needs on each SM; None for values that the trace does not have."""

    threads_per_block: int
    registers_per_thread: int | None
    shared_memory: int | None  # bytes per block, static and dynamic, as in traces
    grid_blocks: int | None = None
    min_shared_memory: int | None = None  # lower bound in bytes if `shared_memory` is unknown


@record
class Occupancy:
    """Theoretical occupancy of a launch.

    `limits`: blocks per SM for each of LIMIT_NAMES; None if unknown, and then the values derived from all of them are
    None as well. `active_blocks_bound`: upper bound by the known limits. `waves` = grid / (SMs x blocks per SM).
    `tail_waste`: share of block slots over all started waves that stay empty. `idle_sms`: SMs that get no block of the
    grid.
    """

    warps_per_block: int
    limits: dict[str, int | None]
    active_blocks: int | None
    active_warps: int | None
    max_warps: int | None
    fraction: float | None  # 0..1
    limited_by: tuple[str, ...]  # all limits that tie
    active_blocks_bound: int | None
    waves: float | None = None
    tail_waste: float | None = None
    idle_sms: int | None = None

    @property
    def limits_text(self) -> str:
        """What limits it. A grid of less than one wave comes first: then no SM gets the blocks that would fit."""
        text = " and ".join(name.replace("_", " ") for name in self.limited_by) or "nothing"
        if self.waves is None or self.waves >= 1:
            return text
        return f"the grid ({f'{self.waves:.2f}' if self.waves >= 0.01 else '<0.01'} waves), then {text}"

    @property
    def last_wave_fill(self) -> float | None:
        """How full the last wave is, above 0 to 1: 31.03 waves end with one that is 3 % full. None if unknown."""
        return None if self.waves is None else self.waves - (ceil(self.waves) - 1)


def compute_occupancy(device: Device, launch: LaunchConfig) -> Occupancy:
    """Compute the theoretical occupancy of a launch. A launch that cannot run on the device has 0 active blocks."""
    warps = ceil(launch.threads_per_block / device.warp_size)
    limits = {
        "warps": None if device.max_warps is None else device.max_warps // warps,
        "registers": _compute_register_limit(device, launch, warps),
        "shared_memory": _compute_shared_memory_limit(device, launch),
        "blocks": device.capability_limits.max_blocks if device.capability_limits else None,
    }
    if launch.threads_per_block > device.max_threads_per_block:
        limits["warps"] = 0
    known = [limit for limit in limits.values() if limit is not None]
    all_known = len(known) == len(limits)
    if not all_known and launch.min_shared_memory and device.shared_memory:
        known.append(device.shared_memory // launch.min_shared_memory)
    bound = min(known) if known else None
    active_blocks = bound if all_known else None
    active_warps = None if active_blocks is None else active_blocks * warps
    max_warps = device.max_warps
    waves = _compute_waves(device, launch, active_blocks)
    return Occupancy(
        warps_per_block=warps,
        limits=limits,
        active_blocks=active_blocks,
        active_warps=active_warps,
        max_warps=max_warps,
        fraction=None if active_warps is None or not max_warps else active_warps / max_warps,
        limited_by=tuple(name for name in LIMIT_NAMES if limits[name] == active_blocks) if all_known else (),
        active_blocks_bound=bound,
        waves=waves,
        tail_waste=None if waves is None else 1 - waves / ceil(waves),
        idle_sms=None if not launch.grid_blocks or device.sms is None else max(0, device.sms - launch.grid_blocks),
    )


def _compute_waves(device: Device, launch: LaunchConfig, active_blocks: int | None) -> float | None:
    """Compute how often the grid fills all SMs; None if a value is unknown or the launch cannot run."""
    if not active_blocks or not launch.grid_blocks or not device.sms:
        return None
    return launch.grid_blocks / (device.sms * active_blocks)


def _compute_register_limit(device: Device, launch: LaunchConfig, warps: int) -> int | None:
    table = device.capability_limits
    if table is None or launch.registers_per_thread is None or device.registers is None:
        return None
    if launch.registers_per_thread > MAX_REGISTERS_PER_THREAD + 1:  # 256 is what tools report for a full allocation
        return 0
    per_warp = _round_up(launch.registers_per_thread * device.warp_size, REGISTER_GRANULARITY)
    # The check at launch assumes that a block takes the same from every sub-partition, and assumes four of them also
    # on 6.0, so that a kernel that runs there runs on the whole family.
    assumed = per_warp * _round_up(warps, ASSUMED_SUB_PARTITIONS)
    if device.registers_per_block is not None and assumed > device.registers_per_block:
        return 0
    if per_warp == 0:
        return (device.max_warps or 0) // warps
    return device.registers // table.sub_partitions // per_warp * table.sub_partitions // warps


def _compute_shared_memory_limit(device: Device, launch: LaunchConfig) -> int | None:
    table = device.capability_limits
    if table is None or launch.shared_memory is None or device.shared_memory is None:
        return None
    requested = launch.shared_memory + table.reserved_shared_memory
    allocated = _round_up(requested, table.shared_memory_granularity)
    max_per_block = device.shared_memory_per_block
    if max_per_block is not None and allocated > max_per_block + table.reserved_shared_memory:
        return 0
    # A block without shared memory, used or reserved, is not limited by it: report the limit of blocks.
    return device.shared_memory // allocated if allocated else table.max_blocks


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


@record
class OccupancyChange:
    """A change of one launch parameter and the resulting occupancy."""

    parameter: str  # "registers", "shared_memory", "block"
    before: int
    after: int
    active_blocks: int
    occupancy: float


def find_occupancy_changes(device: Device, launch: LaunchConfig) -> tuple[OccupancyChange, ...]:
    """Find the nearest change of each parameter that raises occupancy, smallest relative change first.

    Fewer registers per thread or less shared memory per block must fit one more block; another block size (a multiple
    of the warp size, registers per thread and shared memory per block unchanged) must hold more warps. Each change is
    computed with `compute_occupancy`. Empty if nothing helps, or limits are unknown.
    """
    now = compute_occupancy(device, launch)
    registers, shared, threads = launch.registers_per_thread, launch.shared_memory, launch.threads_per_block
    table = device.capability_limits
    if not now.active_blocks or now.fraction is None or table is None or device.shared_memory is None:
        return ()
    if registers is None or shared is None:
        return ()
    unit = table.shared_memory_granularity
    # The largest size with which one more block fits.
    fitting = device.shared_memory // (now.active_blocks + 1) // unit * unit - table.reserved_shared_memory
    warp_sizes = range(device.warp_size, device.max_threads_per_block + 1, device.warp_size)
    candidates: dict[str, tuple[str, Iterable[int]]] = {
        "registers": ("registers_per_thread", range(registers - 1, 0, -1)),
        "shared_memory": ("shared_memory", (fitting,) if 0 <= fitting < shared else ()),
        "block": ("threads_per_block", sorted(warp_sizes, key=lambda size: (abs(size - threads), size))),
    }
    changes = []
    for parameter, (attribute, values) in candidates.items():
        for value in values:
            changed = compute_occupancy(device, replace(launch, **{attribute: value}))
            blocks, fraction = changed.active_blocks or 0, changed.fraction or 0.0
            if fraction > now.fraction and (parameter == "block" or blocks > now.active_blocks):
                changes.append(OccupancyChange(parameter, getattr(launch, attribute), value, blocks, fraction))
                break
    return tuple(sorted(changes, key=lambda change: abs(change.after - change.before) / change.before))
