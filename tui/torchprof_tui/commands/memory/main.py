"""Print what is alive in memory, at the peak or at any time, of a trace or a snapshot: `torchprof-tui memory`."""

from __future__ import annotations

import os
import sys

from torchprof_tui.analysis.memory.memory_history import (
    DeviceHistory,
    GroupBy,
    MemoryHistory,
    MemoryState,
    build_memory_history,
    explain_missing_memory,
)
from torchprof_tui.analysis.memory.snapshots.device_snapshot import (
    DeviceSnapshot,
    SnapshotGroupBy,
    SnapshotState,
    list_device_snapshots,
)
from torchprof_tui.analysis.memory.snapshots.snapshot_file import is_snapshot_file, read_snapshot
from torchprof_tui.answers.memory import AliveMemory, build_alive_memory, build_snapshot
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.load import load_specs, select_rank
from torchprof_tui.commands.common.output import import_text, print_answer
from torchprof_tui.commands.memory import DEFAULT_ROWS, MemoryOptions
from torchprof_tui.trace.core.time_format import parse_time
from torchprof_tui.trace.model.trace import Trace

PEAK, END = "peak", "end"


def run(options: MemoryOptions) -> int:
    is_snapshot = [os.path.isfile(spec) and is_snapshot_file(spec) for spec in options.trace]
    if any(is_snapshot):
        if len(options.trace) > 1:
            raise UsageError("give one snapshot at a time")
        return _run_snapshot(options)
    return _run_trace(options)


def answer_question(trace: Trace, options: MemoryOptions) -> AliveMemory:
    """Build the document of `--json` about an opened trace. Raises UsageError."""
    trace, rank = select_rank(trace, options.rank)
    history, device, state, by = _choose_state(trace, options)
    number, first = (None, 0) if rank is None else (rank.number, rank.first)
    return build_alive_memory(history, device, state, by, options.top or None, number, first)


def _run_trace(options: MemoryOptions) -> int:
    loaded = load_specs(options.trace, cache=not options.no_cache)
    if options.json:
        print_answer(answer_question(loaded.trace, options))
        return 0
    trace, rank = select_rank(loaded.trace, options.rank)
    history, device, state, by = _choose_state(trace, options)
    if rank is not None and options.rank is None:
        print(f"{rank.label}; another: --rank N", file=sys.stderr)
    import_text("memory").print_state(history, device, state, by, _choose_limit(options))
    return 0


def _choose_limit(options: MemoryOptions) -> int | None:
    """Return how many rows of each text table are printed; None for all."""
    return DEFAULT_ROWS if options.top is None else options.top or None


def _choose_state(trace: Trace, options: MemoryOptions) -> tuple[MemoryHistory, DeviceHistory, MemoryState, GroupBy]:
    by = options.by or GroupBy.CATEGORY.value
    if by == SnapshotGroupBy.STACK.value:
        raise UsageError("--by stack: only a snapshot has stacks; of a trace, --by line")
    history = build_memory_history(trace)
    if history is None:
        raise UsageError(explain_missing_memory(trace))
    device: DeviceHistory | None = history.devices[0]
    if options.device is not None:
        device = history.find_device(options.device)
    if device is None:
        known = ", ".join(each.memory.label.replace(" ", "") for each in history.devices)
        raise UsageError(f"--device {options.device}: no memory was recorded of it; there is {known}")
    if options.at == PEAK:
        return history, device, device.find_peak(), GroupBy(by)
    time = int(device.memory.time[-1]) if options.at == END else _parse_at(options.at)
    return history, device, device.find_state(time), GroupBy(by)


def _parse_at(at: str) -> int:
    try:
        return parse_time(at)
    except ValueError as error:
        raise UsageError(f"--at {at}: {error}; or peak, or end") from error


def _run_snapshot(options: MemoryOptions) -> int:
    by = options.by or SnapshotGroupBy.LINE.value
    if by not in [each.value for each in SnapshotGroupBy]:
        raise UsageError(f"--by {by}: a snapshot knows lines and stacks only; record a trace with profile_memory=True")
    if options.rank is not None:
        raise UsageError("--rank: a snapshot is of one process; give the file of that rank")
    devices = list_device_snapshots(read_snapshot(options.trace[0]))
    if not devices:
        raise UsageError(f"{options.trace[0]}: the snapshot is empty: nothing was allocated on a GPU")
    device = _choose_device(devices, options.device)
    state = _find_snapshot_state(device, options.at)
    if options.json:
        print_answer(build_snapshot(devices, device, state, SnapshotGroupBy(by), options.top or None))
        return 0
    import_text("memory").print_snapshot(devices, device, state, SnapshotGroupBy(by), _choose_limit(options))
    return 0


def _choose_device(devices: list[DeviceSnapshot], wanted: str | None) -> DeviceSnapshot:
    for device in devices:
        if wanted is None or device.label.lower().replace(" ", "") == wanted.lower().replace(" ", ""):
            return device
    known = ", ".join(each.label.replace(" ", "") for each in devices)
    raise UsageError(f"--device {wanted}: not in this snapshot; there is {known}")


def _find_snapshot_state(device: DeviceSnapshot, at: str) -> SnapshotState | None:
    """Find the state that is asked for; None for the time of the snapshot, where no history can answer."""
    if at == END or (at == PEAK and device.history is None):
        return None
    if device.history is None:
        raise UsageError(
            f"--at {at}: this snapshot has no history; to record one, call "
            f"torch.cuda.memory._record_memory_history() before"
        )
    return device.find_state(device.find_peak() if at == PEAK else device.find_position(_parse_at(at)))
