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
class Capability:
    """One column of the table of technical specifications. Bytes, and numbers per SM."""

    max_blocks: int
    max_threads: int
    shared_memory: int
    shared_memory_granularity: int = 128
    reserved_shared_memory: int = KIB  # per block; not in `shared memory` of a trace
    sub_partitions: int = 4


_OLDER = {"shared_memory_granularity": 256, "reserved_shared_memory": 0}
CAPABILITIES: dict[tuple[int, int], Capability] = {
    (6, 0): Capability(32, 2048, 64 * KIB, 256, 0, sub_partitions=2),
    (6, 1): Capability(32, 2048, 96 * KIB, **_OLDER),
    (6, 2): Capability(32, 2048, 64 * KIB, **_OLDER),
    (7, 0): Capability(32, 2048, 96 * KIB, **_OLDER),
    (7, 2): Capability(32, 2048, 96 * KIB, **_OLDER),
    (7, 5): Capability(16, 1024, 64 * KIB, **_OLDER),
    (8, 0): Capability(32, 2048, 164 * KIB),
    (8, 6): Capability(16, 1536, 100 * KIB),
    (8, 7): Capability(16, 1536, 164 * KIB),
    (8, 9): Capability(24, 1536, 100 * KIB),
    (9, 0): Capability(32, 2048, 228 * KIB),
    (10, 0): Capability(32, 2048, 228 * KIB),
    (10, 1): Capability(24, 1536, 228 * KIB),
    (10, 3): Capability(32, 2048, 228 * KIB),
    (11, 0): Capability(24, 1536, 228 * KIB),
    (12, 0): Capability(24, 1536, 100 * KIB),
    (12, 1): Capability(24, 1536, 100 * KIB),
}

REGISTER_GRANULARITY = 256
"""Registers are handed to a warp in units of 256 on every capability in the table."""

ASSUMED_PARTITIONS = 4
"""Sub-partitions that the check at launch reckons with, whatever the SM has (`cuda_occupancy.h`)."""

MAX_REGISTERS = 255
"""A thread cannot use more."""

LIMITS = ("warps", "registers", "shared_memory", "blocks")


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU as `deviceProperties` describes it; None for what neither the trace nor the table says."""

    name: str
    vendor: str  # "NVIDIA", "AMD"
    capability: tuple[int, int] | None
    table: Capability | None
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


def device_of(properties: Mapping[str, Any]) -> Device:
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
    table = None if amd or capability is None else CAPABILITIES.get(capability)
    return Device(
        name=str(properties.get("name") or ""),
        vendor="AMD" if amd else "NVIDIA",
        capability=capability,
        table=table,
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
class Launch:
    """What a kernel asks of each SM. None for what the trace does not say."""

    threads: int  # of a block
    registers: int | None  # of a thread
    shared_memory: int | None  # bytes of a block, static and dynamic, as traces record them
    blocks: int | None = None  # of the grid
    least_shared_memory: int | None = None  # of which `shared_memory` is not known, but this much is


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
    occupancy: float | None  # 0..1
    limited_by: tuple[str, ...]  # all that tie
    at_most: int | None
    waves: float | None = None
    tail_waste: float | None = None
    idle_sms: int | None = None


def occupancy(device: Device, launch: Launch) -> Occupancy:
    """The calculator. A launch that cannot run on the device has 0 active blocks."""
    warps = ceil(launch.threads / device.warp_size)
    limits = {
        "warps": None if device.max_warps is None else device.max_warps // warps,
        "registers": _register_limit(device, launch, warps),
        "shared_memory": _shared_memory_limit(device, launch),
        "blocks": device.table.max_blocks if device.table else None,
    }
    if launch.threads > device.max_threads_per_block:
        limits["warps"] = 0
    known = [limit for limit in limits.values() if limit is not None]
    complete = len(known) == len(limits)
    if not complete and launch.least_shared_memory and device.shared_memory:
        known.append(device.shared_memory // launch.least_shared_memory)
    at_most = min(known) if known else None
    active = at_most if complete else None
    max_warps = device.max_warps
    waves = tail = None
    if active and launch.blocks and device.sms:
        waves = launch.blocks / (device.sms * active)
        tail = 1 - waves / ceil(waves)
    return Occupancy(
        warps_per_block=warps,
        limits=limits,
        active_blocks=active,
        active_warps=None if active is None else active * warps,
        max_warps=max_warps,
        occupancy=None if active is None or not max_warps else active * warps / max_warps,
        limited_by=tuple(name for name in LIMITS if limits[name] == active) if complete else (),
        at_most=at_most,
        waves=waves,
        tail_waste=tail,
        idle_sms=None if not launch.blocks or device.sms is None else max(0, device.sms - launch.blocks),
    )


def _register_limit(device: Device, launch: Launch, warps: int) -> int | None:
    table = device.table
    if table is None or launch.registers is None or device.registers is None:
        return None
    if launch.registers > MAX_REGISTERS + 1:  # 256 is what tools report for a full allocation
        return 0
    per_warp = _round_up(launch.registers * device.warp_size, REGISTER_GRANULARITY)
    # The check at launch assumes that a block takes the same from every sub-partition, and four of them also on 6.0,
    # so that what runs there runs on the rest of its family.
    assumed = per_warp * _round_up(warps, ASSUMED_PARTITIONS)
    if device.registers_per_block is not None and assumed > device.registers_per_block:
        return 0
    if per_warp == 0:
        return (device.max_warps or 0) // warps
    return device.registers // table.sub_partitions // per_warp * table.sub_partitions // warps


def _shared_memory_limit(device: Device, launch: Launch) -> int | None:
    table = device.table
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
class Change:
    """One thing changed, nothing else, and what the calculator says then."""

    what: str  # "registers", "shared_memory", "block"
    before: int
    after: int
    active_blocks: int
    occupancy: float


def what_if(device: Device, launch: Launch) -> tuple[Change, ...]:
    """The nearest change of each kind that raises occupancy, the smallest relative change first.

    Fewer registers a thread and less shared memory a block must fit one more block; another block size (a multiple
    of the warp size, registers a thread and shared memory a block as they are) must hold more warps. Each is the
    calculator's own answer to the changed launch. Empty where nothing helps, or limits are unknown.
    """
    now = occupancy(device, launch)
    if not now.active_blocks or now.occupancy is None or launch.registers is None or launch.shared_memory is None:
        return ()
    registers, shared = launch.registers, launch.shared_memory
    found = [
        _first(
            device,
            now,
            "registers",
            registers,
            range(registers - 1, 0, -1),
            lambda n: Launch(launch.threads, n, shared, launch.blocks),
        ),
        _first(
            device,
            now,
            "shared_memory",
            shared,
            _smaller_shared_memory(device, now, shared),
            lambda n: Launch(launch.threads, registers, n, launch.blocks),
        ),
        _first(
            device,
            now,
            "block",
            launch.threads,
            _other_blocks(device, launch.threads),
            lambda n: Launch(n, registers, shared, None),
        ),
    ]
    changes = [change for change in found if change is not None]
    return tuple(sorted(changes, key=lambda change: abs(change.after - change.before) / change.before))


def _first(
    device: Device, now: Occupancy, what: str, before: int, candidates: Iterable[int], launch: Callable[[int], Launch]
) -> Change | None:
    """The first candidate that the calculator says is better."""
    for candidate in candidates:
        then = occupancy(device, launch(candidate))
        if not then.active_blocks or then.occupancy is None or now.occupancy is None:
            continue
        if then.occupancy > now.occupancy and (what == "block" or then.active_blocks > (now.active_blocks or 0)):
            return Change(what, before, candidate, then.active_blocks, then.occupancy)
    return None


def _smaller_shared_memory(device: Device, now: Occupancy, shared: int) -> tuple[int, ...]:
    """The most that a block may use for one more of them to fit, where it uses more."""
    table = device.table
    if table is None or device.shared_memory is None or now.active_blocks is None:
        return ()
    share = device.shared_memory // (now.active_blocks + 1)
    most = share // table.shared_memory_granularity * table.shared_memory_granularity - table.reserved_shared_memory
    return (most,) if 0 <= most < shared else ()


def _other_blocks(device: Device, threads: int) -> list[int]:
    """Block sizes of whole warps, nearest first, the smaller of two equally near ones first."""
    step = device.warp_size
    sizes = [size for size in range(step, device.max_threads_per_block + 1, step) if size != threads]
    return sorted(sizes, key=lambda size: (abs(size - threads), size))
