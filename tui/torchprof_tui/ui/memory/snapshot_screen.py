"""Screen of a memory snapshot without a trace: the curve of its history, and what is alive at a time, with stacks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from textual import events
from textual.app import ComposeResult
from textual.geometry import Size

from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.query.viewport import Viewport
from torchprof_tui.ui.common import keys
from torchprof_tui.ui.common.child_screen import cycle
from torchprof_tui.ui.common.name_display import clean
from torchprof_tui.ui.common.number_format import format_value
from torchprof_tui.ui.common.painted_widget import RowList, RowPicked, TextRun
from torchprof_tui.ui.common.panel_dock import PanelPicked, PanelTabs
from torchprof_tui.ui.common.status_line import StatusLine
from torchprof_tui.ui.memory.curve_screen import CurveScreen
from torchprof_tui.ui.memory.lifetime_rows import format_cells
from torchprof_tui.ui.memory.memory_chart import GUTTER, SnapshotChart
from torchprof_tui.ui.memory.snapshot_rows import (
    HEADERS,
    NO_HISTORY,
    RowsRead,
    ShownSnapshot,
    SnapshotList,
    SnapshotQuery,
    find_rows,
    read_shown_snapshot,
)

NOTHING = {
    SnapshotList.FAILURES: "no allocation failed in this history",
    SnapshotList.FINDINGS: "nothing was found: neither fragmentation, nor retries, nor a failed allocation",
}
_WIDTHS = (10, 7, 10, 10)
_TRACE_PATTERN = "*.trace.json*"


class SnapshotScreen(CurveScreen[ShownSnapshot]):
    """Show a snapshot; it is read on a thread.

    `settle` is called when it was read, or cannot be: with why not, one line, or "".
    """

    CSS_PATH = "memory_screen.tcss"
    BINDINGS = keys.SNAPSHOT
    TITLE = "snapshot"
    help_topic = "snapshot"
    NOUN, WHOLE = "history", "this is the whole history"
    NOT_READ = "nothing to see yet: the snapshot is being read"

    def __init__(self, path: Path, settle: Callable[[str], None] = lambda problem: None) -> None:
        super().__init__(Viewport.whole((0, 1), 40, margin=0))
        self.path = path
        self._settle = settle
        self.shown_list = SnapshotList.LINE
        self.read: RowsRead | None = None
        self.chart = SnapshotChart(id="snapshot-chart")
        self._totals = StatusLine(id="snapshot-totals")
        self._tabs = PanelTabs([(each.value, each.value) for each in SnapshotList])
        self.rows = RowList(self._build_row, self._build_header, id="snapshot-rows")
        self._detail = StatusLine(id="snapshot-detail")

    def compose(self) -> ComposeResult:
        yield from (self._totals, self.chart, self._tabs, self.rows, self._detail, self._status, self._prompt)

    def on_mount(self) -> None:
        self.follow_theme(keys.SNAPSHOT_HINTS)
        self._tabs.show_active(self.shown_list.value)
        self._arrange(self.app.size)
        self.rows.empty_text = f"reading {clean(self.path.name)} …"
        self._worker.answer("snapshot", partial(read_shown_snapshot, self.path), self._show_snapshot)

    def on_resize(self, event: events.Resize) -> None:
        self._arrange(event.size)
        self.refresh_view()

    def _arrange(self, size: Size) -> None:
        has_curve = self.device is None or len(self.device.time) > 0
        self.chart.styles.height = min(max(size.height * 3 // 10, 5), 20) if has_curve else 0
        self.viewport = self.viewport.resize(max(size.width - GUTTER, 1))

    def _show_snapshot(self, read: tuple[tuple[ShownSnapshot, ...], str]) -> None:
        self._devices, self._problem = read
        if self._devices:
            self._show_device(0)
            self._status.show_message(self._describe_surroundings())
        else:
            self.rows.empty_text = f"{self._problem}. q: leave; o: open another file"
            self.rows.set_row_count(0)
        self._settle(self._problem)

    def _describe_surroundings(self) -> str:
        """Describe what failed, else where the ops of these allocations are: in the trace beside, or in none."""
        failed = sum(len(shown.device.list_failures()) for shown in self._devices)
        if failed:
            return f"{failed:,} allocation{'s' if failed != 1 else ''} failed: tab shows what was asked for"
        try:
            traces = sorted(self.path.parent.glob(_TRACE_PATTERN))
        except OSError:
            traces = []
        if not traces:
            return "ops, modules and categories are in a trace: record one with run --profile-memory --memory-snapshot"
        return f"the trace beside it, {clean(traces[0].name)}, may have these ops: open it (o), and press M"

    def _show_device(self, number: int) -> None:
        self._number = number
        shown = self._devices[number]
        if len(shown.time):
            self.viewport = Viewport.whole((0, int(shown.time[-1]) + 1), self.viewport.width, margin=0)
            self.time = int(shown.time[shown.peak])
        totals = shown.device.totals
        self._totals.show_message(
            f"{clean(self.path.name)} · {shown.device.label}: {format_value(totals.reserved, 'bytes')} reserved in "
            f"{totals.segments:,} segments, {format_value(totals.allocated, 'bytes')} allocated, "
            f"{format_value(totals.free, 'bytes')} free, the largest block "
            f"{format_value(totals.largest_free, 'bytes')}"
        )
        self._arrange(self.app.size)
        self.refresh_view()

    def refresh_view(self) -> None:
        shown = self.device
        self.chart.show(shown, self.viewport, self.time)
        if shown is not None:
            self._worker.submit("rows", partial(find_rows, shown, self._build_query(shown)))

    def _build_query(self, shown: ShownSnapshot) -> SnapshotQuery:
        is_peak = shown.peak >= 0 and self.time == int(shown.time[shown.peak])
        position = shown.peak if is_peak else shown.find_position(self.time)
        return SnapshotQuery(self._number, position, self.shown_list)

    def on_rows_read(self, message: RowsRead) -> None:
        shown = self.device
        if shown is None or message.query != self._build_query(shown):
            return
        is_same = self.read is not None and self.read.query.shown is message.query.shown
        self.read = message
        self.rows.empty_text = NOTHING.get(message.query.shown, "nothing is alive here")
        self.rows.set_row_count(len(message.rows), self.rows.cursor if is_same else 0)
        self.show_row()

    def show_row(self) -> None:
        rows = [] if self.read is None else self.read.rows
        self._detail.show_message(rows[self.rows.cursor].detail if self.rows.cursor < len(rows) else "")

    def _build_header(self, width: int) -> list[TextRun]:
        palette = self.rows.palette
        read = self.read
        if read is None:
            return []
        *numbers, text = HEADERS[read.query.shown]
        if read.query.shown in (SnapshotList.LINE, SnapshotList.STACK, SnapshotList.ALLOCATIONS):
            if read.state is None:
                text += f" · {NO_HISTORY}"
            else:
                used, reserved = (format_value(size, "bytes") for size in (read.state.requested, read.state.reserved))
                text += f" · at {format_duration(read.state.time)}: {used} requested, {reserved} reserved"
        return [(format_cells((*numbers, text), width, _WIDTHS), palette.muted)]

    def _build_row(self, index: int, width: int, selected: bool) -> list[TextRun]:
        assert self.read is not None
        palette = self.rows.palette
        text = format_cells(self.read.rows[index].cells, width - 1, _WIDTHS)
        return [("▶" if selected else " ", palette.cursor), (text, palette.active if selected else palette.text)]

    def on_row_picked(self, message: RowPicked) -> None:
        self.show_row()

    def action_next_panel(self, direction: int) -> None:
        self._show_list(cycle(list(SnapshotList), self.shown_list, direction))

    def on_panel_picked(self, message: PanelPicked) -> None:
        self._show_list(SnapshotList(message.panel))

    def _show_list(self, shown: SnapshotList) -> None:
        if self._get_device() is not None:
            self.shown_list = shown
            self._tabs.show_active(shown.value)
            self._status.show_message("")
            self.refresh_view()

    def _show_view(self, viewport: Viewport, time: int, reason: str, is_jump: bool = False) -> None:
        if self.device is not None and not len(self.device.time):
            self._status.show_message(NO_HISTORY)
        else:
            super()._show_view(viewport, time, reason, is_jump)

    def find_peak_time(self) -> int:
        shown = self.device
        return int(shown.time[shown.peak]) if shown is not None and len(shown.time) else 0

    def action_next_step(self, distance: int) -> None:
        if self._get_device() is None:
            return
        if len(self._devices) == 1:
            self._status.show_message("no other GPU is in this snapshot")
            return
        self._show_device((self._number + distance) % len(self._devices))

    def action_copy(self, everything: bool) -> None:
        if self._get_device() is None or self.read is None or not self.read.rows:
            self._status.show_message("nothing to copy here yet")
            return
        if everything:
            copied = self.read.query.shown  # not yet `shown_list` while that is being read
            rows = [HEADERS[copied], *(row.cells for row in self.read.rows)]
            text = "".join("\t".join(cell.strip() for cell in row) + "\n" for row in rows)
            label = f"the list: {copied.value}"
        else:
            text = label = self.read.rows[self.rows.cursor].detail
        self.copy_text(text, label)
