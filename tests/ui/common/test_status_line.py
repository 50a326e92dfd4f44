"""The last line of a screen: messages, the state, and the hints that fit."""

from __future__ import annotations

import pytest

from torchprof_tui.ui.common.event_styles import ColorSupport, ThemeColors, build_palette
from torchprof_tui.ui.common.keys import LANES_HINTS, MEMORY_HINT
from torchprof_tui.ui.common.status_line import StatusLine

STATE = "1,234 of 5,678 rows by shape · the marked range · Self CPU time total: 123.456ms · Self GPU time total: 1.234s"


def line_of_hints() -> StatusLine:
    line = StatusLine()
    line.palette = build_palette(ThemeColors(), ColorSupport.MANY)
    line.show_keys(LANES_HINTS)
    return line


@pytest.mark.parametrize("width", range(20, 321, 20))
def test_hints_are_whole_and_the_most_useful_come_first(width: int) -> None:
    text = line_of_hints().paint(0, width).text
    assert len(text) == width
    shown = [f"{key} {label}" for key, label in LANES_HINTS if f"{key} {label}" in text]
    assert "  ".join(shown) == text.strip()
    if width >= 80:
        assert {"? help", "/ search", "t table", "c cheatsheet", "q quit"} <= set(shown)
    assert width < 200 or len(shown) == len(LANES_HINTS)


def test_memory_and_the_comparison_are_offered_at_80_columns() -> None:
    line = StatusLine()
    line.palette = build_palette(ThemeColors(), ColorSupport.MANY)
    line.show_keys([*LANES_HINTS[:4], *MEMORY_HINT, *LANES_HINTS[4:]])
    line.show_state("addmm: 48/96")
    assert "M memory  D compare" in line.paint(0, 80).text


def test_a_state_leaves_room_for_hints_and_a_message_does_not() -> None:
    line = line_of_hints()
    line.show_state(STATE)
    assert "…  ? help  / search  t table" in line.paint(0, 80).text
    assert "? help" not in line.paint(0, 40).text
    line.show_message("M" * 78)
    assert line.paint(0, 80).text == f" {'M' * 78} "
    line.show_message("")
    assert line.paint(0, 80).text.startswith(" 1,234 of")
