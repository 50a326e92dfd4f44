"""Screen of the dispatch tree: all calls, grouped by call path and sorted by time; `/` searches it."""

from __future__ import annotations

from collections import deque

import numpy as np
from rich.cells import cell_len
from rich.style import Style
from textual import work
from textual.app import ComposeResult

from torchprof_tui.analysis.dispatch.call_tree import MAX_LEVELS, DispatchTree
from torchprof_tui.analysis.graphs.captured_nodes import build_call_tree
from torchprof_tui.analysis.kernel.names.distinct_labels import label_kernels
from torchprof_tui.analysis.search.name_search import BadPattern, compile_matcher, is_case_sensitive
from torchprof_tui.analysis.words.dictionary import Word, find_event_word
from torchprof_tui.trace.core.arrays import I32, I64, Bool
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.ranks import Rank
from torchprof_tui.ui.common import keys
from torchprof_tui.ui.common.child_screen import SEARCH_HINT, ListScreen, find_adjacent
from torchprof_tui.ui.common.labels import short_label
from torchprof_tui.ui.common.name_display import clean, format_found, shorten, truncate
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.common.painted_widget import RowList, RowPicked, TextRun

NUMBER_CELLS, SELF_CELLS, GPU_CELLS = 54, 12, 21
"""Cells of all columns of numbers; of the self time among them, which narrow terminals leave out; and of the two of the
GPU, which a trace without GPU work leaves out instead."""

SELF_MIN_WIDTH = 100  # width from which the self time is shown

MAX_INDENT, MIN_LABEL_CELLS = 40, 22
"""Limit of the indentation, and cells that it leaves to the label; deeper nodes are marked with "…" and their depth."""


MAX_SNAPSHOTS = 20  # earlier foldings that are kept; each has a byte or two for each node


@record
class FoldSnapshot:
    """The folding and the search of a tree at one time, and the node under the cursor."""

    folded: Bool
    folded_unfiltered: Bool
    filter: str
    node: int


class FoldState:
    """Folding and search of one tree, combined.

    A search lists the matching nodes and their ancestors, all unfolded. Folding then works within these nodes until the
    text of the search changes. Without a search, everything is folded as it was before.

    `visible_nodes` int32[k]: the nodes to list, in order. `matching_nodes` int64[m]: the nodes that match the search,
    whether they are listed or folded away; `match_count`: their number, -1 without a search.
    """

    def __init__(self, tree: DispatchTree, names: list[str], shown_names: list[str] | None = None) -> None:
        """Fold a tree. `names`: the strings that the tree's `name` indexes; `shown_names`: as the screen shows them."""
        self._tree, self._shown_names = tree, names if shown_names is None else shown_names
        self._names = names
        self._folded_unfiltered = tree.collapse_from_depth()  # the folding without a filter
        self._folded = self._folded_unfiltered
        self._matching: Bool | None = None
        self._visible_descendants: I32 | I64 = tree.size - 1  # descendants of each node that the filter keeps
        self.filter = ""
        self.match_count = -1
        self.matching_nodes: I64 = np.zeros(0, np.int64)
        self.visible_nodes: I32 = tree.list_visible(self._folded)

    def set_filter(self, text: str) -> str:
        """List the nodes whose name matches and their ancestors, unfolded; "" lists all.

        `text` is contained in the name, recorded or shortened, or is `/a regular expression/`; a capital makes it
        case-sensitive. Returns what is wrong with it, else "".
        """
        matches = compile_matcher(text)
        if isinstance(matches, BadPattern):
            return matches.message
        self.filter = text
        if not text:
            self._matching, self._folded = None, self._folded_unfiltered
            self._visible_descendants, self.match_count = self._tree.size - 1, -1
            self.matching_nodes = np.zeros(0, np.int64)
        else:
            hits = (matches(name) or matches(shown) for name, shown in zip(self._names, self._shown_names, strict=True))
            name_matches = np.array([*hits] or [False], np.bool_)
            self._matching = name_matches[self._tree.name] & (self._tree.name >= 0)
            self._folded = np.zeros(len(self._tree), np.bool_)
            self._visible_descendants = self._tree.count_in_subtrees(self._matching) - self._matching
            self.matching_nodes = np.flatnonzero(self._matching)
            self.match_count = len(self.matching_nodes)
        self._update_visible_nodes()
        return ""

    def count_filtered(self) -> int:
        """Count the nodes that the search keeps, matches and their ancestors, folded away or not."""
        return (
            len(self._tree) if self._matching is None else int((self._tree.count_in_subtrees(self._matching) > 0).sum())
        )

    def reveal(self, node: int) -> None:
        """Unfold the ancestors of a node."""
        parent = int(self._tree.parent[node])
        while parent >= 0:
            self._folded[parent] = False
            parent = int(self._tree.parent[parent])
        self._update_visible_nodes()

    def take_snapshot(self, node: int) -> FoldSnapshot:
        """Keep the folding, the search and the node under the cursor for `restore`."""
        return FoldSnapshot(self._folded.copy(), self._folded_unfiltered.copy(), self.filter, node)

    def restore(self, snapshot: FoldSnapshot) -> None:
        """Fold and search as at the time of a snapshot."""
        self._folded_unfiltered = snapshot.folded_unfiltered.copy()
        self.set_filter(snapshot.filter)
        if snapshot.filter:
            self._folded = snapshot.folded.copy()
            self._update_visible_nodes()

    def can_fold(self, node: int) -> bool:
        """Return whether the node has descendants that the filter keeps."""
        return bool(self._visible_descendants[node] > 0)

    def is_unfolded(self, node: int) -> bool:
        return self.can_fold(node) and not self._folded[node]

    def unfold(self, node: int) -> None:
        """Unfold a node, and its descendants as long as each has only one child (Python frames that call the next)."""
        size = self._tree.size
        self._folded[node] = False
        while size[node] > 1 and size[node + 1] == size[node] - 1:
            node += 1
            self._folded[node] = False
        self._update_visible_nodes()

    def fold(self, node: int) -> None:
        self._folded[node] = True
        self._update_visible_nodes()

    def toggle(self, node: int) -> None:
        self._folded[node] = not self._folded[node]
        self._update_visible_nodes()

    def set_all_folds(self, unfolded: bool) -> None:
        self._folded[:] = False if unfolded else self._tree.collapse_from_depth(0)
        self._update_visible_nodes()

    def index_of(self, node: int) -> int:
        """Return the index of a node in the list, or of the nearest listed node before it; -1 for none."""
        return int(np.searchsorted(self.visible_nodes, node, side="right")) - 1

    def _update_visible_nodes(self) -> None:
        self.visible_nodes = self._tree.list_visible(self._folded, self._matching)


class TreeScreen(ListScreen):
    """Dismissed with the event to show on the lanes, the longest one of the node, or None."""

    CSS_PATH = "tree_screen.tcss"
    BINDINGS = keys.TREE
    KEYLESS_COMMANDS = keys.TREE_COMMANDS
    help_topic = "tree"

    def __init__(self, rank: Rank) -> None:
        """List the calls of `rank`. The resulting event is an index into the merged trace."""
        super().__init__()
        self.trace = rank.trace
        self.rank = rank
        self._has_gpu = rank.trace.links.gpu_events > 0
        self.call_tree: DispatchTree | None = None
        self._fold_state: FoldState | None = None
        self._total_gpu_time = 1
        self.rows = RowList(self._format_row, self._format_header, id="tree")
        self._labels: dict[int, str] = {}  # of GPU work, by name
        self._snapshots: deque[FoldSnapshot] = deque(maxlen=MAX_SNAPSHOTS)
        self._search_start: FoldSnapshot | None = None  # what was shown when the search began

    def compose(self) -> ComposeResult:
        yield from (self.rows, self._status, self._prompt)

    def on_mount(self) -> None:
        self.follow_theme(keys.TREE_HINTS)
        self._status.show_message("building the tree …")
        self._build_tree()

    @work(thread=True)
    def _build_tree(self) -> None:
        tree = build_call_tree(self.trace)
        gpu_names = np.unique(tree.name[np.isin(tree.kind, [int(kind) for kind in GPU_WORK]) & (tree.name >= 0)])
        labels = label_kernels([self.trace.names[name] for name in gpu_names.tolist()])
        self.app.call_from_thread(self._show_tree, tree, dict(zip(gpu_names.tolist(), map(clean, labels), strict=True)))

    def _show_tree(self, tree: DispatchTree, labels: dict[int, str]) -> None:
        self.call_tree, self._labels = tree, labels
        shown_names = [labels.get(index) or shorten(clean(name)) for index, name in enumerate(tree.names)]
        self._fold_state = FoldState(tree, tree.names, shown_names)
        self._total_gpu_time = max(sum(int(tree.gpu_time[root]) for root in tree.root_labels), 1)
        self.rows.empty_text = "no calls were recorded in this trace. q: back to the lanes."
        self._refresh_rows(0)

    def _refresh_rows(self, node: int) -> None:
        """Show the listed nodes, with the cursor on `node` or on the nearest listed node above it."""
        tree, folds = self.call_tree, self._fold_state
        if tree is None or folds is None:
            return
        self.rows.set_row_count(len(folds.visible_nodes), folds.index_of(node))
        self.handle_cursor_move()

    def handle_cursor_move(self) -> None:
        """Say how many nodes are listed, or which match the cursor is on."""
        tree, folds = self.call_tree, self._fold_state
        if tree is None or folds is None or not len(tree):
            self._status.show_message("")
        elif folds.filter:
            self._show_match()
        else:
            rank = self.rank.label_prefix(": ")
            omitted = (
                f"; {tree.unlisted_calls:,} calls deeper than {MAX_LEVELS:,} left out" if tree.unlisted_calls else ""
            )
            self._status.show_message(f"{rank}{len(folds.visible_nodes):,} of {len(tree):,} nodes{omitted}")

    def _show_match(self) -> None:
        folds, node = self._fold_state, self._cursor_node
        assert folds is not None
        if not folds.match_count:
            self.rows.empty_text = f"no match for {folds.filter!r}. esc: all nodes."
            self._status.show_message(f"no match for {folds.filter!r}", is_warning=True)
            return
        place = int(folds.matching_nodes.searchsorted(node))
        is_match = place < folds.match_count and folds.matching_nodes[place] == node
        number = f"match {place + 1:,} of {folds.match_count:,}" if is_match else f"{folds.match_count:,} matches"
        case = " (case-sensitive)" if is_case_sensitive(folds.filter) else ""
        listed, total = folds.count_filtered(), len(self.call_tree or ())
        filtered = f" · filtered: {listed:,} of {total:,} nodes, esc shows all" if listed < total else ""
        self._status.show_message(f"{number} for {folds.filter!r}{case}{filtered}")

    @property
    def _cursor_node(self) -> int:
        nodes = self._fold_state.visible_nodes if self._fold_state is not None else ()
        return int(nodes[self.rows.cursor]) if len(nodes) else -1

    @property
    def help_word(self) -> Word | None:
        """The word of the call under the cursor, with which the help begins; None for a thread."""
        tree, node = self.call_tree, self._cursor_node
        if tree is None or node < 0 or tree.name[node] < 0:
            return None
        return find_event_word(Kind(int(tree.kind[node])), tree.names[int(tree.name[node])])

    def _format_header(self, width: int) -> list[TextRun]:
        palette = self.rows.palette
        name_cells = count_name_cells(width, self._has_gpu)
        title = f" dispatch tree · {short_label(self.trace.label)}"
        self_title = f" {'self':>11}" if shows_self_time(width, self._has_gpu) else ""
        gpu_titles = f" {'GPU':>11} {'% of it':>8}" if self._has_gpu else ""
        numbers = f"{'calls':>9} {'total':>11}{self_title}{gpu_titles}"
        return [(truncate(title, name_cells - 1).ljust(name_cells), palette.strong), (numbers, palette.muted)]

    def _format_row(self, index: int, width: int, selected: bool) -> list[TextRun]:
        tree, folds, palette = self.call_tree, self._fold_state, self.rows.palette
        assert tree is not None
        assert folds is not None
        node = int(folds.visible_nodes[index])
        name_cells = count_name_cells(width, self._has_gpu)
        kind = int(tree.kind[node])
        is_root = node in tree.root_labels
        fold_sign = ("▾" if folds.is_unfolded(node) else "▸") if folds.can_fold(node) else " "
        depth, limit = int(tree.depth[node]), min(MAX_INDENT, max(name_cells - MIN_LABEL_CELLS, 4))
        indent = " " * depth if depth <= limit else f"…{depth}".ljust(limit)
        arrow = "⇢ " if kind in GPU_WORK else ""
        label = self._format_label(node, name_cells - len(indent) - len(arrow) - 5)
        text = f"{fold_sign} {arrow}{label}"
        style = palette.active if selected else palette.text
        return [
            ("▶" if selected else " ", palette.cursor),
            (indent, palette.muted),
            ("▌", palette.ink(kind) if not is_root else palette.strong),
            (text, palette.strong if is_root and not selected else style),
            (" " * max(name_cells - 2 - len(indent) - cell_len(text), 0), style),
            *self._format_numbers(node, shows_self_time(width, self._has_gpu), style),
        ]

    def _format_numbers(self, node: int, has_self: bool, style: Style) -> list[TextRun]:
        tree = self.call_tree
        assert tree is not None
        is_inserted = bool(tree.is_inserted[node])  # no call of this trace: it took no time on its CPU
        has_no_self = is_inserted or node in tree.root_labels or int(tree.kind[node]) in GPU_WORK
        gpu_time, total = int(tree.gpu_time[node]), int(tree.total[node])
        count = f"{int(tree.count[node]):,}" if tree.count[node] else ""
        self_time = "" if has_no_self else format_duration(int(tree.self_time[node]))
        gpu = format_duration(gpu_time) if gpu_time else ""
        share = f"{format_share(gpu_time / self._total_gpu_time):>8}" if gpu_time else " " * 8
        self_text = f" {self_time:>11}" if has_self else ""
        total_text = "" if is_inserted else format_duration(total)
        numbers = f"{count:>9} {total_text:>11}{self_text}"
        if not self._has_gpu:
            return [(numbers, style)]
        return [(f"{numbers} {gpu:>11} ", style), (share, self.rows.palette.muted)]

    def _format_label(self, node: int, cells: int) -> str:
        assert self.call_tree is not None
        if node in self.call_tree.root_labels:
            return truncate(clean(self.call_tree.root_labels[node]), cells)
        if self.call_tree.kind[node] == Kind.STEP and self.call_tree.count[node] > 1:
            return "ProfilerStep*"
        name_index = int(self.call_tree.name[node])
        if self.call_tree.kind[node] in GPU_WORK:
            return truncate(self._labels[name_index], cells)
        name = clean(self.call_tree.names[name_index])
        return name if cell_len(name) <= cells else truncate(shorten(name), cells)

    def _find_fold(self) -> tuple[int, FoldState] | None:
        """Return the node under the cursor and what is folded; None where there is no node, and say so."""
        if self._fold_state is None or self._cursor_node < 0:
            self._status.show_message("no rows" if self._fold_state is not None else "the tree is still being built")
            return None
        return self._cursor_node, self._fold_state

    def action_open(self) -> None:
        """Unfold the node, or move to its first child if it is unfolded."""
        if (found := self._find_fold()) is None:
            return
        node, folds = found
        if not folds.can_fold(node):
            self._status.show_message("nothing to open: this node calls nothing")
        elif folds.is_unfolded(node):
            self.rows.move_by(1)
        else:
            folds.unfold(node)
            self._refresh_rows(node)

    def action_close(self) -> None:
        """Fold the node, or move to its parent if it is folded."""
        if self.call_tree is None or (found := self._find_fold()) is None:
            return
        node, folds = found
        if folds.is_unfolded(node):
            folds.fold(node)
            self._refresh_rows(node)
        elif self.call_tree.parent[node] >= 0:
            self._remember_view()
            self.rows.move_to(folds.index_of(int(self.call_tree.parent[node])))
            self.handle_cursor_move()
        else:
            self._status.show_message("this is a thread, at the top of the tree")

    def action_open_close(self) -> None:
        if (found := self._find_fold()) is None:
            return
        node, folds = found
        if folds.can_fold(node):
            folds.toggle(node)
            self._refresh_rows(node)
        else:
            self._status.show_message("nothing to open: this node calls nothing")

    def action_all(self, opened: bool) -> None:
        if (found := self._find_fold()) is not None:
            self._remember_view()
            node, folds = found
            folds.set_all_folds(opened)
            self._refresh_rows(node)

    def action_show(self) -> None:
        if self.call_tree is None or (found := self._find_fold()) is None:
            return
        node, _ = found
        if self.call_tree.longest_event[node] >= 0:
            self.dismiss(int(self.call_tree.longest_event[node]) + self.rank.first)
        else:
            self._status.show_message("a thread is not an event: choose a call below it")

    def action_back(self) -> None:
        if self._fold_state is not None and self._fold_state.filter:
            node = self._cursor_node  # stays under the cursor, among its siblings
            self._fold_state.set_filter("")
            if node >= 0:
                self._fold_state.reveal(node)
            self._refresh_rows(max(node, 0))
        else:
            self.dismiss(None)

    def action_copy(self, everything: bool) -> None:
        node = self._cursor_node
        if self.call_tree is None or node < 0:
            self._status.show_message("nothing to copy")
            return
        if everything:
            text, label = self.rows.visible_text() + "\n", "the rows on screen"
        else:
            name = int(self.call_tree.name[node])
            text = label = self.call_tree.names[name] if name >= 0 else self.call_tree.root_labels[node]
        self.copy_text(text, label)

    def _remember_view(self) -> None:
        """Keep the folding and the cursor for `backspace`; call it before a change."""
        if self._fold_state is not None:
            self._snapshots.append(self._fold_state.take_snapshot(self._cursor_node))

    def action_go_back(self) -> None:
        if not self._snapshots or self._fold_state is None:
            self._status.show_message("no earlier view of the tree; q: back to the lanes")
            return
        snapshot = self._snapshots.pop()
        self._fold_state.restore(snapshot)
        self._refresh_rows(snapshot.node)

    def action_search(self) -> None:
        folds = self._fold_state
        if folds is None or self.call_tree is None or not len(self.call_tree):
            self._status.show_message("there is no call to search")
            return
        self._remember_view()
        self._search_start = self._snapshots[-1]
        self._open_prompt(self.SEARCH, SEARCH_HINT, folds.filter)

    def action_match(self, distance: int) -> None:
        folds = self._fold_state
        if folds is None:
            return
        if not folds.filter:
            self._status.show_message("no search yet: / starts one")
            return
        place = find_adjacent(folds.matching_nodes, self._cursor_node, distance)
        if place >= 0:
            node = int(folds.matching_nodes[place])
            folds.reveal(node)
            self._refresh_rows(node)
        else:
            self._show_match()

    def search(self, text: str) -> str:
        """List the matches and their ancestors, with the cursor on the first. Returns what is wrong with the text."""
        folds = self._fold_state
        assert folds is not None
        problem = folds.set_filter(text)
        if not problem:
            first = int(folds.matching_nodes[0]) if folds.match_count > 0 else max(self._cursor_node, 0)
            self._refresh_rows(first)
        return problem

    def describe_found(self, text: str) -> str:
        return format_found(0 if self._fold_state is None else self._fold_state.match_count, text)

    def cancel_search(self) -> None:
        """Show what was on screen before the search."""
        if self._search_start is not None and self._fold_state is not None:
            self._fold_state.restore(self._search_start)
            self._fold_state.set_filter("")
            self._refresh_rows(self._search_start.node)

    def on_row_picked(self, message: RowPicked) -> None:
        if message.opened:
            self.action_open_close()


def shows_self_time(width: int, has_gpu: bool) -> bool:
    """Return whether the self time has a column: where there is room, or no columns of the GPU."""
    return width >= SELF_MIN_WIDTH or not has_gpu


def count_name_cells(width: int, has_gpu: bool = True) -> int:
    """Count the cells that the columns of numbers leave to the name."""
    left_out = (0 if shows_self_time(width, has_gpu) else SELF_CELLS) + (0 if has_gpu else GPU_CELLS)
    return max(width - NUMBER_CELLS + left_out, 12)
