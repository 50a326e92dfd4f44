"""The time of a scope by cause: a tree of parts, and which patterns may explain some of it.

Panels import this module before the modules that check: it imports none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration

COMPUTE, COPIES, EXPOSED, OUTSIDE = "compute", "copies", "exposed_communication", "outside"

GENERAL_PATTERN_IDS = frozenset(["overhead-bound", "first-step-wide", "not-warmed-up"])
"""Patterns that describe a whole scope: each part of it would be theirs, so they keep what no other explains."""

UNSPECIFIC_PATTERN_IDS = frozenset(
    ["call-count", "cold-call", "dead-window", "cost-in-children", "one-off-gap", "profiler-inflation"]
)
"""Patterns that restate that time is lost; others name why."""

WHOLE_SCOPE_IDS = GENERAL_PATTERN_IDS | UNSPECIFIC_PATTERN_IDS


@record
class TimePart:
    """A part of a scope: `time` in ns, summed over the devices. `parts` lie inside it and sum to it at most.

    `id`: a cause, a class of GPU work, or the id of a pattern.
    """

    id: str
    label: str
    time: int
    parts: tuple[TimePart, ...] = ()


@record
class TimeTree:
    """The time of a scope by cause. `parts` sum to `total`: the scope's length times `device_count`, ns.

    `devices`: what is counted: GPUs, or the ranks of a run without any.
    """

    parts: tuple[TimePart, ...]
    total: int
    device_count: int
    devices: str = "GPUs"

    def share(self, part: TimePart) -> float:
        """Return a part's share of the scope, 0..1."""
        return part.time / self.total if self.total else 0.0

    @property
    def measured(self) -> int:
        """The base of the shares on a screen, ns, at least 1: the scope without the time outside the steps."""
        outside = self.find(OUTSIDE)
        return self.total - (outside.time if outside else 0) or self.total or 1

    @property
    def outside_note(self) -> str:
        """Format what the scope contains beside `measured`; "" for nothing."""
        outside = self.find(OUTSIDE)
        if outside is None or outside.time == self.total:
            return ""
        return f", without {format_duration(outside.time // max(self.device_count, 1))} {outside.label}"

    @property
    def mean_note(self) -> str:
        """Format the number of devices that the times are the mean of; "" for one."""
        return f", mean of {self.device_count} {self.devices}" if self.device_count > 1 else ""

    def find(self, part_id: str) -> TimePart | None:
        return next((part for part in self.parts if part.id == part_id), None)


OTHER = "other"
UNKNOWN_PART_IDS = frozenset(["outside", "unknown", "unknown_edge"])
"""Parts in which it is not known what the GPU did, or nothing ran: every tree lists them last."""

MAX_LINES = 12
MIN_INNER_LINES = 3  # lines kept free for what lies inside the parts, as far as there is anything


@record
class TreeLine:
    """A line of a shown tree. `time`: ns, the mean of the devices; `share` of `measured`, 0..1; `depth` from 0."""

    depth: int
    id: str
    label: str
    time: float
    share: float


def select_tree_lines(tree: TimeTree, max_lines: int = MAX_LINES) -> list[TreeLine]:
    """Select the lines to show: all large parts, then the largest inside them, in the order of the tree.

    The lines of depth 0 sum to `measured`: small parts, and those beyond the limit, are added up as the line "other",
    which names the largest.
    A line inside another one is a pattern or a class of work; what is left of its parent is explained by none.
    """
    min_time = thresholds.SIGNIFICANT_SHARE.value * tree.measured
    parts = [part for part in tree.parts if part.id != OUTSIDE or tree.measured == tree.total]
    large = [part for part in parts if part.time >= min_time]
    max_parts = max_lines - (MIN_INNER_LINES if max_lines > 2 * MIN_INNER_LINES else 0)
    if len(large) < len(parts) or len(large) > max_parts:
        large = sorted(large, key=lambda part: -part.time)[: max(max_parts - 1, 1)]
    has_other = len(large) < len(parts)
    shown = {id(part) for part in large}
    _add_largest_inside(large, shown, min_time, max_lines - len(large) - has_other)
    lines: list[TreeLine] = []

    def append(part: TimePart, depth: int) -> None:
        label = part.label if depth == 0 else part.id
        lines.append(_make_line(tree, depth, part.id, label, part.time))
        for inner in part.parts:
            if id(inner) in shown:
                append(inner, depth + 1)

    for part in parts:
        if id(part) in shown:
            append(part, 0)
    if has_other:
        rest = [part for part in parts if id(part) not in shown]
        label = max(rest, key=lambda part: part.time).label
        label = f"{OTHER} ({label} and {len(rest) - 1} more)" if len(rest) > 1 else label
        lines.append(_make_line(tree, 0, OTHER, label, sum(part.time for part in rest)))
    return lines


def _add_largest_inside(parents: Sequence[TimePart], shown: set[int], min_time: float, count: int) -> None:
    candidates = [inner for part in parents for inner in part.parts]
    while candidates and count > 0:
        largest = max(candidates, key=lambda part: part.time)
        if largest.time < min_time:
            return
        candidates = [part for part in candidates if part is not largest]
        candidates += largest.parts
        shown.add(id(largest))
        count -= 1


def _make_line(tree: TimeTree, depth: int, line_id: str, label: str, time: int) -> TreeLine:
    return TreeLine(depth, line_id, label, time / tree.device_count, time / tree.measured)


def merge_trees(trees_or_none: Iterable[TimeTree | None]) -> TimeTree | None:
    """Add up the trees of ranks that were checked in one scope, part by part; None without trees."""
    trees = [tree for tree in trees_or_none if tree is not None]
    if not trees:
        return None
    merged = _merge_parts([part for tree in trees for part in tree.parts])
    devices = sum(tree.device_count for tree in trees)
    return replace(trees[0], parts=merged, total=sum(tree.total for tree in trees), device_count=devices)


def _merge_parts(parts: Sequence[TimePart]) -> tuple[TimePart, ...]:
    """Add up the parts of each id, in the order of a tree."""
    by_id: dict[str, list[TimePart]] = {}
    for part in parts:
        by_id.setdefault(part.id, []).append(part)
    merged = [
        replace(
            same[0], time=sum(part.time for part in same), parts=_merge_parts([p for part in same for p in part.parts])
        )
        for same in by_id.values()
    ]
    return tuple(sorted(merged, key=part_sort_key))


def part_sort_key(part: TimePart) -> tuple[bool, int]:
    """Return the sort key of a tree's parts: largest first, those of which nothing is known last."""
    return part.id in UNKNOWN_PART_IDS, -part.time
