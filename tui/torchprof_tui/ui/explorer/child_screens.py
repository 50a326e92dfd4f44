"""Factory of the screens that keys of the explorer open: guess, table and tree, for the current range and rank.

Each is imported when it is first opened (`app.py` imports them earlier, on a thread after the first frame), so that the
first frame does not wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchprof_tui.ui.explorer.view_state import ViewState

if TYPE_CHECKING:
    from torchprof_tui.analysis.table.trace_profile import Profile
    from torchprof_tui.ui.guess.guess_screen import GuessScreen
    from torchprof_tui.ui.table.table_screen import TableScreen
    from torchprof_tui.ui.tree.tree_screen import TreeScreen


class ChildScreens:
    """Create child screens, and keep the profile of each rank for the next table."""

    def __init__(self, view_state: ViewState) -> None:
        self._view_state = view_state
        self._profiles: dict[int, Profile] = {}  # by rank

    def create_guess_screen(self) -> GuessScreen:
        # deferred: see the module docstring; the other methods likewise
        from torchprof_tui.ui.guess.guess_screen import GuessScreen

        t0, t1, label = self._view_state.active_range()
        rank = self._view_state.current_rank()
        return GuessScreen(rank.trace, t0, t1, rank.label_prefix(", ") + label)

    def create_table_screen(self) -> TableScreen:
        from torchprof_tui.analysis.table.trace_profile import Profile
        from torchprof_tui.ui.table.table_screen import TableScreen

        rank = self._view_state.current_rank()
        if rank.number not in self._profiles:
            self._profiles[rank.number] = Profile(rank.trace)
        return TableScreen(self._profiles[rank.number], self._view_state)

    def create_tree_screen(self) -> TreeScreen:
        from torchprof_tui.ui.tree.tree_screen import TreeScreen

        return TreeScreen(self._view_state.current_rank())
