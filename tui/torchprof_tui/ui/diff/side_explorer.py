"""The full explorer of one side of a comparison; esc goes back to the comparison."""

from __future__ import annotations

from pathlib import Path

from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.explorer import explorer_screen
from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen
from torchprof_tui.ui.explorer.layout import PanelSize


class SideExplorer(ExplorerScreen):
    """Show a trace at an event (-1: as a whole) with a panel ("" for the details)."""

    CSS_PATH = str(Path(explorer_screen.__file__).with_name("explorer_screen.tcss"))
    TITLE = "explorer of a side"

    def __init__(self, trace: Trace, letter: str, event: int, panel: str = "") -> None:
        super().__init__(trace)
        self._letter, self._event, self._first_panel = letter, event, panel

    def on_mount(self) -> None:
        if self._event >= 0:
            self.call_after_refresh(self._show_event)
        if self._first_panel:
            self._dock.show_panel(self._first_panel)

    def _show_event(self) -> None:
        self.view_state.fit_event(self._event)
        self._refresh_widgets(f"{self._letter} of the comparison: esc goes back to it")

    def action_clear(self) -> None:
        state = self.view_state
        if self.panel_size is PanelSize.NORMAL and state.mark is None and state.search.matches is None:
            self.dismiss()
        else:
            super().action_clear()
