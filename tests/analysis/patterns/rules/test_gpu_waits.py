"""Test the patterns of a waiting GPU on traces made for them."""

from __future__ import annotations

import pytest

from tests.helpers.pattern_cases import (
    ABSENT,
    CANNOT_TELL,
    FIRED,
    Cases,
    case_params,
    check_case,
    find_missing_answers,
)
from tests.helpers.pattern_traces import (
    CPU_ONLY,
    GEMM,
    check_pattern,
    healthy,
    op_with_work,
    steps_of,
    waiting,
)
from tests.helpers.trace_builder import Entry, annotation, cpu, memcpy, runtime, step, trace
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.analysis.patterns.rules import gpu_waits


def step_with_sync(call: str, in_step: bool = True) -> list[Entry]:
    """A wait between two launches of a step (or after it); the GPU stays idle for 100 µs after the wait."""
    sync_start = 60 if in_step else 700
    return [
        step(1, 0, 500),
        step(2, 1000, 500),
        *op_with_work("aten::add", 1, 20, 80),
        cpu("aten::item", sync_start, 50),
        runtime(call, sync_start + 2, 45, 77),
        *op_with_work("aten::add", 190, 200, 100),
        *op_with_work("aten::add", 1010, 1020, 100),
    ]


def step_with_copy(kind: str, size: int, duration: float = 500) -> list[Entry]:
    """A step with a copy of `size` bytes from this kind of host memory, and a pinned copy after it."""
    return [
        step(1, 0, 1000),
        cpu("aten::to", 0, duration + 20),
        runtime("cudaMemcpyAsync", 5, duration, 3),
        memcpy(f"Memcpy HtoD ({kind} -> Device)", 10, duration, 3, bytes=size),
        memcpy("Memcpy HtoD (Pinned -> Device)", 2000, 50, 4, bytes=1 << 20),
    ]


def steps_with_loader(name: str, load_time: float) -> list[Entry]:
    """Steps of 1 ms that begin with this time in a loader ("" for none) and then keep the GPU busy."""
    entries = []
    for number in range(3):
        start = 1000 * number
        entries.append(step(number, start, 999))
        if name:
            entries.append(annotation(name, start + 1, load_time - 1))
        entries += op_with_work("aten::mm", start + load_time, start + load_time + 10, 980 - load_time, GEMM)
    return entries


def op_with_kernels(kernels: int, duration: float, owner: Entry | None = None) -> list[Entry]:
    """An op, or `owner`, that launches this many kernels of this duration."""
    entries = [owner or cpu("mylib::update", 0, 20 * kernels)]
    for index in range(kernels):
        entries += op_with_work("aten::add_", 20 * index, 20 * index + 12, duration)
    return entries


def steps_with_mallocs(*times: float) -> list[Entry]:
    """Three steps of 100 µs, with cudaMalloc calls at these times."""
    steps = [*steps_of(100, 100, 100)]
    return [*steps, *(runtime("cudaMalloc", time, 5, 500 + index) for index, time in enumerate(times))]


CASES: Cases = {
    "sync-in-step": {
        FIRED: step_with_sync("cudaStreamSynchronize"),
        ABSENT: step_with_sync("cudaStreamSynchronize", in_step=False),
        CANNOT_TELL: [
            entry for entry in step_with_sync("cudaStreamSynchronize") if not entry["name"].startswith("ProfilerStep")
        ],
    },
    "pageable-copy": {
        FIRED: step_with_copy("Pageable", 4 << 20),
        ABSENT: step_with_copy("Pageable", 8),  # what .item() fetches
        CANNOT_TELL: CPU_ONLY,
    },
    "input-starved": {
        FIRED: steps_with_loader("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 400),
        ABSENT: steps_with_loader("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 20),
        CANNOT_TELL: [*op_with_work("aten::add", 0, 10, 20)],
    },
    "idle-gap": {FIRED: waiting(), ABSENT: healthy(), CANNOT_TELL: CPU_ONLY},
    "tiny-kernels": {FIRED: op_with_kernels(40, 2), ABSENT: op_with_kernels(40, 9), CANNOT_TELL: CPU_ONLY},
    "alloc-in-step": {FIRED: steps_with_mallocs(20, 150), ABSENT: steps_with_mallocs(20), CANNOT_TELL: steps_of(100)},
}


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State) -> None:
    check_case(CASES, name, state)


def test_every_pattern_has_a_trace_for_each_answer() -> None:
    assert not find_missing_answers(gpu_waits, CASES)


def test_a_sync_costs_idle_time_as_long_as_the_wait() -> None:
    """The call returns at 107 µs after 45: without it the CPU would have gone on that much sooner, and no more."""
    finding = check_pattern(trace(*step_with_sync("cudaStreamSynchronize")), "sync-in-step")
    assert finding.answer.at_stake == 52_000  # from 100 µs, when the first kernel ended, to 107 + 45


def test_values_that_are_read_one_by_one_cost_the_time_between_them() -> None:
    reads = [
        entry
        for k in range(10)
        for entry in (cpu("aten::item", 100 + 40 * k, 10), runtime("cudaStreamSynchronize", 102 + 40 * k, 6, 50 + k))
    ]
    loop = [step(1, 0, 700), *op_with_work("aten::mm", 0, 10, 95, GEMM), *reads]
    loop += op_with_work("aten::mm", 600, 620, 10, GEMM)
    assert check_pattern(trace(*loop), "sync-in-step").answer.at_stake == 369_000  # from 105 to 474 µs


def test_a_sync_without_idle_time_is_absent() -> None:
    """As with an event that was reached long ago, while a kernel on another stream is running."""
    entries = [step(1, 0, 200), *op_with_work("aten::mm", 5, 20, 200, GEMM), runtime("cudaEventSynchronize", 60, 10, 3)]
    entries += [step(2, 200, 100)]
    finding = check_pattern(trace(*entries), "sync-in-step")
    assert finding.answer.state is ABSENT
    assert finding.answer.seen == "1 wait, and the GPU was idle after none of them"


@pytest.mark.parametrize(("loading", "state"), [(300, State.FIRED), (20, State.ABSENT)])
def test_without_a_gpu_the_time_in_the_data_loader_counts(loading: int, state: State) -> None:
    entries: list[Entry] = []
    for number in range(3):
        start = number * 500
        entries += [
            step(number, start, 490),
            annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", start, loading),
            cpu("aten::mm", start + 310, 150),
        ]
    finding = check_pattern(trace(*entries), "input-starved")
    assert finding.state is state
    if state is State.FIRED:
        assert finding.answer.at_stake == 3 * loading * 1000
        assert "pin_memory" not in finding.remedy.code  # memory is pinned for copies to a GPU


def test_the_causes_of_gaps_add_up_to_their_share() -> None:
    seen = check_pattern(trace(*waiting()), "idle-gap").answer.seen
    whole, _, causes = seen.partition(" of the steps: ")
    assert " gaps of 10.0 µs or more, " in whole
    shares = [float(part.split()[-2]) for part in causes.split(", ")]
    assert sum(shares) == pytest.approx(float(whole.split()[-2]), abs=1.5)


def test_an_optimizer_that_loops_over_parameters_is_found_once() -> None:
    """Two findings with the same evidence and remedy took two of the four lines of the first screen."""
    entries = op_with_kernels(40, 2, annotation("Optimizer.step#SGD.step", 0, 800))
    assert check_pattern(trace(*entries), "optimizer-loop").has_fired
    assert not check_pattern(trace(*entries), "tiny-kernels").has_fired
