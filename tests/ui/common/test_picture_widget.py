"""Test pictures on a terminal that draws them: what is sent, where its cells are, and that nothing stays behind."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.long_run import keep_some
from tests.helpers.picture_terminal import CELL, PictureTerminal, read_png
from tests.ui.common.test_terminal_driver import SHELL_SCRIPT
from torchprof_tui.program.terminal_graphics import PLACEHOLDER
from torchprof_tui.ui.lanes.bar_painter import LEVELS

pytest.importorskip("resvg_py")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs a pty")

COMMAND = (sys.executable, "-m", "torchprof_tui", "sample:matmul_add_64_cold_eager", "--no-cache")
WITH_MEMORY = (*COMMAND[:3], "sample:train_gpt_stack_memory", "--no-cache")
KITTY = "kitty(0.35.2)"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("TMUX", "STY", "ZELLIJ", "NO_COLOR", "TERM_PROGRAM", "TORCHPROF_TUI_PICTURES"):
        monkeypatch.delenv(name, raising=False)


def find_box(cells: dict[tuple[int, int], tuple[int, int]]) -> tuple[int, int]:
    """Return (line, column) of a picture's first cell; all others must lie beside and below it."""
    line, column = cells[0, 0]
    assert all(place == (line + row, column + part) for (row, part), place in cells.items())
    return line, column


def check_sizes(terminal: PictureTerminal) -> None:
    """Check that each picture is as large as its cells, and is no empty picture."""
    for number in terminal.find_cells():
        sent = terminal.pictures[number]
        pixels = read_png(sent.png)
        assert pixels.shape == (sent.rows * CELL[1], sent.columns * CELL[0], 4)
        assert 0 < np.count_nonzero(pixels[..., 3]) < pixels.shape[0] * pixels.shape[1]  # transparent elsewhere


def overview_line(terminal: PictureTerminal) -> int:
    return next(number for number, line in enumerate(terminal.screen.display) if "% shown" in line)


def measure_gutter(terminal: PictureTerminal, line: int) -> int:
    return terminal.screen.display[line].index("│") + 1


@pytest.mark.parametrize(("reports_pixels", "colors"), keep_some([(True, "truecolor"), (False, "")], 1))
def test_the_overview_and_the_memory_curve_are_pictures(reports_pixels: bool, colors: str) -> None:
    """With true colours and with 256; where the size of a cell is known from the system, and from the terminal."""
    options = {"reports_pixels": reports_pixels, "COLORTERM": colors}
    with PictureTerminal(WITH_MEMORY, name=KITTY, columns=90, lines=30, **options) as terminal:
        terminal.wait_for("% shown", "stream 7")
        gutter = measure_gutter(terminal, overview_line(terminal))
        terminal.wait_for_pictures(90 - gutter)
        (cells,) = terminal.find_cells().values()
        assert find_box(cells) == (overview_line(terminal), gutter)
        check_sizes(terminal)
        terminal.send("M")
        terminal.wait_for("alive at the cursor")
        (peak,) = (number for number, line in enumerate(terminal.screen.display) if "▼ peak" in line)
        gutter = measure_gutter(terminal, peak + 1)
        rows = next(n for n, line in enumerate(terminal.screen.display) if "0 B │" in line) - peak
        terminal.wait_for_pictures((90 - gutter - 1) * rows)  # without the column of the cursor
        (cells,) = terminal.find_cells().values()
        assert find_box(cells) == (peak + 1, gutter)
        cursor = terminal.screen.display[peak].index("▼")
        assert {terminal.screen.buffer[peak + 1 + row][cursor].data for row in range(rows)} == {"│"}
        check_sizes(terminal)
        terminal.send("qq")
        assert terminal.wait_for_end() == 0
        assert not terminal.pictures
        assert terminal.was_deleted == terminal.was_sent == 2


@pytest.mark.long
def test_pictures_follow_resizing_and_screens_above() -> None:
    with PictureTerminal(COMMAND, name=KITTY, columns=90, lines=30) as terminal:
        terminal.wait_for("% shown", "stream 7")
        gutter = measure_gutter(terminal, overview_line(terminal))
        terminal.wait_for_pictures(90 - gutter)
        terminal.send("?")
        terminal.wait_for("zoom in at the cursor")
        terminal.wait_for_pictures()
        terminal.send("\x1b")
        terminal.wait_for_pictures(90 - gutter)
        terminal.send("ww")  # the brackets around the visible part are characters
        terminal.wait_for_pictures(90 - gutter - 2)
        assert terminal.was_sent == 1
        terminal.resize(110, 30)
        terminal.wait_until(lambda: terminal.was_sent == 2)
        gutter = measure_gutter(terminal, overview_line(terminal))
        terminal.wait_for_pictures(110 - gutter - 2)
        assert len(terminal.pictures) == 1
        check_sizes(terminal)
        terminal.send("q")
        assert terminal.wait_for_end() == 0
        assert not terminal.pictures


@pytest.mark.long
def test_a_stopped_program_has_no_pictures() -> None:
    with PictureTerminal(("/bin/sh", "-c", SHELL_SCRIPT, "sh", *COMMAND), name=KITTY, columns=90, lines=30) as terminal:
        terminal.wait_for("% shown", "stream 7")
        gutter = measure_gutter(terminal, overview_line(terminal))
        terminal.wait_for_pictures(90 - gutter)
        terminal.send("\x1a")
        terminal.wait_for("in the shell 1")
        assert not terminal.pictures
        terminal.send("\n")
        terminal.wait_until(lambda: terminal.was_sent == 2)
        terminal.wait_for_pictures(90 - gutter)
        terminal.send("q")
        assert terminal.wait_for_end() == 0
        assert not terminal.pictures


@pytest.mark.long
def test_a_copy_of_the_screen_has_characters(tmp_path: Path) -> None:
    with PictureTerminal(COMMAND, name=KITTY, columns=90, lines=30, folder=tmp_path) as terminal:
        terminal.wait_for("% shown", "stream 7")
        gutter = measure_gutter(terminal, overview_line(terminal))
        terminal.wait_for_pictures(90 - gutter)
        terminal.send(":export\r")
        terminal.wait_for("wrote")
        terminal.wait_for_pictures(90 - gutter)
    (written,) = tmp_path.glob("*.svg")
    text = written.read_text(encoding="utf-8")
    assert PLACEHOLDER not in text
    assert any(level in text for level in LEVELS)


@pytest.mark.long
@pytest.mark.parametrize(("name", "draws"), keep_some([("", True), ("WezTerm 20260331", True), (KITTY, False)], 1))
def test_other_terminals_show_characters(name: str, draws: bool) -> None:
    with PictureTerminal(COMMAND, name=name, draws=draws, columns=90, lines=30) as terminal:
        terminal.wait_for("% shown", "stream 7")
        terminal.send("?")  # typed while answers may come
        terminal.wait_for("zoom in at the cursor")
        terminal.send("\x1b")
        terminal.wait_for("% shown", "stream 7")
        line = terminal.screen.display[overview_line(terminal)]
        assert any(level in line for level in LEVELS)
        assert PLACEHOLDER not in terminal.text
        terminal.send("q")
        assert terminal.wait_for_end() == 0
        asked = [b"\x1b[>q", b"\x1b[16t", b"\x1b[c"] + [b"a=q", b"\x1b[c"] * (not draws)
        assert (terminal.queries, terminal.was_sent) == (asked, 0)


@pytest.mark.long
def test_the_option_turns_pictures_off() -> None:
    with PictureTerminal((*COMMAND, "--pictures", "blocks"), name=KITTY, columns=90, lines=30) as terminal:
        terminal.wait_for("% shown", "stream 7")
        terminal.send("q")
        assert terminal.wait_for_end() == 0
        assert (terminal.queries, terminal.was_sent) == ([], 0)
