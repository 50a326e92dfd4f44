"""What operators were called with: shapes, data types, concrete values, read from the file when first asked for.

`record_shapes` puts these into each operator's args, where no column holds them: finding them costs a pass over the
text (a second for a few hundred MB), so ask once and off the thread that draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from torchprof_tui.analysis.table.calls import Calls
from torchprof_tui.trace.core.arrays import I32
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.read_entries import ReportChunks, read_entries


@dataclass(frozen=True)
class Inputs:
    """One set of inputs. `dims` as in the file: a list of sizes for a tensor, of such lists for a list of tensors."""

    dims: list[Any]
    types: list[str]
    concrete: list[Any]
    flops: float | None = None  # as recorded, of a Triton kernel


@dataclass(frozen=True)
class OpArgs:
    """m calls. `inputs` int32[m] into `all_inputs`, `shape` int32[m] into `shapes` (as torch prints them).

    The first of each stands for "not recorded".
    """

    input_index: I32
    all_inputs: list[Inputs]
    shape_index: I32
    shapes: list[str]


def read_op_args(trace: Trace, calls: Calls, report: ReportChunks | None = None) -> OpArgs:
    """The inputs of every operator among the calls. Raises OSError, LookupError where the file is gone or changed."""
    places = np.flatnonzero(trace.kind[calls.event] == Kind.OP)
    which = np.zeros(len(calls), np.int32)
    known: dict[str, int] = {}
    found = [Inputs([], [], [])]
    for place, entry in read_entries(trace, calls.event[places], report):
        args = entry.get("args")
        if not isinstance(args, dict):
            continue
        dims, flops = args.get("Input Dims"), args.get("kernel_flop")
        if not isinstance(dims, list):
            continue
        key = f"{dims}{args.get('Input type')}{args.get('Concrete Inputs')}{flops}"
        number = known.get(key)
        if number is None:
            number = known[key] = len(found)
            types, concrete = _as_texts(args.get("Input type")), _as_list(args.get("Concrete Inputs"))
            recorded = float(flops) if isinstance(flops, (int, float)) and flops > 0 else None
            found.append(Inputs(dims, types, concrete, recorded))
        which[places[place]] = number
    texts: dict[str, int] = {"": 0}
    shape_of = [texts.setdefault(str(each.dims) if number else "", len(texts)) for number, each in enumerate(found)]
    return OpArgs(which, found, np.array(shape_of, np.int32)[which], list(texts))


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _as_texts(value: Any) -> list[str]:
    return [str(each) for each in _as_list(value)]
