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
from torchprof_tui.analysis.data_loss import Losses, losses
from torchprof_tui.analysis.kernel.names import decode
from torchprof_tui.analysis.patterns.engine.event_tables import Rows, Steps, Work, rows_of
from torchprof_tui.analysis.patterns.engine.gpu_work_table import (
    alike,
    gpu_work,
    launch_shapes,
    times_by_device,
)
from torchprof_tui.analysis.patterns.engine.nearest_ancestors import nearest, outermost, with_ancestors
from torchprof_tui.analysis.slicing.slice_metadata import slice_of
from torchprof_tui.analysis.time.gpu_time import work_mask
from torchprof_tui.analysis.time.intervals import Intervals, union
from torchprof_tui.trace.core.arrays import I32, I64, Bool, distinct
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Trace

MOST_DEVICES = 256
"""No host has more GPUs; a file that names more was made by somebody, and is answered for these."""


@dataclass(frozen=True, slots=True)
class Across:
    """When all ranks came to their collectives, seen from one of them: `place` in `arrivals.ranks`."""

    arrivals: Arrivals
    place: int


class Facts:
    """About one trace; make one per trace and keep it. `across`: where it is one of several ranks."""

    def __init__(self, trace: Trace, across: Across | None = None) -> None:
        self.trace = trace
        self.across = across
        self._named: dict[tuple[object, ...], Rows] = {}
        self._reported: dict[int, float | None] = {}

    def rows(self, events: I64 | I32) -> Rows:
        return rows_of(self.trace, events)

    @cached_property
    def _of_kind(self) -> dict[Kind, Rows]:
        kinds = np.asarray(self.trace.kind)
        wanted = (Kind.OP, Kind.RUNTIME, Kind.ANNOTATION, Kind.OVERHEAD)
        return {kind: self.rows(np.flatnonzero(kinds == kind)) for kind in wanted}

    @property
    def ops(self) -> Rows:
        return self._of_kind[Kind.OP]

    @property
    def calls(self) -> Rows:
        """Runtime and driver calls."""
        return self._of_kind[Kind.RUNTIME]

    @cached_property
    def dispatching(self) -> Rows:
        """Ops and calls together."""
        return self.rows(np.sort(np.concatenate([self.ops.row, self.calls.row]), kind="stable"))

    @cached_property
    def ranges(self) -> Rows:
        """Ops and annotations together: what has children that its reader may look into."""
        return self.rows(np.sort(np.concatenate([self.ops.row, self.annotations.row]), kind="stable"))

    @property
    def annotations(self) -> Rows:
        """The user's ranges; no steps."""
        return self._of_kind[Kind.ANNOTATION]

    @property
    def overhead(self) -> Rows:
        """The profiler's own work."""
        return self._of_kind[Kind.OVERHEAD]

    @cached_property
    def overhead_time(self) -> Intervals:
        return union(self.overhead.start, self.overhead.end)

    def named(self, pattern: str, *kinds: Kind) -> Rows:
        """Events of these kinds (default: ops and annotations) whose name matches from its start; kept."""
        key = (pattern, *kinds)
        found = self._named.get(key)
        if found is None:
            matches = re.compile(pattern).match
            tables = [self._of_kind[kind] for kind in kinds or (Kind.OP, Kind.ANNOTATION)]
            parts = [self.names_that(table, lambda name: matches(name) is not None).row for table in tables]
            found = self._named[key] = self.rows(np.sort(np.concatenate(parts), kind="stable"))
        return found

    def names_that(self, table: Rows, holds: Callable[[str], bool]) -> Rows:
        """The events whose name fulfils a condition; asked once per distinct name."""
        names = self.trace.names
        present = np.flatnonzero(np.bincount(table.name, minlength=1))
        chosen = [number for number in present.tolist() if holds(names[number])]
        if not chosen:
            return table.where(np.empty(0, dtype=np.int64))
        flag = np.zeros(len(names), dtype=np.bool_)
        flag[chosen] = True
        return table.where(flag[table.name])

    @cached_property
    def sliced(self) -> bool:
        """Whether this is a range of a longer trace."""
        return slice_of(self.trace) is not None

    @cached_property
    def losses(self) -> Losses:
        """What the file lost: nothing that is not here can then be told to be absent."""
        return losses(self.trace)

    @cached_property
    def work(self) -> Work:
        return gpu_work(self.trace)

    @cached_property
    def devices(self) -> list[int]:
        """Those that did any work, ascending, the first MOST_DEVICES of them."""
        return [int(device) for device in distinct(self.work.device)[:MOST_DEVICES]]

    def busy(self, device: int) -> Intervals:
        return self._busy[device]

    @cached_property
    def _busy(self) -> dict[int, Intervals]:
        return times_by_device(self.work, self.devices)

    @cached_property
    def kernel_time(self) -> dict[int, Intervals]:
        """device -> when it computed: kernels and fills, no copies and no collectives."""
        return times_by_device(self.work.where(self.work.is_kind(Kind.KERNEL, Kind.MEMSET)), self.devices)

    @cached_property
    def collective_time(self) -> dict[int, Intervals]:
        return times_by_device(self.work.where(self.work.is_kind(Kind.COLLECTIVE)), self.devices)

    @staticmethod
    def union_of(work: Work) -> Intervals:
        return union(work.rows.start, work.rows.end)

    @cached_property
    def steps(self) -> Steps:
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
        return Steps(rows, start, start + trace.duration[rows], numbers)

    @cached_property
    def window(self) -> tuple[int, int]:
        """The time that the program worked: its steps and the GPU work launched in them; without steps, from the
        first op or piece of work to the end of the last piece of work (of the last op on a CPU alone)."""
        work, steps = self.work, self.steps
        if len(steps):
            launched = work.launch >= 0
            begun = np.asarray(self.trace.start[work.launch[launched]])
            ours = work.rows.end[launched][(begun >= steps.start[0]) & (begun < steps.end[-1])]
            return int(steps.start[0]), int(max(steps.end.max(), ours.max(initial=0)))
        starts = [table.start.min() for table in (self.ops, work.rows) if len(table)]
        ends = work.rows.end if len(work) else self.ops.end
        if not starts:
            return self.trace.span
        return int(min(starts)), int(ends.max())

    @cached_property
    def launch_lanes(self) -> I64:
        """Threads that launched GPU work; all threads with ops where no launch was recorded."""
        launch = self.work.launch[self.work.launch >= 0]
        rows = launch if len(launch) else self.ops.row
        return distinct(self.trace.lane[rows]).astype(np.int64)

    def on_launch_lanes(self, table: Rows) -> Rows:
        return table.where(np.isin(self.trace.lane[table.row], self.launch_lanes))

    @cached_property
    def has_work(self) -> Bool:
        """bool[n]: whether GPU work was launched by the event or anything beneath it."""
        return with_ancestors(self.trace, self.work.launch[self.work.launch >= 0])

    def _ops_called(self, pattern: str) -> Bool:
        return np.bincount(self.named(pattern, Kind.OP).row, minlength=len(self.trace)) > 0

    @cached_property
    def aten(self) -> Bool:
        """bool[n]: operators of the dispatcher (`aten::mm`, `torchvision::nms`), no wrappers of autograd or compile."""
        return self._ops_called(r"(?!autograd::|c10d::|torch::)\w+::\w")

    @cached_property
    def calling(self) -> Bool:
        """bool[n]: `aten`, and what libraries name like operators (`torch.distributed.ddp.reducer::…`)."""
        return self._ops_called(r"(?!autograd::|torch::autograd)[\w.]+::\w")

    @cached_property
    def cloning(self) -> Bool:
        """bool[n]: `aten::clone`, which copies a tensor, into another layout or as it is."""
        return self._ops_called(r"aten::clone$")

    @cached_property
    def aten_of_launch(self) -> tuple[I64, I64]:
        """(innermost, outermost) operator above the launch of each piece of work, -1 for none: int64[work]."""
        launch = self.work.launch.astype(np.int64)
        linked = launch >= 0
        inner, outer = np.full(len(launch), -1, dtype=np.int64), np.full(len(launch), -1, dtype=np.int64)
        calls, back = np.unique(launch[linked], return_inverse=True)
        inner[linked] = nearest(self.trace, calls)[back]
        outer[linked] = outermost(self.trace, calls, self.aten)[back]
        return inner, outer

    @cached_property
    def launch_step(self) -> I64:
        """int64[work]: the step in which each piece of work was launched, -1 for none or no launch."""
        launch = self.work.launch
        when = np.where(launch >= 0, self.trace.start[np.maximum(launch, 0)], np.iinfo(np.int64).min)
        return self.steps.of(when)

    @cached_property
    def alike(self) -> I64:
        """int64[work]: a number for each name, grid and block; equal for runs of one kernel on one shape."""
        return alike(self.work.rows.name, launch_shapes(self.trace, self.work.rows.row))

    def reported_occupancy(self, row: int, group: int) -> float | None:
        """Kineto's `est. achieved occupancy %` of one kernel, read from the file; kept for its group of `alike`."""
        if group not in self._reported:
            try:
                value = self.trace.event(row).args().get("est. achieved occupancy %")
                self._reported[group] = None if value is None else float(value)
            except (OSError, LookupError, TypeError, ValueError):
                self._reported[group] = None
        return self._reported[group]

    def name(self, row: int) -> str:
        return self.trace.names[int(self.trace.name[row])]

    def short(self, row: int, cells: int = 48) -> str:
        """A kernel's decoded short name, else the name; cut to fit one line."""
        name = self.name(row)
        on_gpu = bool(work_mask(np.asarray(self.trace.kind[row : row + 1]))[0])
        text = (decode(name).display or name) if on_gpu else name
        return text if len(text) <= cells else text[: cells - 1] + "…"

    @cached_property
    def recorded_threads(self) -> bool:
        """Whether any CPU thread was recorded."""
        return any(lane.role is Role.THREAD and len(lane) for lane in self.trace.lanes)
