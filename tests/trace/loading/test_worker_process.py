"""Test that a worker process gives back the memory of columns that it has freed."""

from __future__ import annotations

import sys

import pytest

from torchprof_tui.trace.loading import worker_process
from torchprof_tui.trace.loading.worker_process import Task, WorkerProcess

FREE_COLUMNS = """\
import json, sys
sys.path[:] = json.loads(sys.argv[1])
import numpy as np

np.ones(1 << 20)  # 8 MB: from then on glibc would put all that is smaller on its heap
columns, kept = [], []
for _ in range(40):
    columns.append(np.ones(400_000))
    kept.append(np.ones(3_000))
columns.clear()
with open("/proc/self/status") as file:
    print(next(int(line.split()[1]) for line in file if line.startswith("RssAnon")) / 1024)
"""
"""Frees 40 columns of 3.2 MB between smaller ones that are kept, and prints MB of memory."""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_columns_that_were_freed_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "_START_CODE", FREE_COLUMNS)
    worker = WorkerProcess(Task.DECODE)
    worker.start()
    assert worker._process is not None
    assert worker._process.stdout is not None
    try:
        assert float(worker._process.stdout.read()) < 64
    finally:
        worker.cancel()
