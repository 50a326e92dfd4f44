"""Test that processes which the program starts are named, as no profiler records them."""

from __future__ import annotations

import multiprocessing
from types import SimpleNamespace

import pytest

from tests.profiler_runs.conftest import Start, train
from torchprof_runs.recorder.child_processes import ChildProcessCounter

SPAWN = """
import torch.multiprocessing as mp
def work(rank): pass
mp.start_processes(work, nprocs=2, start_method="fork")
"""

LOADER = """
import torch
class Data(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, index): return torch.ones(4) * index
for batch in torch.utils.data.DataLoader(Data(), num_workers=2): pass
"""


@pytest.mark.long
def test_spawned_ranks_are_named_and_an_empty_trace_is_not_kept(start: Start) -> None:
    run = start(SPAWN)
    assert run.wait() == 0, run.err
    assert "not recorded: 2 processes that the program started (work); ranks are recorded if torchrun" in run.err
    assert "nothing was recorded: torch did nothing in this process" in run.err
    assert run.manifest["kept"] == []


def test_loader_workers_are_named_beside_the_trace(start: Start) -> None:
    run = start(LOADER)
    assert run.wait() == 0, run.err
    assert "not recorded: 2 DataLoader workers; the trace has the wait for them, and num_workers=0" in run.err
    assert len(run.manifest["kept"]) == 1


def test_a_program_without_children_is_told_nothing(start: Start) -> None:
    run = start(train())
    assert run.wait() == 0, run.err
    assert "not recorded" not in run.err


def test_many_functions_and_helpers() -> None:
    counter = ChildProcessCounter()
    for name in ("a", "b", "c", "d", "a"):
        counter._count(SimpleNamespace(__module__="train", __qualname__=name), (), "Process")
    counter._count(SimpleNamespace(__module__="multiprocessing.managers", __qualname__="serve"), (), "Process")
    counter._count(None, (), "Trainer")  # a subclass with a run of its own
    assert counter.describe()[0].startswith("not recorded: 6 processes that the program started (a, b, c, …); ")
    assert multiprocessing.active_children() == []
