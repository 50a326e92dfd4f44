"""Read the collectives of one rank from its file, in the order in which they were launched.

The group, the operation, its type and size are in the args of a collective's kernel, so they are read from the text
once, and stored in the trace's cache folder as `collectives.json`, whose last line is the checksum of the others.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64, Bool, sorted_unique
from torchprof_tui.trace.core.checksum import crc32
from torchprof_tui.trace.model.communication_kernels import classify_communication
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.read_entries import read_entries

COLLECTIVES_FILE = "collectives.json"
VERSION = 3

_POINT_TO_POINT = frozenset({"send", "recv", "isend", "irecv", "coalesced"})
"""Operations between two ranks, which are not matched."""

_CPU_BACKENDS = ("gloo:", "mpi:", "ucc:")
"""Prefixes of the ranges of backends that run on the CPU (torch.distributed's ProcessGroup*.cpp). `nccl:` ranges on the
CPU only launch."""


@dataclass(frozen=True, slots=True)
class Collectives:
    """k collectives of one rank, by launch. `group`, `operation`, `dtype` are indexes into `texts`; sizes in elements,
    0 where the file has none. `before_recording`: the number of those launched before the recording, left out here.

    `group` is the process group's name and its ranks, "" in traces that do not record it (torch before 2.1).
    """

    events: I32
    group: I32
    operation: I32
    dtype: I32
    received: I64
    sent: I64
    texts: list[str]
    before_recording: int

    def __len__(self) -> int:
        return len(self.events)


def read_collectives(trace: Trace) -> Collectives:
    """Read the collectives from the file's text: parses each chunk that holds one.

    Raises OSError where the file is gone, LookupError where it has changed.
    """
    events, before_recording = _select_collectives(trace)
    texts: dict[str, int] = {}
    records = np.zeros((len(events), 5), np.int64)  # group, operation, dtype, received, sent
    for index, entry in read_entries(trace, events):
        args = entry.get("args")
        args = args if isinstance(args, dict) else {}
        operation = str(args.get("Collective name") or trace.names[trace.name[events[index]]])
        words = (_format_group(args), operation, str(args.get("dtype") or ""))
        sizes = (_parse_element_count(args.get("In msg nelems")), _parse_element_count(args.get("Out msg nelems")))
        records[index] = (*(texts.setdefault(word, len(texts)) for word in words), *sizes)
    is_point_to_point = np.array([word in _POINT_TO_POINT for word in texts] or [False])
    kept = ~is_point_to_point[records[:, 1]]
    events, records = events[kept].astype(np.int32), records[kept]
    group, operation_code, dtype = (records[:, k].astype(np.int32) for k in range(3))
    return Collectives(
        events, group, operation_code, dtype, records[:, 3], records[:, 4], list(texts), before_recording
    )


def _select_collectives(trace: Trace) -> tuple[I64, int]:
    """Select the events of collectives by launch, int64[k], and count those launched before the recording."""
    events = np.flatnonzero(np.asarray(trace.kind) == Kind.COLLECTIVE)
    events = events[_is_of_process_group(trace, events)]
    if not len(events):
        events = _find_cpu_collectives(trace)
    launch = np.asarray(trace.links.launch_of[events])
    has_launch = launch >= 0
    before_recording = 0
    if has_launch.any():
        # The program issued these in one order; those without a launch are older than the recording.
        before_recording = int(np.count_nonzero(~has_launch))
        events, launch = events[has_launch], launch[has_launch]
        issued = np.asarray(trace.start[launch])
    else:
        issued = np.asarray(trace.start[events])
    return events[np.lexsort((trace.start[events], issued))], before_recording


def _is_of_process_group(trace: Trace, events: I64) -> Bool:
    """Tell which kernels run collectives of a process group, bool[k].

    Kernels of DeepEP, NVSHMEM, symmetric memory and serving engines record no group. Some wait and some do not, and
    they may run on some of the ranks only, so neither clocks nor arrivals are taken from them.
    """
    name = trace.name[events]
    is_recorded = np.zeros(len(trace.names), np.bool_)
    for number in sorted_unique(name).tolist():
        kernel = classify_communication(trace.names[number])
        is_recorded[number] = kernel is None or kernel.has_process_group  # None: known by its category
    return is_recorded[name]


def _find_cpu_collectives(trace: Trace) -> I64:
    """Find the ranges in which threads of gloo or MPI run a collective, which last until it has ended."""
    is_collective = np.array([name.startswith(_CPU_BACKENDS) for name in trace.names] or [False])
    return np.flatnonzero((np.asarray(trace.kind) == Kind.ANNOTATION) & is_collective[trace.name])


def store_collectives(collectives: Collectives, folder: Path) -> None:
    """Store the collectives in the trace's cache folder. If that fails, they are read from the text again next time."""
    columns = (
        collectives.events,
        collectives.group,
        collectives.operation,
        collectives.dtype,
        collectives.received,
        collectives.sent,
    )
    document = {
        "version": VERSION,
        "columns": [column.tolist() for column in columns],
        "texts": collectives.texts,
        "before": collectives.before_recording,
    }
    temporary = folder / f".{COLLECTIVES_FILE}.{os.getpid()}"
    with contextlib.suppress(OSError):
        text = json.dumps(document).encode("ascii")
        temporary.write_bytes(b"%b\n%08x" % (text, crc32(text)))
        temporary.replace(folder / COLLECTIVES_FILE)


def load_collectives(folder: Path) -> Collectives | None:
    """Load what `store_collectives` stored, None where it is missing or cannot be used."""
    try:
        if not (folder / COLLECTIVES_FILE).is_file():
            return None
        text, _, checksum = (folder / COLLECTIVES_FILE).read_bytes().rpartition(b"\n")
        if checksum != b"%08x" % crc32(text):
            return None
        document = json.loads(text)
        if document["version"] != VERSION:
            return None
        events, group, operation, dtype = (np.array(column, np.int32) for column in document["columns"][:4])
        received, sent = (np.array(column, np.int64) for column in document["columns"][4:])
        return Collectives(events, group, operation, dtype, received, sent, document["texts"], document["before"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _format_group(args: dict[str, Any]) -> str:
    name = str(args.get("Process Group Name") or "")
    ranks = str(args.get("Process Group Ranks") or "")
    description = str(args.get("Process Group Description") or "")
    return " ".join(filter(None, [name, description if description not in ("undefined", name) else "", ranks]))


def _parse_element_count(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 62 else 0
