"""What the explorer asks for in its prompt, and what is done with what is typed: search, go to, write a slice."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from textual.screen import Screen

from torchprof_tui.ui.common.messages import PromptChanged, PromptClosed, PromptSubmitted
from torchprof_tui.ui.common.prompt_input import Prompt
from torchprof_tui.ui.explorer import slice_export
from torchprof_tui.ui.explorer.debounced_worker import Reading
from torchprof_tui.ui.explorer.view_state import Walk

SEARCH, GO_TO, SLICE = "search", "go to", "write slice to"

Show = Callable[[str], None]


class Prompts:
    """Owns the prompt; the screen hands on its messages. `show` says a line, and shows where one is."""

    def __init__(self, screen: Screen[Any], walk: Walk, show: Show) -> None:
        self._screen, self._walk, self._show = screen, walk, show
        self._reading = Reading(screen)
        self.prompt = Prompt(id="prompt")

    def search(self) -> None:
        self._ask(SEARCH, "text, or /regular expression/", self._walk.search.query)

    def go_to(self) -> None:
        self._ask(GO_TO, "12ms, 1.5s, or #3 for a step")

    def slice(self) -> None:
        t0, t1, what = self._walk.subject()
        rank = self._walk.rank()
        whose = "" if rank is None else f"{rank.label}, "
        name = slice_export.suggested(self._walk.own_trace(), t0, t1)
        self._ask(SLICE, f"{whose}{what} · ends in .json or .json.gz", name)

    def changed(self, message: PromptChanged) -> None:
        if message.purpose == SEARCH:
            self._reading.soon("search", partial(self._look_for, message.text))

    def submitted(self, message: PromptSubmitted) -> None:
        if message.purpose == SLICE:
            self._write_slice(message.text)
        elif message.purpose == GO_TO:
            problem = self._walk.go_to(message.text)
            if problem:
                self.prompt.hint(problem)
            else:
                self._close()
        else:
            problem = self._walk.search.look_for(message.text)
            if not problem and message.text:
                problem = self._walk.to_found(later=True)
            self._close(problem)

    def closed(self, message: PromptClosed) -> None:
        if message.purpose == SEARCH:
            self._walk.search.look_for("")
        self._close()

    def _ask(self, purpose: str, hint: str, text: str = "") -> None:
        self._screen.add_class("asking")
        self.prompt.ask(purpose, hint, text)

    def _close(self, said: str = "") -> None:
        self._screen.remove_class("asking")
        self.prompt.close()
        self._show(said)

    def _look_for(self, text: str) -> None:
        """Count while somebody types."""
        problem = self._walk.search.look_for(text)
        found = self._walk.search.found
        self.prompt.hint(problem or (f"{len(found):,} found · enter: the next one" if found is not None else ""))
        self._show("")

    def _write_slice(self, name: str) -> None:
        if not name:
            self._close()
            return
        t0, t1, _ = self._walk.subject()
        self._close(f"writing {name} …")
        self._reading.ask("slice", partial(slice_export.write, self._walk.own_trace(), t0, t1, name))
