"""The screens that a key of the explorer leads to, made for where one is. Each is imported when it is first wanted, so
that no first frame waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchprof_tui.ui.explorer.view_state import Walk

if TYPE_CHECKING:
    from torchprof_tui.analysis.table.profiler_table import Profile
    from torchprof_tui.ui.guess.guess_screen import GuessScreen
    from torchprof_tui.ui.table.table_screen import TableScreen
    from torchprof_tui.ui.tree.tree_screen import TreeScreen


class WaysOut:
    """Keeps what is costly to make, for the next time."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._profiles: dict[int, Profile] = {}  # by rank

    def guess(self) -> GuessScreen:
        from torchprof_tui.ui.guess.guess_screen import GuessScreen

        t0, t1, what = self._walk.subject()
        rank = self._walk.rank()
        if rank is not None:
            what = f"{rank.label}, {what}"
        return GuessScreen(self._walk.own_trace(), t0, t1, what)

    def table(self) -> TableScreen:
        from torchprof_tui.analysis.table.profiler_table import Profile
        from torchprof_tui.ui.table.table_screen import TableScreen

        rank = self._walk.rank()
        number = -1 if rank is None else rank.number
        if number not in self._profiles:
            self._profiles[number] = Profile(self._walk.own_trace())
        return TableScreen(self._profiles[number], self._walk)

    def tree(self) -> TreeScreen:
        from torchprof_tui.ui.tree.tree_screen import TreeScreen

        return TreeScreen(self._walk.own_trace(), self._walk.rank())
