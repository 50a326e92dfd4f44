"""Check a scope of a trace, of all its ranks: the report that outputs and the API are made of."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field
from functools import cached_property

from torchprof_tui.analysis.patterns.engine.check_scope import Scope, default_scope
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS, Checker, check_view
from torchprof_tui.analysis.patterns.engine.largest_gaps import LargestGap
from torchprof_tui.analysis.patterns.engine.pattern import Finding, State
from torchprof_tui.analysis.patterns.verdict.costs import CostBase, find_base, price_findings
from torchprof_tui.analysis.patterns.verdict.rank_checks import MultiRankChecker
from torchprof_tui.analysis.patterns.verdict.tree_model import TimeTree, merge_trees
from torchprof_tui.analysis.patterns.verdict.verdict import Verdict, decide_verdict, tell_costs
from torchprof_tui.analysis.patterns.verdict.wins import Wins, find_remedy, predict_wins, rank_by_wins
from torchprof_tui.analysis.what_if.scenario import Scenario, ScenarioError, ScenarioKind
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.trace import Trace

LISTED_GAPS = 10  # gaps that a report lists, longest first


@record(slots=False)
class CheckReport:
    """A checked scope: `findings`, worst first, one verdict per rank (one without ranks), the largest `gaps`.

    `base`: what costs are shares of; `wins`: what fixes save.
    """

    trace: Trace
    scope: Scope
    findings: list[Finding]
    verdicts: list[Verdict]
    base: CostBase
    gaps: Sequence[LargestGap] = ()
    wins: Wins = field(default_factory=Wins)

    @property
    def problems(self) -> list[Finding]:
        """The fired problems that cost enough time, worst first."""
        return [finding for finding in self.findings if finding.is_significant]

    @property
    def minor(self) -> list[Finding]:
        """What else fired: problems that cost next to nothing, and artefacts of the profiler."""
        return [found for found in self.findings if found.has_fired and not (found.is_significant or found.is_note)]

    @property
    def notes(self) -> list[Finding]:
        """The patterns that fired and only help to read the trace."""
        return [finding for finding in self.findings if finding.has_fired and finding.is_note]

    @property
    def undecidable(self) -> list[Finding]:
        return [found for found in self.findings if found.state is State.CANNOT_TELL and not found.is_note]

    @property
    def serving_range(self) -> tuple[int, int] | None:
        """The range whose serving steps belong to the scope; None for all."""
        return None if self.scope.is_whole_trace else (self.scope.t0, self.scope.t1)

    @cached_property
    def tree(self) -> TimeTree | None:
        """The time of the scope by cause, over all ranks; None where it is unknown."""
        return merge_trees([verdict.tree for verdict in self.verdicts if verdict.tree is not None])

    @cached_property
    def ranks_by_verdict(self) -> list[tuple[str, str, Verdict, list[int]]]:
        """The distinct verdicts: text, why, the first one, and the numbers of its ranks; [] of these where all agree.

        Ranks agree where their texts differ in no words but in shares and times, of which the range is said.
        """
        if self.trace.merged_ranks is None:
            return [(self.verdicts[0].text, self.verdicts[0].why, self.verdicts[0], [])]
        alike: dict[str, list[tuple[int, Verdict]]] = {}
        for rank, verdict in zip(self.trace.merged_ranks.all, self.verdicts, strict=True):
            alike.setdefault(_NUMBER.sub("", verdict.text), []).append((rank.number, verdict))
        return [
            (
                _join_numbers([each.text for _, each in group]),
                _join_numbers([each.why for _, each in group]),
                group[0][1],
                [number for number, _ in group] if len(alike) > 1 else [],
            )
            for group in alike.values()
        ]

    def format_counts(self) -> str:
        """Format how many patterns are found, not present and undetermined; notes do not count."""
        absent = sum(found.state is State.ABSENT and not found.is_note for found in self.findings)
        fired = len(self.problems) + len(self.minor)
        return f"{fired} found · {absent} not present · {len(self.undecidable)} undetermined"


def check_trace(trace: Trace, scope: Scope, *, with_wins: bool = True) -> CheckReport:
    """Check the scope: findings, worst first, a verdict per rank, and the largest gaps.

    Of problems of a whole trace it says what their fixes save, where that can be predicted and is asked for.
    """
    if trace.merged_ranks is not None:
        ranks = MultiRankChecker(trace)
        findings, verdicts = ranks.check(scope)
        base = ranks.find_base(scope)
        gaps = ranks.list_largest_gaps(scope, LISTED_GAPS)
    else:
        checker = Checker(trace)
        view = checker.view(scope)
        unpriced = check_view(view)
        verdict = decide_verdict(view, unpriced)
        findings, base = price_findings(view, unpriced, verdict), find_base(view)
        verdicts = [tell_costs(verdict, findings)]
        gaps = checker.list_largest_gaps(scope, LISTED_GAPS)
    wins = predict_wins(trace, findings, base) if scope.is_whole_trace and with_wins else Wins()
    return CheckReport(trace, scope, rank_by_wins(findings, wins), verdicts, base, gaps, wins)


_NUMBER = re.compile(r"\d[\d,.]*(?= (?:%|ns|µs|ms|s)(?!\w))")


def _join_numbers(texts: Sequence[str]) -> str:
    """Join texts that differ in shares and times only: "86 to 100 %". Those that differ in words: the first."""
    if len({_NUMBER.sub("", text) for text in texts}) > 1:
        return texts[0]
    ranges = (sorted(set(column), key=_read) for column in zip(*map(_NUMBER.findall, texts), strict=True))
    return _NUMBER.sub(lambda _: " to ".join(dict.fromkeys((each := next(ranges))[:1] + each[-1:])), texts[0])


def _read(number: str) -> float:
    return float(number.replace(",", "").rstrip("."))


class RemedyFinder:
    """Finds the scenarios of a trace's patterns. The trace is checked once, when the first pattern is asked for."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def expand(self, scenarios: Sequence[Scenario]) -> list[Scenario]:
        """Replace `pattern=ID` by the scenario of its remedy. Raises ScenarioError where it was not found."""
        return [
            self._find_remedy(scenario) if scenario.kind is ScenarioKind.PATTERN else scenario for scenario in scenarios
        ]

    @cached_property
    def _findings(self) -> dict[str, Finding]:
        report = check_trace(self._trace, default_scope(self._trace), with_wins=False)
        return {finding.id: finding for finding in report.findings}

    def _find_remedy(self, scenario: Scenario) -> Scenario:
        name = scenario.subject
        if name not in PATTERNS:
            raise ScenarioError(f"{scenario.text!r}: no pattern {name!r}; `check --list` names them")
        finding = self._findings.get(name)
        if finding is None or not finding.has_fired:
            raise ScenarioError(f"{scenario.text!r}: `check` did not find it in this trace")
        remedy = find_remedy(self._trace, finding)
        if remedy is None:
            raise ScenarioError(f"{scenario.text!r}: no scenario describes its remedy; change kernels or ops yourself")
        return remedy
