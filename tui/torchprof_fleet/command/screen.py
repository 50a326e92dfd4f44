"""Open the fleet screen: `torchprof-tui fleet SOURCE…` in a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from multiprocessing import resource_tracker

from torchprof_fleet.analysis.members import LeftOut
from torchprof_fleet.analysis.rank_sketch import RankSketch
from torchprof_fleet.command.fleet_app import FleetApp
from torchprof_fleet.command.options import FleetOptions
from torchprof_fleet.command.sketching import SketchMany, sketch_all
from torchprof_fleet.ui.fleet_worker import FleetSource
from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.open.main import set_color_environment
from torchprof_tui.trace.sources.ssh_connections import SshConnections
from torchprof_tui.trace.specs.address import ListedTrace


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
        return (*lost, *sketch_all(traces, sketch_many, not options.no_cache, report, is_cancelled).lost)

    set_color_environment(options.color)
    resource_tracker.ensure_running()  # it inherits stderr, which has no file descriptor while the app runs
    app = FleetApp(
        FleetSource(" ".join(options.source), len(traces), sketch),
        theme=options.theme,
        cache=not options.no_cache,
        debug=options.debug,
        connections=connections,
        configuration=options.configuration,
    )
    app.run(mouse=not options.no_mouse)
    if app.failure:
        raise UsageError(app.failure)
    return app.return_code or 0
