"""Sum the calls and GPU work of one side by module, or by class of kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.compare.compared_tree import ComparedTree
from torchprof_tui.analysis.compare.side import Side
from torchprof_tui.analysis.dispatch.call_sites import CallSites
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.trace.model.event_kind import Kind

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
    return {
        path or NO_MODULE: SideSums(*column)
        for path, column in zip(paths, columns.T.tolist(), strict=True)
        if any(column)
    }


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
