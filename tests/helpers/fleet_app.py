"""Helpers of the fleet screen's tests: the sketches of a small job with known faults, and an app around them."""

from __future__ import annotations

import dataclasses
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

from textual.pilot import Pilot

from tests.helpers.explorer_app import settled, until
from tests.helpers.fleet_runs import Faults, write_fleet
from tests.helpers.paths import SAMPLES
from torchprof_fleet.analysis.fleet import LeftOut
from torchprof_fleet.analysis.rank_sketch import RankSketch
from torchprof_fleet.analysis.sketch_trace import sketch_trace
from torchprof_fleet.ui.fleet_screen import FleetScreen
from torchprof_fleet.ui.fleet_worker import FleetSource
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.ui.common.ordered_keys import HelpApp, OrderedKeysApp

BASE = SAMPLES / "train_gpt_2ranks" / "rank0.pt.trace.json.gz"
FAULTS = Faults(slow_gpus={2: 1.3}, slow_hosts={3: 1.4}, late_ranks={4: 9000.0}, stalls={(1, 3): 26000.0})


@cache
def sketch_job() -> tuple[RankSketch, ...]:
    """Sketch 8 ranks on 4 hosts, of 8 steps; ranks 0 to 3 are pipeline stage 0."""
    with tempfile.TemporaryDirectory() as folder:
        paths = write_fleet(BASE, Path(folder), 8, 2, FAULTS, repeats=4)
        sketches = [sketch_trace(load_trace(str(path), cache=False)) for path in paths]
    return tuple(
        dataclasses.replace(
            sketch,
            file=f"runs/job/{Path(sketch.file).name}",
            groups=(("default_pg", rank, 8), ("mesh_pp", rank // 4, 2), ("mesh_dp", rank % 4, 4)),
        )
        for rank, sketch in enumerate(sketches)
    )


def make_source(
    sketches: Sequence[RankSketch], lost: Sequence[str] = (), gate: threading.Event | None = None
) -> FleetSource:
    """Make a source of sketches, and lines about files that were lost.

    With a `gate` those after the first half come once it is set, or are cancelled.
    """

    left_out = tuple(LeftOut(*line.split(": ", 1)) for line in lost)

    def sketch(
        report: Callable[[RankSketch | None, int, int], None], is_cancelled: Callable[[], bool]
    ) -> tuple[LeftOut, ...]:
        for done, each in enumerate(sketches):
            while gate is not None and done * 2 >= len(sketches) and not gate.wait(0.01):
                if is_cancelled():
                    return left_out
            report(each, done + 1, len(sketches))
        return left_out

    return FleetSource("runs/job", len(sketches), sketch)


class FleetScreenApp(OrderedKeysApp, HelpApp):
    def __init__(self, source: FleetSource) -> None:
        super().__init__()
        self.source, self.copied = source, ""
        self.asked: list[FleetScreen.RanksAsked] = []

    def on_mount(self) -> None:
        self.push_screen(FleetScreen(self.source))

    def on_fleet_screen_ranks_asked(self, message: FleetScreen.RanksAsked) -> None:
        self.asked.append(message)

    def copy_to_clipboard(self, text: str) -> None:
        self.copied = text


@asynccontextmanager
async def fleet_screen(
    source: FleetSource, size: tuple[int, int] = (120, 40), is_complete: bool = True
) -> AsyncIterator[tuple[FleetScreen, Pilot[None]]]:
    """Run the app around a source; yield the screen, once all is read if `is_complete`, and the pilot."""
    app = FleetScreenApp(source)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, FleetScreen)
        if is_complete:
            await until(pilot, lambda: not screen.is_reading)
        await settled(pilot)
        yield screen, pilot
