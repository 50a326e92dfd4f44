"""Screen of the flame graph: an icicle of stacks, modules or ops by self GPU or CPU time; zoom, search, export."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from torchprof_tui.analysis.flame.flame_tree import FlameTree, FoldBy, FoldTime
from torchprof_tui.ui.common.list_keys import switch_child_screen
from torchprof_tui.ui.common.panel_dock import PanelPicked
from torchprof_tui.ui.common.prompt_input import PromptChanged, PromptClosed, PromptSubmitted
from torchprof_tui.ui.common.status_line import format_copy_message
from torchprof_tui.ui.flame.flame_file import write_flame
from torchprof_tui.ui.flame.flame_keys import BINDINGS
from torchprof_tui.ui.flame.flame_screen_view import TABS, FlameScreenView
from torchprof_tui.ui.flame.flame_worker import FlameQuery
from torchprof_tui.ui.flame.icicle import BoxPicked
from torchprof_tui.ui.flame.icicle_layout import Box, Zoom

SEARCH_PROMPT, EXPORT_PROMPT = "search", "write to"
SEARCH_HINT = "text, or /regular expression/ · ↑ earlier"
NOTHING_HERE = "nothing to see here: tab, g and v show other frames, time and scope"


class FlameScreen(FlameScreenView):
    """Dismissed with the event to show on the lanes, the first one of a frame, or None."""

    BINDINGS = BINDINGS
    help_topic = "flame"

    # -- the cursor ----------------------------------------------------------------------------------------

    def _find_box(self) -> tuple[FlameTree, Box] | None:
        """Return the tree and the box under the cursor; None where there is none, and say so."""
        tree, box = self.icicle.flame, self.icicle.box
        if tree is None or box is None:
            self._status.show_message(NOTHING_HERE)
            return None
        self._status.show_message("")
        return tree, box

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

    def action_beside(self, distance: int) -> None:
        if self._find_box() is not None:
            end = "first" if distance < 0 else "last"
            self._finish_move(self.icicle.move_beside(distance), f"the {end} frame of this row")

    def action_edge(self, last: bool) -> None:
        self.action_beside(1 << 30 if last else -(1 << 30))

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

    # -- zooming -------------------------------------------------------------------------------------------

    def action_zoom_in(self) -> None:
        """Zoom into a frame or a rest; a frame that fills the width, or has none below, is shown on the lanes."""
        if (found := self._find_box()) is None:
            return
        tree, box = found
        zoom = self.icicle.zoom
        if box.merged:
            self._change_zoom(Zoom(int(tree.parent[box.node]), box.node), box.node)
        elif zoom == Zoom(box.node) or (box.node and box.last == box.node + 1):
            self.action_show()
        else:
            self._change_zoom(Zoom(box.node), box.node)

    def action_zoom_out(self) -> None:
        if (found := self._find_box()) is not None:
            if self.icicle.zoom == Zoom():
                self._status.show_message("all frames are shown already")
            else:
                self._change_zoom(Zoom(), found[1].node)

    def action_go_back(self) -> None:
        view = self._history.pop()
        if view is None:
            self._status.show_message("no earlier view of the flame graph; q: back to the lanes")
            return
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
            self._search("")
            self._status.show_message("")
        elif self.icicle.has_frames and self.icicle.zoom != Zoom():
            self.action_zoom_out()
        else:
            self.dismiss(None)

    # -- what is shown -------------------------------------------------------------------------------------

    def _change_query(self, query: FlameQuery) -> None:
        self._remember_view()
        self._query = query
        self._request_tree()

    def action_frames(self, direction: int) -> None:
        kinds = list(FoldBy)
        place = (kinds.index(self._query.fold_by) + direction) % len(kinds)
        self._change_query(self._query._replace(fold_by=kinds[place]))

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

    # -- leaving -------------------------------------------------------------------------------------------

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

    def action_leave(self) -> None:
        self.dismiss(None)

    def action_child(self, action: str) -> None:
        switch_child_screen(self, action)

    # -- searching and writing -----------------------------------------------------------------------------

    def action_search(self) -> None:
        if self._find_box() is not None:
            self._remember_view()
            self._open_prompt(SEARCH_PROMPT, SEARCH_HINT, self._search_text)

    def action_ask_export(self) -> None:
        if self._find_box() is not None:
            self._open_prompt(EXPORT_PROMPT, ".folded or .speedscope.json", "flame.folded")

    def _open_prompt(self, purpose: str, hint: str, text: str) -> None:
        self.add_class("asking")
        self._prompt.open(purpose, hint, text, replace=purpose == SEARCH_PROMPT)

    def _close_prompt(self) -> None:
        self.remove_class("asking")
        self._prompt.close()

    def action_match(self, distance: int) -> None:
        if (found := self._find_box()) is None:
            return
        matches = self.icicle.matches
        if matches is None:
            self._status.show_message("no search yet: / starts one")
            return
        place = matches.find_next(found[1].node, distance)
        if place >= 0:
            self._show_match(int(matches.nodes[place]))
        self._status.show_message(self._describe_matches(), is_warning=place < 0)

    def _show_match(self, node: int) -> None:
        self.icicle.move_to_node(node)
        self._show_summary()
        self._show_frame()

    def on_prompt_changed(self, message: PromptChanged) -> None:
        if message.purpose == SEARCH_PROMPT:
            self._worker.debounce("search", partial(self._preview_search, message.text))

    def _preview_search(self, text: str) -> None:
        """Mark the matches and show their number while the text is being typed."""
        if self._prompt.is_open:
            problem = self._search(text)
            self._prompt.show_hint(problem or (self._describe_matches() if text else SEARCH_HINT))

    def on_prompt_submitted(self, message: PromptSubmitted) -> None:
        """Do what was asked; on an error the prompt stays open, so that no further character becomes a key."""
        if message.purpose == EXPORT_PROMPT:
            self._export_file(message.text)
            return
        problem = self._search(message.text)
        if problem:
            self._prompt.show_hint(problem)
            return
        self._close_prompt()
        matches, box = self.icicle.matches, self.icicle.box
        if matches is not None and box is not None:
            if len(matches.nodes) and (box.merged or not matches.mask[box.node]):
                self._show_match(int(matches.nodes[matches.find_next(box.node, 1)]))
            self._status.show_message(self._describe_matches(), is_warning=not len(matches.nodes))

    def on_prompt_closed(self, message: PromptClosed) -> None:
        self._close_prompt()
        if message.purpose == SEARCH_PROMPT:
            self._search("")

    def _export_file(self, name: str) -> None:
        """Write all frames of the scope to a file; where that fails, the prompt says why and stays open."""
        tree = self.icicle.flame
        if not name or tree is None:
            self._close_prompt()
            return
        line, written = write_flame(tree, name, Path(self.trace.label).name)
        if written:
            self._close_prompt()
            self._status.show_message(line)
        else:
            self._prompt.show_hint(line)

    def action_copy(self, everything: bool) -> None:
        if (found := self._find_box()) is None:
            return
        tree, box = found
        if box.merged:
            self._status.show_message("several frames: enter zooms into them")
            return
        if everything:
            text, label = (
                "".join(f"{tree.label(node)}\n" for node in tree.list_path(box.node)),
                "the path of this frame",
            )
        else:
            text = label = tree.label(box.node)
        self.app.copy_to_clipboard(text)
        self._status.show_message(format_copy_message(label))
