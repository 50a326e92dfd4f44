"""The app of `torchprof-tui hang SOURCE…` in a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from textual.screen import Screen

from torchprof_hang.analysis.evidence import Evidence
from torchprof_hang.answers import Hang
from torchprof_hang.command import HangOptions
from torchprof_hang.ui.hang_screen import HangScreen
from torchprof_tui import app as app_module
from torchprof_tui.app import TorchprofApp
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.open.main import set_color_environment


class HangApp(TorchprofApp):
    """An app whose lowest screen shows why a job hangs. `options`: of `TorchprofApp`."""

    CSS_PATH = [str(Path(app_module.__file__).parent / path) for path in TorchprofApp.CSS_PATH]
    kept_screens = 3

    def __init__(self, evidence: Evidence, hang: Hang, **options: Any) -> None:
        super().__init__(**options)
        self._evidence, self._hang = evidence, hang

    def _create_first_screen(self) -> Screen[Any]:
        self.lanes_ready.set()
        return HangScreen(self._evidence, self._hang)


def open_screen(options: HangOptions, evidence: Evidence, hang: Hang) -> int:
    """Show the cause of a hang."""
    set_color_environment(options.color)
    app = HangApp(evidence, hang, theme=options.theme, debug=options.debug, configuration=options.configuration)
    app.run(mouse=not options.no_mouse)
    if app.failure:
        raise UsageError(app.failure)
    return app.return_code or 0
