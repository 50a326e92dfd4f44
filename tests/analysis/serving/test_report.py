"""Test the summaries of steps by kind, and the times of layers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers.serving_traces import serving_trace
from tests.helpers.trace_builder import annotation, kernel, python, runtime, trace
from torchprof_tui.analysis.serving.measure_steps import measure_serving_steps
from torchprof_tui.analysis.serving.report import measure_layers, summarize_kinds
from torchprof_tui.analysis.serving.serving_steps import NotGraphed
from torchprof_tui.trace.model.steps import StepKind
from torchprof_tui.trace.model.trace import Trace


def test_each_kind_is_summed() -> None:
    prefill, decode, mixed = summarize_kinds(measure_serving_steps(serving_trace(2)))
    assert (prefill.kind, prefill.steps, prefill.tokens) == (StepKind.PREFILL, 2, 1024)
    assert (decode.kind, decode.steps, decode.tokens, decode.batch) == (StepKind.DECODE, 6, 12, 2)
    assert (mixed.kind, mixed.steps, mixed.tokens) == (StepKind.MIXED, 2, 200)
    assert decode.step_p50 == decode.step_p95 == 40_000
    assert decode.token_p50 == 20_000
    assert decode.tokens_per_second == pytest.approx(12 / 240e-6)
    assert decode.tokens_per_second_with_pauses == pytest.approx(12 / (240e-6 + 6 * 60e-6))
    assert decode.kernels_per_token == 2.5
    assert decode.graph_share == 0.8
    assert decode.not_graphed == ((NotGraphed.AROUND_GRAPH, 6),)
    assert prefill.not_graphed == ((NotGraphed.PROMPTS, 4),)
    assert prefill.graph_share == 0
    assert decode.gap_p50 == 60_000
    assert mixed.gap_sum == 400_000


def test_steps_without_tokens_are_counted_but_not_for_rates() -> None:
    steps = measure_serving_steps(
        trace(
            annotation("step[MIXED bs=3 c=1 g=2 c_sq=8 g_sq=2]", 0, 10),
            annotation("step[MIXED bs=5]", 20, 30),
        )
    )
    (mixed,) = summarize_kinds(steps)
    assert (mixed.steps, mixed.counted, mixed.tokens) == (2, 1, 10)
    assert mixed.tokens_per_second == pytest.approx(10 / 10e-6)
    assert mixed.graph_share is None
    assert mixed.gap_idle is None


def test_what_nothing_says_is_none() -> None:
    (decode,) = summarize_kinds(measure_serving_steps(trace(annotation("execute_new_0_cached_2", 0, 5))))
    assert decode.tokens is decode.tokens_per_second is decode.token_p50 is decode.kernels_per_token is None
    assert decode.kv_length is decode.gap_p50 is None


def test_chosen_steps_alone_are_summed() -> None:
    steps = measure_serving_steps(serving_trace(2))
    chosen = np.zeros(len(steps), np.bool_)
    chosen[[1, 2]] = True
    (decode,) = summarize_kinds(steps, chosen)
    assert decode.steps == 2


DECODE = "execute_context_0(0)_generation_2(2)"


def build_step(layer_names: list[str], start: float = 0) -> list[dict[str, object]]:
    """A step with two layers of 40 µs, each with a norm; layer i has kernels of 10 (i + 1) and 1 µs."""
    entries = [annotation(DECODE, start, 100), python("nn.Module: Model_0", start + 1, 98)]
    for index, name in enumerate(layer_names):
        at, number = start + 10 + 40 * index, int(start) * 100 + 2 * index + 1
        maker = annotation if "layers" in name else python
        entries += [
            maker(name, at, 40),
            python(f"nn.Module: Norm_{index}", at + 20, 10),
            runtime("cudaLaunchKernel", at + 5, 1, number), kernel("gemm", at + 200, 10 * (index + 1), number),
            runtime("cudaLaunchKernel", at + 22, 1, number + 1), kernel("norm", at + 230, 1, number + 1),
        ]  # fmt: skip
    return entries


def measure(built: Trace) -> object:
    return measure_layers(built, measure_serving_steps(built))


def test_the_module_with_several_numbers_and_most_gpu_time_is_the_layer() -> None:
    names = ["nn.Module: Qwen3DecoderLayer_0", "nn.Module: Qwen3DecoderLayer_1"]
    built = trace(*build_step(names), *build_step(names, 1000))
    layers = measure_layers(built, measure_serving_steps(built))
    assert layers is not None
    assert layers.name == "Qwen3DecoderLayer"
    assert layers.step.tolist() == [0, 0, 1, 1]
    assert layers.layer.tolist() == [0, 1, 0, 1]
    assert layers.gpu_time.tolist() == [11_000, 21_000] * 2
    assert layers.cpu_time.tolist() == [40_000] * 4
    assert [column.tolist() for column in layers.medians] == [[0, 1], [11_000, 21_000], [40_000, 40_000]]
    assert not layers.is_captured


def test_annotations_of_layers_count_as_well() -> None:
    built = trace(*build_step(["model.layers.4", "model.layers.5"]))
    layers = measure_layers(built, measure_serving_steps(built))
    assert layers is not None
    assert (layers.name, layers.layer.tolist()) == ("layers", [4, 5])


def test_one_module_of_each_name_is_no_layer() -> None:
    assert measure(trace(annotation(DECODE, 0, 50), python("nn.Module: Model_0", 1, 40))) is None


def test_a_trace_without_steps_has_no_layers() -> None:
    assert measure(trace(python("nn.Module: L_0", 1, 40), python("nn.Module: L_1", 50, 40))) is None
