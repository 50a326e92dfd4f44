"""Busy time of each GPU: the union of kernels, copies and memsets over all its streams.

Waits (`cuda_sync`) and annotation spans are no work: they contain idle time. A device is identified by its number in
the trace; UNKNOWN_DEVICE stands for streams without a recorded device.
"""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.time.intervals import Intervals, union
from torchprof_tui.trace.core.arrays import F64, I32, I64, U8, Bool
from torchprof_tui.trace.model.event_kind import GPU_WORK
from torchprof_tui.trace.model.lanes import Lane, Role
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.cells import cell_edges

UNKNOWN_DEVICE = -1

_DEVICE_BITS = 20  # bits of a device number: far more devices than a process has

_IS_WORK = np.isin(np.arange(256), list(GPU_WORK))


def work_mask(kinds: U8) -> Bool:
    """Select the events that are GPU work: bool[n]."""
    return _IS_WORK[kinds]


def cover_events(trace: Trace, rows: I64 | I32) -> Intervals:
    """Compute the time that these events cover together."""
    start = np.asarray(trace.start[rows])
    return union(start, start + trace.duration[rows])


def compute_busy_by_device(trace: Trace) -> dict[int, Intervals]:
    """Compute the busy intervals of every device that has streams.

    For several ranks, whose device numbers may coincide, the keys are those of `encode_rank_device`.
    """
    if trace.merged_ranks is None:
        work = {
            device: [lane.first + np.flatnonzero(work_mask(trace.kind[lane.first : lane.last])) for lane in lanes]
            for device, lanes in sorted(_find_streams(trace).items())
        }
        return {device: cover_events(trace, np.concatenate(rows)) for device, rows in work.items()}
    return {
        encode_rank_device(rank_index, device): busy
        for rank_index, rank in enumerate(trace.merged_ranks.all)
        for device, busy in compute_busy_by_device(rank.trace).items()
    }


def encode_rank_device(rank_index: int, device: int) -> int:
    """Encode a device of one of several ranks as one number."""
    return (rank_index + 1) << _DEVICE_BITS | (device - UNKNOWN_DEVICE)


def decode_rank_index(device: int) -> int:
    """Return the index of the rank that a device key belongs to, -1 for a single trace."""
    return (device >> _DEVICE_BITS) - 1 if device > 0 else -1


def format_device_label(device: int, trace: Trace) -> str:
    """Format a device key: `GPU 0`; of several ranks `rank 1`, or `rank 1 GPU 0` if the rank has several devices."""
    rank_index, number, prefix = decode_rank_index(device), device, ""
    if rank_index >= 0 and trace.merged_ranks is not None:
        number = (device & (1 << _DEVICE_BITS) - 1) + UNKNOWN_DEVICE
        rank = trace.merged_ranks.all[rank_index]
        if len(_find_streams(rank.trace)) == 1:
            return rank.label
        prefix = f"{rank.label} "
    return f"{prefix}GPU {number}" if number >= 0 else f"{prefix}GPU"


def compute_busy_shares(trace: Trace, busy: dict[int, Intervals]) -> dict[int, float]:
    """Compute the busy share (0..1) of each rank's GPUs between its first event and its last, by header lane.

    `busy`: from `compute_busy_by_device`.
    """
    shares = {}
    for rank_index, rank in enumerate(trace.merged_ranks.all if trace.merged_ranks is not None else ()):
        t0, t1 = rank.trace.span
        of_rank = [intervals for device, intervals in busy.items() if decode_rank_index(device) == rank_index]
        if of_rank and t1 > t0:
            busy_ns = sum(intervals.measure_between(t0, t1) for intervals in of_rank)
            shares[rank.header_lane] = busy_ns / (len(of_rank) * (t1 - t0))
    return shares


def compute_busy_ns_by_device(trace: Trace) -> dict[int, int]:
    return {device: busy.total for device, busy in compute_busy_by_device(trace).items()}


def compute_busy_fraction(worked: Intervals, t0: int, t1: int, width: int) -> F64:
    """Compute the covered share (0..1) of each of `width` cells between t0 and t1: float64[width].

    Costs a few binary searches per cell at any zoom. Cells narrower than 1 ns show the nanosecond that contains them,
    as in `torchprof_tui.trace.query.viewport`. Raises ValueError for an empty range or no cells.
    """
    edges = cell_edges(t0, t1, width)
    lower, upper = edges[:-1], np.maximum(edges[1:], edges[:-1] + 1)
    share: F64 = worked.measure_within(lower, upper) / (upper - lower)
    return share


def _find_streams(trace: Trace) -> dict[int, list[Lane]]:
    streams: dict[int, list[Lane]] = {}
    for lane in trace.lanes:
        if lane.role is Role.STREAM:
            streams.setdefault(UNKNOWN_DEVICE if lane.device is None else lane.device, []).append(lane)
    return streams
