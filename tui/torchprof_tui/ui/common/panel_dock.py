"""The panels below the lanes and the line of their titles. Wide screens show several panels side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TypeAlias

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.strip import Strip

from torchprof_tui.ui.common.painted_widget import PaintedWidget, TextPanel, TextRun, build_strip


@dataclass
class PanelPicked(Message):
    """A click on a panel's tab."""

    panel: str


KEYS_MARK = " ↑↓"  # stands after the title of the panel that the arrow keys act on


Hints: TypeAlias = "Sequence[tuple[str, str]]"  # (key, label) of keys that lead on

PANEL_WEIGHTS = {"cheatsheet": 2.0}
"""Widths of panels relative to one beside them, where two are shown: the cheatsheet has the longest lines."""

NO_OFFSETS: Mapping[str, int] = {}  # all titles in one row


class PanelTabs(PaintedWidget):
    """Paint the titles of the panels; post `PanelPicked` for a click.

    Each shown panel has its title above it; the titles of the others follow the last one.
    """

    def __init__(self, titles: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self._titles = dict(titles)
        self._active = ""
        self._offsets: Mapping[str, int] = {}  # the first cell of each shown panel
        self._has_keys = False
        self._next_keys: Hints = ()
        self._cells_by_panel: dict[str, range] = {}  # of the titles in the last frame

    def show_active(
        self,
        active: str,
        offsets: Mapping[str, int] = NO_OFFSETS,
        has_keys: bool = False,
        next_keys: Hints = (),
    ) -> None:
        """Set the active panel, the first cell of each shown panel, and whether the arrows act on the active one.

        `next_keys`: the keys that lead on from the active one, most useful first.
        """
        state = (active, offsets, has_keys, next_keys)
        if state != (self._active, self._offsets, self._has_keys, self._next_keys):
            self._active, self._offsets, self._has_keys, self._next_keys = state
            self.repaint()

    def paint(self, y: int, width: int) -> Strip:
        palette = self.palette
        order = list(self._titles)
        if len(self._offsets) > 1:  # else all titles stand in one row, the active one among them
            order = [*self._offsets, *(panel for panel in order if panel not in self._offsets)]
        runs: list[TextRun] = []
        used = 0
        self._cells_by_panel = {}
        part = self._find_part(width)

        def draw_line(text: str) -> None:
            """Draw a line: heavy, in the accent, above the panel that has the keys."""
            nonlocal used
            first, used = used, used + len(text)
            ends = sorted({first, used, *(cell for cell in part if first < cell < used)})
            for start, end in pairwise(ends):
                piece, is_focus = text[start - first : end - first], part[0] <= start < part[1] and self._has_keys
                heavy = piece.replace("─", "━").replace("┬", "┳")
                runs.append((heavy, palette.cursor) if is_focus else (piece, palette.line))

        def fill(end: int) -> None:
            """Draw the line as far as a cell, with the next keys at the end of the part of the active panel."""
            nonlocal used
            hints = self._fit_next_keys(end - used - 2) if end == part[1] else []
            cells = sum(cell_len(text) for text, _ in hints)
            draw_line("─" * (end - used - cells - bool(hints)))
            runs.extend(hints)
            used += cells
            draw_line("─" * (end - used))

        for panel in order:
            start = self._offsets.get(panel, 0) if len(self._offsets) > 1 else 0
            if not runs or start:
                fill(start)
                draw_line("┬─" if start else "──")
            text, style = self._format_title(panel)
            runs.append((text, style))
            self._cells_by_panel[panel] = range(used, used + len(text))
            used += len(text)
            draw_line("─")
        fill(max(width, used))
        return build_strip(runs, width, palette.line)

    def _format_title(self, panel: str) -> TextRun:
        palette, active = self.palette, panel == self._active
        mark = KEYS_MARK if active and self._has_keys else ""
        if active:
            return f"[{self._titles[panel]}{mark}]", palette.focused if mark else palette.active
        return f" {self._titles[panel]} ", palette.strong if panel in self._offsets else palette.muted

    def _fit_next_keys(self, room: int) -> list[TextRun]:
        hints: list[TextRun] = []
        for key, label in self._next_keys:
            cells = cell_len(key) + cell_len(label) + 3
            if cells <= room:
                hints += [(f" {key}", self.palette.key), (f" {label} ", self.palette.muted)]
                room -= cells
        return hints

    def _find_part(self, width: int) -> tuple[int, int]:
        """Find the cells above the active panel: (first, end)."""
        if len(self._offsets) < 2:
            return 0, width
        first = self._offsets.get(self._active, 0)
        return first, next((offset for offset in sorted(self._offsets.values()) if offset > first), width)

    def on_click(self, event: events.Click) -> None:
        event.stop()
        for panel, cells in self._cells_by_panel.items():
            if event.x in cells:
                self.post_message(PanelPicked(panel))


class Dock(Vertical):
    """Hold the panels (name, title, panel) and their titles; `show_panel` makes one the active panel.

    With room for several, those that were active most recently are shown beside it.
    """

    DEFAULT_CSS = "Dock { height: 8; } Dock Horizontal { height: 1fr; width: 100%; }"

    def __init__(
        self,
        panels: Sequence[tuple[str, str, TextPanel]],
        shown_beside: Sequence[str] = (),
        *,
        id: str | None = None,  # noqa: A002
    ) -> None:
        """Hold the panels, the first one active. `shown_beside`: shown first where there is room, in this order."""
        super().__init__(id=id)
        self._panels = {name: panel for name, _, panel in panels}
        self._tabs = PanelTabs([(name, title) for name, title, _ in panels])
        first = panels[0][0]
        self._recent = list(dict.fromkeys([first, *shown_beside, *self._panels]))  # the active panel comes first
        self._count, self._width = 1, 0
        self._has_keys = False
        self._next_keys: Hints = ()

    def compose(self) -> ComposeResult:
        yield self._tabs
        with Horizontal():
            yield from self._panels.values()

    def on_mount(self) -> None:
        self._show()

    @property
    def active_name(self) -> str:
        return self._recent[0]

    @property
    def active_panel(self) -> TextPanel:
        return self._panels[self._recent[0]]

    def is_shown(self, name: str) -> bool:
        """Return whether the panel of this name is shown, active or beside the active one."""
        return name in self._recent[: self._count]

    def show_side_by_side(self, count: int, width: int) -> None:
        """Show this many panels in a dock of `width` cells."""
        if (count, width) != (self._count, self._width):
            self._count, self._width = count, width
            self._show()

    def mark_keys(self, has_keys: bool, next_keys: Hints = ()) -> None:
        """Mark whether the arrow keys act on the active panel, and show the keys that lead on from it."""
        if has_keys != self._has_keys:
            self._has_keys = has_keys
            self.active_panel.set_divided(self._shown_offsets().get(self.active_name, 0) > 0, has_keys)
        self._next_keys = next_keys
        self._show_titles()

    @property
    def names(self) -> list[str]:
        return list(self._panels)

    def show_panel(self, name: str) -> None:
        """Make the panel of this name the active one, and show it."""
        self._recent.remove(name)
        self._recent.insert(0, name)
        self._show()

    def show_previous(self) -> None:
        """Make the panel the active one that was it before, and the active one the last choice."""
        self._recent.append(self._recent.pop(0))
        self._show()

    def cycle_panel(self, direction: int) -> None:
        """Make the next panel (1) or the previous one (-1) the active one."""
        names = list(self._panels)
        self.show_panel(names[(names.index(self.active_name) + direction) % len(names)])

    def _shown_offsets(self) -> dict[str, int]:
        """Return the first cell of each shown panel, in the order of the titles."""
        shown = [name for name in self._panels if self.is_shown(name)]
        weights = [PANEL_WEIGHTS.get(name, 1.0) if len(shown) == 2 else 1.0 for name in shown]
        ends = accumulate(weights)
        return {
            name: int(self._width * (end - weight) / sum(weights))
            for name, weight, end in zip(shown, weights, ends, strict=True)
        }

    def _show(self) -> None:
        offsets = self._shown_offsets()
        ends = [*list(offsets.values())[1:], self._width]
        widths = {name: end - start for (name, start), end in zip(offsets.items(), ends, strict=True)}
        for name, panel in self._panels.items():
            panel.display = name in offsets
            panel.set_divided(offsets.get(name, 0) > 0, self._has_keys and name == self.active_name)
            if name in widths:
                panel.styles.width = widths[name]
                panel.repaint()  # what it says may depend on what is beside it
        self._show_titles()

    def _show_titles(self) -> None:
        self._tabs.show_active(self.active_name, self._shown_offsets(), self._has_keys, self._next_keys)

    def on_click(self, event: events.Click) -> None:
        """Make the panel that was clicked the active one."""
        for name, panel in self._panels.items():
            if panel.display and panel.region.contains(event.screen_x, event.screen_y):
                self.post_message(PanelPicked(name))
