"""Rows of the record form for earlier runs: the age, how it ended, and the command."""

from __future__ import annotations

import shlex
import time

from textual.content import Content

from torchprof_tui.runs.history import PastRun
from torchprof_tui.ui.common.name_display import clean, truncate
from torchprof_tui.ui.common.number_format import format_age

MAX_ROW_CELLS = 300
"""Cells of a past run's command; a stored one may have a megabyte."""


AGE_CELLS, OUTCOME_CELLS = 14, 8
"""Cells of "10 minutes ago" and "no trace"; the command is last, because it is the longest and may be cut."""


def format_past_run(run: PastRun) -> Content:
    """Format the row of one run."""
    return Content.assemble(
        "  ",
        (f"{format_age(time.time() - run.started_at):<{AGE_CELLS}}  ", "$text-muted"),
        (f"{_format_short_outcome(run):<{OUTCOME_CELLS}}  ", "$text-muted"),
        truncate(clean(shlex.join(run.request.command)), MAX_ROW_CELLS),
    )


def _format_short_outcome(run: PastRun) -> str:
    """Format how a run ended in a few cells; `format_outcome` says more."""
    result = run.result
    if not result.traces:
        return "no trace"
    if result.exit_status and result.end_reason != "interrupted":
        return f"exit {result.exit_status}"
    return f"{result.seconds:.1f} s"


def format_outcome(run: PastRun) -> str:
    """Format how a run ended: its duration, or what went wrong."""
    result = run.result
    if not result.traces:
        return result.problems[0] if result.problems else "no trace"
    if result.exit_status and result.end_reason != "interrupted":
        return f"failed with {result.exit_status}, trace kept"
    return f"{result.seconds:.1f} s"
