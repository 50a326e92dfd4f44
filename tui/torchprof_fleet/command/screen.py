"""The app of `torchprof-tui fleet SOURCE…` in a terminal: the fleet screen, above it the explorer of opened ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from torchprof_fleet.analysis.fleet import LeftOut
from torchprof_fleet.analysis.rank_sketch import RankSketch
from torchprof_fleet.command import FleetOptions
from torchprof_fleet.command.sketching import SketchMany, sketch_all
from torchprof_fleet.ui.fleet_screen import FleetScreen
from torchprof_fleet.ui.fleet_worker import FleetSource
from torchprof_tui.app import ListApp
from torchprof_tui.commands.common.terminal import run_app
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.sources.ssh_connections import SshConnections
from torchprof_tui.trace.specs.address import ListedTrace


class FleetApp(ListApp):
    """An app whose lowest screen compares the ranks of a job."""

    def __init__(self, source: FleetSource, **options: Any) -> None:
        super().__init__(FleetScreen(source), **options)

    def on_fleet_screen_ranks_asked(self, message: FleetScreen.RanksAsked) -> None:
        """Open ranks at a step, above the fleet screen."""
        self._start_position = f"step{message.step}" if message.step >= 0 else None
        names = ", ".join(Path(spec).name for spec in message.specs[:3])
        self.say(clean(f"opening {names}{', …' if len(message.specs) > 3 else ''}"))
        self._open(*message.specs)


def open_screen(
    options: FleetOptions,
    traces: Sequence[ListedTrace],
    lost: Sequence[LeftOut],
    sketch_many: SketchMany,
    connections: SshConnections,
) -> int:
    """Show the fleet of these traces while they are sketched. `lost`: the names without a trace."""

    def sketch(
        report: Callable[[RankSketch | None, int, int], None], is_cancelled: Callable[[], bool]
    ) -> tuple[LeftOut, ...]:
        return sketch_all(traces, sketch_many, not options.no_cache, report, is_cancelled, lost).lost

    resource_tracker.ensure_running()  # it inherits stderr, which has no file descriptor while the app runs
    app = FleetApp(
        FleetSource(" ".join(options.source), len(traces), sketch),
        theme=options.theme,
        cache=not options.no_cache,
        debug=options.debug,
        connections=connections,
        configuration=options.configuration,
    )
    return run_app(app, options)
