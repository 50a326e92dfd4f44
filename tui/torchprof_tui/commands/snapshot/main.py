"""Write the app's screen as SVG, PNG or text after some keys: `torchprof-tui snapshot`."""

from __future__ import annotations

import asyncio
import re
import sys
from typing import TYPE_CHECKING

from rich.color import ColorSystem

from torchprof_tui.commands.common.errors import UsageError
from torchprof_tui.commands.common.picture_file import SUFFIXES, check_picture, write_picture
from torchprof_tui.commands.open.main import name_captures
from torchprof_tui.commands.snapshot import SnapshotOptions
from torchprof_tui.trace.loading.resolve import resolve_specs
from torchprof_tui.trace.sources.ssh_connections import SshConnections
from torchprof_tui.ui.common.screen_picture import draw_screen

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from torchprof_tui.app import TorchprofApp
    from torchprof_tui.trace.loading.opener import TraceOpener

SETTLE_SECONDS = 0.1  # wait for debounced panels after the last key

SIZE_PATTERN = re.compile(r"(\d{1,3})x(\d{1,3})")


def run(options: SnapshotOptions) -> int:
    size = SIZE_PATTERN.fullmatch(options.size)
    if size is None:
        raise UsageError(f"--size: {options.size!r} is not a size such as 160x48")
    if "-" in options.trace:
        raise UsageError("-: a snapshot needs a file")
    output = check_picture(options.output, (*SUFFIXES, ".txt"))
    keys = [key for key in options.keys.split(",") if key]
    for key in keys:
        if not is_key(key):
            raise UsageError(f"--keys: unknown key {key!r}; use letters or names such as right, enter, space")
    with SshConnections() as connections:
        opening = None
        if options.trace:
            opening = resolve_specs(options.trace).create_opener(not options.no_cache, connections=connections)
            name_captures(opening, options.capture)
            opening.start()
            if sys.stderr.isatty():
                opening.wait_until_connected()
        cells = (int(size[1]), int(size[2]))
        picture = asyncio.run(_take_snapshot(options, opening, cells, keys, output.suffix != ".txt"))
    write_picture(output, picture)
    return 0


def is_key(key: str) -> bool:
    """Return whether Textual knows a key name, with or without modifiers: `w`, `right`, `ctrl+p`, `full_stop`."""
    from textual.keys import KEY_NAME_REPLACEMENTS, Keys, key_to_character

    name = key.rpartition("+")[2]
    named = {*Keys, *KEY_NAME_REPLACEMENTS.values()}
    return len(name) == 1 or name in named or key_to_character(name) is not None


async def _wait_for_screen(app: TorchprofApp, pilot: Pilot[None]) -> None:
    """Wait until no worker runs: one that ends may open a screen with workers of its own, as a comparison does."""
    while True:
        await pilot.pause(SETTLE_SECONDS)
        screen = app.screen
        await app.workers.wait_for_complete()
        await pilot.pause()
        if app.screen is screen and all(worker.is_finished for worker in app.workers):
            return


async def _take_snapshot(
    options: SnapshotOptions, opening: TraceOpener | None, size: tuple[int, int], keys: list[str], svg: bool
) -> str:
    from torchprof_tui.app import TorchprofApp

    app = TorchprofApp(opening, theme=options.theme, cache=not options.no_cache)
    app.console._color_system = ColorSystem.TRUECOLOR  # independent of the calling terminal
    try:
        async with app.run_test(size=size) as pilot:
            if opening is not None:
                await app.lanes_ready.wait()
            if app.failure is None:
                await pilot.pause()
                await pilot.press(*keys)
                await _wait_for_screen(app, pilot)
                if svg:
                    return draw_screen(app)
                # without colours and trailing blanks
                return "".join(f"{strip.text.rstrip()}\n" for strip in app.screen._compositor.render_strips())
    finally:
        if opening is not None:
            opening.cancel()
    raise UsageError(app.failure)
