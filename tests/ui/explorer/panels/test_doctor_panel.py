"""The trace doctor's panel (`!`) and its cursor; the status line for a file that lost data."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from tests.helpers.explorer_app import explorer, settled, text_of, until
from tests.helpers.trace_builder import cpu, trace
from torchprof_tui.trace.build.build_trace import build_trace
from torchprof_tui.trace.decode.general_decoder import decode_trace
from torchprof_tui.trace.sources.source import Source
from torchprof_tui.ui.common.status_line import StatusLine


async def test_the_arrows_walk_the_remarks_and_enter_goes_to_the_event() -> None:
    shown = trace(cpu("a", 0, 50), cpu("\x1b[2Jcrosses", 40, 50))
    async with explorer(shown, (100, 40)) as (screen, pilot):
        await pilot.press(":", *"doctor", "enter")
        await settled(pilot)
        text = text_of(screen)
        assert "[doctor ↑↓]" in text
        assert "0 lost · 0 repaired · 1 odd · 5 not recorded" in text
        assert "▶ overlap" in text
        assert "crosses at 40.000 µs" in text
        assert "\x1b" not in text
        await pilot.press("enter")
        assert screen.view_state.selected == 1
        await pilot.press("down")
        await settled(pilot)
        assert "▶ GPU work" in text_of(screen)
        await pilot.press(*["down"] * 9)
        assert "the last row of the trace doctor" in screen.query_one(StatusLine).message
        await pilot.press(":", *"doctor", "enter")
        assert not screen.details_open


@pytest.mark.long
async def test_what_needs_stacks_names_the_key_that_records_them() -> None:
    async with explorer(trace(cpu("a", 0, 50)), (140, 40)) as (screen, pilot):
        await pilot.press(":", *"doctor", "enter")
        await settled(pilot)
        for _ in range(6):
            if "▶ stack" in text_of(screen):
                break
            await pilot.press("down")
            await settled(pilot)
        assert "r: record again with stacks (--with-stack)" in text_of(screen)


async def test_a_healthy_trace_gets_one_sentence() -> None:
    shown = trace(cpu("a", 0, 50), format="chrome")
    async with explorer(shown) as (screen, pilot):
        await pilot.press(":", *"doctor", "enter")
        await settled(pilot)
        assert "No problems: nothing was lost or repaired, and nothing is unusual." in text_of(screen)


async def test_what_was_lost_is_said_until_something_else_is(tmp_path: Path) -> None:
    text = b'{"traceEvents": [{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 2}, {"ph": "X", "na'
    shown = build_trace(decode_trace(Source("cut", io.BytesIO(text)), tmp_path), "cut")
    async with explorer(shown) as (screen, pilot):
        status = screen.query_one(StatusLine)
        await until(pilot, lambda: status.message.startswith("not all of this file could be read: cut short"))
        await pilot.press("}")
        assert "not all" not in status.message
