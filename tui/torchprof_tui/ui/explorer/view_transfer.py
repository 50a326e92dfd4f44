"""Carry what is shown of the beginning of a trace over to the whole trace: nothing moves that did not change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torchprof_tui.trace.query.navigation import find_same_event, match_lanes, shift_of
from torchprof_tui.trace.query.viewport import Viewport
from torchprof_tui.ui.explorer.explorer_screen import ExplorerScreen
from torchprof_tui.ui.lanes.screen_lines import LaneArrangement
from torchprof_tui.ui.lanes.view_state import ViewState


def transfer_view(part: ExplorerScreen, whole: ExplorerScreen) -> None:
    """Show in `whole`, before it is on screen, what `part` shows: times, selection, mark, search, lanes, panels.

    A view of all that there was becomes a view of the whole trace.
    """
    transfer_state(part.view_state, whole.view_state)
    whole.panel_size = part.panel_size
    whole.details_open = part.details_open
    whole.take_panels(part)


def transfer_state(part: ViewState, whole: ViewState) -> None:
    """Do this for the state alone."""
    shift = shift_of(part.trace, whole.trace)
    lanes = match_lanes(part.trace, whole.trace)
    if part.lane_view.arrangement != part.own_arrangement:
        whole.lane_view.apply_arrangement(_map_arrangement(part.lane_view.arrangement, lanes))
    if part.selected >= 0:
        whole.selected = find_same_event(part.trace, part.selected, whole.trace)
    whole.lane = lanes[part.lane] if part.lane >= 0 else -1
    if part.mark is not None:
        first, last = part.mark.anchor
        anchor = (first + shift, last + shift)
        whole.mark = replace(part.mark, start=part.mark.start + shift, end=part.mark.end + shift, anchor=anchor)
    if part.search.query:
        whole.search.set_query(part.search.query)
        whole.search.is_last_question = part.search.is_last_question
    view = part.viewport
    if not view.is_whole:
        all_of_it = Viewport.whole(whole.trace.span, view.width)
        whole.viewport = replace(all_of_it, t0=view.t0 + shift, t1=view.t1 + shift)
    _keep_first_line(part, whole, lanes)


def _map_arrangement(arrangement: LaneArrangement, lanes: Sequence[int]) -> LaneArrangement:
    return LaneArrangement(
        folded=frozenset(lanes[k] for k in arrangement.folded) - {-1},
        hidden=frozenset(lanes[k] for k in arrangement.hidden) - {-1},
        pinned=tuple(lanes[k] for k in arrangement.pinned if lanes[k] >= 0),
    )


def _keep_first_line(part: ViewState, whole: ViewState, lanes: Sequence[int]) -> None:
    """Scroll so that the first visible line is the same."""
    whole.lane_view.height = part.lane_view.height
    body = part.lane_view.lane_lines.body
    if 0 < part.lane_view.top < len(body):
        line = body[part.lane_view.top]
        index = whole.lane_view.lane_lines.line_index(lanes[line.lane], line.row) if lanes[line.lane] >= 0 else None
        whole.lane_view.top = 0 if index is None else max(index, 0)
        whole.lane_view.scroll(0)
