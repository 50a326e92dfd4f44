"""Compare two recordings: the account of a step, what was recorded differently, the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from torchprof_tui.analysis.compare.account import Account, build_account
from torchprof_tui.analysis.compare.comparability import RecordingDifference, list_recording_differences
from torchprof_tui.analysis.compare.comparison_error import ComparisonError
from torchprof_tui.analysis.compare.comparison_verdict import ComparisonVerdict, decide_comparison
from torchprof_tui.analysis.compare.matched_rows import By, ComparedRows, match_sides
from torchprof_tui.analysis.compare.matching import TreeMatch, match_trees
from torchprof_tui.analysis.compare.memory_change import PeakChange, compare_peaks
from torchprof_tui.analysis.compare.rank_changes import RankChange
from torchprof_tui.analysis.compare.side_analysis import SideAnalysis
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

_TORCH_KINDS = (Kind.OP, Kind.RUNTIME, Kind.KERNEL, Kind.COPY, Kind.MEMSET, Kind.COLLECTIVE, Kind.STEP)


@dataclass(frozen=True)
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
