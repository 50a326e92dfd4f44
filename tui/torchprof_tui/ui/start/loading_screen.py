"""While a trace is on its way: how far it is, and esc to give up. Then the explorer takes over, or an error shows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Static

from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.loading.errors import LoadError
from torchprof_tui.trace.loading.progress import FAILED_SHARE, Progress, RanksProgress
from torchprof_tui.trace.specs.address import ListedTrace

if TYPE_CHECKING:
    from torchprof_tui.trace.loading.resolve import AnyOpener
    from torchprof_tui.trace.model.trace import Trace

REDRAW_SECONDS = 0.1
"""Ten times a second looks steady and costs an ssh line next to nothing."""

MIN_ESTIMATE_SECONDS = 0.3
"""Before this much is known of its speed, a time left would jump about."""

BAR_CELLS = 40

_EIGHTHS = "·▁▂▃▄▅▆▇█"

PHASE_LABELS = {
    "starting": "starting",
    "connecting": "connecting",
    "reading": "reading",
    "arranging": "nesting events, joining launches to kernels",
    "merging": "bringing the ranks together",
    "storing": "keeping the columns, so that the next opening is instant",
}


class LoadingScreen(Screen[None]):
    """`opening` was started. `prepare` is run in a thread meanwhile: imports that the next screen needs."""

    CSS_PATH = "loading_screen.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "give_up", "cancel", id="loading.cancel"),
    ]

    @dataclass
    class Opened(Message):
        """The trace is there."""

        opening: AnyOpener
        trace: Trace

    @dataclass
    class Failed(Message):
        """It will not come. `line` is for the user, and on screen already."""

        line: str
        detail: str

    @dataclass
    class FolderFound(Message):
        """It is a folder elsewhere, with traces in it."""

        name: str
        traces: list[ListedTrace]

    class Left(Message):
        """Esc: while it loaded, or at the error."""

    def __init__(self, opening: AnyOpener, prepare: Callable[[], object] | None = None) -> None:
        super().__init__()
        self.opening = opening
        self._prepare = prepare
        self._progress = Progress("starting")
        self._started_at = time.monotonic()
        self._failed = False

    def compose(self) -> ComposeResult:
        with Vertical(id="loading"):
            yield Static(Content.from_markup("Opening [b]$name[/b]", name=clean(self.opening.label)), id="loading-name")
            yield Static(id="loading-bar")
            yield Static(id="loading-ranks")
            yield Static(id="loading-numbers")
            yield Static(id="loading-keys")

    def on_mount(self) -> None:
        self._show_progress()
        self._timer = self.set_interval(REDRAW_SECONDS, self._show_progress)
        self.run_worker(self._load(), exclusive=True, group="load")

    def action_give_up(self) -> None:
        if not self._failed:
            self.workers.cancel_group(self, "load")
        self.post_message(self.Left())

    async def _load(self) -> None:
        prepared = None if self._prepare is None else asyncio.create_task(asyncio.to_thread(self._prepare))
        try:
            trace = await self.opening.load_trace(self._store_progress)
        except LoadError as error:
            if error.listed_files:
                self.post_message(self.FolderFound(self.opening.label, error.listed_files))
                return
            self._show_failure(str(error))
            self.post_message(self.Failed(str(error), error.detail))
            return
        if prepared is not None:
            await prepared
        self.post_message(self.Opened(self.opening, trace))

    def _store_progress(self, progress: Progress) -> None:
        self._progress = progress

    def _show_progress(self) -> None:
        progress = self._progress
        self._update_text("#loading-bar", format_bar(progress))
        cells = format_rank_bars(progress)
        self.query_one("#loading-ranks", Static).display = bool(cells)
        self._update_text("#loading-ranks", cells)
        self._update_text("#loading-numbers", format_counters(progress, time.monotonic() - self._started_at))
        self._update_text("#loading-keys", Content("esc cancel   q quit"))

    def _update_text(self, selector: str, line: Content) -> None:
        """Laid out anew only where it takes more or fewer lines: it would cost ten times as much, and the processes
        that read are short of what it takes."""
        widget = self.query_one(selector, Static)
        if line != widget.content:
            widget.update(line, layout=widget.size.height != 1 or line.cell_length > widget.size.width)

    def _show_failure(self, line: str) -> None:
        self._failed = True
        self._timer.stop()
        self.add_class("failed")
        self.query_one("#loading-name", Static).update(Content.from_markup("[b]This could not be opened[/b]"))
        self.query_one("#loading-bar", Static).update(Content(clean(line)))
        self.query_one("#loading-ranks", Static).display = False
        hint = "torch.profiler writes what this opens: prof.export_chrome_trace('trace.json.gz')"
        self.query_one("#loading-numbers", Static).update(Content(hint))
        self.query_one("#loading-keys", Static).update("o open another   esc back   q quit")


def format_bar(progress: Progress) -> Content:
    """How much of the file has been read, as a bar; of a pipe nobody knows."""
    if progress.phase in ("starting", "connecting"):
        share = 0.0
    elif progress.phase != "reading":
        share = 1.0
    elif not progress.total:
        return Content(f"{'░' * BAR_CELLS}  of unknown length")
    else:
        share = min(progress.bytes / progress.total, 1.0)
    full = round(share * BAR_CELLS)
    return Content(f"{'█' * full}{'░' * (BAR_CELLS - full)}  {share:4.0%}")


def format_rank_bars(progress: Progress) -> Content:
    """Of several ranks a cell each, which fills; a cross where one could not be opened."""
    if not isinstance(progress, RanksProgress):
        return Content("")
    cells = ("×" if share == FAILED_SHARE else _EIGHTHS[max(int(share * 8), share > 0)] for share in progress.shares)
    return Content("".join(cells))


def format_counters(progress: Progress, elapsed: float) -> Content:
    """Bytes, events, time left, and what is being done, in one line."""
    parts = [PHASE_LABELS.get(progress.phase, progress.phase)]
    if progress.phase == "reading":
        of = f" of {progress.total / 1e6:,.1f}" if progress.total else ""
        parts = [f"{progress.bytes / 1e6:,.1f}{of} MB"]
        if progress.total and progress.bytes and elapsed > MIN_ESTIMATE_SECONDS:
            left = elapsed * (progress.total - progress.bytes) / progress.bytes
            parts.append(f"{left:.1f} s left" if left < 9.95 else f"{left:.0f} s left")
    if progress.events:
        parts.insert(1, f"{progress.events:,} events")
    if isinstance(progress, RanksProgress):
        parts.insert(0, f"{progress.finished_count} of {len(progress.shares)} ranks")
    return Content(" · ".join(parts))
