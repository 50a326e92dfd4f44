"""Test the comparison of the ranks' GPUs by the same kernels."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers.pattern_traces import GEMM, NCCL
from tests.helpers.trace_builder import kernel, trace
from torchprof_tui.analysis.time.kernel_speed import KernelSpeed, compare_kernel_speed, weighted_median
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.ranks.collective_matching import read_collectives
from torchprof_tui.trace.ranks.merge import OpenedRank, merge_ranks


def rank(*durations: float, grid: int = 132, runs: int = 5, collective: bool = False) -> Trace:
    """Kernels of these durations on grids of their own, each run so often; `collective`: all beside one."""
    return trace(
        *([kernel(NCCL, 0, 1000 * runs, stream=20)] if collective else []),
        *(
            kernel(GEMM, 1000 * run + 200 * index, duration, grid=[grid + index, 1, 1], block=[128, 1, 1])
            for run in range(runs)
            for index, duration in enumerate(durations)
        ),
    )


def compare(*ranks: Trace) -> KernelSpeed:
    no_collectives = read_collectives(rank(100))  # which are not matched here
    merged = merge_ranks(
        [OpenedRank(number, f"r{number}.json", of_rank, no_collectives) for number, of_rank in enumerate(ranks)],
        "ranks",
    )
    assert merged.merged_ranks is not None
    return compare_kernel_speed(merged.merged_ranks)


def test_each_rank_is_compared_with_the_fastest_kernel_by_kernel() -> None:
    speed = compare(rank(100, 50), rank(120, 60), rank(100, 50))
    assert speed.factor.tolist() == pytest.approx([1, 1.2, 1])
    assert (speed.slowest, speed.kernel_count) == (1, 2)
    assert speed.spread == pytest.approx(1.2)


@pytest.mark.parametrize(
    "other",
    [rank(19), rank(100, grid=66), rank(100, runs=3), rank(100, collective=True)],
    ids=["short kernels", "another grid", "few runs", "beside a collective"],
)
def test_what_cannot_be_compared(other: Trace) -> None:
    speed = compare(rank(100), other)
    assert speed.kernel_count == 0
    assert speed.spread == 1


def test_the_weighted_median_is_the_value_at_half_of_the_weight() -> None:
    assert weighted_median(np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0, 5.0])) == 3
    assert weighted_median(np.array([3.0, 1.0, 2.0]), np.array([1.0, 5.0, 1.0])) == 1
