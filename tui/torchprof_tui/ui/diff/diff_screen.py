"""Screen of a comparison: both traces' lanes locked in time, differences by size, the account, rows and remarks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torchprof_tui.analysis.compare.comparison_error import ComparisonError
from torchprof_tui.ui.common.compare_asked import CompareAsked
from torchprof_tui.ui.common.comparison_request import parse_request, suggest_forms
from torchprof_tui.ui.common.prompt_input import PromptChanged, PromptClosed, PromptSubmitted
from torchprof_tui.ui.common.status_line import format_copy_message
from torchprof_tui.ui.diff.diff_keys import BINDINGS
from torchprof_tui.ui.diff.diff_messages import SideChanged, SideEventPicked, SideZoomAsked
from torchprof_tui.ui.diff.diff_panels import ROWS
from torchprof_tui.ui.diff.diff_screen_view import PARTS, DiffScreenView, ShownView
from torchprof_tui.ui.diff.difference_list import GROUPINGS
from torchprof_tui.ui.diff.locked_view import Lock, LockedView
from torchprof_tui.ui.diff.side_explorer import SideExplorer
from torchprof_tui.ui.diff.verdict_lines import SAME_RECORDING, WAYS_TO_COMPARE
from torchprof_tui.ui.lanes.mouse_gestures import PanAsked

FILTER_PROMPT, COMPARE_PROMPT = "filter", "compare with"
FILTER_HINT = "text, or /regular expression/ · ↑ earlier"
LARGEST_ZOOM, WHOLE = "this is the largest zoom: s zooms out", "all of both traces is on screen: w zooms in"


class DiffScreen(DiffScreenView):
    """Compare two traces; see `DiffScreenView` for the parameters."""

    BINDINGS = BINDINGS
    help_topic = "diff"

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
        self._previous.append(ShownView(self.locked, selected, self.differences.cursor))

    def action_zoom(self, steps: int) -> None:
        self._move_view(lambda view: view.zoom(steps, self._find_anchor()), LARGEST_ZOOM if steps > 0 else WHOLE)

    def _find_anchor(self) -> int | None:
        """Return the distance around which keys zoom: the middle of the selection on screen, None: of the screen."""
        view = self.locked.view
        for side in self.sides:
            for number, start, end in side.list_range():
                middle = (start + end) // 2 - self.locked.references[number]
                if view.t0 <= middle < view.t1:
                    return middle
        return None

    def action_pan(self, tenths: int) -> None:
        self._move_view(lambda view: view.pan(tenths), f"the {'end' if tenths > 0 else 'start'} of both traces")

    def action_to_end(self, later: bool) -> None:
        self._move_view(lambda view: view.to_end(later), f"the {'end' if later else 'start'} of both traces", True)

    def action_fit_all(self) -> None:
        self._move_view(LockedView.show_all, WHOLE, is_jump=True)

    def action_step(self, distance: int) -> None:
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
        shown = self._previous.pop()
        self.locked, self.differences.cursor = shown.view, min(shown.cursor, len(self.differences.rows) - 1)
        for side, event in zip(self.sides, shown.selected, strict=True):
            side.select(event)
        self._rows.show_rows()
        self._refresh_widgets()

    def action_lock(self) -> None:
        """Align both sides at the selected op, or at the step's start again; A stays where it is."""
        if self._lacks_sides():
            return
        if self.locked.lock is Lock.OPS:
            self._remember_view()
            self.locked = self.locked.lock_at(self._starts[self.locked.step], Lock.STEPS)
            self._refresh_widgets()
        elif (references := self._find_op_references()) is None:
            self._refresh_widgets(self._explain_no_op())
        else:
            self._remember_view()
            self.locked = self.locked.lock_at(references, Lock.OPS)
            self._refresh_widgets()

    def _find_op_references(self) -> tuple[int, int] | None:
        """Return the starts of the selected events; None where one side has none."""
        a, b = self.sides
        if a.selected < 0 or b.selected < 0:
            return None
        return int(a.trace.start[a.selected]), int(b.trace.start[b.selected])

    def _explain_no_op(self) -> str:
        selected = [side.letter for side in self.sides if side.selected >= 0]
        if selected:
            return f"this is only in {selected[0]}: there is nothing to align it with"
        return "select an op first: n goes to the largest difference; a click selects"

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

    def action_difference(self, distance: int) -> None:
        if self._has_rows():
            self._remember_view()
            self.differences.move(distance)
            self._set_part(ROWS)
            self._show_current()

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
        """Select an event of each side (-1: none) and show both."""
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
        if self._lacks_sides():
            return
        by = GROUPINGS[(GROUPINGS.index(self.differences.by) + direction) % len(GROUPINGS)]
        self._set_part(ROWS)
        self._request_rows(by)
        self._refresh_widgets(f"rows by {by} …")

    # -- parts ---------------------------------------------------------------------------------------------

    def action_part(self, direction: int) -> None:
        if not self._lacks_sides():
            self._set_part(PARTS[(PARTS.index(self._part) + direction) % len(PARTS)])

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
        if self._lacks_sides():
            return
        panel = self._dock.active_panel
        is_moved = panel.scroll_lines(direction * max(panel.size.height - 1, 1))
        self._refresh_widgets("" if is_moved else f"the {'end' if direction > 0 else 'start'} of the panel")

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
            self._refresh_widgets(f"this is not in {side.letter}: {2 - number} opens the other side; esc clears")
            return
        self.app.push_screen(SideExplorer(side.trace, side.letter, side.selected, panel))

    def action_explore_panel(self, panel: str) -> None:
        number = "AB".index(self._part) if self._part in "AB" else 1
        if self.sides[number].selected < 0 <= self.sides[1 - number].selected:
            number = 1 - number
        self.action_explore(number, panel)

    def action_swap(self) -> None:
        if self._lacks_sides():
            return
        a, b = self.inputs
        opener, self._opener = self._opener, None  # the new screen closes it
        self.app.switch_screen(type(self)(b, a, (self._numbers[1], self._numbers[0]), opener))

    def action_compare(self) -> None:
        suggested = getattr(self.app, "last_compared", "")
        self._open_prompt(COMPARE_PROMPT, suggest_forms(suggested), suggested)

    def action_copy(self, everything: bool) -> None:
        row = self.differences.current
        names = [side.describe_selected() for side in self.sides]
        if everything:
            text, label = self._dock.active_panel.text(), f"all of the panel {self._dock.active_name!r}"
        elif any(names):
            text = label = " → ".join(dict.fromkeys(name for name in names if name))
        elif row is not None:
            text = label = row.text
        else:
            self._refresh_widgets("nothing to copy: n selects the largest difference")
            return
        self.app.copy_to_clipboard(text)
        self._refresh_widgets(format_copy_message(label))

    def action_back(self) -> None:
        if self._is_enlarged:
            self.action_enlarge()
        elif self.differences.filter:
            self._apply_filter("")
        elif any(side.selected >= 0 for side in self.sides) and not self._problem:
            for side in self.sides:
                side.select(-1)
            self._refresh_widgets("nothing is selected; esc leaves")
        else:
            self.dismiss()

    # -- the prompt ----------------------------------------------------------------------------------------

    def action_ask_filter(self) -> None:
        if self.differences.filter or self._has_rows(any_row=True):
            self._open_prompt(FILTER_PROMPT, FILTER_HINT, self.differences.filter)

    def _open_prompt(self, purpose: str, hint: str, text: str) -> None:
        self.add_class("asking")
        self._prompt.open(purpose, hint, text, replace=True)

    def _close_prompt(self) -> None:
        self.remove_class("asking")
        self._prompt.close()

    def _apply_filter(self, text: str) -> str:
        """List only rows with this text; "" lists all. Returns what is wrong with it, else ""."""
        problem = self.differences.set_filter(text)
        self._rows.empty_text = f"no difference matches {text!r}: esc clears the filter" if text else "no differences"
        self._rows.show_rows()
        self._set_part(ROWS)
        return problem

    def on_prompt_changed(self, message: PromptChanged) -> None:
        if message.purpose == FILTER_PROMPT:
            self._worker.debounce("filter", partial(self._preview_filter, message.text))
        else:
            self._prompt.show_hint(suggest_forms(message.text))

    def _preview_filter(self, text: str) -> None:
        if self._prompt.is_open:
            problem = self._apply_filter(text)
            self._prompt.show_hint(problem or (f"{len(self.differences.rows):,} found" if text else FILTER_HINT))

    def on_prompt_submitted(self, message: PromptSubmitted) -> None:
        """Apply what was typed; on an error the prompt stays open, so that no further character becomes a key."""
        if message.purpose == FILTER_PROMPT:
            problem = self._apply_filter(message.text)
            if problem:
                self._prompt.show_hint(problem)
                return
            self._close_prompt()
            if message.text and self.differences.rows:
                self.differences.cursor = max(self.differences.cursor, 0)
            self._show_current()
            return
        try:
            request = parse_request(message.text)
        except ComparisonError as error:
            self._prompt.show_hint(str(error))
            return
        self._close_prompt()
        whole = self.inputs[0].whole
        self.post_message(CompareAsked(request, whole, whole.label))

    def on_prompt_closed(self, message: PromptClosed) -> None:
        self._close_prompt()
        if message.purpose == FILTER_PROMPT:
            self._apply_filter("")

    # -- the mouse -----------------------------------------------------------------------------------------

    def on_side_event_picked(self, message: SideEventPicked) -> None:
        """Select the event and its counterpart on the other side."""
        side = self.sides[message.side]
        if message.event < 0:
            self._set_part(side.letter)
            return
        other = -1 if side.matches is None else int(side.matches.counterpart[message.event])
        pair = (message.event, other) if message.side == 0 else (other, message.event)
        self._remember_view()
        self._select_events(*pair, fit=message.fit)

    def on_side_zoom_asked(self, message: SideZoomAsked) -> None:
        self._move_view(lambda view: view.zoom(int(message.steps), message.distance), "")

    def on_pan_asked(self, message: PanAsked) -> None:
        self._move_view(lambda view: view.pan_cells(message.cells), "")

    def on_side_changed(self, message: SideChanged) -> None:
        self._refresh_widgets(message.reason)
