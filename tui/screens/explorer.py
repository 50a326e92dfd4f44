"""The explorer: the lanes of one trace, and the keys that walk them.

Every key changes the `Walk` (where somebody is) and then `_show` hands the new state to the widgets, which is
cheap; what a frame costs is paid when it is painted. So keys held down never queue frames. The screens that a key
leads to are imported behind the first frame (`app.py`), not before it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.reactive import var
from textual.screen import Screen
from textual.widgets import Static

from tui.analysis.doctor.reading import lost_in_a_line
from tui.analysis.gpu_time import busy_by_device, place_of
from tui.analysis.intervals import Intervals, union
from tui.messages import (
    ChainRead,
    Diagnosed,
    EventPicked,
    FactsRead,
    JumpAsked,
    LanesFolded,
    LanesResized,
    PanAsked,
    PanelPicked,
    PointerMoved,
    PromptChanged,
    PromptClosed,
    PromptSubmitted,
    RangeDragged,
    RangeRead,
    ScopeChecked,
    ScrollAsked,
    SliceWritten,
    TraceChecked,
    ZoomAsked,
)
from tui.screens import slicing
from tui.screens.commands import ExplorerCommands
from tui.screens.inspection import Inspection
from tui.screens.keys import BINDINGS, OPENS_PROMPT, key_hints, sections
from tui.screens.reading import Reading
from tui.screens.terminal import palette_for
from tui.screens.walk import Walk
from tui.trace.kinds import Kind
from tui.trace.ruler import format_duration
from tui.trace.trace import Trace
from tui.widgets.empty import no_events_text
from tui.widgets.gutter import Gutter
from tui.widgets.names import Names
from tui.widgets.overview import Overview
from tui.widgets.painted import Painted
from tui.widgets.prompt import Prompt
from tui.widgets.ruler import Ruler
from tui.widgets.status import Status
from tui.widgets.timeline import Timeline
from tui.widgets.title import Title
from tui.widgets.units import format_share

if TYPE_CHECKING:
    from tui.analysis.table.profile import Profile

LEAST_WIDTH, LEAST_HEIGHT = 40, 10
"""Below this there is no room for labels and lanes side by side."""

STEPS_FROM, OVERVIEW_FROM = 20, 30
"""Screen heights from which the steps, and their marks on the overview, get lines of their own."""

DOCK_SHARE, DOCK_LEAST, DOCK_MOST = 0.27, 6, 18
"""The panels' part of the screen's height, and its bounds in lines, where the lanes need all there is."""

DOCK_ROOMY_SHARE = 0.5
"""Where lanes leave lines empty the panels take them, up to this part of the height."""

VERDICT_FROM = 20
"""Screen heights from which the verdict has a line."""

BRIEF_FROM = 170
"""Screen widths from which the cheatsheet stands beside the panels all the time."""

SEARCH, GO_TO, SLICE = "search", "go to", "write slice to"


class ExplorerScreen(Screen[None]):
    """Walk one trace. `walk` is where one is; see `tui.screens.walk`."""

    CSS_PATH = "../styles/explorer.tcss"
    BINDINGS = BINDINGS
    COMMANDS = {ExplorerCommands}
    AUTO_FOCUS = ""
    TITLE = "explorer"
    details_open: var[bool] = var(True)

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self.trace = trace
        self.walk = Walk(trace)
        self._busy = busy_by_device(trace)
        worked = list(self._busy.values())
        self._timeline = Timeline(trace, Names(trace.names), id="timeline")
        self._gutter = Gutter(trace, _busy_ranks(trace, self._busy), id="gutter")
        self._title = Title(trace, worked, id="title")
        shown, kind = (worked, Kind.KERNEL) if worked else ([_cpu_time(trace)], Kind.OP)
        self._overview = Overview(trace.steps, shown, kind, id="overview")
        self._ruler = Ruler(trace.steps, id="ruler")
        self._inspection = Inspection(self, self.walk, self._busy, self._timeline, self._gutter)
        self._dock = self._inspection.dock
        self._status = Status(id="status")
        self._prompt = Prompt(id="prompt")
        self._reading = Reading(self)
        self._profiles: dict[int, Profile] = {}  # by rank
        self._left = self._gutter.width_wanted(80)
        self._settled = False
        self._lost = lost_in_a_line(trace)

    def compose(self) -> ComposeResult:
        yield Static("", id="too-small", markup=False)
        yield self._title
        yield self._inspection.verdict
        yield self._overview
        yield self._ruler
        with Horizontal(id="lanes"):
            yield self._gutter
            yield self._timeline
        yield Static(no_events_text(self.trace), id="empty", markup=False)
        with Horizontal(id="panels"):
            yield self._dock
            yield self._inspection.brief
        yield self._status
        yield self._prompt

    def on_mount(self) -> None:
        self.set_class(not self.trace.lanes, "empty")
        self.app.theme_changed_signal.subscribe(self, lambda _: self._repaint())
        self._repaint()
        self._status.keys(key_hints())
        self._show()
        self.call_after_refresh(self._inspection.begin)

    def _repaint(self) -> None:
        """All our colours anew: the theme has changed."""
        palette = palette_for(self.app)
        for widget in self.query(Painted):
            widget.palette = palette

    def on_resize(self, event: events.Resize) -> None:
        width, height = event.size
        small = width < LEAST_WIDTH or height < LEAST_HEIGHT
        self.set_class(small, "too-small")
        if small:
            needed = f"This terminal is {width}×{height}.\nThe lanes need {LEAST_WIDTH}×{LEAST_HEIGHT} or more."
            self.query_one("#too-small", Static).update(needed)
            return
        self._left = self._gutter.width_wanted(width)
        self._gutter.styles.width = self._left
        self._overview.styles.height = self._overview.lines_wanted if height >= OVERVIEW_FROM else 1
        self._ruler.styles.height = self._ruler.lines_wanted if height >= STEPS_FROM else 1
        self.set_class(height < VERDICT_FROM, "low")
        self.set_class(width < BRIEF_FROM, "narrow")
        self.query_one("#panels").styles.height = self._dock_lines(height)
        self._show()

    def _dock_lines(self, height: int) -> int:
        """Lines for the panels on a screen of so many: their share, or what the lanes leave empty."""
        share = min(max(round(height * DOCK_SHARE), DOCK_LEAST), DOCK_MOST)
        above = 2 + (height >= VERDICT_FROM) + (self._overview.lines_wanted if height >= OVERVIEW_FROM else 1)
        above += self._ruler.lines_wanted if height >= STEPS_FROM else 1
        own = self.walk.own_trace()
        lanes = sum(lane.rows for lane in own.lanes) + len({lane.group for lane in own.lanes}) + 1
        if self.trace.ranks is not None:
            lanes += len(self.trace.ranks)  # room for one of them to be opened
        return max(share, min(height - above - lanes, int(height * DOCK_ROOMY_SHARE)))

    def on_lanes_resized(self, message: LanesResized) -> None:
        self.walk.resize(message.width, message.height)
        if not self._settled and message.width > 1:
            self._settled = True
            self.walk.settle()
        self._show()

    def go_to(self, text: str) -> str:
        """A time (`12ms`) or a step (`#3`), as `g` does; returns a line that says what is wrong, or ""."""
        problem = self.walk.go_to(text)
        self._show(problem)
        return problem

    # -- showing -------------------------------------------------------------------------------------------

    def _do(self, move: Callable[[], str | None]) -> None:
        """One key: change the state, say what there is to say, show."""
        self._show(move() or "")

    def _show(self, message: str = "") -> None:
        """Hand the state to the widgets. Cheap: each compares, and repaints in the next frame what differs."""
        walk = self.walk
        marked = (walk.mark.start, walk.mark.end) if walk.mark is not None else None
        self._timeline.show(walk.viewport, walk.lanes.lines, walk.lanes.top)
        self._timeline.select(walk.selected)
        self._timeline.mark(marked)
        self._timeline.show_found(walk.search.found.names if walk.search.found is not None else None)
        self._gutter.show(walk.lanes.lines, walk.lanes.top)
        self._gutter.point_at(walk.current_lane() if walk.lane >= 0 else -1)
        self._ruler.show_steps(walk.steps())
        self._overview.show_steps(walk.steps())
        self._ruler.show(walk.viewport, self._left, walk.cursor(), marked)
        self._overview.show(walk.viewport, self._left)
        self._title.show(walk.viewport)
        self._inspection.show()
        said = message or self._standing()
        self._status.say(said or self._lost, alarm=not said)

    def _standing(self) -> str:
        """What the status line says when nothing has just happened."""
        walk = self.walk
        if walk.search.found is not None:
            place = walk.search.place_of(walk.selected)
            return f"{walk.search.query}: {place if place else '–'}/{len(walk.search.found):,}"
        if walk.selected >= 0 and not self.details_open:
            event = self.trace.event(walk.selected)
            return f"{event.name} · {format_duration(event.duration)}"
        return ""

    def on_facts_read(self, message: FactsRead) -> None:
        self._inspection.facts_read(message)

    def on_chain_read(self, message: ChainRead) -> None:
        self._inspection.chain_read(message)

    def on_diagnosed(self, message: Diagnosed) -> None:
        self._inspection.diagnosed(message)

    def on_range_read(self, message: RangeRead) -> None:
        self._inspection.range_read(message)

    def on_trace_checked(self, message: TraceChecked) -> None:
        self._inspection.trace_checked(message)

    def on_scope_checked(self, message: ScopeChecked) -> None:
        self._inspection.scope_checked(message)

    # -- keys ----------------------------------------------------------------------------------------------

    def action_zoom(self, steps: int) -> None:
        self._do(partial(self.walk.zoom, steps))

    def action_pan(self, tenths: int) -> None:
        self._do(partial(self.walk.pan, tenths))

    def action_scroll_lanes(self, direction: int) -> None:
        self._do(partial(self.walk.lanes.scroll, direction * max(1, self.walk.lanes.height - 2)))

    def action_fit(self) -> None:
        self._do(self.walk.fit)

    def action_fit_all(self) -> None:
        self._do(self.walk.fit_all)

    def action_to_end(self, later: bool) -> None:
        low, high = self.walk.viewport.limits
        self._do(partial(self.walk.pan_to, high if later else low))

    def action_beside(self, distance: int) -> None:
        self._do(partial(self.walk.beside, distance))

    def action_up(self) -> None:
        self._do(lambda: self._or(self._inspection.along(-1, self.details_open), self.walk.up))

    def action_down(self) -> None:
        self._do(lambda: self._or(self._inspection.along(1, self.details_open), self.walk.down))

    @staticmethod
    def _or(said: str | None, move: Callable[[], str]) -> str:
        """A panel that one walks takes the key; else the lanes do."""
        return move() if said is None else said

    def action_jump(self) -> None:
        self._do(partial(self._inspection.jump, self.details_open))

    def action_follow_next(self) -> None:
        self.details_open = True
        self._do(self._inspection.follow_next)

    def action_labels(self) -> None:
        self._do(self._inspection.toggle_labels)

    def action_follow(self, forward: bool) -> None:
        self._do(partial(self.walk.follow, forward))

    def action_step(self, later: bool) -> None:
        self._do(partial(self.walk.step, later))

    def action_clear(self) -> None:
        self._do(self.walk.clear)

    def action_fold(self) -> None:
        lane = self.walk.current_lane()
        if lane >= 0:
            self._do(partial(self.walk.fold, (lane,)))

    def action_pin(self) -> None:
        lane = self.walk.current_lane()
        if lane >= 0:
            self._do(partial(self.walk.pin, lane))

    def action_hide(self) -> None:
        self._do(partial(self.walk.hide, self.walk.current_lane()))

    def action_show_hidden(self) -> None:
        self._do(self.walk.show_all)

    def action_fold_all(self, fold: bool) -> None:
        self._do(partial(self.walk.fold_all, fold))

    def action_mark(self) -> None:
        self._do(self.walk.toggle_mark)

    def action_to_found(self, later: bool) -> None:
        said = self._inspection.evidence(1 if later else -1, self.details_open)
        self._do(lambda: self._or(said, partial(self.walk.to_found, later)))

    def action_search(self) -> None:
        self._ask(SEARCH, "text, or /regular expression/", self.walk.search.query)

    def action_go_to(self) -> None:
        self._ask(GO_TO, "12ms, 1.5s, or #3 for a step")

    def action_slice(self) -> None:
        t0, t1, what = self.walk.subject()
        rank = self.walk.rank()
        whose = "" if rank is None else f"{rank.label}, "
        name = slicing.suggested(self.walk.own_trace(), t0, t1)
        self._ask(SLICE, f"{whose}{what} · ends in .json or .json.gz", name)

    def _slice(self, name: str) -> None:
        t0, t1, _ = self.walk.subject()
        self._close_prompt(f"writing {name} …")
        self._reading.ask("slice", partial(slicing.write, self.walk.own_trace(), t0, t1, name))

    def on_slice_written(self, message: SliceWritten) -> None:
        self._status.say(message.line, alarm=message.failed)

    def action_next_panel(self, direction: int) -> None:
        self.details_open = True
        self._dock.cycle(direction)
        self._inspection.light()

    def action_panel(self, name: str) -> None:
        if self.details_open and self._dock.active == name:
            self.details_open = False
        else:
            self.details_open = True
            self._dock.show(name)
        self._inspection.light()

    def action_guess(self) -> None:
        from tui.screens.guess import GuessScreen

        t0, t1, what = self.walk.subject()
        rank = self.walk.rank()
        if rank is not None:
            what = f"{rank.label}, {what}"
        self.app.push_screen(GuessScreen(self.walk.own_trace(), t0, t1, what))

    def action_table(self) -> None:
        from tui.analysis.table.profile import Profile
        from tui.screens.table import TableScreen

        rank = self.walk.rank()
        number = -1 if rank is None else rank.number
        if number not in self._profiles:
            self._profiles[number] = Profile(self.walk.own_trace())
        self.app.push_screen(TableScreen(self._profiles[number], self.walk), self._come_back)

    def action_tree(self) -> None:
        from tui.screens.tree import TreeScreen

        self.app.push_screen(TreeScreen(self.walk.own_trace(), self.walk.rank()), self._come_back)

    def _come_back(self, event: int | None) -> None:
        """From a screen of its own, with the event that was chosen there."""
        if event is not None:
            self.walk.select(event)
            self.walk.fit()
        self._show()

    def action_scroll_panel(self, direction: int) -> None:
        self._dock.panel.scroll_lines(direction * max(1, self._dock.panel.size.height - 1))

    def action_copy(self, everything: bool) -> None:
        if self.walk.selected < 0 and self.walk.mark is None:
            self._show("nothing to copy: nothing is selected or marked")
            return
        if everything or self.walk.selected < 0:
            text, what = self._dock.panel.text(), f"all of the panel {self._dock.active!r}"
        else:
            text = what = self.trace.event(self.walk.selected).name
        self.app.copy_to_clipboard(text)
        self._show(f"copied: {what}")

    def action_help(self) -> None:
        from tui.screens.help import HelpScreen

        self.app.push_screen(HelpScreen(sections(self.active_bindings.values()), palette_for(self.app)))

    def watch_details_open(self, is_open: bool) -> None:
        self.set_class(not is_open, "no-dock")
        if self.is_mounted:
            self._show()

    # -- the prompt ----------------------------------------------------------------------------------------

    async def on_key(self, event: events.Key) -> None:
        """What is typed in one breath with `/` arrives here, on its way up, before the prompt has the focus."""
        if self._prompt.is_open and event.is_printable and event.character:
            event.stop()
            self._prompt.type(event.character)
        elif event.key in OPENS_PROMPT:
            event.stop()
            await self.run_action(OPENS_PROMPT[event.key])

    def _ask(self, purpose: str, hint: str, text: str = "") -> None:
        self.add_class("asking")
        self._prompt.ask(purpose, hint, text)

    def _close_prompt(self, message: str = "") -> None:
        self.remove_class("asking")
        self._prompt.close()
        self._show(message)

    def on_prompt_changed(self, message: PromptChanged) -> None:
        if message.purpose == SEARCH:
            self._reading.soon("search", partial(self._look_for, message.text))

    def _look_for(self, text: str) -> None:
        """Count while somebody types."""
        problem = self.walk.search.look_for(text)
        found = self.walk.search.found
        self._prompt.hint(problem or (f"{len(found):,} found · enter: the next one" if found is not None else ""))
        self._show()

    def on_prompt_submitted(self, message: PromptSubmitted) -> None:
        if message.purpose == SLICE and message.text:
            self._slice(message.text)
            return
        if message.purpose == SLICE:
            problem = ""
        elif message.purpose == GO_TO:
            problem = self.walk.go_to(message.text)
        else:
            problem = self.walk.search.look_for(message.text)
            if not problem and message.text:
                problem = self.walk.to_found(later=True)
        if problem and message.purpose == GO_TO:
            self._prompt.hint(problem)
        else:
            self._close_prompt(problem)

    def on_prompt_closed(self, message: PromptClosed) -> None:
        if message.purpose == SEARCH:
            self.walk.search.look_for("")
        self._close_prompt()

    # -- the mouse -----------------------------------------------------------------------------------------

    def on_event_picked(self, message: EventPicked) -> None:
        if message.event >= 0:
            self.walk.select(message.event)
        elif message.lane >= 0:
            self.walk.lane, self.walk.selected = message.lane, -1
        self._show()

    def on_zoom_asked(self, message: ZoomAsked) -> None:
        self._do(partial(self.walk.zoom, message.steps, int(message.at)))

    def on_pan_asked(self, message: PanAsked) -> None:
        self._do(partial(self.walk.pan_cells, message.cells))

    def on_scroll_asked(self, message: ScrollAsked) -> None:
        self._do(partial(self.walk.lanes.scroll, message.lines))

    def on_pointer_moved(self, message: PointerMoved) -> None:
        self.walk.pointer = None if message.at is None else int(message.at)
        self._ruler.point_at(self.walk.cursor())

    def on_range_dragged(self, message: RangeDragged) -> None:
        self._do(partial(self.walk.mark_range, int(message.start), int(message.end)))

    def on_jump_asked(self, message: JumpAsked) -> None:
        self._do(partial(self.walk.pan_to, int(message.at)))

    def on_lanes_folded(self, message: LanesFolded) -> None:
        self._do(partial(self.walk.fold, message.lanes))

    def on_panel_picked(self, message: PanelPicked) -> None:
        self._dock.show(message.panel)
        self._inspection.light()


def _busy_ranks(trace: Trace, busy: dict[int, Intervals]) -> dict[int, str]:
    """By the line of each rank: how busy its GPUs were from its first event to its last."""
    notes = {}
    for place, rank in enumerate(trace.ranks.all if trace.ranks is not None else ()):
        t0, t1 = rank.trace.span
        its = [worked.within(t0, t1) for device, worked in busy.items() if place_of(device) == place]
        if its and t1 > t0:
            notes[rank.own_lane] = format_share(sum(its) / (len(its) * (t1 - t0)))
    return notes


def _cpu_time(trace: Trace) -> Intervals:
    """When the first lane was busy: the overview of a trace without GPU work."""
    if not trace.lanes:
        return union(trace.start, trace.start)
    own = slice(trace.lanes[0].first, trace.lanes[0].last)
    return union(trace.start[own], trace.start[own] + trace.duration[own])
