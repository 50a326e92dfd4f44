"""Test the patterns of recordings that were not warmed up."""

from __future__ import annotations

import pytest

from tests.analysis.patterns.rules import test_profiler_cost
from tests.helpers.pattern_cases import ABSENT, CANNOT_TELL, FIRED, Cases, case_params, check_case, find_missing_answers
from tests.helpers.pattern_traces import ADD, GPU_ONLY, check_pattern, healthy, op_with_work, steps_of
from tests.helpers.trace_builder import Entry, annotation, cpu, kernel, overhead, runtime, step, trace
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.analysis.patterns.rules import warmup


def cold_launch(duration: float = 4000, call: str = "cudaLaunchKernel", busy: float = 0) -> list[Entry]:
    """An op whose launch takes this long, in a trace of 8 ms; `busy`: how long another kernel runs meanwhile."""
    return [
        *op_with_work("aten::mul", 0, 50, max(busy, 10)),
        cpu("aten::add", 60, duration + 20),
        runtime(call, 70, duration, 5),
        kernel(ADD, 70 + duration, 3800, 5),
    ]


def allocation(start: float = 1) -> Entry:
    """A short allocation, by which a step is seen to do what is done once."""
    return runtime("cudaMalloc", start, 1, 990)


CASES: Cases = {
    "cold-call": {FIRED: cold_launch(), ABSENT: cold_launch(900), CANNOT_TELL: GPU_ONLY},
    "not-warmed-up": {
        FIRED: [*steps_of(963, 586, 408, 359), allocation()],
        ABSENT: steps_of(400, 390, 410, 405),
        CANNOT_TELL: steps_of(963, 586),
    },
}


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State) -> None:
    check_case(CASES, name, state)


def test_every_pattern_has_a_trace_for_each_answer() -> None:
    assert not find_missing_answers(warmup, CASES | test_profiler_cost.CASES)


@pytest.mark.parametrize(
    ("entries", "state"),
    [
        (cold_launch(call="cudaStreamSynchronize"), ABSENT),  # a wait
        (cold_launch(call="cudaMemcpyAsync"), ABSENT),  # a pageable copy waits as well
        (cold_launch(call="cudaGraphLaunch"), ABSENT),  # it launches hundreds of kernels
        (cold_launch(call="cuModuleLoadData"), FIRED),
        (cold_launch(call="cudaMalloc"), FIRED),
        (cold_launch(busy=1990), FIRED),
        (cold_launch(busy=3000), ABSENT),  # the launch waits for room in the queue
    ],
)
def test_a_long_call_is_cold_unless_it_waits(entries: list[Entry], state: State) -> None:
    assert check_pattern(trace(*entries), "cold-call").state is state


def test_the_time_of_cold_calls_is_counted_once() -> None:
    finding = check_pattern(trace(*cold_launch(4000)), "cold-call")
    assert finding.answer.at_stake == 4_000_000
    assert "1 call over a millisecond: 4.00 ms in all" in finding.answer.seen


def test_what_ops_take_the_first_time_counts_with_cold_calls() -> None:
    """aten::mm runs three times; the first takes 8 ms itself, without a call that the profiler records."""
    first = [cpu("aten::mm", 6000, 8000), runtime("cudaLaunchKernel", 13_900, 5, 77), kernel(ADD, 13_990, 5, 77)]
    later = [each for at in (15_000, 16_000) for each in op_with_work("aten::mm", at, at + 25, 5, cost=20)]
    finding = check_pattern(trace(*cold_launch(4000), *first, *later), "cold-call")
    assert finding.answer.seen.endswith("; ops take 8.00 ms more the first time that they run")
    assert finding.answer.at_stake == pytest.approx(11_995_000)


def test_warming_steps_say_their_times_and_what_is_lost() -> None:
    finding = check_pattern(trace(*steps_of(963, 586, 408, 359), allocation()), "not-warmed-up")
    assert finding.answer.seen == "the first 4 steps get faster: 963.0 µs, 586.0 µs, 408.0 µs, 359.0 µs"
    assert finding.answer.at_stake == (963 + 586 + 408 - 3 * 359) * 1000


def test_steps_that_load_nothing_are_warm() -> None:
    """The same steps without the allocation; and without any runtime call, where it would not have been recorded."""
    entries = steps_of(963, 586, 408, 359)
    answer = check_pattern(trace(*entries), "not-warmed-up").answer
    assert answer.state is ABSENT
    assert answer.seen == "the first 4 steps get faster, but nothing is loaded, allocated or compiled in them"
    unknown = [entry for entry in entries if entry["cat"] not in ("cuda_runtime", "cuda_driver")]
    assert check_pattern(trace(*unknown), "not-warmed-up").state is FIRED


def test_only_the_steps_that_get_faster_count() -> None:
    finding = check_pattern(trace(*steps_of(900, 500, 300, 301, 299, 302), allocation()), "not-warmed-up")
    assert finding.answer.seen.startswith("the first 3 steps get faster")
    assert finding.answer.at_stake == (600 + 200) * 1000


def test_the_profilers_own_work_makes_no_step_slow() -> None:
    entries = [*steps_of(900, 500, 300), allocation(), overhead("Activity Buffer Request", 10, 500)]
    assert check_pattern(trace(*entries), "not-warmed-up").state is ABSENT


def test_steps_hidden_behind_the_gpu_need_not_be_fast() -> None:
    behind = [kernel(ADD, 910, 2000, 77), runtime("cudaLaunchKernel", 890, 5, 77)]
    assert check_pattern(trace(*steps_of(900, 500, 300), allocation(), *behind), "not-warmed-up").state is ABSENT


def test_cold_calls_alone_make_a_recording_unrepresentative() -> None:
    finding = check_pattern(trace(*cold_launch()), "not-warmed-up")
    assert finding.state is FIRED
    assert finding.answer.seen == "loading and allocating takes 4.00 ms, 51 %"


def test_steady_steps_are_no_cold_start() -> None:
    assert check_pattern(trace(*healthy(6)), "not-warmed-up").state is ABSENT


def test_allocations_get_a_remedy_of_their_own() -> None:
    remedy = check_pattern(trace(step(1, 0, 9000), *cold_launch(call="cudaMalloc")), "cold-call").remedy
    assert "caching allocator" in remedy.action
    assert check_pattern(trace(*cold_launch()), "cold-call").remedy.code.startswith("CUDA_MODULE_LOADING=EAGER")


def with_prefill(*durations: float) -> list[Entry]:
    """Steps of these durations, the first of which reads prompts and the others of which decode."""
    entries, at = steps_of(*durations), 0.0
    for number, duration in enumerate(durations):
        name = "step[DECODE bs=8]" if number else "step[EXTEND bs=8 toks=1024]"
        entries.append(annotation(name, at + 1, duration - 2))
        at += duration
    return entries


@pytest.mark.parametrize("name", ["not-warmed-up", "first-step-wide"])
def test_a_prefill_is_no_cold_start(name: str) -> None:
    """Only decode steps are compared with each other."""
    assert check_pattern(trace(*steps_of(900, 250, 200, 190), allocation()), name).state is State.FIRED
    assert check_pattern(trace(*with_prefill(900, 210, 200, 190), allocation()), name).state is State.ABSENT


def test_decode_steps_that_get_faster_are_found_behind_a_prefill() -> None:
    assert check_pattern(
        trace(*with_prefill(300, 900, 500, 200, 190), allocation(302)), "not-warmed-up"
    ).answer.seen.startswith("the first 3 steps get faster: 900.0 µs, 500.0 µs, 200.0 µs")
