"""Build tables, repetitions, and what is alive in memory, for the Python API."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from torchprof_tui.analysis.memory.memory_history import (
    DeviceHistory,
    MemoryHistory,
    build_memory_history,
    explain_missing_memory,
)
from torchprof_tui.analysis.memory.memory_history import GroupBy as MemoryGroupBy
from torchprof_tui.analysis.repetition.repetitions import Difference, Pattern, find_repetitions
from torchprof_tui.analysis.serving.report import report_serving
from torchprof_tui.analysis.serving.serving_steps import ServingReport
from torchprof_tui.analysis.table.groups import Profile
from torchprof_tui.analysis.table.profiler_table import GroupBy
from torchprof_tui.analysis.table.sheets import explain_empty_sheet
from torchprof_tui.answers import table as answers
from torchprof_tui.answers.arguments import check_choice, check_time
from torchprof_tui.answers.memory import AliveMemory, build_alive_memory
from torchprof_tui.answers.table import Grouping, MemoryTable, Table, TableQuestion, build_sheet
from torchprof_tui.trace.core.arrays import I32, I64, Bool
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.trace import Trace

By = Grouping
__all__ = ["By", "Profile", "build_memory", "build_table"]


def build_table(profile: Profile, by: str, step: int | None, flops: bool) -> Table:
    """Build the table. Raises TraceError, NotRecordedError, OSError, LookupError."""
    check_choice("by", by, [each.value for each in GroupBy], "calls are grouped by")
    asked = TableQuestion(by=by, step=step, flops=flops)
    table: Table = answers.build_table(profile.trace, asked, build_sheet(profile, asked), rank=profile.trace.rank)
    return table


def build_memory(profile: Profile, step: int | None) -> MemoryTable:
    """Build memory by operator. Raises TraceError where it was not recorded, NotRecordedError for an unknown step."""
    trace, asked = profile.trace, TableQuestion(of="memory", step=step)
    if trace.memory is None:
        raise TraceError(f"{trace.label}: {explain_empty_sheet(trace, 'memory')}")
    table: MemoryTable = answers.build_table(trace, asked, build_sheet(profile, asked), rank=trace.rank)
    return table


def read_serving(trace: Trace) -> ServingReport:
    """Report the serving steps of a trace of one process. Raises TraceError where there are none."""
    report = report_serving(trace)
    if report.missing:
        raise TraceError(f"{trace.label}: {report.missing}")
    return report


@record(slots=False)
class Repetition:
    """What repeats r times, by time: `torchprof-tui table --of repetitions`.

    `label`: "1" for the outermost, "2" for what repeats in it, "2a", "2b" if several do; `level`: from 1; `parent`:
    label of the one around it, None for none. `is_unit`: gone through like steps on the screen. `unit`: "kernels" or
    "ops". `first`, `last` int32[r]: rows of the first and the last kernel. `start_ns`, `end_ns` int64[r]: from the
    first kernel to the last. `run` int32[r]: repetitions of one run follow each other directly. `position` int32[r]:
    index in the run (the number of the layer). `differs` bool[r]: other kernels than those of `shown`, the typical one.
    `coverage`: share of the time of all kernels of the stream. `events`: kernels of one, the median. `differences`: in
    what, with how many repetitions have more and fewer.
    """

    label: str
    level: int
    parent: str | None
    is_unit: bool
    unit: str
    first: I32
    last: I32
    start_ns: I64
    end_ns: I64
    run: I32
    position: I32
    differs: Bool
    shown: int
    events: int
    coverage: float
    differences: tuple[Difference, ...]

    def __len__(self) -> int:
        return len(self.first)

    def __repr__(self) -> str:
        return f"<repetition {self.label}: {len(self)} × {self.events:,} {self.unit}, p50 {self.p50_ns / 1000:.1f} µs>"

    @property
    def duration_ns(self) -> I64:
        """Duration of each: int64[r]."""
        return self.end_ns - self.start_ns

    @property
    def p50_ns(self) -> float:
        """Median duration."""
        return float(np.quantile(self.duration_ns, 0.5))

    @property
    def p95_ns(self) -> float:
        """Duration that 95 % of them do not exceed."""
        return float(np.quantile(self.duration_ns, 0.95))

    def to_records(self) -> list[dict[str, Any]]:
        """Return one dictionary per repetition, for `pandas.DataFrame(repetition.to_records())` and others."""
        names = ("run", "position", "first", "last", "start_ns", "duration_ns", "differs")
        rows = zip(*(getattr(self, name).tolist() for name in names), strict=True)
        return [dict(zip(names, row, strict=True)) for row in rows]


def list_repetitions(trace: Trace) -> tuple[Repetition, ...]:
    """List what repeats in a trace of one process, outermost first; () if nothing does."""
    found = find_repetitions(trace)
    labels = [pattern.label for pattern in found.patterns]

    def build(index: int, pattern: Pattern) -> Repetition:
        names = ("label", "level", "run", "position", "shown", "coverage", "differences")
        return Repetition(
            parent=labels[pattern.parent] if pattern.parent >= 0 else None,
            is_unit=index == found.unit,
            unit=found.sequence.unit,
            first=found.sequence.events[pattern.first],
            last=found.sequence.events[pattern.last - 1],
            start_ns=pattern.start,
            end_ns=pattern.end,
            differs=pattern.variant != 0,
            **{name: getattr(pattern, name) for name in names},
            events=pattern.period,
        )

    return tuple(build(index, pattern) for index, pattern in enumerate(found.patterns))


MemoryBy = Literal["category", "op", "module", "line", "phase", "shape"]
PEAK, END = "peak", "end"


@record
class MemoryCurve:
    """The memory of one device: the state after each record. All int64[m]; reserved -1 where it is not recorded."""

    device: str
    time_ns: I64
    allocated_bytes: I64
    reserved_bytes: I64


def find_alive_memory(trace: Trace, at: int | str, by: str, device: str | None) -> AliveMemory:
    """Find what is alive at a time. Raises TraceError, OSError, LookupError."""
    group_by = MemoryGroupBy(check_choice("by", by, [each.value for each in MemoryGroupBy], "memory is grouped by"))
    if isinstance(at, str):
        check_choice("at", at, (PEAK, END), "give a time in ns or one of")
    else:
        at = check_time("at", at)
    history, memory = _find_device(trace, device)
    if at == PEAK:
        state = memory.find_peak()
    else:
        state = memory.find_state(int(memory.memory.time[-1]) if isinstance(at, str) else at)
    return build_alive_memory(history, memory, state, group_by, None, trace.rank)


def read_memory_curve(trace: Trace, device: str | None) -> MemoryCurve:
    """Read the curve of a device. Raises TraceError."""
    memory = _find_device(trace, device)[1].memory
    return MemoryCurve(memory.label, memory.time, memory.allocated, memory.reserved)


def _find_device(trace: Trace, device: str | None) -> tuple[MemoryHistory, DeviceHistory]:
    history = build_memory_history(trace)
    if history is None:
        raise TraceError(explain_missing_memory(trace))
    found = history.devices[0] if device is None else history.find_device(device)
    if found is None:
        known = ", ".join(each.memory.label for each in history.devices)
        raise TraceError(f"device={device!r}: no memory was recorded of it; there is {known}")
    return history, found
