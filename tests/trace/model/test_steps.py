"""Which annotations become the steps of a trace."""

from __future__ import annotations

from tests.helpers.trace_builder import annotation, cpu, gpu_annotation, step, trace

DECODE = "execute_context_0(0)_generation_2(2)"
PREFILL = "execute_context_1(8)_generation_0(0)"


def test_steps_of_a_serving_engine_are_numbered_by_start() -> None:
    built = trace(annotation(PREFILL, 0, 10), annotation(DECODE, 20, 5), annotation(DECODE, 30, 5))
    assert [(each.name, each.number, each.start, each.duration) for each in built.steps] == [
        (PREFILL, 0, 0, 10_000),
        (DECODE, 1, 20_000, 5_000),
        (DECODE, 2, 30_000, 5_000),
    ]
    assert [built.event(each.event).name for each in built.steps] == [PREFILL, DECODE, DECODE]


def test_of_steps_inside_each_other_the_outermost_counts() -> None:
    built = trace(
        annotation(DECODE, 0, 10), annotation("step[DECODE bs=2]", 2, 5), annotation("step[DECODE bs=2]", 20, 5)
    )
    assert [each.name for each in built.steps] == [DECODE, "step[DECODE bs=2]"]


def test_a_step_that_two_threads_recorded_counts_once() -> None:
    built = trace(annotation(DECODE, 0, 10), annotation(DECODE, 1, 8, thread=7), annotation(PREFILL, 2, 3, thread=7))
    assert [each.name for each in built.steps] == [DECODE, PREFILL]


def test_an_op_and_a_span_on_the_gpu_are_no_steps() -> None:
    built = trace(cpu(DECODE, 0, 10), gpu_annotation(DECODE, 0, 10))
    assert built.steps == []


def test_steps_of_an_engine_come_before_profiler_steps_which_stay_known() -> None:
    built = trace(step(3, 0, 100), annotation(DECODE, 10, 20), step(4, 100, 100), annotation(DECODE, 110, 20))
    assert [each.name for each in built.steps] == [DECODE, DECODE]
    assert [each.number for each in built.profiler_steps] == [3, 4]


def test_without_an_engine_profiler_steps_are_the_steps() -> None:
    built = trace(step(3, 0, 100), annotation("decode", 10, 20))
    assert [each.number for each in built.steps] == [3]
    assert built.profiler_steps is built.steps


def test_an_engine_that_numbers_its_steps_keeps_the_numbers() -> None:
    first, second = (f"[Executor] _forward_step {number}: 0 ctx reqs, 2 gen reqs" for number in (70, 71))
    assert [each.number for each in trace(annotation(first, 0, 5), annotation(second, 9, 5)).steps] == [70, 71]
    assert [each.number for each in trace(annotation(first, 0, 5), annotation(first, 9, 5)).steps] == [0, 1]
