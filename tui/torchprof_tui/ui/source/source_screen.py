"""Screen above the lanes: the source around the line of a chain or a problem, with the panel below left visible."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.geometry import Size
from textual.strip import Strip

from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.sources.program_file import ProgramFile, ProgramFileReader
from torchprof_tui.ui.common import keys
from torchprof_tui.ui.common.guarded_screen import GuardedModalScreen, ScrollActions
from torchprof_tui.ui.common.name_display import clean, truncate
from torchprof_tui.ui.common.painted_widget import PaintedWidget, TextRun, build_strip, follow_theme, wrap_text

if TYPE_CHECKING:
    from torchprof_tui.analysis.dispatch.source_line import SourceLine
    from torchprof_tui.trace.sources.program_file import ProgramFile


TAB_CELLS = 8
MAX_PAINTED_CHARACTERS = 2_000  # characters of one line that are looked at: a file may consist of one line of 2 MB
_DEFINITION_LINES = 30  # lines from the recorded one on in which the definition is expected: decorators come before it


class SourceText(PaintedWidget):
    """Show a title, then the file of `show_file` or the reason of `show_error`. `scroll_lines` moves through it.

    `line`: the one to mark, counted from 1; None marks none and begins where `function` is defined.
    """

    WHEEL_LINES = 2

    DEFAULT_CSS = "SourceText { height: 1fr; }"

    def __init__(self, title: str, line: int | None, function: str) -> None:
        super().__init__()
        self._title, self._line, self._function = clean(title), line, function
        self._place = ""
        self._message = "reading the file …"
        self._is_error = self._is_stale = False
        self._lines: tuple[str, ...] = ()
        self._top = 0
        self._needs_centring = False

    @property
    def page_size(self) -> int:
        """Number of source lines on screen."""
        return max(self.size.height - 2, 1)

    def show_file(self, file: ProgramFile) -> None:
        """Show a file with the line in the middle, or without a line the definition of the function."""
        self._lines, self._place = file.lines, clean(file.place)
        self._message, self._is_stale = describe_line_match(file.lines, self._line, self._function)
        self._needs_centring = True
        self.repaint()

    def show_error(self, reason: str) -> None:
        """Show why there is no file."""
        self._message, self._is_error = clean(reason), True
        self.repaint()

    def scroll_lines(self, count: int) -> None:
        """Scroll down by `count` lines (up if negative), within the file."""
        self._top = self._limit_top(self._top + count)
        self.repaint()

    def prepare(self, size: Size) -> None:
        if self._needs_centring and size.height > 2:
            self._needs_centring = False
            centre = self._line or next(iter(find_definitions(self._lines, self._function)), 1)
            self._top = centre - 1 - self.page_size // 2
        self._top = self._limit_top(self._top)

    def _limit_top(self, top: int) -> int:
        return max(0, min(top, len(self._lines) - self.page_size))

    def paint(self, y: int, width: int) -> Strip:
        palette = self.palette
        if y == 0:
            place = truncate(self._place, max(width - len(self._title) - 3, 0))
            return build_strip([(f" {self._title}  ", palette.strong), (place, palette.muted)], width, palette.text)
        if not self._lines:
            style = palette.warning if self._is_error else palette.muted
            rows = wrap_text(self._message, max(width - 2, 1), style)
            runs: list[TextRun] = [(" ", palette.text), *rows[y - 1]] if y - 1 < len(rows) else []
            if y == self.size.height - 1 and y > len(rows):
                runs = [(" esc closes", palette.muted)]
            return build_strip(runs, width, palette.text)
        if y == self.size.height - 1:
            return build_strip(self._format_footer(width), width, palette.text)
        return build_strip(self._format_source_line(self._top + y - 1, width), width, palette.text)

    def _format_footer(self, width: int) -> list[TextRun]:
        palette = self.palette
        last = min(self._top + self.page_size, len(self._lines))
        hint = f" {last:,} of {len(self._lines):,} lines · ? help · esc closes"
        message = f" · {self._message}" if self._message else " · ↑ ↓ scroll"
        if len(hint) + cell_len(message) > width:  # the message says whether to trust the file; the keys are known
            hint = " esc closes"
        message = truncate(message, max(width - len(hint), 0))
        return [(hint, palette.muted), (message, palette.warning if self._is_stale else palette.muted)]

    def _format_source_line(self, index: int, width: int) -> list[TextRun]:
        palette = self.palette
        if index >= len(self._lines):
            return []
        number_cells = len(str(len(self._lines)))
        text = clean(self._lines[index][:MAX_PAINTED_CHARACTERS].expandtabs(TAB_CELLS))
        is_target = index + 1 == self._line
        shown = truncate(text, max(width - number_cells - 4, 1))
        number = f"{'▶' if is_target else ' '}{index + 1:>{number_cells}} "
        return [
            (number, palette.cursor if is_target else palette.muted),
            (" ", palette.text),
            (shown, palette.active if is_target else palette.text),
        ]


def describe_line_match(lines: tuple[str, ...], line: int | None, function: str) -> tuple[str, bool]:
    """Return (what the recorded line is in this file, "" if there is nothing to say; whether the file cannot match).

    The profiler records the line where a function begins. A file without such a function, or with fewer lines, has
    changed since the recording, or is another one. Of a frame that began before the recording the line is None.
    """
    if line is not None and line > len(lines):
        return f"line {line:,} is after the end of the file: the file has changed", True
    found = find_definitions(lines, function)
    if function.isidentifier() and not found:
        return f"no {clean(function)} in it: the file has changed, or is another", True
    if line is None:
        return "no mark: began before the recording", False
    begins = any(line <= number < line + _DEFINITION_LINES for number in found)
    return (f"the profiler records where {function} begins" if begins else ""), False


def find_definitions(lines: tuple[str, ...], function: str) -> list[int]:
    """Find the lines, counted from 1, that define a function or class of this name; none for `<module>`."""
    if not function.isidentifier():
        return []
    definition = re.compile(rf"\b(def|class)\s+{function}\b")
    return [number for number, text in enumerate(lines, 1) if definition.search(text[:MAX_PAINTED_CHARACTERS])]


MIN_LINES = 8  # height of the screen's box where the panels below leave less


class SourceScreen(ScrollActions, GuardedModalScreen[None]):
    """Read the file of a line on a thread, and show it. The file is read because the user asked for it (enter, L).

    `trace_file`: the trace as the user named it. `count_lines_below`: lines at the bottom that stay visible.
    """

    CSS_PATH = "source_screen.tcss"
    BINDINGS = keys.SOURCE
    AUTO_FOCUS = ""
    TITLE = "source"
    help_topic = "source"

    def __init__(self, line: SourceLine, trace_file: str, count_lines_below: Callable[[], int]) -> None:
        super().__init__()
        self._count_lines_below = count_lines_below
        self._reader = ProgramFileReader(line.file or "", trace_file, Path.cwd())
        self._text = SourceText(line.text, line.line, line.function)

    def compose(self) -> ComposeResult:
        with Vertical(id="source"):
            yield self._text

    def on_mount(self) -> None:
        follow_theme(self)
        self.run_worker(self._read_file, thread=True, group="source")

    def on_unmount(self) -> None:
        self._reader.cancel()

    def on_resize(self, event: events.Resize) -> None:
        available = event.size.height - self._count_lines_below()
        self.query_one("#source").styles.height = max(available, min(MIN_LINES, event.size.height))

    def _read_file(self) -> None:
        try:
            self.show_later(self._text.show_file, self._reader.read())
        except TraceError as error:
            self.show_later(self._text.show_error, str(error))

    action_scroll_panel = ScrollActions.action_page
