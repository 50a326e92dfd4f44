"""The sheet: a table of columns that a widget shows and an exporter writes.

The profiler's table, kernels, copies, collectives and memory by operator are all sheets. The totals of a sheet
cover all of its rows, however many are shown; the lines below a table are formatted from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from functools import cached_property

import numpy as np

from torchprof_tui.analysis.kernel.names.distinct_labels import label_kernels
from torchprof_tui.analysis.search.name_search import BadPattern, compile_matcher
from torchprof_tui.trace.core.arrays import F64, I32, I64, Bool, is_in, sum_by_index
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.trace import Trace


@record
class CallTotals:
    """Of the profiler's table: torch's self time totals, ns.

    `outside_ops`: of the `outside_window` ns (steps, or first to last op), in which the main thread ran no op; None
    where it is not measured.
    """

    self_cpu: int
    self_gpu: int
    outside_ops: int | None = None
    outside_window: int | None = None


@record
class WorkTotals:
    """Of GPU work: events, the sum of their durations (ns), and bytes, None for kernels and where no size is known."""

    calls: int
    time: int
    bytes: int | None = None


@record
class MemoryTotals:
    """Of memory: numbers, and bytes. `held`: of devices with recorded addresses, None without any.

    `unknown_devices`: those without. `freed_foreign`: of the whole trace, freed but allocated before the recording.
    """

    allocations: int
    allocated: int
    frees: int
    freed: int
    held: int | None
    freed_foreign: int
    unknown_devices: tuple[str, ...] = ()


@record
class RankArrivals:
    """Of one rank: `collectives` that it took part in, those it was `last` at, and how long it `waited` (ns).

    `waited` is None for a rank that took part in none.
    """

    rank: int
    label: str
    collectives: int
    last: int
    waited: int | None


@record
class ArrivalTotals:
    """Of collectives over several ranks: by rank, and the numbers of those that were not matched."""

    ranks: tuple[RankArrivals, ...]
    unmatched: int
    before_recording: int
    incomplete: int
    mismatched: int


@record
class PatternTotals:
    """Of all repetitions of a pattern; times in ns.

    `parent`: label of the pattern around it, None for none. `is_unit`: gone through as if they were steps. `runs`: how
    often they follow each other directly. `events`: of one, the median. `slowest`: number of the longest.
    `interval`: median from start to start, None without two in a run. `coverage`: share of the time of all events of
    the sequence. `shown_start`: of the one that stands for all. `differing`: those with other events than that;
    `differences`: name, how many have more of it, how many fewer. `kinds`: how many of them steps of which kind of a
    serving engine launched. `differing_numbers`: the first of those that differ.
    """

    label: str
    level: int
    parent: str | None
    is_unit: bool
    repetitions: int
    runs: int
    events: int
    median: float
    p95: float
    shortest: int
    longest: int
    slowest: int
    interval: float | None
    coverage: float
    shown_start: int
    differing: int
    kinds: tuple[tuple[str, int], ...]
    differing_numbers: tuple[int, ...]
    differences: tuple[tuple[str, int, int], ...]


@record
class RepetitionTotals:
    """Of repetitions: the `lane` whose `events` (`unit`: kernels or ops) were searched, and its patterns."""

    unit: str
    lane: str
    events: int
    patterns: tuple[PatternTotals, ...]


SheetTotals = CallTotals | WorkTotals | MemoryTotals | ArrivalTotals | RepetitionTotals


class Unit(str, Enum):
    """The unit of a column; decides how it is formatted."""

    TEXT = "text"
    COUNT = "count"
    NUMBER = "number"  # with decimals
    NS = "ns"
    SHARE = "share"  # 0..1
    BYTES = "bytes"
    GB_S = "GB/s"  # 10^9 bytes
    FLOPS = "FLOP"
    TFLOPS = "TFLOP/s"


@record
class Field:
    """A column of a sheet. `key` is its name in options and files; in files, times end in _us and are in µs."""

    key: str
    title: str
    unit: Unit


class TextColumn:
    """One column of k texts. What sorting and filtering need is computed on first use and kept."""

    def __init__(self, texts: Sequence[str]) -> None:
        code_of_text: dict[str, int] = {}
        self.codes: I64 = np.fromiter(
            (code_of_text.setdefault(text, len(code_of_text)) for text in texts), np.int64, len(texts)
        )
        self.distinct = list(code_of_text)

    @cached_property
    def sort_ranks(self) -> I64:
        """int64[k]: the rank of each text among the distinct ones, case-insensitive."""
        names = self.distinct
        folded = [name.casefold() for name in names]
        order = sorted(sorted(range(len(names)), key=names.__getitem__), key=folded.__getitem__)
        ranks = np.empty(len(names), np.int64)
        ranks[order] = np.arange(len(names))
        return ranks[self.codes]

    def match_text(self, text: str) -> Bool | BadPattern:
        """Return which texts contain `text`: bool[k]; `/text/` is a regular expression. An empty text never matches."""
        matches = compile_matcher(text)
        if isinstance(matches, BadPattern):
            return matches
        distinct_hits = np.fromiter(
            (candidate != "" and matches(candidate) for candidate in self.distinct), np.bool_, len(self.distinct)
        )
        mask: Bool = distinct_hits[self.codes]
        return mask


@record(slots=False)
class Sheet:
    """k rows. `columns` by key: text as lists, numbers as int64 or float64 [k]; NaN is unknown.

    `members_of(row)` are events (rows of the trace). `totals`: the lines of the footer; `sums`: their numbers;
    `reading`: what they say, in a sentence.
    `gpu_mask` bool[k] marks the rows of GPU work, whose names can be decoded, None for sheets without such rows.
    `span_mask` bool[k] marks annotations: spans that contain the work of other rows, listed after it; None for sheets
    without them.
    """

    title: str
    fields: tuple[Field, ...]
    columns: dict[str, Sequence[str] | I64 | F64]
    members: I32
    first: I64
    totals: tuple[str, ...] = ()
    sums: SheetTotals | None = None
    gpu_mask: Bool | None = None
    span_mask: Bool | None = None
    reading: str = ""

    def __len__(self) -> int:
        return len(self.first) - 1

    def members_of(self, row: int) -> I32:
        """Return the events of one row: int32[c]."""
        return self.members[self.first[row] : self.first[row + 1]]

    @cached_property
    def displays(self) -> list[str]:
        """The names of the rows to read: decoded for GPU work ("gemm bf16 128×64"), as recorded for all others.

        Different recorded names have different decoded ones; see `distinct_labels`.
        """
        names: list[str] = [str(name) for name in self.columns["name"]]
        if self.gpu_mask is None:
            return names
        rows = np.flatnonzero(self.gpu_mask).tolist()
        for row, label in zip(rows, label_kernels([names[row] for row in rows]), strict=True):
            names[row] = label
        return names

    def field(self, key: str) -> Field:
        """Return the column of this key. Raises KeyError."""
        return {field.key: field for field in self.fields}[key]

    def sort_rows(self, key: str, descending: bool | None = None) -> I64:
        """Sort rows by a column, by default numbers descending and text ascending, unknown values last: int64[k].

        The sort is stable. Raises KeyError.
        """
        column = self.columns[self.field(key).key]
        if not isinstance(column, np.ndarray):
            column = self._texts[key].sort_ranks
            descending = bool(descending)
        return np.argsort(column if descending is False else -column, kind="stable").astype(np.int64)

    @property
    def longest_first_key(self) -> str | None:
        """Key of the first column of times or sizes with a value: without a GPU it is CPU time. None without any."""
        of_interest = ("self_gpu", "self_cpu", "p50", "total", "allocated", "waited")
        known = {field.key for field in self.fields}
        return next((key for key in of_interest if key in known and bool(np.any(self.columns[key]))), None)

    def sort_work_first(self, key: str, descending: bool | None = None) -> tuple[I64, int]:
        """Sort rows as `sort_rows` does, annotations after all others: (order int64[k], number of others)."""
        order = self.sort_rows(key, descending)
        if self.span_mask is None:
            return order, len(order)
        is_span = self.span_mask[order]
        return np.concatenate([order[~is_span], order[is_span]]), int(np.count_nonzero(~is_span))

    def filter_rows(self, text: str) -> Bool | BadPattern:
        """Return the rows in which a text contains `text`: bool[k]; `/text/` is a regular expression. All for ""."""
        if not text:
            return np.ones(len(self), np.bool_)
        mask = np.zeros(len(self), np.bool_)
        for column in self._texts.values():
            hits = column.match_text(text)
            if isinstance(hits, BadPattern):
                return hits
            mask |= hits
        return mask

    @cached_property
    def _texts(self) -> dict[str, TextColumn]:
        texts = {key: TextColumn(column) for key, column in self.columns.items() if not isinstance(column, np.ndarray)}
        return texts if self.gpu_mask is None else {**texts, "display": TextColumn(self.displays)}


NAME_FIELD = Field("name", "name", Unit.TEXT)
CALLS_FIELD = Field("calls", "calls", Unit.COUNT)


def format_spans_note(sheet: Sheet) -> str:
    """Say what the section of annotations is, and of what its percentages are: they may be far above 100 %."""
    note = "annotations contain gaps and the work above"
    return f"{note}; GPU % = span / GPU total" if "gpu" in sheet.columns else note


def group_events(row: I32 | I64, size: int, events: I32) -> tuple[I32, I64, Callable[[I64 | F64], I64]]:
    """Group events by row; return (events by row, bounds, a function that sums a column by row).

    `row` int64[k] of each event, 0..size-1.
    """
    order = np.argsort(row, kind="stable")
    count = np.bincount(row, minlength=size)

    def sums(values: I64 | F64) -> I64:
        return sum_by_index(row, values, size)

    return events[order].astype(np.int32), np.concatenate([[0], np.cumsum(count)]).astype(np.int64), sums


def compute_extremes(row: I32 | I64, size: int, values: I64) -> tuple[I64, I64]:
    """Compute (least, greatest) of each row, int64[size]; 0 for an empty row."""
    least, greatest = np.full(size, np.iinfo(np.int64).max), np.zeros(size, np.int64)
    np.minimum.at(least, row, values)
    np.maximum.at(greatest, row, values)
    least[np.bincount(row, minlength=size) == 0] = 0
    return least, greatest


def ratio(part: I64 | F64, whole: I64 | F64 | int) -> F64:
    """Compute part / whole, NaN where the whole is 0: float64[k]."""
    with np.errstate(invalid="ignore", divide="ignore"):
        result: F64 = np.where(np.asarray(whole) > 0, np.asarray(part, np.float64) / whole, np.nan)
    return result


_KINDS_BY_TABLE = {
    "kernels": (Kind.KERNEL, Kind.COLLECTIVE),
    "copies": (Kind.COPY, Kind.MEMSET),
    "collectives": (Kind.COLLECTIVE,),
}

_RECORD_GPU = "to record it: activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], on a machine with a GPU"

_REASONS = {
    "kernels": "no kernels were recorded",
    "copies": "no copies or fills were recorded: no data moved between CPU and GPU",
    "collectives": "no collectives were recorded: this process did not communicate with other GPUs",
    "memory": "no memory was recorded; to record it: profile_memory=True",
    "repetitions": "no repetition was found in the order of the kernels (of the ops, without a GPU)",
    "arrivals": "no collective was matched across ranks",
}
"""Table → why it is empty, where the trace has GPU work."""


def list_tables_with_rows(trace: Trace) -> list[str]:
    """List the tables of kernels, copies, collectives and memory that are not empty for the whole trace."""
    present = set(np.flatnonzero(np.bincount(trace.kind, minlength=len(Kind))).tolist())
    tables = [table for table, kinds in _KINDS_BY_TABLE.items() if present.intersection(map(int, kinds))]
    return [*tables, "memory"] if trace.memory is not None else tables


def explain_empty_sheet(trace: Trace, table: str, is_restricted: bool = False) -> str:
    """Explain in one sentence why a table ("kernels", "memory", "calls" …) has no rows.

    `is_restricted`: it counts only a part of the trace, a step or a range.
    """
    if is_restricted and (table in list_tables_with_rows(trace) or table == "calls"):
        return f"no {'copies or fills' if table == 'copies' else table} in this part of the trace"
    if table in _KINDS_BY_TABLE and not is_in(trace.kind, [int(kind) for kind in GPU_WORK]).any():
        return f"no GPU work was recorded; {_RECORD_GPU}"
    return _REASONS.get(table, "no calls were recorded")


def explain_missing_records(trace: Trace, table: str, is_restricted: bool = False) -> str:
    """Explain why an empty table cannot answer, "" where it does: none were there, and they would have been recorded.

    `is_restricted` as above.
    """
    if table == "memory":
        is_missing = trace.memory is None
    elif table in _KINDS_BY_TABLE:
        is_missing = not is_in(trace.kind, [int(kind) for kind in GPU_WORK]).any()
    else:
        is_missing = not is_restricted
    return explain_empty_sheet(trace, table, is_restricted) if is_missing else ""
