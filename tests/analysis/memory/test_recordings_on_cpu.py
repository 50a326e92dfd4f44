"""Test categories on recordings made here, on the CPU: bytes counted from the model and its optimizer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.later_imports import import_later
from tests.helpers.long_run import keep_some
from torchprof_tui.analysis.memory.memory_history import GroupBy, build_memory_history
from torchprof_tui.trace.loading.load_in_process import load_trace

torch = import_later("torch")
pytestmark = pytest.mark.torch

STEPS = 3
OPTIMIZERS: dict[str, dict[str, float]] = {
    "Adam": {},
    "AdamW": {"weight_decay": 0.1},
    "Adagrad": {},
    "SGD": {"momentum": 0.9},
    "SGD without momentum": {"weight_decay": 0.1},
}


def count_bytes(tensors: Iterable[Any]) -> int:
    """Count the bytes of the storages, each once."""
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values())


class Training:
    """A small network and what is counted after each step."""

    def __init__(self, optimizer: str) -> None:
        nn = torch.nn
        layers = (nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.LayerNorm(512), nn.Linear(512, 10))
        self.model = nn.Sequential(*layers)
        kind = getattr(torch.optim, optimizer.split()[0])
        self.optimizer = kind(self.model.parameters(), lr=1e-3, **OPTIMIZERS[optimizer])
        self.counted: list[dict[str, int]] = []

    def step(self) -> None:
        ids = torch.randint(0, 10, (64,))
        self.optimizer.zero_grad()
        torch.nn.functional.cross_entropy(self.model(torch.randn(64, 256)), ids).backward()
        self.optimizer.step()
        states = [each for state in self.optimizer.state.values() for each in state.values() if torch.is_tensor(each)]
        self.counted.append(
            {
                "parameter": count_bytes(self.model.parameters()),
                "gradient": count_bytes(parameter.grad for parameter in self.model.parameters()),
                "optimizer state": count_bytes(states),
            }
        )
        with torch.profiler.record_function(f"truth {len(self.counted)}"):
            pass


@pytest.fixture(autouse=True, scope="module")
def _first_recording() -> Iterator[None]:
    """Record once: torch's allocator knows no sizes of blocks that are older than the process's first recording."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True):
        training = Training("Adam")
        for _ in range(STEPS):
            training.step()
    yield
    del training  # alive until here: its blocks are not used again


def list_recordings() -> list[Any]:
    """List every optimizer with either kind of recording and either start; each push tests a pair of combinations."""
    return [
        pytest.param(
            optimizer,
            steady,
            with_stack,
            id=f"{optimizer}-{'steady' if steady else 'start'}{'-stack' if with_stack else ''}",
            marks=pytest.mark.long if steady != with_stack else (),
        )
        for optimizer in OPTIMIZERS
        for steady in (False, True)
        for with_stack in (False, True)
    ]


@pytest.mark.long
@pytest.mark.parametrize(("optimizer", "steady", "with_stack"), keep_some(list_recordings(), 1))
def test_categories_are_those_that_were_counted(optimizer: str, steady: bool, with_stack: bool, tmp_path: Path) -> None:
    """Within 1 % of the bytes, also where the model was built and trained before the recording."""
    training = Training(optimizer) if steady else None
    if training is not None:
        training.step()
        training.counted.clear()
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True, with_stack=with_stack) as recording:
        training = training or Training(optimizer)
        for _ in range(STEPS):
            training.step()
    recording.export_chrome_trace(str(tmp_path / "trace.json"))
    trace = load_trace(str(tmp_path / "trace.json"), cache=False)
    history = build_memory_history(trace)
    assert history is not None
    device = history.devices[0]
    for number, counted in enumerate(training.counted, start=1):
        marks = np.flatnonzero(trace.name == trace.names.index(f"truth {number}"))
        state = device.find_state(int(trace.start[marks[0]]))
        found = {group.label: group.bytes for group in device.group_state(state, GroupBy.CATEGORY)}
        assert state.unaccounted == 0
        for label, size in counted.items():
            assert abs(found.get(label, 0) - size) <= 0.01 * size, label
