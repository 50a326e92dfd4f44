"""Format a comparison as text: the headline, what is not the same, the waterfall, causes, rows. At most 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from torchprof_tui.analysis.compare.account_groups import CAUSE, CLASS, choose_matching, group_account
from torchprof_tui.analysis.compare.comparison import Comparison, describe_cause, describe_ranks, describe_steps
from torchprof_tui.analysis.compare.comparison_verdict import ChangeCause
from torchprof_tui.analysis.memory.findings.memory_finding import format_size
from torchprof_tui.analysis.patterns.engine.pattern import Finding
from torchprof_tui.commands.diff.matched_table import format_matched_rows
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.name_display import truncate
from torchprof_tui.ui.common.waterfall import format_waterfall

WIDTH = 80
_INDENT = "  "
_MAX_PATTERNS = 5
_MAX_LEFT_OUT = 3
_MAX_PEAK_PARTS = 6


def format_comparison(comparison: Comparison, by: str) -> list[str]:
    """Format a comparison as lines; `by`: what the rows of the last table are."""
    lines = [*_format_sides(comparison)]
    if comparison.is_same_recording:
        return [*lines, "", "the same recording: nothing differs"]
    verdict = comparison.verdict
    lines += ["", *_wrap(verdict.headline), *_wrap(verdict.regimes, _INDENT), *_wrap(verdict.launches, _INDENT)]
    lines += _wrap(describe_ranks(comparison.ranks), _INDENT)
    lines += _format_differences(comparison)
    lines += ["", *format_waterfall(comparison.account)]
    lines += _format_causes(verdict.causes)
    lines += _format_patterns("A", verdict.patterns_a_only)
    lines += _format_patterns("B", verdict.patterns_b_only)
    lines += _format_memory(comparison)
    lines += _format_rows(comparison, by)
    return lines


def _format_sides(comparison: Comparison) -> Iterator[str]:
    sides = (comparison.a, comparison.b)
    steps = [describe_steps(side) for side in sides]
    labels = [_shorten_path(clean(side.side.label), WIDTH - max(map(len, steps)) - 5) for side in sides]
    cells = max(map(len, labels))
    for name, side, label, words in zip(("A", "B"), sides, labels, steps, strict=True):
        yield f"{name}  {label:<{cells}}  {words}"
        left_out = side.side.left_out
        for reason in left_out[:_MAX_LEFT_OUT]:
            yield from _wrap(f"left out: {reason}", "   ")
        if len(left_out) > _MAX_LEFT_OUT:
            yield f"   and {len(left_out) - _MAX_LEFT_OUT} more of the first steps (--json)"


def _shorten_path(label: str, cells: int) -> str:
    """Shorten a path from its beginning: the end says which file it is."""
    cells = max(cells, 20)
    return label if len(label) <= cells else "…" + label[len(label) - cells + 1 :]


def _format_differences(comparison: Comparison) -> Iterator[str]:
    if comparison.differences:
        yield ""
        yield "to know before comparing"
    for each in comparison.differences:
        yield from _wrap(f"{each.what}: A {each.a}, B {each.b}: {each.consequence}", _INDENT)


def _format_causes(causes: tuple[ChangeCause, ...]) -> Iterator[str]:
    if causes:
        yield ""
        yield "largest causes"
    for cause in causes:
        yield from _wrap(describe_cause(cause), _INDENT)


def _format_patterns(name: str, findings: tuple[Finding, ...]) -> Iterator[str]:
    if not findings:
        return
    yield ""
    yield f"patterns of {name} only"
    for found in findings[:_MAX_PATTERNS]:
        yield from _wrap(f"{found.id}: {found.answer.seen}", _INDENT)
    if len(findings) > _MAX_PATTERNS:
        yield f"{_INDENT}and {len(findings) - _MAX_PATTERNS} more (--json)"


def _format_memory(comparison: Comparison) -> Iterator[str]:
    """Format what is new at the peak of memory; nothing where it was not recorded."""
    change = comparison.peak_change
    if change is None:
        return
    changed = [part for part in change.parts if part.delta]
    yield ""
    yield f"{f'at the peak of memory, {change.device}':<40} {'A':>10} {'B':>10} {'change':>11}"
    for part in changed[:_MAX_PEAK_PARTS]:
        label = ", ".join(filter(None, (part.category, part.op, part.line)))
        yield _format_bytes_row(label, part.a, part.b)
    rest = changed[_MAX_PEAK_PARTS:]
    if rest:
        others = sum(part.a for part in rest), sum(part.b for part in rest)
        yield _format_bytes_row(f"{len(rest)} more that differ (--json)", *others)
    same = [part for part in change.parts if not part.delta]
    if same:
        yield _format_bytes_row("the same in both", sum(part.a for part in same), sum(part.b for part in same))
    yield _format_bytes_row("the peak", change.a, change.b)


def _format_bytes_row(label: str, a: int, b: int) -> str:
    change = f"{'+' if b > a else ''}{format_size(b - a)}"
    return f"{truncate(clean(label), 40):<40} {format_size(a):>10} {format_size(b):>10} {change:>11}"


def _format_rows(comparison: Comparison, by: str) -> Iterator[str]:
    yield ""
    if by not in (CLASS, CAUSE):
        yield from format_matched_rows(comparison.match_rows(choose_matching(by)))
        return
    yield f"{f'per step, by {by}':<40} {'A':>10} {'B':>10} {'change':>11}"
    for row in group_account(comparison.account, by):
        change = f"{'+' if row.delta > 0 else ''}{format_duration(row.delta)}"
        times = f"{format_duration(row.a):>10} {format_duration(row.b):>10} {change:>11}"
        yield f"{truncate(clean(row.label), 40):<40} {times}"


def _wrap(text: str, indent: str = "") -> list[str]:
    if not text:
        return []
    return textwrap.wrap(clean(text), WIDTH, initial_indent=indent, subsequent_indent=indent + "  ")
