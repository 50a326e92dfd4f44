"""Find the parts of a large plain file that hold the beginning of the recording, on all lanes.

Kineto writes one section after the other, each in the order of time: the operations of each CPU thread, the Python
functions, the GPU work. The first tenth of such a file is one thread alone. So the times at many positions of the file
are read first; they show where each section begins, and up to where it belongs to the beginning of the recording.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

import numpy as np

from torchprof_tui.trace.core.arrays import F64

PROBES = 768
"""Positions at which times are read: of a file of 1.6 GB one every 2 MB, in 20 ms."""

PROBE_BYTES = 8 << 10
"""Text that is read at a position: some twenty entries."""

_BORDER_BYTES = 64 << 10
"""Accuracy with which the end of a range is searched."""

_TAIL_BYTES = 256 << 10
"""End of the file, where Kineto writes the names of processes and threads."""

MAX_RANGES = 64
"""With more ranges the file is not in sections that are sorted by time."""

_TIME = re.compile(rb'"ts"\s*:\s*"?(-?\d+(?:\.\d+)?)')


@dataclass(frozen=True, slots=True)
class EarlyRanges:
    """The parts of a file with what was recorded first. `ranges`: (begin, end) in bytes, ascending. `end`: ns on the
    file's clock, up to which they hold everything. `share`: their part of the file, 0 to 1.
    """

    ranges: list[tuple[int, int]]
    end: int
    share: float


def find_early_ranges(descriptor: int, size: int, wanted: int) -> EarlyRanges | None:
    """Find about `wanted` bytes with the beginning of the recording in an open file of `size` bytes.

    Returns None where the file has no times, or is not in sections that are sorted by time. Raises OSError.
    """
    step = size / PROBES
    positions = [int(step * index) for index in range(PROBES)]
    times = np.array([_read_time(descriptor, position) for position in positions])
    if np.isnan(times).sum() > PROBES // 2:
        return None
    ends_at = float(np.nanquantile(times, min(wanted / size, 1.0)))
    is_early = times <= ends_at  # False for NaN
    edges = np.flatnonzero(np.diff(np.concatenate(([False], is_early, [False])).astype(np.int8)))
    runs = edges.reshape(-1, 2).tolist()
    if not runs or len(runs) > MAX_RANGES:
        return None
    ranges: list[tuple[int, int]] = []
    for first, last in runs:
        begin = 0 if first == 0 else _find_border(descriptor, positions[first - 1], positions[first], ends_at, False)
        end = size if last == PROBES else _find_border(descriptor, positions[last - 1], positions[last], ends_at, True)
        ranges.append((max(begin, ranges[-1][1]) if ranges else begin, min(end, size)))
    if ranges[0][0] > 0:
        ranges.insert(0, (0, min(_BORDER_BYTES, ranges[0][0])))  # the keys before the list
    if ranges[-1][1] < size:
        ranges.append(
            (max(size - min(_TAIL_BYTES, size // PROBES), ranges[-1][1]), size)
        )  # the names of processes and threads
    return EarlyRanges(ranges, round(ends_at * 1000), sum(end - begin for begin, end in ranges) / size)


def _find_border(descriptor: int, low: int, high: int, ends_at: float, from_early: bool) -> int:
    """Find where times go from early to late (`from_early`), or from late to early, between two positions.

    The result lies on the side of the late entries, by little more than _BORDER_BYTES at most.
    """
    while high - low > _BORDER_BYTES:
        middle = (low + high) // 2
        if (_read_time(descriptor, middle) <= ends_at) == from_early:
            low = middle
        else:
            high = middle
    return high + PROBE_BYTES if from_early else low  # the middle one of the times there is late, the first may not be


def _read_time(descriptor: int, position: int) -> float:
    """Read the middle one of the times after a position, µs; NaN where there are none."""
    times: F64 = np.array(_TIME.findall(os.pread(descriptor, PROBE_BYTES, position)), np.float64)
    return float(np.median(times)) if len(times) else float("nan")
