"""What all patterns share about one trace, computed when first asked for and kept. Columns of rows, no objects.

Rows are int64 arrays of event numbers; `start` and `end` of a table belong to its rows. Nothing here knows a scope:
a viewport only cuts these tables (`view.py`), which is why it follows the cursor.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from torchprof_tui.analysis.collectives.late_arrivals import Arrivals
from torchprof_tui.analysis.completeness.data_loss import DataLoss, find_data_loss
from torchprof_tui.analysis.completeness.slice_metadata import read_slice_metadata
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable, GpuWorkTable, StepTable, build_event_table
from torchprof_tui.analysis.patterns.engine.gpu_work_table import (
    build_gpu_work_table,
    factorize_launches,
    intervals_by_device,
    launch_shapes,
)
from torchprof_tui.analysis.patterns.engine.nearest_ancestors import (
    mark_with_ancestors,
    nearest_ancestor,
    outermost_ancestor,
)
from torchprof_tui.analysis.time.gpu_time import work_mask
from torchprof_tui.analysis.time.intervals import Intervals, union
from torchprof_tui.trace.core.arrays import I32, I64, Bool, sorted_unique
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Trace

MAX_DEVICES = 256
"""No host has more GPUs; a file that names more was made by somebody, and is answered for these."""


@dataclass(frozen=True, slots=True)
class RankContext:
    """When all ranks came to their collectives, seen from one of them: `place` in `arrivals.ranks`."""

    arrivals: Arrivals
    rank_index: int


class TraceTables:
    """About one trace; make one per trace and keep it. `across`: where it is one of several ranks."""

    def __init__(self, trace: Trace, rank_context: RankContext | None = None) -> None:
        self.trace = trace
        self.rank_context = rank_context
        self._name_match_cache: dict[tuple[object, ...], EventTable] = {}
        self._occupancy_cache: dict[int, float | None] = {}

    def event_table(self, events: I64 | I32) -> EventTable:
        return build_event_table(self.trace, events)

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
        """Ops and calls together."""
        return self.event_table(np.sort(np.concatenate([self.ops.row, self.calls.row]), kind="stable"))

    @cached_property
    def ops_and_annotations(self) -> EventTable:
        """Ops and annotations together: what has children that its reader may look into."""
        return self.event_table(np.sort(np.concatenate([self.ops.row, self.annotations.row]), kind="stable"))

    @property
    def annotations(self) -> EventTable:
        """The user's ranges; no steps."""
        return self._tables_by_kind[Kind.ANNOTATION]

    @property
    def overhead(self) -> EventTable:
        """The profiler's own work."""
        return self._tables_by_kind[Kind.OVERHEAD]

    @cached_property
    def overhead_intervals(self) -> Intervals:
        return union(self.overhead.start, self.overhead.end)

    def match_names(self, pattern: str, *kinds: Kind) -> EventTable:
        """Events of these kinds (default: ops and annotations) whose name matches from its start; kept."""
        key = (pattern, *kinds)
        found = self._name_match_cache.get(key)
        if found is None:
            matches = re.compile(pattern).match
            tables = [self._tables_by_kind[kind] for kind in kinds or (Kind.OP, Kind.ANNOTATION)]
            parts = [self.filter_by_name(table, lambda name: matches(name) is not None).row for table in tables]
            found = self._name_match_cache[key] = self.event_table(np.sort(np.concatenate(parts), kind="stable"))
        return found

    def filter_by_name(self, table: EventTable, predicate: Callable[[str], bool]) -> EventTable:
        """The events whose name fulfils a condition; asked once per distinct name."""
        names = self.trace.names
        present = np.flatnonzero(np.bincount(table.name, minlength=1))
        chosen = [number for number in present.tolist() if predicate(names[number])]
        if not chosen:
            return table.select(np.empty(0, dtype=np.int64))
        flag = np.zeros(len(names), dtype=np.bool_)
        flag[chosen] = True
        return table.select(flag[table.name])

    @cached_property
    def is_slice(self) -> bool:
        """Whether this is a range of a longer trace."""
        return read_slice_metadata(self.trace) is not None

    @cached_property
    def data_loss(self) -> DataLoss:
        """What the file lost: nothing that is not here can then be told to be absent."""
        return find_data_loss(self.trace)

    @cached_property
    def work(self) -> GpuWorkTable:
        return build_gpu_work_table(self.trace)

    @cached_property
    def devices(self) -> list[int]:
        """Those that did any work, ascending, the first MOST_DEVICES of them."""
        return [int(device) for device in sorted_unique(self.work.device)[:MAX_DEVICES]]

    def busy_intervals(self, device: int) -> Intervals:
        return self._busy_by_device[device]

    @cached_property
    def _busy_by_device(self) -> dict[int, Intervals]:
        return intervals_by_device(self.work, self.devices)

    @cached_property
    def compute_intervals(self) -> dict[int, Intervals]:
        """device -> when it computed: kernels and fills, no copies and no collectives."""
        return intervals_by_device(self.work.select(self.work.kind_mask(Kind.KERNEL, Kind.MEMSET)), self.devices)

    @cached_property
    def collective_intervals(self) -> dict[int, Intervals]:
        return intervals_by_device(self.work.select(self.work.kind_mask(Kind.COLLECTIVE)), self.devices)

    @staticmethod
    def work_intervals(work: GpuWorkTable) -> Intervals:
        return union(work.events.start, work.events.end)

    @cached_property
    def steps(self) -> StepTable:
        trace = self.trace
        rows = np.array([step.event for step in trace.steps], dtype=np.int64)
        numbers = np.array([step.number for step in trace.steps], dtype=np.int64)
        if len(rows):
            lanes = trace.lane[rows]
            mine = lanes == np.bincount(lanes).argmax()
            rows, numbers = rows[mine], numbers[mine]
            order = np.argsort(trace.start[rows], kind="stable")
            rows, numbers = rows[order], numbers[order]
        start = np.asarray(trace.start[rows])
        return StepTable(rows, start, start + trace.duration[rows], numbers)

    @cached_property
    def window(self) -> tuple[int, int]:
        """The time that the program worked: its steps and the GPU work launched in them; without steps, from the
        first op or piece of work to the end of the last piece of work (of the last op on a CPU alone)."""
        work, steps = self.work, self.steps
        if len(steps):
            launched = work.launch >= 0
            begun = np.asarray(self.trace.start[work.launch[launched]])
            ours = work.events.end[launched][(begun >= steps.start[0]) & (begun < steps.end[-1])]
            return int(steps.start[0]), int(max(steps.end.max(), ours.max(initial=0)))
        starts = [table.start.min() for table in (self.ops, work.events) if len(table)]
        ends = work.events.end if len(work) else self.ops.end
        if not starts:
            return self.trace.span
        return int(min(starts)), int(ends.max())

    @cached_property
    def launch_lanes(self) -> I64:
        """Threads that launched GPU work; all threads with ops where no launch was recorded."""
        launch = self.work.launch[self.work.launch >= 0]
        rows = launch if len(launch) else self.ops.row
        return sorted_unique(self.trace.lane[rows]).astype(np.int64)

    def select_on_launch_lanes(self, table: EventTable) -> EventTable:
        return table.select(np.isin(self.trace.lane[table.row], self.launch_lanes))

    @cached_property
    def has_work(self) -> Bool:
        """bool[n]: whether GPU work was launched by the event or anything beneath it."""
        return mark_with_ancestors(self.trace, self.work.launch[self.work.launch >= 0])

    def _op_mask(self, pattern: str) -> Bool:
        return np.bincount(self.match_names(pattern, Kind.OP).row, minlength=len(self.trace)) > 0

    @cached_property
    def is_dispatcher_op(self) -> Bool:
        """bool[n]: operators of the dispatcher (`aten::mm`, `torchvision::nms`), no wrappers of autograd or compile."""
        return self._op_mask(r"(?!autograd::|c10d::|torch::)\w+::\w")

    @cached_property
    def is_operator_like(self) -> Bool:
        """bool[n]: `aten`, and what libraries name like operators (`torch.distributed.ddp.reducer::…`)."""
        return self._op_mask(r"(?!autograd::|torch::autograd)[\w.]+::\w")

    @cached_property
    def is_clone(self) -> Bool:
        """bool[n]: `aten::clone`, which copies a tensor, into another layout or as it is."""
        return self._op_mask(r"aten::clone$")

    @cached_property
    def launching_ops(self) -> tuple[I64, I64]:
        """(innermost, outermost) operator above the launch of each piece of work, -1 for none: int64[work]."""
        launch = self.work.launch.astype(np.int64)
        linked = launch >= 0
        inner, outer = np.full(len(launch), -1, dtype=np.int64), np.full(len(launch), -1, dtype=np.int64)
        calls, back = np.unique(launch[linked], return_inverse=True)
        inner[linked] = nearest_ancestor(self.trace, calls)[back]
        outer[linked] = outermost_ancestor(self.trace, calls, self.is_dispatcher_op)[back]
        return inner, outer

    @cached_property
    def launch_step(self) -> I64:
        """int64[work]: the step in which each piece of work was launched, -1 for none or no launch."""
        launch = self.work.launch
        when = np.where(launch >= 0, self.trace.start[np.maximum(launch, 0)], np.iinfo(np.int64).min)
        return self.steps.index_at(when)

    @cached_property
    def launch_group(self) -> I64:
        """int64[work]: a number for each name, grid and block; equal for runs of one kernel on one shape."""
        return factorize_launches(self.work.events.name, launch_shapes(self.trace, self.work.events.row))

    def reported_occupancy(self, row: int, group: int) -> float | None:
        """Kineto's `est. achieved occupancy %` of one kernel, read from the file; kept for its group of `alike`."""
        if group not in self._occupancy_cache:
            try:
                value = self.trace.event(row).read_args().get("est. achieved occupancy %")
                self._occupancy_cache[group] = None if value is None else float(value)
            except (OSError, LookupError, TypeError, ValueError):
                self._occupancy_cache[group] = None
        return self._occupancy_cache[group]

    def name(self, row: int) -> str:
        return self.trace.names[int(self.trace.name[row])]

    def short_name(self, row: int, max_cells: int = 48) -> str:
        """A kernel's decoded short name, else the name; cut to fit one line."""
        name = self.name(row)
        on_gpu = bool(work_mask(np.asarray(self.trace.kind[row : row + 1]))[0])
        text = (decode_kernel_name(name).display or name) if on_gpu else name
        return text if len(text) <= max_cells else text[: max_cells - 1] + "…"

    @cached_property
    def has_cpu_threads(self) -> bool:
        """Whether any CPU thread was recorded."""
        return any(lane.role is Role.THREAD and len(lane) for lane in self.trace.lanes)
