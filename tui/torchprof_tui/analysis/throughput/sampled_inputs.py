"""Read the inputs of operators for a sample of the GPU work: the heaviest kernels, from few chunks of the text.

Reading the args of every operator is a pass over the whole file. One step holds every kernel of a training loop, so the
chunks that show most of the GPU time are chosen; all operators in them are read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.throughput.op_inputs import OpInputs, parse_inputs
from torchprof_tui.trace.core.arrays import F64, I32, I64, Bool, number_distinct, sorted_unique
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.read_entries import read_entries

MAX_CHUNKS = 32
"""Chunks of 256 KB that are read: some tens of milliseconds."""
MAX_GROUPS = 400
"""Groups of like launches that are looked for, by time."""
MAX_OPS = 6000
"""Operators that are read from these chunks."""
WANTED_SHARE = 0.97
"""Share of the time that these groups take together."""


@dataclass(frozen=True, slots=True)
class SampledInputs:
    """Inputs of s operators: `rows` int64[s] ascending, `case` int64[s] into `cases`. Equal inputs share a case."""

    rows: I64
    case: I64
    cases: list[OpInputs]


def read_sampled_inputs(trace: Trace, op: I64 | I32, group: I64, time: I64) -> SampledInputs:
    """Read inputs of operators that launched this GPU work: row of the operator, group and ns of each piece, [k].

    Raises OSError or LookupError where the file is gone or has changed.
    """
    rows = np.unique(op[_select_pieces(trace, op, group, time)])[:MAX_OPS].astype(np.int64)
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
    chosen = _choose_chunks(chunk[wanted], group[wanted], group_time)
    return wanted & np.isin(chunk, chosen)


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
