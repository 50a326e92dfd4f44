"""Screen of the dispatch tree: all calls, grouped by call path and sorted by time; typed letters filter it."""

from __future__ import annotations

from rich.cells import cell_len
from rich.style import Style
from textual import events, work
from textual.app import ComposeResult
from textual.binding import Binding

from torchprof_tui.analysis.dispatch.call_tree import MAX_LEVELS, DispatchTree, build_dispatch_tree
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.ranks import Rank
from torchprof_tui.ui.common.event_styles import Palette
from torchprof_tui.ui.common.list_keys import LIST_BINDINGS, ListScreen
from torchprof_tui.ui.common.name_display import clean, shorten, truncate
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.common.painted_widget import TextRun
from torchprof_tui.ui.common.row_list import RowList, RowPicked
from torchprof_tui.ui.common.status_line import StatusLine
from torchprof_tui.ui.common.terminal_info import follow_theme
from torchprof_tui.ui.explorer.title_line import short_label
from torchprof_tui.ui.tree.fold_state import FoldState

HINTS = (
    ("?", "help"),
    ("esc", "back"),
    ("letters", "filter"),
    ("→ ←", "unfold, fold"),
    ("enter", "on the lanes"),
    ("+ -", "unfold, fold all"),
    ("↑↓", "move"),
)
NOTHING_BELOW = "nothing was called below this node"
NUMBER_CELLS = 54
MAX_INDENT = 40


class TreeScreen(ListScreen):
    """Dismissed with the event to show on the lanes, the longest one of the node, or None."""

    CSS_PATH = "tree_screen.tcss"
    AUTO_FOCUS = ""
    help_topic = "tree"
    BINDINGS = [
        *LIST_BINDINGS,
        Binding(
            "right",
            "open",
            "unfold",
            id="tree.unfold",
            tooltip="unfold the node; from an unfolded one: its first child",
            show=False,
        ),
        Binding(
            "left", "close", "fold", id="tree.fold", tooltip="fold the node; from a folded one: its parent", show=False
        ),
        Binding("space", "open_close", "fold", id="tree.toggle", tooltip="fold or unfold the node", show=False),
        Binding("+", "all(True)", "unfold all", id="tree.unfold-all", tooltip="unfold all nodes", show=False),
        Binding("-", "all(False)", "fold all", id="tree.fold-all", tooltip="fold all nodes", show=False),
        Binding(
            "enter",
            "show",
            "on the lanes",
            id="tree.show",
            tooltip="show the longest call of the node on the lanes",
            show=False,
        ),
        Binding(
            "escape", "back", "back", id="tree.back", tooltip="clear the filter, or go back to the lanes", show=False
        ),
        Binding("backspace", "erase", "erase", id="tree.erase", tooltip="erase a character of the filter", show=False),
        Binding("ctrl+q", "app.quit", show=False),
        Binding("T", "leave", "back", id="tree.leave", tooltip="back to the lanes", show=False, priority=True),
    ]

    def __init__(self, rank: Rank) -> None:
        """List the calls of `rank`. The resulting event is an index into the merged trace."""
        super().__init__()
        self.trace = rank.trace
        self.rank = rank
        self.call_tree: DispatchTree | None = None
        self._fold_state: FoldState | None = None
        self._total_gpu_time = 1
        self.rows = RowList(self._format_row, self._format_header, id="tree")
        self._status = StatusLine(id="tree-status")

    def compose(self) -> ComposeResult:
        yield self.rows
        yield self._status

    def on_mount(self) -> None:
        follow_theme(self)
        self._status.show_keys(HINTS)
        self._status.show_message("putting the tree together …")
        self._build_tree()

    @work(thread=True)
    def _build_tree(self) -> None:
        tree = build_dispatch_tree(self.trace)
        self.app.call_from_thread(self._show_tree, tree)

    def _show_tree(self, tree: DispatchTree) -> None:
        self.call_tree = tree
        self._fold_state = FoldState(tree, self.trace.names)
        self._total_gpu_time = max(sum(int(tree.gpu_time[root]) for root in tree.root_labels), 1)
        self._refresh_rows(0)

    # -- what is listed ------------------------------------------------------------------------------------

    def _refresh_rows(self, node: int) -> None:
        """Show the listed nodes, with the cursor on `node` or on the nearest listed node above it."""
        tree, folds = self.call_tree, self._fold_state
        if tree is None or folds is None:
            return
        self.rows.set_row_count(len(folds.visible_nodes), folds.index_of(node))
        if folds.filter:
            self._status.show_state(f"filter: {folds.filter}▏ {folds.match_count:,} of {len(tree):,} nodes")
        else:
            rank = self.rank.label_prefix(": ")
            omitted = (
                f"; {tree.unlisted_calls:,} calls deeper than {MAX_LEVELS:,} left out" if tree.unlisted_calls else ""
            )
            self._status.show_state(f"{rank}{len(folds.visible_nodes):,} of {len(tree):,} nodes listed{omitted}")

    @property
    def _cursor_node(self) -> int:
        """The node under the cursor, -1 for none."""
        nodes = self._fold_state.visible_nodes if self._fold_state is not None else ()
        return int(nodes[self.rows.cursor]) if len(nodes) else -1

    # -- painting ------------------------------------------------------------------------------------------

    def _format_header(self, width: int) -> list[TextRun]:
        palette = self.rows.palette
        name_cells = max(width - NUMBER_CELLS, 12)
        title = f" dispatch tree · {short_label(self.trace.label)}"
        numbers = f"{'calls':>9} {'total':>11} {'self':>11} {'GPU':>11} {'':>9}"
        return [(truncate(title, name_cells).ljust(name_cells), palette.strong), (numbers, palette.muted)]

    def _format_row(self, index: int, width: int, selected: bool) -> list[TextRun]:
        tree, folds, palette = self.call_tree, self._fold_state, self.rows.palette
        assert tree is not None
        assert folds is not None
        node = int(folds.visible_nodes[index])
        name_cells = max(width - NUMBER_CELLS, 12)
        kind = int(tree.kind[node])
        is_root = node in tree.root_labels
        fold_sign = ("▾" if folds.is_unfolded(node) else "▸") if folds.can_fold(node) else " "
        indent = " " * min(int(tree.depth[node]), MAX_INDENT)
        arrow = "⇢ " if kind in GPU_WORK else ""
        label = self._format_label(node, name_cells - len(indent) - len(arrow) - 4)
        text = f"{fold_sign} {arrow}{label}"
        gpu_time, total = int(tree.gpu_time[node]), int(tree.total[node])
        count = f"{int(tree.count[node]):,}" if tree.count[node] else ""
        self_time = "" if is_root or kind in GPU_WORK else format_duration(int(tree.self_time[node]))
        gpu = format_duration(gpu_time) if gpu_time else ""
        numbers = f"{count:>9} {format_duration(total):>11} {self_time:>11} {gpu:>11} "
        return [
            ("▶" if selected else " ", palette.accent),
            (indent, palette.text),
            ("▌", palette.ink(kind) if not is_root else palette.heading),
            (text, _row_style(palette, selected, is_root)),
            (" " * max(name_cells - 2 - len(indent) - cell_len(text), 0), palette.text),
            (numbers, palette.active if selected else palette.text),
            (f"{format_share(gpu_time / self._total_gpu_time):>7}" if gpu_time else " " * 7, palette.muted),
        ]

    def _format_label(self, node: int, cells: int) -> str:
        assert self.call_tree is not None
        if node in self.call_tree.root_labels:
            return truncate(clean(self.call_tree.root_labels[node]), cells)
        if self.call_tree.kind[node] == Kind.STEP and self.call_tree.count[node] > 1:
            return "ProfilerStep*"
        name = clean(self.trace.names[int(self.call_tree.name[node])])
        return name if cell_len(name) <= cells else truncate(shorten(name), cells)

    # -- keys ----------------------------------------------------------------------------------------------

    def action_open(self) -> None:
        """Unfold the node, or move to its first child if it is unfolded."""
        node, folds = self._cursor_node, self._fold_state
        if folds is None or node < 0 or not folds.can_fold(node):
            self._status.show_message(NOTHING_BELOW)
            return
        if folds.is_unfolded(node):
            self.action_move(1)
        else:
            folds.unfold(node)
            self._refresh_rows(node)

    def action_close(self) -> None:
        """Fold the node, or move to its parent if it is folded."""
        node, folds = self._cursor_node, self._fold_state
        if self.call_tree is None or folds is None or node < 0:
            self._status.show_message("no rows")
            return
        if folds.is_unfolded(node):
            folds.fold(node)
            self._refresh_rows(node)
        elif self.call_tree.parent[node] >= 0:
            self.rows.move_to(folds.index_of(int(self.call_tree.parent[node])))
            self._status.show_message("")
        else:
            self._status.show_message("the outermost node: + unfolds all")

    def action_open_close(self) -> None:
        node, folds = self._cursor_node, self._fold_state
        if folds is not None and node >= 0 and folds.can_fold(node):
            folds.toggle(node)
            self._refresh_rows(node)
        else:
            self._status.show_message(NOTHING_BELOW)

    def action_all(self, opened: bool) -> None:
        if self._fold_state is not None:
            node, count = self._cursor_node, len(self._fold_state.visible_nodes)
            self._fold_state.set_all_folds(opened)
            self._refresh_rows(node)
            if len(self._fold_state.visible_nodes) == count:
                self._status.show_message(f"all nodes are {'unfolded' if opened else 'folded'} already")

    def action_show(self) -> None:
        node = self._cursor_node
        if self.call_tree is not None and node >= 0 and self.call_tree.longest_event[node] >= 0:
            self.dismiss(int(self.call_tree.longest_event[node]) + self.rank.first)
        else:
            self._status.show_message("this node is no call: choose one below it")

    def action_back(self) -> None:
        if self._fold_state is not None and self._fold_state.filter:
            self._apply_filter("")
        else:
            self.dismiss(None)

    def action_leave(self) -> None:
        self.dismiss(None)

    def action_erase(self) -> None:
        if self._fold_state is not None and self._fold_state.filter:
            self._apply_filter(self._fold_state.filter[:-1])
        else:
            self._status.show_message("no filter to erase")

    def on_key(self, event: events.Key) -> None:
        """Append typed letters to the filter."""
        if event.is_printable and event.character and event.character not in "+- ?" and self._fold_state is not None:
            event.stop()
            self._apply_filter(self._fold_state.filter + event.character)

    def _apply_filter(self, text: str) -> None:
        assert self._fold_state is not None
        node = self._cursor_node
        self._fold_state.set_filter(text)
        self._refresh_rows(max(node, 0))

    def on_row_picked(self, message: RowPicked) -> None:
        if message.opened:
            self.action_open_close()


def _row_style(palette: Palette, selected: bool, is_root: bool) -> Style:
    return palette.active if selected else palette.heading if is_root else palette.text
