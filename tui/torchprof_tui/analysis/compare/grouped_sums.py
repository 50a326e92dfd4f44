"""Sum the calls and GPU work of one side by module, or by class of kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.compare.captured_levels import find_compared_nodes
from torchprof_tui.analysis.compare.compared_tree import ComparedTree
from torchprof_tui.analysis.compare.op_tree import SelectedEvents
from torchprof_tui.analysis.compare.side import Side
from torchprof_tui.analysis.dispatch.call_sites import CallSites
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.trace.core.arrays import I32, I64
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

NO_MODULE = "(no module)"
CPU_CALLS = "(calls on the CPU)"


@dataclass(frozen=True, slots=True)
class SideSums:
    """Sums over all compared steps of one side: calls, CPU self time and GPU time in ns."""

    calls: int = 0
    cpu: int = 0
    gpu: int = 0

    def __add__(self, other: SideSums) -> SideSums:
        return SideSums(self.calls + other.calls, self.cpu + other.cpu, self.gpu + other.gpu)


def sum_modules(side: Side, tree: ComparedTree) -> dict[str, SideSums]:
    """Sum by path of nn.Module; GPU work and backward ops count for the module whose forward call they belong to.

    Calls are those of ops; CPU time is that of all calls.
    """
    trace, selected = side.trace, tree.tree.selected
    has_launch = tree.tree.work.node[tree.tree.row_of_work] != tree.no_launch_node
    calls, work = selected.calls, selected.work[has_launch]
    module, paths = CallSites(trace).factorize_modules(np.concatenate([calls, work]))
    columns = np.zeros((3, len(paths)), np.int64)
    of_call, of_work = module[: len(calls)], module[len(calls) :]
    np.add.at(columns[0], of_call, (trace.kind[calls] == Kind.OP).astype(np.int64))
    np.add.at(columns[1], of_call, trace.self_duration[calls])
    np.add.at(columns[2], of_work, trace.duration[work])
    sums = {
        path or NO_MODULE: SideSums(*column)
        for path, column in zip(paths, columns.T.tolist(), strict=True)
        if any(column)
    }
    for path, added in _sum_captured_modules(trace, selected).items():
        sums[path] = sums.get(path, SideSums()) + added
    return {path: each for path, each in sums.items() if each != SideSums()}


def _sum_captured_modules(trace: Trace, selected: SelectedEvents) -> dict[str, SideSums]:
    """Sum what was captured by the modules of the capture, and take its GPU work from the modules of the launches."""
    found = find_compared_nodes(trace, selected.calls, selected.work)
    if found is None:
        return {}
    ops, nodes = found
    sums: dict[str, SideSums] = {}

    def add(sites: CallSites, events: I32, kind: str, values: I64, sign: int = 1) -> None:
        module, paths = sites.factorize_modules(events)
        totals = np.zeros(len(paths), np.int64)
        np.add.at(totals, module, values)
        for path, total in zip(paths, totals.tolist(), strict=True):
            if total:
                sums[path or NO_MODULE] = sums.get(path or NO_MODULE, SideSums()) + SideSums(**{kind: sign * total})

    work = ops.replays.work[nodes.work]
    add(CallSites(trace), work, "gpu", trace.duration[work], sign=-1)
    of_work = ops.join.capture[nodes.work]
    for source in np.unique(nodes.source).tolist():
        sites = CallSites(ops.source_trace(trace, source))
        events = nodes.event[nodes.source == source]
        add(sites, events, "calls", np.ones(len(events), np.int64))
        chosen = of_work == source
        add(sites, ops.join.launch[nodes.work[chosen]], "gpu", trace.duration[work[chosen]])
    return sums


def sum_classes(tree: ComparedTree) -> dict[str, SideSums]:
    """Sum GPU work by its decoded class; all CPU time is one row."""
    sums = {CPU_CALLS: SideSums(0, int(tree.tree.cpu_time.sum()), 0)}
    work = tree.tree.work
    for name in np.unique(work.name).tolist():
        rows = work.name == name
        label = decode_kernel_name(tree.names[name]).kernel_class.label
        added = SideSums(int(work.calls[rows].sum()), 0, int(work.time[rows].sum()))
        sums[label] = sums.get(label, SideSums()) + added
    return sums
