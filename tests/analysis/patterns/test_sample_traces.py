"""The traces that ship with the program: what each must say, in a fresh clone too."""

from __future__ import annotations

import pytest

import torchprof_samples
from tests.helpers.expectation_checks import ENDING, HeldToItsReading, Real
from tests.helpers.expectations import SAMPLES
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS

FOLDER = torchprof_samples.SAMPLES[0].path.parent


@pytest.fixture(scope="module", params=SAMPLES)
def real(request: pytest.FixtureRequest) -> Real:
    return Real(request.param, FOLDER / f"{request.param}{ENDING}", SAMPLES[request.param])


class TestSamples(HeldToItsReading):
    """Each sample; of several ranks, each rank's file alone."""


def test_every_sample_has_its_expectation_and_every_expectation_all_patterns() -> None:
    assert all(set(one.states) == set(PATTERNS) for one in SAMPLES.values())
    paths = [sample.path for sample in torchprof_samples.SAMPLES]
    files = [file for path in paths for file in (sorted(path.glob(f"*{ENDING}")) if path.is_dir() else [path])]
    assert {str(file.relative_to(FOLDER)).removesuffix(ENDING) for file in files} == set(SAMPLES)
