"""The source screen of a frame that began before the recording: no line of its file is marked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.explorer_app import explorer, settled, until
from tests.helpers.long_run import keep_some
from tests.helpers.trace_builder import TID, cpu, python, step, trace
from torchprof_tui.analysis.dispatch.source_line import SourceLine, SourceLineFinder
from torchprof_tui.ui.source.source_screen import SourceScreen

SOURCE = "".join(f"# {number}\n" for number in range(1, 60)) + "def main():\n    optimizer.step()\n"


@pytest.mark.parametrize(("function", "first"), keep_some([("<module>", "1  # 1"), ("main", "60  def main():")], 1))
@pytest.mark.parametrize("size", [(80, 24), (160, 48)])
async def test_no_line_is_marked_and_the_screen_says_why(
    function: str, first: str, size: tuple[int, int], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(SOURCE)
    opened = python(f"train.py(61): {function}", 0, 100, TID, **{"Python id": 16, "Python parent id": None})
    shown = trace(opened, step(0, 1, 90), cpu("aten::mm", 10, 60))
    line = SourceLineFinder(shown).find_line(2)
    assert isinstance(line, SourceLine)
    async with explorer(shown, size) as (_, pilot):
        pilot.app.push_screen(SourceScreen(line, str(tmp_path / "t.json"), lambda: 0))
        await until(pilot, lambda: isinstance(pilot.app.screen, SourceScreen))
        await settled(pilot)
        text = "\n".join(strip.text for strip in pilot.app.screen._compositor.render_strips())
        assert "▶" not in text
        assert first in text
        assert "line unknown: this frame began before the recording" in text
        assert "no mark: began before the recording" in text
