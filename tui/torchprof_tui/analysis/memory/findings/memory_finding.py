"""A finding about memory: what was seen, what it would save at the peak, and what to do about it."""

from __future__ import annotations

from dataclasses import field

import numpy as np

from torchprof_tui.analysis.memory.memory_history import DeviceHistory, GroupBy
from torchprof_tui.trace.core.arrays import I64, sum_by_index
from torchprof_tui.trace.core.records import record

MIN_SAVED = 16 << 20  # bytes below which nothing is worth a change of the program
MIN_SHARE = 0.1  # share of the peak below which a finding is left out

KIB = 1024


@record
class MemoryFinding:
    """One finding. `saved`: bytes that the remedy would save at the peak, at most; 0 where it saves none.

    `seen`: one line with this recording's numbers. `time`: ns: of `activation-memory` what the remedy costs in each
    step, of `allocator-retries` what the calls took; None where there is none. `lifetimes` int64[k]: the evidence, the
    largest first. `action`, `code`: what to do, and a line to paste, "" where no line helps.
    """

    id: str
    seen: str
    saved: int
    action: str
    code: str = ""
    time: int | None = None
    lifetimes: I64 = field(default_factory=lambda: np.zeros(0, np.int64))


def format_size(size: int) -> str:
    """Format bytes with a binary unit: "12.5 MiB"."""
    amount, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if abs(amount) < KIB:
            break
        amount, unit = amount / KIB, larger
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"


def format_number(count: int, noun: str) -> str:
    """Format a number of things: "1 cast", "1,200 casts"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def compute_saving(device: DeviceHistory, lifetimes: I64) -> int:
    """Return by how many bytes the peak would be lower if these lifetimes (int64[k]) had not been allocated.

    The peak may then be at another time: the highest of the curve without them counts.
    """
    memory = device.memory
    rest = memory.allocated - device.lifetimes.select(lifetimes).sum_alive(memory.records)
    return int(memory.allocated[memory.peak]) - int(rest.max())


def is_worth_it(device: DeviceHistory, saved: int) -> bool:
    """Return whether saving so many bytes at the peak is worth a finding."""
    return saved >= max(MIN_SAVED, MIN_SHARE * int(device.memory.allocated[device.memory.peak]))


def build_finding(
    device: DeviceHistory,
    name: str,
    seen: str,
    saved: int,
    action: str,
    code: str,
    lifetimes: I64,
    time: int | None = None,
) -> list[MemoryFinding]:
    """Build a finding about these lifetimes (int64[k]), with who allocated most where that is known.

    That is the line, else the module, else the op.
    """
    for by in (GroupBy.LINE, GroupBy.MODULE, GroupBy.OP):
        index, labels = device.label_lifetimes(lifetimes, by)
        sums = sum_by_index(index, device.lifetimes.bytes[lifetimes], len(labels))
        sums[[row for row, label in enumerate(labels) if not label]] = 0
        if len(sums) and sums.max() > 0:
            seen = f"{seen}; most of it by {labels[int(sums.argmax())]}"
            break
    return [MemoryFinding(name, seen, saved, action, code, time, lifetimes)]
