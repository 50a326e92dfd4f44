"""Compare two recordings: `torchprof-tui diff A B`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

from msgspec import UNSET

from torchprof_tui.analysis.compare.account import Account
from torchprof_tui.analysis.compare.comparison import Comparison
from torchprof_tui.analysis.compare.side_choice import RankNumbers, compare_runs, select_ranks
from torchprof_tui.analysis.compare.step_selection import (
    ComparisonError,
    Selections,
    StepSelection,
    parse_step_numbers,
    split_sides,
)
from torchprof_tui.answers.diff import build_diff
from torchprof_tui.answers.pictures.waterfall import draw_waterfall
from torchprof_tui.commands.common import terminal
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.load import load_specs, use_captures
from torchprof_tui.commands.common.options import choose_undecided_status, parse_time_range
from torchprof_tui.commands.common.output import print_answer
from torchprof_tui.commands.common.picture_file import check_picture, write_picture
from torchprof_tui.commands.diff import DiffOptions
from torchprof_tui.commands.diff.text import format_comparison, format_report
from torchprof_tui.commands.open import OpenOptions
from torchprof_tui.commands.open import main as open_command
from torchprof_tui.program.config_file import find_appearance
from torchprof_tui.program.terminal_progress import show_work
from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import parse_time
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.comparison_request import ComparisonRequest


def run(options: DiffOptions) -> int:
    """Print what changed from A to B; the exit status is 1 if `--fail-on` fired, 3 if that is unknown."""
    if options.screen:
        return open_screen(options)
    limit = None if options.fail_on is None else parse_time_limit(options.fail_on)
    picture = None if options.output is None else check_picture(options.output)
    comparison = load_comparison(options)
    with show_work("comparing"):
        account = comparison.account
    if picture is not None:
        write_picture(picture, draw_waterfall(comparison))
    if options.json:
        failed = UNSET if limit is None else limit.is_exceeded(account)
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
    if options.output is not None:
        raise UsageError("-o: leave --screen out; on the screen, :export draws the waterfall")
    problem = terminal.find_terminal_problem()
    if problem:
        raise UsageError(f"--screen: {problem}; leave it out for the comparison as text")
    request = ComparisonRequest(
        "" if options.b == options.a else options.b,
        parse_selections(options),
        parse_ranks(options.rank),
        captures=options.capture,
    )
    shared = {name: getattr(options, name) for name in ("capture", "no_cache", "debug", "configuration")}
    appearance = {} if options.configuration is None else find_appearance(options.configuration)
    return open_command.run(OpenOptions(trace=(options.a,), **shared, **appearance), request)


_PERCENT = re.compile(r"\+?(\d+(?:\.\d*)?|\.\d+)\s*%")


@record
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


def load_comparison(options: DiffOptions, load: Callable[[str], Trace] | None = None) -> Comparison:
    """Load both sides, by `load` in place of the command's own way. Raises UsageError, TraceError."""
    selections = parse_selections(options)
    numbers = parse_ranks(options.rank)
    load = load or (lambda spec: load_specs([spec], cache=not options.no_cache).trace)
    a = _load(options.a, "A", load)
    b = a if options.b == options.a else _load(options.b, "B", load)
    chosen = select_ranks(a, b, numbers, "--rank")
    traces = [use_captures(trace, options.capture, not options.no_cache) for trace in chosen]
    return compare_runs((a, b), (options.a, options.b), traces, numbers, selections)


def _load(spec: str, name: str, load: Callable[[str], Trace]) -> Trace:
    try:
        return load(spec)
    except TraceError as error:
        raise TraceError(f"{name}: {error}") from error


def parse_selections(options: DiffOptions) -> Selections:
    """Parse --steps and --range. Raises UsageError."""
    if options.steps is not None:
        try:
            a, b = map(parse_step_numbers, split_sides(options.steps))
        except ComparisonError as error:
            raise UsageError(f"--steps {options.steps}: {error}") from error
        return StepSelection(numbers=a), StepSelection(numbers=b)
    if options.range is not None:
        times = [parse_time_range(part.replace("..", ":", 1)) for part in split_sides(options.range)]
        return StepSelection(time_range=times[0]), StepSelection(time_range=times[1])
    return StepSelection(), StepSelection()


def parse_ranks(text: str | None) -> RankNumbers:
    """Parse --rank. Raises UsageError."""
    if text is None:
        return None, None
    try:
        a, b = (int(part) for part in split_sides(text))
    except ValueError:
        raise UsageError(f"--rank {text}: ranks are numbers, 0 or 0/3") from None
    return a, b
