"""The lanes of one side: its step line, gutter and timeline, what is selected, and how far they are scrolled."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical

from torchprof_tui.analysis.compare.event_matches import EventMatches
from torchprof_tui.analysis.compare.side import Side
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.navigation import extent
from torchprof_tui.ui.diff.diff_messages import SideChanged, SideEventPicked, SideZoomAsked
from torchprof_tui.ui.diff.lane_choice import arrange_lanes, find_first_top, order_lanes
from torchprof_tui.ui.diff.locked_view import LockedView
from torchprof_tui.ui.diff.marked_timeline import MarkedTimeline
from torchprof_tui.ui.diff.step_line import StepLine
from torchprof_tui.ui.lanes.lane_gutter import Gutter, LanesFolded
from torchprof_tui.ui.lanes.mouse_gestures import EventPicked, RangeDragged, ScrollAsked, ZoomAsked
from torchprof_tui.ui.lanes.screen_lines import LaneLines
from torchprof_tui.ui.lanes.timeline import LanesResized, PointerMoved

LETTERS = "AB"


class SideLanes(Vertical):
    """Show the lanes of side `number` (0: A, 1: B). `selected`: an event of its trace, -1 for none."""

    DEFAULT_CSS = """
    SideLanes { height: 1fr; width: 100%; }
    SideLanes StepLine { width: 100%; }
    SideLanes Horizontal { height: 1fr; width: 100%; }
    """

    def __init__(self, trace: Trace, label: str, number: int) -> None:
        super().__init__(id=f"side-{LETTERS[number].lower()}")
        self.trace, self.number, self.label = trace, number, label
        self.letter = LETTERS[number]
        self.selected = -1
        self.matches: EventMatches | None = None
        self.step_line = StepLine(self.letter, label, has_ruler=number == 0)
        self.timeline = MarkedTimeline(trace, number)
        self.lane_labels = Gutter(trace)
        self._side: Side | None = None
        self._order = order_lanes(trace)
        self._folded: frozenset[int] = frozenset()
        self._lines = LaneLines()
        self._reference = 0
        self._height = -1
        self._top = 0
        self._was_scrolled = False  # by the user

    def compose(self) -> ComposeResult:
        yield self.step_line
        with Horizontal():
            yield self.lane_labels
            yield self.timeline

    def on_mount(self) -> None:
        self.step_line.styles.height = self.step_line.line_count

    def set_side(self, side: Side) -> None:
        """Set what is compared of the trace: its ops are on the first lines."""
        self._side = side
        self._arrange()

    def set_matches(self, matches: EventMatches) -> None:
        self.matches = matches
        self.timeline.show_statuses(matches.status)

    def set_gutter_width(self, width: int) -> None:
        self.lane_labels.styles.width = width

    # -- mouse ---------------------------------------------------------------------------------------------

    def on_event_picked(self, message: EventPicked) -> None:
        message.stop()
        self.post_message(SideEventPicked(self.number, message.event, message.fit))

    def on_zoom_asked(self, message: ZoomAsked) -> None:
        message.stop()
        self.post_message(SideZoomAsked(message.steps, int(message.at) - self._reference))

    def on_scroll_asked(self, message: ScrollAsked) -> None:
        message.stop()
        self.post_message(SideChanged(self.number, self.scroll_lines(message.lines)))

    def on_lanes_folded(self, message: LanesFolded) -> None:
        message.stop()
        self._folded = self._folded ^ frozenset(message.lanes)
        self._arrange()
        self.post_message(SideChanged(self.number))

    def on_lanes_resized(self, message: LanesResized) -> None:
        message.stop()
        self.resize()
        self.post_message(SideChanged(self.number))

    def on_pointer_moved(self, message: PointerMoved) -> None:
        message.stop()

    def on_range_dragged(self, message: RangeDragged) -> None:
        message.stop()  # ranges are marked in the explorer

    # -- lines ---------------------------------------------------------------------------------------------

    @property
    def line_room(self) -> int:
        """Lines for lanes."""
        return max(self.timeline.size.height, 1)

    def count_lines(self) -> int:
        """Count the lines of all lanes, unfolded, with the rule below those that stay on screen."""
        lanes = [self.trace.lanes[number] for number in self._order]
        return 1 + sum(1 if lane.role is Role.COUNTER else lane.rows for lane in lanes)

    def resize(self) -> None:
        """Arrange the lanes for the size that they got."""
        if self.line_room != self._height:
            self._height = self.line_room
            self._arrange()

    def _arrange(self) -> None:
        self._lines = arrange_lanes(self.trace, self._order, max(self._height, 1), self._folded)
        if not self._was_scrolled and self._side is not None:
            self._top = find_first_top(self._side, self._lines)
        self._top = min(self._top, self._lines.max_top(max(self._height, 1)))

    def scroll_lines(self, count: int) -> str:
        """Scroll by lines, down where positive. Returns why nothing moves, else ""."""
        top = min(max(self._top + count, 0), self._lines.max_top(self._height))
        if top == self._top:
            return f"the {'last' if count > 0 else 'first'} lanes of {self.letter}"
        self._top, self._was_scrolled = top, True
        return ""

    def toggle_fold(self) -> str:
        """Fold all lanes of several rows, or unfold them. Returns why nothing changes, else ""."""
        deep = frozenset(number for number in self._order if self.trace.lanes[number].rows > 1)
        if not deep:
            return f"no lane of {self.letter} has more than one row"
        self._folded = frozenset() if self._folded else deep
        self._arrange()
        return ""

    def select(self, event: int) -> None:
        """Select an event, -1 for none, and scroll to its row."""
        self.selected = event
        if event >= 0:
            index = self._lines.line_index(int(self.trace.lane[event]), int(self.trace.row[event]))
            if index is not None:
                self._top = self._lines.top_to_reveal(index, self._top, max(self._height, 1))

    def list_range(self) -> list[tuple[int, int, int]]:
        """Return the time of the selected event as (side, start, end), nothing without a selection."""
        return [(self.number, *extent(self.trace, self.selected))] if self.selected >= 0 else []

    def describe_selected(self) -> str:
        return "" if self.selected < 0 else self.trace.event(self.selected).name

    def update_widgets(self, view: LockedView, gutter_width: int, has_keys: bool) -> None:
        """Pass the state to the widgets; each repaints what differs."""
        self._reference = view.references[self.number]
        self.step_line.show_side(view.view, view.references[self.number], self.trace.steps, gutter_width)
        self.step_line.mark_keys(has_keys)
        self.timeline.show_lines(view.viewport(self.number), self._lines, self._top)
        self.timeline.select_event(self.selected)
        self.lane_labels.show_lines(self._lines, self._top)
        lane = int(self.trace.lane[self.selected]) if self.selected >= 0 else -1
        self.lane_labels.set_current_lane(lane)
