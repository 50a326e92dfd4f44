"""Count the floating-point operations of an operator from its input shapes.

A multiplication and an addition count as two. Formulas as in `torch/utils/flop_counter.py` (matrix products,
convolution, attention; causal masks are not discounted), with groups of a convolution taken from the weight's shape.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod
from typing import Any

Sizes = list[int]


class _UnexpectedInputsError(Exception):
    """The inputs do not fit the operator, so its FLOPs are unknown."""


def count_flops(operator: str, dims: list[Any], concrete: list[Any]) -> int | None:
    """Count one call's FLOPs; `dims`, `concrete` as in the trace. None for other operators and unexpected inputs."""
    count = _FORMULAS.get(operator)
    if count is None:
        return None
    try:
        return count(dims, concrete)
    except _UnexpectedInputsError:
        return None


def has_formula(operator: str) -> bool:
    """Return whether there is a formula for this operator."""
    return operator in _FORMULAS


def _tensor_sizes(dims: list[Any], index: int, rank: int | None = None) -> Sizes:
    """Return the sizes of one input. Raises _UnexpectedInputsError if it is no tensor, or not of this `rank`."""
    sizes = dims[index] if index < len(dims) else None
    if not isinstance(sizes, list) or not sizes or not all(type(size) is int for size in sizes):
        raise _UnexpectedInputsError
    if rank is not None and len(sizes) != rank:
        raise _UnexpectedInputsError
    return sizes


def _mm_formula(first: int) -> Callable[[list[Any], list[Any]], int]:
    """Return the formula of a matrix product a @ b; the operands are the inputs `first` and `first + 1`."""

    def count(dims: list[Any], _: list[Any]) -> int:
        (m, k), (k_of_b, n) = _tensor_sizes(dims, first, 2), _tensor_sizes(dims, first + 1, 2)
        return _require_equal(k, k_of_b) * 2 * m * n

    return count


def _bmm_formula(first: int) -> Callable[[list[Any], list[Any]], int]:
    """Return the formula of a batched matrix product; the operands are the inputs `first` and `first + 1`."""

    def count(dims: list[Any], _: list[Any]) -> int:
        (batch, m, k), (batch_of_b, k_of_b, n) = _tensor_sizes(dims, first, 3), _tensor_sizes(dims, first + 1, 3)
        return _require_equal(batch, batch_of_b) * _require_equal(k, k_of_b) * 2 * m * n

    return count


def _linear_flops(dims: list[Any], _: list[Any]) -> int:
    input_sizes, weight = _tensor_sizes(dims, 0), _tensor_sizes(dims, 1)
    if len(weight) not in (1, 2):
        raise _UnexpectedInputsError
    _require_equal(input_sizes[-1], weight[-1])
    return 2 * prod(input_sizes) * (weight[0] if len(weight) == 2 else 1)


def _matmul_flops(dims: list[Any], _: list[Any]) -> int:
    """Compute the FLOPs of `torch.matmul`, with its broadcasting."""
    a, b = _tensor_sizes(dims, 0), _tensor_sizes(dims, 1)
    k = _require_equal(a[-1], b[-2] if len(b) > 1 else b[-1])
    rows, columns = (a[-2] if len(a) > 1 else 1), (b[-1] if len(b) > 1 else 1)
    batch = 1
    batch_a, batch_b = a[:-2], b[:-2]
    for axis in range(1, max(len(batch_a), len(batch_b)) + 1):
        size_a = batch_a[-axis] if axis <= len(batch_a) else 1
        size_b = batch_b[-axis] if axis <= len(batch_b) else 1
        if size_a != size_b and 1 not in (size_a, size_b):
            raise _UnexpectedInputsError
        batch *= size_a * size_b if 1 in (size_a, size_b) else size_a
    return 2 * batch * rows * columns * k


def _require_equal(size: int, other_size: int) -> int:
    if size != other_size:
        raise _UnexpectedInputsError
    return size


def _convolution_flops(data: Sizes, weight: Sizes, out: Sizes, transposed: bool) -> int:
    """Compute a convolution's FLOPs: each output position (transposed: input) uses the whole filter of one group."""
    if len(data) != len(weight) or len(data) < 3:
        raise _UnexpectedInputsError
    positions = data[2:] if transposed else out
    return 2 * data[0] * prod(positions) * prod(weight)


def _output_sizes(data: Sizes, weight: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes) -> Sizes:
    """Compute the spatial output sizes of a convolution (formula of the documentation of `torch.nn.Conv2d`)."""
    rank = len(data) - 2
    stride, padding, dilation = (
        values * rank if len(values) == 1 else values for values in (stride, padding, dilation)
    )
    if not len(stride) == len(padding) == len(dilation) == rank or not all(stride):
        raise _UnexpectedInputsError
    sizes = zip(data[2:], weight[2:], stride, padding, dilation, strict=True)
    return [
        (size + 2 * pad - dilation_step * (kernel - 1) - 1) // step + 1
        for size, kernel, step, pad, dilation_step in sizes
    ]


def _convolution_formula(
    stride: int, padding: int, dilation: int, transposed: int | None
) -> Callable[[list[Any], list[Any]], int]:
    """Return the formula of a forward convolution; the arguments are its parameters' indices among the inputs."""

    def count(dims: list[Any], concrete: list[Any]) -> int:
        data, weight = _tensor_sizes(dims, 0), _tensor_sizes(dims, 1, len(_tensor_sizes(dims, 0)))
        if transposed is not None and _parse_flag(concrete, transposed):
            return _convolution_flops(data, weight, [], True)
        steps, pads, dilations = (_parse_numbers(concrete, index) for index in (stride, padding, dilation))
        return _convolution_flops(data, weight, _output_sizes(data, weight, steps, pads, dilations), False)

    return count


def _conv_transpose_flops(dims: list[Any], _: list[Any]) -> int:
    data = _tensor_sizes(dims, 0)
    return _convolution_flops(data, _tensor_sizes(dims, 1, len(data)), [], True)


def _conv_backward_flops(dims: list[Any], concrete: list[Any]) -> int:
    """Compute a convolution backward's FLOPs: the forward's for each gradient (data, weight) in the output mask."""
    grad, data = _tensor_sizes(dims, 0), _tensor_sizes(dims, 1)
    weight = _tensor_sizes(dims, 2, len(data))
    forward = _convolution_flops(data, weight, grad[2:], _parse_flag(concrete, 7))
    mask = re.findall(r"True|False", str(concrete[10]) if len(concrete) > 10 else "")
    return forward * (mask[:2].count("True") if len(mask) >= 2 else 2)


def _parse_numbers(concrete: list[Any], index: int) -> Sizes:
    """Parse a list of numbers: `"[1, 1]"` -> [1, 1]."""
    text = str(concrete[index]) if index < len(concrete) else ""
    if not re.fullmatch(r"\[?\d+(, ?\d+)*\]?", text):
        raise _UnexpectedInputsError
    return [int(number) for number in re.findall(r"\d+", text)]


def _parse_flag(concrete: list[Any], index: int) -> bool:
    return index < len(concrete) and str(concrete[index]) in ("True", "1")


def _attention_formula(query: int, sequence: int, products: tuple[int, int]) -> Callable[[list[Any], list[Any]], int]:
    """Return the formula of attention: the scores and their product with the values.

    `sequence` is the axis of positions: 2 for [batch, heads, positions, size], 1 for [batch, positions, heads, size].
    `products`: the number of matrix products of the size of q @ k, and of p @ v.
    """

    def count(dims: list[Any], _: list[Any]) -> int:
        q, k, v = (_tensor_sizes(dims, query + offset, 4) for offset in range(3))
        _require_equal(q[0], k[0])
        _require_equal(q[3], k[3])
        _require_equal(k[sequence], v[sequence])
        heads = q[3 - sequence]
        scores = 2 * q[0] * heads * q[sequence] * k[sequence]
        return scores * (products[0] * q[3] + products[1] * v[3])

    return count


_FORWARD_PRODUCTS, _BACKWARD_PRODUCTS = (1, 1), (3, 2)
"""Backward: q @ k again, then the gradients of the scores and of v (the size of p @ v), of q and of k."""

_FORMULAS: dict[str, Callable[[list[Any], list[Any]], int]] = {
    "aten::mm": _mm_formula(0),
    "aten::addmm": _mm_formula(1),
    "aten::_addmm_activation": _mm_formula(1),
    "aten::_scaled_mm": _mm_formula(0),
    "aten::_int_mm": _mm_formula(0),
    "aten::bmm": _bmm_formula(0),
    "aten::baddbmm": _bmm_formula(1),
    "aten::linear": _linear_flops,
    "aten::matmul": _matmul_flops,
    "aten::conv1d": _convolution_formula(3, 4, 5, None),
    "aten::conv2d": _convolution_formula(3, 4, 5, None),
    "aten::conv3d": _convolution_formula(3, 4, 5, None),
    "aten::convolution": _convolution_formula(3, 4, 5, 6),
    "aten::_convolution": _convolution_formula(3, 4, 5, 6),
    "aten::cudnn_convolution": _convolution_formula(3, 2, 4, None),
    "aten::miopen_convolution": _convolution_formula(4, 3, 5, None),
    "aten::conv_transpose1d": _conv_transpose_flops,
    "aten::conv_transpose2d": _conv_transpose_flops,
    "aten::conv_transpose3d": _conv_transpose_flops,
    "aten::convolution_backward": _conv_backward_flops,
    "aten::scaled_dot_product_attention": _attention_formula(0, 2, _FORWARD_PRODUCTS),
    "aten::_scaled_dot_product_flash_attention": _attention_formula(0, 2, _FORWARD_PRODUCTS),
    "aten::_scaled_dot_product_efficient_attention": _attention_formula(0, 2, _FORWARD_PRODUCTS),
    "aten::_scaled_dot_product_cudnn_attention": _attention_formula(0, 2, _FORWARD_PRODUCTS),
    "aten::_scaled_dot_product_flash_attention_backward": _attention_formula(1, 2, _BACKWARD_PRODUCTS),
    "aten::_scaled_dot_product_efficient_attention_backward": _attention_formula(1, 2, _BACKWARD_PRODUCTS),
    "aten::_scaled_dot_product_cudnn_attention_backward": _attention_formula(1, 2, _BACKWARD_PRODUCTS),
    "aten::_flash_attention_forward": _attention_formula(0, 1, _FORWARD_PRODUCTS),
    "aten::_cudnn_attention_forward": _attention_formula(0, 2, _FORWARD_PRODUCTS),
    "aten::_cudnn_attention_backward": _attention_formula(1, 2, _BACKWARD_PRODUCTS),
    "aten::_efficient_attention_forward": _attention_formula(0, 1, _FORWARD_PRODUCTS),
    "aten::_flash_attention_backward": _attention_formula(1, 1, _BACKWARD_PRODUCTS),
    "aten::_efficient_attention_backward": _attention_formula(1, 1, _BACKWARD_PRODUCTS),
}
