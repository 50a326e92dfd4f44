"""Screen of all ranks of a job: a heat map of ranks and steps, the findings, and lists of slow ranks."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from functools import partial

import numpy as np
from textual import events
from textual.app import ComposeResult
from textual.containers import Container, Vertical
from textual.geometry import Size
from textual.message import Message

from torchprof_fleet.analysis.heat_map import (
    Grouping,
    Measure,
    find_levels,
    group_by_rank,
    list_groupings,
    measure_cells,
)
from torchprof_fleet.analysis.report import FleetReport
from torchprof_fleet.ui.fleet_lists import FleetList, ListContent, build_list
from torchprof_fleet.ui.fleet_map import (
    CELL_WIDTHS,
    CellPicked,
    FleetMap,
    MapContent,
    format_legend,
    format_measure,
)
from torchprof_fleet.ui.fleet_worker import FleetCompared, FleetSketcher, FleetSource, SketchProgress
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.child_screen import MAX_VIEWS, ChildScreen, cycle
from torchprof_tui.ui.common.guides import Guide
from torchprof_tui.ui.common.keys import parse_hints, parse_keys
from torchprof_tui.ui.common.name_display import truncate
from torchprof_tui.ui.common.painted_widget import RowList, RowPicked, TextRun
from torchprof_tui.ui.common.panel_dock import PanelPicked, PanelTabs
from torchprof_tui.ui.common.status_line import PromptSubmitted, StatusLine

KEYS = parse_keys("""\
= move.up move.down
move.left  step(-1)
move.right  step(1)  step: the next step
move.previous-step  step(-1)
move.next-step  step(1)  step: the next step
= move.page-up move.page-down move.first move.last
time.zoom-in  zoom(1)  wider: wider cells; the widest show the value
time.zoom-out  zoom(-1)
time.pan-left  pan(-1)  earlier: a page of steps back
time.pan-right  pan(1)
view.switch  measure(1)  measure: step time, busy, exposed, lateness
view.group  group  group by: rows by rank, host, DP, TP, PP or EP
find.mark  choose  mark: mark the ranks of the row, or unmark
move.open  open  open: open the marked ranks, else the one of the row, at the step; of a group: list its ranks
move.next-panel !  list(1)  list: the next list: findings, ranks, …
move.previous-panel !  list(-1)
= move.back
find.search  search  find: find a rank or a host
find.next  match(1)  next: the next row that was searched for, else the next entry of the list, on the map
find.previous  match(-1)
= write.copy write.copy-all
move.clear  back  back: stop reading; else forget the search, the marks, the group
""")

HINTS = parse_hints(
    "? = help; q = quit; enter = open; tab = list; n N = entries, matches; x = measure; b = group by; / = find; m = "
    "mark; w s = cells; y Y = copy"
)

GUIDE = Guide(
    "All ranks of a job",
    (
        ("map", "a row for each rank, or (g) for each host, DP, TP, PP or EP position: then its worst rank"),
        ("· ░ ▒ ▓ █", "from usual to far off; the line below the map has the limits. A blank: no such step"),
        ("▶ ▼ *", "the row and the step of the cursor; marked ranks, which enter opens together"),
        ("lateness", "by how much later than the median rank it comes to the collectives, as a share of the step"),
        ("GPU, CPU", "the time of the same kernels or ops over the median rank's: 1.30 × is 30 % slower"),
        ("waits", "who came last to collectives, how long the others waited, and which of them longest"),
        ("what if", "the step time if those ranks were as fast as the median of the others"),
        ("speed", "kernels and ops of the ranks under the cursor; ▲ slower than on the median rank"),
    ),
    ("collective", "exposed"),
)


WIDE_CELLS = 150  # width from which the lists are beside the map

READING = "reading …"
MIN_LIST_ROWS, MAX_LIST_ROWS = 6, 24
MIN_HEADLINE_LINES = 30
"""Lines from which the first finding has a line of its own; the list of findings is below the map anyway."""


@dataclass
class ListBuilt(Message):
    """A list was built from a report, for a width and the ranks under the cursor."""

    key: tuple[object, ...]
    content: ListContent


FIND_PROMPT = "find"
FIND_HINT = "a rank, 17, or a part of a host's name · ↑ earlier"
NOT_READ = "nothing to see yet: the ranks are being read"
MAX_OPENED = 16  # ranks that are opened together: the explorer holds all of their events


class FleetScreen(ChildScreen):
    """The lowest screen of `torchprof-tui fleet`. Posts `RanksAsked`."""

    BINDINGS = KEYS
    TITLE = "fleet"
    help_topic = GUIDE
    CSS_PATH = "fleet_screen.tcss"

    @dataclass
    class RanksAsked(Message):
        """Open these traces at a step; `step`: its number, -1 for the start."""

        specs: tuple[str, ...]
        step: int

    def __init__(self, source: FleetSource) -> None:
        super().__init__()
        self.source = source
        self.report: FleetReport | None = None
        self.measure = Measure.LATENESS
        self.grouping_name = "rank"
        self.inside: tuple[int, ...] = ()  # numbers of the ranks of the group that was entered
        self.inside_label = ""
        self.chosen: frozenset[int] = frozenset()  # numbers of ranks
        self.which = FleetList.FINDINGS
        self.is_reading = True
        self._problem = ""
        self._progress = ""
        self.groupings: list[Grouping] = []  # of the rows, by rank first
        self._grouping: Grouping | None = None
        self._list = ListContent("", ())
        self._list_key: tuple[object, ...] = ()
        self._has_zoomed = self._has_moved = False
        self._title = StatusLine(id="fleet-title")
        self._headline = StatusLine(id="fleet-headline")
        self.map = FleetMap(id="fleet-map")
        self._cell = StatusLine(id="fleet-cell")
        self._legend = StatusLine(id="fleet-legend")
        self._tabs = PanelTabs([(each.value, each.value) for each in FleetList])
        self.rows = RowList(self._build_row, self._build_header, id="fleet-rows")
        self._sketcher = FleetSketcher(source, self.post_message)
        self._views: deque[tuple[str, tuple[int, ...], str, tuple[tuple[int, ...], int]]] = deque(maxlen=MAX_VIEWS)
        self._searched = ""

    def compose(self) -> ComposeResult:
        yield from (self._title, self._headline)
        with Container(id="fleet-body"):
            with Vertical(id="fleet-left"):
                yield from (self.map, self._cell, self._legend)
            with Vertical(id="fleet-right"):
                yield from (self._tabs, self.rows)
        yield from (self._status, self._prompt)

    def on_mount(self) -> None:
        self.follow_theme(HINTS)
        self._tabs.show_active(self.which.value)
        self._progress = f"sketched 0 of {self.source.file_count:,} ranks"
        self.map.empty_text = self.rows.empty_text = READING
        self._arrange(self.app.size)
        self.refresh_view()
        self._sketcher.start()

    def on_unmount(self) -> None:
        self._sketcher.cancel()

    def on_resize(self, event: events.Resize) -> None:
        self._arrange(event.size)
        self.call_after_refresh(self.refresh_view)

    def _arrange(self, size: Size) -> None:
        """Place the lists beside the map where both have room, else below it."""
        is_wide = size.width >= WIDE_CELLS
        self.query_one("#fleet-body").set_class(is_wide, "wide")
        self._headline.display = size.height >= MIN_HEADLINE_LINES
        lines = min(max((size.height - 4) * 9 // 20, MIN_LIST_ROWS), MAX_LIST_ROWS)
        self.query_one("#fleet-right").styles.height = "1fr" if is_wide else lines

    # -- reading -------------------------------------------------------------------------------------------

    def on_sketch_progress(self, message: SketchProgress) -> None:
        left = "" if message.time_left is None else f", {format_duration(message.time_left * 1e9)} left"
        if self.is_reading:
            self._progress = f"sketched {message.done:,} of {message.total:,} ranks{left}"
            self._show_title()

    def on_fleet_compared(self, message: FleetCompared) -> None:
        at = self.find_cursor()
        self.is_reading = not message.is_last
        if message.is_last:
            self._progress = "stopped: what is sketched is kept for the next time" if message.is_cancelled else ""
        if message.report is None:
            self._problem = message.problem
            self.map.empty_text = self.rows.empty_text = f"{message.problem}. q: quit"
            self._show_title()
            self.map.repaint()
            self.rows.repaint()
            return
        is_first, self.report = self.report is None, message.report
        self.groupings = [group_by_rank(message.report.fleet), *list_groupings(message.report)]
        self._list_key = ()
        self.refresh_view(at)
        if is_first or not self._has_zoomed:
            self.map.choose_zoom()
            self.map.repaint()
        findings = message.report.findings
        if message.is_last and not self._has_moved and findings and findings[0].ranks:
            step = findings[0].step
            self.reveal(findings[0].ranks, None if step is None else self.find_step(step))

    # -- the map -------------------------------------------------------------------------------------------

    def find_cursor(self) -> tuple[tuple[int, ...], int]:
        """Return the numbers of the ranks under the cursor, and of the step: they stay when more ranks come."""
        report, grouping = self.report, self._grouping
        if report is None or grouping is None or not grouping.members:
            return (), -1
        members = grouping.members[min(self.map.cursor_row, len(grouping.members) - 1)]
        step = report.fleet.steps[min(self.map.cursor_step, len(report.fleet.steps) - 1)]
        return tuple(report.fleet.ranks[members].tolist()), int(step)

    def find_step(self, number: int) -> int:
        """Return the index of a step, of the next one where there is none of this number."""
        assert self.report is not None
        steps = self.report.fleet.steps
        return min(int(np.searchsorted(steps, number)), len(steps) - 1)

    def refresh_view(self, at: tuple[tuple[int, ...], int] | None = None) -> None:
        """Show everything; `at`: where the cursor is to be, as `find_cursor` says, else where it is."""
        report = self.report
        self._show_title()
        if report is None:
            return
        if at is None:
            at = self.find_cursor()
        fleet = report.fleet
        if self.inside:
            grouping = group_by_rank(fleet, np.flatnonzero(np.isin(fleet.ranks, self.inside)).tolist())
        else:
            known = {each.name: each for each in self.groupings}
            grouping = known.get(self.grouping_name) or known["rank"]
        self._grouping = grouping
        values = grouping.reduce(measure_cells(report, self.measure), self.measure)
        chosen = np.flatnonzero(np.isin(fleet.ranks, list(self.chosen)))
        marked = [row for row, each in enumerate(grouping.members) if len(chosen) and np.isin(each, chosen).all()]
        members = grouping.members
        notes = (fleet.hosts[int(each[0])] if len(each) == 1 else f"{len(each):,} ranks" for each in members)
        content = MapContent(
            self.measure,
            grouping.labels,
            tuple(notes),
            values,
            find_levels(values, self.measure, fleet.step_time),
            fleet.steps,
            frozenset(marked),
            f"{self.inside_label}: rank" if self.inside else grouping.name,
        )
        row = next((row for row, each in enumerate(members) if fleet.ranks[each[0]] in at[0]), 0)
        if at[0]:
            first = [row for row, each in enumerate(members) if at[0][0] in fleet.ranks[each]]
            row = first[0] if first else row
        step = self.find_step(at[1]) if at[1] >= 0 or at[0] else 0
        self.map.show(content, row, step)
        self.show_cursor()

    def show_cursor(self) -> None:
        """Show what is under the cursor, and the list, which may be about it."""
        report, content = self.report, self.map.content
        if report is None or content is None:
            return
        if content.labels:
            row, step = self.map.cursor_row, self.map.cursor_step
            number = content.steps[step]
            where = "in the whole recording" if number < 0 else f"in step {number}"
            value = format_measure(float(content.values[row, step]), self.measure)
            note = content.notes[row]
            who = f"{content.labels[row]} ({note})" if note else content.labels[row]
            worst = "" if len(content.labels) == len(report.fleet) or self.inside else " of its worst rank"
            self._cell.show_state(f"{who}, {self.measure.value}{worst} {where}: {value}")
        self._legend.show_state(format_legend(self.measure, report.fleet.step_time))
        self.request_list()

    def reveal(self, ranks: tuple[int, ...], step: int | None) -> None:
        """Put the cursor on the first of some ranks (indexes), and on a step (index) where there is one."""
        report = self.report
        if report is None:
            return
        numbers = tuple(report.fleet.ranks[list(ranks)].tolist()) if ranks else self.find_cursor()[0]
        if self.inside and not set(numbers) & set(self.inside):
            self.inside = ()
        at = self.map.cursor_step if step is None else step
        self.refresh_view((numbers, int(report.fleet.steps[at])))

    # -- lines ---------------------------------------------------------------------------------------------

    def _show_title(self) -> None:
        report = self.report
        if report is None:
            self._title.show_state(f"fleet {self.source.label}: {self._progress or self._problem}")
            self._headline.show_state("")
            return
        fleet = report.fleet
        of = f" of {fleet.world_size:,}" if fleet.world_size else ""
        host_count, missing_count = len(fleet.host_members), len(fleet.missing_ranks)
        hosts = f", {host_count:,} host{'s' if host_count > 1 else ''}" if host_count else ""
        missing = f" · no trace of {missing_count:,} ranks" if missing_count and not self.is_reading else ""
        progress = f"{self._progress} · " if self._progress else ""
        text = f"{progress}{len(fleet):,}{of} ranks{hosts}, {format_duration(fleet.step_time)} per step{missing}"
        self._title.show_state(text)
        count = len(report.findings)
        more = f" (and {count - 1} more)" if count > 1 else ""
        so_far = "so far: " if self.is_reading else ""
        self._headline.show_state(
            f"{so_far}● {report.findings[0].text}{more}" if count else f"{so_far}no rank, host or step stands out"
        )

    def request_list(self) -> None:
        """Have the list built on a thread: what-ifs replay the job."""
        report, grouping = self.report, self._grouping
        if report is None or grouping is None or not grouping.members:
            return
        members: tuple[int, ...] = ()
        if self.which is FleetList.SPEED:
            members = tuple(grouping.members[self.map.cursor_row].tolist())
        key = (id(report), self.which, self.rows.size.width, members)
        if key != self._list_key and self.rows.size.width:
            self._list_key = key
            build = partial(build_list, report, self.which, self.rows.size.width, members)
            self._worker.submit("list", lambda: ListBuilt(key, build()))

    def on_list_built(self, message: ListBuilt) -> None:
        if message.key == self._list_key:
            self._list = message.content
            self.rows.empty_text = "" if message.content.rows else "nothing to list"
            self.rows.set_row_count(len(message.content.rows))

    def _build_header(self, width: int) -> list[TextRun]:
        return [(f"  {truncate(self._list.header, max(width - 2, 0))}", self.rows.palette.muted)]

    def _build_row(self, index: int, width: int, selected: bool) -> list[TextRun]:
        row, palette = self._list.rows[index], self.rows.palette
        text = truncate(row.text, max(width - 2, 0))
        strong = row.is_first and self.which is FleetList.FINDINGS
        style = palette.active if selected else palette.strong if strong else palette.text
        return [("▶ " if selected else "  ", palette.cursor), (text, style)]

    def _find_shown(self) -> tuple[FleetReport, MapContent, Grouping] | None:
        """Return what is shown; without ranks None, which is said in the status line."""
        report, content, grouping = self.report, self.map.content, self._grouping
        if report is None or content is None or grouping is None or not content.labels:
            self._status.show_message(self._problem or NOT_READ)
            return None
        return report, content, grouping

    # -- moving --------------------------------------------------------------------------------------------

    def _move_to(self, row: int, step: int, edge: str) -> None:
        if not (shown := self._find_shown()):
            return
        content = shown[1]
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
        self.action_move(pages * self.map.page_size)

    def action_edge(self, last: bool) -> None:
        row = len(self.map.content.labels) if last and self.map.content else 0
        self._move_to(row, self.map.cursor_step, f"the {'last' if last else 'first'} row")

    def action_step(self, steps: int) -> None:
        self._move_to(self.map.cursor_row, self.map.cursor_step + steps, f"the {'first' if steps < 0 else 'last'} step")

    def action_pan(self, pages: int) -> None:
        self.action_step(pages * self.map.page_steps)

    def action_zoom(self, steps: int) -> None:
        if not self._find_shown():
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
        if self._find_shown():
            self.measure = cycle(list(Measure), self.measure, direction)
            self._status.show_message(f"map: {self.measure.value}")
            self.refresh_view()

    def _save_view(self) -> None:
        self._views.append((self.grouping_name, self.inside, self.inside_label, self.find_cursor()))

    def action_group(self) -> None:
        if not self._find_shown():
            return
        names = [each.name for each in self.groupings]
        if len(names) == 1:
            self._status.show_message("no groups are known: neither hosts nor process groups are recorded")
            return
        self._save_view()
        known = self.grouping_name if self.grouping_name in names else names[0]
        self.grouping_name, self.inside = cycle(names, known, 1), ()
        self._status.show_message(f"rows by {self.grouping_name}")
        self.refresh_view()

    def action_list(self, direction: int) -> None:
        self._show_list(cycle(list(FleetList), self.which, direction))

    def on_panel_picked(self, message: PanelPicked) -> None:
        self._show_list(FleetList(message.panel))

    def _show_list(self, which: FleetList) -> None:
        if self._find_shown():
            self.which = which
            self._tabs.show_active(which.value)
            self._status.show_message("")
            self.request_list()

    # -- the list ------------------------------------------------------------------------------------------

    def _go_to_entry(self, distance: int) -> None:
        """Go to the first line of another entry, and show it on the map."""
        if not (shown := self._find_shown()):
            return
        rows, at = self._list.rows, self.rows.cursor
        if not rows:
            self._status.show_message("nothing is listed")
            return
        if not self._views and at == 0 and distance > 0:  # the first entry, unless the cursor of the map is on it
            numbers = shown[0].fleet.ranks[list(rows[0].ranks)].tolist()
            if numbers and set(numbers).isdisjoint(self.find_cursor()[0]):
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

    def _show_entry(self, row: int, say: bool = True) -> None:
        entry = self._list.rows[row]
        if say:
            self._status.show_message("")
        if entry.ranks or entry.step is not None:
            self._has_moved = True
            self._save_view()
            self.reveal(entry.ranks, entry.step)

    def on_row_picked(self, message: RowPicked) -> None:
        if self._find_shown() and self._list.rows:
            self._show_entry(message.row)

    # -- choosing and opening ------------------------------------------------------------------------------

    def action_choose(self) -> None:
        if self._find_shown():
            ranks = set(self.find_cursor()[0])
            is_chosen = ranks <= self.chosen
            self.chosen = self.chosen - ranks if is_chosen else self.chosen | ranks
            self._status.show_message(f"ranks marked: {len(self.chosen):,}; enter opens them, esc unmarks")
            self.refresh_view()

    def action_open(self) -> None:
        if not (shown := self._find_shown()):
            return
        report, content, _ = shown
        numbers, step = self.find_cursor()
        if not self.chosen and len(numbers) > 1:
            self._save_view()
            self.inside, self.inside_label = numbers, content.labels[self.map.cursor_row]
            self._status.show_message(f"the ranks of {self.inside_label}; backspace: all rows")
            self.refresh_view()
            return
        asked = sorted(self.chosen) or list(numbers)
        if len(asked) > MAX_OPENED:
            text = f"{len(asked):,} ranks are marked; at most {MAX_OPENED} open together"
            self._status.show_message(text, is_warning=True)
            return
        files = {sketch.rank: sketch.file for sketch in report.fleet.sketches}
        self.post_message(self.RanksAsked(tuple(files[number] for number in asked if number in files), step))

    # -- finding -------------------------------------------------------------------------------------------

    def action_search(self) -> None:
        if self._find_shown():
            self._open_prompt(FIND_PROMPT, FIND_HINT, self._searched)

    def on_prompt_submitted(self, message: PromptSubmitted) -> None:
        self._close_prompt()
        self._searched = message.text.strip()
        if self._searched:
            self._go_to_match(0)

    def action_match(self, distance: int) -> None:
        if self._searched and self._find_shown():
            self._go_to_match(distance)
        else:
            self._go_to_entry(distance)

    def _go_to_match(self, distance: int) -> None:
        """Go to a row that is searched for: a rank by its whole number, else a part of a label or of a host."""
        if not (shown := self._find_shown()):
            return
        (report, content, grouping), at = shown, self.map.cursor_row
        text = self._searched.casefold()
        number = re.fullmatch(r"(?:rank\s*)?#?([0-9]{1,9})", text)
        if number:
            ranks = report.fleet.ranks
            found = [row for row, each in enumerate(grouping.members) if int(number[1]) in ranks[each]]
        else:
            both = (f"{label} {note}" for label, note in zip(content.labels, content.notes, strict=True))
            found = [row for row, line in enumerate(both) if text in line.casefold()]
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
            return
        is_left = bool(self._searched or self.chosen or self.inside)
        self._status.show_message("" if is_left else "nothing to leave; q: quit")
        if self._searched:
            self._searched = ""
        elif self.chosen:
            self.chosen = frozenset()
            self.refresh_view()
        elif self.inside:
            self.inside = ()
            self.refresh_view()

    def action_copy(self, everything: bool) -> None:
        if not (shown := self._find_shown()):
            return
        content = shown[1]
        if everything:
            text = "".join(f"{line}\n" for line in (self._list.header, *(row.text for row in self._list.rows)))
            label = f"the list of {self.which.value}"
        else:
            row = self.map.cursor_row
            values = [format_measure(value, self.measure) for value in content.values[row].tolist()]
            text = "\t".join([f"{content.labels[row]} {content.notes[row]}".rstrip(), *values])
            label = f"{content.labels[row]}, {self.measure.value} of {len(values):,} steps"
        self.copy_text(text, label)
