"""Screen of all ranks of a job: a heat map of ranks and steps, the findings, and lists of slow ranks."""

from __future__ import annotations

import re
from dataclasses import dataclass

from textual.message import Message

from torchprof_tui.analysis.fleet.heat_map import Measure
from torchprof_tui.ui.common.panel_dock import PanelPicked
from torchprof_tui.ui.common.prompt_input import PromptClosed, PromptSubmitted
from torchprof_tui.ui.common.row_list import RowPicked
from torchprof_tui.ui.common.status_line import format_copy_message
from torchprof_tui.ui.fleet.fleet_keys import BINDINGS
from torchprof_tui.ui.fleet.fleet_lists import FleetList
from torchprof_tui.ui.fleet.fleet_map import CELL_WIDTHS, CellPicked, format_measure
from torchprof_tui.ui.fleet.fleet_screen_view import FleetScreenView
from torchprof_tui.ui.fleet.fleet_worker import FleetSource

FIND_PROMPT = "find"
FIND_HINT = "a rank, 17, or a part of a host's name · ↑ earlier"
NOT_READ = "nothing to see yet: the ranks are being read"
MAX_VIEWS = 50
MAX_OPENED = 16
"""Ranks that are opened together: the explorer holds all of their events."""


class FleetScreen(FleetScreenView):
    """The lowest screen of `torchprof-tui fleet`. Posts `RanksAsked`."""

    BINDINGS = BINDINGS
    TITLE = "fleet"
    help_topic = "fleet"

    @dataclass
    class RanksAsked(Message):
        """Open these traces at a step; `step`: its number, -1 for the start."""

        specs: tuple[str, ...]
        step: int

    def __init__(self, source: FleetSource) -> None:
        super().__init__(source)
        self._views: list[tuple[str, tuple[int, ...], str, tuple[tuple[int, ...], int]]] = []
        self._searched = ""

    def _has_report(self) -> bool:
        """Return whether there are ranks; say so where there are none."""
        if self.report is None or not self.map.content or not self.map.content.labels:
            self._status.show_message(self._problem or NOT_READ)
            return False
        return True

    # -- moving --------------------------------------------------------------------------------------------

    def _move_to(self, row: int, step: int, edge: str) -> None:
        if not self._has_report():
            return
        content = self.map.content
        assert content is not None
        row = min(max(row, 0), len(content.labels) - 1)
        step = min(max(step, 0), len(content.steps) - 1)
        is_moved = (row, step) != (self.map.cursor_row, self.map.cursor_step)
        self._status.show_message("" if is_moved else edge)
        if is_moved:
            self._has_moved = True
            self.map.show(content, row, step)
            self.show_cursor()

    def action_move(self, rows: int) -> None:
        self._move_to(self.map.cursor_row + rows, self.map.cursor_step, f"the {'first' if rows < 0 else 'last'} row")

    def action_page(self, pages: int) -> None:
        self.action_move(pages * self.map.page_rows)

    def action_edge(self, last: bool) -> None:
        row = len(self.map.content.labels) if last and self.map.content else 0
        self._move_to(row, self.map.cursor_step, f"the {'last' if last else 'first'} row")

    def action_step(self, steps: int) -> None:
        self._move_to(self.map.cursor_row, self.map.cursor_step + steps, f"the {'first' if steps < 0 else 'last'} step")

    def action_pan(self, pages: int) -> None:
        self.action_step(pages * self.map.page_steps)

    def action_zoom(self, steps: int) -> None:
        if not self._has_report():
            return
        zoom = min(max(self.map.zoom + steps, 0), len(CELL_WIDTHS) - 1)
        self._status.show_message(
            "" if zoom != self.map.zoom else f"the {'widest' if steps > 0 else 'narrowest'} cells"
        )
        self._has_zoomed, self.map.zoom = True, zoom
        self.map.repaint()

    def on_cell_picked(self, message: CellPicked) -> None:
        self._move_to(message.row, message.step, "")
        if message.opened:
            self.action_open()

    # -- what is shown -------------------------------------------------------------------------------------

    def action_measure(self, direction: int) -> None:
        if self._has_report():
            measures = list(Measure)
            self.measure = measures[(measures.index(self.measure) + direction) % len(measures)]
            self._status.show_message(f"map: {self.measure.value}")
            self.refresh_view()

    def _save_view(self) -> None:
        view = (self.grouping_name, self.inside, self.inside_label, self.find_cursor())
        self._views = [*self._views[1 - MAX_VIEWS :], view]

    def action_group(self) -> None:
        if not self._has_report():
            return
        names = [each.name for each in self.groupings]
        if len(names) == 1:
            self._status.show_message("no groups are known: neither hosts nor process groups are recorded")
            return
        self._save_view()
        known = self.grouping_name if self.grouping_name in names else names[0]
        self.grouping_name, self.inside = names[(names.index(known) + 1) % len(names)], ()
        self._status.show_message(f"rows by {self.grouping_name}")
        self.refresh_view()

    def action_list(self, direction: int) -> None:
        lists = list(FleetList)
        self._show_list(lists[(lists.index(self.which) + direction) % len(lists)])

    def on_panel_picked(self, message: PanelPicked) -> None:
        self._show_list(FleetList(message.panel))

    def _show_list(self, which: FleetList) -> None:
        if self._has_report():
            self.which = which
            self._tabs.show_active(which.value)
            self._status.show_message("")
            self.request_list()

    # -- the list ------------------------------------------------------------------------------------------

    def action_entry(self, distance: int) -> None:
        """Go to the first line of another entry, and show it on the map."""
        if not self._has_report():
            return
        rows, at = self._list.rows, self.rows.cursor
        if not rows:
            self._status.show_message("nothing is listed")
            return
        if not self._views and at == 0 and distance > 0 and not self._is_at(0):
            self._show_entry(0)
            return
        at += distance
        while 0 <= at < len(rows) and not rows[at].is_first:
            at += distance
        if not 0 <= at < len(rows):
            self._status.show_message(f"the {'last' if distance > 0 else 'first'} entry")
            self._show_entry(self.rows.cursor, say=False)
            return
        self.rows.move_to(at)
        self._show_entry(at)

    def _is_at(self, row: int) -> bool:
        """Return whether the map's cursor is on the ranks of an entry."""
        assert self.report is not None
        numbers = set(self.report.fleet.ranks[list(self._list.rows[row].ranks)].tolist())
        return not numbers or bool(numbers & set(self.find_cursor()[0]))

    def _show_entry(self, row: int, say: bool = True) -> None:
        entry = self._list.rows[row]
        if say:
            self._status.show_message("")
        if entry.ranks or entry.step is not None:
            self._has_moved = True
            self._save_view()
            self.reveal(entry.ranks, entry.step)

    def on_row_picked(self, message: RowPicked) -> None:
        if self._has_report() and self._list.rows:
            self._show_entry(message.row)

    # -- choosing and opening ------------------------------------------------------------------------------

    def action_choose(self) -> None:
        if self._has_report():
            ranks = set(self.find_cursor()[0])
            is_chosen = ranks <= self.chosen
            self.chosen = self.chosen - ranks if is_chosen else self.chosen | ranks
            self._status.show_message(f"ranks marked: {len(self.chosen):,}; enter opens them, esc unmarks")
            self.refresh_view()

    def action_open(self) -> None:
        if not self._has_report():
            return
        numbers, step = self.find_cursor()
        if not self.chosen and len(numbers) > 1:
            self._enter_group(numbers)
            return
        asked = sorted(self.chosen) or list(numbers)
        if len(asked) > MAX_OPENED:
            self._status.show_message(
                f"{len(asked):,} ranks are marked; at most {MAX_OPENED} open together", is_warning=True
            )
            return
        assert self.report is not None
        files = {sketch.rank: sketch.file for sketch in self.report.fleet.sketches}
        self.post_message(self.RanksAsked(tuple(files[number] for number in asked if number in files), step))

    def _enter_group(self, numbers: tuple[int, ...]) -> None:
        content = self.map.content
        assert content is not None
        self._save_view()
        self.inside, self.inside_label = numbers, content.labels[self.map.cursor_row]
        self._status.show_message(f"the ranks of {self.inside_label}; backspace: all rows")
        self.refresh_view()

    # -- finding -------------------------------------------------------------------------------------------

    def action_search(self) -> None:
        if self._has_report():
            self.add_class("asking")
            self._prompt.open(FIND_PROMPT, FIND_HINT, self._searched, replace=True)

    def _close_prompt(self) -> None:
        self.remove_class("asking")
        self._prompt.close()

    def on_prompt_closed(self, message: PromptClosed) -> None:
        self._close_prompt()

    def on_prompt_submitted(self, message: PromptSubmitted) -> None:
        self._close_prompt()
        self._searched = message.text.strip()
        if self._searched:
            self._go_to_match(0)

    def action_match(self, distance: int) -> None:
        if self._has_report():
            if self._searched:
                self._go_to_match(distance)
            else:
                self._status.show_message("nothing was searched for: / finds a rank or a host")

    def _find_rows(self) -> list[int]:
        """Find the rows that are searched for: a rank by its whole number, else a part of a label or of a host."""
        content, grouping = self.map.content, self._grouping
        assert content is not None
        assert grouping is not None
        assert self.report is not None
        text = self._searched.casefold()
        number = re.fullmatch(r"(?:rank\s*)?#?([0-9]{1,9})", text)
        if number:
            ranks = self.report.fleet.ranks
            return [row for row, each in enumerate(grouping.members) if int(number[1]) in ranks[each]]
        both = (f"{label} {note}" for label, note in zip(content.labels, content.notes, strict=True))
        return [row for row, line in enumerate(both) if text in line.casefold()]

    def _go_to_match(self, distance: int) -> None:
        found, at = self._find_rows(), self.map.cursor_row
        if not found:
            self._status.show_message(f"no row with {self._searched!r}", is_warning=True)
            return
        if distance >= 0:
            row = next((row for row in found if row >= at + distance), found[0])
        else:
            row = next((row for row in reversed(found) if row < at), found[-1])
        self._save_view()
        self._move_to(row, self.map.cursor_step, "")
        self._status.show_message(f"{found.index(row) + 1:,} of {len(found):,} rows with {self._searched!r}")

    # -- leaving and copying -------------------------------------------------------------------------------

    def action_go_back(self) -> None:
        if not self._views:
            self._status.show_message("no earlier view: there was no jump yet; q: quit")
            return
        self.grouping_name, self.inside, self.inside_label, at = self._views.pop()
        self._status.show_message("")
        self.refresh_view(at)

    def action_back(self) -> None:
        """Stop reading; else forget the search, the marks, then the group that was entered."""
        if self.is_reading:
            self._sketcher.cancel()
            self._status.show_message("stopping …")
        elif self._searched:
            self._searched = ""
            self._status.show_message("")
        elif self.chosen:
            self.chosen = frozenset()
            self._status.show_message("")
            self.refresh_view()
        elif self.inside:
            self.inside = ()
            self._status.show_message("")
            self.refresh_view()
        else:
            self._status.show_message("nothing to leave; q: quit")

    def action_copy(self, everything: bool) -> None:
        if not self._has_report():
            return
        content = self.map.content
        assert content is not None
        if everything:
            text = "".join(f"{line}\n" for line in (self._list.header, *(row.text for row in self._list.rows)))
            label = f"the list of {self.which.value}"
        else:
            row = self.map.cursor_row
            values = [format_measure(value, self.measure) for value in content.values[row].tolist()]
            text = "\t".join([f"{content.labels[row]} {content.notes[row]}".rstrip(), *values])
            label = f"{content.labels[row]}, {self.measure.value} of {len(values):,} steps"
        self.app.copy_to_clipboard(text)
        self._status.show_message(format_copy_message(label))
