"""Ask what to compare a trace with, on any screen: what the prompt offers, its hint, and what enter takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from textual.screen import Screen

from torchprof_tui.analysis.compare.step_selection import ComparisonError
from torchprof_tui.trace.specs.address import SAMPLE_PREFIX
from torchprof_tui.ui.common.comparison_request import (
    COMPARE,
    SHORT_FORMS,
    TAKES_FIRST,
    ComparisonRequest,
    parse_request,
    suggest_forms,
    take_choice,
)
from torchprof_tui.ui.common.status_line import Choice, Prompt

GO_TO = "go to"  # the label of the prompt

GO_TO_HINT = "12ms · #3 · rank 1 · memory, doctor, … · a trace"


def is_trace_name(text: str) -> bool:
    """Return whether a text names a trace: a sample, a path or a URL, rather than a time or a step."""
    return text.startswith((SAMPLE_PREFIX, "~", ".")) or "/" in text or text.endswith((".json", ".gz", ".zst", ".xz"))


class ComparisonPrompt:
    """Fill the prompt of a screen. `compare`: receives the request once enter has made one, and closes the prompt."""

    def __init__(self, screen: Screen[Any], prompt: Prompt, compare: Callable[[ComparisonRequest], None]) -> None:
        self._screen, self._prompt, self._compare = screen, prompt, compare
        self._is_listing = False  # the traces to compare with
        self._submitted: str | None = None  # while they are being listed

    def open(self, show: Callable[[str, str, Sequence[Choice]], None], own: Sequence[Choice]) -> None:
        """Open the prompt with `show` (hint, text, choices); the app lists traces on a thread: a disk may be slow.

        `own`: comparisons of the trace with itself.
        """
        app = self._screen.app
        suggested = getattr(app, "last_compared", "")
        first = [Choice(suggested, "suggested")] if suggested else []
        show(suggest_forms(suggested), suggested, first)
        list_traces = getattr(app, "list_known_traces", None)
        if list_traces is None:
            self._prompt.offer([*first, *own])
            return

        def read() -> None:
            twins, known = ([Choice(*pair) for pair in pairs] for pairs in list_traces())
            app.call_from_thread(self._offer, [*first, *twins, *own, *known])

        self._is_listing, self._submitted = True, None
        self._screen.run_worker(read, group="known traces", exclusive=True, thread=True)

    def _offer(self, choices: Sequence[Choice]) -> None:
        """List each choice once; then do what enter asked for in the meantime."""
        self._is_listing = False
        if self._prompt.is_open and self._prompt.purpose == COMPARE:
            known: dict[str, Choice] = {}
            for choice in choices:
                known.setdefault(choice.text, choice)
            self._prompt.offer([*known.values()])
            self.show_hint(self._prompt.text)
            if self._submitted is not None:
                self.submit(self._submitted)

    def show_hint(self, typed: str) -> None:
        """Show what enter would take, or what may be typed."""
        takes_first = self._prompt.found and typed not in self._prompt.found
        self._prompt.show_hint(f"{TAKES_FIRST} · {SHORT_FORMS}" if takes_first else suggest_forms(typed))

    def submit(self, text: str) -> None:
        """Ask for a comparison; what names nothing stands for the first choice with that text."""
        if self._is_listing:
            self._submitted = text
            return
        try:
            request = parse_request(take_choice(text, self._prompt.found))
        except ComparisonError as error:
            self._prompt.show_hint(str(error))
            return
        self._compare(request)
