"""Test why a GPU was idle: one trace per reason, and properties of any mix of work."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.pattern_traces import DTOD, GEMM, NCCL, healthy, op_with_work, waiting
from tests.helpers.trace_builder import Entry, annotation, cpu, kernel, memset, overhead, runtime, step, trace
from torchprof_tui.analysis.patterns.engine.check_scope import range_scope
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.engine.gpu_idle_causes import IdleCause
from torchprof_tui.analysis.patterns.verdict.verdict import Regime

US = 1000


def two_kernels(*between: Entry, launch_at: float = 280, gpu_at: float = 300) -> list[Entry]:
    """Two kernels with the GPU idle from 100 to 300 µs; `between`: what the CPU did then."""
    return [
        step(1, 0, 500),
        *op_with_work("aten::mm", 0, 10, 90, GEMM),
        *between,
        *op_with_work("aten::mm", launch_at, gpu_at, 200, GEMM),
    ]


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        (two_kernels(cpu("aten::mm", 90, 185)), IdleCause.LAUNCH),
        (two_kernels(), IdleCause.HOST),
        (
            two_kernels(annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 90, 180)),
            IdleCause.INPUT,
        ),
        (
            two_kernels(
                cpu("aten::item", 20, 90), runtime("cudaStreamSynchronize", 30, 75, 7), cpu("aten::mm", 112, 165)
            ),
            IdleCause.SYNC,
        ),
        (two_kernels(cpu("c10d::barrier", 90, 180)), IdleCause.COMMUNICATION),
        (two_kernels(launch_at=20), IdleCause.QUEUED),
        (two_kernels(overhead("Activity Buffer Request", 100, 200)), IdleCause.PROFILER),
    ],
    ids=lambda given: given.name if isinstance(given, IdleCause) else "",
)
def test_a_gap_is_named_after_what_the_cpu_did(entries: list[Entry], reason: IdleCause) -> None:
    gap_trace = trace(*entries)
    gaps = Checker(gap_trace).find_gaps(90 * US, 310 * US)
    assert gaps.start.tolist() == [100 * US]
    assert gaps.end.tolist() == [300 * US]
    assert [IdleCause(int(code)) for code in gaps.cause] == [reason]
    assert gap_trace.event(int(gaps.next_event[0])).start == 300 * US
    assert reason.label
    assert reason.explanation


def test_waiting_for_a_collective_is_communication() -> None:
    entries = [
        step(1, 0, 500),
        *op_with_work("aten::mm", 0, 10, 90, GEMM),
        *op_with_work("c10d::x", 20, 300, 190, NCCL),
    ]
    gaps = Checker(trace(*entries)).find_gaps(0, 500 * US)
    assert IdleCause.COMMUNICATION in [IdleCause(int(reason)) for reason in gaps.cause]


def test_the_profilers_part_of_a_gap_is_cut_out() -> None:
    gap_trace = trace(*two_kernels(cpu("aten::mm", 90, 185), overhead("Activity Buffer Request", 150, 50)))
    gaps = Checker(gap_trace).find_gaps(90 * US, 310 * US)
    assert gaps.start.tolist() == [100 * US, 150 * US, 200 * US]
    assert [IdleCause(int(reason)) for reason in gaps.cause] == [
        IdleCause.LAUNCH,
        IdleCause.PROFILER,
        IdleCause.LAUNCH,
    ]
    assert gaps.time_by_cause() == {IdleCause.PROFILER: 50 * US, IdleCause.LAUNCH: 150 * US}


def test_inside_a_graph_nothing_waits_for_the_cpu() -> None:
    entries = [runtime("cudaGraphLaunch", 0, 20, 9), kernel("a", 30, 10, 9), kernel("b", 60, 10, 9)]
    gaps = Checker(trace(*entries)).find_gaps(35 * US, 65 * US)
    assert [IdleCause(int(reason)) for reason in gaps.cause] == [IdleCause.QUEUED]


PIECES = st.tuples(st.integers(0, 200), st.integers(0, 40), st.sampled_from([7, 9]), st.integers(0, 200), st.booleans())


@given(
    st.lists(PIECES, min_size=1, max_size=8), st.lists(st.tuples(st.integers(0, 200), st.integers(1, 50)), max_size=2)
)
def test_busy_and_idle_fill_the_window(pieces: list, profiler: list) -> None:
    """Against sets of nanoseconds: each ns of the window is busy or in exactly one gap."""
    entries = [step(1, 0, 200), *(overhead("Buffer Flush", *interval) for interval in profiler)]
    for number, (start, duration, stream, launch, linked) in enumerate(pieces):
        entries += [memset("Memset (Device)", start, duration, number + 1, stream=stream)]
        entries += [runtime("cudaMemsetAsync", launch, 3, number + 1)] if linked else []
    checker = Checker(trace(*entries, ns=True))
    busy = {ns for start, duration, *_ in pieces for ns in range(start, start + duration)}
    first, last = checker.tables.window
    gaps = checker.find_gaps(first, last)
    idle = [ns for start, end in zip(gaps.start.tolist(), gaps.end.tolist(), strict=True) for ns in range(start, end)]
    assert len(idle) == len(set(idle))
    assert set(idle) == set(range(first, last)) - busy
    profiler_ns = {ns for start, duration in profiler for ns in range(start, start + duration)}
    for start, end, reason in zip(gaps.start.tolist(), gaps.end.tolist(), gaps.cause.tolist(), strict=True):
        assert (
            set(range(start, end)) <= profiler_ns
            if reason == IdleCause.PROFILER
            else not profiler_ns & set(range(start, end))
        )
    for scope in (checker.default_scope, range_scope(20, 90)):
        for finding in checker.check(scope):
            assert 0 <= finding.answer.at_stake <= scope.length


@pytest.mark.parametrize(
    ("entries", "regime"),
    [
        (healthy(), Regime.COMPUTE),
        (waiting(), Regime.OVERHEAD),
        (two_kernels(cpu("aten::mm", 90, 185)), Regime.MIXED),  # busy for 290 of 500 µs
        (two_kernels(annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 90, 180)), Regime.INPUT),
        (
            [step(1, 0, 400), *op_with_work("aten::mm", 0, 10, 90, GEMM), *op_with_work("c10d::x", 20, 101, 290, NCCL)],
            Regime.COMMUNICATION,
        ),
        ([step(1, 0, 9), cpu("aten::add", 1, 5)], Regime.UNKNOWN),
    ],
)  # fmt: skip
def test_the_regime(entries: list[Entry], regime: Regime) -> None:
    checker = Checker(trace(*entries))
    verdict = checker.decide_verdict()
    assert verdict.regime is regime
    assert (verdict.busy is None) == (regime is Regime.UNKNOWN)
    assert verdict.text


def test_the_advice_names_the_cause_where_one_stands_out() -> None:
    entries = [
        step(1, 0, 1000),
        *op_with_work("aten::masked_fill", 1, 20, 500, DTOD),
        *op_with_work("aten::mm", 12, 690, 300, GEMM),
    ]
    checker = Checker(trace(*entries))
    findings = checker.check()
    assert checker.decide_verdict().regime is Regime.MIXED
    assert "in-place variant" in checker.decide_verdict(findings=findings).first
