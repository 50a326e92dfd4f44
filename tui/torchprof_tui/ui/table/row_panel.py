"""What is behind one row of the table: its instances over time, who called it, what it called, its kernels."""

from __future__ import annotations

from torchprof_tui.analysis.table.row_detail import Relative, RowDetail
from torchprof_tui.trace.core.time_format import format_duration, format_time
from torchprof_tui.ui.common.name_display import clean, cut, short
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.common.strip_chart import strip
from torchprof_tui.ui.common.text_panel import Lines, TextPanel, columns, wrap

SHOWN = 8
"""Of callers, callees and kernels so many each: the rest is counted."""

THREE_COLUMNS = 120


class RowPanel(TextPanel):
    """Set `learn` with another row's detail, None while it is worked out."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._title_shown = ""
        self._detail: RowDetail | None = None
        self._instance = 0

    def learn(self, name: str, detail: RowDetail | None) -> None:
        self._title_shown, self._detail = name, detail
        self._instance = int(detail.duration.argmax()) if detail is not None and len(detail.duration) else 0
        self.renew()

    def move(self, distance: int) -> None:
        """To another instance, around the ends."""
        if self._detail is not None and len(self._detail.events):
            self._instance = (self._instance + distance) % len(self._detail.events)
            self.renew(top=False)

    @property
    def event(self) -> int:
        """The instance that enter goes to; -1 for none. The longest, until one moves."""
        detail = self._detail
        return int(detail.events[self._instance]) if detail is not None and len(detail.events) else -1

    def content(self, width: int) -> Lines:
        palette, detail = self.palette, self._detail
        title: Lines = [[(cut(clean(self._title_shown), width), palette.strong)]]
        if detail is None:
            return title if self._title_shown else []
        if detail.spread is None:
            return [*title, *wrap("no instances in the trace", width, palette.muted)]
        each = detail.spread
        text = (
            f"{each.count:,} instances · median {format_duration(each.median)} · mean {format_duration(each.mean)}"
            f" · p5 {format_duration(each.p5)} · p95 {format_duration(each.p95)} · max {format_duration(each.longest)}"
        )
        lines = title + wrap(text, width, palette.text)
        bars, mine = strip(detail.duration, self._instance, min(width - 2, 100))
        start, length = int(detail.start[self._instance]), int(detail.duration[self._instance])
        lines.append([(bars[:mine], palette.accent), (bars[mine], palette.active), (bars[mine + 1 :], palette.accent)])
        where = f"▲ instance {self._instance + 1:,}: {format_duration(length)} at {format_time(start)}"
        indent = min(mine, max(width - len(where) - 30, 0))
        lines.append([(" " * indent + where, palette.text), ("  n N: others, enter: on the lanes", palette.muted)])
        if detail.told:
            return [*lines, *(wrapped for told in detail.told for wrapped in wrap(clean(told), width, palette.text))]
        lists = [("called by", detail.callers), ("calls", detail.callees), ("GPU work", detail.kernels)]
        blocks = [
            self._relatives(name, found, width if width < THREE_COLUMNS else width // 3 - 2) for name, found in lists
        ]
        if width < THREE_COLUMNS:
            return [*lines, *(line for block in blocks for line in block)]
        third = width // 3
        return lines + columns(columns(blocks[0], blocks[1], third, palette.text), blocks[2], 2 * third, palette.text)

    def _relatives(self, title: str, found: list[Relative], width: int) -> Lines:
        palette = self.palette
        if not found:
            return [[(f"{title}: nothing", palette.muted)]]
        lines: Lines = [[(title, palette.heading)]]
        for each in found[:SHOWN]:
            room = max(width - 28, 8)
            name = cut(short(clean(each.name)), room)
            numbers = f"{format_share(each.share):>7} {format_duration(each.time):>10} {each.calls:>7,}×  "
            lines.append([(numbers, palette.text), (name, palette.text)])
        if len(found) > SHOWN:
            lines.append([(f"… and {len(found) - SHOWN:,} more names", palette.muted)])
        return lines
