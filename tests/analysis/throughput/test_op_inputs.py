"""Test the reason that the shape of a matrix product gives for a low rate."""

from __future__ import annotations

import pytest

from torchprof_tui.analysis.throughput.op_inputs import OpInputs, ProductShape, explain_shape, find_product_shape


@pytest.mark.parametrize(
    ("shape", "dtype", "reason"),
    [
        ((1, 1, 4096, 4096), "bf16", "m = 1: "),
        ((1, 4096, 8, 4096), "bf16", "n = 8: "),
        ((1, 4096, 4097, 4096), "bf16", "n = 4097: not a multiple of 8"),
        ((1, 4096, 4097, 33), "bf16", "n = 4097, k = 33: not a multiple of 8"),
        ((1, 1024, 1024, 4096), "bf16", "64 tiles of 128×128 for 132 SMs"),
        ((64, 2048, 2048, 64), "bf16", "k = 64: "),
        ((1, 8192, 8192, 8192), "fp32", "fp32: "),
        ((1, 8192, 8192, 8192), "bf16", ""),
    ],
)
def test_reason(shape: tuple[int, int, int, int], dtype: str, reason: str) -> None:
    text = explain_shape(ProductShape(*shape), dtype, 132)
    assert text.startswith(reason)
    assert bool(text) == bool(reason)


def test_without_a_number_of_sms_tiles_are_no_reason() -> None:
    assert explain_shape(ProductShape(1, 1024, 1024, 4096), "bf16", None) == ""


def test_sizes_come_from_the_operands() -> None:
    inputs = OpInputs([[2], [4, 8], [8, 2]], ["float"] * 3, [], [])
    assert find_product_shape("aten::addmm", inputs) == (1, 4, 2, 8)
    assert find_product_shape("aten::mm", inputs) is None
    assert find_product_shape("aten::mul", inputs) is None
    assert find_product_shape("aten::bmm", OpInputs([[3, 4, 8], [3, 8, 2]], ["float"] * 2, [], [])) == (3, 4, 2, 8)
