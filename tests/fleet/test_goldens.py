"""The fleet screen as text at six sizes, compared with golden files."""

from __future__ import annotations

import pytest

from tests.helpers.explorer_app import settled
from tests.helpers.fleet_app import fleet_screen, make_source, sketch_job
from tests.helpers.golden_files import cases_at_every_size, compare_golden, text_on_screen

pytestmark = pytest.mark.painted

CASES = {
    "fleet": (),
    "fleet-hosts": ("b", "x", "x", "tab", "tab"),
    "fleet-steps": ("x", "tab", "tab", "tab", "right"),
    "fleet-waits": ("x", "x", "x", "tab", "tab", "tab", "tab", "m", "down", "m"),
    "fleet-what-if": ("b", "b", "b", "enter", *["tab"] * 5),
    "fleet-speed": ("shift+tab",),
    "help-fleet": ("question_mark",),
}


@cases_at_every_size("name", CASES)
async def test_screen(name: str, size: tuple[int, int]) -> None:
    async with fleet_screen(make_source(sketch_job(), ("runs/job/cut.json: not a trace",)), size) as (screen, pilot):
        for key in CASES[name]:
            await pilot.press(key)
            await settled(pilot)
        drawn = text_on_screen(screen.app.screen)
    compare_golden(name, size, drawn)
