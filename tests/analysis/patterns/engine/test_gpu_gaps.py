"""Test why a GPU was idle: one trace per cause, and properties of any mix of work."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.pattern_traces import ADD, DTOD, GEMM, NCCL, healthy, op_with_work, waiting
from tests.helpers.trace_builder import Entry, annotation, cpu, kernel, memcpy, memset, overhead, runtime, step, trace
from torchprof_tui.analysis.patterns.engine.check_scope import range_scope
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.engine.idle_causes import IdleCause
from torchprof_tui.analysis.patterns.verdict.verdict import Regime

US = 1000


def two_kernels(*between: Entry, launch_at: float = 280, gpu_at: float = 300, cost: float = 8) -> list[Entry]:
    """Two kernels with the GPU idle from 100 µs to `gpu_at`; `between`: what the CPU did then."""
    return [
        step(1, 0, 500),
        *op_with_work("aten::mm", 0, 10, 90, GEMM),
        *between,
        *op_with_work("aten::mm", launch_at, gpu_at, 200, GEMM, cost=cost),
    ]


LOADER = annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 90, 180)


@pytest.mark.parametrize(
    ("entries", "pieces"),
    [
        # The op of the launch begins at 280, its call takes 282 to 286, the work starts at 300.
        (two_kernels(cpu("aten::view", 90, 185)), {"dispatch": 177, "launch": 4, "queued": 14, "host_code": 5}),
        (two_kernels(cpu("aten::mm", 90, 185)), {"cpu_compute": 175, "dispatch": 2, "launch": 4, "queued": 14,
                                                 "host_code": 5}),
        (two_kernels(cpu("aten::mm", 90, 185), runtime("cudaMalloc", 120, 100, 7)),
         {"dispatch": 177, "launch": 4, "queued": 14, "host_code": 5}),
        (two_kernels(), {"host_code": 180, "dispatch": 2, "launch": 4, "queued": 14}),
        (two_kernels(LOADER), {"input": 170, "host_code": 10, "dispatch": 2, "launch": 4, "queued": 14}),
        (
            two_kernels(cpu("aten::item", 20, 90), runtime("cudaStreamSynchronize", 30, 75, 7), cpu("x", 112, 165)),
            {"sync": 5, "dispatch": 172, "host_code": 5, "launch": 4, "queued": 14},
        ),
        (two_kernels(cpu("c10d::barrier", 90, 180)), {"communication": 170, "host_code": 10, "dispatch": 2, "launch": 4,
                                                      "queued": 14}),
        (two_kernels(launch_at=20), {"queued": 200}),
        (
            two_kernels(overhead("Activity Buffer Request", 100, 200), launch_at=270),
            {"profiler": 200},
        ),
        (
            two_kernels(launch_at=105, cost=160),
            {"host_code": 5, "dispatch": 40, "launch": 80, "queued": 75},
        ),
        (  # a launch call of 2 ms
            [step(1, 0, 4500), *op_with_work("aten::mm", 0, 10, 90, GEMM),
             *op_with_work("aten::mm", 100, 3700, 9, GEMM, cost=4000)],
            {"dispatch": 1000, "cold_call": 2000, "queued": 600},
        ),
        (  # a pageable copy: its call returns when the copy has ended
            [step(1, 0, 500), *op_with_work("aten::mm", 0, 10, 90, GEMM), cpu("aten::to", 110, 300),
             runtime("cudaMemcpyAsync", 120, 280, 9), memcpy("Memcpy HtoD (Pageable -> Device)", 300, 90, 9)],
            {"host_code": 10, "dispatch": 10, "sync": 180},
        ),
        ([step(1, 0, 900), *op_with_work("aten::mm", 0, 10, 90, GEMM), kernel("k", 300, 10, 99)], {"unknown": 200}),
    ],
)  # fmt: skip
def test_the_call_that_ends_a_gap_divides_it(entries: list[Entry], pieces: dict[str, int]) -> None:
    gap_trace = trace(*entries)
    checker = Checker(gap_trace)
    last = max(gap_trace.start.tolist())
    gaps = checker.gap_finder.clip(90 * US, last if last > 300 * US else 310 * US)
    first = gaps.select(gaps.start < 2000 * US)
    time = {cause.id: ns // US for cause, ns in first.time_by_cause().items()}
    if "profiler" not in pieces:
        first = gaps.select(gaps.start == 100 * US)
        time = {cause.id: ns // US for cause, ns in first.time_by_cause().items()}
    assert time == pieces
    assert IdleCause(int(first.cause[0])).id == max(pieces, key=lambda cause: pieces[cause])
    assert all(cause.label and cause.explanation for cause in IdleCause)


def test_a_collective_that_starts_late_is_communication() -> None:
    entries = [
        step(1, 0, 500),
        *op_with_work("aten::mm", 0, 10, 90, GEMM),
        *op_with_work("c10d::x", 20, 300, 190, NCCL),
    ]
    gaps = Checker(trace(*entries)).gap_finder.clip(0, 500 * US)
    assert gaps.time_by_cause()[IdleCause.COMMUNICATION] == 200 * US


def test_the_profilers_part_of_a_gap_is_cut_out() -> None:
    gap_trace = trace(*two_kernels(cpu("aten::view", 90, 192), overhead("Activity Buffer Request", 150, 50)))
    gaps = Checker(gap_trace).gap_finder.clip(90 * US, 310 * US)
    assert gaps.start.tolist() == [100 * US, 150 * US, 200 * US]
    assert [IdleCause(int(cause)) for cause in gaps.cause] == [
        IdleCause.DISPATCH,
        IdleCause.PROFILER,
        IdleCause.DISPATCH,
    ]
    assert gaps.time_by_cause()[IdleCause.PROFILER] == 50 * US


def test_a_gap_ends_with_work_of_its_own_device() -> None:
    """The other device's work, after a gap that the profiler's work cut, explains nothing."""
    entries = two_kernels(overhead("Activity Buffer Request", 200, 20))
    gaps = Checker(trace(*entries, *op_with_work("aten::mm", 0, 10, 90, GEMM, device=1))).gap_finder.clip(
        90 * US, 500 * US
    )
    of_second = gaps.select(gaps.device == 1)
    assert of_second.start.tolist() == [100 * US, 200 * US, 220 * US]
    assert of_second.next_event.tolist() == [-1, -1, -1]
    assert of_second.time_by_cause() == {IdleCause.PROFILER: 20 * US, IdleCause.UNKNOWN: 380 * US}


def test_loading_a_module_is_a_cold_call_and_not_the_profilers_work() -> None:
    gap_trace = trace(*two_kernels(cpu("aten::view", 90, 192), overhead("Lazy Function Loading", 150, 50)))
    gaps = Checker(gap_trace).gap_finder.clip(90 * US, 310 * US)
    assert gaps.start.tolist() == [100 * US]
    assert gaps.time_by_cause()[IdleCause.COLD_CALL] == 50 * US


def test_inside_a_graph_nothing_waits_for_the_cpu() -> None:
    entries = [runtime("cudaGraphLaunch", 0, 20, 9), kernel("a", 30, 10, 9), kernel("b", 60, 10, 9)]
    gaps = Checker(trace(*entries)).gap_finder.clip(35 * US, 65 * US)
    assert gaps.time_by_cause() == {IdleCause.QUEUED: 20 * US}


def test_inside_a_graph_whose_launch_call_goes_on_nothing_waits_for_the_cpu() -> None:
    entries = [
        runtime("cudaLaunchKernel", 0, 4, 8),
        kernel("before", 5, 10, 8),
        runtime("cudaGraphLaunch", 20, 100, 9),
        kernel("a", 30, 10, 9),
        kernel("b", 60, 10, 9),
        runtime("cudaLaunchKernel", 125, 4, 10),
        kernel("after", 130, 10, 10),
    ]
    checker = Checker(trace(*entries))
    assert checker.gap_finder.clip(35 * US, 65 * US).time_by_cause() == {IdleCause.QUEUED: 20 * US}
    alone = Checker(trace(*entries[2:5]))  # the first two pieces of work on the device
    assert alone.gap_finder.clip(15 * US, 45 * US).time_by_cause() == {IdleCause.QUEUED: 20 * US}
    first = checker.gap_finder.clip(10 * US, 35 * US)
    assert first.time_by_cause()[IdleCause.LAUNCH] == 10 * US  # until its first work starts, the call holds it up


def test_a_trace_without_steps_has_no_repeated_steps() -> None:
    repeats = Checker(trace(*op_with_work("aten::mm", 0, 10, 90, GEMM))).gap_finder.repeated_steps
    shapes = [array.shape for array in (repeats.steps, repeats.events, repeats.gap_start, repeats.gap_end)]
    assert shapes == [(0,), (0, 0), (0, 0), (0, 0)]


def test_a_range_has_the_gaps_that_overlap_it() -> None:
    """Idle from 100 to 300 µs."""
    checker = Checker(trace(*two_kernels()))
    found = {
        times: [(start // US, end // US) for start, end in zip(gaps.start.tolist(), gaps.end.tolist(), strict=True)]
        for times in ((20, 100), (20, 101), (100, 300), (150, 200), (299, 400), (300, 400))
        for gaps in [checker.gap_finder.clip(times[0] * US, times[1] * US)]
    }
    assert found == {
        (20, 100): [],
        (20, 101): [(100, 101)],
        (100, 300): [(100, 300)],
        (150, 200): [(150, 200)],
        (299, 400): [(299, 300)],
        (300, 400): [],
    }
    assert checker.gap_finder.clip(150 * US, 200 * US).duration.tolist() == [50 * US]
    gaps = checker.gap_finder.gaps
    assert checker.gap_finder.clip(int(gaps.start.min()), int(gaps.end.max())) is gaps  # measured once


@pytest.mark.parametrize(
    ("launch", "gpu_at", "unknown"),
    [
        (runtime("cudaLaunchKernel", 20, 10, 9), 60, 0),  # starts 30 µs after its call: nothing else can have run
        (runtime("cudaLaunchKernel", 20, 300, 9), 400, 0),  # 80 µs after the end of a long call
        (runtime("cudaLaunchKernel", 20, 10, 9), 130, 0),  # just as prompt as PROMPT_START allows, and 1 µs later
        (runtime("cudaLaunchKernel", 20, 10, 9), 131, 131),
        (runtime("cudaLaunchKernel", 20, 10, 9), 400, 400),  # something held it, and that was not recorded
        (runtime("cudaLaunchKernel", -90, 10, 9), 60, 60),  # launched before the window
        (None, 60, 60),
    ],
)
def test_before_the_first_recorded_work_idle_time_must_be_proven(
    launch: Entry | None, gpu_at: float, unknown: int
) -> None:
    entries = [step(1, 0, 500), cpu("aten::mm", 1, 8), kernel("k", gpu_at, 600 - gpu_at, 9)]
    gap_trace = trace(*entries, *([launch] if launch else []))
    checker = Checker(gap_trace)
    first, last = checker.tables.window
    assert checker.gap_finder.clip(first, last).time_by_cause().get(IdleCause.LEAD_IN, 0) == unknown * US


def test_after_the_last_recorded_work_nothing_is_known() -> None:
    checker = Checker(trace(step(1, 0, 500), *op_with_work("aten::mm", 0, 10, 90, GEMM), cpu("aten::add", 200, 100)))
    assert checker.gap_finder.clip(0, 500 * US).time_by_cause()[IdleCause.UNKNOWN] == 400 * US
    assert checker.decide_verdict().regime is Regime.UNKNOWN


def test_the_backward_thread_explains_what_the_main_thread_waits_for() -> None:
    """The main thread launches the optimizer after the backward pass, whose thread was dispatching until then."""
    entries = [
        step(1, 0, 500),
        *op_with_work("aten::mm", 0, 10, 50, GEMM),
        cpu("autograd::engine::evaluate_function: MmBackward0", 60, 200, tid=2),
        runtime("cudaLaunchKernel", 70, 5, 77, tid=2),
        kernel(GEMM, 80, 20, 77),
        *op_with_work("aten::_foreach_add_", 280, 300, 100, ADD),
    ]
    gaps = Checker(trace(*entries)).gap_finder.clip(100 * US, 300 * US)
    assert {cause.id: ns // US for cause, ns in gaps.time_by_cause().items()} == {
        "dispatch": 162, "host_code": 20, "launch": 4, "queued": 14
    }  # fmt: skip


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
    gaps = checker.gap_finder.clip(first, last)
    idle = [ns for start, end in zip(gaps.start.tolist(), gaps.end.tolist(), strict=True) for ns in range(start, end)]
    assert len(idle) == len(set(idle))
    assert set(idle) == set(range(first, last)) - busy
    profiler_ns = {ns for start, duration in profiler for ns in range(start, start + duration)}
    assert (gaps.time.sum(axis=1) == gaps.duration).all()
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
        ([step(1, 0, 9), cpu("aten::add", 1, 5)], Regime.CPU_ONLY),
    ],
)  # fmt: skip
def test_the_regime(entries: list[Entry], regime: Regime) -> None:
    checker = Checker(trace(*entries))
    verdict = checker.decide_verdict()
    assert verdict.regime is regime
    assert (verdict.busy is None) == (regime is Regime.CPU_ONLY)
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
    assert "fill in place" in checker.decide_verdict(findings=findings).first
