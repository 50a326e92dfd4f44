"""Waits for GPU work from before the recording: neither the GPU's idle time nor a queue."""

from __future__ import annotations

import pytest

from tests.helpers.trace_builder import cpu, kernel, runtime, trace
from torchprof_tui.analysis.patterns.engine.gpu_gaps import GapFinder
from torchprof_tui.analysis.patterns.engine.idle_causes import IdleCause
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables


def idle_by_cause(waits: bool = True, before: float = 100.0) -> dict[IdleCause, int]:
    """One kernel, then another that was launched at once and starts after 50 ms, while the CPU waits or does not."""
    return GapFinder(
        TraceTables(
            trace(
                cpu("aten::mul", 0, before + 50_400),
                runtime("cudaLaunchKernel", 1, 5, 1),
                kernel("first", before - 20, 10, 1),
                runtime("cudaLaunchKernel", before - 8, 5, 2),
                *([runtime("cudaStreamSynchronize", before, 50_200, 3)] if waits else []),
                kernel("second", before + 50_000, 300, 2),
            )
        )
    ).gaps.time_by_cause()


def test_a_long_wait_at_the_start_is_unknown() -> None:
    times = idle_by_cause()
    assert times[IdleCause.LEAD_IN] >= 50_000_000
    assert times[IdleCause.QUEUED] < 100_000


@pytest.mark.parametrize(("waits", "before"), [(False, 100.0), (True, 20_000.0)], ids=["no wait", "later"])
def test_other_delays_stay_queued(waits: bool, before: float) -> None:
    assert idle_by_cause(waits, before)[IdleCause.QUEUED] >= 50_000_000
