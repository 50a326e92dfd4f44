"""How many blocks of a kernel fit on one multiprocessor, what stops more, and what would let one more in.

Theoretical occupancy as the CUDA occupancy calculator defines it: the blocks that an SM can hold at once, times their
warps, over the warps that it could hold. Four limits, the smallest one counts (CUDA C++ Programming Guide, "Compute
Capabilities", table "Technical Specifications per Compute Capability", and the CUDA toolkit's `cuda_occupancy.h`):

    warps           floor(warps per SM / warps of the block)
    registers       registers are given to warps, `threads x registers` rounded up to 256, out of one quarter of the
                    SM's registers (each of the four sub-partitions has its own)
    shared memory   the block's bytes and 1 KB that the system reserves (since 8.0), rounded up to 128 bytes (256
                    before 8.0), out of the SM's largest carve-out
    blocks          a fixed number for the capability

What depends on the run is read from the trace's `deviceProperties`; what no trace carries comes from the table here.
On AMD, traces have neither registers nor static shared memory, so those limits are None: unknown, not unlimited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

KIB = 1024


@dataclass(frozen=True, slots=True)
class CapabilityLimits:
    """One column of the table of technical specifications. Bytes, and numbers per SM."""

    max_blocks: int
    max_threads: int
    shared_memory: int
    shared_memory_granularity: int = 128
    reserved_shared_memory: int = KIB  # per block; not in `shared memory` of a trace
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

REGISTER_GRANULARITY = 256
"""Registers are handed to a warp in units of 256 on every capability in the table."""

ASSUMED_SUB_PARTITIONS = 4
"""Sub-partitions that the check at launch reckons with, whatever the SM has (`cuda_occupancy.h`)."""

MAX_REGISTERS_PER_THREAD = 255
"""A thread cannot use more."""

LIMIT_NAMES = ("warps", "registers", "shared_memory", "blocks")


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU as `deviceProperties` describes it; None for what neither the trace nor the table says."""

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


def parse_device(properties: Mapping[str, Any]) -> Device:
    """One entry of `deviceProperties`. Missing fields (old torch, other vendors) fall back to the table, else None.

    AMD is told by its own key or a wavefront of 64: its compute capability (9.4 for an MI300X) is no CUDA one.
    """

    def number(*keys: str) -> int | None:
        for key in keys:
            value = properties.get(key)
            if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
                return int(value)
        return None

    warp_size = number("warpSize") or 32
    amd = "maxSharedMemoryPerMultiProcessor" in properties or warp_size == 64
    major, minor = number("computeMajor"), properties.get("computeMinor")
    capability = (major, int(minor)) if major is not None and isinstance(minor, int) else None
    table = None if amd or capability is None else CAPABILITY_LIMITS.get(capability)
    return Device(
        name=str(properties.get("name") or ""),
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


@dataclass(frozen=True, slots=True)
class LaunchConfig:
    """What a kernel asks of each SM. None for what the trace does not say."""

    threads_per_block: int  # of a block
    registers_per_thread: int | None  # of a thread
    shared_memory: int | None  # bytes of a block, static and dynamic, as traces record them
    grid_blocks: int | None = None  # of the grid
    min_shared_memory: int | None = None  # of which `shared_memory` is not known, but this much is


@dataclass(frozen=True, slots=True)
class Occupancy:
    """`limits` has an entry for each of LIMITS, None where it cannot be known, which leaves the rest None as well.

    `at_most` is the bound by what is known. `waves` = grid / (SMs x blocks per SM). `tail_waste` is the share of
    block slots over all started waves that stay empty; `idle_sms` those that no block of the grid ever reaches.
    """

    warps_per_block: int
    limits: dict[str, int | None]
    active_blocks: int | None
    active_warps: int | None
    max_warps: int | None
    fraction: float | None  # 0..1
    limited_by: tuple[str, ...]  # all that tie
    active_blocks_bound: int | None
    waves: float | None = None
    tail_waste: float | None = None
    idle_sms: int | None = None


def compute_occupancy(device: Device, launch: LaunchConfig) -> Occupancy:
    """The calculator. A launch that cannot run on the device has 0 active blocks."""
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
    complete = len(known) == len(limits)
    if not complete and launch.min_shared_memory and device.shared_memory:
        known.append(device.shared_memory // launch.min_shared_memory)
    at_most = min(known) if known else None
    active = at_most if complete else None
    max_warps = device.max_warps
    waves = tail = None
    if active and launch.grid_blocks and device.sms:
        waves = launch.grid_blocks / (device.sms * active)
        tail = 1 - waves / ceil(waves)
    return Occupancy(
        warps_per_block=warps,
        limits=limits,
        active_blocks=active,
        active_warps=None if active is None else active * warps,
        max_warps=max_warps,
        fraction=None if active is None or not max_warps else active * warps / max_warps,
        limited_by=tuple(name for name in LIMIT_NAMES if limits[name] == active) if complete else (),
        active_blocks_bound=at_most,
        waves=waves,
        tail_waste=tail,
        idle_sms=None if not launch.grid_blocks or device.sms is None else max(0, device.sms - launch.grid_blocks),
    )


def _compute_register_limit(device: Device, launch: LaunchConfig, warps: int) -> int | None:
    table = device.capability_limits
    if table is None or launch.registers_per_thread is None or device.registers is None:
        return None
    if launch.registers_per_thread > MAX_REGISTERS_PER_THREAD + 1:  # 256 is what tools report for a full allocation
        return 0
    per_warp = _round_up(launch.registers_per_thread * device.warp_size, REGISTER_GRANULARITY)
    # The check at launch assumes that a block takes the same from every sub-partition, and four of them also on 6.0,
    # so that what runs there runs on the rest of its family.
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
    used = launch.shared_memory + table.reserved_shared_memory
    allocated = _round_up(used, table.shared_memory_granularity)
    most = device.shared_memory_per_block
    if most is not None and allocated > most + table.reserved_shared_memory:
        return 0
    # A block that uses none, where none is reserved, is not limited: no more than the blocks limit is worth showing.
    return device.shared_memory // allocated if allocated else table.max_blocks


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


@dataclass(frozen=True, slots=True)
class OccupancyChange:
    """One thing changed, nothing else, and what the calculator says then."""

    parameter: str  # "registers", "shared_memory", "block"
    before: int
    after: int
    active_blocks: int
    occupancy: float


def find_occupancy_changes(device: Device, launch: LaunchConfig) -> tuple[OccupancyChange, ...]:
    """The nearest change of each kind that raises occupancy, the smallest relative change first.

    Fewer registers a thread and less shared memory a block must fit one more block; another block size (a multiple
    of the warp size, registers a thread and shared memory a block as they are) must hold more warps. Each is the
    calculator's own answer to the changed launch. Empty where nothing helps, or limits are unknown.
    """
    now = compute_occupancy(device, launch)
    if (
        not now.active_blocks
        or now.fraction is None
        or launch.registers_per_thread is None
        or launch.shared_memory is None
    ):
        return ()
    registers, shared = launch.registers_per_thread, launch.shared_memory
    found = [
        _find_first_improvement(
            device,
            now,
            "registers",
            registers,
            range(registers - 1, 0, -1),
            lambda n: LaunchConfig(launch.threads_per_block, n, shared, launch.grid_blocks),
        ),
        _find_first_improvement(
            device,
            now,
            "shared_memory",
            shared,
            _list_shared_memory_candidates(device, now, shared),
            lambda n: LaunchConfig(launch.threads_per_block, registers, n, launch.grid_blocks),
        ),
        _find_first_improvement(
            device,
            now,
            "block",
            launch.threads_per_block,
            _list_block_size_candidates(device, launch.threads_per_block),
            lambda n: LaunchConfig(n, registers, shared, None),
        ),
    ]
    changes = [change for change in found if change is not None]
    return tuple(sorted(changes, key=lambda change: abs(change.after - change.before) / change.before))


def _find_first_improvement(
    device: Device,
    now: Occupancy,
    parameter: str,
    before: int,
    candidates: Iterable[int],
    launch: Callable[[int], LaunchConfig],
) -> OccupancyChange | None:
    """The first candidate that the calculator says is better."""
    for candidate in candidates:
        then = compute_occupancy(device, launch(candidate))
        if not then.active_blocks or then.fraction is None or now.fraction is None:
            continue
        if then.fraction > now.fraction and (parameter == "block" or then.active_blocks > (now.active_blocks or 0)):
            return OccupancyChange(parameter, before, candidate, then.active_blocks, then.fraction)
    return None


def _list_shared_memory_candidates(device: Device, now: Occupancy, shared: int) -> tuple[int, ...]:
    """The most that a block may use for one more of them to fit, where it uses more."""
    table = device.capability_limits
    if table is None or device.shared_memory is None or now.active_blocks is None:
        return ()
    share = device.shared_memory // (now.active_blocks + 1)
    most = share // table.shared_memory_granularity * table.shared_memory_granularity - table.reserved_shared_memory
    return (most,) if 0 <= most < shared else ()


def _list_block_size_candidates(device: Device, threads: int) -> list[int]:
    """Block sizes of whole warps, nearest first, the smaller of two equally near ones first."""
    step = device.warp_size
    sizes = [size for size in range(step, device.max_threads_per_block + 1, step) if size != threads]
    return sorted(sizes, key=lambda size: (abs(size - threads), size))
