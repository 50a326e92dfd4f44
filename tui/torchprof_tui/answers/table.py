"""The answers of `table`: rows and totals; which table an answer holds is in `of`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints, overload

import msgspec
from msgspec import UNSET, UnsetType, field

from torchprof_tui.analysis.repetition.repetitions import find_repetitions
from torchprof_tui.analysis.table import gpu_sheets
from torchprof_tui.analysis.table import sheets as sums_of
from torchprof_tui.analysis.table.event_scope import step_mask
from torchprof_tui.analysis.table.export import column_key, read_cell, to_records
from torchprof_tui.analysis.table.groups import Profile
from torchprof_tui.analysis.table.memory_sheet import build_memory_sheet, find_memory_peaks
from torchprof_tui.analysis.table.profiler_table import GroupBy
from torchprof_tui.analysis.table.repetitions_sheet import build_repetitions_sheet
from torchprof_tui.analysis.table.sheets import Field, Sheet, Unit, explain_missing_records
from torchprof_tui.analysis.table.table_sheet import build_calls_sheet, drop_empty_gpu_columns, find_step
from torchprof_tui.answers import html
from torchprof_tui.answers.arguments import check_row
from torchprof_tui.answers.record import Answer, Record, about, as_fields, attach, fill
from torchprof_tui.trace.core.arrays import I32
from torchprof_tui.trace.core.extensions import import_extra
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.trace import Trace

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = "torchprof-tui/table/1"

Grouping = Literal["name", "shape", "stack", "module", "class", "step", "step-kind"]
"""What the calls of the profiler's table are grouped by."""


class TableRow(Record, frozen=True, kw_only=True):
    """A row of the profiler's table. Times as in `prof.key_averages()`."""

    name: Annotated[str, about("op, kernel, annotation, … as recorded; a module, class, step or step kind with --by")]
    input_shapes: Annotated[str | None, about("shapes of the inputs; only with --by shape")] = None
    stack: Annotated[list[str] | None, about("Python frames, innermost first; only with --by stack")] = None
    device: Annotated[Literal["CPU", "GPU"] | None, about("where it ran; not with --by module, class and step")] = None
    calls: Annotated[int, about("calls; with --by class kernels")]
    self_cpu_us: Annotated[float | None, about("without what it calls; not with --by class")] = None
    self_cpu_share: Annotated[float | UnsetType | None, about("of the total self CPU time; null if that is 0")] = UNSET
    cpu_us: Annotated[float | None, about("with what it calls; not with --by class")] = None
    cpu_share: Annotated[
        float | UnsetType | None, about("of the total self CPU time, so that it may exceed 1; null if that is 0")
    ] = UNSET
    cpu_avg_us: Annotated[float | None, about("of one call; not with --by class")] = None
    self_gpu_us: Annotated[float, about("GPU work that it launched itself, or that it is")]
    self_gpu_share: Annotated[float | None, about("of the total self GPU time; null if that is 0")]
    gpu_us: Annotated[float, about("with the GPU work of what it calls")]
    gpu_share: Annotated[float | None, about("of the total self GPU time, so that it may exceed 1; null if that is 0")]
    gpu_avg_us: Annotated[float, about("of one call")]
    flops: Annotated[float | UnsetType | None, about("sum over the calls; null if unknown; only with --flops")] = UNSET
    tflops: Annotated[float | UnsetType | None, about("over the GPU time; null if unknown; only with --flops")] = UNSET
    peak_share: Annotated[
        float | UnsetType | None, about("of the device's peak rate; null if unknown; only with --flops")
    ] = UNSET
    steps: Annotated[int | UnsetType | None, about("of this kind; only with --by step-kind")] = UNSET
    number: Annotated[
        int | UnsetType | None, about("of the step of a serving engine; this and the following: only with --by step")
    ] = UNSET
    kind: Annotated[str | None, about("prefill, decode, mixed, …; empty outside of all steps")] = None
    kv_length: Annotated[float | UnsetType | None, about("tokens in the KV cache; null if not recorded")] = UNSET
    step_us: Annotated[float | UnsetType | None, about("time of the step, as in docs/tasks/serving.md")] = UNSET
    batch: Annotated[
        float | UnsetType | None, about("requests, in the median; this and the following of a serving engine's steps")
    ] = UNSET
    tokens: Annotated[int | UnsetType | None, about("computed; null if not recorded")] = UNSET
    step_p50_us: Annotated[float | UnsetType | None, about("time of a step, median")] = UNSET
    step_p95_us: Annotated[float | UnsetType | None, about("time of a step, 95th percentile")] = UNSET
    token_p50_us: Annotated[float | UnsetType | None, about("time of a step by its tokens, median")] = UNSET
    token_p95_us: Annotated[float | UnsetType | None, about("time of a step by its tokens, 95th percentile")] = UNSET
    tokens_per_second: Annotated[float | UnsetType | None, about("by the sum of the step times")] = UNSET
    kernels_per_token: Annotated[float | UnsetType | None, about("kernels by tokens")] = UNSET
    cpu_per_token_us: Annotated[float | UnsetType | None, about("CPU time of the thread without waits")] = UNSET
    graph_share: Annotated[float | UnsetType | None, about("of the kernels, those that graphs launched")] = UNSET
    gap_p50_us: Annotated[float | UnsetType | None, about("to the next step on the thread, median")] = UNSET
    display: Annotated[str | None, about("name to read: decoded for GPU work")] = None
    annotation: Annotated[bool | None, about("a span that contains the work of other rows")] = None


class WorkRow(Record, frozen=True, kw_only=True):
    """Times of GPU work of one name."""

    calls: Annotated[int, about("events")]
    total_us: Annotated[float, about("sum of the durations")]
    share: Annotated[float | None, about("of all rows; null if their time is 0")]
    avg_us: Annotated[float, about("mean")]
    median_us: Annotated[float, about("median")]
    min_us: Annotated[float, about("shortest")]
    max_us: Annotated[float, about("longest")]
    display: Annotated[str, about("name to read: decoded")]


class KernelRow(WorkRow, frozen=True, kw_only=True):
    """Kernels and collectives of one name."""

    name: Annotated[str, about("as recorded")]
    kernel_class: Annotated[str, about("kind of work: gemm, attention, …")] = field(name="class")


class MovedRow(WorkRow, frozen=True, kw_only=True):
    """GPU work that moves data."""

    bytes: Annotated[int | None, about("moved; null if unknown")]
    gb_s: Annotated[float | None, about("bytes over time, 10⁹ bytes per second; null if unknown")]
    max_gb_s: Annotated[float | None, about("of the fastest one; null if unknown")]


class CopyRow(MovedRow, frozen=True, kw_only=True):
    """Copies and fills of one name."""

    name: Annotated[str, about("as recorded")]


class CollectiveRow(MovedRow, frozen=True, kw_only=True):
    """Collectives of one operation, data type and group. Their time includes waiting for other ranks."""

    name: Annotated[str, about("operation; the kernel where it was not recorded")]
    dtype: Annotated[str, about("data type; empty if not recorded")]
    group: Annotated[str, about("process group and its size; empty if not recorded")]


class MemoryRow(Record, frozen=True, kw_only=True):
    """Allocations and frees inside the calls of one op, on one device."""

    name: Annotated[str, about("op, or (outside of all calls)")]
    device: Annotated[str, about("CPU, GPU 0, …")]
    allocations: Annotated[int, about("number of allocations")]
    allocated_bytes: Annotated[int, about("sum of the allocations")]
    held_bytes: Annotated[int | None, about("never freed in the trace; null without recorded addresses")]
    frees: Annotated[int, about("number of frees during its calls")]
    freed_bytes: Annotated[int, about("sum of these frees, also of what others allocated")]
    net_bytes: Annotated[int, about("allocated less freed")]
    largest_bytes: Annotated[int, about("largest allocation")]


class TracePeak(Record, frozen=True, kw_only=True):
    """The peak of a device in the whole trace; null for what is not recorded."""

    device: Annotated[str, about("CPU, GPU 0, …")]
    allocated_bytes: Annotated[int | None, about("most that was allocated")]
    allocated_at_ns: Annotated[int | None, about("when, from the trace's first event")]
    reserved_bytes: Annotated[int | None, about("most that was got from the driver")]
    reserved_at_ns: Annotated[int | None, about("when, from the trace's first event")]


class ArrivalRow(Record, frozen=True, kw_only=True):
    """One collective over several ranks, in the order in which they began."""

    name: Annotated[str, about("operation")]
    step: Annotated[str, about("#3; empty outside the steps")]
    start_us: Annotated[float, about("when the first rank arrived")]
    last_rank: Annotated[int, about("the rank that came last")]
    ranks: Annotated[str | None, about("ranks present of those expected; only if any are missing")] = None
    late_by_us: Annotated[float, about("how long the last rank came after the one before it")]
    longest_wait_us: Annotated[float, about("how long the first rank waited")]
    waited_us: Annotated[float, about("sum over the ranks")]
    after_us: Annotated[float, about("how long it took once all ranks had arrived")]
    bytes: Annotated[int | None, about("of the message; null if unknown")]
    dtype: Annotated[str, about("data type; empty if not recorded")]
    group: Annotated[str, about("process group; empty if not recorded")]


class RepetitionRow(Record, frozen=True, kw_only=True):
    """One repetition, or all at one position: the same layer of all tokens."""

    name: Annotated[str, about("label of the pattern and number, from 0; `of each`: of each run")]
    calls: Annotated[int, about("repetitions")]
    events: Annotated[int, about("kernels (or ops) of one, the median")]
    total_us: Annotated[float, about("sum of the durations, each from its first kernel to its last")]
    p50_us: Annotated[float, about("median")]
    p95_us: Annotated[float, about("95 % are not longer")]
    min_us: Annotated[float, about("shortest")]
    max_us: Annotated[float, about("longest")]
    busy: Annotated[float, about("share of the total in which its kernels ran")]
    start_us: Annotated[float, about("of the first one")]
    differing: Annotated[int, about("those with other kernels than the one that stands for all")]


def _format_cell(sheet: Sheet, field: Field, row: int) -> Any:
    """Return a cell for HTML: numbers, texts, and shares as text."""
    is_name = field.key == "name" and sheet.gpu_mask is not None
    value: Any = sheet.displays[row] if is_name else read_cell(sheet, field, row)
    if field.unit is Unit.SHARE:
        return html.format_share(value)
    if field.unit is Unit.FLOPS and value is not None:
        return value / 1e9
    return " < ".join(value) if isinstance(value, list) else value


class AnyTable(Answer, frozen=True, kw_only=True, dict=True, tag=SCHEMA):
    """What all tables have."""

    step: Annotated[int | None, about("number of the only step that is counted; null for the whole trace")]
    rank: Annotated[int | None, about("rank of the trace; left out where the file names none")] = None
    row_count: Annotated[int, about("rows before --limit, that --filter chose; totals cover all rows")]
    cannot_tell: Annotated[str | None, about("why the table is empty though the answer may not be")] = None
    rows: list[Any]

    def __len__(self) -> int:
        return len(self.rows)

    def to_records(self) -> list[dict[str, Any]]:
        """Return the rows as dictionaries, for `pandas.DataFrame(table.to_records())` and others."""
        return [as_fields(row) for row in self.rows]

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas.DataFrame of the rows, missing values None. Raises MissingExtraError without pandas."""
        pandas: Any = import_extra("pandas")
        records = self.to_records()
        frame: pd.DataFrame = pandas.DataFrame(
            records, columns=None if records else [column_key(field) for field in self.__dict__["sheet"].fields]
        )
        return frame

    def _repr_html_(self) -> str:
        sheet: Sheet = self.__dict__["sheet"]
        key, chosen = sheet.longest_first_key, set(self.__dict__["order"])
        listed = sheet.sort_work_first(key)[0].tolist() if key else range(len(sheet))
        order = [row for row in listed if row in chosen]
        shown = drop_empty_gpu_columns(sheet)
        columns = [f"{field.title} µs" if field.unit is Unit.NS else field.title for field in shown.fields]
        rows = ([_format_cell(shown, field, row) for field in shown.fields] for row in order[: html.MAX_ROWS])
        notes = [self.cannot_tell or "", *getattr(getattr(self, "totals", None), "notes", ())]
        return html.build_block(shown.title, notes, html.build_table(columns, rows, len(order)))

    def events_of(self, index: int) -> I32:
        """Return the rows of `Trace.events` that a row of the table counts: int32[calls]."""
        place = check_row("index", index, len(self), "rows")
        events: I32 = self.__dict__["sheet"].members_of(self.__dict__["order"][place])
        return events


class Table(AnyTable, frozen=True, kw_only=True, tag=SCHEMA):
    """The profiler's table (`--of calls`, the default)."""

    of: Annotated[Literal["calls"], about("which table")]
    by: Annotated[Grouping, about("what calls are grouped by")]
    rows: Annotated[list[TableRow], about("in torch's order, else as --sort says")]
    totals: Annotated[CallTotals, about("as below the printed table")]

    def __iter__(self) -> Iterator[TableRow]:
        return iter(self.rows)

    @overload
    def __getitem__(self, index: int) -> TableRow: ...
    @overload
    def __getitem__(self, index: slice) -> list[TableRow]: ...
    def __getitem__(self, index: int | slice) -> TableRow | list[TableRow]:
        return self.rows[index if isinstance(index, slice) else check_row("index", index, len(self), "rows")]

    def __repr__(self) -> str:
        return f"<table by {self.by}: {len(self)} rows>"


class KernelTable(AnyTable, frozen=True, kw_only=True, tag=SCHEMA):
    """Kernels (`--of kernels`)."""

    of: Annotated[Literal["kernels"], about("which table")]
    rows: Annotated[list[KernelRow], about("longest first, else as --sort says")]
    totals: Annotated[WorkTotals, about("of all rows")]


class CopyTable(AnyTable, frozen=True, kw_only=True, tag=SCHEMA):
    """Copies and fills (`--of copies`)."""

    of: Annotated[Literal["copies"], about("which table")]
    rows: Annotated[list[CopyRow], about("longest first, else as --sort says")]
    totals: Annotated[WorkTotals, about("of all rows")]


class CollectiveTable(AnyTable, frozen=True, kw_only=True, tag=SCHEMA):
    """Collectives (`--of collectives`)."""

    of: Annotated[Literal["collectives"], about("which table")]
    rows: Annotated[list[CollectiveRow], about("longest first, else as --sort says")]
    totals: Annotated[WorkTotals, about("of all rows")]


class MemoryTable(AnyTable, frozen=True, kw_only=True, tag=SCHEMA):
    """Memory by op (`--of memory`)."""

    of: Annotated[Literal["memory"], about("which table")]
    rows: Annotated[list[MemoryRow], about("most allocated first, else as --sort says")]
    peaks: Annotated[list[TracePeak], about("of each device; [] where memory was not recorded")]
    totals: Annotated[MemoryTotals, about("of all rows")]


class ArrivalTable(AnyTable, frozen=True, kw_only=True, tag=SCHEMA):
    """Collectives over several ranks (`--of arrivals`)."""

    of: Annotated[Literal["arrivals"], about("which table")]
    rows: Annotated[list[ArrivalRow], about("longest waits first, else as --sort says")]
    totals: Annotated[ArrivalTotals, about("by rank")]


class RepetitionTable(AnyTable, frozen=True, kw_only=True, tag=SCHEMA):
    """Repetitions found in the order of the kernels (`--of repetitions`)."""

    of: Annotated[Literal["repetitions"], about("which table")]
    rows: Annotated[list[RepetitionRow], about("longest median first, else as --sort says")]
    totals: Annotated[RepetitionTotals, about("of all rows")]


TABLES: dict[str, type[AnyTable]] = {
    "calls": Table,
    "kernels": KernelTable,
    "copies": CopyTable,
    "collectives": CollectiveTable,
    "memory": MemoryTable,
    "arrivals": ArrivalTable,
    "repetitions": RepetitionTable,
}


@record
class TableQuestion:
    """Which table was asked for: `of` is a key of TABLES, `by` a Grouping; of a `step` or all."""

    of: str = "calls"
    by: str = "name"
    step: int | None = None
    flops: bool = False


def build_sheet(profile: Profile, asked: TableQuestion) -> Sheet:
    """Build the table of one process that was asked for. Raises NotRecordedError, OSError, LookupError."""
    trace = profile.trace
    step = None if asked.step is None else find_step(trace, asked.step)
    if asked.of == "calls":
        return build_calls_sheet(profile, GroupBy(asked.by), step, asked.flops)
    only = None if step is None else step_mask(trace, step, profile.request_times)
    if asked.of == "kernels":
        return gpu_sheets.build_kernels_sheet(trace, only)
    if asked.of == "copies":
        return gpu_sheets.build_copies_sheet(trace, only)
    if asked.of == "collectives":
        return gpu_sheets.build_collectives_sheet(trace, only)
    if asked.of == "repetitions":
        return build_repetitions_sheet(trace, find_repetitions(trace))
    return build_memory_sheet(trace, profile.own_calls, only)


def build_table(
    trace: Trace, asked: TableQuestion, sheet: Sheet, rows: Sequence[int] | None = None, rank: int | None = None
) -> Any:
    """Build the table of a sheet: its `rows` in this order, None for all, and the totals of all rows."""
    order = range(len(sheet)) if rows is None else rows
    reason = "" if len(sheet) else explain_missing_records(trace, asked.of, is_restricted=asked.step is not None)
    kind: Any = TABLES[asked.of]
    more: dict[str, Any] = {}
    if asked.of == "calls":
        more["by"] = asked.by
    if asked.of == "memory":
        more["peaks"] = [
            TracePeak(
                device=peak.device,
                allocated_bytes=None if peak.allocated < 0 else peak.allocated,
                allocated_at_ns=None if peak.allocated < 0 else peak.allocated_at,
                reserved_bytes=None if peak.reserved < 0 else peak.reserved,
                reserved_at_ns=None if peak.reserved < 0 else peak.reserved_at,
            )
            for peak in ([] if trace.memory is None else find_memory_peaks(trace))
        ]
    table = kind(
        of=asked.of,
        step=asked.step,
        rank=rank,
        row_count=len(sheet),
        cannot_tell=reason or None,
        rows=msgspec.convert(to_records(sheet, order), get_type_hints(kind)["rows"]),
        totals=build_totals(sheet.sums, [*sheet.totals, *([sheet.reading] if sheet.reading else [])]),
        **more,
    )
    attach(table, sheet=sheet, order=order)
    return table


class CallTotals(Record, frozen=True, kw_only=True):
    """Torch's totals."""

    self_cpu_us: Annotated[float, about("shares of CPU time are of it")]
    self_gpu_us: Annotated[float, about("shares of GPU time are of it")]
    outside_ops_us: Annotated[
        float | None, about("of the main thread, in which no op ran; only without GPU work and if it is long")
    ] = None
    outside_ops_of_us: Annotated[float | None, about("the time that this is a part of")] = None
    notes: Annotated[list[str], about("the lines below the printed table")]


class WorkTotals(Record, frozen=True, kw_only=True):
    """Sums over all rows."""

    calls: Annotated[int, about("events")]
    total_us: Annotated[float, about("sum of the durations")]
    bytes: Annotated[int | None, about("moved; null for kernels, and if unknown")]
    notes: Annotated[list[str], about("the lines below the printed table")]


class MemoryTotals(Record, frozen=True, kw_only=True):
    """Sums over all rows."""

    allocations: Annotated[int, about("number of allocations")]
    allocated_bytes: Annotated[int, about("sum of the allocations")]
    held_bytes: Annotated[int | None, about("never freed in the trace; null without recorded addresses")]
    frees: Annotated[int, about("number of frees")]
    freed_bytes: Annotated[int, about("sum of the frees")]
    freed_foreign_bytes: Annotated[int, about("of the whole trace: freed, but allocated before the recording")]
    notes: Annotated[list[str], about("the lines below the printed table")]


class RankArrivals(Record, frozen=True, kw_only=True):
    """How often a rank came last, and how long it waited."""

    rank: Annotated[int, about("number of the rank")]
    collectives: Annotated[int, about("those that it took part in")]
    last: Annotated[int, about("those at which it came last")]
    waited_us: Annotated[float | None, about("for other ranks; null if it took part in none")]


class ArrivalTotals(Record, frozen=True, kw_only=True):
    """Sums by rank, and what was not matched."""

    ranks: Annotated[list[RankArrivals], about("by number")]
    unmatched: Annotated[int, about("collectives without a match on another rank")]
    before_recording: Annotated[int, about("launched before the recording; left out")]
    incomplete: Annotated[int, about("missing on a rank of the group")]
    mismatched: Annotated[int, about("with another type or size on some ranks")]
    notes: Annotated[list[str], about("the lines below the printed table")]


class RepetitionDifference(Record, frozen=True, kw_only=True):
    """A kernel (or op) by which repetitions differ from the one that stands for all."""

    name: Annotated[str, about("as recorded")]
    more: Annotated[int, about("repetitions that have more of it")]
    fewer: Annotated[int, about("repetitions that have fewer of it, or none")]


class RepetitionPattern(Record, frozen=True, kw_only=True):
    """A pattern: what repeats, over all of its repetitions."""

    label: Annotated[str, about("level, with a letter where a level has several")]
    level: Annotated[int, about("1: the outermost")]
    parent: Annotated[str | None, about("label of the pattern around it; null for none")]
    is_unit: Annotated[bool, about("gone through like steps where the trace has none")]
    repetitions: Annotated[int, about("number of repetitions")]
    runs: Annotated[int, about("in how many runs, without anything between the repetitions of one")]
    events: Annotated[int, about("kernels (or ops) of one, the median")]
    p50_us: Annotated[float, about("median duration, from the first kernel to the last")]
    p95_us: Annotated[float, about("95 % are not longer")]
    min_us: Annotated[float, about("shortest")]
    max_us: Annotated[float, about("longest")]
    slowest: Annotated[int, about("number of the longest, from 0")]
    interval_us: Annotated[float | None, about("median from start to start; null without two in a run")]
    coverage: Annotated[float, about("share of the time of all kernels of the stream")]
    shown_start_us: Annotated[float, about("start of the one that stands for all, the most typical")]
    differing: Annotated[int, about("those with other kernels than that one")]
    kinds: Annotated[dict[str, int], about("launched by serving steps of each kind, as KIND_repetitions", "")]
    differences: Annotated[list[RepetitionDifference], about("in what, most frequent first; at most 16")]


class RepetitionTotals(Record, frozen=True, kw_only=True):
    """What was searched, and the patterns that were found."""

    unit: Annotated[Literal["kernels", "ops"], about("what was searched")]
    lane: Annotated[str, about("the stream, or the thread; empty if there is none")]
    events: Annotated[int, about("kernels of the stream, or outermost ops of the thread")]
    patterns: Annotated[list[RepetitionPattern], about("outermost first")]
    notes: Annotated[list[str], about("the lines below the printed table")]


def build_totals(sums: sums_of.SheetTotals | None, notes: list[str]) -> Record:
    if isinstance(sums, sums_of.CallTotals):
        window = sums.outside_window
        return fill(CallTotals, sums, outside_ops_of_us=None if window is None else window / 1000, notes=notes)
    if isinstance(sums, sums_of.WorkTotals):
        return WorkTotals(calls=sums.calls, total_us=sums.time / 1000, bytes=sums.bytes, notes=notes)
    if isinstance(sums, sums_of.MemoryTotals):
        return fill(MemoryTotals, sums, notes=notes)
    if isinstance(sums, sums_of.RepetitionTotals):
        patterns = [_build_pattern(pattern) for pattern in sums.patterns]
        unit = "kernels" if sums.unit == "kernels" else "ops"
        return fill(RepetitionTotals, sums, unit=unit, patterns=patterns, notes=notes)
    assert isinstance(sums, sums_of.ArrivalTotals)
    return fill(ArrivalTotals, sums, ranks=[fill(RankArrivals, rank) for rank in sums.ranks], notes=notes)


def _build_pattern(pattern: sums_of.PatternTotals) -> RepetitionPattern:
    return fill(
        RepetitionPattern,
        pattern,
        p50_us=pattern.median / 1000,
        min_us=pattern.shortest / 1000,
        max_us=pattern.longest / 1000,
        kinds=dict(pattern.kinds),
        differences=[
            RepetitionDifference(name=name, more=more, fewer=fewer) for name, more, fewer in pattern.differences
        ],
    )
