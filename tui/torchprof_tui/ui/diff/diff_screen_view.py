"""The widgets of the diff screen, their layout, what the worker reports, and how the state reaches the widgets."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Static

from torchprof_tui.analysis.compare.comparison import Comparison
from torchprof_tui.analysis.compare.descriptions import describe_row
from torchprof_tui.analysis.compare.matched_rows import By, RowStatus
from torchprof_tui.analysis.compare.side_choice import RankNumbers
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.ui.common.debounced_worker import DebouncedWorker
from torchprof_tui.ui.common.panel_dock import Dock, PanelPicked
from torchprof_tui.ui.common.prompt_input import Prompt
from torchprof_tui.ui.common.screen_state import is_removed
from torchprof_tui.ui.common.status_line import StatusLine
from torchprof_tui.ui.common.terminal_info import follow_theme
from torchprof_tui.ui.diff.comparison_worker import ComparedInput, compare_inputs, match_rows
from torchprof_tui.ui.diff.diff_keys import FAILED_HINTS, HINTS
from torchprof_tui.ui.diff.diff_layout import compute_layout, explain_small_screen
from torchprof_tui.ui.diff.diff_messages import (
    AccountBuilt,
    ComparisonFailed,
    EventsMatched,
    RanksCompared,
    RowsMatched,
    SidesChosen,
)
from torchprof_tui.ui.diff.diff_panels import ACCOUNT, REMARKS, ROWS, AccountPanel, RemarksPanel, RowsPanel
from torchprof_tui.ui.diff.diff_title import DiffTitle
from torchprof_tui.ui.diff.difference_list import DifferenceList
from torchprof_tui.ui.diff.locked_view import Lock, LockedView, Pair, list_step_starts
from torchprof_tui.ui.diff.side_lanes import SideLanes
from torchprof_tui.ui.diff.verdict_lines import VerdictLines

if TYPE_CHECKING:
    from torchprof_tui.trace.loading.opener import TraceOpener

PARTS = (ACCOUNT, ROWS, REMARKS, "A", "B")
"""The parts that `tab` goes through: the panels, and the lanes of both sides."""

MAX_PREVIOUS_VIEWS = 100


@dataclass(frozen=True, slots=True)
class ShownView:
    """What was shown before a jump."""

    view: LockedView
    selected: Pair
    cursor: int


class DiffScreenView(Screen[None]):
    """Show two traces, one above the other. `diff_screen` adds the keys.

    `opener`: that of the trace that was opened for the comparison, closed with the screen; None where both were open.
    `problem`: why the two cannot be compared, if that is known already.
    """

    CSS_PATH = "diff_screen.tcss"
    AUTO_FOCUS = ""
    TITLE = "diff"

    def __init__(
        self,
        a: ComparedInput,
        b: ComparedInput,
        numbers: RankNumbers = (None, None),
        opener: TraceOpener | None = None,
        problem: str = "",
    ) -> None:
        super().__init__()
        self.inputs = (a, b)
        self._numbers, self._opener, self._problem = numbers, opener, problem
        self.comparison: Comparison | None = None
        self._has_account = False
        self.sides = (SideLanes(a.trace, a.label, 0), SideLanes(b.trace, b.label, 1))
        self.differences = DifferenceList()
        spans = (a.trace.span, b.trace.span)
        self._starts: list[Pair] = [(spans[0][0], spans[1][0])]
        self.locked = LockedView.at(self._starts[0], spans, max(end - start for start, end in spans), 80)
        self._previous: deque[ShownView] = deque(maxlen=MAX_PREVIOUS_VIEWS)
        self._part = ACCOUNT
        self._is_enlarged = False
        self._verdict = VerdictLines()
        self._account, self._rows, self._remarks = AccountPanel(), RowsPanel(self.differences), RemarksPanel()
        panels = ((ACCOUNT, "account", self._account), (ROWS, "rows", self._rows), (REMARKS, "remarks", self._remarks))
        self._dock = Dock(panels, (ROWS, REMARKS), id="diff-dock")
        self._status = StatusLine(id="diff-status")
        self._prompt = Prompt(id="prompt")
        self._worker = DebouncedWorker(self)

    def compose(self) -> ComposeResult:
        yield DiffTitle(self.inputs[0].label, self.inputs[1].label)
        yield self._verdict
        yield Static("", id="diff-problem", markup=False)
        yield from self.sides
        yield self._dock
        yield self._status
        yield self._prompt

    def on_mount(self) -> None:
        follow_theme(self)
        self._status.show_keys(HINTS)
        self._dock.mark_keys(True)
        if self._problem:
            self._show_problem(self._problem)
        else:
            inputs, numbers = self.inputs, self._numbers
            self.run_worker(lambda: compare_inputs(*inputs, numbers, self._post), thread=True, group="compare")

    def on_unmount(self) -> None:
        if self._opener is not None:
            self._opener.close()

    def _post(self, message: Message) -> None:
        """Post a message of the worker, unless the screen was left."""
        if self.is_attached:
            self.post_message(message)

    # -- layout --------------------------------------------------------------------------------------------

    def on_resize(self, event: events.Resize) -> None:
        if is_removed(self):
            return
        small = explain_small_screen(*event.size)
        self.set_class(bool(small), "too-small")
        if small or self._problem:
            self.query_one("#diff-problem", Static).update(small or self._format_problem())
        self._apply_layout()

    def _apply_layout(self) -> None:
        layout = compute_layout(
            *self.size, self._is_enlarged, (self.sides[0].count_lines(), self.sides[1].count_lines())
        )
        self._dock.styles.height = layout.dock
        self._dock.show_side_by_side(layout.panels, self.size.width)
        widths = [side.lane_labels.preferred_width(self.size.width) for side in self.sides]
        for side, lines in zip(self.sides, layout.lanes, strict=True):
            side.styles.height = lines + side.step_line.line_count
            side.set_gutter_width(max(widths))
        self._refresh_widgets()

    @property
    def gutter_width(self) -> int:
        return max(side.lane_labels.preferred_width(self.size.width) for side in self.sides)

    # -- what the worker reports ---------------------------------------------------------------------------

    def on_sides_chosen(self, message: SidesChosen) -> None:
        """Show the first pair of compared steps: the lanes are on screen before the account."""
        comparison = self.comparison = message.comparison
        a, b = comparison.a, comparison.b
        self._starts = list_step_starts(a.side.steps, b.side.steps, (a.side.window, b.side.window))
        length = max(int(side.step_bounds[1]) - start for side, start in zip((a, b), self._starts[0], strict=True))
        width = max(self.size.width - self.gutter_width, 1)
        self.locked = LockedView.at(self._starts[0], self.locked.spans, length, width)
        for side, analysis in zip(self.sides, (a, b), strict=True):
            side.set_side(analysis.side)
        self._verdict.show_progress("dividing the steps of both and checking them for patterns …")
        self._refresh_widgets()

    def on_account_built(self, message: AccountBuilt) -> None:
        self.comparison, self._has_account = message.comparison, True
        self._verdict.show_comparison(message.comparison)
        self._account.show_comparison(message.comparison)
        self._remarks.show_comparison(message.comparison)
        self._refresh_widgets()

    def on_ranks_compared(self, message: RanksCompared) -> None:
        self._remarks.show_ranks(message.ranks)

    def on_events_matched(self, message: EventsMatched) -> None:
        for side, matches in zip(self.sides, message.matches, strict=True):
            side.set_matches(matches)

    def on_rows_matched(self, message: RowsMatched) -> None:
        self.differences.set_rows(message.rows)
        is_same = self.comparison is not None and self.comparison.is_same_recording
        self._rows.empty_text = "no differences" + (": the same recording" if is_same else "")
        self._rows.show_rows()
        self._refresh_widgets()

    def on_comparison_failed(self, message: ComparisonFailed) -> None:
        self._show_problem(message.line)

    def _show_problem(self, line: str) -> None:
        self._problem = line
        self.add_class("failed")
        self.query_one("#diff-problem", Static).update(self._format_problem())
        self._status.show_keys(FAILED_HINTS)

    def _format_problem(self) -> str:
        next_step = "D compares with another trace (path, sample:, host:path), two steps (step 3/4) or ranks (rank 0/3)"
        return f"These cannot be compared.\n\n{clean(self._problem)}\n\n{next_step}"

    def _request_rows(self, by: By) -> None:
        comparison = self.comparison
        if comparison is not None:
            post = self._post
            self.run_worker(lambda: match_rows(comparison, by, post), thread=True, exclusive=True, group="rows")

    # -- showing the state ---------------------------------------------------------------------------------

    def _refresh_widgets(self, message: str = "") -> None:
        """Pass the state to the widgets. Cheap: each repaints what differs in the next frame."""
        gutter_width = self.gutter_width
        self.locked = self.locked.resize(self.size.width - gutter_width)
        for side in self.sides:
            side.update_widgets(self.locked, gutter_width, self._part == side.letter)
        self._dock.mark_keys(self._part in (ACCOUNT, ROWS, REMARKS))
        if not self._problem:
            self._status.show_state(self._describe_state())
        self._status.show_message(message)

    def _describe_state(self) -> str:
        """Describe the lock, and the difference that is shown."""
        row, differences = self.differences.current, self.differences
        if row is not None:
            what = {RowStatus.ADDED: "only in B", RowStatus.REMOVED: "only in A", RowStatus.CHANGED: "changed"}
            number = f"{differences.cursor + 1:,}/{max(differences.count, differences.cursor + 1):,}"
            lock = "locked at the op · " if self.locked.lock is Lock.OPS else ""
            return f"{number} {what.get(row.status, 'matched')} · {lock}{describe_row(row, differences.by)}"
        return self._describe_lock()

    def _describe_lock(self) -> str:
        if self.comparison is None:
            return ""
        if self.locked.lock is Lock.OPS:
            return "locked at the op"
        sides = self.comparison.a.side, self.comparison.b.side
        numbers = [f"#{side.steps[self.locked.step].number}" if side.steps else "start" for side in sides]
        return f"locked at {'step ' if sides[0].steps or sides[1].steps else ''}{' | '.join(numbers)}"

    def on_panel_picked(self, message: PanelPicked) -> None:
        self._set_part(message.panel)

    def _set_part(self, part: str) -> None:
        """Give a part the keys; a panel is shown."""
        self._part = part
        if part in (ACCOUNT, ROWS, REMARKS):
            self._dock.show_panel(part)
        self._refresh_widgets()
