"""The panel about a marked range: how busy each lane and GPU was in it, and which names took the time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len

from torchprof_tui.analysis.time.gpu_time import named
from torchprof_tui.trace.core.time_format import format_duration, format_time
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.name_display import clean, cut
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.common.painted_widget import Run
from torchprof_tui.ui.common.text_panel import Lines, TextPanel, columns, wrap

if TYPE_CHECKING:
    from torchprof_tui.analysis.time.range_statistics import NameTime, RangeTime

BAR_CELLS = 8
TWO_COLUMNS = 100
"""From this width on CPU and GPU names stand side by side."""


class RangeStats(TextPanel):
    """Set `show` when the range moves, `learn` when its statistics are there."""

    def __init__(self, trace: Trace, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._trace = trace
        self._marked: tuple[int, int] | None = None
        self._live = False
        self._found: RangeTime | None = None

    def show(self, marked: tuple[int, int] | None, live: bool) -> None:
        if (marked, live) != (self._marked, self._live):
            self._marked, self._live = marked, live
            self.renew(top=False)

    def learn(self, found: RangeTime) -> None:
        self._found = found
        self.renew(top=False)

    def content(self, width: int) -> Lines:
        palette = self.palette
        if self._marked is None:
            hint = "No range is marked. m marks from here to where you move, m again fixes it; or drag with the mouse."
            return wrap(hint, width, palette.muted)
        start, end = self._marked
        lines: Lines = [
            [
                (format_duration(end - start), palette.strong),
                (f"  from {format_time(start)} to {format_time(end)}", palette.text),
                ("  m fixes it here" if self._live else "", palette.muted),
            ]
        ]
        found = self._found
        if found is None or (found.t0, found.t1) != self._marked:
            return lines
        lines += self._summary(found, width)
        lanes = self._lanes(found, width)
        if width < TWO_COLUMNS:
            return (
                lines
                + lanes
                + self._names("GPU time", found.gpu_names, False, width)
                + self._names("CPU self time", found.cpu_names, True, width)
            )
        half = width // 2
        names = columns(
            self._names("GPU time", found.gpu_names, False, half - 2),
            self._names("CPU self time", found.cpu_names, True, width - half),
            half,
            palette.text,
        )
        return lines + names + lanes

    def _summary(self, found: RangeTime, width: int) -> Lines:
        palette = self.palette
        facts = [f"{found.events:,} events"]
        facts += [
            f"{named(device, self._trace)} busy {format_share(busy / found.duration)}"
            for device, busy in found.gpu_busy.items()
        ]
        if found.steps:
            facts.append(f"{len(found.steps)} step{'s' * (len(found.steps) != 1)} touched, {found.whole_steps} whole")
        return wrap(" · ".join(facts), width, palette.text)

    def _lanes(self, found: RangeTime, width: int) -> Lines:
        palette = self.palette
        room = min(30, max(width - BAR_CELLS - 26, 8))
        lines: Lines = [[("lane".ljust(room) + " busy" + " " * (BAR_CELLS + 4) + "events", palette.muted)]]
        for lane in found.lanes:
            shown = self._trace.lanes[lane.lane]
            whose = "" if shown.rank is None else f"rank {shown.rank} "
            label = cut(clean(whose + shown.label), room)
            full = round(lane.share * BAR_CELLS)
            runs: list[Run] = [
                (label.ljust(room + 1), palette.text),
                ("█" * full + "░" * (BAR_CELLS - full), palette.accent),
                (f" {format_share(lane.share):>7} {lane.events:>7,}", palette.text),
            ]
            lines.append(runs)
        return lines

    def _names(self, title: str, names: list[NameTime], own: bool, width: int) -> Lines:
        palette = self.palette
        if not names:
            return [[(f"{title}: none in this range", palette.muted)]]
        room = max(width - 31, 10)
        lines: Lines = [[(f"{cut(title, room).ljust(room)} {'time':>10} {'count':>7} {'mean':>10}", palette.muted)]]
        for each in names:
            time = each.self_time if own else each.total
            numbers = f" {format_duration(time):>10} {each.count:>7,} {format_duration(time / each.count):>10}"
            name = cut(clean(each.name), room)
            lines.append([(name + " " * (room - cell_len(name)), palette.text), (numbers, palette.text)])
        return lines
