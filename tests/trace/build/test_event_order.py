"""Test the order of events in the columns against numpy's sort by several keys."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchprof_tui.trace.build.event_order import sort_by_lane
from torchprof_tui.trace.core import arrays

events = st.lists(st.tuples(st.integers(0, 2), st.integers(-4, 4), st.integers(0, 3)), max_size=60)
far = st.lists(st.tuples(st.integers(0, 2), st.sampled_from([-(2**61), 0, 2**61]), st.integers(0, 3)), max_size=20)


@given(st.one_of(events, far), st.sampled_from([1, 2, 7, 1 << 16]))
def test_by_lane_start_longest_first_and_file_order(made: list[tuple[int, int, int]], block: int) -> None:
    lane, time, duration = (np.array([event[k] for event in made], np.int64) for k in range(3))
    ordinals = np.arange(len(made), dtype=np.int32) * 2 + 1  # every second one of the entries is drawn
    durations = np.full(2 * len(made), 99)
    durations[ordinals] = duration
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "_BLOCK_SIZE", block)
        order = sort_by_lane(lane.astype(np.int32), time.copy(), durations, ordinals)
    assert order.tolist() == np.lexsort((-duration, time, lane)).tolist()
