"""Check the samples that ship with the program against their expectations."""

from __future__ import annotations

import pytest

import torchprof_samples
from tests.helpers.expectation_checks import TRACE_SUFFIX, ExpectationTests, RealTrace
from tests.helpers.expectations import SAMPLES
from tests.helpers.long_run import keep_some
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS

FOLDER = torchprof_samples.SAMPLES[0].path.parent


@pytest.fixture(scope="module", params=keep_some(SAMPLES, 7))
def real(request: pytest.FixtureRequest) -> RealTrace:
    return RealTrace(request.param, FOLDER / f"{request.param}{TRACE_SUFFIX}", SAMPLES[request.param])


class TestSamples(ExpectationTests):
    """The tests of each sample; of several ranks, of each rank's file."""


def test_every_sample_has_its_expectation_and_every_expectation_all_patterns() -> None:
    expected = set.union(*(set(expectation.states) for expectation in SAMPLES.values()))
    assert expected <= set(PATTERNS)
    assert all(set(expectation.states) == expected for expectation in SAMPLES.values())
    paths = [sample.path for sample in torchprof_samples.SAMPLES]
    files = [file for path in paths for file in (sorted(path.glob(f"*{TRACE_SUFFIX}")) if path.is_dir() else [path])]
    names = {str(file.relative_to(FOLDER)).removesuffix(TRACE_SUFFIX) for file in files}
    # What those of an H100 or a V100 must show is in test_article_samples.py, beside the raw file.
    others = {each.name for each in torchprof_samples.SAMPLES if "H100" in each.origin or "V100" in each.origin}
    assert names - others == set(SAMPLES)
