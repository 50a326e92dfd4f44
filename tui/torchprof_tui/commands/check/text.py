"""Print a check as text: the verdict, where the time went, problems, notes, what is undecidable."""

from __future__ import annotations

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

from torchprof_tui.analysis.patterns.engine.check_scope import Scope
from torchprof_tui.analysis.patterns.engine.largest_gaps import LargestGap, select_long_gaps
from torchprof_tui.analysis.patterns.engine.pattern import Finding, Severity, describe_code_line, find_code_location
from torchprof_tui.analysis.patterns.engine.undecidable_reasons import describe_group, group_undecidable
from torchprof_tui.analysis.patterns.verdict.check_report import CheckReport
from torchprof_tui.analysis.patterns.verdict.verdict import Verdict
from torchprof_tui.commands.common.tables import create_console, format_time_tree
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.time_format import format_duration, format_time
from torchprof_tui.ui.common.labels import describe_cost, list_reasons
from torchprof_tui.ui.common.number_format import format_share

_INDENT = 2
_ID_CELLS = 24
_SHARE_CELLS, _TIME_CELLS = 6, 9


def print_report(report: CheckReport, only_problems: bool = False, with_notes: bool = False) -> None:
    """Print a check on stdout: coloured and wrapped on a terminal, plain and unwrapped into a pipe."""
    console = create_console()
    where = format_scope_times(report.scope)
    console.print(Text(f"{clean(report.trace.label)}  {where}".rstrip(), style="dim"))
    for text, why, verdict, ranks in report.ranks_by_verdict:
        console.print(Text(f"{format_rank_prefix(ranks)}{clean(text)}", style="bold"))
        for detail in (why, _format_line(verdict)):
            if detail:
                console.print(_indent(Text(clean(detail), style="dim")))
    if not only_problems and report.tree is not None:
        console.print()
        length = format_duration(report.tree.measured // max(report.tree.device_count, 1))
        scope = "the trace" if report.scope.is_whole_trace else "the range"
        console.print(Text(f"time of {scope}: {length}{report.tree.mean_note}{report.tree.outside_note}", style="bold"))
        for line in format_time_tree(report.tree):
            console.print(_indent(Text(line)))
    if not only_problems:
        _print_gaps(console, report)
    console.print()
    if report.problems:
        console.print(Text(f"problems (shares of {report.base.describe()})", style="bold"))
        for found in report.problems:
            for part in _problem_lines(found, report):
                console.print(part)
        if report.wins.problem:
            console.print(Text(f"what fixes save is not known: {report.wins.problem}", style="dim"))
    else:
        console.print(Text("no problems", style="bold"))
    if only_problems:
        return
    _print_lines(console, "also found", report.minor, report)
    if with_notes:
        _print_lines(console, "notes", report.notes, report)
    if report.undecidable:
        console.print()
        console.print(Text("undetermined", style="bold"))
    for reason, ids in group_undecidable(report.undecidable):
        console.print(Text(f"? {clean(describe_group(reason, ids))}", style="dim"))
    console.print()
    hint = f" · {len(report.notes)} to read it by (--notes)" if report.notes and not with_notes else ""
    console.print(Text(f"{report.format_counts()}{hint}"))


def _print_lines(console: Console, heading: str, findings: list[Finding], report: CheckReport) -> None:
    if findings:
        console.print()
        console.print(Text(heading, style="bold"))
    for found in findings:
        is_artefact = found.pattern.severity is Severity.ARTEFACT
        line = Text("· " if is_artefact else "○ ", style="dim" if is_artefact else "cyan")
        cost = describe_cost(found, report.base)
        line.append(f"{found.id:<{_ID_CELLS}}{f' {cost}' if cost else ''}", style="bold")
        line.append(f"  {clean(found.answer.seen)}", style="not bold default")
        console.print(line)


def _print_gaps(console: Console, report: CheckReport) -> None:
    gaps = select_shown_gaps(report)
    if gaps:
        console.print()
        console.print(Text("largest gaps of the GPU", style="bold"))
    for gap in gaps:
        start, duration, share = describe_gap_times(report, gap)
        numbers = f"{share:>{_SHARE_CELLS}}  {duration:>{_TIME_CELLS}}  at {start}"
        texts = [describe_device(report, gap), gap.label, gap.place, gap.line.text if gap.line else ""]
        console.print(_indent(Text(f"{numbers}  {' · '.join(clean(text) for text in texts if text)}")))


def _problem_lines(found: Finding, report: CheckReport) -> list[RenderableType]:
    line = Text("● ", style="bold red")
    line.append(f"{found.id:<{_ID_CELLS}} {describe_cost(found, report.base)}", style="bold")
    parts: list[RenderableType] = [line, _indent(Text(clean(found.answer.seen)))]
    parts += [_indent(Text(clean(f"{word}: {text}"), style="dim")) for word, text in list_reasons(found)]
    details = [text for text in (_format_line(found), found.remedy.code) if text]
    parts += [_indent(Text("\n".join(map(clean, text.split("\n"))), style="green")) for text in details]
    return parts


def _format_line(answer: Verdict | Finding) -> str:
    """Format the line of code behind an answer; where no file is known, "event: " and the event that stands for it."""
    text = describe_code_line(answer)
    return f"event: {text}" if text and not find_code_location(answer) else text


def _indent(text: Text) -> Padding:
    return Padding(text, (0, 0, 0, _INDENT), expand=False)


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


SHOWN_GAPS = 3  # gaps that a reader is shown, if they are long enough; JSON has all of a report


def select_shown_gaps(report: CheckReport) -> list[LargestGap]:
    """Select the gaps that are shown to a reader, longest first."""
    return select_long_gaps(report.gaps, report.scope.length, SHOWN_GAPS)


def describe_gap_times(report: CheckReport, gap: LargestGap) -> tuple[str, str, str]:
    """Describe when a gap began, how long it took and its share of the scope."""
    step = 10 ** max(len(str(gap.duration)) - 3, 0)
    tree = report.tree
    length = report.scope.length if tree is None else tree.measured // max(tree.device_count, 1)
    share = gap.duration / length if length else 0.0
    return format_time(gap.start, step), format_duration(gap.duration), format_share(share)


def describe_device(report: CheckReport, gap: LargestGap) -> str:
    """Describe which GPU was idle, "" where the trace has one only. As recorded: `clean` it."""
    if gap.rank is not None:
        return f"rank {gap.rank}"
    devices = {each.device for each in report.gaps}
    return f"GPU {gap.device}" if len(devices) > 1 else ""
