"""The dispatch tree: everything that was called, by the way it was reached, heaviest first; letters filter it."""

from __future__ import annotations

import numpy as np
from rich.cells import cell_len
from rich.style import Style
from textual import events, work
from textual.app import ComposeResult
from textual.binding import Binding

from tui.analysis.dispatch_tree import DispatchTree, dispatch_tree
from tui.palette import Palette
from tui.screens.list_keys import LIST_BINDINGS, ListScreen
from tui.screens.terminal import follow_theme
from tui.trace.arrays import I32, Bool
from tui.trace.kinds import GPU_WORK, Kind
from tui.trace.ranks import Rank
from tui.trace.ruler import format_duration
from tui.trace.trace import Trace
from tui.widgets.names import clean, cut, short
from tui.widgets.painted import Run
from tui.widgets.row_list import RowList, RowPicked
from tui.widgets.status import Status
from tui.widgets.title import short_label
from tui.widgets.units import format_share

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

    CSS_PATH = "../styles/tree.tcss"
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
        self.filter = ""
        self._shut: Bool = np.zeros(0, np.bool_)
        self._shown: I32 = np.zeros(0, np.int32)
        self._names: list[str] = []
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
        self._names = [name.lower() for name in self.trace.names]
        self._shut = tree.first_look()
        self._all_gpu = max(sum(int(tree.gpu[root]) for root in tree.roots), 1)
        self._relist(0)

    # -- what is listed ------------------------------------------------------------------------------------

    def _relist(self, node: int) -> None:
        """List anew, with the cursor on a node, or on the nearest one above it that is listed."""
        tree = self.nodes
        if tree is None:
            return
        matching = self._matching() if self.filter else None
        self._shown = tree.visible(self._shut, matching)
        place = int(np.searchsorted(self._shown, node, side="right")) - 1
        self.rows.show(len(self._shown), place)
        if matching is not None:
            found = int(np.count_nonzero(matching))
            self._status.say(f"filter: {self.filter}▏ {found:,} of {len(tree):,} nodes")
        else:
            whose = "" if self.rank is None else f"{self.rank.label}: "
            self._status.say(f"{whose}{len(self._shown):,} of {len(tree):,} nodes listed")

    def _matching(self) -> Bool:
        assert self.nodes is not None
        wanted = self.filter.lower()
        of_name = np.array([wanted in name for name in self._names] or [False], np.bool_)
        return of_name[self.nodes.name] & (self.nodes.name >= 0)

    @property
    def _node(self) -> int:
        return int(self._shown[self.rows.cursor]) if len(self._shown) else -1

    # -- painting ------------------------------------------------------------------------------------------

    def _head(self, width: int) -> list[Run]:
        palette = self.rows.palette
        room = max(width - NUMBER_CELLS, 12)
        title = f" dispatch tree · {short_label(self.trace.label)}"
        numbers = f"{'calls':>9} {'total':>11} {'self':>11} {'GPU':>11} {'':>9}"
        return [(cut(title, room).ljust(room), palette.strong), (numbers, palette.muted)]

    def _row(self, place: int, width: int, chosen: bool) -> list[Run]:
        tree, palette = self.nodes, self.rows.palette
        assert tree is not None
        node = int(self._shown[place])
        room = max(width - NUMBER_CELLS, 12)
        kind = int(tree.kind[node])
        opened = not self._shut[node] or bool(self.filter)
        sign = " " if tree.size[node] == 1 else "▾" if opened else "▸"
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
        node = self._node
        if self.nodes is None or node < 0:
            return
        if self._shut[node] and not self.filter:
            self._unfold(node)
            self._relist(node)
        elif self.nodes.size[node] > 1:
            self.rows.by(1)

    def _unfold(self, node: int) -> None:
        """Open a node, and below it as long as there is but one way on: frames of Python that only call the next."""
        assert self.nodes is not None
        size = self.nodes.size
        self._shut[node] = False
        while size[node] > 1 and size[node + 1] == size[node] - 1:
            node += 1
            self._shut[node] = False

    def action_close(self) -> None:
        """Close the node; a closed one: to its parent."""
        node = self._node
        if self.nodes is None or node < 0:
            return
        if not self.filter and self.nodes.size[node] > 1 and not self._shut[node]:
            self._shut[node] = True
            self._relist(node)
        elif self.nodes.parent[node] >= 0:
            self.rows.to(int(np.searchsorted(self._shown, self.nodes.parent[node])))

    def action_open_close(self) -> None:
        node = self._node
        if self.nodes is not None and node >= 0 and self.nodes.size[node] > 1:
            self._shut[node] = not self._shut[node]
            self._relist(node)

    def action_all(self, opened: bool) -> None:
        if self.nodes is not None:
            self._shut = np.zeros(len(self.nodes), np.bool_) if opened else self.nodes.first_look(0)
            self._relist(self._node)

    def action_show(self) -> None:
        if self.nodes is not None and self._node >= 0 and self.nodes.example[self._node] >= 0:
            self.dismiss(int(self.nodes.example[self._node]) + (0 if self.rank is None else self.rank.first))

    def action_back(self) -> None:
        if self.filter:
            self._filter("")
        else:
            self.dismiss(None)

    def action_leave(self) -> None:
        self.dismiss(None)

    def action_erase(self) -> None:
        self._filter(self.filter[:-1])

    def on_key(self, event: events.Key) -> None:
        """Letters go into the filter."""
        if event.is_printable and event.character and event.character not in "+- " and self.nodes is not None:
            event.stop()
            self._filter(self.filter + event.character)

    def _filter(self, text: str) -> None:
        node = self._node
        self.filter = text
        self._relist(max(node, 0))

    def on_row_picked(self, message: RowPicked) -> None:
        if message.opened:
            self.action_open_close()


def _style(palette: Palette, chosen: bool, root: bool) -> Style:
    return palette.active if chosen else palette.heading if root else palette.text
