"""Compare the inputs of the ops that launched GPU work: do both recordings compute on the same shapes and dtypes?"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.compare.side_analysis import SideAnalysis
from torchprof_tui.analysis.throughput.op_inputs import parse_inputs
from torchprof_tui.trace.core.arrays import I64
from torchprof_tui.trace.query.read_entries import read_entries

_MAX_CALLS = 16
"""Calls of each op whose inputs are read: the first ones of the first compared step, the same in equal programs."""

_MAX_CHARACTERS = 80
"""An op may take hundreds of tensors."""

_SHORT_TYPES = {"c10::BFloat16": "bf16", "c10::Half": "fp16", "float": "fp32", "double": "fp64", "long int": "int64"}


@dataclass(frozen=True, slots=True)
class InputDifference:
    """An op whose inputs differ: its name and the inputs that only one side has, as texts."""

    op: str
    a: str
    b: str


def find_input_difference(a: SideAnalysis, b: SideAnalysis) -> InputDifference | None:
    """Find the op, of those on both sides, whose inputs differ; the one that takes most GPU time. None if none does.

    Also None where the shapes of a side were not recorded, or where its file is gone.
    """
    inputs_a, inputs_b = _read_step_inputs(a), _read_step_inputs(b)
    for name in inputs_a:
        if name not in inputs_b or inputs_a[name] == inputs_b[name]:
            continue
        only_a, only_b = inputs_a[name] - inputs_b[name], inputs_b[name] - inputs_a[name]
        return InputDifference(name, _describe_commonest(only_a), _describe_commonest(only_b))
    return None


def _read_step_inputs(side: SideAnalysis) -> dict[str, Counter[str]]:
    """Read the inputs of the launching ops of the first compared step: op -> inputs, most GPU time first."""
    trace, rows, time = side.trace, *_select_step_ops(side)
    found: dict[str, Counter[str]] = {}
    times: Counter[str] = Counter()
    try:
        for position, entry in read_entries(trace, rows):
            args = entry.get("args")
            inputs = parse_inputs(args) if isinstance(args, dict) else None
            if inputs is None:
                continue
            name = trace.names[int(trace.name[rows[position]])]
            tensors = [
                f"{_SHORT_TYPES.get(kind, kind)}{sizes}".replace(" ", "")
                for sizes, kind in zip(inputs.dims, inputs.types, strict=False)
                if sizes
            ]
            found.setdefault(name, Counter())[" ".join(tensors)] += 1
            times[name] += int(time[position])
    except (OSError, LookupError):
        return {}
    return {name: found[name] for name, _ in times.most_common()}


def _select_step_ops(side: SideAnalysis) -> tuple[I64, I64]:
    """Select the first calls of each op that launched work in the first compared step: rows and ns, int64[k] each."""
    tables = side.checker.tables
    work, op = tables.work, tables.launching_ops[0]
    t0, t1 = side.side.window
    if side.side.steps:
        t1 = side.side.steps[0].start + side.side.steps[0].duration
    start = np.asarray(side.trace.start[np.maximum(op, 0)])
    chosen = (op >= 0) & (start >= t0) & (start < t1)
    rows, back = np.unique(op[chosen], return_inverse=True)
    time = np.bincount(back.reshape(-1), weights=work.events.duration[chosen], minlength=len(rows)).astype(np.int64)
    order = np.lexsort((side.trace.start[rows], side.trace.name[rows]))
    rows, time = rows[order].astype(np.int64), time[order]
    first_of_name = np.searchsorted(side.trace.name[rows], side.trace.name[rows])
    is_read = np.arange(len(rows)) - first_of_name < _MAX_CALLS
    return rows[is_read], time[is_read]


def _describe_commonest(inputs: Counter[str]) -> str:
    """Describe the inputs that occur most often, and how many others there are; "fewer calls" for none."""
    if not inputs:
        return "fewer such calls"
    (text, count), *rest = inputs.most_common()
    times = f"{count} x " if count > 1 else ""
    text = text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 1] + "…"
    return f"{times}{text}" + (f" and {len(rest)} more" if rest else "")
