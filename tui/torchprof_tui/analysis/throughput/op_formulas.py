"""Count the floating-point operations of an operator, and the bytes that it must move, from its inputs.

A multiplication and an addition count as two. Formulas as in `torch/utils/flop_counter.py` (matrix products,
convolution, attention; causal masks are not discounted), with groups of a convolution taken from the weight's shape.

Bytes: each input is read once, each output written once. That is a lower bound of the traffic to device memory, from
the shapes and types of the inputs; outputs are inferred. A kernel that reads an input twice moves more; one whose data
is still in the L2 cache moves less. Nothing is counted where the output cannot be inferred: None.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod
from typing import Any

from torchprof_tui.analysis.kernel.names.model import KernelClass, KernelName
from torchprof_tui.analysis.throughput.op_inputs import OpInputs, Tensor

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


PRODUCT_CLASSES = (KernelClass.GEMM, KernelClass.CONV, KernelClass.ATTENTION)
POINTWISE_CLASSES = (KernelClass.ELEMENTWISE, KernelClass.COPY, KernelClass.RANDOM, KernelClass.OPTIMIZER)

_Formula = Callable[[OpInputs, KernelName], int | None]

_UNARY = frozenset(
    """
    abs bitwise_not ceil celu clamp_max clamp_min cos elu erf erfc exp exp2 expm1 floor gelu hardsigmoid hardswish
    hardtanh isfinite isinf isnan isneginf isposinf leaky_relu log log10 log1p log2 log_sigmoid_forward logical_not
    mish nan_to_num neg reciprocal relu round rsqrt selu sgn sigmoid sign silu sin softplus sqrt square tanh
    threshold trunc
    """.split()  # noqa: SIM905
)
_BINARY = frozenset(
    """
    add bitwise_and bitwise_or bitwise_xor div elu_backward eq floor_divide fmod ge gelu_backward gt
    hardsigmoid_backward hardswish_backward hardtanh_backward le leaky_relu_backward logical_and logical_or
    logical_xor lt masked_scale maximum minimum mish_backward mul native_dropout_backward ne pow remainder rsub
    sigmoid_backward silu_backward softplus_backward sub tanh_backward threshold_backward
    """.split()  # noqa: SIM905
)
_TERNARY = frozenset("addcdiv addcmul clamp lerp masked_fill where".split())  # noqa: SIM905
"""Elementwise operators of one, two and three tensors. A tensor after these is the output."""
_ELEMENTWISE = _UNARY | _BINARY | _TERNARY
_COMPARISONS = frozenset(
    "eq ne lt le gt ge isnan isinf isneginf isposinf isfinite logical_and logical_or logical_xor logical_not".split()  # noqa: SIM905
)
_FILLS = frozenset("fill_ zero_ bernoulli_ normal_ uniform_ random_ exponential_ log_normal_".split())  # noqa: SIM905
_REDUCTION_AXES = {
    "sum": 1, "mean": 1, "amax": 1, "amin": 1, "max": 1, "min": 1, "prod": 1, "any": 1, "all": 1, "argmax": 1,
    "argmin": 1, "var": 1, "std": 1, "norm": 2, "linalg_vector_norm": 2, "logsumexp": 1,
}  # fmt: skip
"""Reduction -> index of the argument that names the reduced axes."""


def count_bytes(op: str, inputs: OpInputs, kernel: KernelName) -> int | None:
    """Count the bytes that the kernel which does the work of `op` must move; None where they cannot be inferred."""
    formula = _find_formula(op)
    return None if formula is None else formula(inputs, kernel)


def working_classes(op: str) -> tuple[KernelClass, ...]:
    """Return the classes of the kernel that does an operator's work; () for operators without a formula.

    Kernels of other classes beneath the operator prepare or finish (a change of layout, a reduction of partial sums).
    """
    name = op.removeprefix("aten::")
    if name in _PRODUCTS or name in _ATTENTION or name in _CONVOLUTIONS:
        return PRODUCT_CLASSES
    if name in _REDUCTION_AXES:
        return (KernelClass.REDUCTION,)
    if name in _NORMS:
        return (KernelClass.NORM,)
    if name in _SOFTMAXES:
        return (KernelClass.SOFTMAX,)
    if name in _GATHERS:
        return (KernelClass.GATHER,)
    return () if _find_formula(op) is None else POINTWISE_CLASSES


def _find_formula(op: str) -> _Formula | None:
    if not op.startswith("aten::"):
        return None
    name = op.removeprefix("aten::")
    if name in _NAMED:
        return _NAMED[name]
    if name in _FILLS:
        return _fill_bytes
    if name.startswith("_foreach_"):
        return _foreach_bytes
    if name.removesuffix("_") in _ELEMENTWISE:
        return _elementwise_formula(name)
    return None


def _broadcast_elements(tensors: list[Tensor]) -> int | None:
    """Return the elements of the broadcast result; None if the sizes do not fit."""
    result: list[int] = []
    for tensor in tensors:
        sizes = list(tensor.sizes)
        length = max(len(result), len(sizes))
        result, sizes = [1] * (length - len(result)) + result, [1] * (length - len(sizes)) + sizes
        if any(size != other and 1 not in (size, other) for size, other in zip(result, sizes, strict=True)):
            return None
        result = [other if size == 1 else size for size, other in zip(result, sizes, strict=True)]
    return prod(result)


def _promoted_bytes(tensors: list[Tensor]) -> int:
    """Return the element size of the result: of the widest type with axes, floating types before integers."""
    candidates = [tensor for tensor in tensors if tensor.sizes] or tensors
    floating = [tensor for tensor in candidates if tensor.is_floating]
    return max(tensor.element_bytes for tensor in floating or candidates)


def _elementwise_formula(name: str) -> _Formula:
    """Return the formula of an elementwise operator: its tensors are read, the broadcast result is written."""
    base = name.removesuffix("_")
    arity = 1 if base in _UNARY else 3 if base in _TERNARY else 2

    def count(inputs: OpInputs, _: KernelName) -> int | None:
        tensors = inputs.tensors(arity)
        elements = _broadcast_elements(tensors)
        if not tensors or elements is None:
            return None
        target = inputs.tensor(0) if name.endswith("_") else None
        written = elements * (1 if base in _COMPARISONS else _promoted_bytes(tensors))
        return sum(tensor.bytes for tensor in tensors) + (written if target is None else target.bytes)

    return count


def _fill_bytes(inputs: OpInputs, _: KernelName) -> int | None:
    target = inputs.tensor(0)
    return None if target is None else target.bytes


def _copy_bytes(inputs: OpInputs, _: KernelName) -> int | None:
    """`copy_(target, source)`: the source is broadcast to the target."""
    target, source = inputs.tensor(0), inputs.tensor(1)
    return None if target is None or source is None else target.bytes + source.bytes


def _element_bytes_of_kernel(kernel: KernelName) -> int | None:
    """Return the element size that a kernel's name states; None if it states none or several."""
    digits = {int(match[1]) for dtype in kernel.dtypes if (match := re.fullmatch(r"(?:fp|bf|tf|int|uint)(\d+)", dtype))}
    sizes = {bits // 8 for bits in digits} | {
        int(match[1]) for dtype in kernel.dtypes if (match := re.fullmatch(r"(\d+)-byte", dtype))
    }
    return sizes.pop() if len(sizes) == 1 else None


def _concatenate_bytes(inputs: OpInputs, kernel: KernelName) -> int | None:
    elements, size = inputs.list_elements(0), _element_bytes_of_kernel(kernel)
    return None if elements is None or size is None else 2 * elements * size


def _foreach_bytes(inputs: OpInputs, kernel: KernelName) -> int | None:
    """A foreach operator reads all its lists and writes one result for each tensor of the first."""
    size, lists = _element_bytes_of_kernel(kernel), [kind for kind in inputs.types if kind == "TensorList"]
    elements = [inputs.list_elements(index) for index, kind in enumerate(inputs.types) if kind == "TensorList"]
    if size is None or not lists or None in elements:
        return None
    known = [count for count in elements if count is not None]
    return size * (sum(known) + known[0])


def _fused_optimizer_formula(reads: int, writes: int) -> _Formula:
    """Return the formula of a fused optimizer, all of whose lists are as large as the list of parameters."""

    def count(inputs: OpInputs, kernel: KernelName) -> int | None:
        elements, size = inputs.list_elements(0), _element_bytes_of_kernel(kernel)
        return None if elements is None or size is None else (reads + writes) * elements * size

    return count


def _reduction_formula(axes_index: int) -> _Formula:
    def count(inputs: OpInputs, _: KernelName) -> int | None:
        data = inputs.tensor(0)
        if data is None:
            return None
        axes = inputs.numbers(axes_index)
        out = 1
        if axes is not None and all(-len(data.sizes) <= axis < len(data.sizes) for axis in axes):
            reduced = {axis % len(data.sizes) for axis in axes}
            out = prod(size for axis, size in enumerate(data.sizes) if axis not in reduced)
        return data.bytes + out * data.element_bytes

    return count


def _norm_bytes(inputs: OpInputs, _: KernelName) -> int | None:
    data = inputs.tensor(0)
    return None if data is None else data.bytes + data.elements * data.element_bytes


def _norm_backward_bytes(inputs: OpInputs, kernel: KernelName) -> int | None:
    """Gradient and input are read; the kernel of the weights' gradients writes next to nothing."""
    gradient, data = inputs.tensor(0), inputs.tensor(1)
    if gradient is None or data is None:
        return None
    return gradient.bytes + data.bytes + (0 if "weight" in kernel.display else data.elements * data.element_bytes)


def _softmax_bytes(inputs: OpInputs, _: KernelName) -> int | None:
    data = inputs.tensor(0)
    if data is None:
        return None
    out_size = 4 if inputs.is_true(2) else data.element_bytes  # half_to_float
    return data.bytes + data.elements * out_size


def _softmax_backward_bytes(inputs: OpInputs, _: KernelName) -> int | None:
    gradient, output = inputs.tensor(0), inputs.tensor(1)
    if gradient is None or output is None:
        return None
    return gradient.bytes + output.bytes + output.elements * output.element_bytes


def _index_select_bytes(inputs: OpInputs, _: KernelName) -> int | None:
    """`index_select(data, axis, index)`: the chosen rows are read (each row of the data at most once) and written."""
    data, index, axis = inputs.tensor(0), inputs.tensor(2), inputs.numbers(1)
    if data is None or index is None or axis is None or not -len(data.sizes) <= axis[0] < len(data.sizes):
        return None
    row = data.elements // max(data.sizes[axis[0]], 1)
    read_rows = min(index.elements, data.sizes[axis[0]])
    return index.bytes + (index.elements + read_rows) * row * data.element_bytes


def _gather_bytes(inputs: OpInputs, _: KernelName) -> int | None:
    data, index = inputs.tensor(0), inputs.tensor(2)
    if data is None or index is None:
        return None
    return index.bytes + (index.elements + min(index.elements, data.elements)) * data.element_bytes


def _product_formula(first: int, out_bytes: int | None = None) -> _Formula:
    """Return the formula of a matrix product of the inputs `first` and `first + 1`; an input before them is added."""

    def count(inputs: OpInputs, _: KernelName) -> int | None:
        a, b = inputs.tensor(first), inputs.tensor(first + 1)
        if a is None or b is None or not 2 <= len(a.sizes) == len(b.sizes) <= 3 or a.sizes[-1] != b.sizes[-2]:
            return None
        out = prod(a.sizes[:-1]) * b.sizes[-1]
        addend = inputs.tensor(0) if first else None
        return a.bytes + b.bytes + out * (out_bytes or a.element_bytes) + (addend.bytes if addend else 0)

    return count


def _linear_bytes(inputs: OpInputs, _: KernelName) -> int | None:
    data, weight = inputs.tensor(0), inputs.tensor(1)
    if data is None or weight is None or len(weight.sizes) != 2 or not data.sizes:
        return None
    return data.bytes + weight.bytes + prod(data.sizes[:-1]) * weight.sizes[0] * data.element_bytes


def _attention_bytes(query: int) -> _Formula:
    """Return the formula of attention; `query`: index of q, and of the gradient's successor in the backward."""

    def count(inputs: OpInputs, _: KernelName) -> int | None:
        q, k, v = (inputs.tensor(query + offset) for offset in range(3))
        if q is None or k is None or v is None or not q.sizes or not v.sizes:
            return None
        out = q.elements // max(q.sizes[-1], 1) * v.sizes[-1] * q.element_bytes
        forward = q.bytes + k.bytes + v.bytes + out
        # Backward: the gradient and the output are read as well; the gradients of q, k and v are written.
        return 2 * forward if query else forward

    return count


def _convolution_bytes(op: str) -> _Formula:
    """Return the formula of a forward convolution: its output's size follows from its FLOPs."""

    def count(inputs: OpInputs, _: KernelName) -> int | None:
        data, weight = inputs.tensor(0), inputs.tensor(1)
        flops = count_flops(f"aten::{op}", inputs.dims, inputs.concrete)
        if data is None or weight is None or not flops:
            return None
        positions = flops // (2 * weight.elements)  # of all images
        return data.bytes + weight.bytes + positions * weight.sizes[0] * data.element_bytes

    return count


def _convolution_backward_bytes(inputs: OpInputs, _: KernelName) -> int | None:
    """Each of the two kernels reads two of gradient, data and weight, and writes the gradient of the third."""
    tensors = [inputs.tensor(index) for index in range(3)]
    if any(tensor is None for tensor in tensors):
        return None
    return sum(tensor.bytes for tensor in tensors if tensor is not None)


_PRODUCTS: dict[str, _Formula] = {
    "mm": _product_formula(0),
    "bmm": _product_formula(0),
    "addmm": _product_formula(1),
    "baddbmm": _product_formula(1),
    "_addmm_activation": _product_formula(1),
    "_scaled_mm": _product_formula(0, 2),  # fp8 inputs, a half-precision result
    "_int_mm": _product_formula(0, 4),
    "linear": _linear_bytes,
}
_CONVOLUTIONS: dict[str, _Formula] = {
    **{op: _convolution_bytes(op) for op in ("convolution", "_convolution", "cudnn_convolution", "miopen_convolution")},
    "convolution_backward": _convolution_backward_bytes,
}
_ATTENTION: dict[str, _Formula] = {
    f"{prefix}{backend}_attention{suffix}": _attention_bytes(0 if "backward" not in suffix else 1)
    for prefix, suffixes in (("_", ("_forward", "_backward")), ("_scaled_dot_product_", ("", "_backward")))
    for backend in ("flash", "efficient", "cudnn")
    for suffix in suffixes
}
_NORMS: dict[str, _Formula] = {
    **dict.fromkeys(
        ("native_layer_norm", "layer_norm", "rms_norm", "_fused_rms_norm", "native_group_norm", "cudnn_batch_norm",
         "miopen_batch_norm", "native_batch_norm", "_batch_norm_impl_index"), _norm_bytes
    ),
    **dict.fromkeys(("native_layer_norm_backward", "native_group_norm_backward", "_fused_rms_norm_backward"),
                    _norm_backward_bytes),
    **dict.fromkeys(("cudnn_batch_norm_backward", "miopen_batch_norm_backward", "native_batch_norm_backward"),
                    _norm_backward_bytes),
}  # fmt: skip
_SOFTMAXES: dict[str, _Formula] = {
    "_softmax": _softmax_bytes,
    "_log_softmax": _softmax_bytes,
    "_softmax_backward_data": _softmax_backward_bytes,
    "_log_softmax_backward_data": _softmax_backward_bytes,
}
_GATHERS: dict[str, _Formula] = {"index_select": _index_select_bytes, "gather": _gather_bytes}
_NAMED: dict[str, _Formula] = {
    **_PRODUCTS,
    **_CONVOLUTIONS,
    **_ATTENTION,
    **_NORMS,
    **_SOFTMAXES,
    **_GATHERS,
    **{name: _reduction_formula(axes) for name, axes in _REDUCTION_AXES.items()},
    "copy_": _copy_bytes,
    "cat": _concatenate_bytes,
    "_fused_adamw_": _fused_optimizer_formula(4, 3),
    "_fused_adam_": _fused_optimizer_formula(4, 3),
}
