"""The dock below the lanes: shows one panel at a time, chosen by its tab."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.strip import Strip

from torchprof_tui.ui.common.event_styles import Palette
from torchprof_tui.ui.common.messages import PanelPicked
from torchprof_tui.ui.common.painted_widget import PaintedWidget, TextRun, build_strip
from torchprof_tui.ui.common.text_panel import TextPanel


class PanelTabs(PaintedWidget):
    """Paint the titles of the panels; post `PanelPicked` for a click."""

    def __init__(self, titles: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self._titles = titles
        self._active = ""

    def show_active(self, active: str) -> None:
        if active != self._active:
            self._active = active
            self.repaint()

    def paint(self, y: int, width: int) -> Strip:
        palette = self.palette
        runs: list[TextRun] = [("──", palette.line)]
        for panel, title in self._titles:
            active = panel == self._active
            runs += [
                (f"[{title}]" if active else f" {title} ", palette.active if active else palette.muted),
                ("─", palette.line),
            ]
        return build_strip([*runs, ("─" * width, palette.line)], width, palette.line)

    def on_click(self, event: events.Click) -> None:
        event.stop()
        column = 2
        for panel, title in self._titles:
            if column <= event.x < column + len(title) + 2:
                self.post_message(PanelPicked(panel))
                return
            column += len(title) + 3


class Dock(Vertical):
    """Hold the panels (name, title, panel) and their tabs; `show_panel` brings one to the front."""

    DEFAULT_CSS = "Dock { height: 8; }"

    def __init__(self, panels: Sequence[tuple[str, str, TextPanel]], *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._panels = {name: panel for name, _, panel in panels}
        self._tabs = PanelTabs([(name, title) for name, title, _ in panels])
        self._active_name = panels[0][0]

    def compose(self) -> ComposeResult:
        yield self._tabs
        yield from self._panels.values()

    def on_mount(self) -> None:
        self.show_panel(self._active_name)

    @property
    def active_name(self) -> str:
        return self._active_name

    @property
    def active_panel(self) -> TextPanel:
        return self._panels[self._active_name]

    def show_panel(self, name: str) -> None:
        """Show the panel of this name and hide the others."""
        self._active_name = name
        for panel_name, panel in self._panels.items():
            panel.display = panel_name == name
        self._tabs.show_active(name)

    def cycle_panel(self, direction: int) -> None:
        """Show the next panel (1) or the previous one (-1)."""
        names = list(self._panels)
        self.show_panel(names[(names.index(self._active_name) + direction) % len(names)])

    def set_palette(self, palette: Palette) -> None:
        self._tabs.palette = palette
        for panel in self._panels.values():
            panel.palette = palette
