"""The app of `torchprof-tui try` in a terminal."""

from __future__ import annotations

from torchprof_try.command import INTERRUPTED_STATUS, TryOptions
from torchprof_try.trials import Trials
from torchprof_try.ui.try_screen import TryScreen
from torchprof_tui.app import ListApp
from torchprof_tui.commands.common.terminal import run_app
from torchprof_tui.trace.core.errors import TraceError


def open_screen(options: TryOptions, trials: Trials) -> int:
    """Try all on a screen, until the user leaves it. Returns the exit status. Raises TraceError."""
    screen = TryScreen(trials)
    app = ListApp(screen, theme=options.theme, debug=options.debug, configuration=options.configuration)
    try:
        status = run_app(app, options)
    finally:
        screen.close_trials()
    if screen.problem:
        raise TraceError(screen.problem)
    return status or (0 if trials.is_complete else INTERRUPTED_STATUS)
