"""Generate viewports with hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.helpers.lane_rows import FAR
from torchprof_tui.trace.query.viewport import Viewport

WIDTHS = st.integers(1, 400)


@st.composite
def viewports(draw: st.DrawFn) -> Viewport:
    """Viewports at any position and zoom, of traces between a nanosecond and a month long."""
    start = draw(st.sampled_from([0, -7, 12345, FAR]))
    length = draw(st.one_of(st.integers(0, 500), st.integers(0, FAR)))
    view = Viewport.whole((start, start + length), draw(WIDTHS))
    anchor = draw(st.integers(*view.limits))
    return view.zoom(anchor, draw(st.floats(1e-15, 1.0)))
