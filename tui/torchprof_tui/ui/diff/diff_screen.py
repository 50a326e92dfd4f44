"""Screen of a comparison: both traces' lanes locked in time, differences by size, the account, rows and remarks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.message import Message
from textual.reactive import var
from textual.widgets import Static

from torchprof_tui.analysis.compare.comparison import Comparison, describe_row
from torchprof_tui.analysis.compare.event_matches import EventMatches, match_events
from torchprof_tui.analysis.compare.matched_rows import ComparedRows, RowStatus
from torchprof_tui.analysis.compare.side_choice import (
    RankNumbers,
    analyse_side,
    compare_ranks_of_runs,
    format_label,
    match_steps,
    select_ranks,
)
from torchprof_tui.analysis.compare.step_selection import AUTOMATIC, ComparisonError, StepSelection
from torchprof_tui.answers.pictures.waterfall import draw_waterfall
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_time
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.specs.address import SAMPLE_PREFIX
from torchprof_tui.ui.common import keys
from torchprof_tui.ui.common.child_screen import SEARCH_HINT, SearchScreen, cycle
from torchprof_tui.ui.common.compare_asked import CompareAsked
from torchprof_tui.ui.common.comparison_request import ComparisonRequest, list_own_choices
from torchprof_tui.ui.common.labels import short_label
from torchprof_tui.ui.common.panel_dock import Dock, PanelPicked
from torchprof_tui.ui.common.status_line import Choice
from torchprof_tui.ui.diff.diff_panels import (
    ACCOUNT,
    GROUPINGS,
    REMARKS,
    ROWS,
    SAME_RECORDING,
    WAYS_TO_COMPARE,
    AccountPanel,
    DifferenceList,
    DiffTitle,
    RemarksPanel,
    RowsPanel,
    VerdictLines,
)
from torchprof_tui.ui.diff.locked_view import (
    Lock,
    LockedView,
    Pair,
    compute_layout,
    explain_small_screen,
    list_step_starts,
)
from torchprof_tui.ui.diff.side_lanes import SideLanes
from torchprof_tui.ui.explorer import explorer_screen
from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen
from torchprof_tui.ui.explorer.lanes_area import PanelSize
from torchprof_tui.ui.lanes.lane_gutter import LanesFolded
from torchprof_tui.ui.lanes.mouse_gestures import EventPicked, PanAsked, ScrollAsked, ZoomAsked
from torchprof_tui.ui.lanes.timeline import LanesResized

if TYPE_CHECKING:
    from torchprof_tui.trace.loading.opener import TraceOpener


class SideExplorer(ExplorerScreen):
    """Show a trace at an event (-1: as a whole) with a panel ("" for the details)."""

    CSS_PATH = str(Path(explorer_screen.__file__).with_name("explorer_screen.tcss"))
    TITLE = "explorer of a side"

    def __init__(self, trace: Trace, letter: str, event: int, panel: str = "") -> None:
        super().__init__(trace)
        self._letter, self._event, self._first_panel = letter, event, panel

    def on_mount(self) -> None:
        if self._event >= 0:
            self.call_after_refresh(self._show_event)
        if self._first_panel:
            self._dock.show_panel(self._first_panel)

    def _show_event(self) -> None:
        self.view_state.fit_event(self._event)
        self._refresh_widgets(f"{self._letter} of the comparison: esc goes back to it")

    def action_back(self) -> None:
        state = self.view_state
        if self.panel_size is PanelSize.NORMAL and state.mark is None and state.search.matches is None:
            self.dismiss()
        else:
            super().action_back()


PARTS = (ACCOUNT, ROWS, REMARKS, "A", "B")  # the parts that `tab` goes through: the panels, and the lanes of both sides
MAX_PREVIOUS_VIEWS = 100


LARGEST_ZOOM, WHOLE = "this is the largest zoom: s zooms out", "all of both traces is on screen: w zooms in"


@record
class ComparedInput:
    """One side as asked for: `trace` of one rank, `whole` as it was opened, how it is called, the steps asked for."""

    trace: Trace
    whole: Trace
    label: str
    selection: StepSelection = AUTOMATIC


class DiffScreen(SearchScreen):
    """Show two traces, one above the other.

    `opener`: that of the trace that was opened for the comparison, closed with the screen; None where both were open.
    `problem`: why the two cannot be compared, if that is known already.
    """

    BINDINGS = keys.DIFF
    KEYLESS_COMMANDS = keys.DIFF_COMMANDS
    help_topic = "diff"
    SEARCH = "filter"
    CSS_PATH = "diff_screen.tcss"
    TITLE = "diff"

    reserved_lines: var[int] = var(0)
    """Lines above the comparison that a panel of a case takes."""

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
        self.sides = (SideLanes(a.trace, a.label, 0), SideLanes(b.trace, b.label, 1))
        self.differences = DifferenceList()
        spans = (a.trace.span, b.trace.span)
        self._starts: list[Pair] = [(spans[0][0], spans[1][0])]
        self.locked = LockedView.at(self._starts[0], spans, max(end - start for start, end in spans), 80)
        self._previous: deque[tuple[LockedView, Pair, int]] = deque(maxlen=MAX_PREVIOUS_VIEWS)
        """By jump: the view before it, the selected events, and the cursor of the differences."""
        self._part = ACCOUNT
        self._is_enlarged = False
        self._verdict = VerdictLines(id="diff-verdict")
        self._account, self._remarks = AccountPanel(id="diff-account"), RemarksPanel(id="diff-remarks")
        self._rows = RowsPanel(self.differences)
        panels = ((ACCOUNT, "account", self._account), (ROWS, "rows", self._rows), (REMARKS, "remarks", self._remarks))
        self._dock = Dock(panels, (ROWS, REMARKS), id="diff-dock")

    def compose(self) -> ComposeResult:
        yield DiffTitle(self.inputs[0].label, self.inputs[1].label)
        yield self._verdict
        yield Static("", id="diff-problem", markup=False)
        yield from (*self.sides, self._dock, self._status, self._prompt)

    def on_mount(self) -> None:
        self.follow_theme(keys.DIFF_HINTS)
        self._dock.mark_keys(True)
        if self._problem:
            self._show_problem(self._problem)
        else:
            self.run_worker(self._compare_inputs, thread=True, group="compare")

    def on_unmount(self) -> None:
        if self._opener is not None:
            self._opener.close()

    # -- layout --------------------------------------------------------------------------------------------

    def on_resize(self, event: events.Resize) -> None:
        small = explain_small_screen(*event.size)
        self.set_class(bool(small), "too-small")
        if small or self._problem:
            self.query_one("#diff-problem", Static).update(small or self._format_problem())
        self._apply_layout()

    def watch_reserved_lines(self, _lines: int) -> None:
        if self.is_mounted:
            self._apply_layout()

    def _apply_layout(self) -> None:
        layout = compute_layout(
            self.size.width,
            self.size.height - self.reserved_lines,
            self._is_enlarged,
            (self.sides[0].count_lines(), self.sides[1].count_lines()),
        )
        self._dock.styles.height = layout.dock
        self._dock.show_side_by_side(layout.panels, self.size.width)
        for side, lines in zip(self.sides, layout.lanes, strict=True):
            side.styles.height = lines + side.step_line.line_count
            side.lane_labels.styles.width = self.gutter_width
        self._refresh_widgets()

    @property
    def gutter_width(self) -> int:
        return max(side.lane_labels.preferred_width(self.size.width) for side in self.sides)

    # -- what the worker reports ---------------------------------------------------------------------------

    def _compare_inputs(self) -> None:
        """Compare both sides, on a thread; show each answer as soon as it is known, the fastest first.

        Everything is computed here, so that the UI thread only reads it. The account takes longest: it checks both
        sides for patterns.
        """
        a, b = self.inputs
        try:
            found = [
                analyse_side(side.trace, f"{letter} ({side.label})", side.label, side.selection)
                for letter, side in (("A", a), ("B", b))
            ]
        except ComparisonError as error:
            self.show_later(self._show_problem, str(error))
            return
        sides = match_steps(found[0], found[1])
        for side in sides:
            side.step_bounds  # noqa: B018
        comparison = Comparison(*sides)
        self.show_later(self._show_sides, comparison)
        self.show_later(self._show_matches, match_events(comparison.tree_match, sides[0].side, sides[1].side))
        self.show_later(self._show_rows, comparison.match_rows("op"))
        if not comparison.is_same_recording:
            comparison.verdict  # noqa: B018
            comparison.differences  # noqa: B018
        comparison.account  # noqa: B018
        self.show_later(self._show_account, comparison)
        ranks = compare_ranks_of_runs(a.whole, b.whole, self._numbers, (a.selection, b.selection))
        if ranks:
            self.show_later(self._remarks.show_ranks, ranks)

    def _show_sides(self, comparison: Comparison) -> None:
        """Show the first pair of compared steps: the lanes are on screen before the account."""
        self.comparison = comparison
        a, b = comparison.a, comparison.b
        self._starts = list_step_starts(a.side.steps, b.side.steps, (a.side.window, b.side.window))
        length = max(int(side.step_bounds[1]) - start for side, start in zip((a, b), self._starts[0], strict=True))
        width = max(self.size.width - self.gutter_width, 1)
        self.locked = LockedView.at(self._starts[0], self.locked.spans, length, width)
        for side, analysis in zip(self.sides, (a, b), strict=True):
            side.set_side(analysis.side)
        self._verdict.show_progress("dividing the steps of both and checking them for patterns …")
        self._refresh_widgets()

    def _show_account(self, comparison: Comparison) -> None:
        self.comparison = comparison
        for panel in (self._verdict, self._account, self._remarks):
            panel.show_comparison(comparison)
        self._refresh_widgets()

    def _show_matches(self, matches: tuple[EventMatches, EventMatches]) -> None:
        for side, own in zip(self.sides, matches, strict=True):
            side.set_matches(own)

    def _show_rows(self, rows: ComparedRows) -> None:
        self.differences.set_rows(rows)
        is_same = self.comparison is not None and self.comparison.is_same_recording
        self._rows.empty_text = "no differences" + (": the same recording" if is_same else "")
        self._rows.show_rows()
        self._refresh_widgets()

    def _show_problem(self, line: str) -> None:
        self._problem = line
        self.add_class("failed")
        self.query_one("#diff-problem", Static).update(self._format_problem())
        self._status.show_keys(keys.DIFF_FAILED_HINTS)

    def _format_problem(self) -> str:
        next_step = "D compares with another trace (path, sample:, host:path), two steps (step 3/4) or ranks (rank 0/3)"
        return f"These cannot be compared.\n\n{clean(self._problem)}\n\n{next_step}"

    # -- showing the state ---------------------------------------------------------------------------------

    def _refresh_widgets(self, message: str = "") -> None:
        """Pass the state to the widgets. Cheap: each repaints what differs in the next frame."""
        gutter_width = self.gutter_width
        self.locked = self.locked.resize(self.size.width - gutter_width)
        for side in self.sides:
            side.update_widgets(self.locked, gutter_width, self._part == side.letter)
        self._dock.mark_keys(self._part in (ACCOUNT, ROWS, REMARKS), self._list_next_keys())
        if not self._problem:
            self._status.show_state(self._describe_state())
        self._status.show_message(message)

    def _describe_state(self) -> str:
        """Describe the difference that is shown, with the times of its events; without one, the lock."""
        row, differences = self.differences.current, self.differences
        is_at_op = self.locked.lock is Lock.OPS
        if row is not None:
            what = {RowStatus.ADDED: "only in B", RowStatus.REMOVED: "only in A", RowStatus.CHANGED: "changed"}
            number = f"{differences.cursor + 1:,}/{max(differences.count, differences.cursor + 1):,}"
            lock = "locked at the op · " if is_at_op else ""
            starts = ", ".join(
                f"{side.letter} at {format_time(int(side.trace.start[side.selected]))}"
                for side in self.sides
                if side.selected >= 0
            )
            text = describe_row(row, differences.by)
            return f"{number} {what.get(row.status, 'matched')} · {lock}{text}{f' · {starts}' if starts else ''}"
        if self.comparison is None:
            return ""
        if is_at_op:
            return "locked at the op"
        sides = self.comparison.a.side, self.comparison.b.side
        numbers = [f"#{side.steps[self.locked.step].number}" if side.steps else "start" for side in sides]
        return f"locked at {'step ' if sides[0].steps or sides[1].steps else ''}{' | '.join(numbers)}"

    def _list_next_keys(self) -> list[tuple[str, str]]:
        """List (key, label) of the keys that lead on from the part that has the keys."""
        if not self.differences.count:
            return [("D", "compare others")]
        if self.differences.current is None:
            return [("1", "the largest difference, in A and B")]
        letters = [side.letter for side in self.sides if side.selected >= 0]
        if not letters:
            return [("n", "the next one"), ("b", "by op, kernel, …")]
        return [("enter", f"fit {' and '.join(letters)}"), ("i", f"explorer of {letters[-1]}"), ("n", "the next one")]

    def on_panel_picked(self, message: PanelPicked) -> None:
        self._set_part(message.panel)

    def _set_part(self, part: str) -> None:
        self._part = part
        if part in (ACCOUNT, ROWS, REMARKS):
            self._dock.show_panel(part)
        self._refresh_widgets()

    # -- time ----------------------------------------------------------------------------------------------

    def _move_view(self, move: Callable[[LockedView], LockedView], reason: str, is_jump: bool = False) -> None:
        """Move both sides; show the reason where nothing moves."""
        if self._lacks_sides():
            return
        after = move(self.locked)
        if after == self.locked:
            self._refresh_widgets(reason)
            return
        if is_jump:
            self._remember_view()
        self.locked = after
        self._refresh_widgets()

    def _lacks_sides(self) -> bool:
        """Return whether there is nothing to act on yet; say so."""
        if self._problem:
            self._status.show_message("these cannot be compared: esc goes back, D compares others")
        elif self.comparison is None:
            self._status.show_message("finding the steps of both …")
        return bool(self._problem) or self.comparison is None

    def _remember_view(self) -> None:
        selected = self.sides[0].selected, self.sides[1].selected
        self._previous.append((self.locked, selected, self.differences.cursor))

    def action_zoom(self, steps: int) -> None:
        """Zoom around the middle of the selection where that is on screen, else of the screen."""
        view = self.locked.view
        ranges = [each for side in self.sides for each in side.list_range()]
        middles = [(start + end) // 2 - self.locked.references[side] for side, start, end in ranges]
        anchor = next((middle for middle in middles if view.t0 <= middle < view.t1), None)
        self._move_view(lambda locked: locked.zoom(steps, anchor), LARGEST_ZOOM if steps > 0 else WHOLE)

    def action_pan(self, tenths: int) -> None:
        self._move_view(lambda view: view.pan(tenths), f"the {'end' if tenths > 0 else 'start'} of both traces")

    def action_edge(self, later: bool) -> None:
        self._move_view(lambda view: view.to_end(later), f"the {'end' if later else 'start'} of both traces", True)

    def action_fit_all(self) -> None:
        self._move_view(LockedView.show_all, WHOLE, is_jump=True)

    def action_next_step(self, distance: int) -> None:
        if self._lacks_sides():
            return
        step = self.locked.step + distance
        if not 0 <= step < len(self._starts):
            which = "only" if len(self._starts) == 1 else "last" if distance > 0 else "first"
            self._refresh_widgets(f"the {which} pair of compared steps")
            return
        self._remember_view()
        self.locked = self.locked.lock_at(self._starts[step], Lock.STEPS, step, keep=False)
        self._refresh_widgets()

    def action_go_back(self) -> None:
        if self._lacks_sides():
            return
        if not self._previous:
            self._refresh_widgets("no earlier view")
            return
        self.locked, selected, cursor = self._previous.pop()
        self.differences.cursor = min(cursor, len(self.differences.rows) - 1)
        for side, event in zip(self.sides, selected, strict=True):
            side.select(event)
        self._rows.show_rows()
        self._refresh_widgets()

    def action_lock(self) -> None:
        """Align both sides at the selected op, or at the step's start again; A stays where it is."""
        if self._lacks_sides():
            return
        references, lock = self._find_op_references(), Lock.OPS
        if self.locked.lock is Lock.OPS:
            references, lock = self._starts[self.locked.step], Lock.STEPS
        if references is not None:
            self._remember_view()
            self.locked = self.locked.lock_at(references, lock)
            self._refresh_widgets()
        elif selected := [side.letter for side in self.sides if side.selected >= 0]:
            self._refresh_widgets(f"this is only in {selected[0]}: there is nothing to align it with")
        else:
            self._refresh_widgets("select an op first: n goes to the largest difference; a click selects")

    def _find_op_references(self) -> tuple[int, int] | None:
        """Return the starts of the selected events; None where one side has none."""
        a, b = self.sides
        if a.selected < 0 or b.selected < 0:
            return None
        return int(a.trace.start[a.selected]), int(b.trace.start[b.selected])

    # -- differences ---------------------------------------------------------------------------------------

    def _has_rows(self, any_row: bool = False) -> bool:
        """Return whether there are differences (`any_row`: rows) for a key to act on; say so where there are none."""
        differences = self.differences
        if self._lacks_sides():
            return False
        if differences.matched is None:
            self._refresh_widgets("matching the ops of both …")
        elif differences.rows if any_row else differences.count:
            return True
        elif differences.filter:
            self._refresh_widgets(f"no difference matches {differences.filter!r}: esc clears the filter")
        elif self.comparison is not None and self.comparison.is_same_recording:
            self._refresh_widgets(f"{SAME_RECORDING}; {WAYS_TO_COMPARE}")
        else:
            self._refresh_widgets("no differences")
        return False

    def action_match(self, distance: int, from_first: bool = False) -> None:
        if self._has_rows():
            self._remember_view()
            if from_first:
                self.differences.cursor = -1
            self.differences.move(distance)
            self._set_part(ROWS)
            self._show_current()

    def action_cause(self, number: int) -> None:
        """Show the difference of this number, by size, on both sides; the keys of numbers, as in the cheatsheet."""
        if not self._has_rows():
            return
        if number > self.differences.count:
            self._refresh_widgets(f"there are only {self.differences.count:,} differences")
        else:
            self.action_match(number, from_first=True)

    def _show_current(self, fit: bool = False) -> None:
        """Select the events of the row under the cursor on both sides, and reveal or fit them."""
        row = self.differences.current
        if row is None:
            return
        event_a, event_b, matches = row.event_a, row.event_b, self.sides[0].matches
        if event_a >= 0 and matches is not None and matches.counterpart[event_a] >= 0:
            event_b = int(matches.counterpart[event_a])
        self._select_events(event_a, event_b, fit)
        self._rows.show_rows()

    def _select_events(self, event_a: int, event_b: int, fit: bool) -> None:
        a, b = self.sides
        a.select(event_a)
        b.select(event_b)
        if self.locked.lock is Lock.OPS and (references := self._find_op_references()) is not None:
            self.locked = self.locked.lock_at(references, Lock.OPS, keep=False)
        ranges = [*a.list_range(), *b.list_range()]
        self.locked = self.locked.fit(ranges) if fit else self.locked.reveal(ranges)
        self._refresh_widgets("" if ranges else "these rows have no event of their own: b lists ops or kernels")

    def action_fit(self) -> None:
        """Fit both sides to the difference; the row under the cursor is selected first."""
        if self._lacks_sides():
            return
        if all(side.selected < 0 for side in self.sides):
            if not self._has_rows():
                return
            if self.differences.cursor < 0:
                self.differences.move(1)
                self._set_part(ROWS)
        before = self.locked
        self._remember_view()
        if any(side.selected >= 0 for side in self.sides):
            self._select_events(self.sides[0].selected, self.sides[1].selected, fit=True)
        else:
            self._show_current(fit=True)
        if self.locked == before and any(side.selected >= 0 for side in self.sides):
            self._previous.pop()
            self._refresh_widgets("the difference is fitted already: s zooms out, backspace goes back")

    def action_group(self, direction: int) -> None:
        comparison = self.comparison
        if self._lacks_sides() or comparison is None:
            return
        by = cycle(GROUPINGS, self.differences.by, direction)
        self._set_part(ROWS)

        def match_rows() -> None:
            self.show_later(self._show_rows, comparison.match_rows(by))

        self.run_worker(match_rows, thread=True, exclusive=True, group="rows")
        self._refresh_widgets(f"rows by {by} …")

    # -- parts ---------------------------------------------------------------------------------------------

    def action_next_panel(self, direction: int) -> None:
        if not self._lacks_sides():
            self._set_part(cycle(PARTS, self._part, direction))

    def action_move(self, lines: int) -> None:
        if self._lacks_sides():
            return
        if self._part in "AB":
            self._refresh_widgets(self.sides["AB".index(self._part)].scroll_lines(lines))
        elif self._part == ROWS and self._has_rows(any_row=True):
            before = self.differences.cursor
            if before < 0:
                self.differences.cursor = 0
            elif not self.differences.move_within(lines):
                self._refresh_widgets(f"the {'last' if lines > 0 else 'first'} row")
                return
            self._show_current()
        elif self._part != ROWS and not self._dock.active_panel.scroll_lines(lines):
            self._refresh_widgets(f"the {'end' if lines > 0 else 'start'} of the panel")

    def action_page(self, direction: int) -> None:
        page = self._dock.active_panel.size.height
        if self._part in "AB":
            page = self.sides["AB".index(self._part)].line_room
        self.action_move(direction * max(page - 2, 1))

    def action_scroll_panel(self, direction: int) -> None:
        if not self._lacks_sides():
            self._refresh_widgets(self._dock.active_panel.scroll_page(direction))

    def action_fold(self) -> None:
        if self._lacks_sides():
            return
        chosen = [side for side in self.sides if side.letter == self._part] or self.sides
        reasons = [side.toggle_fold() for side in chosen]
        self._refresh_widgets("; ".join(reasons) if all(reasons) else "")

    def action_enlarge(self) -> None:
        if not self._lacks_sides():
            self._is_enlarged = not self._is_enlarged
            self._apply_layout()
            self._status.show_message("z: the panels' normal size" if self._is_enlarged else "")

    # -- other screens -------------------------------------------------------------------------------------

    def action_explore(self, number: int, panel: str = "") -> None:
        if self._lacks_sides():
            return
        side = self.sides[number]
        if any(other.selected >= 0 for other in self.sides) and side.selected < 0:
            self._refresh_widgets(f"this is not in {side.letter}: tab to the other side, i opens it; esc clears")
            return
        self.app.push_screen(SideExplorer(side.trace, side.letter, side.selected, panel))

    def action_panel(self, panel: str) -> None:
        number = "AB".index(self._part) if self._part in "AB" else 1
        if self.sides[number].selected < 0 <= self.sides[1 - number].selected:
            number = 1 - number
        self.action_explore(number, panel)

    def draw_pictures(self) -> dict[str, str]:
        """Draw the account as a waterfall."""
        return {} if self.comparison is None else {"waterfall": draw_waterfall(self.comparison)}

    def action_swap(self) -> None:
        if self._lacks_sides():
            return
        a, b = self.inputs
        opener, self._opener = self._opener, None  # the new screen closes it
        self.app.switch_screen(type(self)(b, a, (self._numbers[1], self._numbers[0]), opener))

    def action_compare(self) -> None:
        whole = self.inputs[0].whole
        ranks = [rank.number for rank in whole.all_ranks]
        self._ask_comparison([Choice(*pair) for pair in list_own_choices(whole.all_ranks[0].trace, ranks)])

    def compare(self, request: ComparisonRequest) -> None:
        self._close_prompt()
        whole = self.inputs[0].whole
        self.post_message(CompareAsked(request, whole, whole.label))

    def action_copy(self, everything: bool) -> None:
        row = self.differences.current
        names = [side.trace.event(side.selected).name for side in self.sides if side.selected >= 0]
        if everything:
            text, label = self._dock.active_panel.text(), f"all of the panel {self._dock.active_name!r}"
        elif any(names):
            text = label = " → ".join(dict.fromkeys(filter(None, names)))
        elif row is not None:
            text = label = row.text
        else:
            self._refresh_widgets("nothing to copy: n selects the largest difference")
            return
        self.copy_text(text, label)

    def action_back(self) -> None:
        if self._is_enlarged:
            self.action_enlarge()
        elif self.differences.filter:
            self.search("")
        elif any(side.selected >= 0 for side in self.sides) and not self._problem:
            for side in self.sides:
                side.select(-1)
            self._refresh_widgets("nothing is selected; esc leaves")
        else:
            self.dismiss()

    # -- the prompt ----------------------------------------------------------------------------------------

    def action_ask_filter(self) -> None:
        if self.differences.filter or self._has_rows(any_row=True):
            self._open_prompt(self.SEARCH, SEARCH_HINT, self.differences.filter)

    def search(self, text: str) -> str:
        """List only rows with this text; "" lists all. Returns what is wrong with it, else ""."""
        problem = self.differences.set_filter(text)
        self._rows.empty_text = f"no difference matches {text!r}: esc clears the filter" if text else "no differences"
        self._rows.show_rows()
        self._set_part(ROWS)
        return problem

    def describe_found(self, text: str) -> str:
        return f"{len(self.differences.rows):,} found"

    def finish_search(self, text: str) -> None:
        if text and self.differences.rows:
            self.differences.cursor = max(self.differences.cursor, 0)
        self._show_current()

    # -- the mouse -----------------------------------------------------------------------------------------

    def _find_side(self, message: Message) -> SideLanes:
        """Find the side whose lanes sent a message."""
        a, b = self.sides
        return a if message._sender in (a.step_line, a.timeline, a.lane_labels) else b

    def on_event_picked(self, message: EventPicked) -> None:
        """Select the event and its counterpart on the other side."""
        side = self._find_side(message)
        if message.event < 0:
            self._set_part(side.letter)
            return
        other = -1 if side.matches is None else int(side.matches.counterpart[message.event])
        pair = (message.event, other) if side is self.sides[0] else (other, message.event)
        self._remember_view()
        self._select_events(*pair, fit=message.fit)

    def on_zoom_asked(self, message: ZoomAsked) -> None:
        distance = int(message.at) - self.locked.references[self._find_side(message).number]
        self._move_view(lambda view: view.zoom(int(message.steps), distance), "")

    def on_pan_asked(self, message: PanAsked) -> None:
        self._move_view(lambda view: view.pan_cells(message.cells), "")

    def on_scroll_asked(self, message: ScrollAsked) -> None:
        self._refresh_widgets(self._find_side(message).scroll_lines(message.lines))

    def on_lanes_folded(self, message: LanesFolded) -> None:
        self._find_side(message).toggle_lanes(message.lanes)
        self._refresh_widgets()

    def on_lanes_resized(self, message: LanesResized) -> None:
        self._find_side(message).resize()
        self._refresh_widgets()


RANK_OPTION = "D: NAME rank"  # how a rank is asked for in the prompt, for the lines that say what can be compared


def create_diff_screen(asked: CompareAsked, other: Trace, opener: TraceOpener | None) -> DiffScreen:
    """Create the screen of the open trace and `other`; it explains itself what cannot be compared."""
    request = asked.request
    names = [asked.label, request.other or asked.label]
    wholes = [asked.trace, other]
    if request.is_other_first:
        names.reverse()
        wholes.reverse()
    problem, traces = "", (wholes[0], wholes[1])
    try:
        traces = select_ranks(wholes[0], wholes[1], request.ranks, RANK_OPTION)
    except ComparisonError as error:
        problem = str(error)
    short = [short_label(name.removeprefix(SAMPLE_PREFIX)) for name in names]
    labels = short if short[0] != short[1] or names[0] == names[1] else names
    inputs = [
        ComparedInput(trace, whole, format_label(label, whole, trace), selection)
        for trace, whole, label, selection in zip(traces, wholes, labels, request.steps, strict=True)
    ]
    if inputs[0].label == inputs[1].label:  # the same trace: its steps tell the sides apart
        for index, side in enumerate(inputs):
            if (numbers := side.selection.numbers) is not None:
                last = f"..{numbers[1]}" if numbers[1] != numbers[0] else ""
                inputs[index] = replace(side, label=f"{side.label} #{numbers[0]}{last}")
    return DiffScreen(inputs[0], inputs[1], request.ranks, opener, problem)
