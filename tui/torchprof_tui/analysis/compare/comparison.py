"""Compare two recordings: the account of a step, what was recorded differently, the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from torchprof_tui.analysis.compare.account import Account, build_account
from torchprof_tui.analysis.compare.comparability import RecordingDifference, list_recording_differences
from torchprof_tui.analysis.compare.comparison_verdict import (
    ChangeCause,
    ComparisonVerdict,
    decide_comparison,
    name_step,
)
from torchprof_tui.analysis.compare.matched_rows import By, ComparedRow, ComparedRows, RowStatus, match_sides
from torchprof_tui.analysis.compare.matching import TreeMatch, match_trees
from torchprof_tui.analysis.compare.memory_change import PeakChange, compare_peaks
from torchprof_tui.analysis.compare.side_analysis import SideAnalysis
from torchprof_tui.analysis.compare.step_selection import ComparisonError, StepSelection
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

MAX_RANKS = 16  # ranks that are measured, the first ones: each takes some tenths of a second


@record
class RankChange:
    """The mean step of one rank in both runs, ns."""

    rank: int
    a: float
    b: float

    @property
    def delta(self) -> float:
        return self.b - self.a


def compare_ranks(
    a: Mapping[int, Trace], b: Mapping[int, Trace], selections: tuple[StepSelection, StepSelection]
) -> list[RankChange]:
    """Compare the ranks that both runs have, by number, at most MAX_RANKS. `a`, `b`: rank -> its trace.

    Raises ComparisonError where a rank has none of the steps that were asked for.
    """
    changes = []
    for number in sorted(set(a) & set(b))[:MAX_RANKS]:
        sides = [
            SideAnalysis(ranks[number], "", selection) for ranks, selection in zip((a, b), selections, strict=True)
        ]
        times = [float(side.step_durations.mean()) for side in sides]
        changes.append(RankChange(number, times[0], times[1]))
    return changes


_TORCH_KINDS = (Kind.OP, Kind.RUNTIME, Kind.KERNEL, Kind.COPY, Kind.MEMSET, Kind.COLLECTIVE, Kind.STEP)


@record(slots=False)
class Comparison:
    """Two sides and what is found by comparing them; each part is computed on first use.

    `ranks`: the step time of each rank, where both sides stand for a run of several ranks.
    """

    a: SideAnalysis
    b: SideAnalysis
    ranks: Sequence[RankChange] = ()

    @cached_property
    def account(self) -> Account:
        return build_account(self.a, self.b)

    @cached_property
    def differences(self) -> list[RecordingDifference]:
        return list_recording_differences(self.a, self.b)

    @cached_property
    def verdict(self) -> ComparisonVerdict:
        return decide_comparison(self.a, self.b, self.account)

    def match_rows(self, by: By) -> ComparedRows:
        """Match the ops, modules or kernels of both sides; see `matched_rows`."""
        return match_sides(self.a.side, self.b.side, by, self.tree_match if by in ("op", "kernel") else None)

    @cached_property
    def tree_match(self) -> TreeMatch:
        """The matched call trees of both sides."""
        return match_trees(self.a.side, self.b.side)

    @cached_property
    def peak_change(self) -> PeakChange | None:
        """What is alive at the peak of memory, in the whole of both traces; None where it was not recorded."""
        return compare_peaks(self.a.trace, self.b.trace)

    @cached_property
    def is_same_recording(self) -> bool:
        """Whether both sides are the same steps of the same recording."""
        return self.a.side.window == self.b.side.window and is_same_trace(self.a.trace, self.b.trace)


def is_same_trace(a: Trace, b: Trace) -> bool:
    """Return whether two traces hold the same events at the same times."""
    if a is b:
        return True
    return bool(
        len(a) == len(b)
        and a.names == b.names
        and a.origin == b.origin
        and np.array_equal(a.start, b.start)
        and np.array_equal(a.duration, b.duration)
        and np.array_equal(a.name, b.name)
    )


def require_torch_trace(trace: Trace) -> None:
    """Raise ComparisonError if a trace holds nothing that torch.profiler records: there is nothing to compare."""
    kinds = np.bincount(np.asarray(trace.kind), minlength=max(_TORCH_KINDS) + 1)
    if not kinds[list(map(int, _TORCH_KINDS))].any():
        raise ComparisonError(
            "no torch.profiler trace: it has no ops, steps or GPU work; diff compares two torch.profiler traces"
        )


ROW_MARKS: dict[RowStatus, str] = {RowStatus.ADDED: "+", RowStatus.REMOVED: "-", RowStatus.CHANGED: "*"}
ROW_LEGEND = "(* other names at the same place, + only in B, - only in A)"


def describe_steps(side: SideAnalysis) -> str:
    """Describe which steps of a side are compared, and how long one takes."""
    steps, duration = side.side.steps, (side.span[1] - side.span[0]) / side.side.step_count
    if not steps:
        return f"in one piece: {format_duration(duration)}"
    first, last = steps[0].number, steps[-1].number
    numbers = f"step #{first}" if len(steps) == 1 else f"{len(steps)} steps, #{first} to #{last}"
    return f"{numbers}: {format_duration(duration)} a step"


def describe_ranks(ranks: Sequence[RankChange]) -> str:
    """Describe how much the step of each rank changed, "" for a single one."""
    if not ranks:
        return ""
    least, most = min(ranks, key=lambda change: change.delta), max(ranks, key=lambda change: change.delta)
    words = [f"{'+' if each.delta > 0 else ''}{format_duration(each.delta)}" for each in (least, most)]
    return (
        f"rank {ranks[0].rank} stands for its run; over {len(ranks)} ranks a step changes by {words[0]} "
        f"(rank {least.rank}) to {words[1]} (rank {most.rank})"
    )


def describe_cause(cause: ChangeCause) -> str:
    """Describe a cause in one line: the change of the part, the pattern and the line behind it."""
    part = cause.part
    change = f"{'+' if part.delta > 0 else ''}{format_duration(part.delta)}"
    noise = ", noise unknown" if part.noise is None else ", within the noise" if part.is_within_noise else ""
    words = f"{part.label}: {change}{noise} ({format_duration(part.a)} → {format_duration(part.b)})"
    if cause.pattern is not None:
        words += f"; in {cause.side.upper()}: {cause.pattern.pattern.title}"
    words += name_step(part)
    if cause.line:
        words += f", at {cause.line}"
    if cause.ops:
        words += f": {', '.join(f'{op.text} {format_change(op.delta)}' for op in cause.ops)}"
    return words


def list_largest_changes(matched: ComparedRows) -> list[ComparedRow]:
    """List the rows that changed, by the larger of their changes of GPU and CPU time."""
    changed = [row for row in matched.rows if row.gpu_delta_ns or row.cpu_delta_ns]
    return sorted(changed, key=lambda row: -max(abs(row.gpu_delta_ns), abs(row.cpu_delta_ns)))


def describe_row(row: ComparedRow, by: str) -> str:
    """Describe a row by its name, decoded where it is that of a kernel; both names where they differ."""
    names = [decode_kernel_name(name).display or name for name in (row.name_a, row.name_b)] if by == "kernel" else []
    text = row.text
    if names:
        text = names[0] if names[0] == names[1] else " → ".join(name for name in names if name)
    return text


def format_change(time: float) -> str:
    """Format a difference of times, ns, with its sign; "-" for none."""
    return f"{'+' if time > 0 else ''}{format_duration(time)}" if round(time) else "-"


def format_calls(calls: float) -> str:
    """Format the calls of one step."""
    return f"{calls:.0f}" if calls == round(calls) or calls >= 100 else f"{calls:.1f}"
