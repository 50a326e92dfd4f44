"""Format a comparison as text: the headline, what is not the same, the waterfall, causes, rows. At most 80 columns."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from torchprof_tui.analysis.compare.account import CAUSE, CLASS, group_account
from torchprof_tui.analysis.compare.comparison import (
    ROW_LEGEND,
    ROW_MARKS,
    Comparison,
    describe_cause,
    describe_ranks,
    describe_row,
    describe_steps,
    format_calls,
    format_change,
    list_largest_changes,
)
from torchprof_tui.analysis.compare.matched_rows import ComparedRow, ComparedRows, RowStatus, choose_matching
from torchprof_tui.analysis.compare.waterfall import build_rows
from torchprof_tui.analysis.memory.findings.memory_finding import format_size
from torchprof_tui.analysis.patterns.engine.pattern import Finding
from torchprof_tui.commands.check.markdown import escape_markdown
from torchprof_tui.commands.diff import DiffOptions
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.name_display import truncate
from torchprof_tui.ui.common.text_charts import format_waterfall

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
    lines += ["", *_wrap(verdict.first), *_wrap(verdict.regimes, _INDENT), *_wrap(verdict.launches, _INDENT)]
    lines += _wrap(describe_ranks(comparison.ranks), _INDENT)
    differences = [f"{each.what}: A {each.a}, B {each.b}: {each.consequence}" for each in comparison.differences]
    lines += _format_section("to know before comparing", differences)
    lines += ["", *format_waterfall(comparison.account)]
    lines += _format_section("largest causes", map(describe_cause, verdict.causes))
    lines += _format_patterns("A", verdict.patterns_a_only)
    lines += _format_patterns("B", verdict.patterns_b_only)
    lines += _format_memory(comparison)
    lines += _format_rows(comparison, by)
    return lines


def _format_sides(comparison: Comparison) -> Iterator[str]:
    sides = (comparison.a, comparison.b)
    steps = [describe_steps(side) for side in sides]
    room = max(WIDTH - max(map(len, steps)) - 5, 20)
    labels = [clean(side.side.label) for side in sides]
    labels = [label if len(label) <= room else f"…{label[len(label) - room + 1 :]}" for label in labels]
    cells = max(map(len, labels))
    for name, side, label, words in zip(("A", "B"), sides, labels, steps, strict=True):
        yield f"{name}  {label:<{cells}}  {words}"
        left_out = side.side.left_out
        for reason in left_out[:_MAX_LEFT_OUT]:
            yield from _wrap(f"left out: {reason}", "   ")
        if len(left_out) > _MAX_LEFT_OUT:
            yield f"   and {len(left_out) - _MAX_LEFT_OUT} more of the first steps (--json)"


def _format_section(heading: str, texts: Iterable[str]) -> list[str]:
    """Format a heading and texts below it; [] without any."""
    lines = [line for text in texts for line in _wrap(text, _INDENT)]
    return ["", heading, *lines] if lines else []


def _format_patterns(name: str, findings: tuple[Finding, ...]) -> list[str]:
    shown = [f"{found.id}: {found.answer.seen}" for found in findings[:_MAX_PATTERNS]]
    more = len(findings) - _MAX_PATTERNS
    lines = _format_section(f"patterns of {name} only", shown)
    return [*lines, f"{_INDENT}and {more} more (--json)"] if more > 0 else lines


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


MAX_ROWS = 12  # rows that are shown; the others are added up as one, and --json has all
_NAME_CELLS, _CALLS_CELLS, _TIME_CELLS, _CHANGE_CELLS = 29, 9, 8, 9


def format_matched_rows(matched: ComparedRows) -> Iterator[str]:
    """Format rows by the larger of their two changes, what could not be matched, and the total; times of one step."""
    titles = ("GPU: A", "B", "change", "CPU self") if matched.total.on_gpu else ("CPU: A", "B", "change")
    yield _format_cells(f"per step, by {matched.by}", "calls", *titles)
    shown = list_largest_changes(matched)[:MAX_ROWS]
    for row in shown:
        label = f"{ROW_MARKS.get(row.status, ' ')} {clean(describe_row(row, matched.by))}"
        if len(label) > _NAME_CELLS and row.status is RowStatus.CHANGED:
            yield _fit_names(label)  # both names matter: they get a line of their own
            label = ""
        elif len(label) > _NAME_CELLS and matched.by == "module":
            label = f"  …{label[len(label) - _NAME_CELLS + 3 :]}"  # the end says which layer it is
        yield _format_row(label, [row])
    rest = [row for row in matched.rows if row not in shown]
    if rest:
        yield _format_row(f"  {len(rest)} other row{'s' if len(rest) > 1 else ''}", rest)
    if any((matched.not_matched.sums_a.calls, matched.not_matched.sums_b.calls)):
        yield _format_row("  GPU work without its launch", [matched.not_matched])
    yield _format_row("  total", [matched.total])
    if any(row.status in ROW_MARKS for row in shown):
        yield ROW_LEGEND
    if matched.is_merged:
        yield "(too many calls: those of one name below one caller were matched as one)"


def _fit_names(label: str) -> str:
    """Shorten the names of both sides to one line; each has at least half of it."""
    before, arrow, after = label.partition(" → ")
    room = WIDTH - len(arrow)
    if len(label) <= WIDTH or not arrow:
        return truncate(label, WIDTH)
    first = min(len(before), max(room // 2, room - len(after)))
    return f"{truncate(before, first)}{arrow}{truncate(after, room - first)}"


def _format_row(label: str, rows: Sequence[ComparedRow]) -> str:
    calls = [sum(row.calls_a for row in rows), sum(row.calls_b for row in rows)]
    cpu = [sum(row.cpu_ns_a for row in rows), sum(row.cpu_ns_b for row in rows)]
    gpu = [sum(row.gpu_ns_a for row in rows), sum(row.gpu_ns_b for row in rows)]
    times, others = (gpu, [cpu]) if rows[0].on_gpu else (cpu, [])
    return _format_cells(
        label,
        format_calls(calls[0]) if calls[0] == calls[1] else "→".join(map(format_calls, calls)),
        *(format_duration(time) if time else "-" for time in times),
        *(format_change(pair[1] - pair[0]) for pair in [times, *others]),
    )


def _format_cells(label: str, calls: str, a: str, b: str, *changes: str) -> str:
    name = truncate(clean(label), _NAME_CELLS)
    times = f"{a:>{_TIME_CELLS}} {b:>{_TIME_CELLS}}" + "".join(f" {change:>{_CHANGE_CELLS}}" for change in changes)
    return f"{name:<{_NAME_CELLS}} {calls:>{_CALLS_CELLS}} {times}".rstrip()


def format_report(comparison: Comparison, options: DiffOptions) -> Iterator[str]:
    """Format a report as lines. `options`: of the command line, to repeat it."""
    verdict, account = comparison.verdict, comparison.account
    yield "# What changed from A to B"
    yield ""
    headline = "the same recording: nothing differs" if comparison.is_same_recording else verdict.first
    yield f"**{escape_markdown(headline)}**"
    yield ""
    for text in (verdict.regimes, verdict.launches, describe_ranks(comparison.ranks)):
        if text:
            yield f"{escape_markdown(text)}  "
    yield ""
    yield "| | trace | compared | left out |"
    yield "|---|---|---|---|"
    for name, side in (("A", comparison.a), ("B", comparison.b)):
        cells = (side.side.label, describe_steps(side), "; ".join(side.side.left_out))
        yield f"| {name} | {' | '.join(map(escape_markdown, cells))} |"
    if comparison.differences:
        yield ""
        yield "| to know before comparing | A | B | consequence |"
        yield "|---|---|---|---|"
    for each in comparison.differences:
        cells4 = (each.what, each.a, each.b, each.consequence)
        yield f"| {' | '.join(map(escape_markdown, cells4))} |"
    yield ""
    yield "| one step | A | B | change | |"
    yield "|---|---:|---:|---:|---|"
    for row in build_rows(account):
        change = f"{'+' if row.delta > 0 else ''}{format_duration(row.delta)}"
        note = "within noise" if row.mark else ""
        times = f"{format_duration(row.a)} | {format_duration(row.b)} | {change}"
        yield f"| {escape_markdown(row.label)} | {times} | {note} |"
    total = f"{'+' if account.delta > 0 else ''}{format_duration(account.delta)}"
    yield f"| **step** | {format_duration(account.a)} | {format_duration(account.b)} | {total} | |"
    if verdict.causes and not comparison.is_same_recording:
        yield ""
        yield "Largest causes:"
        yield ""
        for cause in verdict.causes:
            yield f"- {escape_markdown(describe_cause(cause))}"
    yield ""
    words = ["torchprof-tui", "diff", options.a, options.b]
    for name in ("steps", "range", "rank"):
        value = getattr(options, name)
        words += [f"--{name}", value] if value is not None else []
    yield f"    {clean(shlex.join([*words, '--markdown']))}"
