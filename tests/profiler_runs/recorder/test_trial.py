"""Take turns between trials on one host, and apply remedies after the first step of a program."""

from __future__ import annotations

import fcntl
import gc
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.later_imports import LaterModule, import_later
from tests.helpers.long_run import keep_some

torch = import_later("torch")
trial: Any = LaterModule("torchprof_runs.recorder.trial")
pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the lock into the test's folder: this process keeps its turn, and real trials of other tests wait for it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"torchprof-try-{os.getuid()}.lock"


def test_one_of_two_trials_has_the_turn(lock: Path) -> None:
    first, second = trial.Turn(), trial.Turn()
    assert first.take(1.0)
    assert not second.take(0.05)
    assert lock.stat().st_mode & 0o777 == 0o600


def test_the_turn_begins_with_the_end_of_the_first_step(lock: Path) -> None:
    step = trial.FirstStep(1.0)
    other = os.open(lock, os.O_RDWR)
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(other, fcntl.LOCK_UN)
    step.note_step()
    with pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_link_in_the_way_is_not_followed(lock: Path, tmp_path: Path) -> None:
    lock.symlink_to(tmp_path / "mine.txt")
    assert not trial.Turn().take(1.0)
    assert not (tmp_path / "mine.txt").exists()


@pytest.mark.long
def test_a_module_of_torch_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[int] = []

    def count_ops(graph: Any, _inputs: Any) -> Any:
        compiled.append(len(graph.graph.nodes))
        return graph

    compile_with = torch.compile
    monkeypatch.setattr("torch.compile", lambda call, mode: compile_with(call, backend=count_ops))
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU())
    inputs = torch.randn(2, 4)
    expected = module(inputs)
    trial.trial_remedies.AFTER_FIRST_STEP["compile"]([module])
    assert torch.equal(module(inputs), expected)
    assert len(compiled) == 1


@pytest.mark.parametrize("fused", keep_some([False, True], 1))
def test_channels_last_reaches_the_state_of_the_optimizer(fused: bool) -> None:
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU())
    optimizer = torch.optim.AdamW(module.parameters(), fused=fused, foreach=False if fused else None)
    images = torch.randn(2, 3, 8, 8)

    def train() -> None:
        module(images).square().mean().backward()
        optimizer.step()

    train()
    trial.trial_remedies.AFTER_FIRST_STEP["channels-last"]([module])
    train()  # gradients are kept: their form must fit, too
    weight = module[0].weight
    assert weight.is_contiguous(memory_format=torch.channels_last)
    assert {optimizer.state[weight][key].stride() for key in ("exp_avg", "exp_avg_sq")} == {weight.stride()}


@pytest.mark.long
def test_the_collector_is_timed_within_the_measured_steps() -> None:
    timer = trial.StepTimer(1, 6, 1e9)
    before = len(gc.callbacks)
    gc.collect()
    timer.note_step()
    assert timer.gc_seconds == 0
    gc.collect()
    assert timer.gc_seconds > 0
    for _ in range(5):
        timer.note_step()
    with pytest.raises(trial.TrialFinishedError):
        timer.note_step()
    assert len(gc.callbacks) == before


def test_a_number_that_is_read_often_is_noted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    remedies = trial.trial_remedies
    monkeypatch.setattr(torch.Tensor, "item", torch.Tensor.item)
    noted: list[str] = []
    monkeypatch.setattr(remedies, "note_use", noted.append)
    remedies.AT_START["thin-logging"]()

    kind = type("OnGpu", (torch.Tensor,), {"device": torch.device("cuda")})
    value = torch.tensor(3.0).as_subclass(kind)
    assert [torch.Tensor.item(value) for _ in range(20)] == [3.0] * 20
    assert noted == ["thin-logging"]
