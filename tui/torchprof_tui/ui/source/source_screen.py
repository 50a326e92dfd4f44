"""Screen above the lanes: the source around the line of a chain or a problem, with the panel below left visible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message

from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.sources.program_file_reader import ProgramFileReader
from torchprof_tui.ui.common import keys
from torchprof_tui.ui.common.guarded_screen import GuardedModalScreen
from torchprof_tui.ui.common.terminal_info import follow_theme
from torchprof_tui.ui.source.source_text import SourceText

if TYPE_CHECKING:
    from torchprof_tui.analysis.dispatch.source_line import SourceLine
    from torchprof_tui.trace.sources.program_file import ProgramFile


@dataclass
class ProgramFileRead(Message):
    """A worker has read a file of the program; None if it could not, for the reason in `error`, one line."""

    file: ProgramFile | None
    error: str = ""


MIN_LINES = 8
"""Height of the screen's box where the panels below leave less."""


class SourceScreen(GuardedModalScreen[None]):
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
            message = ProgramFileRead(self._reader.read())
        except TraceError as error:
            message = ProgramFileRead(None, str(error))
        self.post_message(message)

    def on_program_file_read(self, message: ProgramFileRead) -> None:
        if message.file is None:
            self._text.show_error(message.error)
        else:
            self._text.show_file(message.file)

    def action_scroll(self, lines: int) -> None:
        self._text.scroll_lines(lines)

    def action_page(self, pages: int) -> None:
        self._text.scroll_lines(pages * self._text.page_size)
