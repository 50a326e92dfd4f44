"""Estimate how long each communication kernel waited for other ranks before its data moved.

Decided for each kernel by the first of these that applies:
- barriers and notifications move no payload: all of their time is waiting;
- "ranks": the traces of other ranks say when the last one arrived;
- "repeated sizes": the fastest runs of the same operation on the same group took no wait worth mentioning. A larger
  message never takes less time than a smaller one, nor has less bandwidth, so fast runs of other sizes bound a size;
- "link bandwidth": where even the fastest runs have less than a twentieth of the link's bandwidth, they waited as
  well: no protocol costs that much.

The estimates err on the side of transfer: where every run waited, the shortest wait is counted as transfer.

A rank arrives when its kernel of the collective starts; the kernel spins on the GPU until the last rank has arrived.
The rank with the latest start therefore delays all others, and the cause is what it does before.
"""

from __future__ import annotations

import re
from functools import cached_property

import numpy as np

from torchprof_tui.analysis.collectives.communication_records import (
    OPERATIONS,
    CommunicationRecords,
    compute_bus_factor,
)
from torchprof_tui.analysis.kernel.memory_transfer import find_pcie_bandwidth
from torchprof_tui.analysis.time.host_stalls import HostSpeed, HostStall, compare_host_speed, find_host_stalls
from torchprof_tui.analysis.time.intervals import Intervals, union
from torchprof_tui.analysis.time.kernel_speed import KernelSpeed, compare_kernel_speed
from torchprof_tui.trace.core.arrays import F64, I32, I64, U8, Bool, is_in, sorted_unique
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.text_enum import TextEnum
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.communication_kernels import WAITING_OPERATIONS, Operation
from torchprof_tui.trace.model.ranks import Ranks
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.model.trace_metadata import read_device_names

_NEVER = np.iinfo(np.int64).max


@record(slots=False)
class Arrivals:
    """Arrivals of r ranks at m collectives, on the common clock.

    `present` bool[m, r]: the ranks that took part. `start`, `end` int64[m, r], ns, 0 for ranks that did not. Only
    synchronizing collectives are included, not a broadcast, where ranks wait for the root only.
    `collective_index` int64[m]: index into `Ranks.matched_collectives`.
    """

    ranks: Ranks
    collective_index: I64
    present: Bool
    start: I64
    end: I64

    def __len__(self) -> int:
        return len(self.collective_index)

    @cached_property
    def first_start(self) -> I64:
        """int64[m]: ns, arrival of the first rank."""
        first: I64 = np.where(self.present, self.start, _NEVER).min(axis=1, initial=_NEVER)
        return first

    @cached_property
    def last_start(self) -> I64:
        """int64[m]: ns, arrival of the last rank."""
        last: I64 = np.where(self.present, self.start, -_NEVER).max(axis=1, initial=-_NEVER)
        return last

    @cached_property
    def last_rank(self) -> I64:
        """int64[m]: index of the rank that arrived last; the lowest if several tie."""
        rank_index: I64 = np.where(self.present, self.start, -_NEVER).argmax(axis=1)
        return rank_index

    @cached_property
    def late_by(self) -> I64:
        """int64[m]: ns between the last arrival and the one before it: the delay caused by the last rank alone."""
        if not len(self):
            return np.zeros(0, np.int64)
        ordered = np.sort(np.where(self.present, self.start, -_NEVER), axis=1)
        delay: I64 = ordered[:, -1] - ordered[:, -2]
        return delay

    @property
    def spread(self) -> I64:
        """int64[m]: ns between the first arrival and the last: the longest wait."""
        return self.last_start - self.first_start

    @cached_property
    def wait_times(self) -> I64:
        """int64[m, r]: ns that each rank waited for the last one; 0 for ranks that did not take part."""
        return np.where(self.present, self.last_start[:, None] - self.start, 0)

    @cached_property
    def host_stalls(self) -> list[HostStall]:
        """Places where one rank idles and the others do not."""
        return find_host_stalls(self.ranks)

    @cached_property
    def host_speed(self) -> HostSpeed:
        """How fast the ranks' hosts run the same ops."""
        return compare_host_speed(self.ranks)

    @cached_property
    def kernel_speed(self) -> KernelSpeed:
        """How fast the ranks' GPUs run the same kernels."""
        return compare_kernel_speed(self.ranks)

    def wait_intervals(self, rank_index: int, selected: Bool | None = None) -> Intervals:
        """Compute when a rank waited in the selected collectives (bool[m]; all by default)."""
        attended = self.present[:, rank_index] if selected is None else self.present[:, rank_index] & selected
        return union(self.start[attended, rank_index], self.last_start[attended])

    def select_events(self, selected: Bool, rank_index: int) -> I64:
        """Select the events of one rank in the selected collectives (bool[m]), numbered as in the rank's own trace."""
        events: I64 = self.ranks.matched_collectives.events[
            self.collective_index[selected & self.present[:, rank_index]], rank_index
        ].astype(np.int64)
        return events


def compute_arrivals(ranks: Ranks) -> Arrivals:
    """Compute the arrivals at all matched, synchronizing collectives, ordered by the first arrival."""
    collectives = ranks.matched_collectives
    index = np.flatnonzero(collectives.is_synchronizing).astype(np.int64)
    events: I32 = collectives.events[index]
    present = events >= 0
    start = np.zeros(events.shape, np.int64)
    end = np.zeros(events.shape, np.int64)
    for rank_index, rank in enumerate(ranks.all):
        attended = present[:, rank_index]
        rows = events[attended, rank_index]
        start[attended, rank_index] = rank.trace.start[rows]
        end[attended, rank_index] = start[attended, rank_index] + rank.trace.duration[rows]
    order = np.argsort(np.where(present, start, _NEVER).min(axis=1, initial=_NEVER), kind="stable")
    return Arrivals(ranks, index[order], present[order], start[order], end[order])


def describe_wait(trace: Trace, event: int) -> str:
    """Describe how much of a collective's event is the wait for the last rank; "" where that is not known."""
    ranks = trace.merged_ranks
    if ranks is None:
        return ""
    arrivals, rank_index = compute_arrivals(ranks), ranks.index_of_event(event)
    events = ranks.matched_collectives.events[arrivals.collective_index, rank_index]
    found = np.flatnonzero(arrivals.present[:, rank_index] & (events == event - ranks.all[rank_index].first))
    if not len(found):
        return ""
    row = int(found[0])
    wait = min(int(arrivals.wait_times[row, rank_index]), int(trace.duration[event]))
    last = ranks.all[int(arrivals.last_rank[row])].label
    if not wait:
        return f"for nobody: {last} arrives last, up to {format_duration(int(arrivals.spread[row]))} after the others"
    return f"{format_duration(wait)} of it for {last}, which arrives last"


_DIRECT_LINKS = (
    # NVIDIA's data sheets state both directions together; here is one: H100 900 / 2.
    (r"GB[23]00|\bB[23]00\b", 900),  # NVLink 5
    (r"H800", 200),
    (r"H100|H200|\bH20\b", 450),  # NVLink 4
    (r"A800", 200),
    (r"A100", 300),  # NVLink 3
    (r"V100", 150),  # NVLink 2
    (r"P100", 80),  # NVLink 1
    # AMD's data sheets: seven links to the other GPUs of a platform, 128 GB/s each in both directions.
    (r"MI3(00X|25X)", 448),
    (r"MI35[05]X", 538),
)
"""GB/s (10^9 bytes per second) in one direction of one GPU, from the vendors' data sheets. First match wins."""

_CARD = re.compile(r"PCI|H\d00 NVL")  # cards, which have no direct link, or a bridge to one other card only
_BEYOND_THE_HOST = re.compile(r"GB[23]00")  # devices whose direct link also joins hosts


def find_link_bandwidth(device_name: str, group_size: int, devices_of_host: int) -> float | None:
    """Find the bandwidth at which the GPUs of a group can exchange data: GB/s in one direction.

    None where it cannot be known: an unknown device, or a group of more ranks than the host has devices, whose data
    crosses a network. `devices_of_host`: 0 if unknown.
    """
    if devices_of_host and group_size > devices_of_host and not _BEYOND_THE_HOST.search(device_name):
        return None
    for pattern, bandwidth in _DIRECT_LINKS:
        if re.search(pattern, device_name) and not _CARD.search(device_name):
            return float(bandwidth)
    return find_pcie_bandwidth(device_name)


MIN_RUNS = 3  # runs of an operation on a group below which none can be called the usual one
MIN_UNSIZED_RUNS = 10  # the same for kernels of unknown size, which are told apart by name and launch shape

FASTEST_PERCENTILE = 10
"""The transfer of a size is estimated by this percentile of its runs: a single faster one may be a misread clock."""

LATE_BANDWIDTH_SHARE = 0.05
"""Below this share of the link's bandwidth a run has waited: PCI Express alone has 14 % of NVLink's."""

USUAL_BANDWIDTH_SHARE = 0.2
"""Share of the link's bandwidth that is assumed for such a run; messages of a few MB reach about that."""

MIN_LATE_TIME = 500_000
"""ns that a run judged by the link alone must take: launching and synchronizing a collective takes tens of µs."""


_GROUP_SIZE_BITS = 31  # bits of a group's size in a key of device and size


class WaitingSource(TextEnum):
    """How the wait of a kernel was decided."""

    RANKS = "ranks"
    REPEATED_SIZES = "repeated sizes"
    LINK_BANDWIDTH = "link bandwidth"
    OPERATION = "operation"  # barriers and notifications


SOURCES = tuple(WaitingSource)  # sources by number, for columns of them
UNDECIDED = len(SOURCES)  # the number of kernels whose wait is unknown; all of their time counts as transfer


@record
class Waits:
    """The wait at the start of each of k kernels: `time` int64[k] in ns, and `source` uint8[k], indexes into `SOURCES`
    or UNDECIDED."""

    time: I64
    source: U8

    def _decide(self, chosen: Bool, time: I64, source: WaitingSource) -> None:
        self.time[chosen] = np.maximum(time[chosen], 0)
        self.source[chosen] = SOURCES.index(source)


def estimate_waits(
    trace: Trace, records: CommunicationRecords, arrivals: Arrivals | None = None, rank_index: int = 0
) -> Waits:
    """Estimate the wait of each kernel of one rank. `arrivals`: of all ranks, None for a single one."""
    duration = np.asarray(trace.duration[records.events]).astype(np.int64)
    waits = Waits(np.zeros(len(records), np.int64), np.full(len(records), UNDECIDED, np.uint8))
    if not len(records):
        return waits
    is_waiting = records.operation_mask(*WAITING_OPERATIONS)
    waits._decide(is_waiting, duration, WaitingSource.OPERATION)
    if arrivals is not None:
        wait = np.full(len(records), -1, np.int64)
        present = arrivals.present[:, rank_index]
        matched = arrivals.ranks.matched_collectives.events[arrivals.collective_index[present], rank_index]
        index = np.searchsorted(records.events, matched)
        wait[index] = arrivals.wait_times[present, rank_index]
        waits._decide((wait >= 0) & ~is_waiting, np.minimum(wait, duration), WaitingSource.RANKS)
    transfer = np.minimum(_estimate_sized_transfers(records, duration), _estimate_unsized_transfers(trace, records))
    open_ = waits.source == UNDECIDED
    waits._decide(open_ & np.isfinite(transfer), _subtract_transfer(duration, transfer), WaitingSource.REPEATED_SIZES)
    # By the link, where even the fastest runs are far too slow for it.
    fastest = np.minimum(transfer, duration)
    bandwidth, link = measure_bus_bandwidth(records, fastest), find_link_bandwidths(trace, records)
    with np.errstate(invalid="ignore"):
        has_waited = (bandwidth < LATE_BANDWIDTH_SHARE * link) & (fastest >= MIN_LATE_TIME)
        needed: F64 = np.where(has_waited, fastest * bandwidth / (USUAL_BANDWIDTH_SHARE * link), np.inf)
    waits._decide(open_ & np.isfinite(needed), _subtract_transfer(duration, needed), WaitingSource.LINK_BANDWIDTH)
    return waits


def measure_bus_bandwidth(records: CommunicationRecords, duration: I64 | F64) -> F64:
    """Measure the bus bandwidth of each kernel over its whole time: GB/s float64[k], NaN where a size is unknown."""
    factor = np.full(len(records), np.nan)
    for number in sorted_unique(records.operation).tolist():
        chosen = records.operation == number
        factor[chosen] = compute_bus_factor(OPERATIONS[number], records.group_size[chosen])
    is_known = (records.bytes > 0) & (duration > 0)
    return np.where(is_known, records.bytes * factor / np.maximum(duration, 1), np.nan)


def find_link_bandwidths(trace: Trace, records: CommunicationRecords) -> F64:
    """Find the bandwidth of the link that each kernel used, one direction: GB/s float64[k], NaN where unknown."""
    names = read_device_names(trace.devices)
    key = records.device.astype(np.int64) << _GROUP_SIZE_BITS | records.group_size
    keys, back = np.unique(key, return_inverse=True)
    found = np.full(len(keys), np.nan)
    for number, (device, size) in enumerate(
        zip((keys >> _GROUP_SIZE_BITS).tolist(), (keys & (1 << _GROUP_SIZE_BITS) - 1).tolist(), strict=True)
    ):
        bandwidth = find_link_bandwidth(names.get(device, ""), size, len(trace.devices)) if size else None
        found[number] = np.nan if bandwidth is None else bandwidth
    out: F64 = found[back.reshape(-1)]
    return out


def _subtract_transfer(duration: I64, transfer: F64) -> I64:
    """Compute the part of each duration beyond the transfer; 0 where the transfer is unknown."""
    known = np.where(np.isfinite(transfer), transfer, duration)
    return np.maximum(duration - np.ceil(known).astype(np.int64), 0)


def _estimate_sized_transfers(records: CommunicationRecords, duration: I64) -> F64:
    """Estimate the time without waiting of each kernel of known size: ns float64[k], infinite where unknown."""
    transfer = np.full(len(records), np.inf)
    sized = np.flatnonzero((records.bytes > 0) & ~records.operation_mask(*WAITING_OPERATIONS, Operation.OTHER))
    if not len(sized):
        return transfer
    alike = np.stack([records.operation, records.group, records.group_size, records.device])[:, sized]
    kind = np.unique(alike, axis=1, return_inverse=True)[1].reshape(-1)
    for number in range(int(kind.max()) + 1):
        members = sized[kind == number]
        if len(members) < MIN_RUNS:
            continue
        sizes, size_index = np.unique(records.bytes[members], return_inverse=True)
        fastest = np.array(
            [
                np.percentile(duration[members[size_index == k]], FASTEST_PERCENTILE, method="inverted_cdf")
                for k in range(len(sizes))
            ]
        )
        least_of_larger = np.minimum.accumulate(fastest[::-1])[::-1]
        best_rate = np.minimum.accumulate(fastest / sizes)
        bounded: F64 = np.minimum(least_of_larger, best_rate * sizes)
        transfer[members] = bounded[size_index]
    return transfer


def _estimate_unsized_transfers(trace: Trace, records: CommunicationRecords) -> F64:
    """Estimate the same for all-reduces of serving engines, whose size is not recorded, by name and launch shape.

    Not for NCCL and DeepEP, which launch the same grid for any size.
    """
    transfer = np.full(len(records), np.inf)
    grid = trace.args.get("grid")
    libraries = [index for index, library in enumerate(records.libraries) if library not in _FIXED_GRID_LIBRARIES]
    unsized = np.flatnonzero(
        (records.bytes == 0) & is_in(records.library, libraries) & records.operation_mask(Operation.ALL_REDUCE)
    )
    if grid is None or not len(unsized):
        return transfer
    events = records.events[unsized]
    shape = grid.values_at(events).astype(np.int64)
    key = np.column_stack([trace.name[events], records.device[unsized], shape])
    group = np.unique(key, axis=0, return_inverse=True)[1].reshape(-1)
    duration = trace.duration[events]
    for number in range(int(group.max()) + 1):
        members = group == number
        if members.sum() >= MIN_UNSIZED_RUNS:
            fastest = np.percentile(duration[members], FASTEST_PERCENTILE, method="inverted_cdf")
            transfer[unsized[members]] = fastest
    return transfer


_FIXED_GRID_LIBRARIES = frozenset({"NCCL", "RCCL", "oneCCL", "HCCL", "MCCL", "DeepEP", "MORI", "NVSHMEM", "other"})
