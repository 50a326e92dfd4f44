"""Build the table of a trace's GPU work: its launches, devices and launch shapes, and when each device was busy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torchprof_tui.analysis.kernel.names.name_decoder import classify_names
from torchprof_tui.analysis.patterns.engine.event_tables import GpuWorkTable, build_event_table
from torchprof_tui.analysis.time.gpu_time import UNKNOWN_DEVICE, work_mask
from torchprof_tui.analysis.time.intervals import Intervals, union
from torchprof_tui.trace.core.arrays import I32, I64, sorted_unique
from torchprof_tui.trace.model.trace import Trace


def build_gpu_work_table(trace: Trace) -> GpuWorkTable:
    """Build the table of all GPU work by start, over all streams."""
    row = np.flatnonzero(work_mask(np.asarray(trace.kind)))
    row = row[np.argsort(trace.start[row], kind="stable")]
    events = build_event_table(trace, row)
    lane = np.asarray(trace.lane[row])
    device_of_lane = np.array(
        [UNKNOWN_DEVICE if lane.device is None else lane.device for lane in trace.lanes], dtype=np.int32
    )
    classes = np.zeros(len(trace.names), dtype=np.uint8)
    used_names = sorted_unique(events.name)
    classes[used_names] = classify_names([trace.names[name_id] for name_id in used_names.tolist()])
    device = device_of_lane[lane] if len(trace.lanes) else np.empty(0, dtype=np.int32)
    launch = np.asarray(trace.links.launch_of[row])
    call = _find_calls(trace, row, launch)
    return GpuWorkTable(events, np.asarray(trace.kind[row]), lane, device, launch, call, classes[events.name])


def _find_calls(trace: Trace, row: I64, launch: I32) -> I32:
    """Find the runtime call that handed each piece of work to its device: int32[k], -1 for none."""
    links = trace.links
    if not len(links.called_work):
        return launch
    call_of = np.full(len(trace), -1, np.int32)
    call_of[links.called_work] = links.work_call
    found = call_of[row]
    calls: I32 = np.where(found >= 0, found, launch)
    return calls


def intervals_by_device(work: GpuWorkTable, devices: Sequence[int]) -> dict[int, Intervals]:
    """Return when any of this work ran: by device, `devices` ascending. Sorts once, however many devices there are."""
    order = np.argsort(work.device, kind="stable")
    sorted_device, start, end = work.device[order], work.events.start[order], work.events.end[order]
    first, last = (np.searchsorted(sorted_device, devices, side=side).tolist() for side in ("left", "right"))
    return {
        device: union(start[first_index:end_index], end[first_index:end_index])
        for device, first_index, end_index in zip(devices, first, last, strict=True)
    }


def launch_shapes(trace: Trace, rows: I64) -> I64:
    """Return grid and block of each event, -1 where not recorded: int64[k, 6]."""
    shapes: I64 = np.full((6, len(rows)), -1, np.int64).T  # each column in one piece of memory
    for number, arg in enumerate(("grid", "block")):
        sparse = trace.args.get(arg)
        if sparse is not None:
            shapes[:, 3 * number : 3 * number + 3] = sparse.values_at(rows)
    return shapes


def factorize_launches(name: I32, shape: I64) -> I64:
    """Return a group number for each pair of name and shape (int64[k, m]): int64[k]."""
    # Hash into 64 bits with odd multipliers: sorting one column takes a tenth of the time of sorting seven.
    mixed = name.astype(np.uint64)
    for column in range(shape.shape[1]):
        mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15)
        mixed = mixed + shape[:, column].astype(np.uint64) * np.uint64(0xBF58476D1CE4E5B9)
    group: I64 = np.unique(mixed, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return group


def transfer_sizes(trace: Trace, rows: I64) -> I64:
    """Return the bytes of each copy, -1 where not recorded: int64[k]."""
    sparse = trace.args.get("bytes")
    return np.full(len(rows), -1, np.int64) if sparse is None else sparse.values_at(rows).astype(np.int64)
