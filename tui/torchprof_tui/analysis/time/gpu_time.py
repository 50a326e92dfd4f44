"""When each GPU worked: the union of kernels, copies and memsets over all its streams.

Waits (`cuda_sync`) and the spans of annotations are no work: they hold idle time. A device is known by its
number in the trace; -1 stands for streams whose device the trace does not tell.
"""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.time.intervals import NO_INTERVALS, Intervals, union
from torchprof_tui.trace.core.arrays import F64, U8, Bool
from torchprof_tui.trace.model.event_kind import GPU_WORK
from torchprof_tui.trace.model.lanes import Lane, Role
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.level_of_detail import cell_edges

UNKNOWN_DEVICE = -1

_DEVICE_BITS = 20
"""More than any process has devices."""

_IS_WORK = np.zeros(256, dtype=np.bool_)
_IS_WORK[[int(kind) for kind in GPU_WORK]] = True


def work_mask(kinds: U8) -> Bool:
    """bool[n]: which events are GPU work."""
    return _IS_WORK[kinds]


def list_devices(trace: Trace) -> list[int]:
    """The devices that have streams, ascending."""
    return sorted({_get_device(lane) for lane in _list_streams(trace)})


def compute_device_busy(trace: Trace, device: int) -> Intervals:
    """When the device worked. One pass over the events of its streams: keep the answer."""
    return _compute_busy(trace, [lane for lane in _list_streams(trace) if _get_device(lane) == device])


def compute_busy_by_device(trace: Trace) -> dict[int, Intervals]:
    """`busy` of every device that has streams. Of several ranks, which may all call theirs 0, by `of_rank`."""
    if trace.ranks is None:
        streams: dict[int, list[Lane]] = {device: [] for device in list_devices(trace)}
        for lane in _list_streams(trace):
            streams[_get_device(lane)].append(lane)
        return {device: _compute_busy(trace, lanes) for device, lanes in streams.items()}
    each = [(place, compute_busy_by_device(rank.trace)) for place, rank in enumerate(trace.ranks.all)]
    return {encode_rank_device(place, device): worked for place, its in each for device, worked in its.items()}


def encode_rank_device(rank_index: int, device: int) -> int:
    """One number for a device of one of several ranks."""
    return (rank_index + 1) << _DEVICE_BITS | (device - UNKNOWN_DEVICE)


def decode_rank_index(device: int) -> int:
    """Which rank a device of `busy_by_device` belongs to, -1 where there is one trace alone."""
    return (device >> _DEVICE_BITS) - 1 if device > 0 else -1


def format_device_label(device: int, trace: Trace) -> str:
    """What a device of `busy_by_device` is called: `GPU 0`, of several ranks `rank 1`, with its GPU where one rank has
    several."""
    place, own = decode_rank_index(device), device
    if place >= 0 and trace.ranks is not None:
        own = (device & (1 << _DEVICE_BITS) - 1) + UNKNOWN_DEVICE
        rank = trace.ranks.all[place]
        if len(list_devices(rank.trace)) == 1:
            return rank.label
        return f"{rank.label} GPU {own if own >= 0 else ''}".rstrip()
    return f"GPU {own if own >= 0 else ''}".rstrip()


def compute_busy_shares(trace: Trace, busy: dict[int, Intervals]) -> dict[int, float]:
    """By the line of each rank that has GPUs: the share in which they worked, 0..1, of the time from its first event to
    its last. `busy`: of `busy_by_device`."""
    shares = {}
    for place, rank in enumerate(trace.ranks.all if trace.ranks is not None else ()):
        t0, t1 = rank.trace.span
        its = [worked.measure_between(t0, t1) for device, worked in busy.items() if decode_rank_index(device) == place]
        if its and t1 > t0:
            shares[rank.header_lane] = sum(its) / (len(its) * (t1 - t0))
    return shares


def compute_busy_ns_by_device(trace: Trace) -> dict[int, int]:
    """`gpu_busy_ns` of `info`: device -> ns."""
    return {device: worked.total for device, worked in compute_busy_by_device(trace).items()}


def compute_busy_fraction(worked: Intervals, t0: int, t1: int, width: int) -> F64:
    """float64[width]: the share of each cell between t0 and t1 that is covered, 0..1.

    A few binary searches a cell, whatever the zoom. Cells narrower than 1 ns show the nanosecond they lie in, as
    `torchprof_tui.trace.query.level_of_detail` has it. Raises ValueError for an empty range or no cells.
    """
    edges = cell_edges(t0, t1, width)
    lower, upper = edges[:-1], np.maximum(edges[1:], edges[:-1] + 1)
    share: F64 = (worked.measure_before(upper) - worked.measure_before(lower)) / (upper - lower)
    return share


def _list_streams(trace: Trace) -> list[Lane]:
    return [lane for lane in trace.lanes if lane.role is Role.STREAM]


def _compute_busy(trace: Trace, lanes: list[Lane]) -> Intervals:
    starts, ends = [], []
    for lane in lanes:
        start = trace.start[lane.first : lane.last]
        work = work_mask(trace.kind[lane.first : lane.last])
        starts.append(start[work])
        ends.append((start + trace.duration[lane.first : lane.last])[work])
    return union(np.concatenate(starts), np.concatenate(ends)) if starts else NO_INTERVALS


def _get_device(lane: Lane) -> int:
    return UNKNOWN_DEVICE if lane.device is None else lane.device
