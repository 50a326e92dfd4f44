"""Sum up the communication of one rank: how much of it is hidden by computation, moves data, or waits for a peer.

    card = build_communication_card(trace)       # the whole trace, as one rank sees it
    card.total, card.exposed, card.waiting, card.exposed_waiting   # ns, summed over the devices
    card.describe()                              # one line

Parts sum exactly: `hidden + exposed == total` and `waiting + transfer == total`, for each device and in all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from torchprof_tui.analysis.collectives.communication_records import (
    OPERATIONS,
    CommunicationRecords,
    name_libraries,
    read_communication,
)
from torchprof_tui.analysis.collectives.communication_waiting import (
    SOURCES,
    Arrivals,
    WaitingSource,
    Waits,
    estimate_waits,
    find_link_bandwidths,
    measure_bus_bandwidth,
)
from torchprof_tui.analysis.time.gpu_time import cover_events, work_mask
from torchprof_tui.analysis.time.intervals import Intervals, union
from torchprof_tui.trace.core.arrays import I64, Bool, is_in, sorted_unique
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.communication_kernels import Operation
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace


@record
class CommunicationTimes:
    """Times of communication, ns of the scope. `total`: the union of its kernels, whatever their streams.

    `hidden` while kernels or fills computed, `exposed` while none did. `waiting` for other ranks, `transfer` the rest;
    `undecided` is the part of `transfer` of kernels whose wait is unknown.
    """

    total: int
    exposed: int
    waiting: int
    exposed_waiting: int
    undecided: int

    @property
    def hidden(self) -> int:
        return self.total - self.exposed

    @property
    def transfer(self) -> int:
        return self.total - self.waiting

    def times_as_json(self) -> dict[str, int]:
        names = ("total", "hidden", "exposed", "waiting", "transfer", "exposed_waiting", "undecided")
        return {f"{name}_ns": getattr(self, name) for name in names}


@record
class DeviceCommunication(CommunicationTimes):
    """Communication of one device."""

    device: int


@record
class OperationRow:
    """One kind of collective: `time` and `waiting` in ns are sums over its `count` kernels, of their part in the scope.

    `bytes`: of the messages whose size is known (`sized_count` kernels). Bandwidths in GB/s (10^9 bytes per second),
    None where unknown: `algorithm_bandwidth` is bytes over time, `bus_bandwidth` that times the factor of nccl-tests
    (see `compute_bus_factor`), both including the wait; `best_bus_bandwidth` is that of the fastest run and
    `link_bandwidth` what the hardware offers.
    """

    operation: Operation
    libraries: tuple[str, ...]
    count: int
    time: int
    waiting: int
    waiting_source: WaitingSource | None
    bytes: int
    sized_count: int
    algorithm_bandwidth: float | None
    bus_bandwidth: float | None
    best_bus_bandwidth: float | None
    link_bandwidth: float | None

    def as_json(self) -> dict[str, Any]:
        return {
            "operation": self.operation.value,
            "libraries": list(self.libraries),
            "count": self.count,
            "time_ns": self.time,
            "waiting_ns": self.waiting,
            "waiting_source": self.waiting_source.value if self.waiting_source else None,
            "bytes": self.bytes,
            "sized": self.sized_count,
            "algorithm_gb_s": _round(self.algorithm_bandwidth),
            "bus_gb_s": _round(self.bus_bandwidth),
            "best_bus_gb_s": _round(self.best_bus_bandwidth),
            "link_gb_s": self.link_bandwidth,
        }


@record
class CommunicationCard(CommunicationTimes):
    """The communication of one rank in a scope: its times summed over the devices that did any GPU work.

    `window`: ns, the scope. `events` int64[k]: its kernels, by row. `rows`: by kind of collective, longest first.
    `waiting_source`: how most of the waiting was decided, or, without any, most of the time; None if nothing could be.
    """

    window: tuple[int, int]
    devices: tuple[DeviceCommunication, ...]
    rows: tuple[OperationRow, ...]
    waiting_source: WaitingSource | None
    events: I64

    @property
    def count(self) -> int:
        return len(self.events)

    @property
    def hidden_share(self) -> float:
        """Share of the communication that computation hides, 0..1; 0 without any."""
        return self.hidden / self.total if self.total else 0.0

    def describe(self) -> str:
        """Describe the card in one line: time, share hidden, waiting and how it was decided, kinds, bandwidth."""
        if not self.count:
            return "no communication was recorded"
        over = f" on {len(self.devices)} devices" if len(self.devices) > 1 else ""
        waiting = "waiting and transfer cannot be separated"
        if self.waiting_source is not None:
            waiting = f"{format_duration(self.waiting)} waiting for other ranks ({_SOURCE_TEXTS[self.waiting_source]})"
            if self.undecided > self.total // 10:
                waiting += f", {format_duration(self.undecided)} undetermined"
        parts = [
            f"{format_duration(self.total)} in {self.count:,} {'kernel' if self.count == 1 else 'kernels'}{over}, "
            f"{self.hidden_share:.0%} hidden",
            waiting,
            ", ".join(f"{row.operation.value} ×{row.count:,}" for row in self.rows[:3]),
        ]
        fastest = max((row for row in self.rows if row.best_bus_bandwidth), key=lambda row: row.time, default=None)
        if fastest is not None and fastest.bus_bandwidth is not None:
            link = f"; the link has {fastest.link_bandwidth:.0f}" if fastest.link_bandwidth else ""
            parts.append(
                f"{fastest.operation.value} at {_format_bandwidth(fastest.bus_bandwidth)} GB/s (bus bandwidth), "
                f"{_format_bandwidth(fastest.best_bus_bandwidth or 0)} at best{link}"
            )
        return "; ".join(part for part in parts if part)

    def as_json(self) -> dict[str, Any]:
        """Convert to JSON; times in ns."""
        return {
            "count": self.count,
            **self.times_as_json(),
            "waiting_source": self.waiting_source.value if self.waiting_source else None,
            "window_ns": list(self.window),
            "devices": [{"id": device.device, **device.times_as_json()} for device in self.devices],
            "operations": [row.as_json() for row in self.rows],
            "summary": self.describe(),
        }


_SOURCE_TEXTS = {
    WaitingSource.RANKS: "from the other ranks' arrivals",
    WaitingSource.REPEATED_SIZES: "above the fastest run of the same size",
    WaitingSource.LINK_BANDWIDTH: "above the time that the link needs",
    WaitingSource.OPERATION: "in barriers and notifications",
}


def build_communication_card(
    trace: Trace,
    *,
    records: CommunicationRecords | None = None,
    waits: Waits | None = None,
    arrivals: Arrivals | None = None,
    rank_index: int = 0,
    window: tuple[int, int] | None = None,
    compute: Mapping[int, Intervals] | None = None,
) -> CommunicationCard:
    """Build the card of one process's trace (of one rank: `Rank.trace`).

    `arrivals`, `rank_index`: of all ranks, where they are known. `window`: in ns, the trace's span by default.
    To build cards of many windows of one trace: `records`, `waits` from `read_communication` and `estimate_waits`, and
    `compute`, when each device that did any work ran kernels or fills.
    """
    if records is None:
        records = read_communication(trace)
    if waits is None:
        waits = estimate_waits(trace, records, arrivals, rank_index)
    t0, t1 = window or trace.span
    start = np.asarray(trace.start[records.events]).astype(np.int64)
    end = start + trace.duration[records.events]
    inside = (start < t1) & (np.maximum(end, start + 1) > t0)
    time = np.where(inside, np.minimum(end, t1) - np.maximum(start, t0), 0)
    wait_time = np.where(inside, np.maximum(np.minimum(start + waits.time, t1) - np.maximum(start, t0), 0), 0)
    kernels = _Kernels(records, waits, start, end, inside, time, wait_time)
    devices = tuple(
        _measure_device(kernels, device, intervals, (t0, t1))
        for device, intervals in (find_compute_intervals(trace) if compute is None else compute).items()
    )
    sums = {field.name: sum(getattr(each, field.name) for each in devices) for field in fields(CommunicationTimes)}
    return CommunicationCard(
        **sums,
        window=(t0, t1),
        devices=devices,
        rows=_build_rows(trace, kernels),
        waiting_source=_find_main_source(waits, inside, time, wait_time),
        events=records.events[inside],
    )


@record
class _Kernels:
    """The kernels of a trace: columns [k]; `time`, `wait_time` int64[k] in ns of the window, `inside` bool[k]."""

    records: CommunicationRecords
    waits: Waits
    start: I64
    end: I64
    inside: Bool
    time: I64
    wait_time: I64


def _measure_device(kernels: _Kernels, device: int, compute: Intervals, window: tuple[int, int]) -> DeviceCommunication:
    chosen = kernels.inside & (kernels.records.device == device)
    start, end, wait_end = (
        column[chosen] for column in (kernels.start, kernels.end, kernels.start + kernels.waits.time)
    )
    communication = union(start, end).clip(*window)
    transfer = union(wait_end, end).clip(*window)
    waiting = communication - transfer  # a wait beside another kernel's transfer costs nothing
    decided = union(np.where(kernels.waits.source[chosen] < len(SOURCES), start, end), end).clip(*window)
    exposed = communication - compute.clip(*window)
    return DeviceCommunication(
        total=communication.total,
        exposed=exposed.total,
        waiting=waiting.total,
        exposed_waiting=waiting.measure_overlap(exposed),
        undecided=(communication - decided).total,
        device=device,
    )


def find_compute_intervals(trace: Trace) -> dict[int, Intervals]:
    """Find when each device that did any GPU work ran kernels or fills; copies and communication do not compute."""
    events: dict[int, list[I64]] = {}
    for lane in trace.lanes:
        kinds = np.asarray(trace.kind[lane.first : lane.last])
        if work_mask(kinds).any():
            computes = lane.first + np.flatnonzero(is_in(kinds, _COMPUTE_KINDS))
            events.setdefault(-1 if lane.device is None else lane.device, []).append(computes)
    rows = {device: np.concatenate(parts) for device, parts in sorted(events.items())}
    return {device: cover_events(trace, row) for device, row in rows.items()}


_COMPUTE_KINDS = (int(Kind.KERNEL), int(Kind.MEMSET))


def _build_rows(trace: Trace, kernels: _Kernels) -> tuple[OperationRow, ...]:
    """Build a row per operation in the window, longest first."""
    records = kernels.records
    duration = kernels.end - kernels.start
    bandwidth = measure_bus_bandwidth(records, duration)
    link = find_link_bandwidths(trace, records)
    rows = []
    for number in sorted_unique(records.operation[kernels.inside]).tolist():
        chosen = kernels.inside & (records.operation == number)
        sized = chosen & (records.bytes > 0)
        message_bytes = int(records.bytes[sized].sum())
        whole_time = int(duration[sized].sum())
        known = chosen & np.isfinite(bandwidth)
        known_time = int(duration[known].sum())
        links = sorted_unique(link[chosen])  # NaN where unknown
        rows.append(
            OperationRow(
                OPERATIONS[number],
                tuple(name_libraries(records, chosen)),
                int(chosen.sum()),
                int(kernels.time[chosen].sum()),
                int(kernels.wait_time[chosen].sum()),
                _find_main_source(kernels.waits, chosen, kernels.time, kernels.wait_time),
                message_bytes,
                int(sized.sum()),
                message_bytes / whole_time if whole_time and message_bytes else None,
                float((bandwidth[known] * duration[known]).sum() / known_time) if known_time else None,
                float(bandwidth[known].max()) if known.any() else None,
                float(links[0]) if len(links) == 1 and np.isfinite(links[0]) else None,
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.time, row.operation.value)))


def _find_main_source(waits: Waits, chosen: Bool, time: I64, wait_time: I64) -> WaitingSource | None:
    """Find how most of the waiting of some kernels was decided; without any waiting, how most of their time was."""
    decided = chosen & (waits.source < len(SOURCES))
    if not decided.any():
        return None
    sums = [
        np.bincount(waits.source[decided], weights=column[decided], minlength=len(SOURCES))
        for column in (wait_time, time)
    ]
    return SOURCES[int((sums[0] if sums[0].any() else sums[1]).argmax())]


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _format_bandwidth(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"
