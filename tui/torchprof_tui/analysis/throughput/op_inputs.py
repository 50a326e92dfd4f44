"""Inputs of one call of an operator, as `record_shapes` writes them into its args."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

TENSOR_LIST = "TensorList"

TYPE_BYTES = {
    "double": 8,
    "float": 4,
    "c10::Half": 2,
    "c10::BFloat16": 2,
    "c10::Float8_e4m3fn": 1,
    "c10::Float8_e5m2": 1,
    "c10::Float8_e4m3fnuz": 1,
    "c10::Float8_e5m2fnuz": 1,
    "c10::complex<float>": 8,
    "c10::complex<double>": 16,
    "long int": 8,
    "long": 8,
    "int": 4,
    "short int": 2,
    "short": 2,
    "signed char": 1,
    "unsigned char": 1,
    "bool": 1,
}
"""Bytes of one element, by the C++ type of a tensor as the profiler writes it."""

_FLOATING_TYPES = ("double", "float", "c10::Half", "c10::BFloat16")


@dataclass(frozen=True, slots=True)
class Tensor:
    """One input that is a tensor. `stored`: elements in memory; an expanded axis (stride 0) is stored once."""

    sizes: tuple[int, ...]
    type: str
    stored: int

    @property
    def elements(self) -> int:
        return prod(self.sizes)

    @property
    def element_bytes(self) -> int:
        return TYPE_BYTES[self.type]

    @property
    def bytes(self) -> int:
        """Bytes in memory, each counted once."""
        return self.stored * self.element_bytes

    @property
    def is_floating(self) -> bool:
        return self.type in _FLOATING_TYPES


@dataclass(frozen=True, slots=True)
class OpInputs:
    """The inputs of one call. Lists as in the file: `dims` and `strides` are [] where an input is no tensor."""

    dims: list[Any]
    types: list[Any]
    strides: list[Any]
    concrete: list[Any]

    def tensor(self, index: int) -> Tensor | None:
        """Return the input at `index` if it is a tensor of a known type, else None."""
        if not 0 <= index < min(len(self.dims), len(self.types)):
            return None
        sizes, type_name = self.dims[index], self.types[index]
        if type_name not in TYPE_BYTES or not _is_sizes(sizes):
            return None
        strides: Any = self.strides[index] if index < len(self.strides) else None
        stored = prod(sizes)
        if _is_sizes(strides) and len(strides) == len(sizes):
            stored = prod(size for size, stride in zip(sizes, strides, strict=True) if stride or not size)
        return Tensor(tuple(sizes), type_name, stored)

    def tensors(self, count: int) -> list[Tensor]:
        """Return those of the first `count` inputs that are tensors."""
        return [tensor for index in range(count) if (tensor := self.tensor(index)) is not None]

    def list_elements(self, index: int) -> int | None:
        """Return the elements of all tensors of a list; None where it was not recorded (torch omits long lists)."""
        if not 0 <= index < min(len(self.dims), len(self.types)) or self.types[index] != TENSOR_LIST:
            return None
        sizes_of_tensors = self.dims[index]
        if not isinstance(sizes_of_tensors, list) or not sizes_of_tensors:
            return None
        if not all(_is_sizes(sizes) for sizes in sizes_of_tensors):
            return None
        return sum(prod(sizes) for sizes in sizes_of_tensors)

    def numbers(self, index: int) -> list[int] | None:
        """Parse a number or a list of numbers: `"[0, 1]"` -> [0, 1]; None for anything else."""
        text = str(self.concrete[index]) if 0 <= index < len(self.concrete) else ""
        try:
            return [int(part) for part in text.strip("[]").split(",")] if text.strip("[]") else None
        except ValueError:
            return None

    def is_true(self, index: int) -> bool:
        return 0 <= index < len(self.concrete) and str(self.concrete[index]) in ("True", "1")


def parse_inputs(args: Mapping[str, Any]) -> OpInputs | None:
    """Parse the args of an operator; None where shapes were not recorded."""
    dims = args.get("Input Dims")
    if not isinstance(dims, list):
        return None
    return OpInputs(
        dims,
        [name if isinstance(name, str) else "" for name in _as_list(args.get("Input type"))],
        _as_list(args.get("Input Strides")),
        _as_list(args.get("Concrete Inputs")),
    )


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(size) is int and size >= 0 for size in value)
