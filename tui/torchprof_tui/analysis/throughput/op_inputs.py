"""Inputs of one call of an operator, as `record_shapes` writes them into its args.

Reading the args of every operator is a pass over the whole file. One step holds every kernel of a training loop, so the
chunks that show most of the GPU time are chosen; all operators in them are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, prod
from typing import Any, NamedTuple

import numpy as np

from torchprof_tui.analysis.kernel.names.syntax import TYPE_BYTES
from torchprof_tui.trace.core.arrays import F64, I32, I64, Bool, is_in, number_distinct, sorted_unique
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.read_entries import read_entries

TENSOR_LIST = "TensorList"

_FLOATING_TYPES = ("double", "float", "c10::Half", "c10::BFloat16")


@record
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


@record
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
        shapes = self.dims[index]
        is_known = isinstance(shapes, list) and shapes and all(map(_is_sizes, shapes))
        return sum(map(prod, shapes)) if is_known else None

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


SMALL_SIDE = 16
"""Rows of the smallest tile of tensor cores: a product with fewer rows reads a matrix to use it a few times."""
ALIGNMENT = 8  # elements of 16 bits in the 16 bytes that tensor cores and vector loads want a row's start aligned to
TILE = 128  # side of a usual output tile; a grid of fewer tiles than SMs leaves SMs idle


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


MAX_CHUNKS = 32  # chunks of 256 KB that are read: some tens of milliseconds
MAX_GROUPS = 400  # groups of like launches that are looked for, by time
MAX_OPS = 6000  # operators that are read from these chunks
WANTED_SHARE = 0.97  # share of the time that these groups take together


@record
class SampledInputs:
    """Inputs of s operators: `rows` int64[s] ascending, `case` int64[s] into `cases`. Equal inputs share a case."""

    rows: I64
    case: I64
    cases: list[OpInputs]


def read_sampled_inputs(trace: Trace, op: I64 | I32, group: I64, time: I64) -> SampledInputs:
    """Read inputs of operators that launched this GPU work: row of the operator, group and ns of each piece, [k].

    Raises OSError or LookupError where the file is gone or has changed.
    """
    rows = sorted_unique(op[_select_pieces(trace, op, group, time)])[:MAX_OPS].astype(np.int64)
    case = np.full(len(rows), -1, np.int64)
    cases: list[OpInputs] = []
    case_of_key: dict[str, int] = {}
    for position, entry in read_entries(trace, rows):
        args = entry.get("args")
        inputs = parse_inputs(args) if isinstance(args, dict) else None
        if inputs is None:
            continue
        key = f"{inputs.dims}{inputs.types}{inputs.strides}{inputs.concrete}"
        number = case_of_key.setdefault(key, len(cases))
        if number == len(cases):
            cases.append(inputs)
        case[position] = number
    known = case >= 0
    return SampledInputs(rows[known], case[known], cases)


def _select_pieces(trace: Trace, op: I64 | I32, group: I64, time: I64) -> Bool:
    """Select the pieces of the heaviest groups whose operator lies in one of the chosen chunks: bool[k]."""
    if not len(op):
        return np.zeros(0, np.bool_)
    group_time = np.bincount(group, weights=time).astype(np.float64)
    is_wanted = np.zeros(len(group_time), np.bool_)
    heaviest = np.argsort(-group_time, kind="stable")
    cumulated = np.cumsum(group_time[heaviest])
    is_wanted[heaviest[: min(int(np.searchsorted(cumulated, WANTED_SHARE * cumulated[-1])) + 1, MAX_GROUPS)]] = True
    chunk = np.searchsorted(trace.text.first, trace.ordinal[op], side="right") - 1
    wanted = is_wanted[group]
    return wanted & is_in(chunk, _choose_chunks(chunk[wanted], group[wanted], group_time))


def _choose_chunks(chunk: I64, group: I64, group_time: F64) -> I64:
    """Choose the chunks that show most of the GPU time, at most MAX_CHUNKS: each adds the groups not seen before."""
    distinct, chunk_number = number_distinct(chunk + 1, int(chunk.max(initial=-1)) + 2)
    distinct -= 1  # -1 for an entry before the first chunk
    if len(distinct) <= MAX_CHUNKS:
        return distinct
    pairs = sorted_unique(chunk_number.astype(np.int64) * len(group_time) + group)
    pair_chunk, pair_group = pairs // len(group_time), pairs % len(group_time)
    missing = group_time.copy()
    chosen: list[int] = []
    while len(chosen) < MAX_CHUNKS:
        gain = np.bincount(pair_chunk, weights=missing[pair_group], minlength=len(distinct))
        best = int(gain.argmax())
        if not gain[best]:
            break
        chosen.append(best)
        missing[pair_group[pair_chunk == best]] = 0
    found: I64 = distinct[chosen]
    return found
