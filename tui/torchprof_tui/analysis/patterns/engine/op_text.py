"""Write the ops of a thread as text, one letter each, in which regular expressions find what they compute together.

"uspusaqd"    mean sub pow mean sub add sqrt div: a layer norm
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np

from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.throughput.op_inputs import OpInputs, parse_inputs
from torchprof_tui.trace.core.arrays import I64, U8
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.read_entries import read_entries

T = TypeVar("T")

_LETTERS = {
    "M": "matmul bmm baddbmm einsum",
    "L": "linear addmm mm",
    "C": "conv1d conv2d conv3d convolution",
    "E": "embedding",
    "N": "layer_norm rms_norm group_norm batch_norm",
    "S": "softmax _softmax",
    "a": "add add_",
    "s": "sub sub_ rsub",
    "m": "mul mul_",
    "d": "div div_",
    "p": "pow pow_ square",
    "u": "mean",
    "U": "sum",
    "q": "sqrt sqrt_",
    "Q": "rsqrt rsqrt_",
    "e": "exp exp_",
    "l": "log log_",
    "g": "sigmoid sigmoid_",
    "t": "tanh tanh_",
    "F": "erf erf_",
    "x": "amax max",
    "h": "one_hot",
    "n": "neg",
    "c": "clamp clamp_ clamp_max minimum",
    "R": "reciprocal",
    "D": "dropout dropout_",
    "w": "masked_fill masked_fill_ where",
    "f": "full ones zeros full_like ones_like zeros_like new_full new_ones new_zeros",
    "A": "arange linspace",
    "B": "sin cos",
    "T": "triu triu_ tril tril_",
    "G": "diag diag_embed diagflat",
    "O": "sort argsort",
    "V": "norm linalg_vector_norm",
    "y": "copy_",
    "r": "lerp lerp_",
    "v": "slice",
    "k": "unfold im2col",
    "K": "cat stack concatenate",
}
_VIEWS = (
    "view reshape _unsafe_view transpose permute t expand expand_as unsqueeze squeeze flatten unflatten select chunk "
    "split tensor_split unbind detach detach_ contiguous to type_as alias narrow view_as movedim swapaxes numpy_T"
)
"""Ops that compute nothing, or only change the number type: no letter."""

_OTHER, _NO_LETTER = ".", " "


@record
class OpText:
    """The outermost ops of the launching threads: `ops`, `text` with one letter each, a line per thread and step.

    `letters` uint8[k]: the same letters as ASCII codes.
    """

    ops: EventTable
    text: str
    letters: U8

    def find(self, expression: str) -> Iterator[tuple[int, int]]:
        """Find the stretches of ops that match: (first, stop) in `ops`."""
        return (match.span() for match in re.finditer(expression, self.text))


def write_op_text(tables: TraceTables) -> OpText:
    """Write the ops of the whole trace; use `TraceTables.compute_once`."""
    trace = tables.trace
    letter_of = {f"aten::{name}": letter for letter, names in _LETTERS.items() for name in names.split()}
    letter_of |= {f"aten::{name}": _NO_LETTER for name in _VIEWS.split()}
    letters = np.array([ord(letter_of.get(name, _OTHER)) for name in trace.names] or [ord(_OTHER)], dtype=np.uint8)
    ops = tables.outermost_ops
    ops = ops.select(letters[ops.name] != ord(_NO_LETTER))
    part = number_parts(tables, ops)
    # An op of its own line between parts, so that no stretch crosses their border: its row is the next op's.
    borders = np.flatnonzero(part[1:] != part[:-1]) + 1
    text = np.insert(letters[ops.name], borders, ord("\n"))
    return OpText(ops.take(np.insert(np.arange(len(ops)), borders, borders)), text.tobytes().decode("ascii"), text)


def number_parts(tables: TraceTables, ops: EventTable, *marks: I64) -> I64:
    """Number the stretches of ops, by lane and start, on one thread, in one step, with equal `marks`: int64[k] each."""
    columns: list[I64] = [tables.trace.lane[ops.row].astype(np.int64), tables.steps.index_at(ops.start), *marks]
    changes = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return np.concatenate([[0], np.cumsum(changes)])[: len(ops)].astype(np.int64)


def read_dims(trace: Trace, rows: I64) -> list[list[Any] | None]:
    """Read the shapes of the inputs of ops as they were recorded: one for each row, None where they were not."""
    return [None if inputs is None else inputs.dims for inputs in read_inputs(trace, rows)]


def read_inputs(trace: Trace, rows: I64) -> list[OpInputs | None]:
    """Read the inputs of ops, each chunk of the file once: one for each row, None where they were not recorded."""
    found: list[OpInputs | None] = [None] * len(rows)
    try:
        for index, entry in read_entries(trace, rows):
            args = entry.get("args")
            found[index] = parse_inputs(args) if isinstance(args, dict) else None
    except (OSError, LookupError, RecursionError, ValueError):  # gone, or args too deep
        return [None] * len(rows)
    return found
