"""Open the diff screen: `torchprof-tui diff A B --screen`."""

from __future__ import annotations

import argparse

from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.diff.sides import parse_ranks, parse_selections
from torchprof_tui.commands.open import main as open_command
from torchprof_tui.commands.open.arguments import add_arguments
from torchprof_tui.program.config_file import apply_configuration
from torchprof_tui.ui.common.comparison_request import ComparisonRequest


def open_screen(options: argparse.Namespace) -> int:
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
        captures=tuple(options.capture),
    )
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    configuration = getattr(options, "configuration", None)
    if configuration is not None:
        apply_configuration(configuration, parser)
    app_options = parser.parse_args([*(["--no-cache"] if options.no_cache else []), "--", options.a])
    app_options.capture = options.capture
    app_options.debug, app_options.configuration = options.debug, configuration
    return open_command.run(app_options, request)
