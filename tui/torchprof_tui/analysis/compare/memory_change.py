"""Compare what is alive at the peak of memory in two recordings: what is new there, and what is gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from torchprof_tui.analysis.memory.categories import Category
from torchprof_tui.analysis.memory.memory_history import (
    BEFORE,
    UNACCOUNTED,
    DeviceHistory,
    GroupBy,
    MemoryHistory,
    MemoryState,
    build_memory_history,
)
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.trace import Trace


@record
class PeakPart:
    """Memory of one category, op and line at both peaks, in bytes. `op`, `line`: "" where not known.

    Of what was allocated before the recording, and of what no record explains, `op` says so.
    """

    category: str
    op: str
    line: str
    a: int
    b: int

    @property
    def delta(self) -> int:
        return self.b - self.a


@record
class PeakChange:
    """The peaks of one device in the whole of both recordings. `parts` sum to `a`, `b`; the largest change first."""

    device: str
    a: int
    b: int
    parts: tuple[PeakPart, ...]

    @property
    def delta(self) -> int:
        return self.b - self.a


def compare_peaks(a: Trace, b: Trace) -> PeakChange | None:
    """Compare the peaks of one device; None where no device has memory recorded on both sides. See `_pair_devices`."""
    history_a = build_memory_history(a)
    history_b = history_a if b is a else build_memory_history(b)
    pair = None if history_a is None or history_b is None else _pair_devices(history_a, history_b)
    if pair is None:
        return None
    device_a, device_b = pair
    state_a, state_b = device_a.find_peak(), device_b.find_peak()
    sums_a, sums_b = _sum_parts(device_a, state_a), _sum_parts(device_b, state_b)
    parts = [PeakPart(*key, sums_a[key], sums_b[key]) for key in dict.fromkeys([*sums_a, *sums_b])]
    parts.sort(key=lambda part: -abs(part.delta))
    return PeakChange(device_a.memory.label, state_a.allocated, state_b.allocated, tuple(parts))


def _pair_devices(a: MemoryHistory, b: MemoryHistory) -> tuple[DeviceHistory, DeviceHistory] | None:
    """Choose the devices to compare: the same pair for the sides in either order; None for none.

    Of the GPUs that both sides have, that with the highest peak on either side. Without a common one the GPU with the
    highest peak of each side: the same program on another GPU. Else the CPU.
    """
    gpus_a, gpus_b = ([each for each in side.devices if not each.memory.is_cpu] for side in (a, b))
    if gpus_a and gpus_b:
        pairs = _list_pairs(gpus_a, gpus_b)
        return pairs[0] if pairs else (gpus_a[0], gpus_b[0])
    pairs = _list_pairs(a.devices, b.devices)
    return pairs[0] if pairs else None


def _list_pairs(a: Sequence[DeviceHistory], b: Sequence[DeviceHistory]) -> list[tuple[DeviceHistory, DeviceHistory]]:
    """List the devices of the same label, those with the highest peak first."""
    others = {each.memory.label: each for each in b}
    pairs = [(each, others[each.memory.label]) for each in a if each.memory.label in others]
    return sorted(
        pairs, key=lambda pair: (-max(int(each.memory.allocated.max()) for each in pair), pair[0].memory.label)
    )


def _sum_parts(device: DeviceHistory, state: MemoryState) -> Counter[tuple[str, str, str]]:
    """Sum the bytes alive at a time by (category, op, line); they sum to `state.allocated`."""
    sums: Counter[tuple[str, str, str]] = Counter()
    columns = []
    for by in (GroupBy.CATEGORY, GroupBy.OP, GroupBy.LINE):
        index, labels = device.label_lifetimes(state.alive, by)
        columns.append([labels[number] for number in index.tolist()])
    sizes = device.lifetimes.bytes[state.alive].tolist()
    for category, op, line, size in zip(*columns, sizes, strict=True):
        sums[category, op, line] += size
    for part in state.older.parts:
        sums[part.category.label, BEFORE, ""] += part.bytes
    if state.unaccounted:
        sums[Category.UNKNOWN.label, UNACCOUNTED, ""] += state.unaccounted
    return sums
