"""Sum the matched calls and GPU work of two recordings into rows: by op, module, kernel or class of kernel.

Each row is matched (the same names at the same place), changed (other names below the same caller), added (only in B)
or removed (only in A). The rows and `not_matched` sum exactly to the whole of each side.

The definitions are those of that tool: CPU rows are all calls of ops, annotations, steps, Python frames and the
runtime, with the time of what they call; GPU rows are kernels, copies and fills, which count for the step that launched
them. What happens between two steps is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal

import numpy as np

from torchprof_tui.analysis.compare.compared_tree import ComparedTree, simplify_label
from torchprof_tui.analysis.compare.matching import (
    MatchedGroup,
    MatchedPairs,
    TreeMatch,
    build_compared_trees,
    match_trees,
)
from torchprof_tui.analysis.compare.op_tree import (
    STEP_LABEL,
    SelectedEvents,
    Side,
    find_compared_nodes,
    group_keys,
    select_events,
)
from torchprof_tui.analysis.dispatch.call_sites import CallSites
from torchprof_tui.analysis.graphs.captured_nodes import remove_mark
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.trace.core.arrays import I32, I64, Bool, sorted_unique
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.text_enum import TextEnum
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

NO_MODULE = "(no module)"
CPU_CALLS = "(calls on the CPU)"


@record
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
    for source in sorted_unique(nodes.source).tolist():
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
    for name in sorted_unique(work.name).tolist():
        rows = work.name == name
        label = decode_kernel_name(tree.names[name]).kernel_class.label
        added = SideSums(int(work.calls[rows].sum()), 0, int(work.time[rows].sum()))
        sums[label] = sums.get(label, SideSums()) + added
    return sums


OUTSIDE_OPS = "(outside of all ops)"
NOT_MATCHED = "(GPU work without its launch)"

MAX_LISTED = 4  # names of a group of calls that are listed in a row; the others are counted

By = Literal["op", "module", "kernel", "class"]

_MATCHINGS: dict[str, By] = {"module": "module", "kernel": "kernel"}


def choose_matching(by: str) -> By:
    """Choose by what events are matched for `--by`: ops also where the rows are those of the account."""
    return _MATCHINGS.get(by, "op")


class RowStatus(TextEnum):
    """How the two sides of a row correspond; the values are part of the command line's JSON."""

    MATCHED = "matched"
    CHANGED = "changed"
    ADDED = "added"
    REMOVED = "removed"
    NOT_MATCHED = "not matched"


@record
class ComparedRow:
    """One row. `sums_a`, `sums_b`: whole numbers over all compared steps; the properties are per step, times in ns.

    `name_a` is "" where the row is only in B, and the reverse. `below`: the lowest common caller of a changed, added or
    removed row, "" for matched rows. `event_a`, `event_b`: its first call or GPU work in either trace, -1 for none and
    for rows by module and class. `on_gpu`: differences are those of GPU time; else of CPU self time.
    """

    status: RowStatus
    name_a: str
    name_b: str
    below: str
    sums_a: SideSums
    sums_b: SideSums
    steps_a: int
    steps_b: int
    on_gpu: bool
    event_a: int = -1
    event_b: int = -1
    share: float = 0.0  # of the difference of the totals; negative where the row moves the other way

    @property
    def calls_a(self) -> float:
        return self.sums_a.calls / self.steps_a

    @property
    def calls_b(self) -> float:
        return self.sums_b.calls / self.steps_b

    @property
    def cpu_ns_a(self) -> float:
        return self.sums_a.cpu / self.steps_a

    @property
    def cpu_ns_b(self) -> float:
        return self.sums_b.cpu / self.steps_b

    @property
    def gpu_ns_a(self) -> float:
        return self.sums_a.gpu / self.steps_a

    @property
    def gpu_ns_b(self) -> float:
        return self.sums_b.gpu / self.steps_b

    @property
    def gpu_delta_ns(self) -> float:
        return self.gpu_ns_b - self.gpu_ns_a

    @property
    def cpu_delta_ns(self) -> float:
        return self.cpu_ns_b - self.cpu_ns_a

    @property
    def delta_ns(self) -> float:
        """B minus A per step, ns: of GPU time, or of CPU self time where neither side has GPU work."""
        return self.gpu_delta_ns if self.on_gpu else self.cpu_delta_ns

    @property
    def text(self) -> str:
        """The row in words: a name, or what became of it."""
        if self.status is RowStatus.CHANGED and self.name_a == self.name_b == self.below:
            return f"changed: below {self.below}"
        if self.name_a == self.name_b or not self.name_b:
            return self.name_a
        if remove_mark(self.name_a) == remove_mark(self.name_b):  # captured on one side
            return max(self.name_a, self.name_b, key=len)
        return f"{self.name_a} → {self.name_b}" if self.name_a else self.name_b


@record
class ComparedRows:
    """`rows` by size of the difference. `not_matched`: GPU work whose launch is not in the trace, where rows are by
    op or module; it belongs to no op. `total`: the whole of both sides, the exact sum of the rows and `not_matched`."""

    by: By
    rows: tuple[ComparedRow, ...]
    not_matched: ComparedRow
    total: ComparedRow
    is_merged: bool  # too many calls: those of one name below one caller were matched as one


_Key = tuple[RowStatus, str, str, str]


class _RowTable:
    """Sums by (status, names, lowest common caller), and the first events of each row."""

    def __init__(self) -> None:
        self.rows: dict[_Key, tuple[SideSums, SideSums, int, int]] = {}

    def add(self, key: _Key, a: SideSums, b: SideSums, event_a: int = -1, event_b: int = -1) -> None:
        """Add the sums of both sides to a row."""
        sums_a, sums_b, first_a, first_b = self.rows.get(key, (SideSums(), SideSums(), -1, -1))
        self.rows[key] = sums_a + a, sums_b + b, _first_event(first_a, event_a), _first_event(first_b, event_b)


def _first_event(first: int, second: int) -> int:
    return min(first, second) if min(first, second) >= 0 else max(first, second)


@record
class _Items:
    """What is summed, one side: m items with a name each. `names` by `name` int32[m]; int64[m] sums."""

    names: list[str]
    name: I32
    event: I32
    calls: I64
    cpu: I64
    gpu: I64

    def sum_of(self, items: Iterable[int]) -> SideSums:
        index = np.fromiter(items, np.int64)
        return SideSums(int(self.calls[index].sum()), int(self.cpu[index].sum()), int(self.gpu[index].sum()))

    def name_of(self, item: int) -> str:
        return self.names[int(self.name[item])]

    def first_event(self, items: tuple[int, ...]) -> int:
        return min((int(self.event[item]) for item in items if self.event[item] >= 0), default=-1)


def match_sides(a: Side, b: Side, by: By = "op", match: TreeMatch | None = None) -> ComparedRows:
    """Match two recordings and sum both by op, module, kernel or class, per step; differences are B minus A.

    `match`: the result of `match_trees`, if it is known already.
    """
    table = _RowTable()
    if by in ("op", "kernel"):
        match = match_trees(a, b) if match is None else match
        trees = match.a, match.b
        if by == "op":  # GPU work counts for the call that launched it
            items = _op_items(match.a), _op_items(match.b)
            callers = np.where(match.calls.caller_a >= 0, match.calls.caller_a, match.calls.a)
            same_name = match.a.label[match.calls.a] == match.b.label[match.calls.b]
            callers = np.where(same_name, match.calls.a, callers)
            _sum_pairs(table, items, match.calls, find_same_calls(match), match.a, callers)
            _sum_groups(table, items, match.call_groups, match.a)
        else:  # all CPU time is one row
            items = _work_items(match.a), _work_items(match.b)
            same = match.a.work_label[match.work.a] == match.b.work_label[match.work.b]
            _sum_pairs(table, items, match.work, same, match.a, match.work.caller_a)
            _sum_groups(table, items, match.work_groups, match.a)
            cpu_a, cpu_b = (SideSums(0, int(tree.tree.cpu_time.sum()), 0) for tree in trees)
            table.add((RowStatus.MATCHED, CPU_CALLS, CPU_CALLS, ""), cpu_a, cpu_b)
    else:
        trees = build_compared_trees(a, b)  # rows of the same module or class need no matching of calls
        if by == "module":
            _sum_by_text(table, sum_modules(a, trees[0]), sum_modules(b, trees[1]))
        else:
            _sum_by_text(table, sum_classes(trees[0]), sum_classes(trees[1]))
    return _finish(table, trees, a.step_count, b.step_count, by)


def find_same_calls(match: TreeMatch) -> Bool:
    """Return bool[pairs of calls]: the pairs that are the same call with the same GPU work."""
    same = match.has_same_work & (match.calls.caller_a < 0)
    # A pair out of its place with the same name and work is matched as well: only its nesting differs.
    same |= match.has_same_work & (match.a.label[match.calls.a] == match.b.label[match.calls.b])
    return same


def _op_items(tree: ComparedTree) -> _Items:
    """Return the nodes as items; GPU work without a launch is left to `not_matched`."""
    gpu = np.zeros(len(tree.tree), np.int64)
    np.add.at(gpu, tree.tree.work.node, tree.tree.work.time)
    gpu[tree.no_launch_node] = 0
    names = list(tree.tree.labels)
    for label in tree.tree.label[tree.tree.parent <= 0].tolist():
        names[label] = OUTSIDE_OPS
    return _Items(names, tree.tree.label, tree.tree.event, tree.tree.calls, tree.tree.cpu_time, gpu)


def _work_items(tree: ComparedTree) -> _Items:
    work = tree.tree.work
    return _Items(tree.names, work.name, work.event, work.calls, np.zeros(len(work.node), np.int64), work.time)


def caller_name(tree: ComparedTree, node: int) -> str:
    """Return the name of a lowest common caller; threads and the step are the step."""
    return STEP_LABEL if tree.tree.parent[node] <= 0 else simplify_label(tree.name_of(node))


def _sum_pairs(
    table: _RowTable,
    items: tuple[_Items, _Items],
    pairs: MatchedPairs,
    same: np.ndarray,
    tree: ComparedTree,
    callers: I32,
) -> None:
    """Sum pairs by (names, whether they are the same, name of the caller), without a Python object per pair."""
    a, b = items
    caller_label = np.where(same, -1, tree.label[np.maximum(callers, 0)])
    first, group = group_keys(a.name[pairs.a], b.name[pairs.b], same.astype(np.int64), caller_label)
    columns = []
    for side, index in ((a, pairs.a), (b, pairs.b)):
        for values in (side.calls, side.cpu, side.gpu):
            sums = np.zeros(len(first), np.int64)
            np.add.at(sums, group, values[index])
            columns.append(sums.tolist())
    events = a.event[pairs.a], b.event[pairs.b]
    for row, pair in enumerate(first.tolist()):
        name_a, name_b = a.name_of(pairs.a[pair]), b.name_of(pairs.b[pair])
        below = "" if same[pair] else caller_name(tree, int(callers[pair]))
        status = RowStatus.MATCHED if same[pair] else RowStatus.CHANGED
        sums_a = SideSums(*(column[row] for column in columns[:3]))
        sums_b = SideSums(*(column[row] for column in columns[3:]))
        event_a, event_b = int(events[0][pair]), int(events[1][pair])
        table.add((status, name_a, name_b, below), sums_a, sums_b, event_a, event_b)


def _sum_groups(
    table: _RowTable, items: tuple[_Items, _Items], groups: Iterable[MatchedGroup], tree: ComparedTree
) -> None:
    """Sum groups: one row of both sides, or a row of each name where only one side has members.

    The names of a row are listed by how much their time differs between the sides.
    """
    changes: Counter[str] = Counter()
    for side, sign in zip(items, (-1, 1), strict=True):
        time = np.bincount(side.name, weights=side.cpu + side.gpu, minlength=len(side.names))
        for name in np.flatnonzero(time).tolist():
            changes[side.names[name]] += sign * int(time[name])
    a, b = items
    for group in groups:
        below = caller_name(tree, group.caller_a)
        if group.members_a and group.members_b:
            name_a = join_names(map(a.name_of, group.members_a), changes)
            name_b = join_names(map(b.name_of, group.members_b), changes)
            sums = a.sum_of(group.members_a), b.sum_of(group.members_b)
            events = a.first_event(group.members_a), b.first_event(group.members_b)
            table.add((RowStatus.CHANGED, name_a, name_b, below), *sums, *events)
            continue
        for item in group.members_a:
            key = (RowStatus.REMOVED, a.name_of(item), "", below)
            table.add(key, a.sum_of([item]), SideSums(), a.first_event((item,)))
        for item in group.members_b:
            key = (RowStatus.ADDED, "", b.name_of(item), below)
            table.add(key, SideSums(), b.sum_of([item]), -1, b.first_event((item,)))


def join_names(names: Iterable[str], changes: Mapping[str, int]) -> str:
    """Join the distinct names, sorted; of more than MAX_LISTED those that changed most, and how many others."""
    distinct = sorted(set(names))
    if len(distinct) <= MAX_LISTED:
        return " + ".join(distinct)
    largest = sorted(distinct, key=lambda name: (-abs(changes[name]), name))[:MAX_LISTED]
    return f"{' + '.join(largest)} + {len(distinct) - MAX_LISTED} more"


def _sum_by_text(table: _RowTable, a: dict[str, SideSums], b: dict[str, SideSums]) -> None:
    """Join the sums of both sides by their text."""
    for text in {**a, **b}:
        status = RowStatus.REMOVED if text not in b else RowStatus.MATCHED if text in a else RowStatus.ADDED
        key = status, text if text in a else "", text if text in b else "", ""
        table.add(key, a.get(text, SideSums()), b.get(text, SideSums()))


def _finish(
    table: _RowTable, trees: tuple[ComparedTree, ComparedTree], steps_a: int, steps_b: int, by: By
) -> ComparedRows:
    """Compute shares, add the rows of what is not matched and of the totals, and sort."""
    totals = [SideSums(0, int(t.tree.cpu_time.sum()), int(t.tree.work.time.sum())) for t in trees]
    on_gpu = bool(totals[0].gpu or totals[1].gpu)
    unmatched = [_sum_unmatched(tree) if by in ("op", "module") else SideSums() for tree in trees]

    def build_row(key: _Key, a: SideSums, b: SideSums, event_a: int = -1, event_b: int = -1) -> ComparedRow:
        return ComparedRow(*key, a, b, steps_a, steps_b, on_gpu, event_a, event_b)

    not_matched = build_row((RowStatus.NOT_MATCHED, NOT_MATCHED, NOT_MATCHED, ""), unmatched[0], unmatched[1])
    rows = [build_row(key, *row) for key, row in table.rows.items() if row[:2] != (SideSums(), SideSums())]
    whole_a = replace(totals[0], calls=sum(row.sums_a.calls for row in (*rows, not_matched)))
    whole_b = replace(totals[1], calls=sum(row.sums_b.calls for row in (*rows, not_matched)))
    total = build_row((RowStatus.MATCHED, "total", "total", ""), whole_a, whole_b)
    difference = total.delta_ns
    rows.sort(
        key=lambda row: (-abs(row.delta_ns), -abs(row.cpu_delta_ns), row.below, *sorted((row.name_a, row.name_b)))
    )

    def with_share(row: ComparedRow) -> ComparedRow:
        return replace(row, share=row.delta_ns / difference if difference and row.delta_ns else 0.0)

    return ComparedRows(
        by,
        tuple(map(with_share, rows)),
        with_share(not_matched),
        with_share(total),
        trees[0].tree.is_merged,
    )


def _sum_unmatched(tree: ComparedTree) -> SideSums:
    """Sum the GPU work whose launch is not in the trace."""
    rows = tree.work_rows(tree.no_launch_node)
    work = tree.tree.work
    return SideSums(int(work.calls[rows.start : rows.stop].sum()), 0, int(work.time[rows.start : rows.stop].sum()))


Device = Literal["cpu", "gpu"]


@record
class NameRow:
    """All calls of one name in the compared steps of either side; totals in ns, including nested calls."""

    name: str
    count_a: int
    count_b: int
    total_a: int
    total_b: int


def compare_by_name(a: Side, b: Side, device: Device) -> tuple[NameRow, ...]:
    """Compare two recordings by name; rows by name."""
    sums_a, sums_b = _sum_names(a, device), _sum_names(b, device)
    none = (0, 0)
    rows = []
    for name in sorted({*sums_a, *sums_b}):
        (count_a, total_a), (count_b, total_b) = sums_a.get(name, none), sums_b.get(name, none)
        rows.append(NameRow(name, count_a, count_b, total_a, total_b))
    return tuple(rows)


def _sum_names(side: Side, device: Device) -> dict[str, tuple[int, int]]:
    """Return (calls, ns) of each name."""
    trace = side.trace
    events = select_named(side, device)
    name, row = np.unique(trace.name[events], return_inverse=True)
    total = np.zeros(len(name), np.int64)
    np.add.at(total, row, trace.duration[events])
    counts = np.bincount(row, minlength=len(name)).tolist()
    names = [trace.names[index] for index in name.tolist()]
    return dict(zip(names, zip(counts, total.tolist(), strict=True), strict=True))


def select_named(side: Side, device: Device) -> I32:
    """Select the calls within the compared steps, not between them, or the GPU work that these launched."""
    trace, selected = side.trace, select_events(side)
    if device == "cpu":
        return selected.calls[_is_in_steps(side, trace.start[selected.calls])]
    launch = trace.links.launch_of[selected.work]
    return selected.work[_is_in_steps(side, trace.start[np.where(launch >= 0, launch, selected.work)])]


def _is_in_steps(side: Side, times: I64) -> Bool:
    """Test whether each time is within a compared step: bool[k]; without steps all are."""
    if not side.steps:
        return np.ones(len(times), np.bool_)
    starts = np.array([step.start for step in side.steps], np.int64)
    ends = starts + np.array([step.duration for step in side.steps], np.int64)
    index = np.maximum(np.searchsorted(starts, times, side="right") - 1, 0)
    return (times >= starts[index]) & (times < ends[index])
