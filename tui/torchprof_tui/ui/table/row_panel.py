"""What is behind one row of the table: its instances over time, who called it, what it called, its kernels."""

from __future__ import annotations

from torchprof_tui.analysis.table.row_detail import RelatedName, RowDetail
from torchprof_tui.trace.core.time_format import format_duration, format_time
from torchprof_tui.ui.common.name_display import clean, shorten, truncate
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.common.strip_chart import build_strip_chart
from torchprof_tui.ui.common.text_panel import Lines, TextPanel, join_columns, wrap_text

RELATIVES_SHOWN = 8
"""Of callers, callees and kernels so many each: the rest is counted."""

THREE_COLUMN_MIN_WIDTH = 120


class RowPanel(TextPanel):
    """Set `learn` with another row's detail, None while it is worked out."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._row_name = ""
        self._detail: RowDetail | None = None
        self._instance_index = 0

    def set_detail(self, name: str, detail: RowDetail | None) -> None:
        self._row_name, self._detail = name, detail
        self._instance_index = int(detail.duration.argmax()) if detail is not None and len(detail.duration) else 0
        self.refresh_content()

    def cycle_instance(self, distance: int) -> None:
        """To another instance, around the ends."""
        if self._detail is not None and len(self._detail.events):
            self._instance_index = (self._instance_index + distance) % len(self._detail.events)
            self.refresh_content(top=False)

    @property
    def selected_event(self) -> int:
        """The instance that enter goes to; -1 for none. The longest, until one moves."""
        detail = self._detail
        return int(detail.events[self._instance_index]) if detail is not None and len(detail.events) else -1

    def content(self, width: int) -> Lines:
        palette, detail = self.palette, self._detail
        title: Lines = [[(truncate(clean(self._row_name), width), palette.strong)]]
        if detail is None:
            return title if self._row_name else []
        if detail.spread is None:
            return [*title, *wrap_text("no instances in the trace", width, palette.muted)]
        each = detail.spread
        text = (
            f"{each.count:,} instances · median {format_duration(each.median)} · mean {format_duration(each.mean)}"
            f" · p5 {format_duration(each.p5)} · p95 {format_duration(each.p95)} · max {format_duration(each.longest)}"
        )
        lines = title + wrap_text(text, width, palette.text)
        bars, mine = build_strip_chart(detail.duration, self._instance_index, min(width - 2, 100))
        start, length = int(detail.start[self._instance_index]), int(detail.duration[self._instance_index])
        lines.append([(bars[:mine], palette.accent), (bars[mine], palette.active), (bars[mine + 1 :], palette.accent)])
        where = f"▲ instance {self._instance_index + 1:,}: {format_duration(length)} at {format_time(start)}"
        indent = min(mine, max(width - len(where) - 30, 0))
        lines.append([(" " * indent + where, palette.text), ("  n N: others, enter: on the lanes", palette.muted)])
        if detail.message_lines:
            return [
                *lines,
                *(wrapped for told in detail.message_lines for wrapped in wrap_text(clean(told), width, palette.text)),
            ]
        lists = [("called by", detail.callers), ("calls", detail.callees), ("GPU work", detail.kernels)]
        blocks = [
            self._format_relatives(name, found, width if width < THREE_COLUMN_MIN_WIDTH else width // 3 - 2)
            for name, found in lists
        ]
        if width < THREE_COLUMN_MIN_WIDTH:
            return [*lines, *(line for block in blocks for line in block)]
        third = width // 3
        return lines + join_columns(
            join_columns(blocks[0], blocks[1], third, palette.text), blocks[2], 2 * third, palette.text
        )

    def _format_relatives(self, title: str, found: list[RelatedName], width: int) -> Lines:
        palette = self.palette
        if not found:
            return [[(f"{title}: nothing", palette.muted)]]
        lines: Lines = [[(title, palette.heading)]]
        for each in found[:RELATIVES_SHOWN]:
            room = max(width - 28, 8)
            name = truncate(shorten(clean(each.name)), room)
            numbers = f"{format_share(each.share):>7} {format_duration(each.time):>10} {each.calls:>7,}×  "
            lines.append([(numbers, palette.text), (name, palette.text)])
        if len(found) > RELATIVES_SHOWN:
            lines.append([(f"… and {len(found) - RELATIVES_SHOWN:,} more names", palette.muted)])
        return lines
