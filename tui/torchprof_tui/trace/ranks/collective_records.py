"""The collectives of one rank: what its file says about each, in the order in which they were launched.

The group, the operation, its type and size stand in the args of a collective's kernel, so they are read from the text,
once, and kept beside the columns as `collectives.json`.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.read_entries import read_entries

COLLECTIVES_FILE = "collectives.json"
VERSION = 1

_POINT_TO_POINT = frozenset({"send", "recv", "isend", "irecv", "coalesced"})
"""Operations of two ranks, each with a part of its own: nothing that all ranks come to."""


_CPU_BACKENDS = ("gloo:", "mpi:", "ucc:")
"""How the ranges of backends that run on the CPU begin (torch.distributed's ProcessGroup*.cpp). `nccl:` ranges on the
CPU only launch."""


@dataclass(frozen=True, slots=True)
class Collectives:
    """k collectives of one rank, by launch. `group`, `operation`, `dtype` are places in `texts`; sizes in elements, 0
    where the file does not say. `before`: how many more were launched before the recording, and are left out.

    `group` is the process group's name and its ranks, "" in traces that do not say (torch before 2.1).
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
    """From the file's text: parses each chunk that holds a collective. Raises OSError, LookupError where it is gone."""
    rows = np.flatnonzero(np.asarray(trace.kind) == Kind.COLLECTIVE)
    if not len(rows):
        rows = _find_cpu_collectives(trace)
    launch = np.asarray(trace.links.launch_of[rows])
    known = launch >= 0
    before = 0
    if known.any():
        # The program issued these in one order; those without a launch are older than the recording.
        before = int(np.count_nonzero(~known))
        rows, launch = rows[known], launch[known]
        begun = np.asarray(trace.start[launch])
    else:
        begun = np.asarray(trace.start[rows])
    rows = rows[np.lexsort((trace.start[rows], begun))]
    texts: dict[str, int] = {}
    told = np.zeros((len(rows), 5), np.int64)
    for place, entry in read_entries(trace, rows):
        args = entry.get("args")
        args = args if isinstance(args, dict) else {}
        operation = str(args.get("Collective name") or trace.names[trace.name[rows[place]]])
        words = (_format_group(args), operation, str(args.get("dtype") or ""))
        sizes = (_parse_element_count(args.get("In msg nelems")), _parse_element_count(args.get("Out msg nelems")))
        told[place] = (*(texts.setdefault(word, len(texts)) for word in words), *sizes)
    point = np.array([word in _POINT_TO_POINT for word in texts] or [False])
    kept = ~point[told[:, 1]]
    rows, told = rows[kept].astype(np.int32), told[kept]
    group, operation, dtype = (told[:, k].astype(np.int32) for k in range(3))
    return Collectives(rows, group, operation, dtype, told[:, 3], told[:, 4], list(texts), before)


def _find_cpu_collectives(trace: Trace) -> I64:
    """Without a GPU: the ranges in which gloo's or MPI's threads run a collective, which last until it has ended."""
    named = np.array([name.startswith(_CPU_BACKENDS) for name in trace.names] or [False])
    return np.flatnonzero((np.asarray(trace.kind) == Kind.ANNOTATION) & named[trace.name])


def store_collectives(collectives: Collectives, folder: Path) -> None:
    """Leave them beside the columns. What cannot be written is read from the text again next time."""
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
    draft = folder / f".{COLLECTIVES_FILE}.{os.getpid()}"
    with contextlib.suppress(OSError):
        draft.write_text(json.dumps(document), encoding="ascii")
        draft.replace(folder / COLLECTIVES_FILE)


def load_collectives(folder: Path) -> Collectives | None:
    """What `keep` left there, None where there is nothing of use."""
    try:
        document = json.loads((folder / COLLECTIVES_FILE).read_text(encoding="ascii"))
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
    described = str(args.get("Process Group Description") or "")
    return " ".join(filter(None, [name, described if described not in ("undefined", name) else "", ranks]))


def _parse_element_count(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 62 else 0
