"""The steps of a serving engine: GPU work by its launch, waits, graphs, gaps."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers.serving_traces import eager_kernels, replayed_kernels, serving_trace, step_entries
from tests.helpers.trace_builder import Entry, annotation, cpu, kernel, memcpy, runtime, trace
from torchprof_tui.analysis.serving.measure_steps import get_serving_steps, measure_serving_steps
from torchprof_tui.analysis.serving.serving_steps import KINDS, NotGraphed
from torchprof_tui.trace.model.steps import UNKNOWN, StepKind

DECODE = "execute_context_0(0)_generation_2(2)"
PREFILL = "execute_context_1(8)_generation_0(0)"


def test_work_counts_for_the_step_that_launched_it_not_for_the_one_it_ran_in() -> None:
    built = trace(
        annotation(DECODE, 0, 20), runtime("cudaLaunchKernel", 5, 2, 1), kernel("late", 60, 10, 1),
        annotation(DECODE, 50, 20), runtime("cudaLaunchKernel", 55, 2, 2), kernel("own", 80, 5, 2),
        kernel("of no launch", 90, 5),
    )  # fmt: skip
    steps = measure_serving_steps(built)
    assert steps.gpu_time.tolist() == [10_000, 5_000]
    assert steps.gpu_start.tolist() == [60_000, 80_000]
    assert steps.gpu_end.tolist() == [70_000, 85_000]
    assert steps.kernels.tolist() == [1, 1]


def test_launches_of_another_thread_count_by_time_those_of_a_thread_with_steps_for_its_own() -> None:
    built = trace(
        annotation(PREFILL, 0, 50), annotation(DECODE, 10, 20, thread=7),
        runtime("cudaLaunchKernel", 15, 1, 1), kernel("k", 20, 1, 1),
        runtime("cudaLaunchKernel", 40, 1, 2, thread=9), kernel("k", 45, 1, 2),
    )  # fmt: skip
    steps = measure_serving_steps(built)
    assert steps.kernels.tolist() == [1, 0]


def test_busy_time_counts_overlapping_work_once_as_a_plain_loop_does() -> None:
    rng = np.random.default_rng(5)
    entries: list[Entry] = []
    expected = []
    for number in range(30):
        entries.append(annotation(DECODE, 1000 * number, 400))
        covered = np.zeros(3000, np.bool_)
        for index in range(int(rng.integers(0, 12))):
            correlation, start = 100 * number + index + 1, int(rng.integers(10, 900))
            length = int(rng.integers(1, 300))
            entries.append(runtime("cudaLaunchKernel", 1000 * number + index, 1, correlation))
            entries.append(kernel("k", 1000 * number + start, length, correlation, stream=index % 3))
            covered[start : start + length] = True
        expected.append(int(covered.sum()) * 1000)
    assert measure_serving_steps(trace(*entries)).gpu_busy.tolist() == expected


def test_kinds_numbers_and_times_are_those_of_the_annotations() -> None:
    steps = measure_serving_steps(serving_trace(1))
    assert steps.engines == ("vLLM",)
    assert [KINDS[kind].value for kind in steps.kind] == ["prefill", "decode", "decode", "decode", "mixed"]
    assert steps.batch.tolist() == [2, 2, 2, 2, 3]
    assert steps.tokens.tolist() == [512, 2, 2, 2, 100]
    assert steps.prefill_tokens.tolist() == [512, 0, 0, 0, 98]
    assert steps.decode_tokens.tolist() == [0, 2, 2, 2, 2]
    assert steps.kv_length.tolist() == [UNKNOWN] * 5
    assert steps.start.tolist() == [0, 200_000, 300_000, 400_000, 500_000]
    assert (steps.end - steps.start).tolist() == [100_000, 40_000, 40_000, 40_000, 100_000]


def test_kernels_outside_graphs_have_a_reason() -> None:
    steps = measure_serving_steps(serving_trace(1))
    assert steps.kernels.tolist() == [2, 5, 5, 5, 1]
    assert steps.graph_kernels.tolist() == [0, 4, 4, 4, 0]
    assert steps.not_graphed.tolist() == [
        NotGraphed.PROMPTS, *[NotGraphed.AROUND_GRAPH] * 3, NotGraphed.PROMPTS,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "inside", "reason"),
    [
        ("step[DECODE bs=2]", replayed_kernels(5, 1, 10, 3), NotGraphed.ALL_IN_GRAPHS),
        ("step[DECODE bs=2]", eager_kernels(5, [1, 2], 10), NotGraphed.SAME_BATCH),
        ("step[DECODE bs=3]", eager_kernels(5, [1, 2], 10), NotGraphed.OTHER_BATCH),
        ("step[EXTEND bs=2 toks=9]", eager_kernels(5, [1, 2], 10), NotGraphed.PROMPTS),
        ("eager_decode[bs=2 tok=2]", eager_kernels(5, [1, 2], 10), NotGraphed.SAID_EAGER),
        ("step[DECODE bs=2]", [], NotGraphed.NO_KERNELS),
        ("step[DECODE bs=2]", [runtime("cudaMemcpyAsync", 5, 1, 1), memcpy("HtoD", 9, 5, 1)], NotGraphed.NO_KERNELS),
        (
            "step[DECODE bs=2]",
            [*replayed_kernels(5, 1, 10, 2), *eager_kernels(9, [2], 30), *replayed_kernels(14, 3, 40, 2)],
            NotGraphed.BETWEEN_GRAPHS,
        ),
    ],
)  # fmt: skip
def test_each_reason(name: str, inside: list[Entry], reason: NotGraphed) -> None:
    replayed = step_entries("step[DECODE bs=2]", 200, 30, replayed_kernels(205, 50, 210, 3))
    steps = measure_serving_steps(trace(*step_entries(name, 0, 40, inside), *replayed))
    assert NotGraphed(int(steps.not_graphed[0])) is reason


def test_without_any_replay_the_engine_ran_eagerly() -> None:
    steps = measure_serving_steps(trace(*step_entries("step[DECODE bs=2]", 0, 40, eager_kernels(5, [1, 2], 10))))
    assert steps.not_graphed.tolist() == [NotGraphed.NO_GRAPHS]


def test_gaps_lie_between_the_steps_of_a_thread_and_count_idle_time_of_the_gpu() -> None:
    steps = measure_serving_steps(
        trace(
            annotation(PREFILL, 0, 20), runtime("cudaLaunchKernel", 5, 2, 1), kernel("k", 10, 25, 1),
            annotation(DECODE, 50, 10), annotation(DECODE, 65, 10), annotation(PREFILL, 55, 100, thread=7),
        )
    )  # fmt: skip
    assert steps.gap.tolist() == [30_000, 5_000, UNKNOWN, UNKNOWN]
    assert steps.gap_idle.tolist() == [15_000, 5_000, UNKNOWN, UNKNOWN]
    assert steps.pause.tolist() == [15_000, 5_000, 0, 0]


def test_step_times_lead_ins_and_pauses_sum_to_the_time_of_the_steps() -> None:
    rng = np.random.default_rng(3)
    entries: list[Entry] = []
    start, gpu = 0, 30
    for number in range(40):
        entries += [annotation(DECODE, start, 20), runtime("cudaLaunchKernel", start + 3, 2, number + 1)]
        gpu = max(gpu, start + 8)
        entries.append(kernel("k", gpu, int(rng.integers(5, 60)), number + 1))
        gpu += entries[-1]["dur"]
        start += int(rng.integers(21, 60))
    steps = measure_serving_steps(trace(*entries))
    last = max(int(steps.end[-1]), int(steps.gpu_end[-1]))
    assert int((steps.step_time + steps.lead_in + steps.pause).sum()) == last - int(steps.start[0])
    assert (steps.step_time >= 0).all()


def test_of_the_first_step_the_wait_for_unrecorded_work_is_not_counted() -> None:
    built = trace(
        annotation(DECODE, 0, 1000), runtime("cudaLaunchKernel", 5, 5, 1), kernel("k", 910, 20, 1),
        runtime("cudaStreamSynchronize", 20, 915, 2),
        annotation(DECODE, 1100, 100), runtime("cudaLaunchKernel", 1105, 5, 3), kernel("k", 1150, 20, 3),
        runtime("cudaStreamSynchronize", 1112, 60, 4),
    )  # fmt: skip
    steps = measure_serving_steps(built)
    # From 10 (launched) to 910 (it runs) and from 930 to 935 (nothing that is recorded runs).
    assert steps.lead_in.tolist() == [905_000, 0]
    assert steps.step_time.tolist() == [95_000, 100_000]
    assert steps.wait_time.tolist() == [915_000, 60_000]
    assert steps.cpu_time.tolist() == [85_000, 40_000]


def test_waits_inside_each_other_count_once_and_those_of_other_threads_do_not() -> None:
    built = trace(
        annotation(DECODE, 0, 100),
        runtime("cudaStreamSynchronize", 20, 30, 1),
        runtime("cuStreamSynchronize", 25, 10, 2),
        runtime("cudaStreamSynchronize", 10, 80, 3, thread=8),
        cpu("aten::mm", 1, 5),
    )
    assert measure_serving_steps(built).wait_time.tolist() == [30_000]


def test_a_name_of_vllms_form_around_steps_of_another_engine_is_of_that_engine() -> None:
    inner = annotation("step[DECODE bs=2]", 2, 5)
    assert measure_serving_steps(trace(annotation(DECODE, 0, 10), inner)).engines == ("SGLang",)


def test_time_per_token_is_unknown_where_the_tokens_are() -> None:
    steps = measure_serving_steps(trace(annotation(DECODE, 0, 10), annotation("execute_new_0_cached_2", 20, 5)))
    assert steps.time_per_token[0] == 5_000
    assert np.isnan(steps.time_per_token[1])


def test_a_trace_without_steps_has_no_rows_and_steps_are_measured_once() -> None:
    assert len(measure_serving_steps(trace(cpu("aten::mm", 0, 5), kernel("k", 1, 2)))) == 0
    assert len(measure_serving_steps(trace())) == 0
    built = serving_trace()
    assert get_serving_steps(built) is get_serving_steps(built)


def test_an_idle_step_has_no_time_per_token() -> None:
    steps = measure_serving_steps(trace(annotation("step[IDLE bs=0]", 0, 10)))
    assert KINDS[steps.kind[0]] is StepKind.IDLE
    assert np.isnan(steps.time_per_token).all()
