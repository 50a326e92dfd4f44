"""The replay agrees with the published what-if analysis of two jobs (OSDI 2025, ByteDance-Seed/StragglerAnalysis)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.helpers.later_imports import skip_without
from tests.helpers.paths import SHARED_TRACES

skip_without("pandas", "pyarrow")

FOLDER = SHARED_TRACES / "stragglers"
TOLERANCE = 0.02

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="needs the shared traces")


@pytest.mark.long  # test_simulated_stragglers.py builds such jobs on each push
@pytest.mark.parametrize("name", ["AR", "SE"])
def test_slowdown_and_slow_workers_agree_with_the_authors(name: str) -> None:
    from tests.helpers.straggler_jobs import StragglerJob

    published: dict[str, Any] = json.loads((FOLDER / f"result-{name}.json").read_text())
    job = StragglerJob(FOLDER / f"trace-{name}.parquet")
    ideal = job.replay(job.ideal)
    recorded = job.replay(job.recorded, as_recorded=True)
    steps = published["step_t_nodelay"].values()
    assert recorded == pytest.approx(sum(steps) / len(steps), rel=TOLERANCE)
    assert recorded / ideal == pytest.approx(published["blocking_slowdown"], rel=TOLERANCE)
    for column in ("dp_rank", "stage"):
        slowest_first = list(published[f"blocking_decompose_by_{column}"].items())[:3]
        expected = {int(number): value for number, value in slowest_first}
        slowdown = {
            number: job.replay(job.mix((job.table[column] == number).to_numpy())) / ideal for number in expected
        }
        assert slowdown == pytest.approx(expected, rel=TOLERANCE)
        assert max(slowdown, key=slowdown.__getitem__) == max(expected, key=expected.__getitem__)
