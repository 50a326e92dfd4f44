"""Estimate the size of a recording, and end it at its memory limit."""

from __future__ import annotations

import os
import threading

import pytest

from torchprof_runs.recorder import size_estimate
from torchprof_runs.recorder.size_estimate import MemoryGuard, estimate_size
from torchprof_runs.recorder.trace_export import TraceCounts

MEGA, GIGA = 10**6, 10**9


def test_a_small_trace_has_no_warning() -> None:
    text, warning, total, fitting = estimate_size(
        TraceCounts(events=1_200, bytes=400_000), 3, False, 100 * GIGA, 100 * GIGA
    )
    assert (total, fitting) == (1_200_000, 3)
    assert not warning
    assert "1,200 events" in text
    assert "3 steps make 1.2 MB" in text


@pytest.mark.parametrize(
    ("active", "with_stack", "disk", "memory", "says"),
    [
        (50, False, 100 * GIGA, 100 * GIGA, "better --active 10"),  # 1 GB is large
        (50, True, 100 * GIGA, 100 * GIGA, "--active 10 or leave out --with-stack"),
        (6, False, 500 * MEGA, 100 * GIGA, "disk space, too many events for torch's table: better --active 5"),
        (6, False, 100 * GIGA, 1_600 * MEGA, "free memory, too many events for torch's table: better --active 4"),
        (50, False, 100 * GIGA, None, "better --active 10"),
        (1, False, 50 * MEGA, None, "better a smaller step"),
    ],
)
def test_a_large_one_gets_a_better_schedule(
    active: int, with_stack: bool, disk: int, memory: int | None, says: str
) -> None:
    step = TraceCounts(events=300_000, bytes=100 * MEGA)
    text, warning, total, fitting = estimate_size(step, active, with_stack, disk, memory)
    assert total == active * 100 * MEGA
    assert fitting < active or active == 1
    assert warning
    assert says in text


def test_small_sizes_are_reported_too() -> None:
    text = estimate_size(TraceCounts(events=88, bytes=26_400), 3, False, 100 * GIGA, 100 * GIGA).text
    assert "88 events, 26 kB of trace: 3 steps make 79 kB (5 kB compressed)" in text


def test_no_advice_from_an_empty_step() -> None:
    assert not estimate_size(TraceCounts(), 10**9, True, 0, 0).warning


def test_memory_is_read_if_the_system_reports_it() -> None:
    if not os.path.exists("/proc/self/statm"):
        pytest.skip("needs /proc")
    resident, available = size_estimate.read_resident_memory(), size_estimate.read_available_memory()
    assert resident is not None
    assert available is not None
    assert 10 * MEGA < resident < 100 * GIGA
    assert 0 < available < 100_000 * GIGA


def test_the_guard_calls_once_when_memory_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = iter([100, 150, 200, 251, 300, 400])
    monkeypatch.setattr(size_estimate, "read_resident_memory", lambda: next(sizes, 500))
    monkeypatch.setattr(size_estimate, "WATCH_INTERVAL_SECONDS", 0.001)
    growths: list[int] = []
    called = threading.Event()

    def on_limit(growth: int) -> None:
        growths.append(growth)
        called.set()

    guard = MemoryGuard(150, on_limit)
    guard.start()
    assert called.wait(200)
    guard.stop()
    assert growths == [151]
