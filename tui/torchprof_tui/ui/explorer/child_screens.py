"""Factory of the screens that keys of the explorer open, for the current range and rank: table, tree, flame graph, …

They are imported when they are first opened (`app.py` imports them earlier, on a thread
after the first frame), so that the first frame does not wait for them. A key that is pressed before that thread is done
imports its screen on a thread as well: the import takes up to half a second while other threads run, and frames go on.
"""

from __future__ import annotations

import asyncio
import importlib
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.screen import Screen

from torchprof_tui.trace.core.printable import clean
from torchprof_tui.ui.lanes.view_state import ViewState

if TYPE_CHECKING:
    from torchprof_tui.analysis.table.groups import Profile
    from torchprof_tui.ui.explorer.background_queries import BackgroundQueries
    from torchprof_tui.ui.memory.memory_worker import MemoryRead


MODULES = {
    "learn": "torchprof_tui.ui.learn.learn_screen",
    "roofline": "torchprof_tui.ui.table.roofline_screen",
    "table": "torchprof_tui.ui.table.table_screen",
    "flame": "torchprof_tui.ui.flame.flame_screen",
    "memory": "torchprof_tui.ui.memory.memory_screen",
    "tree": "torchprof_tui.ui.tree.tree_screen",
}
"""Module of each screen that is imported late."""

_imported: set[str] = set()


class ChildScreens:
    """Create child screens, and keep the profile of each rank for the next table."""

    def __init__(self, view_state: ViewState, queries: BackgroundQueries) -> None:
        self._view_state, self._queries = view_state, queries
        self._profiles: dict[int, Profile] = {}  # by rank
        self._memories: dict[int, MemoryRead] = {}  # by rank, filled by the memory screen

    async def create(self, name: str) -> Screen[Any]:
        """Create the screen of this name for the current rank; its module is imported on a thread the first time."""
        if name not in _imported:
            await asyncio.to_thread(importlib.import_module, MODULES[name])
            _imported.add(name)
        module, state = importlib.import_module(MODULES[name]), self._view_state
        rank = state.current_rank()
        if name == "learn":
            t0, t1, label = state.active_range()
            asked = module.GuessRange(rank.trace, t0, t1, clean(rank.label_prefix(", ") + label))
            has_gpu_work = bool(state.trace.links.gpu_events)
            arguments: tuple[object, ...] = state.trace, asked if has_gpu_work else None
        elif name in ("tree", "roofline"):
            arguments = (rank,)
        else:
            arguments = (state, self._memories) if name == "memory" else (self._get_profile(), state)
        screen: Screen[Any] = getattr(module, f"{name.capitalize()}Screen")(*arguments)
        return screen

    def _get_profile(self) -> Profile:
        from torchprof_tui.analysis.table.groups import Profile  # deferred: see the module docstring

        rank = self._view_state.current_rank()
        if rank.number not in self._profiles:
            ranks = self._view_state.trace.merged_ranks
            index = 0 if ranks is None else ranks.index_of_lane(rank.header_lane)
            self._profiles[rank.number] = Profile(rank.trace, partial(self._queries.measure_regime, index))
        return self._profiles[rank.number]
