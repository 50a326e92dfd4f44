"""Format a comparison as Markdown, for a ticket: headline, the account, causes, what is not the same, the command."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from torchprof_tui.analysis.compare.comparison import Comparison, describe_cause, describe_ranks, describe_steps
from torchprof_tui.commands.check.markdown import escape_markdown
from torchprof_tui.commands.diff.options import DiffOptions
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.waterfall import build_rows


def format_report(comparison: Comparison, options: DiffOptions) -> Iterator[str]:
    """Format a report as lines. `options`: of the command line, to repeat it."""
    verdict, account = comparison.verdict, comparison.account
    yield "# What changed from A to B"
    yield ""
    headline = "the same recording: nothing differs" if comparison.is_same_recording else verdict.headline
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
    yield f"    {_format_command(options)}"


def _format_command(options: DiffOptions) -> str:
    words = ["torchprof-tui", "diff", options.a, options.b]
    for name in ("steps", "range", "rank"):
        value = getattr(options, name)
        words += [f"--{name}", value] if value is not None else []
    return clean(shlex.join([*words, "--markdown"]))
