"""The loading screen: the progress of a load, esc to cancel it, and the error where it fails, with r to try again."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.app import App, ComposeResult, SuspendNotSupported
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from torchprof_tui.program.phase_log import note_phase
from torchprof_tui.trace.core.errors import NOT_A_TRACE
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.loading.cleanup import clean_up_in_thread
from torchprof_tui.trace.loading.opener import EarlyTrace
from torchprof_tui.trace.loading.progress import (
    FAILED_SHARE,
    LoadError,
    LoginNeededLoadError,
    Phase,
    Progress,
    RanksProgress,
)
from torchprof_tui.trace.specs.address import ListedTrace
from torchprof_tui.ui.common import keys
from torchprof_tui.ui.common.bindings import style_hints
from torchprof_tui.ui.common.guarded_screen import GuardedScreen
from torchprof_tui.ui.common.terminal_driver import find_progress

if TYPE_CHECKING:
    from types import FrameType

    from torchprof_tui.trace.loading.opener import TraceOpener
    from torchprof_tui.trace.model.trace import Trace


REDRAW_SECONDS = 0.1  # seconds between redraws: ten a second look steady and cost an ssh connection next to nothing
MIN_ESTIMATE_SECONDS = 0.3  # seconds of loading before the time left is shown: an earlier estimate would vary too much
FIRST_WRITE_SECONDS = 0.005
"""Seconds in which the writer thread has written the first frame. Only then the threads start that import modules: they
would hold the GIL against it."""

BAR_CELLS = 40

EXPORT_HINT = "this program opens traces of torch.profiler: prof.export_chrome_trace('trace.json.gz')"

_EIGHTHS = "·▁▂▃▄▅▆▇█"

PHASE_LABELS = {
    Phase.STARTING: "starting",
    Phase.CONNECTING: "connecting",
    Phase.READING: "reading",
    Phase.ARRANGING: "nesting events, linking launches to kernels",
    Phase.MERGING: "merging the ranks",
    Phase.STORING: "saving to the cache, so that the trace opens faster next time",
}


STAGES = {Phase.ARRANGING: "arranging", Phase.STORING: "saving"}
"""Words for the phases after reading, where there is little room."""


class LoadingScreen(GuardedScreen[None]):
    """Load a trace and show the progress.

    `opener` has been started. `prepare` runs in a thread meanwhile: it imports what the next screen needs. With it, the
    beginning of a large trace is announced before the rest is loaded. `prepare_checks` runs in a thread once all is
    read: what follows does not occupy all cores.
    """

    CSS_PATH = "loading_screen.tcss"
    BINDINGS = keys.LOADING

    @dataclass
    class Opened(Message):
        """The trace is loaded."""

        opener: TraceOpener
        trace: Trace

    @dataclass
    class LanesFound(Message):
        """The beginning of a large trace can be shown, while `screen` loads the rest."""

        screen: LoadingScreen
        early: EarlyTrace

    @dataclass
    class Failed(Message):
        """The load failed. `line` is for the user, and on screen already."""

        line: str
        detail: str

    @dataclass
    class FolderFound(Message):
        """The name is a remote folder that holds traces."""

        name: str
        traces: list[ListedTrace]

    @dataclass
    class RetryRequested(Message):
        """The trace is to be opened again after a failure. `spec` names it."""

        spec: str

    class Left(Message):
        """Esc was pressed, during the load or at the error."""

    def __init__(
        self,
        opener: TraceOpener,
        prepare: Callable[[], object] | None = None,
        prepare_checks: Callable[[], object] | None = None,
    ) -> None:
        super().__init__()
        self.opener = opener
        self._prepare = prepare
        self._prepare_checks = prepare_checks
        self._progress = Progress(Phase.STARTING)
        self._started_at = time.monotonic()
        self._failed = False
        self._has_begun = False
        self._is_painted = asyncio.Event()

    def compose(self) -> ComposeResult:
        with Vertical(id="loading"):
            yield Static(Content.from_markup("Opening [b]$name[/b]", name=clean(self.opener.label)), id="loading-name")
            yield Static(id="loading-bar")
            yield Static(id="loading-ranks")
            yield Static(id="loading-numbers")
            yield Static(id="loading-keys")

    def on_mount(self) -> None:
        self._show_progress()
        self._timer = self.set_interval(REDRAW_SECONDS, self._show_progress)
        self.call_after_refresh(self._is_painted.set)
        self.run_worker(self._load(), exclusive=True, group="load")

    def on_unmount(self) -> None:
        if (bar := find_progress(self.app)) is not None:
            bar.clear()

    async def action_give_up(self) -> None:
        if not self._failed:
            self.workers.cancel_group(self, "load")
            if not self._has_begun:  # a task that is cancelled before its first line cleans nothing up
                await clean_up_in_thread(self.opener.cancel)
        self.post_message(self.Left())

    def action_retry(self) -> None:
        if self._failed and self._can_retry:
            self.post_message(self.RetryRequested(self.opener.spec))

    @property
    def _can_retry(self) -> bool:
        """Whether one name opens the trace again: stdin has been read, and several files have no single name."""
        return self.opener.spec not in ("", "-")

    async def _load(self) -> None:
        await self._is_painted.wait()
        await asyncio.sleep(FIRST_WRITE_SECONDS)
        self._has_begun = True
        preparation = None if self._prepare is None else asyncio.create_task(asyncio.to_thread(self._prepare))
        if preparation is not None:
            self.opener.receive_early = lambda early: preparation.add_done_callback(
                lambda _: self.post_message(self.LanesFound(self, early))  # once the imports are done
            )
        try:
            trace = await self._load_after_login()
        except LoadError as error:
            if error.listed_files:
                self.post_message(self.FolderFound(self.opener.label, error.listed_files))
                return
            self._show_failure(str(error))
            self.post_message(self.Failed(str(error), error.detail))
            return
        if preparation is not None:
            await preparation
        self.post_message(self.Opened(self.opener, trace))

    @property
    def stage(self) -> str:
        """How far loading is, in a word or two: the share of the file, then what follows."""
        progress = self._progress
        if progress.phase != Phase.READING or not progress.total:
            return STAGES.get(progress.phase, "")
        return f"{min(progress.bytes / progress.total, 1.0):.0%}"

    async def _load_after_login(self) -> Trace:
        """Load the trace; where ssh must ask for a login, give it the terminal. Raises LoadError."""
        try:
            return await self.opener.load_trace(self._store_progress)
        except LoginNeededLoadError:
            if not ask_for_login(self.app, self.opener):
                raise
            return await self.opener.load_trace(self._store_progress)

    def _store_progress(self, progress: Progress) -> None:
        if progress.phase != self._progress.phase:
            note_phase(f"load: {progress.phase}", bytes=progress.bytes, events=progress.events)
        self._progress = progress

    def _show_progress(self) -> None:
        progress = self._progress
        if progress.phase in (*STAGES, Phase.MERGING) and self._prepare_checks is not None:
            asyncio.get_running_loop().run_in_executor(None, self._prepare_checks)
            self._prepare_checks = None
        if (bar := find_progress(self.app)) is not None:
            bar.set(progress.bytes / progress.total if progress.phase == Phase.READING and progress.total else None)
        self._update_text("#loading-bar", format_bar(progress))
        rank_bars = format_rank_bars(progress)
        self.query_one("#loading-ranks", Static).display = bool(rank_bars)
        self._update_text("#loading-ranks", rank_bars)
        self._update_text("#loading-numbers", format_counters(progress, time.monotonic() - self._started_at))
        self._update_text("#loading-keys", style_hints("esc cancel   q quit"))

    def _update_text(self, selector: str, line: Content) -> None:
        """Update a line; lay the screen out again only where the number of lines changes.

        A layout takes ten times as long as an update, on cores that the workers need.
        """
        widget = self.query_one(selector, Static)
        if line != widget.content:
            widget.update(line, layout=widget.size.height != 1 or line.cell_length > widget.size.width)

    def _show_failure(self, line: str) -> None:
        self._failed = True
        self._timer.stop()
        if (bar := find_progress(self.app)) is not None:
            bar.clear()
        self.add_class("failed")
        self.query_one("#loading-name", Static).update(Content.from_markup("[b]This could not be opened[/b]"))
        self.query_one("#loading-bar", Static).update(Content(clean(line)))
        self.query_one("#loading-ranks", Static).display = False
        hint = EXPORT_HINT if NOT_A_TRACE in line else ""  # it is no help where the file could not be reached
        self.query_one("#loading-numbers", Static).update(Content(hint))
        self.query_one("#loading-keys", Static).update(
            style_hints(f"{'r try again   ' if self._can_retry else ''}o open another   esc back   q quit")
        )


def format_bar(progress: Progress) -> Content:
    """Format the share of the file that has been read as a bar; the size of a pipe is unknown."""
    if progress.phase in (Phase.STARTING, Phase.CONNECTING):
        share = 0.0
    elif progress.phase != Phase.READING:
        share = 1.0
    elif not progress.total:
        return Content(f"{'░' * BAR_CELLS}  of unknown length")
    else:
        share = min(progress.bytes / progress.total, 1.0)
    full = round(share * BAR_CELLS)
    return Content(f"{'█' * full}{'░' * (BAR_CELLS - full)}  {share:4.0%}")


def format_rank_bars(progress: Progress) -> Content:
    """Format one cell for each rank, filled by its share; a cross where it could not be opened."""
    if not isinstance(progress, RanksProgress):
        return Content("")
    cells = ("×" if share == FAILED_SHARE else _EIGHTHS[max(int(share * 8), share > 0)] for share in progress.shares)
    return Content("".join(cells))


def format_counters(progress: Progress, elapsed: float) -> Content:
    """Format ranks, bytes, events, time left and the phase in one line."""
    parts = [PHASE_LABELS[progress.phase]]
    if progress.phase == Phase.READING:
        total = f" of {progress.total / 1e6:,.1f}" if progress.total else ""
        parts = [f"{progress.bytes / 1e6:,.1f}{total} MB"]
        if progress.total and progress.bytes and elapsed > MIN_ESTIMATE_SECONDS:
            seconds = elapsed * (progress.total - progress.bytes) / progress.bytes
            parts.append(f"{seconds:.1f} s left" if seconds < 9.95 else f"{seconds:.0f} s left")
    if progress.events:
        parts.insert(1, f"{progress.events:,} events")
    if isinstance(progress, RanksProgress):
        parts.insert(0, f"{progress.finished_count} of {len(progress.shares)} ranks")
    return Content(" · ".join(parts))


_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def ask_for_login(app: App[object], opener: TraceOpener) -> bool:
    """Suspend the app and have ssh ask on the terminal; blocks the event loop, which must not draw meanwhile.

    Returns whether the user answered: not where there is no terminal, or with ctrl+c. `load_trace` may be called again.
    """
    answered = False
    # An exception must not leave `suspend`, which would leave the terminal to the shell.
    with (
        contextlib.suppress(SuspendNotSupported),
        app.suspend(),
        contextlib.suppress(KeyboardInterrupt),
        _raise_on_interrupt(),
    ):
        print(f"\ntorchprof-tui: log in to open {clean(opener.label)} (ctrl+c goes back)", file=sys.stderr)
        opener.wait_until_connected()
        answered = True
    return answered


@contextlib.contextmanager
def _raise_on_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt on signals that end the app otherwise, or that it would handle only after the login.

    asyncio learns of signals through the wakeup descriptor: without taking it away, its loop would also call the app's
    own handler of ctrl+c once it goes on, and end the app. The other signals are raised again, and do end it.
    """
    received: list[int] = []

    def interrupt(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        raise KeyboardInterrupt

    wakeup = signal.set_wakeup_fd(-1)
    previous = {number: signal.signal(number, interrupt) for number in _INTERRUPTS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup)
        for caught in received:
            if caught != signal.SIGINT:
                signal.raise_signal(caught)


MAX_LISTED = 3


class SecondTraceScreen(LoadingScreen):
    """Load a trace with a started opener, then leave and call `show` with it; `retry` after a failure."""

    CSS_PATH = "loading_screen.tcss"

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
