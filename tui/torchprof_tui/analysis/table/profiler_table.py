"""The profiler's table of one trace, asked again and again: what is costly is worked out once and kept."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from torchprof_tui.analysis.table import groups
from torchprof_tui.analysis.table.call_sites import Sites
from torchprof_tui.analysis.table.calls import Calls, calls_of
from torchprof_tui.analysis.table.event_scope import asked_at
from torchprof_tui.analysis.table.flops import Flops, flops_of
from torchprof_tui.analysis.table.op_args import OpArgs, op_args
from torchprof_tui.analysis.table.table_rows import By, Groups, Table, summed
from torchprof_tui.trace.core.arrays import I64, Bool
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.read_entries import Tell

STACK_DEPTH = 5
"""Frames that make a stack, as `key_averages(group_by_stack_n=5)` is mostly called."""

MEMORY_ROW = "[memory]"


class Profile:
    """Tables over one trace."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._args: OpArgs | None = None
        self._flops: Flops | None = None
        self._groups: dict[By, Groups] = {}

    @cached_property
    def calls(self) -> Calls:
        """Every call that a table may count."""
        return calls_of(self.trace)

    @cached_property
    def asked(self) -> I64:
        """int64[n] ns: when the CPU asked for each event; see `scope.asked_at`."""
        return asked_at(self.trace)

    @cached_property
    def sites(self) -> Sites:
        return Sites(self.trace)

    def args(self, tell: Tell | None = None) -> OpArgs:
        """What operators were called with. The first time a pass over the file; raises OSError, LookupError."""
        if self._args is None:
            self._args = op_args(self.trace, self.calls, tell)
        return self._args

    def flops(self, tell: Tell | None = None) -> Flops:
        """What every call computed; kept. Raises what `args` raises."""
        if self._flops is None:
            self._flops = flops_of(self.trace, self.calls, self.args(tell))
        return self._flops

    def groups(self, by: By, tell: Tell | None = None) -> Groups:
        """Which row each call belongs to; kept. Raises NotRecordedError, and what `args` raises for shapes."""
        known = self._groups.get(by)
        if known is None:
            known = self._groups[by] = self._make(by, tell)
        return known

    def table(self, by: By = By.NAME, only: Bool | None = None, tell: Tell | None = None) -> Table:
        """The table, over all events or those of a mask (bool[n]; see `scope`). Raises as `groups` does."""
        calls = self.calls
        table = summed(calls, self.groups(by, tell), None if only is None else only[calls.event])
        if by is By.NAME and only is None and calls.top_memory:
            return _with_memory(table, calls.top_memory)
        return table

    def _make(self, by: By, tell: Tell | None) -> Groups:
        calls = self.calls
        if by is By.SHAPE:
            return groups.by_shape(calls, self.args(tell))
        if by is By.STACK:
            return groups.by_stack(calls, self.sites, STACK_DEPTH)
        if by is By.MODULE:
            return groups.by_module(calls, self.sites)
        if by is By.CLASS:
            return groups.by_class(calls)
        if by is By.STEP:
            return groups.by_step(self.trace, calls, self.asked)
        return groups.by_name(calls)


def _with_memory(table: Table, count: int) -> Table:
    """Torch lists allocations outside of all calls as calls of no time."""
    return replace(
        table,
        names=[*table.names, MEMORY_ROW],
        details=[*table.details, ""],
        on_gpu=np.append(table.on_gpu, False),
        annotation=np.append(table.annotation, False),
        calls=np.append(table.calls, count),
        self_cpu=np.append(table.self_cpu, 0),
        cpu=np.append(table.cpu, 0),
        self_gpu=np.append(table.self_gpu, 0),
        gpu=np.append(table.gpu, 0),
        first=np.append(table.first, table.first[-1]),
    )
