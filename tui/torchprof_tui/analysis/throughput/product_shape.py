"""Say from the shape of a matrix product why it stays far below the peak rate."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from torchprof_tui.analysis.throughput.op_inputs import OpInputs

SMALL_SIDE = 16
"""Rows of the smallest tile of tensor cores: a product with fewer rows reads a matrix to use it a few times."""
ALIGNMENT = 8
"""Elements of 16 bits in the 16 bytes that tensor cores and vector loads want a row's start aligned to."""
TILE = 128
"""Side of a usual output tile; a grid of fewer tiles than SMs leaves SMs idle."""


class ProductShape(NamedTuple):
    """`batch` products of m x k by k x n."""

    batch: int
    m: int
    n: int
    k: int

    @property
    def tiles(self) -> int:
        """Output tiles of TILE x TILE."""
        return self.batch * ceil(self.m / TILE) * ceil(self.n / TILE)


_FIRST_OPERAND = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1, "_addmm_activation": 1, "_scaled_mm": 0, "_int_mm": 0}


def find_product_shape(op: str, inputs: OpInputs) -> ProductShape | None:
    """Find the sizes of a matrix product; None for other operators and unexpected inputs."""
    first = _FIRST_OPERAND.get(op.removeprefix("aten::"))
    if first is None:
        return None
    a, b = inputs.tensor(first), inputs.tensor(first + 1)
    if a is None or b is None or not 2 <= len(a.sizes) == len(b.sizes) <= 3:
        return None
    return ProductShape(a.sizes[0] if len(a.sizes) == 3 else 1, a.sizes[-2], b.sizes[-1], a.sizes[-1])


def explain_shape(shape: ProductShape, dtype: str, sms: int | None) -> str:
    """Explain a low rate by the shape, "" where the shape is no reason. `sms`: of the device, None if unknown."""
    if min(shape.m, shape.n) <= SMALL_SIDE:
        side = "m" if shape.m <= shape.n else "n"
        return f"{side} = {min(shape.m, shape.n)}: a product with one or a few vectors, limited by memory"
    odd = [f"{name} = {size}" for name, size in (("n", shape.n), ("k", shape.k)) if size % ALIGNMENT]
    if odd:
        return f"{', '.join(odd)}: not a multiple of {ALIGNMENT}, so loads are not aligned"
    if sms is not None and shape.tiles < sms:
        return f"{shape.tiles} tiles of {TILE}×{TILE} for {sms} SMs: some stay idle"
    if shape.k <= TILE:
        return f"k = {shape.k}: short sums, so most of the time is loading and storing"
    return "fp32: no tensor cores, or a slow tensor-core mode" if dtype == "fp32" else ""
