"""Results that are tables: the profiler's table, and memory by operator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal, overload

import numpy as np

from torchprof_tui.analysis.table import export
from torchprof_tui.analysis.table.calls_sheet import build_calls_sheet, find_step_mask
from torchprof_tui.analysis.table.empty_sheets import explain_empty_sheet
from torchprof_tui.analysis.table.memory_sheet import build_memory_sheet, find_memory_peaks
from torchprof_tui.analysis.table.profiler_table import GroupBy
from torchprof_tui.analysis.table.sheets import Sheet
from torchprof_tui.analysis.table.trace_profile import Profile
from torchprof_tui.api.arguments import check_choice, check_row
from torchprof_tui.trace.core.arrays import I32
from torchprof_tui.trace.core.errors import TraceError

By = Literal["name", "shape", "stack", "module", "class", "step", "step-kind"]


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row of the profiler's table, as `table --json` has it; None for what a grouping does not have.

    Times are µs; shares 0..1 of the totals of self time, None where that is 0. `display`: the name to read, decoded for
    GPU work. `annotation`: whether the row is a span that contains the work of other rows. `device`: "CPU" or "GPU".
    `input_shapes` and `stack` (frames, innermost first) are for tables by these; `flops`, `tflops`, `peak_share` for
    tables with FLOPs; the fields from `steps` on for tables by step and step kind of a serving engine.
    """

    name: str
    calls: int
    self_gpu_us: float
    gpu_us: float
    gpu_avg_us: float
    self_gpu_share: float | None = None
    gpu_share: float | None = None
    self_cpu_us: float | None = None
    self_cpu_share: float | None = None
    cpu_us: float | None = None
    cpu_share: float | None = None
    cpu_avg_us: float | None = None
    device: str | None = None
    display: str | None = None
    annotation: bool | None = None
    input_shapes: str | None = None
    stack: tuple[str, ...] | None = None
    flops: float | None = None
    tflops: float | None = None
    peak_share: float | None = None
    steps: int | None = None
    number: int | None = None
    kind: str | None = None
    batch: float | None = None
    tokens: int | None = None
    kv_length: float | None = None
    step_us: float | None = None
    step_p50_us: float | None = None
    step_p95_us: float | None = None
    token_p50_us: float | None = None
    token_p95_us: float | None = None
    tokens_per_second: float | None = None
    kernels_per_token: float | None = None
    cpu_per_token_us: float | None = None
    graph_share: float | None = None
    gap_p50_us: float | None = None


@dataclass(frozen=True)
class Table:
    """The profiler's table: a sequence of rows, in torch's order (by first call).

    `by`: how calls are grouped. `step`: the number of the step it is restricted to, None for all. `rank`: the rank it
    is of, None for a trace without a rank. `totals`: lines that the command prints below.
    """

    by: str
    step: int | None
    rank: int | None
    rows: tuple[TableRow, ...]
    totals: tuple[str, ...]
    _sheet: Sheet

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[TableRow]:
        return iter(self.rows)

    @overload
    def __getitem__(self, index: int) -> TableRow: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[TableRow, ...]: ...
    def __getitem__(self, index: int | slice) -> TableRow | tuple[TableRow, ...]:
        return self.rows[index if isinstance(index, slice) else check_row("index", index, len(self), "rows")]

    def __repr__(self) -> str:
        return f"<table by {self.by}: {len(self)} rows>"

    def events_of(self, index: int) -> I32:
        """Return the rows of `Trace.events` that a row of the table counts: int32[calls]."""
        return self._sheet.members_of(check_row("index", index, len(self), "rows"))

    def to_records(self) -> list[dict[str, Any]]:
        """Return the rows as dictionaries, for `pandas.DataFrame(table.to_records())` and others."""
        return [asdict(row) for row in self.rows]


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """Allocations and frees during one operator on one device, as `table --of memory --json` has them.

    `held_bytes`: of its allocations, those never freed in the trace; None where no addresses are recorded.
    `net_bytes`: allocated less freed during the operator, as in torch's table. `largest_bytes`: its largest allocation.
    """

    name: str
    device: str
    allocations: int
    allocated_bytes: int
    held_bytes: float | None
    frees: int
    freed_bytes: int
    net_bytes: int
    largest_bytes: int


@dataclass(frozen=True, slots=True)
class MemoryPeak:
    """The peak of a device: bytes, and when; None for what is not recorded."""

    device: str
    allocated_bytes: int | None
    allocated_at_ns: int | None
    reserved_bytes: int | None
    reserved_at_ns: int | None


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory by operator and device, and the peak of each device. `rank`, `step`, `totals`: as in `Table`."""

    step: int | None
    rank: int | None
    rows: tuple[MemoryRow, ...]
    peaks: tuple[MemoryPeak, ...]
    totals: tuple[str, ...]


def build_table(profile: Profile, by: str, step: int | None, flops: bool) -> Table:
    """Build the table. Raises TraceError, NotRecordedError, OSError, LookupError."""
    group_by = GroupBy(check_choice("by", by, [each.value for each in GroupBy], "calls are grouped by"))
    mask = None if step is None else find_step_mask(profile, step)
    sheet = build_calls_sheet(profile, group_by, mask, flops)
    rows = tuple(_build_row(record) for record in export.to_records(sheet, range(len(sheet))))
    return Table(by, step, profile.trace.rank, rows, sheet.totals, sheet)


def _build_row(record: dict[str, Any]) -> TableRow:
    stack = record.pop("stack", None)
    if stack is not None:  # a call without frames has the text ""
        record["stack"] = tuple(stack) if isinstance(stack, list) else ()
    return TableRow(**record)


def build_memory(profile: Profile, step: int | None) -> Memory:
    """Build memory by operator. Raises TraceError where it was not recorded, NotRecordedError for an unknown step."""
    trace = profile.trace
    if trace.memory is None:
        raise TraceError(f"{trace.label}: {explain_empty_sheet(trace, 'memory')}")
    mask = None if step is None else find_step_mask(profile, step)
    sheet = build_memory_sheet(trace, profile.own_calls, mask)
    records = export.to_records(sheet, np.arange(len(sheet)).tolist())
    peaks = tuple(
        MemoryPeak(
            peak.device,
            *((None, None) if peak.allocated < 0 else (peak.allocated, peak.allocated_at)),
            *((None, None) if peak.reserved < 0 else (peak.reserved, peak.reserved_at)),
        )
        for peak in find_memory_peaks(trace)
    )
    return Memory(step, trace.rank, tuple(MemoryRow(**record) for record in records), peaks, sheet.totals)
