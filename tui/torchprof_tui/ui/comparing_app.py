"""The app's part in comparisons: load the second trace while the first stays open, then show both."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from textual import work
from textual.app import App

from torchprof_tui.trace.core.errors import format_error
from torchprof_tui.ui.common.compare_asked import CompareAsked
from torchprof_tui.ui.diff.second_trace_screen import SecondTraceScreen
from torchprof_tui.ui.later_screens import create_diff_screen, update_recent_and_prune

if TYPE_CHECKING:
    from torchprof_tui.trace.loading.opener import TraceOpener
    from torchprof_tui.trace.model.trace import Trace
    from torchprof_tui.ui.common.comparison_request import ComparisonRequest


class ComparingApp(App[None]):
    """An app that compares the open trace with another one, with another of its steps, or with another of its ranks.

    `last_compared`: the name that the prompt suggests. `earlier_recording`: the trace before the last recording, which
    is A where it is compared. `pending_comparison`: what to compare the next trace with once it is on screen.
    `kept_screens`: those of the stack that stay when a trace is opened, the last of which it replaces.
    """

    kept_screens = 2

    def __init__(self) -> None:
        super().__init__()
        self.last_compared = ""
        self.earlier_recording = ""
        self.pending_comparison: ComparisonRequest | None = None

    def _start_opener(self, specs: tuple[str, ...], captures: tuple[str, ...] = ()) -> TraceOpener:
        """Start to open a trace; `captures` of its graphs, () for those beside it. Raises OSError and ValueError."""
        raise NotImplementedError

    def start_pending_comparison(self, trace: Trace) -> None:
        """Compare the trace that was just opened with what was asked for before it was."""
        request, self.pending_comparison = self.pending_comparison, None
        if request is not None:
            self.post_message(CompareAsked(request, trace, trace.label))

    def note_recording(self, earlier: str) -> None:
        """Suggest the trace before a recording for the comparison with it."""
        self.last_compared = self.earlier_recording = earlier

    def on_compare_asked(self, message: CompareAsked) -> None:
        if message.request.other:
            self._open_second(message)
        else:
            self.push_screen(create_diff_screen(message, message.trace, None))

    @work(exclusive=True, group="second trace")
    async def _open_second(self, asked: CompareAsked) -> None:
        try:
            opener = await asyncio.to_thread(self._start_opener, (asked.request.other,), asked.request.captures)
        except (OSError, ValueError) as error:
            line = f"{format_error(error)}; D takes a path, sample:NAME or host:path"
            self.notify(line, title="cannot be compared", severity="error", timeout=8, markup=False)
            return
        self.last_compared = asked.request.other
        show = partial(self._show_comparison, asked, opener)
        await self.push_screen(SecondTraceScreen(opener, show, partial(self._open_second, asked)))

    def _show_comparison(self, asked: CompareAsked, opener: TraceOpener, other: Trace) -> None:
        self.push_screen(create_diff_screen(asked, other, opener))
        self.run_worker(asyncio.to_thread(update_recent_and_prune, opener.spec), group="house")
        self.run_worker(asyncio.to_thread(opener.split_into_blocks, other), group="finish")
