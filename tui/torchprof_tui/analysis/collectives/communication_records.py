"""Collect the communication kernels of one trace: operation, message size, process group.

What a kernel's own args do not say is read from the call that launched it: `record_param_comms` has the sizes since
torch 2.1, the annotation `nccl:all_reduce` the shape of the input before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from torchprof_tui.analysis.kernel.names.syntax import TYPE_BYTES
from torchprof_tui.analysis.search.name_search import match_names
from torchprof_tui.trace.core.arrays import F64, I32, I64, U8, Bool, is_in, sorted_unique
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.communication_kernels import (
    CommunicationKernel,
    Operation,
    classify_communication,
    classify_operation,
)
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.read_entries import read_entries

ELEMENT_BYTES = {
    "Byte": 1,
    "Char": 1,
    "Bool": 1,
    "Short": 2,
    "Half": 2,
    "BFloat16": 2,
    "Int": 4,
    "Float": 4,
    "Long": 8,
    "Double": 8,
    "Float8_e4m3fn": 1,
    "Float8_e5m2": 1,
}
"""`dtype` of a collective (c10/core/ScalarType.h) -> bytes per element; message sizes are recorded in elements."""

OPERATIONS = tuple(Operation)  # operations by number, for columns of them

_OPERATION_NUMBER = {operation: number for number, operation in enumerate(OPERATIONS)}
_MAX_ANCESTORS = 6
"""Callers looked at above a launch: the annotation, `record_param_comms`, `c10d::…` follow each other."""


@record
class CommunicationRecords:
    """k communication kernels of one trace, by event. Messages: the larger of input and output.

    `operation` uint8[k]: indexes into `OPERATIONS`. `bytes` int64[k]: of the message on one rank, 0 where unknown.
    `group_size` int64[k]: ranks of the group, 0 where unknown. `group` int32[k]: number of the process group and type,
    equal for messages that travel alike. `library` int32[k]: indexes into `libraries`. `device` int32[k].
    `is_readable`: False where the args could not be read, because the file is gone or has changed.
    """

    events: I64
    operation: U8
    bytes: I64
    group_size: I64
    group: I32
    library: I32
    device: I32
    libraries: tuple[str, ...]
    is_readable: bool = True

    def __len__(self) -> int:
        return len(self.events)

    def operation_mask(self, *operations: Operation) -> Bool:
        """Select the kernels of these operations: bool[k]."""
        return is_in(self.operation, [_OPERATION_NUMBER[operation] for operation in operations])


def read_communication(trace: Trace) -> CommunicationRecords:
    """Read the communication kernels of a trace of one process. Parses each chunk of the file that holds one."""
    events = np.flatnonzero(np.asarray(trace.kind) == Kind.COLLECTIVE)
    reader = _RecordReader(trace, events)
    is_readable = True
    try:
        reader.read_kernels()
        reader.read_callers()
    except (OSError, LookupError):
        is_readable = False
    return reader.build_records(is_readable)


_MAX_BYTES = 1 << 50  # no message is that large; sums over all kernels stay within int64

_SAMPLE_SIZE = 8
_SIZE_KEYS = frozenset({"Collective name", "In msg nelems", "Out msg nelems", "Input Dims"})
"""Args that say what a collective moves."""


class _RecordReader:
    """Reads the args of kernels, then those of the calls above their launches for what is still unknown."""

    def __init__(self, trace: Trace, events: I64) -> None:
        self.trace = trace
        self.events = events
        name = trace.name[events]
        self._kernels = {
            number: classify_communication(trace.names[number]) or CommunicationKernel("other", Operation.OTHER, True)
            for number in sorted_unique(name).tolist()
        }
        self.kernels = [self._kernels[number] for number in name.tolist()]
        self.operation = [
            # A kernel of category `collective_comm` may have any name.
            classify_operation(trace.names[number]) if kernel.library == "other" else kernel.operation
            for number, kernel in zip(name.tolist(), self.kernels, strict=True)
        ]
        self.has_group = np.array([kernel.has_process_group for kernel in self.kernels], np.bool_)
        self.bytes = np.zeros(len(events), np.int64)
        self.group_size = np.zeros(len(events), np.int64)
        self.group_text = [""] * len(events)

    def read_kernels(self) -> None:
        if self._records_sizes(self.events):
            for index, entry in read_entries(self.trace, self.events):
                self._apply_args(index, _args_of(entry))

    def read_callers(self) -> None:
        """Read sizes from `record_param_comms`, else from `nccl:…`, above the launches of kernels that have none.

        A call that launched several kernels is left out: which part of its message each moved is not recorded.
        """
        launch = np.asarray(self.trace.links.launch_of[self.events])
        unknown = np.flatnonzero((self.bytes == 0) & (launch >= 0) & self.has_group)
        for is_wanted in ("record_param_comms".__eq__, _is_collective_annotation):
            wanted = match_names(self.trace, is_wanted)
            caller = np.full(len(unknown), -1, np.int64)
            above = launch[unknown].astype(np.int64)
            for _ in range(_MAX_ANCESTORS):
                above = np.where(above >= 0, self.trace.parent[np.maximum(above, 0)], -1)
                is_hit = (caller < 0) & (above >= 0) & wanted[np.maximum(above, 0)]
                caller[is_hit] = above[is_hit]
            found, count = np.unique(caller[caller >= 0], return_counts=True)
            single = found[count == 1]
            if not self._records_sizes(single):
                continue
            kernel_of = dict(zip(caller.tolist(), unknown.tolist(), strict=True))
            for position, entry in read_entries(self.trace, single):
                self._apply_args(kernel_of[int(single[position])], _args_of(entry), str(entry.get("name")))
            unknown = unknown[self.bytes[unknown] == 0]

    def _records_sizes(self, events: I64) -> bool:
        """Tell by a few of these events whether the profiler recorded sizes with them: old versions did not, and
        reading all entries takes as long as parsing most of the file."""
        sample = events[
            sorted_unique(np.linspace(0, max(len(events) - 1, 0), min(_SAMPLE_SIZE, len(events))).astype(np.int64))
        ]
        return any(_SIZE_KEYS & _args_of(entry).keys() for _, entry in read_entries(self.trace, sample))

    def _apply_args(self, index: int, args: dict[str, Any], caller: str = "") -> None:
        name = str(args.get("Collective name") or caller.partition(":")[2])
        self.operation[index] = _choose_operation(self.operation[index], name)
        size = args.get("Group size")
        if isinstance(size, int) and 0 < size < 1 << 31:
            self.group_size[index] = size
        group = str(args.get("Process Group Name") or "")
        message = compute_message_bytes(args)
        if not message and _is_collective_annotation(caller):
            message = _compute_input_bytes(args)
            if self.operation[index] is Operation.ALL_GATHER:  # the input is one rank's part
                message *= int(self.group_size[index] or self.trace.world_size or 1)
        if 0 < message < _MAX_BYTES:
            self.bytes[index] = message
            self.group_text[index] = f"{group}\0{args.get('dtype') or args.get('Input type')}"

    def build_records(self, is_readable: bool) -> CommunicationRecords:
        libraries = tuple(sorted({kernel.library for kernel in self.kernels}))
        groups: dict[str, int] = {}
        group = [groups.setdefault(text, len(groups)) for text in self.group_text]
        group_size = self.group_size
        world_size = self.trace.world_size or 0
        if 0 < world_size < 1 << 31:
            # Traces without groups are older than torch 2.1; nearly all have a single one.
            group_size = np.where((group_size == 0) & self.has_group, world_size, group_size)
        device_of_lane = np.array([-1 if lane.device is None else lane.device for lane in self.trace.lanes] or [-1])
        return CommunicationRecords(
            self.events.astype(np.int64),
            np.array([_OPERATION_NUMBER[operation] for operation in self.operation], np.uint8),
            self.bytes,
            group_size,
            np.array(group, np.int32),
            np.array([libraries.index(kernel.library) for kernel in self.kernels], np.int32),
            device_of_lane[self.trace.lane[self.events]].astype(np.int32),
            libraries,
            is_readable,
        )


def compute_message_bytes(args: dict[str, Any]) -> int:
    """Compute the bytes of the larger of input and output message; 0 where not recorded."""
    counts = [args.get(key) for key in ("In msg nelems", "Out msg nelems")]
    elements = max((count for count in counts if isinstance(count, int) and 0 <= count < 1 << 56), default=0)
    return elements * ELEMENT_BYTES.get(str(args.get("dtype")), 0)


def compute_bus_factor(operation: Operation, group_size: I64) -> F64:
    """Compute bus bandwidth over algorithm bandwidth for groups of n ranks, float64[k]; NaN where n is unknown.

    As nccl-tests (doc/PERFORMANCE.md): all-reduce 2 (n - 1) / n; all-gather, reduce-scatter, all-to-all, gather and
    scatter (n - 1) / n, all of the larger message; broadcast, reduce, send and receive 1.
    """
    size = np.maximum(group_size, 1).astype(np.float64)
    part = (size - 1) / size
    if operation is Operation.ALL_REDUCE:
        factor = 2 * part
    elif operation in _PART_OPERATIONS:
        factor = part
    elif operation in _WHOLE_OPERATIONS:
        return np.ones(len(size))
    else:
        return np.full(len(size), math.nan)
    return np.where(group_size > 1, factor, math.nan)


_PART_OPERATIONS = (
    Operation.ALL_GATHER,
    Operation.REDUCE_SCATTER,
    Operation.ALL_TO_ALL,
    Operation.GATHER,
    Operation.SCATTER,
)
_WHOLE_OPERATIONS = (Operation.BROADCAST, Operation.REDUCE, Operation.SEND_RECEIVE)


_classify_recorded = lru_cache(maxsize=256)(classify_operation)


def _choose_operation(of_kernel: Operation, recorded_name: str) -> Operation:
    """Choose between the kernel's name and the recorded one: NCCL runs an all-to-all as SendRecv, a barrier as
    AllReduce, and RCCL everything as Generic."""
    recorded = _classify_recorded(recorded_name)
    if recorded is Operation.BARRIER or of_kernel in (Operation.OTHER, Operation.SEND_RECEIVE):
        return of_kernel if recorded is Operation.OTHER else recorded
    return of_kernel


def _compute_input_bytes(args: dict[str, Any]) -> int:
    """Compute the bytes of the inputs of an annotation from `Input Dims` and `Input type`; 0 where not recorded."""
    shapes, types = args.get("Input Dims"), args.get("Input type")
    if not isinstance(shapes, list) or not isinstance(types, list):
        return 0
    total = 0
    for shape, type_name in zip(shapes, types, strict=False):
        sizes = shape if isinstance(shape, list) else []
        if sizes and all(isinstance(size, int) and 0 <= size < 1 << 40 for size in sizes):
            total += math.prod(sizes) * TYPE_BYTES.get(str(type_name), 0)
    return total if total < 1 << 62 else 0


def _is_collective_annotation(name: str) -> bool:
    return name.startswith(("nccl:", "xccl:", "hccl:"))


def _args_of(entry: dict[str, Any]) -> dict[str, Any]:
    args = entry.get("args")
    return args if isinstance(args, dict) else {}


def name_libraries(records: CommunicationRecords, chosen: Bool) -> Sequence[str]:
    """Name the libraries of some of the kernels, alphabetically."""
    return [records.libraries[number] for number in sorted_unique(records.library[chosen]).tolist()]
