"""Parse the operation of a PyTorch elementwise or reduction functor from its C++ type.

A functor is a struct (`at::native::CUDAFunctor_add<float>`), a struct around another (`BinaryFunctor<float, float,
float, MulFunctor<float>>`), or a lambda inside the function that launches it
(`at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{lambda()#2}::operator()() const::
{lambda()#4}::operator()() const::{lambda(c10::BFloat16)#1}`). The operation is the identifier without
affixes such as "kernel"; the data type is the template argument or the innermost lambda's parameter.
"""

from __future__ import annotations

from dataclasses import dataclass

from torchprof_tui.analysis.kernel.names.syntax import (
    parse_dtype,
    parse_dtypes,
    parse_lambda_dtypes,
    parse_qualified_name,
)
from torchprof_tui.trace.core.late_regex import compile_later

_WRAPPERS = {
    "BinaryFunctor": "",
    "AUnaryFunctor": " scalar",
    "BUnaryFunctor": " scalar",
    "UnaryOpFunctor": "",
    "BinaryOpScalarFunctor": " scalar",
    "BinaryOpScalarListFunctor": " scalar",
    "BinaryOpListAlphaFunctor": "",
    "TernaryOpScalarFunctor": "",
    "TernaryOpListFunctor": "",
    "func_wrapper_t": "",
}
_KERNEL_SUFFIX = compile_later(
    r"(_?cuda_kernel|_?kernel_cuda|_?kernel_impl|_?cuda_out|_kernel_gpu|_gpu|CUDAKernelImpl|KernelImplInternal|KernelImpl"
    r"|CUDAKernel|_kernel|_cuda|Functor|_functor|Ops|Op|_struct)$"
)
_PREFIX = compile_later(r"^(CUDAFunctorOnSelf_|CUDAFunctorOnOther_|CUDAFunctor_|launch_|cuda_)")
_STD_OPERATIONS = {
    "multiplies": "mul",
    "divides": "div",
    "plus": "add",
    "minus": "sub",
    "less": "less",
    "greater": "greater",
}
_WORD_BOUNDARY = compile_later(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_TRAILING_BACKWARD = compile_later(r"_(backward|grad)$")


@dataclass(frozen=True, slots=True)
class Functor:
    """Operation and data types of a functor."""

    operation: str  # "gelu", "mul scalar", "" if unknown
    dtypes: tuple[str, ...]
    is_backward: bool


def parse_functor(text: str) -> Functor:
    """Parse the C++ type of a functor."""
    name = parse_qualified_name(text)
    index = next((i for i, part in enumerate(name.path) if part.startswith("{lambda")), None)
    if index is not None:
        # A lambda is named by the function that contains it, operator() by its struct.
        index = next((i for i in range(index - 1, -1, -1) if not name.path[i].startswith(("operator", "{"))), 0)
        dtypes = parse_lambda_dtypes(text) or parse_dtypes(_parse_component_arguments(name.components[index]))
        return _build_functor(name.path[index], "", dtypes)
    base = name.base
    if base in _WRAPPERS and name.arguments:
        inner_type = next(
            (
                argument
                for argument in reversed(name.arguments)
                if parse_dtype(argument) is None and not argument.isdigit()
            ),
            "",
        )
        inner = parse_functor(inner_type) if inner_type else Functor("", (), False)
        return Functor(
            inner.operation + _WRAPPERS[base] if inner.operation else "",
            parse_dtypes(name.arguments) or inner.dtypes,
            inner.is_backward,
        )
    suffix = " scalar" if base.startswith(("CUDAFunctorOnSelf", "CUDAFunctorOnOther")) else ""
    return _build_functor(base, suffix, parse_dtypes(name.arguments))


def extract_operation(identifier: str) -> str:
    """Extract the operation: `pow_tensor_scalar_kernel_impl` → "pow_tensor_scalar", `GeluCUDAKernelImpl` → "gelu"."""
    text = _PREFIX.sub("", identifier.strip("_"))
    while (shorter := _KERNEL_SUFFIX.sub("", text)) != text and shorter:
        text = shorter
    text = _WORD_BOUNDARY.sub("_", text).lower().strip("_")
    return _STD_OPERATIONS.get(text, text)


def _build_functor(identifier: str, suffix: str, dtypes: tuple[str, ...]) -> Functor:
    operation = extract_operation(identifier)
    return Functor(operation + suffix if operation else "", dtypes, bool(_TRAILING_BACKWARD.search(operation)))


def _parse_component_arguments(component: str) -> tuple[str, ...]:
    return parse_qualified_name(component).arguments
