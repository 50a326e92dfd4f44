"""Test the pattern of a rank whose host is slow."""

from __future__ import annotations

import pytest

from tests.helpers.pattern_traces import check_pattern, healthy
from tests.helpers.trace_builder import Entry, cpu, trace
from torchprof_tui.analysis.patterns.engine.check_scope import whole_trace_scope
from torchprof_tui.analysis.patterns.engine.pattern import Finding, State
from torchprof_tui.analysis.patterns.verdict.rank_checks import MultiRankChecker
from torchprof_tui.analysis.time.host_stalls import compare_host_speed
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.ranks.collective_matching import read_collectives
from torchprof_tui.trace.ranks.merge import OpenedRank, merge_ranks

OPS = [f"aten::op{number}" for number in range(10)]


def rank_ops(factor: float = 1, slow_ops: int = 10, runs: int = 12) -> Trace:
    """One rank: each op runs so often for 10 µs; the first `slow_ops` of them take `factor` times as long."""
    entries: list[Entry] = []
    at = 0.0
    for _ in range(runs):
        for index, op in enumerate(OPS):
            duration = 10 * (factor if index < slow_ops else 1)
            entries.append(cpu(op, at, duration))
            at += 30
    return trace(*entries)


def merge(*ranks: Trace) -> Trace:
    return merge_ranks(
        [OpenedRank(number, f"rank{number}.json", rank, read_collectives(rank)) for number, rank in enumerate(ranks)],
        "ranks",
    )


def check_ranks(*ranks: Trace) -> Finding:
    merged = merge(*ranks)
    return MultiRankChecker(merged).check(whole_trace_scope(merged), ["slow-host"])[0][0]


@pytest.mark.parametrize(
    ("ranks", "state"),
    [
        ([rank_ops(), rank_ops(1.31)], State.FIRED),
        ([rank_ops(), rank_ops(1.1)], State.ABSENT),
        ([rank_ops(), rank_ops(3, slow_ops=4)], State.ABSENT),  # some ops have a cause of their own
        ([rank_ops(), rank_ops(1.31, runs=9)], State.CANNOT_TELL),
    ],
)
def test_fires_absent_cannot_tell(ranks: list[Trace], state: State) -> None:
    assert check_ranks(*ranks).state is state


def test_one_rank_alone_cannot_tell() -> None:
    assert check_pattern(trace(*healthy()), "slow-host").state is State.CANNOT_TELL


def test_the_slow_rank_is_named_with_its_factor() -> None:
    finding = check_ranks(rank_ops(), rank_ops(1.5), rank_ops(1.02))
    assert finding.answer.seen == (
        "rank 1's host is slow: aten ops take 1.50× as long on rank 1 as on rank 0, 100 % of 10 ops are slower by a "
        "seventh "
        "or more"
    )
    assert finding.answer.at_stake == pytest.approx(12 * 10 * 15_000 / 3, abs=1)
    assert len(finding.answer.events)


def test_speed_is_relative_to_the_fastest_rank() -> None:
    merged = merge(rank_ops(1.2), rank_ops(), rank_ops(2))
    assert merged.merged_ranks is not None
    speed = compare_host_speed(merged.merged_ranks)
    assert speed.factor.tolist() == pytest.approx([1.2, 1, 2])
    assert (speed.fastest, speed.slowest, speed.op_count) == (1, 2, 10)
    assert speed.slower_share.tolist() == [1, 0, 1]
    assert speed.slowest_factor == pytest.approx(2)
