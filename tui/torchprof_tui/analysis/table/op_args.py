"""Read the inputs of operators from the file: shapes, data types, concrete values.

`record_shapes` writes these into each operator's args, which no column holds. Reading them is a pass over the text (a
second for a few hundred MB), so do it once, on a worker thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.read_entries import ReportChunks, read_entries


@record(slots=False)
class Inputs:
    """One set of inputs. `dims` as in the file: a list of sizes for a tensor, of such lists for a list of tensors."""

    dims: list[Any]
    types: list[str]
    concrete: list[Any]
    flops: float | None = None  # as recorded, of a Triton kernel


@record(slots=False)
class OpArgs:
    """Inputs of m calls: `input_index` int32[m] into `all_inputs`, `shape_index` int32[m] into `shapes`.

    `shapes` are formatted as torch prints them. Index 0 of both stands for "not recorded".
    """

    input_index: I32
    all_inputs: list[Inputs]
    shape_index: I32
    shapes: list[str]

    def take(self, indices: I64) -> OpArgs:
        return replace(self, input_index=self.input_index[indices], shape_index=self.shape_index[indices])


def read_event_args(trace: Trace, events: I32, report: ReportChunks | None = None) -> OpArgs:
    """Read the inputs of these operators. Raises OSError, LookupError if the file is gone or changed."""
    input_index = np.zeros(len(events), np.int32)
    index_of_key: dict[str, int] = {}
    all_inputs = [Inputs([], [], [])]
    for position, entry in read_entries(trace, events, report):
        args = entry.get("args")
        if not isinstance(args, dict):
            continue
        dims, flops = args.get("Input Dims"), args.get("kernel_flop")
        if not isinstance(dims, list):
            continue
        key = f"{dims}{args.get('Input type')}{args.get('Concrete Inputs')}{flops}"
        index = index_of_key.get(key)
        if index is None:
            index = index_of_key[key] = len(all_inputs)
            types, concrete = (
                found if isinstance(found := args.get(name), list) else [] for name in ("Input type", "Concrete Inputs")
            )
            recorded_flops = float(flops) if isinstance(flops, (int, float)) and flops > 0 else None
            all_inputs.append(Inputs(dims, [str(item) for item in types], concrete, recorded_flops))
        input_index[position] = index
    return _with_shapes(input_index, all_inputs)


def concatenate_op_args(size: int, parts: Sequence[tuple[I64, OpArgs]]) -> OpArgs:
    """Build the inputs of `size` calls from parts: the indices of a part's calls, and their inputs."""
    input_index = np.zeros(size, np.int32)
    all_inputs = [Inputs([], [], [])]
    for indices, part in parts:
        offset = len(all_inputs) - 1
        input_index[indices] = np.where(part.input_index > 0, part.input_index + offset, 0)
        all_inputs += part.all_inputs[1:]
    return _with_shapes(input_index, all_inputs)


def _with_shapes(input_index: I32, all_inputs: list[Inputs]) -> OpArgs:
    index_of_shape: dict[str, int] = {"": 0}
    shape_of_inputs = [
        index_of_shape.setdefault(str(inputs.dims) if index else "", len(index_of_shape))
        for index, inputs in enumerate(all_inputs)
    ]
    return OpArgs(input_index, all_inputs, np.array(shape_of_inputs, np.int32)[input_index], list(index_of_shape))
