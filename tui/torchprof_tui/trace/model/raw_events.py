"""Output of the decoders: the entries of `traceEvents` as columns in file order, not yet interpreted.

Both decoders fill `RawEvents`: the general one (`decode/general_decoder.py`) and the faster one for Kineto's own layout
(`decode/template/template_decoder.py`). `build/build_trace.py` turns it into a `Trace`. So the decoders can be compared
column by column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from torchprof_tui.trace.core.arrays import F64, I32, I64, U8, U16, Array
from torchprof_tui.trace.core.problems import Problem
from torchprof_tui.trace.text.block_text import FileText
from torchprof_tui.trace.text.large_values import LargeValues

NO_TIME = np.iinfo(np.int64).min  # `time` of an entry without a readable `ts`

NO_DURATION = -(2**63) + 1
"""`duration` of an entry that has none. (A negative duration in the file is kept; `build_trace` counts it.)"""


NO_CORRELATION = -1  # `correlation` of an entry without one

UNREADABLE_NUMBER = -(2**63) + 9
"""Value of an arg that is no integer or needs more than 64 bits; `build/sparse_columns.py` reports and removes it."""


@dataclass(slots=True)
class SparseArg:
    """An arg that only k << n entries have: `entries` int32[k] ascending (ordinals), `values` [k] or [k, m]."""

    entries: I32
    values: Array


@dataclass(slots=True)
class CounterPoints:
    """k points of `C` entries, in the order of the entries; one entry may have points of several series."""

    entry: I32  # ordinal
    series: I32  # index into `names`
    value: F64
    names: list[str]  # of the series: the keys in args

    def __len__(self) -> int:
        return len(self.entry)


@dataclass(slots=True)
class RawEvents:
    """One row per readable entry of `traceEvents`, in file order. n rows.

    Times are integer nanoseconds on the file's own clock (`ts` x 1000, exact). The row number is the entry's *ordinal*;
    unreadable entries have none (`DecodedTrace.unreadable` counts them).
    """

    phase: U8  # ord() of `ph`; 0 where it is missing or longer than one character
    time: I64  # NO_TIME where missing
    duration: I64  # NO_DURATION where missing
    name: I32  # index into `names`
    category: U16  # index into `categories`; "" where missing
    track: I32  # index into `tracks`
    correlation: I64  # args.correlation, -1 where missing
    id: I32  # index into `ids`, for flows and async events; -1 where missing
    names: list[str]
    categories: list[str]
    tracks: list[tuple[str, str]]  # (pid, tid) as text: 25738 and "25738" are the same track
    ids: Sequence[str]
    args: dict[str, SparseArg] = field(default_factory=dict)
    """Args that are needed for all events, by their name in `ARGS`."""
    metadata: list[tuple[str, str, str, Any]] = field(default_factory=list)
    """`M` entries: (name, pid, tid, value in args), e.g. ("thread_name", "12", "12", "python3")."""
    counters: CounterPoints = field(
        default_factory=lambda: CounterPoints(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0), [])
    )
    """Points of `C` entries."""

    def __len__(self) -> int:
        return len(self.phase)


ARGS: dict[str, tuple[str, ...]] = {
    # name here         keys in args; the first that is present is used
    "device": ("device",),
    "stream": ("stream",),
    "grid": ("grid",),  # int64[k, 3]
    "block": ("block",),  # int64[k, 3]
    "registers": ("registers per thread",),
    "shared_memory": ("shared memory",),  # bytes
    "bytes": ("bytes", "Bytes"),
    "external_id": ("External id", "external id"),
    "sequence": ("Sequence number",),
    "forward_thread": ("Fwd thread id",),
    "allocated": ("Total Allocated",),
    "reserved": ("Total Reserved",),
    "device_type": ("Device Type",),
    "device_id": ("Device Id",),
    "address": ("Addr",),
    "python_id": ("Python id",),
    "python_parent": ("Python parent id",),
    "wait_record": ("wait_on_cuda_event_record_corr_id",),  # of waits: the correlation of the call that records
    "graph_node": ("graph node id",),  # of replayed GPU work, in the order of capture; 0 for none
    "wait_stream": ("wait_on_stream",),  # of a cuda_sync event: the stream whose work it waits for
}
"""int64 values; a string that holds an integer is parsed (ROCm writes `bytes` as text). -1 is a regular value.

`device`, `stream`, `grid`, `block`, `registers`, `shared_memory`, `bytes` are kept for every event that is
not a cpu_op (ROCm records grid and shared memory on the launch); the memory args for instants.
"""


@dataclass(slots=True)
class DecodedTrace:
    """A decoded file: its entries, other top-level keys, text index and problems."""

    events: RawEvents
    header: dict[str, Any]  # top-level keys other than traceEvents, if below 64 KB of text
    text: FileText
    format: str  # "kineto" | "chrome", or the name of the extension that made its text
    size: int  # bytes of decompressed text
    unreadable: int = 0  # entries of traceEvents that could not be repaired
    not_objects: int = 0  # entries of traceEvents that are not objects (null, numbers, …)
    problems: list[Problem] = field(default_factory=list)
    large_keys: LargeValues | None = None  # larger top-level keys
