"""The lock: equal distances from the references are in the same column, whatever is pressed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from torchprof_tui.trace.query.cells import cell_edges
from torchprof_tui.ui.diff.locked_view import Lock, LockedView

SPANS = ((5_000, 900_000), (70_000_000, 70_400_000))
REFERENCES = (100_000, 70_030_000)

MOVES = st.one_of(
    st.builds(lambda steps, at: lambda view: view.zoom(steps, at), st.integers(-6, 6), st.integers(-9_000, 900_000)),
    st.builds(lambda tenths: lambda view: view.pan(tenths), st.integers(-7, 7)),
    st.builds(lambda later: lambda view: view.to_end(later), st.booleans()),
    st.just(LockedView.show_all),
    st.builds(lambda width: lambda view: view.resize(width), st.integers(1, 300)),
    st.builds(
        lambda a, b, keep: lambda view: view.lock_at((a, b), Lock.OPS, keep=keep),
        st.integers(*SPANS[0]),
        st.integers(*SPANS[1]),
        st.booleans(),
    ),
    st.builds(
        lambda side, at, length, fit: (
            lambda view: (view.fit if fit else view.reveal)([(side, SPANS[side][0] + at, SPANS[side][0] + at + length)])
        ),
        st.integers(0, 1),
        st.integers(0, 300_000),
        st.integers(0, 90_000),
        st.booleans(),
    ),
)


@given(st.lists(MOVES, max_size=12), st.integers(-500_000, 900_000))
def test_equal_distances_share_a_column_after_any_moves(moves: list, distance: int) -> None:  # type: ignore[type-arg]
    view = LockedView.at(REFERENCES, SPANS, 200_000, 120)
    for move in moves:
        view = move(view)
    a, b = view.viewport(0), view.viewport(1)
    assert a.width == b.width
    assert a.cell(view.references[0] + distance) == b.cell(view.references[1] + distance)
    edges = [cell_edges(side.t0, side.t1, side.width) - view.references[k] for k, side in enumerate((a, b))]
    assert edges[0].tolist() == edges[1].tolist()


def test_the_first_view_shows_the_step_from_its_start() -> None:
    view = LockedView.at(REFERENCES, SPANS, 200_000, 120)
    assert 0 <= view.column(0, REFERENCES[0]) == view.column(1, REFERENCES[1]) < 10
    assert view.column(0, REFERENCES[0] + 199_999) < 120


def test_locking_at_an_op_leaves_a_where_it_is() -> None:
    view = LockedView.at(REFERENCES, SPANS, 200_000, 120)
    locked = view.lock_at((130_000, 70_090_000), Lock.OPS)
    assert locked.viewport(0) == view.viewport(0) or locked.viewport(0).t0 == view.viewport(0).t0
    assert locked.column(0, 130_000) == locked.column(1, 70_090_000)
