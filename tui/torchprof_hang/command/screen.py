"""The app of `torchprof-tui hang SOURCE…` in a terminal."""

from __future__ import annotations

from torchprof_hang.analysis.evidence import Evidence
from torchprof_hang.answers import Hang
from torchprof_hang.command import HangOptions
from torchprof_hang.ui.hang_screen import HangScreen
from torchprof_tui.app import ListApp
from torchprof_tui.commands.common.terminal import run_app


def open_screen(options: HangOptions, evidence: Evidence, hang: Hang) -> int:
    """Show the cause of a hang."""
    app = ListApp(
        HangScreen(evidence, hang), theme=options.theme, debug=options.debug, configuration=options.configuration
    )
    return run_app(app, options)
