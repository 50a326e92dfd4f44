"""Test the levels of the heat map at their limits."""

from __future__ import annotations

import numpy as np
import pytest

from torchprof_fleet.analysis.heat_map import LIMITS, MISSING, Measure, find_levels


@pytest.mark.parametrize("measure", list(Measure))
def test_a_value_at_a_limit_has_the_level_that_the_legend_says(measure: Measure) -> None:
    """`below 95 %` does not hold for 95 %, `from 5 %` holds for 5 %."""
    at_limits = np.array([[*LIMITS[measure], np.nan]])
    values = at_limits * 1000 if measure is Measure.STEP_TIME else at_limits
    levels = [0, 1, 2, 3] if measure is Measure.BUSY else [1, 2, 3, 4]
    assert find_levels(values, measure, 1000.0).tolist() == [[*levels, MISSING]]
