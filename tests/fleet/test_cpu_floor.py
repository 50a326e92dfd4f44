"""No forecast is shorter than what the CPU of a rank needs that stays: it dispatches while its GPU waits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.helpers.paths import SAMPLES
from torchprof_fleet.analysis.rank_sketch import RankSketch, decode_sketches
from torchprof_fleet.analysis.report import compare_fleet
from torchprof_fleet.analysis.sketch_trace import sketch_file

pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def sketches() -> list[RankSketch]:
    files = sorted((SAMPLES / "train_gpt_2ranks").glob("*.json.gz"))
    return [decode_sketches(sketch_file(str(path)).data)[0] for path in files]


def forecast(sketches: list[RankSketch], share: float) -> tuple[float, float]:
    """Forecast the job without rank 1, ns, where the CPU of rank 0 is busy for a share of its steps; and as it is."""
    first = sketches[0].steps
    cpu = ((first.end - first.start) * share).astype(first.cpu.dtype)
    replay = compare_fleet([replace(sketches[0], steps=replace(first, cpu=cpu)), sketches[1]]).replay
    return replay.without([1]), replay.base


def test_recorded_cpu_time_is_within_the_steps(sketches: list[RankSketch]) -> None:
    for sketch in sketches:
        assert (sketch.steps.cpu > 0).all()
        assert (sketch.steps.cpu <= sketch.steps.end - sketch.steps.start).all()


def test_a_busy_cpu_leaves_little_to_win(sketches: list[RankSketch]) -> None:
    idle, base = forecast(sketches, 0.0)
    half, _ = forecast(sketches, 0.7)
    busy, _ = forecast(sketches, 1.0)
    steps = sketches[0].steps
    length = int((steps.end - steps.start).sum())
    assert idle < half < busy <= base
    assert half == pytest.approx(0.7 * length, rel=1e-6)
