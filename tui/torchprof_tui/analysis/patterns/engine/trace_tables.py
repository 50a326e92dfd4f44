"""Tables of one trace that all patterns share, computed on first use and kept. Columns of rows, no objects.

Rows are int64 arrays of event numbers; `start` and `end` of a table belong to its rows. Nothing here depends on a
scope: a viewport only selects from these tables (`scope_view`), so checking it is fast enough to follow the cursor.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import cached_property
from typing import TypeVar, cast

import numpy as np

from torchprof_tui.analysis.collectives.communication_records import CommunicationRecords, read_communication
from torchprof_tui.analysis.collectives.communication_waiting import Arrivals, Waits, estimate_waits
from torchprof_tui.analysis.completeness.data_loss import DataLoss, find_data_loss, read_slice_metadata
from torchprof_tui.analysis.dispatch import ancestry
from torchprof_tui.analysis.dispatch.source_line import SourceLineFinder
from torchprof_tui.analysis.kernel.footprint import find_device
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.analysis.patterns.engine import event_tables
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable, GpuWorkTable, NameIndex, StepTable
from torchprof_tui.analysis.patterns.engine.practices import Practices
from torchprof_tui.analysis.throughput.device_peaks import DevicePeaks, find_peaks
from torchprof_tui.analysis.throughput.roofline import GpuPieces, Roofline, compute_roofline, name_classes
from torchprof_tui.analysis.time.gpu_time import work_mask
from torchprof_tui.analysis.time.intervals import Intervals
from torchprof_tui.analysis.time.step_bounds import find_step_bounds
from torchprof_tui.trace.core.arrays import I32, I64, Bool, is_in, number_distinct, sorted_unique
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.read_entries import read_entries

LOADING_REGEX = r"Lazy Function Loading|Runtime Triggered Module Loading"
T = TypeVar("T")

MAX_DEVICES = 256  # no host has more GPUs. A file that names more was not recorded; only this many are checked


@record
class RankContext:
    """The arrivals of all ranks at their collectives, and the index of one rank in `arrivals.ranks`."""

    arrivals: Arrivals
    rank_index: int


class TraceTables:
    """The tables of one trace; make one per trace and keep it. `rank_context`: None for a single rank.

    `with_serving_steps`: the steps of a serving engine count as steps. Patterns compare steps that are alike, which a
    prefill and a decode step are not: only a user who names steps asks for these.
    """

    def __init__(self, trace: Trace, rank_context: RankContext | None = None, with_serving_steps: bool = False) -> None:
        self.trace = trace
        self._with_serving_steps = with_serving_steps
        self.rank_context = rank_context
        self._name_match_cache: dict[tuple[object, ...], EventTable] = {}
        self._occupancy_cache: dict[int, float | None] = {}
        self._computed: dict[tuple[Hashable, ...], object] = {}

    def compute_once(self, compute: Callable[..., T], *more: Hashable) -> T:
        """Return what a function of these tables, and of `more`, computes; computed at its first call and kept."""
        key = (compute, *more)
        if key not in self._computed:
            self._computed[key] = compute(self, *more)
        return cast("T", self._computed[key])

    @cached_property
    def practices(self) -> Practices:
        """What the program already does."""
        return Practices(self)

    @cached_property
    def line_finder(self) -> SourceLineFinder:
        """Finds the lines of the program that events come from."""
        return SourceLineFinder(self.trace)

    def event_table(self, events: I64 | I32) -> EventTable:
        return event_tables.build_event_table(self.trace, events)

    @cached_property
    def _tables_by_kind(self) -> dict[Kind, EventTable]:
        kinds = np.asarray(self.trace.kind)
        wanted = (Kind.OP, Kind.RUNTIME, Kind.ANNOTATION, Kind.OVERHEAD)
        return {kind: self.event_table(np.flatnonzero(kinds == kind)) for kind in wanted}

    @property
    def ops(self) -> EventTable:
        return self._tables_by_kind[Kind.OP]

    @property
    def calls(self) -> EventTable:
        """Runtime and driver calls."""
        return self._tables_by_kind[Kind.RUNTIME]

    @cached_property
    def ops_and_calls(self) -> EventTable:
        """Ops and runtime calls together."""
        return self.event_table(np.sort(np.concatenate([self.ops.row, self.calls.row]), kind="stable"))

    @property
    def annotations(self) -> EventTable:
        """The user's ranges, without steps."""
        return self._tables_by_kind[Kind.ANNOTATION]

    @property
    def overhead(self) -> EventTable:
        """The profiler's own work."""
        return self._tables_by_kind[Kind.OVERHEAD]

    @cached_property
    def loading(self) -> EventTable:
        """Events of module loading: recorded by the profiler as overhead, but they happen without it as well."""
        return self.match_names(LOADING_REGEX, Kind.OVERHEAD)

    @cached_property
    def overhead_intervals(self) -> Intervals:
        """When the profiler itself worked."""
        return self.overhead.select(~is_in(self.overhead.row, self.loading.row)).intervals

    def match_names(self, pattern: str, *kinds: Kind) -> EventTable:
        """Select events of `kinds` (default: ops, annotations) whose name matches the pattern at its start; cached."""
        key = (pattern, *kinds)
        table = self._name_match_cache.get(key)
        if table is None:
            wanted = kinds or (Kind.OP, Kind.ANNOTATION)
            parts = [self._name_indices[kind].match(pattern) for kind in wanted]
            parts = [part for part in parts if len(part)] or parts[:1]
            if len(parts) == 1:
                table = parts[0]
            else:
                table = self.event_table(np.sort(np.concatenate([part.row for part in parts]), kind="stable"))
            self._name_match_cache[key] = table
        return table

    @cached_property
    def _name_indices(self) -> dict[Kind, NameIndex]:
        return {kind: NameIndex(self.trace.names, table) for kind, table in self._tables_by_kind.items()}

    def filter_by_name(self, table: EventTable, predicate: Callable[[str], bool]) -> EventTable:
        """Select the events whose name fulfils a predicate; it is called once per distinct name."""
        present, index = number_distinct(table.name, len(self.trace.names))
        chosen = np.array([predicate(self.trace.names[number]) for number in present.tolist()], dtype=np.bool_)
        return table.select(chosen[index])

    @cached_property
    def is_slice(self) -> bool:
        """Whether this trace is a slice of a longer one."""
        return read_slice_metadata(self.trace) is not None

    @cached_property
    def data_loss(self) -> DataLoss:
        """What the file lost. If anything, no pattern can be called absent."""
        return find_data_loss(self.trace)

    @cached_property
    def work(self) -> GpuWorkTable:
        return event_tables.build_gpu_work_table(self.trace)

    @cached_property
    def devices(self) -> list[int]:
        """The devices that did any work, ascending, at most MAX_DEVICES of them."""
        return [int(device) for device in sorted_unique(self.work.device)[:MAX_DEVICES]]

    @cached_property
    def busy_intervals(self) -> dict[int, Intervals]:
        """device -> when it did any work."""
        return event_tables.intervals_by_device(self.work, self.devices)

    @cached_property
    def compute_intervals(self) -> dict[int, Intervals]:
        """device -> when it computed: kernels and fills, without copies and collectives."""
        return self._intervals_of_kinds(Kind.KERNEL, Kind.MEMSET)

    def _intervals_of_kinds(self, *kinds: Kind) -> dict[int, Intervals]:
        is_wanted = self.work.kind_mask(*kinds)
        work = self.work if is_wanted.all() else self.work.select(is_wanted)
        return self.busy_intervals if work is self.work else event_tables.intervals_by_device(work, self.devices)

    @cached_property
    def communication(self) -> tuple[CommunicationRecords, Waits]:
        """The communication kernels and how long each waited. Reads their args from the file."""
        records = read_communication(self.trace)
        arrivals = None if self.rank_context is None else self.rank_context.arrivals
        rank_index = 0 if self.rank_context is None else self.rank_context.rank_index
        return records, estimate_waits(self.trace, records, arrivals, rank_index)

    @cached_property
    def collective_intervals(self) -> dict[int, Intervals]:
        return self._intervals_of_kinds(Kind.COLLECTIVE)

    @cached_property
    def steps(self) -> StepTable:
        trace = self.trace
        steps = trace.steps if self._with_serving_steps else trace.profiler_steps
        rows = np.array([step.event for step in steps], dtype=np.int64)
        numbers = np.array([step.number for step in steps], dtype=np.int64)
        if len(rows):
            lanes = trace.lane[rows]
            on_main_lane = lanes == np.bincount(lanes).argmax()
            rows, numbers = rows[on_main_lane], numbers[on_main_lane]
            order = np.argsort(trace.start[rows], kind="stable")
            rows, numbers = rows[order], numbers[order]
        start = np.asarray(trace.start[rows])
        return StepTable(rows, start, start + trace.duration[rows], numbers)

    @cached_property
    def step_bounds(self) -> I64:
        """int64[steps + 1]: where each step begins and the one before was complete, ns; empty without steps."""
        steps = self.steps
        if not len(steps):
            return np.empty(0, dtype=np.int64)
        return find_step_bounds(self.trace, steps.start.astype(np.int64), steps.end.astype(np.int64))

    @cached_property
    def window(self) -> tuple[int, int]:
        """The time in which the program worked (ns): its steps and the GPU work launched in them.

        Without steps: from the first op or piece of work to the end of the last piece of work (of the last op without a
        GPU).
        """
        work, steps = self.work, self.steps
        if len(steps):
            return int(steps.start[0]), int(max(steps.end.max(), self.step_bounds[-1]))
        starts = [table.start.min() for table in (self.ops, work.events) if len(table)]
        ends = work.events.end if len(work) else self.ops.end
        if not starts:
            return self.trace.span
        return int(min(starts)), int(ends.max())

    @cached_property
    def launch_lanes(self) -> I64:
        """Lanes of the threads that launched GPU work; of all threads with ops where no launch was recorded.

        Ascend draws the runtime calls of a thread on a lane of their own: both count.
        """
        launch = self.work.launch[self.work.launch >= 0]
        rows = launch if len(launch) else self.ops.row
        lanes: I64 = sorted_unique(self.trace.lane[rows]).astype(np.int64)
        if not len(self.trace.links.called_work):
            return lanes
        threads = {self.trace.lanes[lane].tid for lane in lanes.tolist()}
        call_lanes = sorted_unique(self.trace.lane[self.calls.row]).astype(np.int64)
        same_thread = [lane for lane in call_lanes.tolist() if self.trace.lanes[lane].tid in threads]
        making_calls = self.trace.lane[self.work.call[self.work.call >= 0]].astype(np.int64)
        return sorted_unique(np.concatenate([lanes, making_calls, np.array(same_thread, np.int64)]))

    def select_on_launch_lanes(self, table: EventTable) -> EventTable:
        """Select the events of the threads that launched GPU work; selected once for each table."""
        return table.derive_once("launch lanes", lambda: self.select_on_lanes(table, self.launch_lanes))

    def select_on_lanes(self, table: EventTable, lanes: I64) -> EventTable:
        """Select the events of these lanes."""
        is_wanted = np.zeros(len(self.trace.lanes), dtype=np.bool_)
        is_wanted[lanes] = True
        keep = is_wanted[self.trace.lane[table.row]]
        return table if keep.all() else table.select(keep)

    @cached_property
    def launching_thread_ops(self) -> EventTable:
        """The ops of the threads that launched GPU work."""
        return self.select_on_launch_lanes(self.ops)

    @cached_property
    def outermost_ops(self) -> EventTable:
        """The dispatcher's operators of the threads that launched GPU work that lie in no other one."""
        ops = self.launching_thread_ops
        ops = ops.select(self.is_dispatcher_op[ops.row])
        return ops.select(self.innermost_ancestor(ops.row, self.is_dispatcher_op) < 0)

    @cached_property
    def launching_thread_calls(self) -> EventTable:
        """The runtime calls of the threads that launched GPU work."""
        return self.select_on_launch_lanes(self.calls)

    @cached_property
    def has_work(self) -> Bool:
        """bool[n]: whether the event or any descendant launched GPU work."""
        return ancestry.mark_with_ancestors(self.trace, self.work.launch[self.work.launch >= 0])

    def mark_rows(self, rows: I64 | I32) -> Bool:
        """Mark these events: bool[n]."""
        marked = np.zeros(len(self.trace), dtype=np.bool_)
        marked[rows] = True
        return marked

    def mark_ops(self, pattern: str) -> Bool:
        return self.mark_rows(self.ops.row[self.match_rows(self.ops.row, pattern)])

    def match_rows(self, rows: I64 | I32, pattern: str) -> Bool:
        """Return which of these ops have a name that matches the pattern at its start: bool[k]."""
        key = ("names", pattern)
        if key not in self._computed:
            self._computed[key] = self._name_indices[Kind.OP].flag_names(pattern)
        return cast("Bool", self._computed[key])[self.trace.name[rows]]

    @cached_property
    def _end_places(self) -> I64:
        return ancestry.place_ends(self.trace)

    def innermost_ancestor(self, rows: I64 | I32, mask: Bool) -> I64:
        """Return the innermost proper ancestor of each row for which `mask` bool[n] holds, -1 for none: int64[k]."""
        rows = np.asarray(rows, dtype=np.int64)
        above = np.asarray(self.trace.parent[rows])
        is_parent = (above >= 0) & mask[above]
        found = np.where(is_parent, above, -1).astype(np.int64)
        others = np.flatnonzero(~is_parent & (above >= 0))
        found[others] = self._find_ancestor(ancestry.find_nearest_ancestor, rows[others], mask)
        return found

    def outermost_ancestor(self, rows: I64 | I32, mask: Bool) -> I64:
        """Return the outermost proper ancestor of each row for which `mask` bool[n] holds, -1 for none: int64[k]."""
        return self._find_ancestor(ancestry.find_outermost_ancestor, rows, mask)

    def _find_ancestor(self, find: Callable[[I32, I64 | I32, Bool], I64], rows: I64 | I32, mask: Bool) -> I64:
        found = np.full(len(rows), -1, dtype=np.int64)
        covered = np.flatnonzero(ancestry.mark_covered(self._end_places, rows, mask))
        if len(covered):
            found[covered] = find(self.trace.parent, rows[covered], mask)
        return found

    @cached_property
    def is_dispatcher_op(self) -> Bool:
        """bool[n]: operators of the dispatcher (`aten::mm`, `torchvision::nms`), no wrappers of autograd or compile."""
        return self.mark_ops(r"(?!autograd::|c10d::|torch::)\w+::\w")

    @cached_property
    def launching_ops(self) -> tuple[I64, I64]:
        """(innermost, outermost) operator above the launch of each piece of work, -1 for none: int64[work]."""
        launch = self.work.launch.astype(np.int64)
        linked = launch >= 0
        inner, outer = np.full(len(launch), -1, dtype=np.int64), np.full(len(launch), -1, dtype=np.int64)
        calls, back = number_distinct(launch[linked], len(self.trace))
        inner[linked] = ancestry.nearest_ancestor(self.trace, calls)[back]
        outer[linked] = ancestry.find_outermost_ancestor(self.trace.parent, calls, self.is_dispatcher_op)[back]
        return inner, outer

    @cached_property
    def launch_step(self) -> I64:
        """int64[work]: the index of the step in which each piece of work was launched, -1 for none or no launch."""
        return self.steps.index_at(self.launch_start)

    @cached_property
    def launch_start(self) -> I64:
        """int64[work]: when the launch of each piece of work began, ns, the smallest number where it is unknown."""
        launch = self.work.launch
        return np.where(launch >= 0, self.trace.start[np.maximum(launch, 0)], np.iinfo(np.int64).min)

    @cached_property
    def launch_group(self) -> I64:
        """int64[work]: group number by name, grid and block; equal for runs of one kernel on one shape."""
        return event_tables.factorize_launches(
            self.work.events.name, event_tables.launch_shapes(self.trace, self.work.events.row)
        )

    @cached_property
    def roofline(self) -> Roofline:
        """Bytes, FLOPs and shares of the peaks by groups of like launches; its `group` is int64[work]."""
        return compute_roofline(self.trace, self.gpu_pieces, self.find_device_peaks)

    def describe_limit(self, row: int) -> str:
        """Describe what limits a kernel, with its share of the peak."""
        found = np.flatnonzero(self.work.events.row == row)
        return self.roofline.describe_limit(int(self.roofline.group[found[0]])) if len(found) else ""

    @cached_property
    def gpu_pieces(self) -> GpuPieces:
        """The columns of `work` that the roofline needs."""
        work, op = self.work, self.launching_ops[0]
        return GpuPieces(work.events.name, self.launch_group, op, work.kernel_class, work.events.duration, work.device)

    @cached_property
    def work_classes(self) -> tuple[list[str], I64]:
        """The names of the classes of GPU work, and the index of each piece's class: int64[work]."""
        return name_classes(self.trace.names, self.work.events.name, self.work.kernel_class)

    def find_device_peaks(self, number: int) -> DevicePeaks | None:
        """Find the peaks of a device by its number; None where the trace does not describe it."""
        names = {device.name for device in self.trace.devices}
        if len(names) == 1:  # also where ROCm numbers kernels by agent and describes device 0 only
            return find_peaks(names.pop())
        index = np.flatnonzero(self.work.device == number)[:1]
        device = find_device(self.trace, int(self.work.events.row[index[0]])) if len(index) else None
        return None if device is None else find_peaks(device.name)

    def reported_occupancies(self, row_of_group: dict[int, int]) -> list[float | None]:
        """Read Kineto's `est. achieved occupancy %` of a kernel of each `launch_group` from the file; kept by group."""
        known = self._occupancy_cache
        unread = [group for group in row_of_group if group not in known]
        known.update(dict.fromkeys(unread))
        with suppress(OSError, LookupError):
            for place, entry in read_entries(self.trace, np.array([row_of_group[group] for group in unread], np.int64)):
                with suppress(AttributeError, TypeError, ValueError):
                    known[unread[place]] = float(entry["args"]["est. achieved occupancy %"])
        return [known[group] for group in row_of_group]

    def name(self, row: int) -> str:
        return self.trace.names[int(self.trace.name[row])]

    def short_name(self, row: int, max_cells: int = 48) -> str:
        """Return the decoded short name of a kernel, else the name; truncated to `max_cells`."""
        name = self.name(row)
        on_gpu = bool(work_mask(np.asarray(self.trace.kind[row : row + 1]))[0])
        text = (decode_kernel_name(name).display or name) if on_gpu else name
        return text if len(text) <= max_cells else text[: max_cells - 1] + "…"
