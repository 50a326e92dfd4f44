"""Screen of the flame graph: an icicle of stacks, modules or ops by self GPU or CPU time; zoom, search, export."""

from __future__ import annotations

from collections import deque
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from textual.app import ComposeResult

from torchprof_tui.analysis.flame.flame_tree import (
    FlameTree,
    FoldBy,
    FoldTime,
    NoFramesError,
    format_speedscope,
    iterate_folded_lines,
)
from torchprof_tui.analysis.flame.fold import fold_trace, has_frames
from torchprof_tui.analysis.kernel.names.distinct_labels import label_kernels
from torchprof_tui.analysis.search.name_search import BadPattern, is_case_sensitive
from torchprof_tui.analysis.table.groups import Profile
from torchprof_tui.analysis.words.dictionary import Word, find_event_word
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common import keys
from torchprof_tui.ui.common.child_screen import (
    MAX_VIEWS,
    SEARCH_HINT,
    SearchScreen,
    cycle,
    find_adjacent,
    write_new_file,
)
from torchprof_tui.ui.common.name_display import clean
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.common.panel_dock import PanelPicked, PanelTabs
from torchprof_tui.ui.common.status_line import StatusLine
from torchprof_tui.ui.flame.frame_search import search_frames
from torchprof_tui.ui.flame.icicle import BoxPicked, FrameLines, Icicle
from torchprof_tui.ui.flame.icicle_layout import Box, Zoom
from torchprof_tui.ui.lanes.view_state import ViewState
from torchprof_tui.ui.table.scope_choices import TableScope, list_table_scopes


class FlameQuery(NamedTuple):
    """The flame graph to show; results for an earlier query are dropped."""

    fold_by: FoldBy
    time: FoldTime
    scope: int


def fold_scope(trace: Trace, query: FlameQuery, scope: TableScope) -> tuple[FlameTree | None, dict[int, str], str]:
    """Fold the events of a scope; label the GPU work among them, by its name, as the other screens do; or why not."""
    try:
        tree = fold_trace(trace, query.fold_by, query.time, scope.select_events())
    except NoFramesError as error:
        return None, {}, str(error)
    work = np.unique(tree.name[np.isin(tree.kind, [int(kind) for kind in GPU_WORK])]).tolist()
    labels = label_kernels([tree.names[index] for index in work])
    return tree, dict(zip(work, map(clean, labels), strict=True)), ""


@record
class FlameView:
    """What the flame graph shows: which one, its zoom, the search, and the node of the cursor."""

    query: FlameQuery
    zoom: Zoom
    search: str
    node: int


TABS = {FoldBy.STACK: "stacks", FoldBy.MODULE: "modules", FoldBy.OP: "ops"}
OTHER_FRAMES = {FoldBy.STACK: "shift+tab: ops. ", FoldBy.MODULE: "tab: ops. ", FoldBy.OP: "g: GPU or CPU time. "}
"""What to press where a trace has no frames of a sort."""

NO_FRAMES_SHORT = {FoldBy.STACK: "without a stack", FoldBy.MODULE: "in no module", FoldBy.OP: "in no op"}
TIME_NAMES = {FoldTime.GPU: "GPU time", FoldTime.CPU: "CPU time"}


EXPORT_PROMPT = "write to"
NOTHING_HERE = "nothing to see here: tab, g and v show other frames, time and scope"


class FlameScreen(SearchScreen):
    """Dismissed with the event to show on the lanes, the first one of a frame, or None."""

    BINDINGS = keys.FLAME
    help_topic = "flame"
    CSS_PATH = "flame_screen.tcss"

    def __init__(self, profile: Profile, view_state: ViewState) -> None:
        super().__init__()
        self.rank = view_state.current_rank()
        self.trace = profile.trace
        self._scopes = list_table_scopes(profile, view_state)
        self._query = FlameQuery(
            FoldBy.STACK if has_frames(self.trace, FoldBy.STACK) else FoldBy.OP,
            FoldTime.GPU if self.trace.links.gpu_events else FoldTime.CPU,
            choose_first_scope(self._scopes, view_state),
        )
        self._history: deque[FlameView] = deque(maxlen=MAX_VIEWS)
        self._view_to_restore: FlameView | None = None
        self._tabs = PanelTabs([(tab, tab) for tab in TABS.values()])
        self.icicle = Icicle(id="icicle")
        self._frame_lines = FrameLines(id="flame-frame")
        self._summary = StatusLine(id="flame-summary")

    def compose(self) -> ComposeResult:
        yield from (self._tabs, self.icicle, self._frame_lines, self._summary, self._status, self._prompt)

    def on_mount(self) -> None:
        self.follow_theme(keys.FLAME_HINTS)
        self._request_tree()

    def _request_tree(self) -> None:
        self._status.show_message("adding up …")
        self._tabs.show_active(TABS[self._query.fold_by])
        scope = self._scopes[self._query.scope]
        work = partial(fold_scope, self.trace, self._query, scope)
        self._worker.answer("flame", work, partial(self._show_tree, self._query))

    def _show_tree(self, query: FlameQuery, made: tuple[FlameTree | None, dict[int, str], str]) -> None:
        if query != self._query:
            return
        tree, labels, problem = made
        self._status.show_message("")
        self.icicle.set_tree(tree, labels, self._explain_empty(tree, problem))
        view, self._view_to_restore = self._view_to_restore, None
        if view is not None and tree is not None:
            self._restore(view)
        self._show_summary()
        self._show_frame()

    def _explain_empty(self, tree: FlameTree | None, problem: str) -> str:
        """Say why there is nothing to see, and which key shows something."""
        if problem:
            return f"{problem}. {OTHER_FRAMES[self._query.fold_by]}q: back to the lanes."
        if tree is not None and not tree.total:
            scope = self._scopes[self._query.scope].label
            return f"no {TIME_NAMES[self._query.time]} in this scope ({scope}). v: another scope; g: the other time."
        return ""

    def _show_summary(self) -> None:
        tree, scope = self.icicle.flame, self._scopes[self._query.scope].label
        parts = [TIME_NAMES[self._query.time], scope]
        if tree is None or not tree.total:
            self._summary.show_message(" · ".join(parts))
            return
        parts[0] += f" {format_duration(tree.total)}"
        zoom = self.icicle.zoom
        if zoom.node or zoom.first_child >= 0:
            parts.append("zoomed in, esc: all")
        if tree.missing_ns:
            parts.append(f"{format_share(tree.missing_ns / tree.total)} {NO_FRAMES_SHORT[tree.fold_by]}")
        parts.append(f"{len(tree) - 1:,} paths")
        self._summary.show_message(" · ".join(parts))

    def _show_frame(self) -> None:
        box = self.icicle.box
        self._frame_lines.show_box(self.icicle.flame, box, ("", "") if box is None else self.icicle.label(box.node))

    def _change_zoom(self, zoom: Zoom, node: int) -> None:
        """Zoom, with the cursor on a node, and keep the view for `backspace`."""
        self._remember_view()
        self.icicle.show_zoom(zoom, node)
        self._show_summary()
        self._show_frame()

    @property
    def _search_text(self) -> str:
        return "" if self.icicle.matches is None else self.icicle.matches.text

    def search(self, text: str) -> str:
        """Mark the frames that match; "" marks none. Returns what is wrong with the text, else ""."""
        tree = self.icicle.flame
        if not text or tree is None:
            self.icicle.show_matches(None)
            return "there is no graph to search yet" if text else ""
        shown = {int(index): self.icicle.label_of_name(int(index)) for index in set(tree.name.tolist())}
        matches = search_frames(tree, shown, text)
        if isinstance(matches, BadPattern):
            return matches.message
        self.icicle.show_matches(matches)
        return ""

    def _describe_matches(self) -> str:
        """Describe which match the cursor is on, and the time of all of them."""
        matches, tree, box = self.icicle.matches, self.icicle.flame, self.icicle.box
        assert matches is not None
        assert tree is not None
        if not len(matches.nodes):
            return f"no match for {matches.text!r}"
        is_on_match = box is not None and not box.merged and bool(matches.mask[box.node])
        place = int(matches.nodes.searchsorted(box.node)) + 1 if box is not None and is_on_match else 0
        number = f"match {place:,} of {len(matches.nodes):,}" if place else f"{len(matches.nodes):,} matches"
        case = " (case-sensitive)" if is_case_sensitive(matches.text) else ""
        share = format_share(matches.total_ns / tree.total)
        return f"{number} for {matches.text!r}{case} · together {format_duration(matches.total_ns)}, {share}"

    def _remember_view(self) -> None:
        """Keep the current view for `backspace`; call it before a change."""
        node = 0 if self.icicle.box is None else self.icicle.box.node
        self._history.append(FlameView(self._query, self.icicle.zoom, self._search_text, node))

    def _restore(self, view: FlameView) -> None:
        self.icicle.show_zoom(view.zoom, view.node)
        self.search(view.search)

    def _find_box(self) -> tuple[FlameTree, Box] | None:
        """Return the tree and the box under the cursor; None where there is none, and say so."""
        tree, box = self.icicle.flame, self.icicle.box
        if tree is None or box is None:
            self._status.show_message(NOTHING_HERE)
            return None
        self._status.show_message("")
        return tree, box

    @property
    def help_word(self) -> Word | None:
        """The word of the frame under the cursor, with which the help begins; None for several, and for no event."""
        tree, box = self.icicle.flame, self.icicle.box
        if tree is None or box is None or box.merged or tree.first_event[box.node] < 0:
            return None
        return find_event_word(Kind(int(tree.kind[box.node])), tree.label(box.node))

    def _finish_move(self, moved: bool, reason: str) -> None:
        self._status.show_message("" if moved else reason)
        self._show_frame()

    def action_up(self) -> None:
        if self._find_box() is not None:
            self._finish_move(self.icicle.move_up(), "this is all of the time: nothing is above it")

    def action_down(self) -> None:
        if (found := self._find_box()) is not None:
            rest = "enter zooms into these frames" if found[1].merged else "this frame has no frames below it"
            self._finish_move(self.icicle.move_down(), rest)

    def action_step(self, distance: int) -> None:
        if self._find_box() is not None:
            end = "first" if distance < 0 else "last"
            self._finish_move(self.icicle.move_beside(distance), f"the {end} frame of this row")

    action_pan = action_step

    def action_edge(self, last: bool) -> None:
        self.action_step(1 << 30 if last else -(1 << 30))

    def action_page(self, direction: int) -> None:
        if self._find_box() is None:
            return
        move = self.icicle.move_down if direction > 0 else self.icicle.move_up
        moved = sum(1 for _ in range(self.icicle.page_size) if move())
        end = "nothing is below this frame" if direction > 0 else "this is all of the time"
        self._finish_move(moved > 0, end)

    def on_box_picked(self, message: BoxPicked) -> None:
        self._status.show_message("")
        self._show_frame()
        if message.opened:
            self.action_zoom_in()

    def action_zoom_in(self) -> None:
        """Zoom into a frame or a rest; a frame that fills the width, or has none below, is shown on the lanes."""
        if (found := self._find_box()) is None:
            return
        box = found[1]
        is_innermost = box.node and box.last == box.node + 1
        if not box.merged and (self.icicle.zoom == Zoom(box.node) or is_innermost):
            self.action_show()
        else:
            self.action_zoom(1)

    def action_zoom(self, direction: int) -> None:
        """Zoom into a frame or a rest (1), or out to the caller of the frames that fill the width (-1)."""
        if (found := self._find_box()) is None:
            return
        tree, box = found
        zoom = self.icicle.zoom
        if direction > 0:
            if zoom == Zoom(box.node) and not box.merged:
                self._status.show_message("this frame fills the width: enter shows it on the lanes")
            else:
                target = Zoom(int(tree.parent[box.node]), box.node) if box.merged else Zoom(box.node)
                self._change_zoom(target, box.node)
        elif zoom == Zoom():
            self._status.show_message("all frames are shown already")
        else:
            self._change_zoom(Zoom(int(tree.parent[zoom.node])), box.node)

    def action_fit_all(self) -> None:
        if (found := self._find_box()) is not None:
            if self.icicle.zoom == Zoom():
                self._status.show_message("all frames are shown already")
            else:
                self._change_zoom(Zoom(), found[1].node)

    def action_go_back(self) -> None:
        if not self._history:
            self._status.show_message("no earlier view of the flame graph; q: back to the lanes")
            return
        view = self._history.pop()
        if view.query != self._query:
            self._query, self._view_to_restore = view.query, view
            self._request_tree()
            return
        self._restore(view)
        self._status.show_message("")
        self._show_summary()
        self._show_frame()

    def action_back(self) -> None:
        """Clear the search, then zoom out, then leave."""
        if self._search_text:
            self.search("")
            self._status.show_message("")
        elif self.icicle.has_frames and self.icicle.zoom != Zoom():
            self.action_fit_all()
        else:
            self.dismiss(None)

    def _change_query(self, query: FlameQuery) -> None:
        self._remember_view()
        self._query = query
        self._request_tree()

    def action_next_panel(self, direction: int) -> None:
        self._change_query(self._query._replace(fold_by=cycle(list(FoldBy), self._query.fold_by, direction)))

    def on_panel_picked(self, message: PanelPicked) -> None:
        kind = next(kind for kind, tab in TABS.items() if tab == message.panel)
        self._change_query(self._query._replace(fold_by=kind))

    def action_time(self) -> None:
        other = FoldTime.CPU if self._query.time is FoldTime.GPU else FoldTime.GPU
        self._change_query(self._query._replace(time=other))

    def action_scope(self, direction: int) -> None:
        if len(self._scopes) == 1:
            self._status.show_message("no other scope: mark a range (m) or select an event on the lanes first")
        else:
            scope = (self._query.scope + direction) % len(self._scopes)
            self._change_query(self._query._replace(scope=scope))

    def action_show(self) -> None:
        if (found := self._find_box()) is None:
            return
        tree, box = found
        event = int(tree.first_event[box.node])
        if box.merged:
            self._status.show_message("several frames: enter zooms into them")
        elif event < 0:
            self._status.show_message("this is no event: choose a frame below it")
        else:
            self.dismiss(event + self.rank.first)

    def action_search(self) -> None:
        if self._find_box() is not None:
            self._remember_view()
            self._open_prompt(self.SEARCH, SEARCH_HINT, self._search_text)

    def action_ask_export(self) -> None:
        if self._find_box() is not None:
            self._open_prompt(EXPORT_PROMPT, ".folded or .speedscope.json", "flame.folded", replace=False)

    def action_match(self, distance: int) -> None:
        if (found := self._find_box()) is None:
            return
        matches = self.icicle.matches
        if matches is None:
            self._status.show_message("no search yet: / starts one")
            return
        place = find_adjacent(matches.nodes, found[1].node, distance)
        if place >= 0:
            self._show_match(int(matches.nodes[place]))
        self._status.show_message(self._describe_matches(), is_warning=place < 0)

    def _show_match(self, node: int) -> None:
        self.icicle.move_to_node(node)
        self._show_summary()
        self._show_frame()

    def describe_found(self, text: str) -> str:
        return self._describe_matches()

    def finish_search(self, text: str) -> None:
        matches, box = self.icicle.matches, self.icicle.box
        if matches is not None and box is not None:
            if len(matches.nodes) and (box.merged or not matches.mask[box.node]):
                self._show_match(int(matches.nodes[find_adjacent(matches.nodes, box.node, 1)]))
            self._status.show_message(self._describe_matches(), is_warning=not len(matches.nodes))

    def submit(self, text: str) -> str:
        """Write all frames of the scope to a file, and show so."""
        tree = self.icicle.flame
        if not text or tree is None:
            return ""
        formatters = {
            ".folded": lambda: "".join(iterate_folded_lines(tree)),
            ".speedscope.json": lambda: format_speedscope(tree, Path(self.trace.label).name),
        }
        stacks = f"{int((tree.value_ns > 0).sum()):,} stacks"
        return self.report_written(*write_new_file(text, formatters, stacks))

    def action_copy(self, everything: bool) -> None:
        if (found := self._find_box()) is None:
            return
        tree, box = found
        if box.merged:
            self._status.show_message("several frames: enter zooms into them")
            return
        if everything:
            text = "".join(f"{tree.label(node)}\n" for node in tree.list_path(box.node))
            label = "the path of this frame"
        else:
            text = label = tree.label(box.node)
        self.copy_text(text, label)


def choose_first_scope(scopes: list[TableScope], view_state: ViewState) -> int:
    """Choose the scope to begin with: the marked range, the selected step, what is on screen; else the whole trace."""
    labels = [scope.label for scope in scopes]
    selected = view_state.selected
    if view_state.mark is not None:
        wanted = "the marked range"
    elif any(step.event == selected for step in view_state.current_steps()):
        wanted = view_state.trace.event(selected).name
    else:
        wanted = "on screen"
    return labels.index(wanted) if wanted in labels else 0
