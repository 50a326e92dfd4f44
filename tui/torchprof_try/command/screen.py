"""The app of `torchprof-tui try` in a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from textual.screen import Screen

from torchprof_try.command import INTERRUPTED_STATUS, TryOptions
from torchprof_try.trials import Trials
from torchprof_try.ui.try_screen import TryScreen
from torchprof_tui import app as app_module
from torchprof_tui.app import TorchprofApp
from torchprof_tui.commands.open.main import set_color_environment
from torchprof_tui.trace.core.errors import TraceError


class TryApp(TorchprofApp):
    """An app whose lowest screen tries remedies. `options`: of `TorchprofApp`."""

    CSS_PATH = [str(Path(app_module.__file__).parent / path) for path in TorchprofApp.CSS_PATH]
    kept_screens = 3

    def __init__(self, screen: TryScreen, **options: Any) -> None:
        super().__init__(**options)
        self._try_screen = screen

    def _create_first_screen(self) -> Screen[Any]:
        self.lanes_ready.set()
        return self._try_screen


def open_screen(options: TryOptions, trials: Trials) -> int:
    """Try all on a screen, until the user leaves it. Returns the exit status. Raises TraceError."""
    set_color_environment(options.color)
    screen = TryScreen(trials)
    app = TryApp(screen, theme=options.theme, debug=options.debug, configuration=options.configuration)
    try:
        app.run(mouse=not options.no_mouse)
    finally:
        screen.close_trials()
    if screen.problem:
        raise TraceError(screen.problem)
    return app.return_code or (0 if trials.is_complete else INTERRUPTED_STATUS)
