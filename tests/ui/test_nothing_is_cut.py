"""At six terminal sizes no text on a screen is cut off without a mark, and no panel is empty.

All text is laid out by `build_strip`, which cuts what is too long for its line. A text that ends with `…`, or a
separate mark for what is off screen, was shortened on purpose before it came there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import pytest
from rich.cells import cell_len
from rich.style import Style
from textual.strip import Strip

from tests.helpers.explorer_app import explorer, settled
from tests.helpers.paths import SAMPLES
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.ui.common import painted_widget
from torchprof_tui.ui.common.painted_widget import TextRun

SIZES = [(80, 24), (100, 30), (120, 40), (160, 48), (240, 60), (320, 90)]

FILLERS = set(" ─━═│┬┴├┤▁▂▃▄▅▆▇█░▒▓")
"""Rules, bars and blanks: a line of them goes on to the edge."""


@pytest.fixture
def cut_texts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Collect the texts that were cut while a line was built."""
    cut: list[str] = []
    build = painted_widget.build_strip

    def build_and_check(runs: Sequence[TextRun], width: int, blank: Style) -> Strip:
        room = width
        for text, _ in runs:
            size = cell_len(text)
            lost = text[max(room, 0) :] if size > room else ""
            if set(lost) - FILLERS:
                cut.append("".join(text for text, _ in runs))
                break
            room -= size
        return build(runs, width, blank)

    for name, module in list(sys.modules.items()):
        if name.startswith("torchprof_tui.") and getattr(module, "build_strip", None) is build:
            monkeypatch.setattr(module, "build_strip", build_and_check)
    yield cut


STATES = {
    "opened": (),
    "kernel": ("/", *"nvjet", "enter", "k"),
    "details": ("/", *"nvjet", "enter"),
    "chain": ("/", *"nvjet", "enter", "l"),
    "cheatsheet": ("c", "down", "down"),
    "range": ("m", "d", "d", "m"),
    "doctor": ("!",),
    "panels only": ("z", "z"),
    "table": ("t",),
    "tree": ("T",),
    "help": ("?",),
}


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("sample", ["train_gpt_stack_memory", "matmul_add_4096_warm_eager"])
async def test_no_text_is_cut_without_a_mark(sample: str, size: tuple[int, int], cut_texts: list[str]) -> None:
    path = SAMPLES / f"{sample}.pt.trace.json.gz"
    found: dict[str, list[str]] = {}
    async with explorer(load_trace(str(path), cache=False), size) as (screen, pilot):
        await settled(pilot)
        for state, keys in STATES.items():
            cut_texts.clear()
            for key in keys:
                await pilot.press("slash" if key == "/" else "question_mark" if key == "?" else key)
            await settled(pilot)
            if cut_texts:
                found[state] = sorted(set(cut_texts))[:3]
            panel = screen._dock.active_panel
            if screen.app.screen is screen:
                assert any(text.strip() for line in panel.content(panel.size.width - 2) for text, _ in line), state
            while screen.app.screen is not screen:
                await pilot.press("escape")
                await pilot.pause()
            for _ in range(4):
                await pilot.press("escape")
            await pilot.press("0")
    assert not found
