"""The dispatch tree: everything that was called, by the way it was reached, heaviest first; letters filter it."""

from __future__ import annotations

from rich.cells import cell_len
from rich.style import Style
from textual import events, work
from textual.app import ComposeResult
from textual.binding import Binding

from torchprof_tui.analysis.dispatch.call_tree import MOST_LEVELS, DispatchTree, dispatch_tree
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind
from torchprof_tui.trace.model.ranks import Rank
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.ui.common.event_styles import Palette
from torchprof_tui.ui.common.list_keys import LIST_BINDINGS, ListScreen
from torchprof_tui.ui.common.name_display import clean, cut, short
from torchprof_tui.ui.common.number_format import format_share
from torchprof_tui.ui.common.painted_widget import Run
from torchprof_tui.ui.common.row_list import RowList, RowPicked
from torchprof_tui.ui.common.status_line import Status
from torchprof_tui.ui.common.terminal_info import follow_theme
from torchprof_tui.ui.explorer.title_line import short_label
from torchprof_tui.ui.tree.fold_state import TreeFolds

HINTS = (
    ("esc", "back"),
    ("→ ←", "open, close"),
    ("enter", "on the lanes"),
    ("letters", "filter"),
    ("+ -", "open, close all"),
    ("↑↓", "move"),
)
NUMBER_CELLS = 54
DEEPEST_INDENT = 40


class TreeScreen(ListScreen):
    """Ends with the event to show on the lanes: the longest of the node, None for none."""

    CSS_PATH = "tree_screen.tcss"
    AUTO_FOCUS = ""
    BINDINGS = [
        *LIST_BINDINGS,
        Binding("right", "open", show=False),
        Binding("left", "close", show=False),
        Binding("space", "open_close", show=False),
        Binding("+", "all(True)", show=False),
        Binding("-", "all(False)", show=False),
        Binding("enter", "show", show=False),
        Binding("escape", "back", show=False),
        Binding("backspace", "erase", show=False),
        Binding("ctrl+q", "app.quit", show=False),
        Binding("T", "leave", show=False, priority=True),
    ]

    def __init__(self, trace: Trace, rank: Rank | None = None) -> None:
        """`rank`: which of several the trace is of; the event it ends with is then numbered as in the whole."""
        super().__init__()
        self.trace = trace
        self.rank = rank
        self.nodes: DispatchTree | None = None
        self._folds: TreeFolds | None = None
        self._all_gpu = 1
        self.rows = RowList(self._row, self._head, id="tree")
        self._status = Status(id="tree-status")

    def compose(self) -> ComposeResult:
        yield self.rows
        yield self._status

    def on_mount(self) -> None:
        follow_theme(self)
        self._status.keys(HINTS)
        self._status.say("putting the tree together …")
        self._grow()

    @work(thread=True)
    def _grow(self) -> None:
        tree = dispatch_tree(self.trace)
        self.app.call_from_thread(self._grown, tree)

    def _grown(self, tree: DispatchTree) -> None:
        self.nodes = tree
        self._folds = TreeFolds(tree, self.trace.names)
        self._all_gpu = max(sum(int(tree.gpu[root]) for root in tree.roots), 1)
        self._relist(0)

    # -- what is listed ------------------------------------------------------------------------------------

    def _relist(self, node: int) -> None:
        """Show what is listed now, with the cursor on a node, or on the nearest one above it that is listed."""
        tree, folds = self.nodes, self._folds
        if tree is None or folds is None:
            return
        self.rows.show(len(folds.listed), folds.place_of(node))
        if folds.filter:
            self._status.say(f"filter: {folds.filter}▏ {folds.found:,} of {len(tree):,} nodes")
        else:
            whose = "" if self.rank is None else f"{self.rank.label}: "
            deeper = f"; {tree.unlisted:,} calls deeper than {MOST_LEVELS:,} left out" if tree.unlisted else ""
            self._status.say(f"{whose}{len(folds.listed):,} of {len(tree):,} nodes listed{deeper}")

    @property
    def _node(self) -> int:
        """The node under the cursor, -1 for none."""
        listed = self._folds.listed if self._folds is not None else ()
        return int(listed[self.rows.cursor]) if len(listed) else -1

    # -- painting ------------------------------------------------------------------------------------------

    def _head(self, width: int) -> list[Run]:
        palette = self.rows.palette
        room = max(width - NUMBER_CELLS, 12)
        title = f" dispatch tree · {short_label(self.trace.label)}"
        numbers = f"{'calls':>9} {'total':>11} {'self':>11} {'GPU':>11} {'':>9}"
        return [(cut(title, room).ljust(room), palette.strong), (numbers, palette.muted)]

    def _row(self, place: int, width: int, chosen: bool) -> list[Run]:
        tree, folds, palette = self.nodes, self._folds, self.rows.palette
        assert tree is not None
        assert folds is not None
        node = int(folds.listed[place])
        room = max(width - NUMBER_CELLS, 12)
        kind = int(tree.kind[node])
        sign = ("▾" if folds.is_open(node) else "▸") if folds.can_fold(node) else " "
        lead = " " * min(int(tree.depth[node]), DEEPEST_INDENT)
        arrow = "⇢ " if kind in GPU_WORK else ""
        label = self._label(node, room - len(lead) - len(arrow) - 4)
        text = f"{sign} {arrow}{label}"
        gpu, total = int(tree.gpu[node]), int(tree.total[node])
        count = f"{int(tree.count[node]):,}" if tree.count[node] else ""
        own = "" if node in tree.roots or kind in GPU_WORK else format_duration(int(tree.self_time[node]))
        numbers = f"{count:>9} {format_duration(total):>11} {own:>11} {format_duration(gpu) if gpu else '':>11} "
        return [
            ("▶" if chosen else " ", palette.accent),
            (lead, palette.text),
            ("▌", palette.ink(kind) if node not in tree.roots else palette.heading),
            (text, _style(palette, chosen, node in tree.roots)),
            (" " * max(room - 2 - len(lead) - cell_len(text), 0), palette.text),
            (numbers, palette.active if chosen else palette.text),
            (f"{format_share(gpu / self._all_gpu):>7}" if gpu else " " * 7, palette.muted),
        ]

    def _label(self, node: int, room: int) -> str:
        assert self.nodes is not None
        if node in self.nodes.roots:
            return cut(clean(self.nodes.roots[node]), room)
        if self.nodes.kind[node] == Kind.STEP and self.nodes.count[node] > 1:
            return "ProfilerStep*"
        name = clean(self.trace.names[int(self.nodes.name[node])])
        return name if cell_len(name) <= room else cut(short(name), room)

    # -- keys ----------------------------------------------------------------------------------------------

    def action_open(self) -> None:
        """Open the node; an open one: to its first child."""
        node, folds = self._node, self._folds
        if folds is None or node < 0 or not folds.can_fold(node):
            return
        if folds.is_open(node):
            self.rows.by(1)
        else:
            folds.open(node)
            self._relist(node)

    def action_close(self) -> None:
        """Close the node; a closed one: to its parent."""
        node, folds = self._node, self._folds
        if self.nodes is None or folds is None or node < 0:
            return
        if folds.is_open(node):
            folds.close(node)
            self._relist(node)
        elif self.nodes.parent[node] >= 0:
            self.rows.to(folds.place_of(int(self.nodes.parent[node])))

    def action_open_close(self) -> None:
        node, folds = self._node, self._folds
        if folds is not None and node >= 0 and folds.can_fold(node):
            folds.toggle(node)
            self._relist(node)

    def action_all(self, opened: bool) -> None:
        if self._folds is not None:
            node = self._node
            self._folds.all(opened)
            self._relist(node)

    def action_show(self) -> None:
        if self.nodes is not None and self._node >= 0 and self.nodes.example[self._node] >= 0:
            self.dismiss(int(self.nodes.example[self._node]) + (0 if self.rank is None else self.rank.first))

    def action_back(self) -> None:
        if self._folds is not None and self._folds.filter:
            self._filter("")
        else:
            self.dismiss(None)

    def action_leave(self) -> None:
        self.dismiss(None)

    def action_erase(self) -> None:
        if self._folds is not None:
            self._filter(self._folds.filter[:-1])

    def on_key(self, event: events.Key) -> None:
        """Letters go into the filter."""
        if event.is_printable and event.character and event.character not in "+- " and self._folds is not None:
            event.stop()
            self._filter(self._folds.filter + event.character)

    def _filter(self, text: str) -> None:
        assert self._folds is not None
        node = self._node
        self._folds.filter_by(text)
        self._relist(max(node, 0))

    def on_row_picked(self, message: RowPicked) -> None:
        if message.opened:
            self.action_open_close()


def _style(palette: Palette, chosen: bool, root: bool) -> Style:
    return palette.active if chosen else palette.heading if root else palette.text
