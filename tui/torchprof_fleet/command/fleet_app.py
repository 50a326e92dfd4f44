"""The app of `torchprof-tui fleet`: the fleet screen below, the explorer above it for the ranks that are opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from textual.screen import Screen

from torchprof_fleet.ui.fleet_screen import FleetScreen
from torchprof_fleet.ui.fleet_worker import FleetSource
from torchprof_tui import app as app_module
from torchprof_tui.app import TorchprofApp
from torchprof_tui.trace.core.printable import clean


class FleetApp(TorchprofApp):
    """An app whose lowest screen compares the ranks of a job. `options`: of `TorchprofApp`."""

    CSS_PATH = [str(Path(app_module.__file__).parent / path) for path in TorchprofApp.CSS_PATH]
    kept_screens = 3

    def __init__(self, source: FleetSource, **options: Any) -> None:
        super().__init__(**options)
        self._source = source

    def _create_first_screen(self) -> Screen[Any]:
        self.lanes_ready.set()
        return FleetScreen(self._source)

    def on_fleet_screen_ranks_asked(self, message: FleetScreen.RanksAsked) -> None:
        """Open ranks at a step, above the fleet screen."""
        self._start_position = f"step{message.step}" if message.step >= 0 else None
        names = ", ".join(Path(spec).name for spec in message.specs[:3])
        self.say(clean(f"opening {names}{', …' if len(message.specs) > 3 else ''}"))
        self._open(*message.specs)
