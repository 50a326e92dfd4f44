"""Show the progress of a load in one line on stderr, and clear it at the end."""

from __future__ import annotations

import time
from typing import TextIO

from torchprof_tui.program.phase_log import note_phase
from torchprof_tui.trace.loading.progress import Phase, Progress, RanksProgress

DELAY_SECONDS = 0.5
"""Shorter loads show no progress."""

REDRAW_SECONDS = 0.1


class ProgressLine:
    """Print each Progress that it is called with; print nothing if the stream is no terminal."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._is_terminal = out.isatty()
        self._next_redraw = time.monotonic() + DELAY_SECONDS
        self._shown = False
        self._phase: Phase | None = None

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if progress.phase != self._phase:
            self._phase = progress.phase
            note_phase(f"load: {progress.phase}", bytes=progress.bytes, events=progress.events)
        if not self._is_terminal or now < self._next_redraw or progress.phase == Phase.CONNECTING:
            return
        self._next_redraw = now + REDRAW_SECONDS
        self._shown = True
        share = f"{progress.bytes / progress.total:4.0%}" if progress.total else f"{progress.bytes / 1e6:,.0f} MB"
        ranks = (
            f", {progress.finished_count} of {len(progress.shares)} ranks"
            if isinstance(progress, RanksProgress)
            else ""
        )
        self._out.write(f"\r{progress.phase} {share}, {progress.events:,} events{ranks}\x1b[K")
        self._out.flush()

    def clear(self) -> None:
        """Clear the line."""
        if self._shown:
            self._out.write("\r\x1b[K")
            self._out.flush()
