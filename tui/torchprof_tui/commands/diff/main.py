"""Compare two recordings: `torchprof-tui diff A B`."""

from __future__ import annotations

import argparse
import sys

from msgspec import UNSET

from torchprof_tui.analysis.compare.comparison import Comparison
from torchprof_tui.answers.diff import build_diff
from torchprof_tui.commands.common.arguments import choose_undecided_status, reject_undecided_alone
from torchprof_tui.commands.common.output import print_answer
from torchprof_tui.commands.diff.markdown import format_report
from torchprof_tui.commands.diff.screen import open_screen
from torchprof_tui.commands.diff.sides import load_comparison
from torchprof_tui.commands.diff.text import format_comparison
from torchprof_tui.commands.diff.time_limit import TimeLimit, parse_time_limit


def run(options: argparse.Namespace) -> int:
    """Print what changed from A to B; the exit status is 1 if `--fail-on` fired, 3 if that is unknown."""
    reject_undecided_alone(options)
    if options.screen:
        return open_screen(options)
    limit = None if options.fail_on is None else parse_time_limit(options.fail_on)
    comparison = load_comparison(options)
    if options.json:
        failed = UNSET if limit is None else limit.is_exceeded(comparison.account)
        print_answer(build_diff(comparison, options.by, failed))
    elif options.markdown:
        print("\n".join(format_report(comparison, options)))
    else:
        print("\n".join(format_comparison(comparison, options.by)))
    return report_limit(comparison, limit, options.undecided)


def report_limit(comparison: Comparison, limit: TimeLimit | None, undecided: str | None) -> int:
    """Return the exit status of `--fail-on`: 1 if it fired, that of `--undecided` if that is unknown. Report why."""
    is_exceeded = False if limit is None else limit.is_exceeded(comparison.account)
    if is_exceeded is None:
        print("torchprof-tui: --fail-on: cannot be told: a side has one step, so no noise is known", file=sys.stderr)
        return choose_undecided_status(undecided)
    return int(is_exceeded is True)
