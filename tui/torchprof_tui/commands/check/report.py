"""What a check found, as the input of every output: text, Markdown and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from torchprof_tui.analysis.patterns.engine.check_scope import Scope
from torchprof_tui.analysis.patterns.engine.largest_gaps import LargestGap
from torchprof_tui.analysis.patterns.engine.pattern import Finding, State
from torchprof_tui.analysis.patterns.verdict.own_time import OwnTime, find_divided_tree, find_own_times
from torchprof_tui.analysis.patterns.verdict.time_tree import TimeTree
from torchprof_tui.analysis.patterns.verdict.tree_lines import merge_trees
from torchprof_tui.analysis.patterns.verdict.verdict import Verdict
from torchprof_tui.trace.core.time_format import format_time
from torchprof_tui.trace.model.trace import Trace


@dataclass(frozen=True)
class CheckReport:
    """A checked scope: `findings`, worst first, one verdict per rank (one without ranks), the largest `gaps`."""

    trace: Trace
    scope: Scope
    findings: list[Finding]
    verdicts: list[Verdict]
    gaps: Sequence[LargestGap] = ()

    @property
    def problems(self) -> list[Finding]:
        """The fired problems that cost enough time, worst first."""
        return [finding for finding in self.findings if finding.is_significant]

    @property
    def notes(self) -> list[Finding]:
        """Everything else that fired: small problems, notices, artefacts."""
        return [finding for finding in self.findings if finding.has_fired and not finding.is_significant]

    @property
    def undecidable(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.state is State.CANNOT_TELL]

    @property
    def share_base(self) -> str:
        """The time that shares refer to."""
        return "the trace" if self.scope.is_whole_trace else "the range"

    @cached_property
    def tree(self) -> TimeTree | None:
        """The time of the scope by cause, over all ranks; None where it is unknown."""
        return merge_trees([verdict.tree for verdict in self.verdicts if verdict.tree is not None])

    @cached_property
    def divided_tree(self) -> TimeTree | None:
        """The part of `tree` that is divided by pattern as well: that of scopes with GPU work."""
        return find_divided_tree(self.verdicts)

    @cached_property
    def own_times(self) -> dict[str, OwnTime]:
        """The time that each fired pattern alone explains, by id; those without any are left out."""
        fired = [finding.id for finding in self.findings if finding.has_fired]
        return {} if self.divided_tree is None else find_own_times(self.divided_tree, fired)

    @cached_property
    def ranks_by_verdict(self) -> list[tuple[Verdict, list[int]]]:
        """The distinct verdicts, each with the numbers of its ranks; [] of numbers where all have the same."""
        if self.trace.merged_ranks is None:
            return [(self.verdicts[0], [])]
        numbers_by_text: dict[str, tuple[Verdict, list[int]]] = {}
        for rank, verdict in zip(self.trace.merged_ranks.all, self.verdicts, strict=True):
            numbers_by_text.setdefault(verdict.text, (verdict, []))[1].append(rank.number)
        distinct = list(numbers_by_text.values())
        return distinct if len(distinct) > 1 else [(distinct[0][0], [])]

    def format_counts(self) -> str:
        fired = sum(finding.has_fired for finding in self.findings)
        absent = sum(finding.state is State.ABSENT for finding in self.findings)
        return f"{fired} found · {absent} not present · {len(self.undecidable)} undetermined"


def format_scope_times(scope: Scope) -> str:
    """Format when a scope begins and ends, with the digits that tell both apart; "" for the whole trace."""
    if scope.is_whole_trace:
        return ""
    step = 10 ** max(len(str(scope.length)) - 3, 0)
    return f"{format_time(scope.t0, step, scope.t1)} to {format_time(scope.t1, step)}"


def format_number_ranges(numbers: list[int]) -> str:
    """Format ascending numbers as ranges: `0-3, 7`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def format_rank_prefix(numbers: list[int]) -> str:
    """Format the ranks that a verdict is about: `ranks 0-3: `, "" for all."""
    return f"{'rank' if len(numbers) == 1 else 'ranks'} {format_number_ranges(numbers)}: " if numbers else ""
