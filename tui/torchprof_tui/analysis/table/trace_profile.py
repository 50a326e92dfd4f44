"""Build the profiler's tables of one trace; costly intermediate results are computed once and kept."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from torchprof_tui.analysis.dispatch.call_sites import CallSites
from torchprof_tui.analysis.graphs.captured_ops import get_captured_ops
from torchprof_tui.analysis.table import groups
from torchprof_tui.analysis.table.captured_calls import (
    CallSitesWithCaptures,
    add_captured_calls,
    read_args_with_captures,
)
from torchprof_tui.analysis.table.counted_calls import Calls, build_calls
from torchprof_tui.analysis.table.event_scope import compute_request_times
from torchprof_tui.analysis.table.flops import CallFlops, compute_call_flops
from torchprof_tui.analysis.table.op_args import OpArgs
from torchprof_tui.analysis.table.profiler_table import GroupBy, Groups, ProfilerTable, sum_calls
from torchprof_tui.trace.core.arrays import I64, Bool
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.read_entries import ReportChunks

STACK_DEPTH = 5
"""Frames in a stack: `key_averages(group_by_stack_n=5)` is the usual call."""

MEMORY_ROW = "[memory]"


class Profile:
    """The tables over one trace."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._args: OpArgs | None = None
        self._flops: CallFlops | None = None
        self._groups: dict[GroupBy, Groups] = {}

    @cached_property
    def calls(self) -> Calls:
        """All calls that a table may count, with the ops that were captured for the kernels of replays."""
        ops = get_captured_ops(self.trace)
        return self.own_calls if ops is None else add_captured_calls(self.trace, self.own_calls, ops)

    @cached_property
    def own_calls(self) -> Calls:
        """The calls of the trace itself."""
        return build_calls(self.trace)

    @cached_property
    def request_times(self) -> I64:
        """int64[n] ns: when the CPU requested each event; see `event_scope.compute_request_times`."""
        return compute_request_times(self.trace)

    @cached_property
    def call_sites(self) -> CallSitesWithCaptures:
        return CallSitesWithCaptures(CallSites(self.trace), self.calls)

    def args(self, report: ReportChunks | None = None) -> OpArgs:
        """Return the operators' inputs. The first call reads through the file; raises OSError, LookupError."""
        if self._args is None:
            self._args = read_args_with_captures(self.trace, self.calls, report)
        return self._args

    def flops(self, report: ReportChunks | None = None) -> CallFlops:
        """Return the FLOPs of every call; cached. Raises the errors of `args`."""
        if self._flops is None:
            self._flops = compute_call_flops(self.trace, self.calls, self.args(report))
        return self._flops

    def groups(self, group_by: GroupBy, report: ReportChunks | None = None) -> Groups:
        """Return the row of each call; cached. Raises NotRecordedError, and the errors of `args` for shapes."""
        result = self._groups.get(group_by)
        if result is None:
            result = self._groups[group_by] = self._build_groups(group_by, report)
        return result

    def build_table(
        self, group_by: GroupBy = GroupBy.NAME, event_mask: Bool | None = None, report: ReportChunks | None = None
    ) -> ProfilerTable:
        """Build the table over all events or those of a mask (bool[n]). Raises the errors of `groups`."""
        calls = self.calls
        table = sum_calls(calls, self.groups(group_by, report), None if event_mask is None else event_mask[calls.event])
        if group_by is GroupBy.NAME and event_mask is None and calls.top_level_memory_records:
            return _add_memory_row(table, calls.top_level_memory_records)
        return table

    def _build_groups(self, group_by: GroupBy, report: ReportChunks | None) -> Groups:
        calls = self.calls
        if group_by is GroupBy.SHAPE:
            return groups.group_by_shape(calls, self.args(report))
        if group_by is GroupBy.STACK:
            return groups.group_by_stack(calls, self.call_sites, STACK_DEPTH)
        if group_by is GroupBy.MODULE:
            return groups.group_by_module(calls, self.call_sites)
        if group_by is GroupBy.CLASS:
            return groups.group_by_class(calls)
        if group_by is GroupBy.STEP:
            return groups.group_by_step(self.trace, calls, self.request_times)
        if group_by is GroupBy.STEP_KIND:
            return groups.group_by_step_kind(self.trace, calls, self.request_times)
        return groups.group_by_name(calls)


def _add_memory_row(table: ProfilerTable, count: int) -> ProfilerTable:
    """Add the row of allocations outside of all calls: torch lists them as calls without a duration."""
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
