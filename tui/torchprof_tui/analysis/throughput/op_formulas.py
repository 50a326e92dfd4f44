"""Count the floating-point operations of an operator, and the bytes that it must move, from its inputs.

A multiplication and an addition count as two. Formulas as in `torch/utils/flop_counter.py` (matrix products,
convolution, attention; causal masks are not discounted), with groups of a convolution taken from the weight's shape.

Bytes: each input is read once, each output written once. That is a lower bound of the traffic to device memory, from
the shapes and types of the inputs; outputs are inferred. A kernel that reads an input twice moves more; one whose data
is still in the L2 cache moves less. Nothing is counted where the output cannot be inferred: None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Sequence
from itertools import zip_longest
from math import prod
from typing import Any

from torchprof_tui.analysis.kernel.names.model import KernelClass, KernelName
from torchprof_tui.analysis.throughput.op_inputs import TENSOR_LIST, OpInputs, Tensor

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


def _product_flops(first: int, rank: int) -> Callable[[list[Any], list[Any]], int]:
    """Return the formula of a matrix product a @ b, batched for rank 3; the operands are the inputs from `first` on."""

    def count(dims: list[Any], _: list[Any]) -> int:
        a, b = _tensor_sizes(dims, first, rank), _tensor_sizes(dims, first + 1, rank)
        if a[:-2] != b[:-2]:
            raise _UnexpectedInputsError
        return prod(a[:-2]) * _require_equal(a[-1], b[-2]) * 2 * a[-2] * b[-1]

    return count


def _linear_flops(dims: list[Any], _: list[Any]) -> int:
    input_sizes, weight = _tensor_sizes(dims, 0), _tensor_sizes(dims, 1)
    if len(weight) not in (1, 2):
        raise _UnexpectedInputsError
    _require_equal(input_sizes[-1], weight[-1])
    return 2 * prod(input_sizes) * (weight[0] if len(weight) == 2 else 1)


def _matmul_flops(dims: list[Any], _: list[Any]) -> int:
    a, b = _tensor_sizes(dims, 0), _tensor_sizes(dims, 1)
    k = _require_equal(a[-1], b[-2] if len(b) > 1 else b[-1])
    rows, columns = (a[-2] if len(a) > 1 else 1), (b[-1] if len(b) > 1 else 1)
    return 2 * prod(_broadcast(a[:-2], b[:-2])) * rows * columns * k


def _broadcast(*shapes: Sequence[int]) -> list[int]:
    """Return the shape that tensors of these shapes broadcast to. Raises _UnexpectedInputsError where they do not."""
    result: list[int] = []
    for shape in shapes:
        pairs = list(zip_longest(reversed(result), reversed(shape), fillvalue=1))
        if any(size != other and 1 not in (size, other) for size, other in pairs):
            raise _UnexpectedInputsError
        result = [other if size == 1 else size for size, other in pairs][::-1]
    return result


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


def _convolution_formula(
    stride: int, padding: int, dilation: int, transposed: int | None
) -> Callable[[list[Any], list[Any]], int]:
    """Return the formula of a forward convolution; the arguments are its parameters' indices among the inputs.

    The spatial output sizes are those of the documentation of `torch.nn.Conv2d`.
    """

    def count(dims: list[Any], concrete: list[Any]) -> int:
        data, weight = _tensor_sizes(dims, 0), _tensor_sizes(dims, 1, len(_tensor_sizes(dims, 0)))
        if transposed is not None and _parse_flag(concrete, transposed):
            return _convolution_flops(data, weight, [], True)
        rank = len(data) - 2
        parameters = [_parse_numbers(concrete, index) for index in (stride, padding, dilation)]
        steps, pads, dilations = (values * rank if len(values) == 1 else values for values in parameters)
        if not len(steps) == len(pads) == len(dilations) == rank or not all(steps):
            raise _UnexpectedInputsError
        out = [
            (size + 2 * pad - dilation_step * (kernel - 1) - 1) // step + 1
            for size, kernel, step, pad, dilation_step in zip(data[2:], weight[2:], steps, pads, dilations, strict=True)
        ]
        return _convolution_flops(data, weight, out, False)

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
    "aten::mm": _product_flops(0, 2),
    "aten::addmm": _product_flops(1, 2),
    "aten::_addmm_activation": _product_flops(1, 2),
    "aten::_scaled_mm": _product_flops(0, 2),
    "aten::_int_mm": _product_flops(0, 2),
    "aten::bmm": _product_flops(0, 3),
    "aten::baddbmm": _product_flops(1, 3),
    "aten::linear": _linear_flops,
    "aten::matmul": _matmul_flops,
    **{f"aten::conv{rank}d": _convolution_formula(3, 4, 5, None) for rank in (1, 2, 3)},
    "aten::convolution": _convolution_formula(3, 4, 5, 6),
    "aten::_convolution": _convolution_formula(3, 4, 5, 6),
    "aten::cudnn_convolution": _convolution_formula(3, 2, 4, None),
    "aten::miopen_convolution": _convolution_formula(4, 3, 5, None),
    **{f"aten::conv_transpose{rank}d": _conv_transpose_flops for rank in (1, 2, 3)},
    "aten::convolution_backward": _conv_backward_flops,
    "aten::scaled_dot_product_attention": _attention_formula(0, 2, _FORWARD_PRODUCTS),
}
for _backend, _sequence in (("flash", 1), ("efficient", 1), ("cudnn", 2)):
    _FORMULAS |= {
        f"aten::_scaled_dot_product_{_backend}_attention": _attention_formula(0, 2, _FORWARD_PRODUCTS),
        f"aten::_scaled_dot_product_{_backend}_attention_backward": _attention_formula(1, 2, _BACKWARD_PRODUCTS),
        f"aten::_{_backend}_attention_forward": _attention_formula(0, _sequence, _FORWARD_PRODUCTS),
        f"aten::_{_backend}_attention_backward": _attention_formula(1, _sequence, _BACKWARD_PRODUCTS),
    }


PRODUCT_CLASSES = (KernelClass.GEMM, KernelClass.CONV, KernelClass.ATTENTION)
POINTWISE_CLASSES = (KernelClass.ELEMENTWISE, KernelClass.COPY, KernelClass.RANDOM, KernelClass.OPTIMIZER)

_Formula = Callable[[OpInputs, KernelName], int]  # raises _UnexpectedInputsError where the bytes cannot be inferred

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
    try:
        return None if formula is None else formula(inputs, kernel)
    except _UnexpectedInputsError:
        return None


def working_classes(op: str) -> tuple[KernelClass, ...]:
    """Return the classes of the kernel that does an operator's work; () for operators without a formula.

    Kernels of other classes beneath the operator prepare or finish (a change of layout, a reduction of partial sums).
    """
    name = op.removeprefix("aten::")
    for formulas, classes in _CLASSES_OF_FORMULAS:
        if name in formulas:
            return classes
    return () if _find_formula(op) is None else POINTWISE_CLASSES


def _find_formula(op: str) -> _Formula | None:
    if not op.startswith("aten::"):
        return None
    name = op.removeprefix("aten::")
    if name in _NAMED:
        return _NAMED[name]
    if name in _FILLS:
        return _sum_bytes(1)
    if name.startswith("_foreach_"):
        return _foreach_bytes
    if name.removesuffix("_") in _ELEMENTWISE:
        return _elementwise_formula(name)
    return None


def _elementwise_formula(name: str) -> _Formula:
    """Return the formula of an elementwise operator: its tensors are read, the broadcast result is written.

    The result has the widest type of those with axes, floating types before integers.
    """
    base = name.removesuffix("_")
    arity = 1 if base in _UNARY else 3 if base in _TERNARY else 2

    def count(inputs: OpInputs, _: KernelName) -> int:
        tensors = inputs.tensors(arity)
        elements = prod(_broadcast(*(tensor.sizes for tensor in tensors)))
        if not tensors:
            raise _UnexpectedInputsError
        target = inputs.tensor(0) if name.endswith("_") else None
        candidates = [tensor for tensor in tensors if tensor.sizes] or tensors
        floating = [tensor for tensor in candidates if tensor.is_floating]
        width = 1 if base in _COMPARISONS else max(tensor.element_bytes for tensor in floating or candidates)
        return sum(tensor.bytes for tensor in tensors) + (elements * width if target is None else target.bytes)

    return count


def _tensor(inputs: OpInputs, index: int) -> Tensor:
    """Return one input. Raises _UnexpectedInputsError if it is no tensor of a known type."""
    tensor = inputs.tensor(index)
    if tensor is None:
        raise _UnexpectedInputsError
    return tensor


def _sum_bytes(count: int) -> _Formula:
    """Return the formula of an operator that moves its first `count` inputs, each once."""
    return lambda inputs, _: sum(_tensor(inputs, index).bytes for index in range(count))


def _element_bytes_of_kernel(kernel: KernelName) -> int:
    """Return the element size that a kernel's name states. Raises _UnexpectedInputsError without a single one."""
    sizes = set()
    for dtype in kernel.dtypes:
        if match := re.fullmatch(r"(?:fp|bf|tf|int|uint)(\d+)", dtype):
            sizes.add(int(match[1]) // 8)
        elif match := re.fullmatch(r"(\d+)-byte", dtype):
            sizes.add(int(match[1]))
    if len(sizes) != 1:
        raise _UnexpectedInputsError
    return sizes.pop()


def _foreach_bytes(inputs: OpInputs, kernel: KernelName) -> int:
    """A foreach operator reads all its lists and writes one result for each tensor of the first."""
    counts = [inputs.list_elements(index) for index, kind in enumerate(inputs.types) if kind == TENSOR_LIST]
    known = [count for count in counts if count is not None]
    if not known or len(known) < len(counts):
        raise _UnexpectedInputsError
    return _element_bytes_of_kernel(kernel) * (sum(known) + known[0])


def _list_formula(times: int) -> _Formula:
    """Return the formula of an operator that moves as much as its first list of tensors several times."""

    def count(inputs: OpInputs, kernel: KernelName) -> int:
        elements = inputs.list_elements(0)
        if elements is None:
            raise _UnexpectedInputsError
        return times * elements * _element_bytes_of_kernel(kernel)

    return count


def _reduction_formula(axes_index: int) -> _Formula:
    def count(inputs: OpInputs, _: KernelName) -> int:
        data = _tensor(inputs, 0)
        axes = inputs.numbers(axes_index)
        out = 1
        if axes is not None and all(-len(data.sizes) <= axis < len(data.sizes) for axis in axes):
            reduced = {axis % len(data.sizes) for axis in axes}
            out = prod(size for axis, size in enumerate(data.sizes) if axis not in reduced)
        return data.bytes + out * data.element_bytes

    return count


def _norm_bytes(inputs: OpInputs, _: KernelName) -> int:
    data = _tensor(inputs, 0)
    return data.bytes + data.elements * data.element_bytes


def _norm_backward_bytes(inputs: OpInputs, kernel: KernelName) -> int:
    """Gradient and input are read; the kernel of the weights' gradients writes next to nothing."""
    gradient, data = _tensor(inputs, 0), _tensor(inputs, 1)
    return gradient.bytes + data.bytes + (0 if "weight" in kernel.display else data.elements * data.element_bytes)


def _softmax_bytes(inputs: OpInputs, _: KernelName) -> int:
    data = _tensor(inputs, 0)
    return data.bytes + data.elements * (4 if inputs.is_true(2) else data.element_bytes)  # half_to_float


def _softmax_backward_bytes(inputs: OpInputs, _: KernelName) -> int:
    gradient, output = _tensor(inputs, 0), _tensor(inputs, 1)
    return gradient.bytes + output.bytes + output.elements * output.element_bytes


def _index_select_bytes(inputs: OpInputs, _: KernelName) -> int:
    """`index_select(data, axis, index)`: the chosen rows are read (each row of the data at most once) and written."""
    data, index, axis = _tensor(inputs, 0), _tensor(inputs, 2), inputs.numbers(1)
    if axis is None or not -len(data.sizes) <= axis[0] < len(data.sizes):
        raise _UnexpectedInputsError
    row = data.elements // max(data.sizes[axis[0]], 1)
    read_rows = min(index.elements, data.sizes[axis[0]])
    return index.bytes + (index.elements + read_rows) * row * data.element_bytes


def _gather_bytes(inputs: OpInputs, _: KernelName) -> int:
    data, index = _tensor(inputs, 0), _tensor(inputs, 2)
    return index.bytes + (index.elements + min(index.elements, data.elements)) * data.element_bytes


def _product_formula(first: int, out_bytes: int | None = None) -> _Formula:
    """Return the formula of a matrix product of the inputs `first` and `first + 1`; an input before them is added."""

    def count(inputs: OpInputs, _: KernelName) -> int:
        a, b = _tensor(inputs, first), _tensor(inputs, first + 1)
        if not 2 <= len(a.sizes) == len(b.sizes) <= 3 or a.sizes[-1] != b.sizes[-2]:
            raise _UnexpectedInputsError
        out = prod(a.sizes[:-1]) * b.sizes[-1]
        addend = inputs.tensor(0) if first else None
        return a.bytes + b.bytes + out * (out_bytes or a.element_bytes) + (addend.bytes if addend else 0)

    return count


def _linear_bytes(inputs: OpInputs, _: KernelName) -> int:
    data, weight = _tensor(inputs, 0), _tensor(inputs, 1)
    if len(weight.sizes) != 2 or not data.sizes:
        raise _UnexpectedInputsError
    return data.bytes + weight.bytes + prod(data.sizes[:-1]) * weight.sizes[0] * data.element_bytes


def _attention_bytes(query: int) -> _Formula:
    """Return the formula of attention; `query`: index of q, and of the gradient's successor in the backward."""

    def count(inputs: OpInputs, _: KernelName) -> int:
        q, k, v = (_tensor(inputs, query + offset) for offset in range(3))
        if not q.sizes or not v.sizes:
            raise _UnexpectedInputsError
        out = q.elements // max(q.sizes[-1], 1) * v.sizes[-1] * q.element_bytes
        forward = q.bytes + k.bytes + v.bytes + out
        # Backward: the gradient and the output are read as well; the gradients of q, k and v are written.
        return 2 * forward if query else forward

    return count


def _convolution_bytes(op: str) -> _Formula:
    """Return the formula of a forward convolution: its output's size follows from its FLOPs."""

    def count(inputs: OpInputs, _: KernelName) -> int:
        data, weight = _tensor(inputs, 0), _tensor(inputs, 1)
        flops = count_flops(f"aten::{op}", inputs.dims, inputs.concrete)
        if not flops:
            raise _UnexpectedInputsError
        positions = flops // (2 * weight.elements)  # of all images
        return data.bytes + weight.bytes + positions * weight.sizes[0] * data.element_bytes

    return count


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
    # Each of the two kernels reads two of gradient, data and weight, and writes the gradient of the third.
    "convolution_backward": _sum_bytes(3),
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
    "copy_": _sum_bytes(2),  # the source is broadcast to the target
    "cat": _list_formula(2),
    # Four lists as large as that of the parameters are read, three are written.
    "_fused_adamw_": _list_formula(7),
    "_fused_adam_": _list_formula(7),
}
_CLASSES_OF_FORMULAS: tuple[tuple[Container[str], tuple[KernelClass, ...]], ...] = (
    ({**_PRODUCTS, **_CONVOLUTIONS, **_ATTENTION}, PRODUCT_CLASSES),
    (_REDUCTION_AXES, (KernelClass.REDUCTION,)),
    (_NORMS, (KernelClass.NORM,)),
    (_SOFTMAXES, (KernelClass.SOFTMAX,)),
    (_GATHERS, (KernelClass.GATHER,)),
)
