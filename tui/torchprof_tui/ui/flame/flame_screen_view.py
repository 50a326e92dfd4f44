"""What the flame graph's screen consists of and shows: folding a scope, and the lines below the icicle."""

from __future__ import annotations

from functools import partial
from typing import Any

from textual.app import ComposeResult
from textual.screen import Screen

from torchprof_tui.analysis.flame.flame_tree import FoldBy, FoldTime
from torchprof_tui.analysis.flame.timed_events import has_frames
from torchprof_tui.analysis.search.name_search import BadPattern, is_case_sensitive
from torchprof_tui.analysis.table.trace_profile import Profile
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.debounced_worker import DebouncedWorker
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.common.panel_dock import PanelTabs
from torchprof_tui.ui.common.prompt_input import Prompt
from torchprof_tui.ui.common.status_line import StatusLine
from torchprof_tui.ui.common.terminal_info import follow_theme
from torchprof_tui.ui.flame.flame_history import FlameHistory, FlameView
from torchprof_tui.ui.flame.flame_keys import HINTS
from torchprof_tui.ui.flame.flame_worker import FlameMade, FlameQuery, fold_scope
from torchprof_tui.ui.flame.frame_lines import FrameLines
from torchprof_tui.ui.flame.frame_search import search_frames
from torchprof_tui.ui.flame.icicle import Icicle
from torchprof_tui.ui.flame.icicle_layout import Zoom
from torchprof_tui.ui.lanes.view_state import ViewState
from torchprof_tui.ui.table.scope_choices import TableScope, list_table_scopes

TABS = {FoldBy.STACK: "stacks", FoldBy.MODULE: "modules", FoldBy.OP: "ops"}
OTHER_FRAMES = {FoldBy.STACK: "shift+tab: ops. ", FoldBy.MODULE: "tab: ops. ", FoldBy.OP: "g: GPU or CPU time. "}
"""What to press where a trace has no frames of a sort."""

NO_FRAMES_SHORT = {FoldBy.STACK: "without a stack", FoldBy.MODULE: "in no module", FoldBy.OP: "in no op"}
TIME_NAMES = {FoldTime.GPU: "GPU time", FoldTime.CPU: "CPU time"}


class FlameScreenView(Screen[Any]):
    """The widgets of the flame graph and what they show. `flame_screen` adds the keys."""

    CSS_PATH = "flame_screen.tcss"
    AUTO_FOCUS = ""

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
        self._history = FlameHistory()
        self._view_to_restore: FlameView | None = None
        self._tabs = PanelTabs([(tab, tab) for tab in TABS.values()])
        self.icicle = Icicle(id="icicle")
        self._frame_lines = FrameLines(id="flame-frame")
        self._summary = StatusLine(id="flame-summary")
        self._status = StatusLine(id="flame-status")
        self._prompt = Prompt(id="prompt")
        self._worker = DebouncedWorker(self)

    def compose(self) -> ComposeResult:
        yield self._tabs
        yield self.icicle
        yield self._frame_lines
        yield self._summary
        yield self._status
        yield self._prompt

    def on_mount(self) -> None:
        follow_theme(self)
        self._status.show_keys(HINTS)
        self._request_tree()

    # -- folding -------------------------------------------------------------------------------------------

    def _request_tree(self) -> None:
        self._status.show_message("adding up …")
        self._tabs.show_active(TABS[self._query.fold_by])
        scope = self._scopes[self._query.scope]
        self._worker.submit("flame", partial(fold_scope, self.trace, self._query, scope))

    def on_flame_made(self, message: FlameMade) -> None:
        if message.query != self._query:
            return
        self._status.show_message("")
        self.icicle.set_tree(message.tree, message.labels, self._explain_empty(message))
        view, self._view_to_restore = self._view_to_restore, None
        if view is not None and message.tree is not None:
            self._restore(view)
        self._show_summary()
        self._show_frame()

    def _explain_empty(self, message: FlameMade) -> str:
        """Say why there is nothing to see, and which key shows something."""
        time = message.query.time
        if message.problem:
            return f"{message.problem}. {OTHER_FRAMES[message.query.fold_by]}q: back to the lanes."
        if message.tree is not None and not message.tree.total:
            scope = self._scopes[self._query.scope].label
            return f"no {TIME_NAMES[time]} in this scope ({scope}). v: another scope; g: the other time."
        return ""

    def _show_summary(self) -> None:
        """Show which time the graph adds up, its scope, and what has no frame."""
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

    # -- the frame under the cursor ------------------------------------------------------------------------

    def _show_frame(self) -> None:
        box = self.icicle.box
        self._frame_lines.show_box(self.icicle.flame, box, ("", "") if box is None else self.icicle.label(box.node))

    def _change_zoom(self, zoom: Zoom, node: int) -> None:
        """Zoom, with the cursor on a node, and keep the view for `backspace`."""
        self._remember_view()
        self.icicle.show_zoom(zoom, node)
        self._show_summary()
        self._show_frame()

    # -- searching and earlier views -----------------------------------------------------------------------

    @property
    def _search_text(self) -> str:
        return "" if self.icicle.matches is None else self.icicle.matches.text

    def _search(self, text: str) -> str:
        """Mark the frames that match; "" marks none. Returns what is wrong with the text, else ""."""
        tree = self.icicle.flame
        if not text or tree is None:
            self.icicle.show_matches(None)
            return ""
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
        self._history.push(FlameView(self._query, self.icicle.zoom, self._search_text, node))

    def _restore(self, view: FlameView) -> None:
        """Show the zoom, the search and the cursor of a view of the same query."""
        self.icicle.show_zoom(view.zoom, view.node)
        self._search(view.search)


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
