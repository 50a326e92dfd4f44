"""Sums and percentiles of serving steps by kind."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers.serving_traces import serving_trace
from tests.helpers.trace_builder import annotation, trace
from torchprof_tui.analysis.serving.kind_summaries import summarize_kinds
from torchprof_tui.analysis.serving.measure_steps import measure_serving_steps
from torchprof_tui.analysis.serving.serving_steps import NotGraphed
from torchprof_tui.trace.model.serving_names import StepKind


def test_each_kind_is_summed() -> None:
    prefill, decode, mixed = summarize_kinds(measure_serving_steps(serving_trace(2)))
    assert (prefill.kind, prefill.count, prefill.tokens) == (StepKind.PREFILL, 2, 1024)
    assert (decode.kind, decode.count, decode.tokens, decode.batch_p50) == (StepKind.DECODE, 6, 12, 2)
    assert (mixed.kind, mixed.count, mixed.tokens) == (StepKind.MIXED, 2, 200)
    assert decode.step_time_p50 == decode.step_time_p95 == 40_000
    assert decode.time_per_token_p50 == 20_000
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
    assert (mixed.count, mixed.counted, mixed.tokens) == (2, 1, 10)
    assert mixed.tokens_per_second == pytest.approx(10 / 10e-6)
    assert mixed.graph_share is None
    assert mixed.gap_idle_sum is None


def test_what_nothing_says_is_none() -> None:
    (decode,) = summarize_kinds(measure_serving_steps(trace(annotation("execute_new_0_cached_2", 0, 5))))
    assert decode.tokens is decode.tokens_per_second is decode.time_per_token_p50 is decode.kernels_per_token is None
    assert decode.kv_length_p50 is decode.gap_p50 is None


def test_chosen_steps_alone_are_summed() -> None:
    steps = measure_serving_steps(serving_trace(2))
    chosen = np.zeros(len(steps), np.bool_)
    chosen[[1, 2]] = True
    (decode,) = summarize_kinds(steps, chosen)
    assert decode.count == 2
