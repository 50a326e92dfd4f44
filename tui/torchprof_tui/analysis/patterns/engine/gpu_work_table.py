"""The GPU work of a trace as one table: what launched it, where and on which shape it ran, when each device worked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torchprof_tui.analysis.kernel.names.classes import classify_names
from torchprof_tui.analysis.patterns.engine.event_tables import GpuWorkTable, build_event_table
from torchprof_tui.analysis.time.gpu_time import UNKNOWN_DEVICE, work_mask
from torchprof_tui.analysis.time.intervals import Intervals, union
from torchprof_tui.trace.core.arrays import I32, I64, sorted_unique
from torchprof_tui.trace.model.trace import Trace


def build_gpu_work_table(trace: Trace) -> GpuWorkTable:
    """All of it by start, over all streams."""
    row = np.flatnonzero(work_mask(np.asarray(trace.kind)))
    row = row[np.argsort(trace.start[row], kind="stable")]
    rows = build_event_table(trace, row)
    lane = np.asarray(trace.lane[row])
    device_of_lane = np.array(
        [UNKNOWN_DEVICE if lane.device is None else lane.device for lane in trace.lanes], dtype=np.int32
    )
    classes = np.zeros(len(trace.names), dtype=np.uint8)
    present = sorted_unique(rows.name)
    classes[present] = classify_names([trace.names[number] for number in present.tolist()])
    device = device_of_lane[lane] if len(trace.lanes) else np.empty(0, dtype=np.int32)
    launch = np.asarray(trace.links.launch_of[row])
    return GpuWorkTable(rows, np.asarray(trace.kind[row]), lane, device, launch, classes[rows.name])


def intervals_by_device(work: GpuWorkTable, devices: Sequence[int]) -> dict[int, Intervals]:
    """device -> when any of this work ran on it; `devices` ascending. One sort, however many devices a file names."""
    order = np.argsort(work.device, kind="stable")
    of_place, start, end = work.device[order], work.events.start[order], work.events.end[order]
    first, last = (np.searchsorted(of_place, devices, side=side).tolist() for side in ("left", "right"))
    return {
        device: union(start[begin:stop], end[begin:stop])
        for device, begin, stop in zip(devices, first, last, strict=True)
    }


def launch_shapes(trace: Trace, rows: I64) -> I64:
    """int64[k, 6]: grid and block of each event, -1 where the trace has none."""
    columns = []
    for arg in ("grid", "block"):
        sparse = trace.args.get(arg)
        columns.append(
            np.full((len(rows), 3), -1, np.int64) if sparse is None else sparse.values_at(rows).astype(np.int64)
        )
    return np.hstack(columns)


def factorize_launches(name: I32, shape: I64) -> I64:
    """int64[k]: a number for each name and shape (int64[k, m]); equal where both are."""
    # Mixed into 64 bits by odd multipliers: sorting one column takes a tenth of sorting seven.
    mixed = name.astype(np.uint64)
    for column in range(shape.shape[1]):
        mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15)
        mixed = mixed + shape[:, column].astype(np.uint64) * np.uint64(0xBF58476D1CE4E5B9)
    group: I64 = np.unique(mixed, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return group


def transfer_sizes(trace: Trace, rows: I64) -> I64:
    """int64[k], -1 where the trace does not tell."""
    sparse = trace.args.get("bytes")
    return np.full(len(rows), -1, np.int64) if sparse is None else sparse.values_at(rows).astype(np.int64)
