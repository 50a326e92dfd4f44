"""The panel of the critical path: how far it can be trusted, its time by kind, its longest segments.

↑ ↓ move the cursor over kinds and segments; enter shows the segment, or the longest one of the kind; n N walk along
the path, on a kind along its segments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual.geometry import Size

from torchprof_tui.trace.core.time_format import format_duration, format_time
from torchprof_tui.trace.model.event_kind import GPU_WORK
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.name_display import clean, truncate
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.common.painted_widget import TextRun
from torchprof_tui.ui.common.text_panel import Lines, TextPanel, join_columns, wrap_text
from torchprof_tui.ui.explorer.panels.event_title import shorten_event_name

if TYPE_CHECKING:
    from torchprof_tui.ui.explorer.path.shown_forecast import ShownForecast
    from torchprof_tui.ui.explorer.path.shown_path import PathSegment, ShownPath

OFF_HINT = (
    "C shows what limits a step: its critical path, the chain of work in which each part waits for the one before. The "
    "lanes dim what is not on it."
)
TWO_COLUMNS_MIN_WIDTH = 104
KINDS_WIDTH = 50
BAR_CELLS = 12
MAX_RANKS = 6
NO_RANK = -1
"""As `segments.NO_RANK`, which this module does not import: numpy code is imported on the worker thread."""


class PathPanel(TextPanel):
    """Show a path: call `show_path`, or `show_message` while there is none. `cursor`: kinds first, then segments."""

    def __init__(self, trace: Trace, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._trace = trace
        self._shown: ShownPath | None = None
        self._message = OFF_HINT
        self._selection = ""
        self._forecast: ShownForecast | None = None
        self._cursor = 0
        self._reveals_cursor = False
        self._line_by_entry: dict[int, int] = {}

    @property
    def shown(self) -> ShownPath | None:
        return self._shown

    @property
    def kind(self) -> int:
        """The kind under the cursor, an index of the path's shares; -1 where it is on a segment."""
        return self._cursor if self._shown is not None and self._cursor < len(self._shown.path.shares) else -1

    @property
    def segment_index(self) -> int:
        """The segment under the cursor, of a kind its longest one; -1 without a path."""
        shown = self._shown
        if shown is None:
            return -1
        if self.kind < 0:
            return int(shown.longest[self._cursor - len(shown.path.shares)])
        found, segments = shown.list_segments(self.kind), shown.path.segments
        return int(found[(segments.end[found] - segments.start[found]).argmax()])

    def show_path(self, shown: ShownPath) -> None:
        if shown is not self._shown:
            self._shown, self._message, self._cursor = shown, "", 0
            self.refresh_content()

    def show_message(self, message: str) -> None:
        """Show why there is no path."""
        if self._shown is not None or message != self._message:
            self._shown, self._message = None, message
            self.refresh_content()

    def show_selection(self, text: str) -> None:
        """Set what the path says of the selected event, "" without one."""
        if text != self._selection:
            self._selection = text
            self._reveals_cursor = self._cursor > 0
            self.refresh_content(top=False)

    def show_forecast(self, forecast: ShownForecast | None) -> None:
        """Show what a step would take with some changes, above the path; None for no changes."""
        self._forecast = forecast
        self.refresh_content()

    def move_cursor(self, distance: int) -> bool:
        """Move the cursor down by `distance` entries (up where negative); return False at an end."""
        shown = self._shown
        if shown is None or not 0 <= self._cursor + distance < len(shown.path.shares) + len(shown.longest):
            return False
        self._cursor += distance
        self._reveals_cursor = True
        self.refresh_content(top=False)
        return True

    def show_top(self) -> bool:
        """Scroll to the first line, above the first entry. Returns whether it moved."""
        moved, self._top = self._top > 0, 0
        self.repaint()
        return moved

    def prepare(self, size: Size) -> None:
        super().prepare(size)
        if self._reveals_cursor:
            self._reveals_cursor = False
            line = self._line_by_entry.get(self._cursor, 0)
            self._top = min(max(self._top, line - size.height + 1), line)

    def content(self, width: int) -> Lines:
        shown = self._shown
        if shown is None:
            return wrap_text(self._message, width, self.palette.text)
        self._line_by_entry = {}
        lines = self._format_head(shown, width)
        if width < TWO_COLUMNS_MIN_WIDTH:
            lines += self._format_kinds(shown, width, len(lines))
            return lines + self._format_longest(shown, width, len(lines))
        kinds = self._format_kinds(shown, KINDS_WIDTH, len(lines))
        longest = self._format_longest(shown, width - KINDS_WIDTH - 2, len(lines))
        return lines + join_columns(kinds, longest, KINDS_WIDTH + 2, self.palette.text)

    def _format_head(self, shown: ShownPath, width: int) -> Lines:
        """Format what the path is of, how far the graph explains it, and what it says of the selection."""
        palette, path = self.palette, shown.path
        of = clean(shown.scope.label)
        if shown.scope.event < 0:
            step = 10 ** max(len(str(path.duration)) - 3, 0)
            of = f"{of}, {format_time(path.window.start, step)} to {format_time(path.window.end, step)}"
        rank = f"{shown.rank_label}, " if shown.rank_label else ""
        if path.rank_shares:
            parts = [f"rank {each.rank} {format_share(each.share)}" for each in path.rank_shares[:MAX_RANKS]]
            others = len(path.rank_shares) - len(parts)
            on_ranks = "on the path: " + ", ".join(parts) + (f" and {others} more" if others > 0 else "")
        error = f"replay error {path.replay_error * 100:.1f} %".replace("-0.0 %", "0.0 %")
        title = f"{error}: "
        lines: Lines = []
        if path.is_trusted:
            title += f"{rank}{of}, {format_duration(path.duration)}"
            if path.inferred:
                title += f" · {path.inferred:,} dependencies inferred"
            lines += wrap_text(title, width, palette.strong)
        else:
            title += f"dependencies are missing, do not trust this path of {rank}{of}, {format_duration(path.duration)}"
            lines += wrap_text(title, width, palette.warning)
        if path.rank_shares:
            lines += wrap_text(on_ranks, width, palette.text, "  ")
        lines += self._format_forecast(width)
        for line in path.missing:
            lines += wrap_text(f"· {clean(line)}", width, palette.text, "  ")
        if path.advice:
            lines += wrap_text(f"to see more, {clean(path.advice)}", width, palette.strong, "  ")
        if self._selection:
            lines += wrap_text(f"▶ selected: {self._selection}", width, palette.accent, "  ")
        return lines

    def _format_forecast(self, width: int) -> Lines:
        """Format the forecast and its scenarios, with what each saves alone."""
        forecast, palette = self._forecast, self.palette
        if forecast is None:
            return []
        step = forecast.forecast.step or "the whole recording"
        lines = wrap_text(f"what if, {clean(step)}: {forecast.describe()}", width, palette.accent, "  ")
        alone = "  alone " if len(forecast.each) > 1 else "  "
        lines += [[(truncate(f"{alone}{text}", width), palette.text)] for text in forecast.list_scenarios()]
        return [*lines, [("  P changes the scenarios; an empty list ends it", palette.muted)]]

    def _format_kinds(self, shown: ShownPath, width: int, first: int) -> Lines:
        palette = self.palette
        lines: Lines = [[(f"  {'share':>6} {'time':>9} {'pieces':>7}  on the path", palette.muted)]]
        most = max((each.share for each in shown.path.shares), default=1.0)
        for index, each in enumerate(shown.path.shares):
            self._line_by_entry[index] = first + len(lines)
            numbers = f"{format_share(each.share):>6} {format_duration(each.time):>9} {each.count:>7,}  "
            room = width - 2 - len(numbers)
            label = truncate(clean(each.label), room)
            bar = "█" * round(each.share / most * BAR_CELLS) if room >= 32 or width >= KINDS_WIDTH + 18 else ""
            current = index == self._cursor
            lines.append(
                [
                    ("▶ " if current else "  ", palette.key),
                    (numbers, palette.active if current else palette.text),
                    (
                        label + " " * max(24 - cell_len(label), 1) * bool(bar),
                        palette.active if current else palette.text,
                    ),
                    (bar, palette.accent),
                ]
            )
        return lines

    def _format_longest(self, shown: ShownPath, width: int, first: int) -> Lines:
        palette = self.palette
        lines: Lines = [[(f"  {'longest':>9} {'at':>10}  enter shows it, n N walk the path", palette.muted)]]
        for number, index in enumerate(shown.longest.tolist()):
            entry = len(shown.path.shares) + number
            self._line_by_entry[entry] = first + len(lines)
            segment = shown.segment(index)
            current = entry == self._cursor
            numbers = f"{format_duration(segment.end - segment.start):>9} {format_duration(segment.start):>10}  "
            text = truncate(self.describe_segment(segment), width - 2 - len(numbers))
            style = palette.active if current else palette.text
            row: list[TextRun] = [("▶ " if current else "  ", palette.key), (numbers, style), (text, style)]
            lines.append(row)
        return lines

    def describe_segment(self, segment: PathSegment) -> str:
        """Describe a segment in a few words: its kind, and its event."""
        rank = f"rank {segment.rank} " if segment.rank != NO_RANK else ""
        if segment.event < 0:
            return f"{rank}{segment.label}"
        event = self._trace.event(segment.event)
        name = shorten_event_name(event)
        if event.kind in GPU_WORK and not segment.is_wait:
            return f"{rank}{segment.label.partition(':')[0]}: {name}"
        return f"{rank}{segment.label}, {'at' if segment.is_wait else 'in'} {name}"
