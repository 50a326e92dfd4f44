"""The panel of the critical path: requests it for what is shown; how far it can be trusted, its longest segments.

↑ ↓ move the cursor over kinds and segments; enter shows the segment, or the longest one of the kind; n N walk along
the path, on a kind along its segments. The path is found on a worker thread by a module that is imported there.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual.geometry import Size

from torchprof_tui.analysis.repetition.step_list import are_repetitions
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration, format_time
from torchprof_tui.trace.model.event_kind import GPU_WORK
from torchprof_tui.trace.model.trace import Step, Trace
from torchprof_tui.ui.common.name_display import clean, truncate
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.common.painted_widget import Lines, TextRun, join_columns, wrap_text
from torchprof_tui.ui.explorer.panels.chain_panel import ChainPanel
from torchprof_tui.ui.explorer.panels.panel import Panel, shorten_event_name
from torchprof_tui.ui.lanes.view_state import ViewState

if TYPE_CHECKING:
    from torchprof_tui.ui.explorer.path.shown_forecast import ShownForecast
    from torchprof_tui.ui.explorer.path.shown_path import PathRead, PathSegment, ShownPath


MARKED_RANGE = "the marked range"

ALL_RANKS = -1  # instead of the index of a rank: the path of all ranks


@record
class PathScope:
    """A scope of one rank or of ALL_RANKS, ns. `event`: of a recorded step, in the whole trace; -1 for a range."""

    rank_index: int
    start: int
    end: int
    label: str
    event: int = -1

    @property
    def is_marked(self) -> bool:
        return self.event < 0 and self.label == MARKED_RANGE


def choose_scope(state: ViewState, rank_index: int, before: PathScope | None) -> PathScope:
    """Choose the scope: the mark once its end is set, else the step of the selection, else that in mid-screen.

    `before`: the scope until now, which stays while it is on screen and the selection is in no other step. Without
    steps on screen it is the time on screen.
    """
    view = state.viewport
    if state.mark is not None and not state.mark.live:
        return PathScope(rank_index, state.mark.start, state.mark.end, MARKED_RANGE)
    if before is not None:
        is_visible = before.start < view.t1 and before.end > view.t0
        if before.rank_index != rank_index or before.is_marked or not is_visible:
            before = None
    time = _find_selected_time(state)
    if before is not None and (time is None or before.start <= time < before.end):
        return before
    steps = state.current_steps()
    if time is not None:
        for step in steps:
            if step.start <= time < step.start + step.duration:
                return _describe_step(step, rank_index)
    if before is not None:
        return before
    middle = (view.t0 + view.t1) // 2
    visible = [step for step in steps if step.start < view.t1 and step.start + step.duration > view.t0]
    if visible:
        nearest = min(visible, key=lambda step: abs(2 * step.start + step.duration - 2 * middle))
        return _describe_step(nearest, rank_index)
    first, last = state.current_trace().span
    start, end = max(view.t0, first), min(view.t1, last)
    label = "the whole recording" if (start, end) == (first, last) else "the time that was on screen"
    return PathScope(rank_index, start, end, label)


def join_ranks(scope: PathScope, trace: Trace) -> PathScope:
    """Return the scope of all ranks that a scope of one belongs to: its step, as on the first rank, or its range."""
    step = next((each for each in trace.all_ranks[scope.rank_index].steps if each.event == scope.event), None)
    if step is None:
        return replace(scope, rank_index=ALL_RANKS)
    for each in trace.all_ranks[0].steps:
        if each.number == step.number:
            return PathScope(ALL_RANKS, each.start, each.start + each.duration, each.name, each.event)
    return replace(scope, rank_index=ALL_RANKS, event=-1)


def covers_whole(trace: Trace, scope: PathScope) -> bool:
    """Return whether a scope is all of a rank's trace."""
    return scope.event < 0 and (scope.start, scope.end) == trace.span


def _describe_step(step: Step, rank_index: int) -> PathScope:
    event = -1 if are_repetitions([step]) else step.event
    return PathScope(rank_index, step.start, step.start + step.duration, step.name, event)


def _find_selected_time(state: ViewState) -> int | None:
    """Return the start of the selected event, of GPU work that of its launch: the step that it belongs to has it."""
    if state.selected < 0:
        return None
    launch = int(state.trace.links.launch_of[state.selected])
    return int(state.trace.start[launch if launch >= 0 else state.selected])


OFF_HINT = (
    "C shows what limits a step: its critical path, the chain of work in which each part waits for the one before. The "
    "lanes dim what is not on it."
)
MIN_TOLD_ERROR = 0.01  # difference of the replay that is said of a path that can be trusted
TWO_COLUMNS_MIN_WIDTH = 104
KINDS_WIDTH = 50
BAR_CELLS = 12
MAX_RANKS = 6
NO_RANK = -1  # as `segments.NO_RANK`, which this module does not import: numpy code is imported on the worker thread


MAX_KEPT_PATHS = 4
SEGMENT_MARGIN = 0.5
"""Margin on both sides of a segment that is shown, as a share of its length: what it waited for is on screen."""

MIN_SEGMENT_CELLS = 3  # a segment that is narrower on screen is zoomed to


def read_path(trace: Trace, scope: PathScope) -> PathRead:
    """Find the critical path of a scope; called on a worker thread."""
    read: PathRead = importlib.import_module("torchprof_tui.ui.explorer.path.shown_path").read_path(trace, scope)
    return read


class PathPanel(Panel):
    """Request and show the critical path of what is on screen. `is_on`: whether it is shown.

    The cursor is on a kind or, below them, on a segment.
    """

    NAME = "path"

    def __init__(self, trace: Trace, chain_panel: ChainPanel) -> None:
        super().__init__()
        self._trace, self._chain_panel = trace, chain_panel
        self.is_on = False
        self._is_joined = False  # the path of all ranks, not that of the cursor's rank
        self._requested: PathScope | None = None
        self._rank_scope: PathScope | None = None  # of the cursor's rank
        self._kept: dict[PathScope, PathRead] = {}
        self._position = -1  # the segment that the last step along the path went to
        self._walked_event = -1  # selected by the last step: it may begin in another step, but belongs to this path
        self.shown: ShownPath | None = None
        self._message = OFF_HINT
        self._selection = ""
        self._forecast: ShownForecast | None = None
        self._cursor = 0
        self._reveals_cursor = False
        self._line_by_entry: dict[int, int] = {}

    @property
    def has_keys(self) -> bool:
        return self.is_on and self.shown is not None

    def list_next_keys(self) -> list[tuple[str, str]]:
        if not self.is_on:
            return [("C", "show it")]
        if self.shown is None:
            return [("{ }", "another step"), ("C", "hide it")]
        return [("enter", "show it"), ("n N", "along it"), (":what-if", "what if"), ("C", "hide it")]

    @property
    def shows_chain(self) -> bool:
        return not self.has_keys

    @property
    def kind(self) -> int:
        """The kind under the cursor, an index of the path's shares; -1 where it is on a segment."""
        return self._cursor if self.shown is not None and self._cursor < len(self.shown.path.shares) else -1

    def _show_message(self, message: str) -> None:
        """Show why there is no path."""
        if self.shown is not None or message != self._message:
            self.shown, self._message = None, message
            self.refresh_content()

    def show_forecast(self, forecast: ShownForecast | None) -> None:
        """Show what a step would take with some changes, above the path; None for no changes."""
        self._forecast = forecast
        self.refresh_content()

    def toggle(self) -> str:
        """Show the path, or hide it; a mark that still follows the selection ends here. Returns a message.

        Of several ranks first the path of all, then that of the cursor's rank.
        """
        if self.is_on and self._is_joined:
            self._is_joined = False
        else:
            self.is_on = not self.is_on
            self._is_joined = self.is_on and self.context.view_state.trace.merged_ranks is not None
        if self.is_on and self.context.view_state.mark is not None and self.context.view_state.mark.live:
            self.context.view_state.toggle_mark()
        self._requested = self._rank_scope = None
        self.update()
        if not self.is_on:
            return "critical path hidden"
        return "" if self.shown is not None else self._describe_computing()

    def update(self) -> None:
        """Pass the state to panel and lanes; request a path where the scope is another."""
        if not self.is_on:
            self._show_message(OFF_HINT)
            self.context.timeline.show_path(None)
            self._chain_panel.show_path_note("")
            return
        state = self.context.view_state
        ranks = state.trace.merged_ranks
        rank_index = 0 if ranks is None else ranks.index_of_lane(state.current_rank().header_lane)
        if self._walked_event < 0 or state.selected != self._walked_event or self._requested is None:
            self._walked_event = -1
            scope = self._rank_scope = choose_scope(state, rank_index, self._rank_scope)
            if self._is_joined:
                scope = join_ranks(scope, state.trace)
        else:
            scope = self._requested
        if scope != self._requested:
            self._requested = scope
            if scope in self._kept:
                self._show(self._kept[scope])
            else:
                self._show_message(self._describe_computing())
                self.context.worker.submit("path", partial(read_path, state.trace, scope))
        self._describe_selection()

    def on_path_read(self, message: PathRead) -> str:
        """Show a path that was found, if it is still asked for."""
        self._kept[message.scope] = message
        while len(self._kept) > MAX_KEPT_PATHS:
            del self._kept[next(iter(self._kept))]
        if not self.is_on or message.scope != self._requested:
            return ""
        self._show(message)
        self._describe_selection()
        if message.path is None:
            return f"no critical path: {message.problem}"
        path, share = message.path.path, message.path.path.shares[0]
        trust = "" if path.is_trusted else " · dependencies are missing"
        most = f"{format_share(share.share)} {share.label}"
        of = clean(message.scope.label)
        if message.scope.rank_index == ALL_RANKS:
            late = path.rank_shares[0]
            most += f", {format_share(late.share)} on rank {late.rank}"
            return f"critical path of {of} on all ranks: {most}{trust} · C: of this rank alone"
        return f"critical path of {of}: {most}{trust} · C hides it"

    def _show(self, read: PathRead) -> None:
        self._position = -1
        self.context.timeline.show_path(None if read.path is None else read.path.rows)
        if read.path is None:
            self._show_message(f"No critical path of {clean(read.scope.label)}: {read.problem}.")
        elif read.path is not self.shown:
            self.shown, self._message, self._cursor = read.path, "", 0
            self.refresh_content()

    def _describe_computing(self) -> str:
        label = "" if self._requested is None else f" of {clean(self._requested.label)}"
        return f"computing the critical path{label} …"

    def _describe_selection(self) -> None:
        shown, selected = self.shown, self.context.view_state.selected
        text = "" if shown is None or selected < 0 else shown.describe_event(self.context.view_state.trace, selected)
        if text != self._selection:
            self._selection = text
            self._reveals_cursor = self._cursor > 0
            self.refresh_content(top=False)
        self._chain_panel.show_path_note(text)

    def move(self, distance: int) -> str:
        shown, entry = self.shown, self._cursor + distance
        if shown is not None and 0 <= entry < len(shown.path.shares) + len(shown.longest):
            self._cursor, self._reveals_cursor = entry, True
            self.refresh_content(top=False)
        elif distance > 0 or not self.scroll_to_top():
            return f"the {'last' if distance > 0 else 'first'} row of the critical path; tab leaves the panel"
        self._position = -1
        return ""

    def enter(self) -> str | None:
        """Show the segment under the cursor, of a kind its longest one, on the lanes."""
        shown = self.shown
        if shown is None or not self.is_on:
            return None
        if self.kind < 0:
            return self._go_to(int(shown.longest[self._cursor - len(shown.path.shares)]), fits=True)
        found, segments = shown.list_segments(self.kind), shown.path.segments
        return self._go_to(int(found[(segments.end[found] - segments.start[found]).argmax()]), fits=True)

    def next_evidence(self, distance: int) -> str | None:
        """Go to the next segment (1) or the previous one (-1), of the kind under the cursor if any."""
        shown = self.shown
        if shown is None or not self.is_on or self.context.view_state.search.is_last_question:
            return None
        indexes = shown.list_segments(self.kind)
        place = int(indexes.searchsorted(self._position))
        if self._position >= 0 and place < len(indexes) and int(indexes[place]) == self._position:
            place += distance
        else:  # the first step: from the cursor of the lanes
            ends = shown.path.segments.end[indexes]
            place = int(ends.searchsorted(self.context.view_state.cursor_time(), side="right")) - (distance < 0)
        return self._go_to(int(indexes[place % len(indexes)]), fits=False)

    def _go_to(self, index: int, fits: bool) -> str:
        """Select the event of a segment, and show its time. Returns a message that describes the segment."""
        shown, state = self.shown, self.context.view_state
        if shown is None or index < 0:
            return ""
        self._position = index
        segment = shown.segment(index)
        view = state.viewport
        state.select(segment.event)
        state.viewport = view
        length = segment.end - segment.start
        is_inside = view.t0 <= segment.start and segment.end <= view.t1
        if fits or length < MIN_SEGMENT_CELLS * view.ns_per_cell or length > view.span:
            margin = max(round(length * SEGMENT_MARGIN), 1)
            state.show_range(segment.start - margin, segment.end + margin)
        elif not is_inside:
            state.viewport = view.centre((segment.start + segment.end) // 2)
        self._walked_event = segment.event
        place = f"{index + 1:,} of {len(shown.path.segments):,}"
        return f"critical path, {place}: {format_duration(length)} {self.describe_segment(segment)}"

    def prepare(self, size: Size) -> None:
        super().prepare(size)
        if self._reveals_cursor:
            self._reveals_cursor = False
            line = self._line_by_entry.get(self._cursor, 0)
            self._top = min(max(self._top, line - size.height + 1), line)

    def content(self, width: int) -> Lines:
        shown = self.shown
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
        of += f" of {shown.rank_label}" if shown.rank_label else ""
        of += f", {format_duration(path.duration)}"
        if path.rank_shares:
            parts = [f"rank {each.rank} {format_share(each.share)}" for each in path.rank_shares[:MAX_RANKS]]
            others = len(path.rank_shares) - len(parts)
            on_ranks = "on the path: " + ", ".join(parts) + (f" and {others} more" if others > 0 else "")
        lines: Lines = []
        if path.is_trusted:
            largest = max(path.shares, key=lambda each: each.share, default=None)
            most = "" if largest is None else f": {format_share(largest.share)} {clean(largest.label)}"
            lines += wrap_text(of + most, width, palette.strong)
        else:
            lines += wrap_text(f"dependencies are missing, do not trust this path of {of}", width, palette.warning)
            lines += wrap_text(_describe_replay(path.replay_error), width, palette.muted, "  ")
        if path.rank_shares:
            lines += wrap_text(on_ranks, width, palette.text, "  ")
        lines += self._format_forecast(width)
        for line in path.missing:
            lines += wrap_text(f"· {clean(line)}", width, palette.text, "  ")
        if path.advice:
            lines += wrap_text(f"to see more, {clean(path.advice)}", width, palette.strong, "  ")
        if self._selection:
            lines += wrap_text(f"selected event: {self._selection}", width, palette.strong, "  ")
        remarks = " · ".join(_describe_measure(shown))
        return lines + (wrap_text(remarks, width, palette.muted, "  ") if remarks else [])

    def _format_forecast(self, width: int) -> Lines:
        forecast, palette = self._forecast, self.palette
        if forecast is None:
            return []
        step = forecast.forecast.step or "the whole recording"
        lines = wrap_text(f"what if, {clean(step)}: {forecast.describe()}", width, palette.strong, "  ")
        if by_itself := forecast.forecast.describe_alone():
            lines += wrap_text(by_itself, width, palette.text, "  ")
        alone = "  alone " if len(forecast.each) > 1 else "  "
        lines += [[(truncate(f"{alone}{text}", width), palette.text)] for text in forecast.list_scenarios()]
        return [*lines, [("  :what-if changes the scenarios; an empty list ends it", palette.muted)]]

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
            style = palette.active if current else palette.text
            gap = " " * max(24 - cell_len(label), 1) * bool(bar)
            lines.append(
                [
                    ("▶ " if current else "  ", palette.cursor),
                    (numbers, style),
                    (label + gap, style),
                    (bar, palette.bar),
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
            row: list[TextRun] = [("▶ " if current else "  ", palette.cursor), (numbers, style), (text, style)]
            lines.append(row)
        return lines

    def describe_segment(self, segment: PathSegment) -> str:
        """Describe a segment in a few words: its kind, and its event."""
        rank = f"rank {segment.rank} " if segment.rank != NO_RANK else ""
        if segment.event < 0:
            return f"{rank}{segment.label}"
        event = self._trace.event(segment.event)
        name = clean(event.name) if event.name.startswith("aten::") else shorten_event_name(event)
        if event.kind in GPU_WORK and not segment.is_wait:
            return f"{rank}{segment.label.partition(':')[0]}: {name}"
        return f"{rank}{segment.label}, {'at' if segment.is_wait else 'in'} {name}"


def _describe_replay(error: float) -> str:
    more = "less" if error < 0 else "more"
    return f"a replay of the recorded dependencies takes {abs(error) * 100:.1f} % {more} time"


def _describe_measure(shown: ShownPath) -> Iterator[str]:
    """Say how a trusted path's length differs from that of the steps row, and what of it was not recorded."""
    path, scope = shown.path, shown.scope
    length, annotated = format_duration(path.duration), format_duration(scope.end - scope.start)
    if scope.event >= 0 and length != annotated:
        on_first = " on the first rank" if scope.rank_index == ALL_RANKS else ""
        yield f"{length}: from the end of earlier work to that of its own; the steps row shows {annotated}{on_first}"
    if path.is_trusted and abs(path.replay_error) >= MIN_TOLD_ERROR:
        yield _describe_replay(path.replay_error)
    if path.is_trusted and path.inferred:
        yield f"dependencies taken from the order of calls, not recorded: {path.inferred:,}"
