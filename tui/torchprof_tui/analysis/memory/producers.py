"""Find what allocated: the op, the phase of training, the module and the line of the program."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from torchprof_tui.analysis.dispatch.call_sites import CallSites
from torchprof_tui.analysis.dispatch.frame_names import FrameOrigin, parse_frame
from torchprof_tui.analysis.dispatch.source_line import find_open_names
from torchprof_tui.analysis.memory.passes import Passes, Phase, find_nearest_or_self, find_phases
from torchprof_tui.trace.core.arrays import I32, I64, U8, Bool
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import MemoryEvents, Trace
from torchprof_tui.trace.query.read_entries import read_entries

ALLOCATING_OPS = frozenset(
    f"aten::{name}"
    for name in (
        *("empty", "empty_like", "empty_permuted", "empty_quantized", "empty_strided", "new_empty"),
        *("new_empty_strided", "resize_", "resize_as_", "_efficientzerotensor"),
    )
)
"""Ops that only allocate: the op that called one of them says what the memory is for."""


_Factorize = Callable[[I32], tuple[I32, list[str]]]


class Producers:
    """What allocated, for the `[memory]` records of one trace; arrays over all events are computed on first use.

    `owner` int32[records]: the innermost event around each record, -1 for none.
    """

    def __init__(self, trace: Trace, memory: MemoryEvents, passes: Passes, owner: I32) -> None:
        self.trace, self.memory, self.passes, self.owner = trace, memory, passes, owner

    def find_ops(self, records: I64) -> I64:
        """Find the op that allocated, for each record: int64[k] events; -1 for none.

        That is the innermost op that does more than to allocate; the op that allocates where no other is around it.
        """
        owners = self._owners_of(records)
        working = find_nearest_or_self(self.trace.parent, owners, self._is_op & ~self._only_allocates)
        any_op = find_nearest_or_self(self.trace.parent, owners, self._is_op)
        return np.where(working >= 0, working, any_op)

    def find_phases(self, records: I64) -> U8:
        """Find the phase of each record, Phase.BEFORE for record -1: uint8[k]."""
        phase = np.full(len(records), Phase.BEFORE, np.uint8)
        known = np.flatnonzero(records >= 0)
        rows = records[known]
        phase[known] = find_phases(
            self.trace, self.passes, self.owner[rows], self.memory.lane[rows], self.memory.time[rows]
        )
        return phase

    def factorize_modules(self, records: I64) -> tuple[I32, list[str]]:
        """Return (index int32[k], paths) of the modules around each record, outermost first; "" for none.

        Memory of the backward pass belongs to the module of its forward op.
        """
        return self._factorize(records, self.call_sites.factorize_modules)

    def factorize_lines(self, records: I64) -> tuple[I32, list[str]]:
        """Return (index int32[k], texts) of the innermost frame of the program around each record; "" for none.

        A frame of the user's own code is preferred to one of an installed package. The line is where the function
        begins, because the profiler records no other. Memory of the backward pass belongs to the line of its forward
        op where that is known.
        """
        return self._factorize(records, self._factorize_lines_of_events)

    def factorize_ops(self, ops: I64) -> tuple[I32, list[str]]:
        """Return (index int32[k], names) of op events; "" for -1."""
        name = np.where(ops >= 0, self.trace.name[np.maximum(ops, 0)], -1) if len(self.trace) else np.full(len(ops), -1)
        names, inverse = np.unique(name, return_inverse=True)
        return inverse.astype(np.int32), ["" if each < 0 else self.trace.names[each] for each in names.tolist()]

    def factorize_shapes(self, ops: I64) -> tuple[I32, list[str]]:
        """Return (index int32[k], shapes) of the inputs of op events, read from the file; "" where not recorded.

        Raises OSError, LookupError if the file is gone or changed.
        """
        known, inverse = np.unique(ops, return_inverse=True)
        events = known[known >= 0]
        index_of_text: dict[str, int] = {"": 0}
        index = np.zeros(len(known), np.int32)
        for position, entry in read_entries(self.trace, events):
            args = entry.get("args")
            dims = args.get("Input Dims") if isinstance(args, dict) else None
            text = str(dims) if isinstance(dims, list) else ""
            index[len(known) - len(events) + position] = index_of_text.setdefault(text, len(index_of_text))
        return index[inverse], list(index_of_text)

    @cached_property
    def call_sites(self) -> CallSites:
        return CallSites(self.trace)

    @cached_property
    def has_frames(self) -> bool:
        """Whether Python frames were recorded (with_stack=True)."""
        return bool((self.trace.kind == Kind.PYTHON).any())

    def _owners_of(self, records: I64) -> I64:
        return np.where(records >= 0, self.owner[np.maximum(records, 0)], -1).astype(np.int64)

    def _factorize(self, records: I64, factorize: _Factorize) -> tuple[I32, list[str]]:
        owners = self._owners_of(records)
        known = np.flatnonzero(owners >= 0)
        index, texts = factorize(owners[known].astype(np.int32))
        out = np.zeros(len(records), np.int32)  # the first text is ""
        out[known] = index
        return out, texts

    def _factorize_lines_of_events(self, events: I32) -> tuple[I32, list[str]]:
        frame = np.where(self._user_caller[events] >= 0, self._user_caller[events], self._library_caller[events])
        name = np.where(frame >= 0, self.trace.name[np.maximum(frame, 0)], -1)
        names, inverse = np.unique(np.append(name, -1), return_inverse=True)
        index_of_text: dict[str, int] = {"": 0}
        index = [index_of_text.setdefault(self._format_line(each), len(index_of_text)) for each in names.tolist()]
        return np.array(index, np.int32)[inverse[:-1]], list(index_of_text)

    def _format_line(self, name: int) -> str:
        frame = parse_frame(self.trace.names[name]) if name >= 0 else None
        if frame is None:
            return ""
        if name in self._open_names:
            frame = frame.forget_line()
        return (
            f"{frame.file}: {frame.function}" if frame.line is None else f"{frame.file}:{frame.line} {frame.function}"
        )

    @cached_property
    def _open_names(self) -> frozenset[int]:
        return find_open_names(self.trace)

    @cached_property
    def _user_caller(self) -> I32:
        return self.call_sites.find_callers(self._mask_frames(FrameOrigin.USER))

    @cached_property
    def _library_caller(self) -> I32:
        return self.call_sites.find_callers(self._mask_frames(FrameOrigin.LIBRARY))

    @cached_property
    def _origins(self) -> U8:
        """uint8[names]: the FrameOrigin of each name of a Python event, 255 for other names."""
        origins = np.full(len(self.trace.names) + 1, 255, np.uint8)
        for name in np.unique(self.trace.name[self.trace.kind == Kind.PYTHON]).tolist():
            frame = parse_frame(self.trace.names[name])
            if frame is not None:
                origins[name] = frame.origin
        return origins

    def _mask_frames(self, origin: FrameOrigin) -> Bool:
        return np.asarray((self.trace.kind == Kind.PYTHON) & (self._origins[self.trace.name] == origin))

    @cached_property
    def _is_op(self) -> Bool:
        return np.asarray(self.trace.kind == Kind.OP)

    @cached_property
    def _only_allocates(self) -> Bool:
        named = np.fromiter((name in ALLOCATING_OPS for name in self.trace.names), np.bool_, len(self.trace.names))
        return np.asarray(named[self.trace.name]) if len(named) else np.zeros(len(self.trace), np.bool_)
