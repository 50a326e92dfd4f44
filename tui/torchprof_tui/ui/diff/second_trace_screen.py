"""The loading screen of the trace to compare with; the trace on screen stays open below it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from torchprof_tui.ui.start import loading_screen
from torchprof_tui.ui.start.loading_screen import LoadingScreen

if TYPE_CHECKING:
    from torchprof_tui.trace.loading.opener import TraceOpener
    from torchprof_tui.trace.model.trace import Trace

MAX_LISTED = 3


class SecondTraceScreen(LoadingScreen):
    """Load a trace with a started opener, then leave and call `show` with it; `retry` after a failure."""

    CSS_PATH = str(Path(loading_screen.__file__).with_name("loading_screen.tcss"))

    def __init__(self, opener: TraceOpener, show: Callable[[Trace], object], retry: Callable[[], object]) -> None:
        super().__init__(opener)
        self._show, self._retry = show, retry

    def on_loading_screen_opened(self, message: LoadingScreen.Opened) -> None:
        message.stop()
        self.dismiss()
        self._show(message.trace)

    def on_loading_screen_failed(self, message: LoadingScreen.Failed) -> None:
        message.stop()  # the line is on the screen

    def on_loading_screen_folder_found(self, message: LoadingScreen.FolderFound) -> None:
        message.stop()
        names = ", ".join(trace.spec for trace in message.traces[:MAX_LISTED])
        self._show_failure(f"{message.name} holds {len(message.traces):,} traces: name one of them, as {names}")

    def on_loading_screen_retry_requested(self, message: LoadingScreen.RetryRequested) -> None:
        message.stop()
        self.dismiss()
        self._retry()

    def on_loading_screen_left(self, message: LoadingScreen.Left) -> None:
        message.stop()
        self.opener.close()
        self.dismiss()
