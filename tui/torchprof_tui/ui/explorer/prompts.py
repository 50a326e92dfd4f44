"""The prompts of the explorer and their effects: search, go to, write a slice, compare, predict."""

from __future__ import annotations

import importlib
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from torchprof_tui.analysis.search.name_search import is_case_sensitive, suggest_names
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.child_screen import SEARCH_HINT, PromptedScreen
from torchprof_tui.ui.common.compare_asked import CompareAsked, TraceAsked
from torchprof_tui.ui.common.comparison_prompt import GO_TO, GO_TO_HINT, is_trace_name
from torchprof_tui.ui.common.comparison_request import (
    COMPARE,
    ComparisonRequest,
    list_own_choices,
)
from torchprof_tui.ui.common.keys import list_named_commands
from torchprof_tui.ui.common.name_display import shorten, truncate
from torchprof_tui.ui.common.status_line import Choice, PromptChanged, PromptClosed, PromptSubmitted
from torchprof_tui.ui.explorer import slice_export
from torchprof_tui.ui.explorer.path.path_panel import PathPanel
from torchprof_tui.ui.lanes.selection_moves import SelectionMoves
from torchprof_tui.ui.lanes.view_state import ViewState

if TYPE_CHECKING:
    from torchprof_tui.ui.explorer.path.shown_forecast import ShownForecast, WhatIfRead


WHAT_IF_FORMS = (
    "empty: none · class=gemm*0.5; sync=0; launch=graph; compile; op=NAME*0; rank=1*0.5; late-rank=0; pattern=ID"
)
KERNEL_PREFIX = "kernel: "
NO_STEP = "what-if predicts a step: there is no step on screen"


CASE_NOTE = "case-sensitive: it has a capital"  # said of a search text with a capital, which finds that capital only
MAX_RANGE_LABEL = 24  # cells for the name of the event that a slice is of: kernels' names fill a screen

SEARCH, SLICE, WHAT_IF = "search", "write slice to", "what if"


class PromptScreen(PromptedScreen):
    """The prompt of a screen with lanes, and what is done with what is typed. The subclass shows `_prompt`."""

    def __init__(self, trace: Trace) -> None:
        super().__init__("status")
        self.trace = trace
        self.view_state = ViewState(trace)
        self.moves = SelectionMoves(self.view_state)
        self._path_panel: PathPanel
        self._scenarios = ""  # as typed, for the step that the path is of, on all ranks
        self._forecasts: Any = None  # reads them

    def _refresh_widgets(self, message: str = "") -> None:
        raise NotImplementedError

    def action_search(self) -> None:
        self._open_prompt(SEARCH, SEARCH_HINT, self.view_state.search.query)

    def action_go_to(self) -> None:
        self._open_prompt(GO_TO, GO_TO_HINT, choices=self.list_places(), replace=False)

    def action_slice(self) -> None:
        t0, t1, range_label = self.view_state.active_range()
        rank_prefix = self.view_state.current_rank().label_prefix(", ")
        name = slice_export.suggest_file_name(self.view_state.current_trace(), t0, t1)
        label = truncate(shorten(range_label), MAX_RANGE_LABEL)
        self._open_prompt(SLICE, self._clip_hint(f"{rank_prefix}{label} · .json or .json.gz"), name, replace=False)

    def action_compare(self) -> None:
        if not self._lacks_events():
            self._comparison.open(partial(self._open_prompt, COMPARE), self.list_comparisons())

    def list_places(self) -> list[Choice]:
        """List what `:` takes by name: panels, screens, commands, ranks and steps."""
        named = [(name, sentence) for name, (_, sentence) in list_named_commands().items()]
        return [Choice(*place) for place in (*named, *self.view_state.list_places())]

    def list_comparisons(self) -> list[Choice]:
        """List what parts of the trace can be compared with each other."""
        ranks = [rank.number for rank in self.trace.all_ranks]
        return [Choice(*pair) for pair in list_own_choices(self.view_state.current_trace(), ranks)]

    def _lacks_events(self) -> bool:
        """Return whether the trace is still loading, and cannot be compared; then say so."""
        if self.trace.part:
            self._status.show_message("the trace is still loading: D compares it once all of it is there")
        return bool(self.trace.part)

    def on_prompt_changed(self, message: PromptChanged) -> None:
        if message.purpose == SEARCH:
            self._worker.debounce("search", partial(self._preview_search, message.text))
        elif message.purpose == COMPARE:
            self._comparison.show_hint(message.text)
        elif message.purpose == WHAT_IF:
            if message.text.strip():
                self._ask_forecast(message.text, is_final=False)
            else:
                self._prompt.show_hint(self._clip_hint(WHAT_IF_FORMS))

    def on_prompt_submitted(self, message: PromptSubmitted) -> None:
        if message.purpose == SLICE:
            self._write_slice(message.text)
        elif message.purpose == COMPARE:
            self._comparison.submit(message.text)
        elif message.purpose == WHAT_IF:
            if message.text.strip():
                self._ask_forecast(message.text, is_final=True)
            else:
                self._show_forecast("", None)
                self._close_prompt("no scenario: the step as recorded")
        elif message.purpose == GO_TO:
            if problem := self._go_to(message.text):
                self._prompt.show_hint(problem)
        else:
            problem = self.view_state.search.set_query(message.text)
            if problem:  # the prompt stays open: characters that follow must not be taken as keys
                self._prompt.show_hint(problem)
                return
            if message.text:
                problem = self.view_state.jump(partial(self.moves.select_match, later=True))
            self._close_prompt(problem)

    def go_anywhere(self, text: str) -> None:
        """Go where a text of the prompt on another screen leads."""
        self._refresh_widgets(self._go_to(text))

    def _go_to(self, text: str) -> str:
        """Go to a time, a step, a panel or screen by its name, or another trace. Returns why that failed, else ""."""
        text = text.strip()
        problem = ""
        if text in (named := list_named_commands()):
            self.call_later(self.run_action, named[text][0])
        elif is_trace_name(text):
            self.post_message(TraceAsked(text))
        elif text and not any(map(str.isdecimal, text)):  # of a time, a step or a rank
            close = suggest_names([*named], text.casefold())
            problem = f"unknown command: {', '.join(close)}?" if close else f"unknown command · {GO_TO_HINT}"
        else:
            problem = self.view_state.jump(partial(self.view_state.go_to, text))
        if not problem:
            self._close_prompt()
        return problem

    def on_prompt_closed(self, message: PromptClosed) -> None:
        if message.purpose == SEARCH:
            self.view_state.search.set_query("")
        self._close_prompt()

    def on_what_if_read(self, message: WhatIfRead) -> None:
        """Show a forecast beside what is typed; of a submitted text in the panel, if it can be made."""
        if message.is_final and message.forecast is not None:
            self._show_forecast(message.text.strip(), message.forecast)
            self._close_prompt(f"what if: {message.forecast.describe()}")
        elif self._prompt.is_open:
            said = message.problem if message.forecast is None else message.forecast.describe()
            self._prompt.show_hint(self._clip_hint(said))

    def _show_forecast(self, scenarios: str, forecast: ShownForecast | None) -> None:
        self._scenarios = scenarios
        self._path_panel.show_forecast(forecast)

    def _suggest_scenarios(self) -> str:
        """Suggest what to type: the scenarios so far, and one for the kind under the cursor or the selected event."""
        scenario = self._suggest_scenario()
        if not self._scenarios:
            return scenario
        return f"{self._scenarios}; {scenario}" if scenario and scenario not in self._scenarios else self._scenarios

    def _suggest_scenario(self) -> str:
        shown, selected = self._path_panel.shown, self.view_state.selected
        if selected >= 0 and self.trace.event(selected).kind in (*GPU_WORK, Kind.OP, Kind.ANNOTATION):
            return f"event={selected}*0.5"
        if shown is not None and self._path_panel.kind >= 0:
            label = shown.path.shares[self._path_panel.kind].label
            if label.startswith(KERNEL_PREFIX):
                return f"class={label.removeprefix(KERNEL_PREFIX)}*0.5"
            remedies = {"input": "dataloader=0", "copy": "copies=0", "collective": "collectives=0"}
            return remedies.get(label, "launch=graph")
        return "class=gemm*0.5"

    def _ask_forecast(self, text: str, is_final: bool) -> None:
        """Request the forecast of what is typed, for the step that the path is of, else for the one at the cursor.

        `is_final`: it was submitted, and will be shown.
        """
        state, shown = self.view_state, self._path_panel.shown
        time = state.cursor_time() if shown is None else (shown.path.window.start + shown.path.window.cpu_end) // 2
        steps = state.current_steps() if state.current_trace().steps else []
        inside = (step.number for step in steps if step.start <= time < step.start + step.duration)
        step = next(inside, None)
        self._worker.submit("what-if", partial(self._read_forecast, step, text, is_final))

    def _read_forecast(self, step: int | None, text: str, is_final: bool) -> WhatIfRead:
        if self._forecasts is None:
            module = importlib.import_module("torchprof_tui.ui.explorer.path.shown_forecast")
            self._forecasts = module.ForecastReader(self.trace)
        read: WhatIfRead = self._forecasts.read(step, text, is_final)
        return read

    def _clip_hint(self, text: str) -> str:
        """Clip a hint to half the screen: the other half is for what is typed."""
        return truncate(text, self.size.width // 2)

    def _close_prompt(self, message: str = "") -> None:
        super()._close_prompt()
        self._refresh_widgets(message)

    def _preview_search(self, text: str) -> None:
        problem = self.view_state.search.set_query(text)
        matches = self.view_state.search.matches
        case = f"{CASE_NOTE} · " if is_case_sensitive(text) else ""
        count = "" if matches is None else f"{len(matches):,} found · {case}enter: the next one"
        self._prompt.show_hint(problem or count)
        self._refresh_widgets()

    def compare(self, request: ComparisonRequest) -> None:
        """Ask the app for a comparison of the open trace; two steps are those of one rank."""
        if self._prompt.is_open:
            self._close_prompt()
        if self._lacks_events():
            return
        state, rank = self.view_state, self.view_state.current_rank()
        if not request.other and request.ranks == (None, None) and rank.is_merged:
            request = replace(request, ranks=(rank.number, rank.number))
        is_earlier = bool(request.other) and request.other == getattr(self.app, "earlier_recording", "")
        asked = CompareAsked(replace(request, is_other_first=is_earlier), state.trace, state.trace.label)
        self.post_message(asked)

    def _write_slice(self, name: str) -> None:
        if not name:
            self._close_prompt()
            return
        t0, t1, _ = self.view_state.active_range()
        trace = self.view_state.current_trace()
        self._close_prompt(f"writing {name} …")
        self._worker.answer("slice", partial(slice_export.export_slice, trace, t0, t1, name), self._show_written)

    def _show_written(self, outcome: tuple[str, bool]) -> None:
        line, has_failed = outcome
        self._status.show_message(line, is_warning=has_failed)
