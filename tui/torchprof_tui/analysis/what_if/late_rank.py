"""Find the rank that the others wait for."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.what_if.scenario import ScenarioError
from torchprof_tui.analysis.what_if.step_model import StepModel


def find_late_rank(model: StepModel) -> int:
    """Find the rank whose late arrivals delay the collectives most: its index. Raises ScenarioError for one rank."""
    if len(model.ranks) < 2 or not len(model.arrival_edges):
        raise ScenarioError(
            "'late-rank=0' changes nothing: it takes the traces of several ranks with collectives in the step"
        )
    late = np.zeros(len(model.ranks), np.int64)
    np.add.at(late, model.last_rank, model.late_by)
    return int(late.argmax())
