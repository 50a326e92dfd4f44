"""Follow the edges of replayed graphs from one piece of GPU work to those beside it."""

from __future__ import annotations

from dataclasses import dataclass

from torchprof_tui.trace.core.arrays import I32
from torchprof_tui.trace.model.trace import Trace


@dataclass(frozen=True, slots=True)
class GraphNeighbours:
    """GPU work of the same replay that a piece waits for, and that waits for it: int32[...] each, ascending."""

    waits_for: I32
    waited_for_by: I32

    def __len__(self) -> int:
        return len(self.waits_for) + len(self.waited_for_by)

    @property
    def events(self) -> list[int]:
        """All of them."""
        return [*self.waits_for.tolist(), *self.waited_for_by.tolist()]


def find_graph_neighbours(trace: Trace, event: int) -> GraphNeighbours:
    """Find the recorded edges of an event; none for what is no replayed work, and where edges were not recorded."""
    links = trace.links
    return GraphNeighbours(
        links.graph_before[links.graph_after == event], links.graph_after[links.graph_before == event]
    )
