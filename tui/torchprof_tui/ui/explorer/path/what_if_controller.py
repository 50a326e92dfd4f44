"""Controller of "what if" on the screen: suggests a scenario, requests its forecast, and shows it in the path's panel.

The step is predicted on a worker thread by a module that is imported there.
"""

from __future__ import annotations

import importlib
from functools import partial
from typing import TYPE_CHECKING, Any

from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.ui.common.debounced_worker import DebouncedWorker
from torchprof_tui.ui.explorer.path.path_panel import PathPanel
from torchprof_tui.ui.lanes.view_state import ViewState

if TYPE_CHECKING:
    from textual.screen import Screen

    from torchprof_tui.ui.explorer.path.shown_forecast import WhatIfRead

FORMS = "empty: none · class=gemm*0.5; sync=0; launch=graph; compile; op=NAME*0; rank=1*0.5; late-rank=0; pattern=ID"
KERNEL_PREFIX = "kernel: "
NO_STEP = "what-if predicts a step: there is no step on screen"


class WhatIfController:
    """Own the scenarios of a screen. They are for the step that the path is of, on all ranks."""

    def __init__(self, screen: Screen[Any], view_state: ViewState, panel: PathPanel) -> None:
        self._view_state, self._panel = view_state, panel
        self._debounced_worker = DebouncedWorker(screen)
        self._reader: Any = None
        self.text = ""
        """The scenarios that are shown, as typed."""

    def suggest(self) -> str:
        """Suggest what to type: the scenarios so far, and one for the kind under the cursor or the selected event."""
        scenario = self._suggest_scenario()
        if not self.text:
            return scenario
        return f"{self.text}; {scenario}" if scenario and scenario not in self.text else self.text

    def _suggest_scenario(self) -> str:
        shown, state = self._panel.shown, self._view_state
        if state.selected >= 0:
            event = state.trace.event(state.selected)
            if event.kind in (*GPU_WORK, Kind.OP, Kind.ANNOTATION):
                return f"event={state.selected}*0.5"
        if shown is not None and self._panel.kind >= 0:
            label = shown.path.shares[self._panel.kind].label
            if label.startswith(KERNEL_PREFIX):
                return f"class={label.removeprefix(KERNEL_PREFIX)}*0.5"
            return {"input": "dataloader=0", "copy": "copies=0", "collective": "collectives=0"}.get(
                label, "launch=graph"
            )
        return "class=gemm*0.5"

    def ask(self, text: str, is_final: bool) -> None:
        """Request the forecast of what is typed; `is_final`: it was submitted, and will be shown."""
        step = self._find_step()
        self._debounced_worker.submit("what-if", partial(self._read, step, text, is_final))

    def _find_step(self) -> int | None:
        """Find the number of the step that the path is of, else of the one at the cursor; None for none."""
        state = self._view_state
        steps = state.current_steps()
        shown = self._panel.shown
        time = state.cursor_time() if shown is None else (shown.path.window.start + shown.path.window.cpu_end) // 2
        inside = [step.number for step in steps if step.start <= time < step.start + step.duration]
        return inside[0] if inside and state.current_trace().steps else None

    def _read(self, step: int | None, text: str, is_final: bool) -> WhatIfRead:
        """Predict; called on a worker thread."""
        if self._reader is None:
            module = importlib.import_module("torchprof_tui.ui.explorer.path.shown_forecast")
            self._reader = module.ForecastReader(self._view_state.trace)
        read: WhatIfRead = self._reader.read(step, text, is_final)
        return read

    def show(self, read: WhatIfRead) -> None:
        """Show a forecast in the panel."""
        self.text = read.text.strip()
        self._panel.show_forecast(read.forecast)

    def clear(self) -> None:
        """Forget all scenarios."""
        self.text = ""
        self._panel.show_forecast(None)
