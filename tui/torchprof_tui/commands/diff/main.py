"""Compare two recordings: `torchprof-tui diff A B`."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

from msgspec import UNSET

from torchprof_tui.analysis.compare.account import Account
from torchprof_tui.analysis.compare.comparison import Comparison
from torchprof_tui.answers.diff import build_diff
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.options import choose_undecided_status
from torchprof_tui.commands.common.output import print_answer
from torchprof_tui.commands.diff.markdown import format_report
from torchprof_tui.commands.diff.options import DiffOptions
from torchprof_tui.commands.diff.sides import load_comparison, parse_ranks, parse_selections
from torchprof_tui.commands.diff.text import format_comparison
from torchprof_tui.commands.open import main as open_command
from torchprof_tui.commands.open.options import OpenOptions
from torchprof_tui.program.config_file import find_appearance
from torchprof_tui.trace.core.time_format import parse_time
from torchprof_tui.ui.common.comparison_request import ComparisonRequest


def run(options: DiffOptions) -> int:
    """Print what changed from A to B; the exit status is 1 if `--fail-on` fired, 3 if that is unknown."""
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


def open_screen(options: DiffOptions) -> int:
    """Open A in the app, then compare it with B there. Raises UsageError."""
    if options.fail_on is not None:
        raise UsageError("--fail-on: the screen has no exit status to fail with; leave --screen out")
    problem = open_command.find_terminal_problem()
    if problem:
        raise UsageError(f"--screen: {problem}; leave it out for the comparison as text")
    request = ComparisonRequest(
        "" if options.b == options.a else options.b,
        parse_selections(options),
        parse_ranks(options.rank),
        captures=options.capture,
    )
    configuration = options.configuration
    app_options = OpenOptions(
        trace=(options.a,),
        capture=options.capture,
        no_cache=options.no_cache,
        debug=options.debug,
        configuration=configuration,
        **({} if configuration is None else find_appearance(configuration)),
    )
    return open_command.run(app_options, request)


_PERCENT = re.compile(r"\+?(\d+(?:\.\d*)?|\.\d+)\s*%")


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """How much longer a step of B may take: a share of a step of A, or ns."""

    share: float | None
    time: int

    def is_exceeded(self, account: Account) -> bool | None:
        """Return whether B is slower by more than the limit beyond the noise; None where that cannot be told."""
        beyond = account.delta_beyond_noise
        limit = self.time if self.share is None else self.share * account.a
        if beyond is None:
            return False if account.delta <= limit else None
        return beyond > limit


def parse_time_limit(text: str) -> TimeLimit:
    """Parse "+5%", "5 %" or "+200us". Raises UsageError."""
    match = _PERCENT.fullmatch(text.strip())
    if match is not None:
        return TimeLimit(float(match[1]) / 100, 0)
    try:
        time = parse_time(text)
    except ValueError:
        time = -1
    if time < 0 or not re.search(r"[a-zµμ]", text.lower()):
        raise UsageError(f"--fail-on {text}: how much longer a step may take is written +5% or +200us")
    return TimeLimit(None, time)
