"""The panel about a marked range: how busy each lane and GPU was in it, and which names took the time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len

from torchprof_tui.analysis.time.gpu_time import format_device_label
from torchprof_tui.trace.core.time_format import format_duration, format_time
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.name_display import clean, truncate
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.common.painted_widget import TextRun
from torchprof_tui.ui.common.text_panel import Lines, TextPanel, join_columns, wrap_text

if TYPE_CHECKING:
    from torchprof_tui.analysis.time.range_statistics import NameTime, RangeStatistics

BAR_CELLS = 8
TWO_COLUMNS_MIN_WIDTH = 100
"""From this width on CPU and GPU names stand side by side."""


class RangePanel(TextPanel):
    """Set `show` when the range moves, `learn` when its statistics are there."""

    def __init__(self, trace: Trace, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._trace = trace
        self._marked_range: tuple[int, int] | None = None
        self._live = False
        self._statistics: RangeStatistics | None = None

    def show_range(self, marked_range: tuple[int, int] | None, live: bool) -> None:
        if (marked_range, live) != (self._marked_range, self._live):
            self._marked_range, self._live = marked_range, live
            self.refresh_content(top=False)

    def set_statistics(self, statistics: RangeStatistics) -> None:
        self._statistics = statistics
        self.refresh_content(top=False)

    def content(self, width: int) -> Lines:
        palette = self.palette
        if self._marked_range is None:
            hint = "No range is marked. m marks from here to where you move, m again fixes it; or drag with the mouse."
            return wrap_text(hint, width, palette.muted)
        start, end = self._marked_range
        lines: Lines = [
            [
                (format_duration(end - start), palette.strong),
                (f"  from {format_time(start)} to {format_time(end)}", palette.text),
                ("  m fixes it here" if self._live else "", palette.muted),
            ]
        ]
        found = self._statistics
        if found is None or (found.t0, found.t1) != self._marked_range:
            return lines
        lines += self._format_summary(found, width)
        lanes = self._format_lanes(found, width)
        if width < TWO_COLUMNS_MIN_WIDTH:
            return (
                lines
                + lanes
                + self._format_names("GPU time", found.gpu_names, False, width)
                + self._format_names("CPU self time", found.cpu_names, True, width)
            )
        half = width // 2
        names = join_columns(
            self._format_names("GPU time", found.gpu_names, False, half - 2),
            self._format_names("CPU self time", found.cpu_names, True, width - half),
            half,
            palette.text,
        )
        return lines + names + lanes

    def _format_summary(self, found: RangeStatistics, width: int) -> Lines:
        palette = self.palette
        facts = [f"{found.events:,} events"]
        facts += [
            f"{format_device_label(device, self._trace)} busy {format_share(busy / found.duration)}"
            for device, busy in found.gpu_busy.items()
        ]
        if found.steps:
            facts.append(f"{len(found.steps)} step{'s' * (len(found.steps) != 1)} touched, {found.whole_steps} whole")
        return wrap_text(" · ".join(facts), width, palette.text)

    def _format_lanes(self, found: RangeStatistics, width: int) -> Lines:
        palette = self.palette
        room = min(30, max(width - BAR_CELLS - 26, 8))
        lines: Lines = [[("lane".ljust(room) + " busy" + " " * (BAR_CELLS + 4) + "events", palette.muted)]]
        for lane in found.lanes:
            shown = self._trace.lanes[lane.lane]
            whose = "" if shown.rank is None else f"rank {shown.rank} "
            label = truncate(clean(whose + shown.label), room)
            full = round(lane.share * BAR_CELLS)
            runs: list[TextRun] = [
                (label.ljust(room + 1), palette.text),
                ("█" * full + "░" * (BAR_CELLS - full), palette.accent),
                (f" {format_share(lane.share):>7} {lane.events:>7,}", palette.text),
            ]
            lines.append(runs)
        return lines

    def _format_names(self, title: str, names: list[NameTime], own: bool, width: int) -> Lines:
        palette = self.palette
        if not names:
            return [[(f"{title}: none in this range", palette.muted)]]
        room = max(width - 31, 10)
        lines: Lines = [
            [(f"{truncate(title, room).ljust(room)} {'time':>10} {'count':>7} {'mean':>10}", palette.muted)]
        ]
        for each in names:
            time = each.self_time if own else each.total
            numbers = f" {format_duration(time):>10} {each.count:>7,} {format_duration(time / each.count):>10}"
            name = truncate(clean(each.name), room)
            lines.append([(name + " " * (room - cell_len(name)), palette.text), (numbers, palette.text)])
        return lines
