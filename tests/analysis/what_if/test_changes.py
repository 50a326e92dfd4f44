"""Test which work of a step compiled code merges, and what it costs on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.analysis.what_if.test_forecast import ADD, GEMM, predict
from tests.helpers.trace_builder import TID, cpu, kernel, memset, runtime, step, trace
from torchprof_tui.analysis.what_if.back_to_back import RankChanges
from torchprof_tui.analysis.what_if.changes import (
    COMPILED_REGION,
    EXTERN_CALL,
    EXTERN_DISPATCH,
    FUSED_CALL,
    compile_step,
    select_fusible,
    select_split_reductions,
)
from torchprof_tui.analysis.what_if.forecast import Forecaster
from torchprof_tui.analysis.what_if.scenario import Scenario, ScenarioKind
from torchprof_tui.analysis.what_if.step_model import RankModel, build_step_model
from torchprof_tui.trace.model.event_kind import Kind

REDUCE = (
    "void at::native::reduce_kernel<128, 4, at::native::ReduceOp<float, at::native::func_wrapper_t<float, "
    "at::native::sum_functor<float, float, float>::operator()(at::TensorIterator&)::{lambda(float, float)#1}>, "
    "unsigned int, float, 4, 8> >(at::native::ReduceOp<float>)"
)
SORT = "void at_cuda_detail::cub::detail::radix_sort::DeviceRadixSortOnesweepKernel<long>"
GATHER = "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long, long, long, long, bool)"
LAYER_NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>"
BACKWARD = TID + 1


def build(*ops: tuple[str, int, list[str]]) -> RankModel:
    """Build a step of ops one after the other: name, thread, and the names of what they launch."""
    entries: list[Any] = [step(1, 0, 100 * len(ops))]
    correlation = 0
    for number, (op, thread, names) in enumerate(ops):
        start = 100 * number
        entries.append(cpu(op, start, 90, thread))
        for index, name in enumerate(names):
            correlation += 1
            is_memset = name == "Memset (Device)"
            call = "cudaMemsetAsync" if is_memset else "cudaLaunchKernel"
            entries.append(runtime(call, start + 5 * index, 4, correlation, thread))
            make = memset if is_memset else kernel
            entries.append(make(name, start + 10 + 10 * index, 5, correlation))
    return build_step_model(trace(*entries)).ranks[0]


@pytest.mark.parametrize(
    ("op", "names", "expected"),
    [
        ("aten::add", [ADD], [True]),
        ("aten::mm", ["Memset (Device)", GEMM], [False, False]),
        ("aten::sum", ["Memset (Device)", REDUCE], [True, True]),
        ("aten::sort", ["Memset (Device)", SORT], [False, False]),
        ("aten::embedding_dense_backward", ["Memset (Device)", SORT, GATHER], [True, True, True]),
        ("my_ops::add", [ADD], [False]),
        ("aten::roll", ["void at::native::roll_cuda_kernel<float>(float const*, float*, long)"], [True]),
    ],
)
def test_what_generated_kernels_do(op: str, names: list[str], expected: list[bool]) -> None:
    assert select_fusible(build((op, TID, names))).tolist() == expected


def test_a_copy_from_the_host_stays() -> None:
    model = build(
        ("aten::copy_", TID, ["Memcpy HtoD (Pinned -> Device)"]),
        ("aten::copy_", TID, ["Memcpy DtoD (Device -> Device)"]),
    )
    assert select_fusible(model).tolist() == [False, True]


def test_reductions_that_are_split() -> None:
    cleared, not_cleared = ["Memset (Device)", REDUCE], [REDUCE]
    model = build(
        ("aten::sum", TID, cleared),
        ("aten::native_layer_norm", TID, [LAYER_NORM]),
        ("aten::native_batch_norm", TID, [LAYER_NORM, LAYER_NORM]),
        ("aten::sum", BACKWARD, cleared),
        ("aten::sum", BACKWARD, not_cleared),
    )
    assert select_split_reductions(model).tolist() == [False, False, False, True, False, False, True, False]


def test_no_reduction_is_split_in_inference() -> None:
    assert not select_split_reductions(build(("aten::native_batch_norm", TID, [LAYER_NORM, LAYER_NORM]))).any()


def test_a_split_reduction_takes_a_launch_more() -> None:
    def sum_costs(names: list[str]) -> int:
        changes = RankChanges(build(("aten::sum", BACKWARD, names)))
        assert compile_step(changes)
        return int(changes.added.sum())

    assert sum_costs([REDUCE]) == COMPILED_REGION + 4_000 * FUSED_CALL
    assert sum_costs(["Memset (Device)", REDUCE]) == COMPILED_REGION + 2 * 4_000 * FUSED_CALL


@pytest.mark.parametrize("slowness", [1, 3])
def test_the_cost_of_launches_follows_the_cpu(slowness: int) -> None:
    entries = [step(1, 0, 3000 * slowness)]
    for number in range(20):
        start = 100 * slowness * number
        entries += [
            cpu("aten::add", start, 20 * slowness),
            runtime("cudaLaunchKernel", start + 4 * slowness, 5 * slowness, number + 1),
            kernel(ADD, start + 20 * slowness, 1, number + 1),
            cpu("aten::mm", start + 50 * slowness, 40 * slowness),
            runtime("cudaLaunchKernel", start + 54 * slowness, 5 * slowness, number + 101),
            kernel(GEMM, start + 80 * slowness, 1, number + 101),
        ]
    outside, kept, generated = 1_010_000, 20 * 40_000 * EXTERN_DISPATCH, 20 * 5_000 * (EXTERN_CALL + FUSED_CALL)
    assert predict(entries, "compile").after == slowness * (outside + kept + generated) + COMPILED_REGION


def loop_of_ops(between: float) -> list[Any]:
    """A step of 1 ms with three ops of 20 µs from 100 µs on, `between` µs of the thread's own code between two."""
    return [step(1, 0, 1000), *(cpu("aten::add", 100 + number * (20 + between), 20) for number in range(3))]


@pytest.mark.parametrize(("between", "saved"), [(50, 160), (150, 60)])
def test_the_code_that_calls_what_is_gone_is_gone_too(between: float, saved: float) -> None:
    """Of a loop that is gone the code between its calls goes, too; a longer pause is work of its own."""
    model = build_step_model(trace(*loop_of_ops(between)))
    rows = np.flatnonzero(model.ranks[0].trace.kind == Kind.OP).tolist()
    gone = Scenario("gone", ScenarioKind.EVENT, factor=0.0, rows=np.array(rows, np.int64).tobytes())
    assert Forecaster(model).measure_saving(gone) == (1_000_000, 1_000_000 - 1000 * saved)


def test_code_between_two_calls_stays_where_another_call_is_made_in_it() -> None:
    model = build_step_model(trace(*loop_of_ops(50), cpu("aten::mul", 130, 10)))
    own = model.ranks[0].trace
    rows = [row for row in np.flatnonzero(own.kind == Kind.OP).tolist() if own.names[own.name[row]] == "aten::add"]
    gone = Scenario("gone", ScenarioKind.EVENT, factor=0.0, rows=np.array(rows, np.int64).tobytes())
    assert Forecaster(model).measure_saving(gone) == (1_000_000, 890_000)
