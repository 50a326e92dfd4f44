"""Test the bytes that operators must move against counts by hand."""

from __future__ import annotations

from typing import Any

import pytest

from torchprof_tui.analysis.kernel.names.model import KernelClass, KernelName
from torchprof_tui.analysis.throughput.op_formulas import count_bytes, working_classes
from torchprof_tui.analysis.throughput.op_inputs import OpInputs, parse_inputs

F, H, B, L = "float", "c10::BFloat16", "bool", "long int"
S, SL, TL = "Scalar", "ScalarList", "TensorList"
FP32 = KernelName("k", dtypes=("fp32",))
WEIGHTS = KernelName("k", display="norm weight gradients bwd fp32")

KNOWN: list[tuple[str, list[Any], list[str], list[str], int]] = [
    ("aten::mul", [[4, 8], [4, 8]], [F, F], [], 3 * 32 * 4),
    ("aten::mul", [[4, 8], [4, 8]], [H, F], [], 32 * 2 + 32 * 4 + 32 * 4),  # the result is fp32
    ("aten::mul", [[4, 8], [8]], [F, F], [], 32 * 4 + 8 * 4 + 32 * 4),  # broadcast
    ("aten::mul", [[4, 1], [1, 8]], [F, F], [], 4 * 4 + 8 * 4 + 32 * 4),
    ("aten::mul", [[32], []], [H, "double"], [], 64 + 8 + 64),  # a tensor without axes does not widen the result
    ("aten::add_", [[32], [32], []], [F, F, S], [], 3 * 128),
    ("aten::add", [[32], [32], [], [32]], [F, F, S, F], [], 3 * 128),  # the fourth is the output
    ("aten::sigmoid", [[32], [32]], [F, F], [], 2 * 128),  # so is the second of one
    ("aten::isneginf", [[32]], [F], [], 128 + 32),
    ("aten::eq", [[32], [32]], [L, L], [], 2 * 256 + 32),
    ("aten::where", [[8, 1], [], [8, 4], [8, 4]], [B, F, F, F], [], 8 + 4 + 128 + 128),
    ("aten::fill_", [[32], []], [F, S], [], 128),
    ("aten::copy_", [[32], [32], []], [H, F, S], [], 64 + 128),
    ("aten::copy_", [[4, 8], [8], []], [F, F, S], [], 128 + 32),
    ("aten::cat", [[[3, 8], [5, 8]], []], [TL, S], ["", "0"], 2 * 64 * 4),
    ("aten::_foreach_add_", [[[8], [24]], [[8], [24]], []], [TL, TL, S], [], 3 * 32 * 4),
    ("aten::_fused_adamw_", [[[8], [24]]], [TL], [], 7 * 32 * 4),
    ("aten::sum", [[4, 8], [], [], []], [H, SL, S, ""], ["", "[0]", "True", ""], 32 * 2 + 8 * 2),
    ("aten::mean", [[4, 8], [], []], [F, SL, S], ["", "[-1]", "False"], 32 * 4 + 4 * 4),
    ("aten::sum", [[4, 8], []], [F, ""], ["", ""], 32 * 4 + 4),
    ("aten::native_layer_norm", [[4, 8], [], [8], [8], []], [F, SL, F, F, S], [], 2 * 128),
    ("aten::cudnn_batch_norm_backward", [[2, 8], [2, 8], [8]], [F, F, F], [], 3 * 64),
    ("aten::_softmax", [[4, 8], [], []], [H, S, S], ["", "1", "False"], 2 * 64),
    ("aten::_softmax", [[4, 8], [], []], [H, S, S], ["", "1", "True"], 64 + 128),  # the result is fp32
    ("aten::_log_softmax_backward_data", [[4, 8], [4, 8], [], []], [F, F, S, S], [], 3 * 128),
    ("aten::index_select", [[100, 8], [], [10]], [F, S, L], ["", "0", ""], 80 + 2 * 10 * 8 * 4),
    ("aten::index_select", [[4, 8], [], [10]], [F, S, L], ["", "0", ""], 80 + (10 + 4) * 8 * 4),
    ("aten::mm", [[4, 8], [8, 2]], [H, H], [], 2 * (32 + 16 + 8)),
    ("aten::addmm", [[2], [4, 8], [8, 2], [], []], [H, H, H, S, S], [], 2 * (2 + 32 + 16 + 8)),
    ("aten::bmm", [[3, 4, 8], [3, 8, 2]], [F, F], [], 4 * 3 * (32 + 16 + 8)),
    ("aten::_scaled_mm", [[4, 8], [8, 2]], ["c10::Float8_e4m3fn"] * 2, [], 32 + 16 + 8 * 2),
    ("aten::linear", [[5, 4, 8], [2, 8]], [F, F], [], 4 * (160 + 16 + 40)),
    (
        "aten::cudnn_convolution",
        [[2, 3, 8, 8], [4, 3, 3, 3], [], [], []],
        [F, F, SL, SL, SL],
        ["", "", "[1, 1]", "[2, 2]", "[1, 1]"],
        4 * (384 + 108 + 2 * 4 * 4 * 4),
    ),
    ("aten::convolution_backward", [[2, 4, 4, 4], [2, 3, 8, 8], [4, 3, 3, 3]], [F, F, F], [], 4 * (128 + 384 + 108)),
    ("aten::_flash_attention_forward", [[1, 16, 2, 8]] * 3, [H] * 3, [], 4 * 256 * 2),
    ("aten::_cudnn_attention_backward", [[1, 2, 16, 8]] * 4, [H] * 4, [], 8 * 256 * 2),
]


@pytest.mark.parametrize(("op", "dims", "types", "concrete", "expected"), KNOWN)
def test_bytes_equal_the_count_by_hand(
    op: str, dims: list[Any], types: list[str], concrete: list[str], expected: int
) -> None:
    assert count_bytes(op, OpInputs(dims, types, [], concrete), FP32) == expected
    assert working_classes(op)


@pytest.mark.parametrize(
    ("op", "dims", "types"),
    [
        ("aten::nonzero", [[4]], [F]),  # the size of the result is in the data
        ("aten::mul", [[4], [5]], [F, F]),
        ("aten::mul", [[4]], ["a type of tomorrow"]),
        ("aten::mul", [], []),
        ("aten::cat", [[], []], [TL, S]),  # a list that torch omitted
        ("aten::_foreach_add_", [[], []], [TL, TL]),
        ("aten::mm", [[4, 8], [9, 2]], [F, F]),
        ("aten::mm", [[4, 8]], [F]),
        ("aten::copy_", [[4]], [F]),
        ("aten::index_select", [[4, 8], [], [10]], [F, S, L]),
        ("my::mul", [[4], [4]], [F, F]),
    ],
)
def test_what_cannot_be_inferred_is_not_counted(op: str, dims: list[Any], types: list[str]) -> None:
    assert count_bytes(op, OpInputs(dims, types, [], []), FP32) is None


def test_an_expanded_axis_is_read_once() -> None:
    inputs = OpInputs([[4, 8], [4, 8]], [F, F], [[8, 1], [0, 1]], [])
    assert count_bytes("aten::mul", inputs, FP32) == 128 + 32 + 128


def test_the_kernel_of_the_weights_gradients_writes_no_data_gradient() -> None:
    inputs = OpInputs([[4, 8], [4, 8]], [F, F], [], [])
    assert count_bytes("aten::native_layer_norm_backward", inputs, FP32) == 3 * 128
    assert count_bytes("aten::native_layer_norm_backward", inputs, WEIGHTS) == 2 * 128


def test_a_concatenation_needs_one_element_size_in_the_kernel_name() -> None:
    inputs = OpInputs([[[8], [8]], []], [TL, S], [], [])
    assert count_bytes("aten::cat", inputs, KernelName("k", dtypes=("2-byte",))) == 2 * 16 * 2
    assert count_bytes("aten::cat", inputs, KernelName("k")) is None


def test_classes_of_the_kernel_that_does_the_work() -> None:
    assert working_classes("aten::mm") == (KernelClass.GEMM, KernelClass.CONV, KernelClass.ATTENTION)
    assert working_classes("aten::sum") == (KernelClass.REDUCTION,)
    assert working_classes("aten::native_layer_norm") == (KernelClass.NORM,)
    assert KernelClass.COPY in working_classes("aten::copy_")
    assert working_classes("aten::nonzero") == ()


def test_args_without_shapes_have_no_inputs() -> None:
    assert parse_inputs({"External id": 3}) is None
    parsed = parse_inputs({"Input Dims": [[4]], "Input type": ["float"]})
    assert parsed is not None
    assert count_bytes("aten::neg", parsed, FP32) == 32
