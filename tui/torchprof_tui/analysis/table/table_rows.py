"""Calls summed up into rows: the profiler's table, sorted, filtered, with its footer. All times int64 ns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import numpy as np

from torchprof_tui.analysis.search.name_search import BadPattern
from torchprof_tui.analysis.table.calls import Calls
from torchprof_tui.analysis.table.text_columns import TextColumn, match_rows
from torchprof_tui.trace.core.arrays import F64, I32, I64, Bool


class TableColumn(str, Enum):
    """What a table can be sorted by. The value is the command line's word for it."""

    NAME = "name"
    CALLS = "calls"
    SELF_CPU = "self_cpu"
    SELF_CPU_SHARE = "self_cpu_share"
    CPU = "cpu"
    CPU_SHARE = "cpu_share"
    CPU_AVERAGE = "cpu_avg"
    SELF_GPU = "self_gpu"
    SELF_GPU_SHARE = "self_gpu_share"
    GPU = "gpu"
    GPU_SHARE = "gpu_share"
    GPU_AVERAGE = "gpu_avg"


class GroupBy(str, Enum):
    """What makes a row. Names, shapes and stacks have a row for each name; the others one for all calls of a group."""

    NAME = "name"
    SHAPE = "shape"
    STACK = "stack"
    MODULE = "module"
    CLASS = "class"
    STEP = "step"


@dataclass(frozen=True)
class Groups:
    """Which row each call belongs to: `row` int32[m], -1 for none. k rows.

    `names` and `details` are what a row is called; a detail is "" for tables that have none. `per_name` says that
    a row holds calls of one name, on one side (CPU or GPU), annotations or not.
    """

    group_by: GroupBy
    row: I32
    names: Sequence[str]
    details: Sequence[str]
    per_name: bool = True


@dataclass(frozen=True)
class TableRow:
    """One row, looked at. Times ns; shares 0..1 of the table's totals, 0 where a total is 0."""

    name: str
    detail: str
    on_gpu: bool
    annotation: bool
    calls: int
    self_cpu: int
    cpu: int
    self_gpu: int
    gpu: int
    self_cpu_share: float
    cpu_share: float
    self_gpu_share: float
    gpu_share: float

    @property
    def cpu_average(self) -> float:
        return self.cpu / max(self.calls, 1)

    @property
    def gpu_average(self) -> float:
        return self.gpu / max(self.calls, 1)


@dataclass(frozen=True)
class ProfilerTable:
    """k rows in the order in which torch lists them: by their first call. Columns int64[k] and bool[k].

    `self_cpu_total` and `self_gpu_total` are torch's footer: of the GPU only what it did, not the spans of annotations.
    Rows of groups (modules, classes, steps) count calls on the CPU (classes: kernels), sum the CPU totals of those that
    lie in no other of the same row, and as GPU time what the GPU did.
    """

    group_by: GroupBy
    per_name: bool
    names: list[str]
    details: list[str]
    on_gpu: Bool
    annotation: Bool
    calls: I64
    self_cpu: I64
    cpu: I64
    self_gpu: I64
    gpu: I64
    self_cpu_total: int
    self_gpu_total: int
    members: I32
    """int32[...]: places in `Calls` of all calls counted, row by row; see `calls_of`."""
    first: I64

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, row: int) -> TableRow:
        cpu_total, gpu_total = self.self_cpu_total, self.self_gpu_total
        self_cpu, cpu = int(self.self_cpu[row]), int(self.cpu[row])
        self_gpu, gpu = int(self.self_gpu[row]), int(self.gpu[row])
        return TableRow(
            self.names[row],
            self.details[row],
            bool(self.on_gpu[row]),
            bool(self.annotation[row]),
            int(self.calls[row]),
            self_cpu,
            cpu,
            self_gpu,
            gpu,
            _share(self_cpu, cpu_total),
            _share(cpu, cpu_total),
            _share(self_gpu, gpu_total),
            _share(gpu, gpu_total),
        )

    def members_of(self, row: int) -> I32:
        """int32[c]: the places in `Calls` of a row's calls, in their order there."""
        return self.members[self.first[row] : self.first[row + 1]]

    def sort_rows(self, column: TableColumn, descending: bool | None = None) -> I64:
        """int64[k]: rows sorted; numbers largest first and names first to last unless told. Ties stay as they were."""
        if column is TableColumn.NAME:
            ranks = self._texts[0].sort_ranks
            return np.argsort(-ranks if descending else ranks, kind="stable")
        value = self.column_values(column)
        return np.argsort(value if descending is False else -value, kind="stable")

    def column_values(self, column: TableColumn) -> I64 | F64:
        """The numbers of a column, [k]: ns, calls, or shares. Raises KeyError for the names."""
        average = {TableColumn.CPU_AVERAGE: self.cpu, TableColumn.GPU_AVERAGE: self.gpu}.get(column)
        if average is not None:
            return average / np.maximum(self.calls, 1)
        plain = {
            TableColumn.CALLS: (self.calls, 1),
            TableColumn.SELF_CPU: (self.self_cpu, 1),
            TableColumn.CPU: (self.cpu, 1),
            TableColumn.SELF_GPU: (self.self_gpu, 1),
            TableColumn.GPU: (self.gpu, 1),
            TableColumn.SELF_CPU_SHARE: (self.self_cpu, self.self_cpu_total),
            TableColumn.CPU_SHARE: (self.cpu, self.self_cpu_total),
            TableColumn.SELF_GPU_SHARE: (self.self_gpu, self.self_gpu_total),
            TableColumn.GPU_SHARE: (self.gpu, self.self_gpu_total),
        }
        value, total = plain[column]
        return value if total == 1 else value / max(total, 1)

    def filter_rows(self, text: str) -> Bool | BadPattern:
        """bool[k]: rows whose name or detail holds `text`; `/text/` is a regular expression. All rows for ""."""
        return match_rows(self._texts, len(self), text)

    @cached_property
    def _texts(self) -> tuple[TextColumn, TextColumn]:
        return TextColumn(self.names), TextColumn(self.details)


def sum_calls(calls: Calls, groups: Groups, call_mask: Bool | None = None) -> ProfilerTable:
    """The table of these groups, over all calls or those that are `counted` (bool[m])."""
    included = groups.row >= 0 if call_mask is None else (groups.row >= 0) & call_mask
    if not groups.per_name:
        included &= ~(calls.on_gpu & calls.annotation)  # which spans work that is counted already
    places = np.flatnonzero(included)
    row = groups.row
    size = len(groups.names)
    row = row[places]
    used, first_call = _find_first_calls(calls, row, places, size)
    number = np.full(size, -1, np.int32)
    number[used] = np.arange(len(used), dtype=np.int32)
    row = number[row]
    work = calls.on_gpu[places] & ~calls.annotation[places]
    outer: Bool | None = None
    gpu_of = None
    if not groups.per_name:
        # What lies inside a call of the same row is in its total; operators' GPU time is that of the work itself.
        outer, gpu_of = _outermost_mask(calls, places, groups.row), work
    counting = {"self_cpu": None, "cpu": outer, "self_gpu": gpu_of, "gpu": gpu_of}
    sums = {name: _sum_by_row(row, getattr(calls, name)[places], len(used), only) for name, only in counting.items()}
    by_row = np.argsort(row.astype(np.uint16) if len(used) < 1 << 16 else row, kind="stable")
    count = np.bincount(row, minlength=len(used))
    counted_calls = count
    if not groups.per_name and groups.group_by is not GroupBy.CLASS:
        counted_calls = np.bincount(row[~calls.on_gpu[places]], minlength=len(used))
    return ProfilerTable(
        group_by=groups.group_by,
        per_name=groups.per_name,
        names=[groups.names[place] for place in used.tolist()],
        details=[groups.details[place] for place in used.tolist()],
        on_gpu=calls.on_gpu[first_call],
        annotation=calls.annotation[first_call],
        calls=counted_calls.astype(np.int64),
        **sums,
        self_cpu_total=int(calls.self_cpu[places].sum()),
        self_gpu_total=int(calls.self_gpu[places][work].sum()),
        members=places[by_row].astype(np.int32),
        first=np.concatenate([[0], np.cumsum(count)]).astype(np.int64),
    )


def _find_first_calls(calls: Calls, row: I32, places: I64, size: int) -> tuple[I64, I64]:
    """(rows that have calls, the first call of each): both int64[k], by start of that call, longest first."""
    earliest = np.full(size, np.iinfo(np.int64).max, np.int64)
    start = calls.start[places]
    np.minimum.at(earliest, row, start)
    candidate = np.flatnonzero(start == earliest[row])
    place = places[candidate]
    longest = np.where(calls.on_gpu[place], calls.gpu[place], calls.cpu[place])
    order = candidate[np.lexsort((calls.ordinal[place], -longest, start[candidate]))]
    used, where = np.unique(row[order], return_index=True)
    by_time = np.argsort(where, kind="stable")
    return used[by_time].astype(np.int64), places[order[where[by_time]]]


def _sum_by_row(row: I32, values: I64, size: int, only: Bool | None) -> I64:
    if only is not None:
        row, values = row[only], values[only]
    # float64 sums are exact up to 2**53 ns: a hundred days.
    return np.bincount(row, weights=values, minlength=size).astype(np.int64)


def _outermost_mask(calls: Calls, places: I64, row: I32) -> Bool:
    """bool[k]: whether the call right above is of another row, or of the other side."""
    above = calls.parent[places]
    outermost: Bool = (above < 0) | (row[np.maximum(above, 0)] != row[places]) | calls.on_gpu[places]
    return outermost


def _share(part: int, total: int) -> float:
    return part / total if total else 0.0
