"""The trace model: columns over all drawn events, lanes, names and links.

Structure of arrays with one row per drawn event (spans and marks on lanes; counter points have arrays of their own),
sorted by lane, then start, then longest first, then file order. An event is identified by its row number. `Event` is a
short-lived view of one row.

All times are int64 nanoseconds from the trace's first event; microseconds are used only in displayed text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from torchprof_tui.trace.core.arrays import F64, I32, I64, U8, U16, Array
from torchprof_tui.trace.core.problems import Problem
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.lanes import Lane
from torchprof_tui.trace.model.ranks import Rank, Ranks
from torchprof_tui.trace.model.row_index import RowIndex
from torchprof_tui.trace.model.steps import Step as Step
from torchprof_tui.trace.model.steps import find_profiler_steps
from torchprof_tui.trace.model.trace_metadata import DeviceProperties, TraceMetadata
from torchprof_tui.trace.text.block_text import TextIndex
from torchprof_tui.trace.text.large_values import LargeValues


@record
class Counter:
    """A counter: `times` int64[k] ascending, `values` float64[k]; each value holds until the next point."""

    lane: int
    name: str
    unit: str  # "bytes" or ""
    times: I64
    values: F64


@record
class SparseColumn:
    """A column for the few events that have a value: `events` int32[k] ascending, `values` [k] or [k, m].

    As a lookup table it has other ascending keys in `events`, int64[k]; of equal ones the first counts.
    """

    events: I32 | I64
    values: Array

    def get(self, event: int) -> Any | None:
        """Return the value of an event (a scalar, or an array of m), None if it has none."""
        # A number of another dtype would make numpy convert the whole column at each call.
        index = int(self.events.searchsorted(self.events.dtype.type(event)))
        if index == len(self.events) or self.events[index] != event:
            return None
        value = self.values[index]
        return value if value.ndim else value.item()

    def values_at(self, events: I32 | I64, missing: int = -1) -> Array:
        """Return the value of each event, `missing` if it has none: [len(events)] or [len(events), m]."""
        out = np.full((len(events), *self.values.shape[1:]), missing, dtype=self.values.dtype)
        if len(self.events):
            keys = events.astype(self.events.dtype, copy=False)
            index = np.minimum(self.events.searchsorted(keys), len(self.events) - 1)
            hit = self.events[index] == keys
            out[hit] = self.values[index[hit]]
        return out

    def to_dense(self, size: int, missing: int = -1) -> Array:
        """Return values of events 0..size-1, `missing` for those without: [size] or [size, m]."""
        out = np.full((size, *self.values.shape[1:]), missing, dtype=self.values.dtype)
        out[self.events] = self.values
        return out


@record
class MemoryEvents:
    """`[memory]` instants by time, k rows: allocations (bytes > 0) and frees (bytes < 0)."""

    time: I64
    lane: I32  # of the thread that allocated; -1 if it has none
    device_type: I64  # 0 CPU, 1 CUDA and ROCm
    device_id: I64
    bytes: I64
    allocated: I64  # -1 if not recorded
    reserved: I64
    address: I64
    ordinal: I32


@record
class Links:
    """Links between launches and GPU work, and between forward and backward.

    `launch_of` int32[n]: the runtime call that launched a GPU event (on Ascend the op); -1 if unknown, and for all
    other events.
    `work_order`, `work_first`: the GPU work of launch event i is `work_order[work_first[i] : work_first[i + 1]]` (a
    graph launch has many); see `work_of`. `forward`, `backward` int32[f]: pairs of events joined by `fwdbwd` flows.
    `called_work`, `work_call` int32[c]: GPU work whose launch is an op, and the runtime call, on a thread of its own,
    that handed it to the device (Ascend's `HostToDevice` flows). `graph_before`, `graph_after` int32[e]: edges of
    replayed graphs, GPU work or event nodes and what waits for them in the same replay (torch 2.15).
    """

    launch_of: I32
    work_order: I32
    work_first: I32
    forward: I32
    backward: I32
    called_work: I32
    work_call: I32
    graph_before: I32
    graph_after: I32
    launches: int
    gpu_events: int
    linked_gpu_events: int

    def work_of(self, launch: int) -> I32:
        """Return the GPU events that a launch event started: int32[k]."""
        return self.work_order[self.work_first[launch] : self.work_first[launch + 1]]


LINK_COUNTS = ("launches", "gpu_events", "linked_gpu_events")
"""The fields of `Links` that are numbers."""


class CaptureTraces(Protocol):
    """Traces in which the graphs of a trace were captured, or of an eager run of the same model."""

    def open_traces(self, replayed: Trace) -> Sequence[Trace]:
        """Open those of `replayed` on the first call, which blocks, and return those that could be opened."""

    @property
    def problems(self) -> Sequence[str]:
        """What could not be opened and why, one line each, after `open_traces`."""


class SameProgram(Protocol):
    """Other recordings of the program of a trace."""

    @property
    def spec(self) -> str:
        """The trace itself, as a user names it in a command."""

    def open_traces(self) -> Sequence[Trace]:
        """Open those that lie beside the trace on the first call, which blocks; each has its name as its label."""


@record
class EntryCounts:
    """Count every entry of the file: `events == drawn + metadata + flows + sum(not_drawn)`."""

    events: int
    drawn: int
    metadata: int
    flows: int
    not_drawn: dict[str, int]
    by_category: dict[str, int]


@dataclass(frozen=True, repr=False)
class Trace:
    """A trace; see the module. All columns have n rows and may be memory-mapped: never write to them."""

    label: str  # name to display: a path as given by the user, "stdin"
    format: str  # "kineto" | "chrome", or the name of the extension that made its text
    size: int  # bytes of decompressed text
    header: dict[str, Any]
    start: I64
    duration: I64  # >= 0
    name: I32
    category: U16
    kind: U8
    lane: I32
    row: I32
    parent: I32  # -1 at the top of a lane
    self_duration: I64
    correlation: I64  # -1 for none
    ordinal: I32  # index of its entry in the file (of the B of a pair)
    names: list[str]
    categories: list[str]
    lanes: list[Lane]
    counters: list[Counter]
    steps: list[Step]
    span: tuple[int, int]  # start and end of the drawn events, without those on the profiler's lanes
    links: Links
    args: dict[str, SparseColumn]  # raw_events.ARGS by event, and "end_ordinal" for B/E pairs
    counts: EntryCounts
    row_order: I32  # events by (row of the whole trace, start): see row_index.py
    row_first: I64  # int64[rows + 1]: bounds of each row of the whole trace in row_order
    text: TextIndex
    memory: MemoryEvents | None = None
    problems: list[Problem] = field(default_factory=list)
    metadata: TraceMetadata = field(default_factory=TraceMetadata)  # of the first rank in a merged trace
    origin: int = 0  # ns on the file's own clock (without `baseTimeNanoseconds`) of this trace's time 0
    merged_ranks: Ranks | None = None  # only in a merged trace of several ranks
    large_keys: LargeValues | None = None  # top-level keys too large for `header`; None if there are none
    captures: CaptureTraces | None = None  # traces of the captures of its graphs; set after opening
    same_program: SameProgram | None = None  # other recordings of its program; set after opening
    part: str = ""  # "first 1.2 s" of a recording whose rest is still read, "" for all of it; set after opening
    stored_index: RowIndex | None = None  # as mapped by trace_store; use `row_index`

    def __len__(self) -> int:
        return len(self.start)

    def __repr__(self) -> str:
        """Return label and size. The columns are left out: asyncio prints its result at the end of a run (`%r`)."""
        return f"<Trace {self.label!r}: {len(self)} events on {len(self.lanes)} lanes>"

    def event(self, index: int) -> Event:
        """Return a view of one event. Raises IndexError outside 0..n-1."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        return Event(self, index)

    def numbers_at(self, arg: str, events: I32 | I64, missing: int = -1, shape: tuple[int, ...] = ()) -> I64:
        """Return an arg of each event, `missing` where it has none: int64[k], or [k, *shape]."""
        column = self.args.get(arg)
        if column is None or not len(column.events):
            return np.full((len(events), *shape), missing, np.int64)
        return column.values_at(events, missing).astype(np.int64)

    def steps_of_event(self, event: int) -> list[Step]:
        """Return the steps of the process of an event: in a merged trace, those of its rank."""
        return self.rank_of_event(event).steps

    @cached_property
    def profiler_steps(self) -> list[Step]:
        """The `ProfilerStep#N` alone: iterations that are alike, which those of a serving engine need not be."""
        if not self.steps or self.steps[0].serving is None:
            return self.steps
        return find_profiler_steps(self.names, self.kind, self.name, self.start, self.duration)

    @property
    def devices(self) -> Sequence[DeviceProperties]:
        return self.metadata.devices

    @property
    def rank(self) -> int | None:
        """The rank that the file says it is of; None in a merged trace of several ranks."""
        return None if self.merged_ranks is not None else self.metadata.rank

    @property
    def world_size(self) -> int | None:
        return self.metadata.world_size

    def devices_of_event(self, event: int) -> Sequence[DeviceProperties]:
        """Return `deviceProperties` of the process of an event."""
        return self.rank_of_event(event).trace.devices

    @property
    def all_ranks(self) -> tuple[Rank, ...]:
        """The ranks of the run, by number; a trace of one process is a run of one rank.

        Not cached: the rank refers to this trace, and a cycle would keep its mapped columns until a collection.
        """
        return (Rank.of_single_trace(self),) if self.merged_ranks is None else self.merged_ranks.all

    def rank_of_event(self, event: int) -> Rank:
        return Rank.of_single_trace(self) if self.merged_ranks is None else self.merged_ranks.rank_of_event(event)

    def rank_of_lane(self, lane: int) -> Rank:
        return Rank.of_single_trace(self) if self.merged_ranks is None else self.merged_ranks.rank_of_lane(lane)

    @cached_property
    def total_rows(self) -> int:
        return len(self.row_first) - 1

    @cached_property
    def row_index(self) -> RowIndex:
        """Index for drawing: mapped with the trace, else built now (60 ms for a million events)."""
        return self.stored_index or RowIndex.build(self)

    @cached_property
    def derived(self) -> dict[str, object]:
        """Answers of analysis that are kept as long as the trace, by name; they must not refer to the trace."""
        return {}

    @cached_property
    def end(self) -> I64:
        """int64[n] end times, computed once (8 bytes per event): use only if many are needed."""
        return self.start + self.duration

    def read_entry(self, ordinal: int, parse: Callable[[bytes], list[dict[str, Any]]] | None = None) -> dict[str, Any]:
        """Read and parse an entry of the file; `parse` defaults to `parse_chunk`. Raises OSError, LookupError."""
        if parse is None:
            from torchprof_tui.trace.json_text.salvage import parse_chunk  # deferred: not needed before args are read

            parse = parse_chunk
        return self.text.read_entry(ordinal, parse)


@record
class Event:
    """View of one event."""

    trace: Trace
    index: int

    @property
    def name(self) -> str:
        return self.trace.names[int(self.trace.name[self.index])]

    @property
    def category(self) -> str:
        return self.trace.categories[int(self.trace.category[self.index])]

    @property
    def kind(self) -> Kind:
        return Kind(int(self.trace.kind[self.index]))

    @property
    def start(self) -> int:
        return int(self.trace.start[self.index])

    @property
    def duration(self) -> int:
        return int(self.trace.duration[self.index])

    @property
    def end(self) -> int:
        return self.start + self.duration

    @property
    def self_duration(self) -> int:
        return int(self.trace.self_duration[self.index])

    @property
    def lane(self) -> Lane:
        return self.trace.lanes[int(self.trace.lane[self.index])]

    @property
    def row(self) -> int:
        return int(self.trace.row[self.index])

    @property
    def parent(self) -> Event | None:
        parent = int(self.trace.parent[self.index])
        return None if parent < 0 else Event(self.trace, parent)

    def read_args(self) -> dict[str, Any]:
        """Read all args from the file, merged with those of the E of a pair. Raises OSError, LookupError."""
        trace = self.trace
        args = dict(_args_of(trace.read_entry(int(trace.ordinal[self.index]))))
        ends = trace.args.get("end_ordinal")
        end = ends.get(self.index) if ends is not None else None
        if end is not None:
            args.update(_args_of(trace.read_entry(int(end))))
        return args


def _args_of(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the args of an entry. A value that is not an object, which some writers produce, gets the key `args`."""
    args = entry.get("args")
    if isinstance(args, dict):
        return args
    return {"args": args} if args else {}
