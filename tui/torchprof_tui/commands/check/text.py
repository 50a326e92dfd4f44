"""Print a check as text: the verdict, the fired patterns, the undecidable ones."""

from __future__ import annotations

from itertools import groupby

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

from torchprof_tui.analysis.patterns.engine.check_scope import Scope
from torchprof_tui.analysis.patterns.engine.pattern import Finding, Severity, State
from torchprof_tui.analysis.patterns.verdict.verdict import Verdict
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.time_format import format_duration, format_time
from torchprof_tui.ui.common.number_format import format_share

_SIGNS = {Severity.PROBLEM: ("●", "bold red"), Severity.NOTICE: ("○", "cyan"), Severity.ARTEFACT: ("·", "dim")}
_INDENT = 2


def print_findings(name: str, scope: Scope, findings: list[Finding], verdicts: list[Verdict], ranks: list[int]) -> None:
    """Print the findings on stdout: coloured and wrapped on a terminal, plain and unwrapped into a pipe."""
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = 10_000  # one line per pattern, for grep
    title = Text(clean(name), style="bold")
    where = "" if scope.is_whole_trace else f"  {format_time(scope.t0)} to {format_time(scope.t1)}"
    if not ranks:
        where += f"  {clean(verdicts[0].text)}"
    title.append(where, style="default")
    console.print(title)
    # Most ranks have the same verdict: one line per distinct verdict.
    said: dict[str, list[int]] = {}
    for rank, verdict in zip(ranks, verdicts, strict=False):
        said.setdefault(verdict.text, []).append(rank)
    for verdict_line, those in said.items():
        console.print(
            Text(f"{'rank' if len(those) == 1 else 'ranks'} {_format_number_ranges(those)}: {clean(verdict_line)}")
        )
    console.print()
    for found in findings:
        if found.has_fired:
            for part in _finding_lines(found, "the trace" if scope.is_whole_trace else "the range"):
                console.print(part)
    unknown = [found for found in findings if found.state is State.CANNOT_TELL]
    # One line per reason: a trace without ops has the same reason for a dozen patterns.
    unknown.sort(key=lambda found: found.answer.reason)
    for reason, same in groupby(unknown, key=lambda found: found.answer.reason):
        ids = ", ".join(found.id for found in same)
        console.print(Text(f"? {clean(reason)}: {ids}", style="dim"))
    absent = sum(found.state is State.ABSENT for found in findings)
    fired = sum(found.has_fired for found in findings)
    console.print()
    console.print(Text(f"{fired} fired · {absent} absent · {len(unknown)} cannot be told"))


def _format_number_ranges(numbers: list[int]) -> str:
    """Format ascending numbers as ranges: `0-3, 7`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _finding_lines(found: Finding, share_base: str) -> list[RenderableType]:
    """Format one fired pattern; `of` names the time that shares refer to."""
    sign, style = _SIGNS[found.pattern.severity]
    line = Text(f"{sign} ", style=style)
    line.append(f"{found.id:<18}", style="bold")
    stake = found.answer.at_stake
    if stake:
        line.append(f" {format_duration(stake)}, {format_share(found.share)} of {share_base}", style="bold")
    line.append(f" {clean(found.answer.seen)}")
    if found.pattern.severity is not Severity.PROBLEM:
        return [line]
    says = Text(f"{found.pattern.meaning} → {found.remedy.action}", style="dim")
    parts: list[RenderableType] = [line, Padding(says, (0, 0, 0, _INDENT), expand=False)]
    if found.remedy.code:
        parts.append(Padding(Text(found.remedy.code, style="green"), (0, 0, 0, _INDENT), expand=False))
    return parts
