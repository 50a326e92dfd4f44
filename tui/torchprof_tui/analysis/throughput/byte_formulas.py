"""Count the bytes that an operator must move: each input read once, each output written once.

A lower bound of the traffic to device memory, from the shapes and types of the inputs; outputs are inferred. A kernel
that reads an input twice moves more; one whose data is still in the L2 cache moves less. Nothing is counted where the
output cannot be inferred: None.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod

from torchprof_tui.analysis.kernel.names.model import KernelClass, KernelName
from torchprof_tui.analysis.throughput.flop_formulas import count_flops
from torchprof_tui.analysis.throughput.op_inputs import OpInputs, Tensor

PRODUCT_CLASSES = (KernelClass.GEMM, KernelClass.CONV, KernelClass.ATTENTION)
POINTWISE_CLASSES = (KernelClass.ELEMENTWISE, KernelClass.COPY, KernelClass.RANDOM, KernelClass.OPTIMIZER)

_Formula = Callable[[OpInputs, KernelName], int | None]

_ELEMENTWISE = frozenset(
    """
    abs add addcdiv addcmul bitwise_and bitwise_not bitwise_or bitwise_xor ceil celu clamp clamp_max clamp_min cos
    div elu elu_backward eq erf erfc exp exp2 expm1 floor floor_divide fmod ge gelu gelu_backward gt hardsigmoid
    hardsigmoid_backward hardswish hardswish_backward hardtanh hardtanh_backward isfinite isinf isnan isneginf
    isposinf le leaky_relu leaky_relu_backward lerp log log10 log1p log2 log_sigmoid_forward logical_and logical_not
    logical_or logical_xor lt masked_fill masked_scale maximum minimum mish mish_backward mul nan_to_num
    native_dropout_backward ne neg pow reciprocal relu remainder round rsqrt rsub selu sgn sigmoid sigmoid_backward
    sign silu silu_backward sin softplus softplus_backward sqrt square sub tanh tanh_backward threshold
    threshold_backward trunc where
    """.split()  # noqa: SIM905
)
_UNARY = frozenset(
    """
    abs bitwise_not ceil celu clamp_max clamp_min cos elu erf erfc exp exp2 expm1 floor gelu hardsigmoid hardswish
    hardtanh isfinite isinf isnan isneginf isposinf leaky_relu log log10 log1p log2 log_sigmoid_forward logical_not
    mish nan_to_num neg reciprocal relu round rsqrt selu sgn sigmoid sign silu sin softplus sqrt square tanh
    threshold trunc
    """.split()  # noqa: SIM905
)
_TERNARY = frozenset("addcdiv addcmul clamp lerp masked_fill where".split())  # noqa: SIM905
"""Elementwise operators of one and of three tensors; the others take two. A tensor after these is the output."""
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


def _attention_formula(query: int) -> _Formula:
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
    f"{prefix}{backend}_attention{suffix}": _attention_formula(0 if "backward" not in suffix else 1)
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
