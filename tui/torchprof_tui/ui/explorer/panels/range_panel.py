"""The range panel: how busy each lane and GPU was in the marked range, and the names with the most time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rich.cells import cell_len

from torchprof_tui.analysis.kernel.names.distinct_labels import label_kernels
from torchprof_tui.analysis.time.gpu_time import format_device_label
from torchprof_tui.trace.core.time_format import format_duration, format_time
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.name_display import clean, shorten, truncate
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.common.painted_widget import Lines, TextRun, join_columns, wrap_text
from torchprof_tui.ui.explorer.panels.panel import Panel
from torchprof_tui.ui.lanes.lane_view_state import find_recorder_lanes

if TYPE_CHECKING:
    from torchprof_tui.analysis.time.range_statistics import NameTime, RangeStatistics

BAR_CELLS = 8
TWO_COLUMNS_MIN_WIDTH = 100  # width from which CPU and GPU names are shown side by side


class RangePanel(Panel):
    """Show the marked range; it becomes the active panel when one is marked."""

    NAME = "range"

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace
        self._marked_range: tuple[int, int] | None = None
        self._live = False
        self._statistics: RangeStatistics | None = None

    def list_next_keys(self) -> list[tuple[str, str]]:
        if self._marked_range is None:
            return [("m", "mark")]
        if self._live:
            return [("m", "set end"), ("esc", "clear")]
        return [("t", "table"), ("C", "critical path"), ("e", "write it"), ("esc", "clear")]

    def update(self) -> None:
        state, before = self.context.view_state, self._marked_range
        marked = None if state.mark is None else (state.mark.start, state.mark.end)
        self.show_range(marked, state.mark is not None and state.mark.live)
        if marked == before:
            return
        if marked is None:
            self.context.leave_panel(self.NAME)
        else:
            work = partial(self.context.queries.compute_range_statistics, *marked, state.current_steps())
            self.context.worker.answer("range", work, self.set_statistics)
            self.context.show_panel(self.NAME)

    def show_range(self, marked_range: tuple[int, int] | None, live: bool) -> None:
        """Set the marked range, ns; `live` while it still follows the selection."""
        if (marked_range, live) != (self._marked_range, self._live):
            self._marked_range, self._live = marked_range, live
            self.refresh_content(top=False)

    def set_statistics(self, statistics: RangeStatistics) -> None:
        """Set the statistics; shown while they are those of the marked range."""
        self._statistics = statistics
        self.refresh_content(top=False)

    def content(self, width: int) -> Lines:
        palette, marked = self.palette, self._marked_range
        if marked is None:
            hint = (
                "No range is marked. m marks from here to where you move, m again sets the end; or drag with the mouse."
            )
            return wrap_text(hint, width, palette.muted)
        start, end = marked
        times = f"  from {format_time(start)} to {format_time(end)}"
        lines: Lines = [[(format_duration(end - start), palette.strong), (times, palette.text)]]
        statistics = self._statistics
        if statistics is None or (statistics.t0, statistics.t1) != marked:
            return lines
        busy = [
            f"{format_device_label(device, self._trace)} busy {format_share(time / statistics.duration)}"
            for device, time in statistics.gpu_busy.items()
        ]
        count = len(statistics.steps)
        steps = [f"{count} step{'s' * (count != 1)} touched, {statistics.whole_steps} whole"] if count else []
        lines += wrap_text(" · ".join([f"{statistics.events:,} events", *busy, *steps]), width, palette.text)
        lanes = self._format_lanes(statistics, width)
        is_narrow = width < TWO_COLUMNS_MIN_WIDTH
        half = width // 2
        gpu = self._format_names("GPU time", statistics.gpu_names, False, width if is_narrow else half - 2)
        cpu = self._format_names("CPU self time", statistics.cpu_names, True, width if is_narrow else width - half)
        if is_narrow:
            return lines + lanes + gpu + cpu
        return lines + join_columns(gpu, cpu, half, palette.text) + lanes

    def _format_lanes(self, statistics: RangeStatistics, width: int) -> Lines:
        palette = self.palette
        label_width = min(30, max(width - BAR_CELLS - 26, 8))
        lines: Lines = [[("lane".ljust(label_width) + " busy" + " " * (BAR_CELLS + 4) + "events", palette.muted)]]
        hidden = find_recorder_lanes(self._trace)
        for lane_time in (each for each in statistics.lanes if each.lane not in hidden):
            lane = self._trace.lanes[lane_time.lane]
            rank = "" if lane.rank is None else f"rank {lane.rank} "
            label = truncate(clean(rank + lane.label), label_width)
            filled = round(lane_time.share * BAR_CELLS)
            runs: list[TextRun] = [
                (label.ljust(label_width + 1), palette.text),
                ("█" * filled + "░" * (BAR_CELLS - filled), palette.bar),
                (f" {format_share(lane_time.share):>7} {lane_time.events:>7,}", palette.text),
            ]
            lines.append(runs)
        return lines

    def _format_names(self, title: str, names: list[NameTime], use_self_time: bool, width: int) -> Lines:
        palette = self.palette
        if not names:
            return [[(f"{title}: none in this range", palette.muted)]]
        name_width = max(width - 31, 10)
        header = f"{truncate(title, name_width).ljust(name_width)} {'time':>10} {'count':>7} {'mean':>10}"
        lines: Lines = [[(header, palette.muted)]]
        if use_self_time:  # as recorded where that fits
            cleaned = [clean(row.name) for row in names]
            labels = [name if cell_len(name) <= name_width else shorten(name) for name in cleaned]
        else:
            labels = label_kernels([row.name for row in names])
        for row, label in zip(names, labels, strict=True):
            time = row.self_time if use_self_time else row.total
            numbers = f" {format_duration(time):>10} {row.count:>7,} {format_duration(time / row.count):>10}"
            name = truncate(clean(label), name_width)
            lines.append([(name + " " * (name_width - cell_len(name)), palette.text), (numbers, palette.text)])
        return lines
