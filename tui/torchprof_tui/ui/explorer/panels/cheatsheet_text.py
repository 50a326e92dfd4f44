"""Format the parts of the cheatsheet: the verdict, where the time went, one finding in full or on one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.style import Style

from torchprof_tui.analysis.patterns.engine.pattern import (
    Finding,
    Severity,
    State,
    describe_code_line,
    find_code_location,
    label_code_line,
)
from torchprof_tui.analysis.patterns.verdict.tree_model import select_tree_lines
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.event_styles import Palette
from torchprof_tui.ui.common.labels import describe_cost
from torchprof_tui.ui.common.name_display import clean, truncate
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.common.painted_widget import Lines, TextRun, wrap_text

if TYPE_CHECKING:
    from torchprof_tui.analysis.patterns.engine.latest_only_checker import CheckResult
    from torchprof_tui.analysis.patterns.verdict.costs import CostBase
    from torchprof_tui.analysis.patterns.verdict.tree_model import TimeTree
    from torchprof_tui.analysis.patterns.verdict.verdict import Verdict

PROBLEM_SIGN, NOTE_SIGN, ARTEFACT_SIGN = "●", "○", "·"
ID_CELLS, STAKE_CELLS, ROW_LABEL_CELLS = 26, 16, 11
MIN_TEXT_CELLS = 20
"""Minimum width of the text after an entry's id and cost; in less it is left out."""

TREE_MIN_HEIGHT, TREE_HEIGHT_PER_LINE, TREE_MAX_LINES = 8, 4, 6
"""The tree has a line from 8 lines of the panel on, another one per 4 more: the entries matter more."""

WHY_MIN_HEIGHT = 12
"""Panel height from which the numbers behind the verdict are shown."""

_SHARE_CELLS, _TIME_CELLS, _BAR_CELLS = 6, 9, 20


def format_counts(checked: CheckResult) -> str:
    """Format how many patterns are problems, fired otherwise, are not present and undetermined."""
    states = [finding.state for finding in checked.findings]
    problems = sum(finding.is_significant for finding in checked.findings)
    notes = states.count(State.FIRED) - problems
    return (
        f"{problems} problem{'s' if problems != 1 else ''} · {notes} note{'s' if notes != 1 else ''} · "
        f"{states.count(State.ABSENT)} not present · {states.count(State.CANNOT_TELL)} undetermined"
    )


def format_verdict(verdict: Verdict, width: int, height: int, palette: Palette, with_text: bool = True) -> Lines:
    """Format the verdict, with its numbers and the time tree as far as `height`, the panel's lines, leaves room.

    `with_text`: with its sentence, which stands above the lanes too.
    """
    lines = wrap_text(clean(verdict.text), width, palette.accent) if with_text else []
    if height >= WHY_MIN_HEIGHT:
        for detail in (verdict.why, describe_code_line(verdict)):
            if detail:
                lines += wrap_text(clean(detail), width, palette.muted, "  ")
    if verdict.tree is not None and height >= TREE_MIN_HEIGHT:
        line_count = 1 + (height - TREE_MIN_HEIGHT) // TREE_HEIGHT_PER_LINE
        lines += format_tree(verdict.tree, min(line_count, TREE_MAX_LINES), width, palette)
    return lines


def format_tree(tree: TimeTree, max_lines: int, width: int, palette: Palette) -> Lines:
    """Format the largest parts of the scope's time, each with a bar of its share."""
    lines: Lines = []
    for line in select_tree_lines(tree, max(max_lines, 2))[:max_lines]:
        numbers = f"  {format_share(line.share):>{_SHARE_CELLS}} {format_duration(line.time):>{_TIME_CELLS}} "
        bar = "█" * round(line.share * _BAR_CELLS)
        label = "  " * line.depth + clean(line.label)
        label_width = width - len(numbers) - _BAR_CELLS - 1
        runs: list[TextRun] = [(numbers, palette.text)]
        if label_width >= MIN_TEXT_CELLS:
            runs.append((f"{bar:<{_BAR_CELLS}} ", palette.accent if line.depth == 0 else palette.muted))
        else:
            label_width = width - len(numbers)
        lines.append([*runs, (truncate(label, label_width), palette.text)])
    return lines


def format_entry(finding: Finding, width: int, current: bool, palette: Palette, base: CostBase) -> Lines:
    """Format a fired pattern: on one line, in full for the current entry. `base`: what costs are shares of."""
    pattern, answer = finding.pattern, finding.answer
    seen = clean(answer.seen)
    sign, style = choose_sign(finding, palette)
    head: list[TextRun] = [
        ("▶ " if current else f"{sign} ", style),
        (f"{truncate(finding.id, ID_CELLS - 1):<{ID_CELLS}}", palette.active if current else palette.strong),
        (f"{format_stake(finding, base):>{STAKE_CELLS}}  ", palette.text),
    ]
    text_width = width - 2 - ID_CELLS - STAKE_CELLS - 2
    if not current:
        if text_width < MIN_TEXT_CELLS:
            return [head]
        return [[*head, (truncate(seen, text_width), palette.text)]]
    title = truncate(clean(pattern.title), text_width)
    lines: Lines = [head if text_width < MIN_TEXT_CELLS else [*head, (title, palette.text)]]
    rows = [
        ("measured", seen),
        ("costs", describe_cost(finding, base, with_label=True)),
        ("why", pattern.meaning),
        ("do", finding.remedy.action),
        (label_code_line(finding), _format_line(finding)),
        ("code", finding.remedy.code),
        ("rule", pattern.decided),
    ]
    rows += [("threshold" if not k else "", threshold.text) for k, threshold in enumerate(pattern.thresholds)]
    if len(answer.events):
        rows.append(("evidence", f"{_count_evidence(finding)}: enter, then n N"))
    for label, text in rows:
        if text:
            lines += format_labelled_text(" ", label, clean(text), width, palette, ROW_LABEL_CELLS)
    return lines


def _count_evidence(finding: Finding) -> str:
    """Count the places that n N go through: "8 gaps, the longest first", "11 events, marked on the lanes"."""
    places, count = finding.answer.places, len(finding.answer.events)
    if places is not None and places.are_gaps:
        return f"{len(places):,} gap{'s, the longest first' if len(places) != 1 else ''}"
    order = ", the costliest first" if finding.is_problem else ""
    return f"{count:,} events, marked on the lanes{order}" if count != 1 else "1 event, marked on the lanes"


def _format_line(finding: Finding) -> str:
    """Format the line of a finding, with the key that opens it where its file is known."""
    text = describe_code_line(finding)
    return f"{text} (L opens it)" if find_code_location(finding) else text


def choose_sign(finding: Finding, palette: Palette) -> tuple[str, Style]:
    """Return the sign of a fired pattern and its style: red only for a problem that costs enough time."""
    if finding.is_significant:
        return PROBLEM_SIGN, palette.warning
    if finding.pattern.severity is Severity.ARTEFACT:
        return ARTEFACT_SIGN, palette.muted
    return NOTE_SIGN, palette.accent


def format_stake(finding: Finding, base: CostBase) -> str:
    """Format what a finding costs and its share; "" where it costs no time."""
    return f"{format_duration(finding.share * base.unit)}, {format_share(finding.share)}" if finding.cost else ""


def format_labelled_text(
    sign: str, label: str, text: str, width: int, palette: Palette, cells: int = ID_CELLS
) -> Lines:
    """Format a sign, a label of `cells` cells, and a text wrapped beside it."""
    wrapped = wrap_text(text, max(width - cells - 2, 10), palette.text)
    name = truncate(label, cells - 1)
    lines: Lines = [[(f"{sign} {name}{' ' * (cells - cell_len(name))}", palette.muted), *wrapped[0]]]
    lines.extend([(" " * (cells + 2), palette.text), *runs] for runs in wrapped[1:])
    return lines
