"""How many floating-point operations an operator does, from the shapes it was called with.

A multiplication and an addition count two. Formulas as in `torch/utils/flop_counter.py` (matrix products, convolution,
attention; causal masks are not discounted), with groups of a convolution taken from the weight's own shape.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod
from typing import Any

Sizes = list[int]


class _UnexpectedInputsError(Exception):
    """These are not the inputs that the operator takes: no count."""


def count_flops(operator: str, dims: list[Any], concrete: list[Any]) -> int | None:
    """Of one call; `dims` and `concrete` as the trace has them. None for other operators and for odd inputs."""
    count = _FORMULAS.get(operator)
    if count is None:
        return None
    try:
        return count(dims, concrete)
    except _UnexpectedInputsError:
        return None


def has_formula(operator: str) -> bool:
    """Is there a formula for this operator?"""
    return operator in _FORMULAS


def _tensor_sizes(dims: list[Any], place: int, rank: int | None = None) -> Sizes:
    """The sizes of one input; of `rank` where it is given."""
    sizes = dims[place] if place < len(dims) else None
    if not isinstance(sizes, list) or not sizes or not all(type(size) is int for size in sizes):
        raise _UnexpectedInputsError
    if rank is not None and len(sizes) != rank:
        raise _UnexpectedInputsError
    return sizes


def _mm_formula(first: int) -> Callable[[list[Any], list[Any]], int]:
    """a @ b, matrices; inputs `first` and the next."""

    def count(dims: list[Any], _: list[Any]) -> int:
        (m, k), (k_too, n) = _tensor_sizes(dims, first, 2), _tensor_sizes(dims, first + 1, 2)
        return _require_equal(k, k_too) * 2 * m * n

    return count


def _bmm_formula(first: int) -> Callable[[list[Any], list[Any]], int]:
    def count(dims: list[Any], _: list[Any]) -> int:
        (b, m, k), (b_too, k_too, n) = _tensor_sizes(dims, first, 3), _tensor_sizes(dims, first + 1, 3)
        return _require_equal(b, b_too) * _require_equal(k, k_too) * 2 * m * n

    return count


def _linear_flops(dims: list[Any], _: list[Any]) -> int:
    data, weight = _tensor_sizes(dims, 0), _tensor_sizes(dims, 1)
    if len(weight) not in (1, 2):
        raise _UnexpectedInputsError
    _require_equal(data[-1], weight[-1])
    return 2 * prod(data) * (weight[0] if len(weight) == 2 else 1)


def _matmul_flops(dims: list[Any], _: list[Any]) -> int:
    """With the broadcasting of `torch.matmul`."""
    a, b = _tensor_sizes(dims, 0), _tensor_sizes(dims, 1)
    k = _require_equal(a[-1], b[-2] if len(b) > 1 else b[-1])
    rows, columns = (a[-2] if len(a) > 1 else 1), (b[-1] if len(b) > 1 else 1)
    batch = 1
    one, other = a[:-2], b[:-2]
    for place in range(1, max(len(one), len(other)) + 1):
        mine = one[-place] if place <= len(one) else 1
        theirs = other[-place] if place <= len(other) else 1
        if mine != theirs and 1 not in (mine, theirs):
            raise _UnexpectedInputsError
        batch *= mine * theirs if 1 in (mine, theirs) else mine
    return 2 * batch * rows * columns * k


def _require_equal(one: int, other: int) -> int:
    if one != other:
        raise _UnexpectedInputsError
    return one


def _convolution_flops(data: Sizes, weight: Sizes, out: Sizes, transposed: bool) -> int:
    """Each place of the output (transposed: of the input) meets the whole filter of one group."""
    if len(data) != len(weight) or len(data) < 3:
        raise _UnexpectedInputsError
    places = data[2:] if transposed else out
    return 2 * data[0] * prod(places) * prod(weight)


def _output_sizes(data: Sizes, weight: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes) -> Sizes:
    """The spatial sizes that a convolution gives (the documentation of `torch.nn.Conv2d`)."""
    rank = len(data) - 2
    stride, padding, dilation = (each * rank if len(each) == 1 else each for each in (stride, padding, dilation))
    if not len(stride) == len(padding) == len(dilation) == rank or not all(stride):
        raise _UnexpectedInputsError
    sizes = zip(data[2:], weight[2:], stride, padding, dilation, strict=True)
    return [(size + 2 * pad - wide * (kernel - 1) - 1) // step + 1 for size, kernel, step, pad, wide in sizes]


def _convolution_formula(
    stride: int, padding: int, dilation: int, transposed: int | None
) -> Callable[[list[Any], list[Any]], int]:
    """A forward convolution; the places of its parameters among the inputs."""

    def count(dims: list[Any], concrete: list[Any]) -> int:
        data, weight = _tensor_sizes(dims, 0), _tensor_sizes(dims, 1, len(_tensor_sizes(dims, 0)))
        if transposed is not None and _parse_flag(concrete, transposed):
            return _convolution_flops(data, weight, [], True)
        steps, pads, wide = (_parse_numbers(concrete, place) for place in (stride, padding, dilation))
        return _convolution_flops(data, weight, _output_sizes(data, weight, steps, pads, wide), False)

    return count


def _conv_transpose_flops(dims: list[Any], _: list[Any]) -> int:
    data = _tensor_sizes(dims, 0)
    return _convolution_flops(data, _tensor_sizes(dims, 1, len(data)), [], True)


def _conv_backward_flops(dims: list[Any], concrete: list[Any]) -> int:
    """The gradients of data and weight each take what the forward takes; the mask says which were asked for."""
    grad, data = _tensor_sizes(dims, 0), _tensor_sizes(dims, 1)
    weight = _tensor_sizes(dims, 2, len(data))
    forward = _convolution_flops(data, weight, grad[2:], _parse_flag(concrete, 7))
    mask = re.findall(r"True|False", str(concrete[10]) if len(concrete) > 10 else "")
    return forward * (mask[:2].count("True") if len(mask) >= 2 else 2)


def _parse_numbers(concrete: list[Any], place: int) -> Sizes:
    """`"[1, 1]"` -> [1, 1]."""
    text = str(concrete[place]) if place < len(concrete) else ""
    if not re.fullmatch(r"\[?\d+(, ?\d+)*\]?", text):
        raise _UnexpectedInputsError
    return [int(number) for number in re.findall(r"\d+", text)]


def _parse_flag(concrete: list[Any], place: int) -> bool:
    return place < len(concrete) and str(concrete[place]) in ("True", "1")


def _attention_formula(query: int, sequence: int, products: tuple[int, int]) -> Callable[[list[Any], list[Any]], int]:
    """Scores and their product with the values.

    `sequence` is the axis of positions: 2 for [batch, heads, positions, size], 1 for [batch, positions, heads, size].
    `products`: how many matrix products have the size of q @ k, how many that of p @ v.
    """

    def count(dims: list[Any], _: list[Any]) -> int:
        q, k, v = (_tensor_sizes(dims, query + place, 4) for place in range(3))
        _require_equal(q[0], k[0])
        _require_equal(q[3], k[3])
        _require_equal(k[sequence], v[sequence])
        heads = q[3 - sequence]
        scores = 2 * q[0] * heads * q[sequence] * k[sequence]
        return scores * (products[0] * q[3] + products[1] * v[3])

    return count


_FORWARD_PRODUCTS, _BACKWARD_PRODUCTS = (1, 1), (3, 2)
"""Backward: q @ k again, then the gradients of the scores and of v (sized as p @ v), of q and of k."""

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
