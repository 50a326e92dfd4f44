"""Panel for one row of the table: its instances over time, its callers and callees, and its kernels."""

from __future__ import annotations

from rich.cells import cell_len

from torchprof_tui.analysis.kernel.kernel_summary import DurationStatistics
from torchprof_tui.analysis.kernel.names.distinct_labels import label_kernels
from torchprof_tui.analysis.table.row_detail import RelatedName, RowDetail
from torchprof_tui.trace.core.time_format import format_duration, format_time
from torchprof_tui.ui.common.name_display import clean, shorten, truncate
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.common.painted_widget import Lines, TextPanel, join_columns, wrap_text
from torchprof_tui.ui.common.text_charts import build_strip_chart

RELATIVES_SHOWN = 8  # names listed of the callers, the callees and the kernels each; the others are only counted
THREE_COLUMN_MIN_WIDTH, COLUMN_GAP = 120, 2

MIN_FULL_NAME_CELLS = 20  # cells from which the recorded name of a kernel is shown behind its short name


class RowPanel(TextPanel):
    """Shows the detail of one row; call `set_detail` for another row."""

    _row_name = ""
    _display = ""
    _detail: RowDetail | None = None
    _instance_index = 0
    _reading = ""

    def set_detail(self, name: str, detail: RowDetail | None, display: str = "", reading: str = "") -> None:
        """Show a row's detail, None while it is computed, and select its longest instance.

        `display`: the short name of the row, where it differs from its recorded `name`. `reading`: what is notable.
        """
        self._reading = reading
        self._row_name, self._display, self._detail = name, "" if display == name else display, detail
        self._instance_index = int(detail.duration.argmax()) if detail is not None and len(detail.duration) else 0
        self.refresh_content()

    def cycle_instance(self, distance: int) -> bool:
        """Select the instance `distance` further on, cyclically. Returns whether there is another one."""
        if self._detail is None or len(self._detail.events) < 2:
            return False
        self._instance_index = (self._instance_index + distance) % len(self._detail.events)
        self.refresh_content(top=False)
        return True

    @property
    def selected_event(self) -> int:
        """The event of the selected instance, which enter shows on the lanes; -1 for none."""
        detail = self._detail
        return int(detail.events[self._instance_index]) if detail is not None and len(detail.events) else -1

    def content(self, width: int) -> Lines:
        palette, detail = self.palette, self._detail
        name = clean(self._row_name)
        title: Lines = [[(truncate(clean(self._display) or name, width), palette.strong)]]
        if self._display:
            available = width - cell_len(title[0][0][0]) - 2
            if available > MIN_FULL_NAME_CELLS:
                title[0].append((f"  {truncate(name, available)}", palette.muted))
        if detail is None:
            return title if self._row_name else []
        if detail.spread is None:
            return [*title, *wrap_text("no instances in the trace", width, palette.muted)]
        lines = title + self._format_spread(detail.spread, width) + self._format_instances(detail, width)
        if detail.message_lines:
            for message in detail.message_lines:
                lines += wrap_text(clean(message), width, palette.text)
            return lines
        sections = [
            ("callers", detail.callers, [shorten(clean(caller.name)) for caller in detail.callers]),
            ("callees", detail.callees, [shorten(clean(callee.name)) for callee in detail.callees]),
            ("GPU work", detail.kernels, list(map(clean, label_kernels([kernel.name for kernel in detail.kernels])))),
        ]
        if not (detail.callers or detail.callees or detail.kernels):
            return lines  # a sheet that knows no relatives of its rows
        blocks = [self._format_relatives(*section, width) for section in sections]
        if width < THREE_COLUMN_MIN_WIDTH:
            return [*lines, *(line for block in blocks for line in block)]
        first, second, third = _share_width(blocks, width)
        blocks = [
            self._format_relatives(*section, cells)
            for section, cells in zip(sections, (first, second, third), strict=True)
        ]
        left = join_columns(blocks[0], blocks[1], first + COLUMN_GAP, palette.text)
        return lines + join_columns(left, blocks[2], first + second + 2 * COLUMN_GAP, palette.text)

    def _format_spread(self, stats: DurationStatistics, width: int) -> Lines:
        text = (
            f"{stats.count:,} {'instance' if stats.count == 1 else 'instances'}"
            f" · median {format_duration(stats.median)} · mean {format_duration(stats.mean)}"
            f" · p5 {format_duration(stats.p5)} · p95 {format_duration(stats.p95)}"
            f" · max {format_duration(stats.longest)}"
        )
        reading = wrap_text(self._reading, width, self.palette.strong) if self._reading else []
        return reading + wrap_text(text, width, self.palette.text)

    def _format_instances(self, detail: RowDetail, width: int) -> Lines:
        palette, index = self.palette, self._instance_index
        chart, cell = build_strip_chart(detail.duration, index, min(width - 2, 100))
        start, duration = int(detail.start[index]), int(detail.duration[index])
        label = f"instance {index + 1:,}: {format_duration(duration)} at {format_time(start)}"
        marked, hint = _mark_cell(cell, label, width)
        return [
            [(chart[:cell], palette.bar), (chart[cell], palette.active), (chart[cell + 1 :], palette.bar)],
            [(marked, palette.text), (hint, palette.muted)],
        ]

    def _format_relatives(self, title: str, relatives: list[RelatedName], labels: list[str], width: int) -> Lines:
        palette = self.palette
        if not relatives:
            return [[(f"{title}: none", palette.muted)]]
        lines: Lines = [[(title, palette.strong)]]
        for relative, label in zip(relatives[:RELATIVES_SHOWN], labels, strict=False):
            numbers = f"{format_share(relative.share):>7} {format_duration(relative.time):>10} {relative.calls:>7,}×  "
            lines.append([(numbers + truncate(label, max(width - len(numbers), 8)), palette.text)])
        if len(relatives) > RELATIVES_SHOWN:
            lines.append([(f"… and {len(relatives) - RELATIVES_SHOWN:,} more names", palette.muted)])
        return lines


def _share_width(blocks: list[Lines], width: int) -> list[int]:
    """Return a third of the width for each block, or what each fills where one fills more: the widest are cut alike."""
    room = width - 2 * COLUMN_GAP
    needs = [max(sum(cell_len(text) for text, _ in line) for line in block) for block in blocks]
    if max(needs) <= room // 3:
        return [room // 3] * 3
    most = next(cells for cells in range(room, 0, -1) if sum(min(need, cells) for need in needs) <= room)
    spare = (room - sum(min(need, most) for need in needs)) // 3
    return [min(need, most) + spare for need in needs]


def _mark_cell(cell: int, label: str, width: int) -> tuple[str, str]:
    """Return a mark below a cell with its label on the side that has room, and the key hints that fit after both."""
    is_left = cell + 2 + len(label) > width and cell > len(label)
    marked = f"{label} ▲".rjust(cell + 1) if is_left else f"{' ' * cell}▲ {label}"
    hints = ("  { } others · enter: on the lanes", "  { } others", "")
    return marked, next(hint for hint in hints if not hint or len(marked) + len(hint) <= width)
