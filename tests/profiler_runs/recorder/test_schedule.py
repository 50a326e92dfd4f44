"""Compare `StepPlan` with torch's own schedule."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.later_imports import LaterModule, import_later

torch, plans = import_later("torch"), LaterModule("torchprof_runs.recorder.schedule")
pytestmark = pytest.mark.torch

small = st.integers(0, 4)


@given(wait=small, warmup=small, active=st.integers(1, 4), repeat=st.integers(0, 3), step=st.integers(0, 60))
def test_actions_are_torchs(wait: int, warmup: int, active: int, repeat: int, step: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        schedule = torch.profiler.schedule(wait=wait, warmup=warmup, active=active, repeat=repeat)
    plan = plans.StepPlan(wait, warmup, active, repeat)
    assert plan.action(step) == schedule(step).name


@given(wait=small, warmup=small, active=st.integers(1, 4), repeat=st.integers(1, 3))
def test_phases_count_every_step_once_and_end(wait: int, warmup: int, active: int, repeat: int) -> None:
    plan = plans.StepPlan(wait, warmup, active, repeat)
    length = wait + warmup + active
    phases = [plan.phase(step) for step in range(length * repeat)]
    recording = [(phase.cycle, phase.step) for phase in phases if phase.name == "recording"]
    assert recording == [(cycle, step) for cycle in range(1, repeat + 1) for step in range(1, active + 1)]
    assert sum(phase.name == "warming up" for phase in phases) == warmup * repeat
    assert [step for step in range(length * repeat) if plan.is_measured(step)] == ([wait - 1] if wait >= 2 else [])
    assert not plan.is_done(length * repeat - 1)
    assert plan.is_done(length * repeat)
    assert plan.phase(length * repeat).name == "running on"


def test_an_unlimited_plan_is_never_done() -> None:
    assert not plans.StepPlan(1, 1, 1, 0).is_done(10**9)


def test_no_warning_for_a_schedule_without_warmup() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert plans.StepPlan(0, 0, 1, 1).action(0) == "RECORD_AND_SAVE"


def test_the_whole_run_is_recorded() -> None:
    assert plans.WholeRunPlan().action(0) == plans.WholeRunPlan().action(10**6) == "RECORD"
    assert not plans.WholeRunPlan().is_measured(1)
