"""Test the patterns of kernels that their inputs suit badly, by literal launches and inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.pattern_cases import ABSENT, CANNOT_TELL, FIRED, Cases, case_params, find_missing_answers
from tests.helpers.pattern_traces import ADD, GEMM, GPU_ONLY, H200, SOFTMAX, check_pattern, check_saved, op_with_work
from tests.helpers.trace_builder import Entry, cpu, kernel, step, trace
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.analysis.patterns.rules import kernel_shapes

STRIDED = "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<CUDAFunctor_add<float> > >"
SCATTER = "void at::native::indexFuncLargeIndex<float, long, unsigned int, 2, 2, -2, true, at::native::ReduceAdd>"
MEM_EFFICIENT = (
    "fmha_cutlassF_{0}_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<{1}, cutlass::arch::Sm80>)"
)
HALF_ATTENTION = MEM_EFFICIENT.format("bf16", "cutlass::bfloat16_t")
FLOAT_ATTENTION = MEM_EFFICIENT.format("f32", "float")
HALF_GEMM = (
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize2x1x1_execute_segment_k_off_kernel"
)
FLOAT_GEMM = "ampere_sgemm_128x64_tn"
DOUBLE = "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<double>, std::array<char*, 3ul> >(int)"


def op(name: str, kernel_name: str, duration: float = 100, **args: Any) -> list[Entry]:
    entries = op_with_work(name, 100, 110, duration, kernel_name)
    entries[0] = cpu(name, 100, 8, **args)
    return [step(1, 0, 1_000), *entries]


def shapes(*dims: list[int], types: str = "float", **more: Any) -> dict[str, Any]:
    return {"Input Dims": [list(each) for each in dims], "Input type": [types] * len(dims), **more}


def add(left: list[int], right: list[int]) -> dict[str, Any]:
    """Inputs of an addition of two 64 × 64 tensors with these strides."""
    return shapes([64, 64], [64, 64], **{"Input Strides": [left, right]})


def index_add(targets: int, rows: int) -> dict[str, Any]:
    dims = [[targets, 64], [], [rows], [rows, 64]]
    types = ["float", "Scalar", "long int", "float"]
    return {"Input Dims": dims, "Input type": types, "Concrete Inputs": ["", "0", "", ""]}


CASES: Cases = {
    "odd-matrix-size": {
        FIRED: op("aten::mm", GEMM, **shapes([512, 1_021], [1_021, 1_024], types="c10::BFloat16")),
        ABSENT: op("aten::mm", GEMM, **shapes([511, 1_024], [1_024, 1_024], types="c10::BFloat16")),
        CANNOT_TELL: op("aten::mm", GEMM),
    },
    "strided-reads": {
        FIRED: op("aten::add", STRIDED, **add([64, 1], [1, 64])),
        ABSENT: op("aten::add", STRIDED, **add([64, 1], [64, 1])),
        CANNOT_TELL: op("aten::add", STRIDED),
    },
    "colliding-atomics": {
        FIRED: op("aten::index_add_", SCATTER, **index_add(8, 100_000)),
        ABSENT: op("aten::index_add_", SCATTER, **index_add(5_000, 100_000)),
        CANNOT_TELL: op("aten::index_add_", SCATTER),
    },
    "float64-kernels": {
        FIRED: op("aten::add", DOUBLE),
        ABSENT: op("aten::add", ADD),
        CANNOT_TELL: [cpu("aten::add", 0, 5)],
    },
    "float32-attention": {
        FIRED: [*op("aten::mm", HALF_GEMM), *op_with_work("aten::sdpa", 300, 310, 100, FLOAT_ATTENTION)],
        ABSENT: [*op("aten::mm", HALF_GEMM), *op_with_work("aten::sdpa", 300, 310, 100, HALF_ATTENTION)],
        CANNOT_TELL: [cpu("aten::add", 0, 5)],
    },
    "few-blocks": {CANNOT_TELL: GPU_ONLY},
}


def on_h200(blocks: int, duration: float, name: str = SOFTMAX) -> State:
    entries = [step(1, 0, 1_000), kernel(name, 100, duration, grid=[blocks, 1, 1], block=[1_024, 1, 1])]
    return check_pattern(trace(*entries, header={"deviceProperties": [H200]}), "few-blocks").state


def test_attention_in_float32_is_no_fault_where_the_products_are_too() -> None:
    entries = [*op("aten::mm", FLOAT_GEMM), *op_with_work("aten::sdpa", 300, 310, 100, FLOAT_ATTENTION)]
    assert check_pattern(trace(*entries), "float32-attention").state is ABSENT


SORTED_ADD = "void (anonymous namespace)::indexing_backward_kernel<float, 4>(long const*, long const*, float const*)"


@pytest.mark.parametrize(("rows", "state"), [(500_000, FIRED), (800, ABSENT)])
def test_equal_rows_that_the_gradient_of_an_indexing_adds(rows: int, state: State, tmp_path: Path) -> None:
    inputs: dict[str, Any] = {
        "Input Dims": [[8, 256], [], [rows, 256], [], []],
        "Input type": ["float", "", "float", "", ""],
    }
    finding = check_saved(tmp_path, "colliding-atomics", *op("aten::_index_put_impl_", SORTED_ADD, **inputs))
    assert finding.state is state
    if state is FIRED:
        assert "gradient adds equal rows" in finding.answer.headline
        assert "F.embedding" in finding.remedy.action


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State, tmp_path: Path) -> None:
    finding = check_saved(tmp_path, name, *CASES[name][state])
    assert finding.state is state, finding.answer
    assert finding.answer.reason if state is CANNOT_TELL else True
    assert len(finding.answer.events) > 0 if state is FIRED else True


def test_every_pattern_has_a_trace_for_each_answer() -> None:
    assert not find_missing_answers(kernel_shapes, {**CASES, "few-blocks": {FIRED: [], ABSENT: [], CANNOT_TELL: []}})


def test_a_copy_into_another_layout_is_no_strided_read(tmp_path: Path) -> None:
    finding = check_saved(tmp_path, "strided-reads", *op("aten::copy_", STRIDED, **add([64, 1], [1, 64])))
    assert finding.state is ABSENT


@pytest.mark.parametrize(
    ("blocks", "duration", "state"), [(4, 500, FIRED), (32, 500, FIRED), (33, 500, ABSENT), (4, 20, ABSENT)]
)
def test_few_blocks_are_those_below_a_quarter_of_the_sms_in_a_long_kernel(
    blocks: int, duration: float, state: State
) -> None:
    assert on_h200(blocks, duration) is state


@pytest.mark.parametrize(
    "name",
    [
        "sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x64x32",
        "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>(Flash_fwd_params)",
    ],
)
def test_blocks_of_convolutions_and_attention_are_chosen_by_their_library(name: str) -> None:
    assert on_h200(4, 500, name) is ABSENT


def test_a_fault_of_which_the_saving_is_not_known_claims_none(tmp_path: Path) -> None:
    finding = check_saved(tmp_path, "odd-matrix-size", *CASES["odd-matrix-size"][FIRED])
    assert finding.answer.removed is not None and not len(finding.answer.removed)  # noqa: PT018 - one statement on types
