"""Sections of the help: their filter and their layout."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from torchprof_tui.ui.common.event_styles import ColorSupport, ThemeColors, build_palette
from torchprof_tui.ui.common.guides import GUIDES
from torchprof_tui.ui.common.help_screen import (
    HelpEntry,
    HelpSection,
    filter_sections,
    format_sections,
    list_guide_sections,
    list_lane_sections,
    list_word_sections,
)
from torchprof_tui.ui.common.painted_widget import Lines

PALETTE = build_palette(ThemeColors(), ColorSupport.MANY)
KEYS = HelpSection("Keys", (HelpEntry("w s", "zoom in, out"), HelpEntry("f", "fit")), is_keys=True)
WORDS = HelpSection("Words", (HelpEntry("wave", "as many blocks as fit"), HelpEntry("SM", "runs blocks")))


def written(lines: Lines) -> list[str]:
    return ["".join(text for text, _ in runs) for runs in lines]


def labels(sections: list[HelpSection]) -> list[str]:
    return [entry.label for section in sections for entry in section.entries]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("zoom", ["w s"]),
        ("BLOCKS", ["wave", "SM"]),
        ("sm", ["SM"]),
        ("s", ["w s"]),  # one character: a key
        ("fit", ["f", "wave"]),
        ("zzz", []),
    ],
)
def test_filter(query: str, expected: list[str]) -> None:
    assert labels(filter_sections([KEYS, WORDS], query)) == expected


@pytest.mark.parametrize("width", [24, 34, 76, 109, 110, 166])
def test_every_word_is_laid_out_within_the_width(width: int) -> None:
    sections = [*list_guide_sections(GUIDES["kernel"]), *list_lane_sections(), *list_word_sections()]
    lines = written(format_sections(sections, width, PALETTE))
    assert max(map(cell_len, lines)) <= width
    everything = "".join("".join(lines).split())
    for section in sections:
        for entry in section.entries:
            assert "".join(entry.label.split()) in everything, entry
            assert entry.text.split()[0] in everything


def test_two_columns_have_about_the_same_height() -> None:
    sections = list_word_sections()
    one, two = format_sections(sections, 109, PALETTE), format_sections(sections, 166, PALETTE)
    assert len(two) < 0.75 * len(one)
