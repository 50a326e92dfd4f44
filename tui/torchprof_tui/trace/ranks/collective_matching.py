"""Read the collectives of each rank, and match them across ranks by process group, step and order.

The order is that of their launches. Steps divide it where they were recorded, so that ranks whose recordings begin at
another step still match, and a rank that lacks a collective is out of order with the others for that step alone.
Within a step (or without steps) equal sequences of operations are matched one by one. Where one is shorter, the gap is
searched for: of all positions that leave the same operations matched, the one at which the end times differ most
evenly, because a collective ends on all ranks at once, also where their clocks differ.

The group, the operation, its type and size are in the args of a collective's kernel, so they are read from the text
once, and stored in the trace's cache folder as `collectives.json`, whose last line is the checksum of the others.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64, NONE, Bool, sorted_unique
from torchprof_tui.trace.core.column_file import crc32
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.communication_kernels import SYNCHRONIZING_OPERATIONS, classify_communication
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.ranks import MatchedCollectives
from torchprof_tui.trace.model.trace import Trace
from torchprof_tui.trace.query.read_entries import read_entries

COLLECTIVES_FILE = "collectives.json"
VERSION = 3

_POINT_TO_POINT = frozenset({"send", "recv", "isend", "irecv", "coalesced"})
"""Operations between two ranks, which are not matched."""

_CPU_BACKENDS = ("gloo:", "mpi:", "ucc:")
"""Prefixes of the ranges of backends that run on the CPU (torch.distributed's ProcessGroup*.cpp). `nccl:` ranges on the
CPU only launch."""


@record
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
        name = str(args.get("Process Group Name") or "")
        ranks = str(args.get("Process Group Ranks") or "")
        description = str(args.get("Process Group Description") or "")
        group_name = " ".join(filter(None, [name, "" if description in ("undefined", name) else description, ranks]))
        words = (group_name, operation, str(args.get("dtype") or ""))
        sizes = (_parse_element_count(args.get("In msg nelems")), _parse_element_count(args.get("Out msg nelems")))
        records[index] = (*(texts.setdefault(word, len(texts)) for word in words), *sizes)
    is_point_to_point = np.array([word in _POINT_TO_POINT for word in texts], np.bool_)
    kept = ~is_point_to_point[records[:, 1]]
    rows, records = events[kept].astype(np.int32), records[kept]
    group, operation_code, dtype = (records[:, k].astype(np.int32) for k in range(3))
    return Collectives(rows, group, operation_code, dtype, records[:, 3], records[:, 4], list(texts), before_recording)


def _select_collectives(trace: Trace) -> tuple[I64, int]:
    """Select the events of collectives by launch, int64[k], and count those launched before the recording."""
    events = np.flatnonzero(np.asarray(trace.kind) == Kind.COLLECTIVE)
    events = events[_is_of_process_group(trace, events)]
    if not len(events):  # the ranges in which threads of gloo or MPI run a collective, which last until it has ended
        is_collective = np.array([name.startswith(_CPU_BACKENDS) for name in trace.names], np.bool_)
        events = np.flatnonzero((np.asarray(trace.kind) == Kind.ANNOTATION) & is_collective[trace.name])
    launch = np.asarray(trace.links.launch_of[events])
    has_launch = launch != NONE
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


def store_collectives(collectives: Collectives, folder: Path) -> None:
    """Store the collectives in the trace's cache folder. If that fails, they are read from the text again next time."""
    columns = [getattr(collectives, name) for name in ("events", "group", "operation", "dtype", "received", "sent")]
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


def _parse_element_count(value: Any) -> int:
    return value if isinstance(value, int) and 1 <= value < 1 << 62 else 0


_MAX_GAP_POSITIONS = 500  # positions that are tried for a gap; of more, evenly spaced ones
_MAX_OFFSET = 1000  # largest offset that is tried between two sequences that do not match otherwise

_SIZE_BITS = 40
"""Bits of the size in a signature, which is an operation and a size: no message has a million million elements."""

_EQUAL_SIZE_OPERATIONS = ("allreduce", "allgather", "reducescatter", "broadcast", "barrier")
"""Operations in which all ranks send equally much. In an all-to-all with splits they do not."""


def _find_operations(texts: Sequence[str], operations: Sequence[str]) -> Bool:
    """Tell which texts name one of these operations: bool[texts], at least one."""
    plain = [text.lower().replace("_", "") for text in texts]
    return np.array([any(name in text for name in operations) for text in plain] or [False])


def match_collectives(traces: Sequence[Trace], collectives: Sequence[Collectives]) -> MatchedCollectives:
    """Match the collectives of all ranks; kept are those of at least two ranks."""
    index_of_text: dict[str, int] = {}
    tables = [
        _build_rank_table(trace, records, index_of_text) for trace, records in zip(traces, collectives, strict=True)
    ]
    texts = list(index_of_text)
    is_sized = _find_operations(texts, _EQUAL_SIZE_OPERATIONS)
    if any(len(table.step) and not table.has_steps for table in tables):
        for table in tables:
            table.step[:] = -1  # a rank that recorded no steps has a single sequence, so all ranks must
    groups = sorted({int(code) for table in tables for code in np.unique(table.group)})
    parts = [part for group in groups for part in _match_group(tables, group, is_sized)]
    rows = np.concatenate(parts, axis=1).T if parts else np.zeros((0, len(tables)), np.int64)
    rows = rows[(rows != NONE).sum(axis=1) > 1]
    before_recording = np.array([records.before_recording for records in collectives], np.int64)
    return _build_matched_collectives(tables, rows, texts, is_sized, before_recording)


@record
class _RankTable(Collectives):
    """One rank's collectives, with texts numbered alike for all ranks; `segment` ascends with `step`, see
    `_assign_segments`. `end`: ns."""

    segment: I64
    step: I64
    end: I64
    has_steps: bool


def _build_rank_table(trace: Trace, collectives: Collectives, index_of_text: dict[str, int]) -> _RankTable:
    code = np.array([index_of_text.setdefault(text, len(index_of_text)) for text in collectives.texts], np.int32)
    launch = trace.links.launch_of[collectives.events]
    issued = trace.start[np.where(launch != NONE, launch, collectives.events)]
    segment, step = _assign_segments(trace, np.asarray(issued))
    values = {column.name: getattr(collectives, column.name) for column in fields(collectives)}
    values |= {name: code[values[name]] for name in ("group", "operation", "dtype")}
    end = np.asarray(trace.start[collectives.events] + trace.duration[collectives.events])
    return _RankTable(**values, segment=segment, step=step, end=end, has_steps=bool(trace.profiler_steps))


def _assign_segments(trace: Trace, issued: I64) -> tuple[I64, I64]:
    """Assign each collective, by its time of launch, to a segment of the program (a step, or what follows one) that has
    the same number on all ranks, and to a step or -1: int64[k] each."""
    steps = trace.profiler_steps  # the numbers of a serving engine's steps may differ from rank to rank
    if not steps:
        return np.full(len(issued), NONE, np.int64), np.full(len(issued), NONE, np.int64)
    starts = np.array([step.start for step in steps], np.int64)
    ends = starts + np.array([step.duration for step in steps], np.int64)
    numbers = np.array([step.number for step in steps], np.int64)
    index = np.searchsorted(starts, issued, side="right") - 1
    inside = (index != NONE) & (issued < ends[index])
    segment = np.where(index == NONE, NONE, numbers[index] * 2 + ~inside)
    return segment, np.where(inside, numbers[index], NONE)


def _match_group(tables: Sequence[_RankTable], group: int, is_sized: Bool) -> list[I64]:
    """Match the collectives of one process group: int64[r, k] for each segment, the row in each rank's table or -1."""
    group_rows = [np.flatnonzero(table.group == group) for table in tables]
    has_steps = all(table.has_steps for table, rows in zip(tables, group_rows, strict=True) if len(rows))
    segments = [
        table.segment[rows] if has_steps else np.zeros(len(rows), np.int64)
        for table, rows in zip(tables, group_rows, strict=True)
    ]
    return [
        _match_segment(tables, [rows[own == segment] for rows, own in zip(group_rows, segments, strict=True)], is_sized)
        for segment in np.unique(np.concatenate(segments)).tolist()
    ]


def _match_segment(tables: Sequence[_RankTable], rows: Sequence[I64], is_sized: Bool) -> I64:
    """Match the collectives in these rows of each rank's table with those of the rank that has most: int64[r, k]."""
    signatures = [_compute_signatures(table, own, is_sized) for table, own in zip(tables, rows, strict=True)]
    ends = [table.end[own] for table, own in zip(tables, rows, strict=True)]
    longest = max(range(len(rows)), key=lambda rank: len(rows[rank]))
    matched = np.full((len(rows), len(rows[longest])), NONE, np.int64)
    for rank, own in enumerate(rows):
        position = match_sequences(signatures[longest], signatures[rank], ends[longest], ends[rank])
        matched[rank, position[position != NONE]] = own[position != NONE]
    return matched


def _compute_signatures(table: _RankTable, rows: I64, is_sized: Bool) -> I64:
    """Compute int64[k], equal for collectives that may match: the same operation, of the same size where sizes are
    equal on all ranks."""
    operation = table.operation[rows].astype(np.int64)
    size = table.received[rows] & ((1 << _SIZE_BITS) - 1)
    return operation << _SIZE_BITS | np.where(is_sized[operation], size, 0)


def match_sequences(signatures: I64, other_signatures: I64, ends: I64, other_ends: I64) -> I64:
    """Match two sequences: int64[len(others)], the index in `signatures` of each of the others, ascending, -1 for none.

    `ends`, `other_ends`: in ns, each on any clock.
    """
    if len(signatures) == len(other_signatures) and np.array_equal(signatures, other_signatures):
        return np.arange(len(other_signatures), dtype=np.int64)
    if len(signatures) < len(other_signatures):
        inverse = match_sequences(other_signatures, signatures, other_ends, ends)
        position = np.full(len(other_signatures), NONE, np.int64)
        position[inverse[inverse != NONE]] = np.flatnonzero(inverse != NONE)
        return position
    if not len(other_signatures):
        return np.zeros(0, np.int64)
    position_with_gap = _match_with_gap(signatures, other_signatures, ends, other_ends)
    if position_with_gap is not None:
        return position_with_gap
    return _match_with_offset(signatures, other_signatures, ends, other_ends)


def _match_with_gap(signatures: I64, other_signatures: I64, ends: I64, other_ends: I64) -> I64 | None:
    """Match sequences of which the other one lacks one contiguous range; None where that is not the difference."""
    size, missing = len(other_signatures), len(signatures) - len(other_signatures)
    front = np.concatenate([[True], np.logical_and.accumulate(signatures[:size] == other_signatures)])
    back = np.concatenate([np.logical_and.accumulate((signatures[missing:] == other_signatures)[::-1])[::-1], [True]])
    gaps = np.flatnonzero(front & back)
    if not len(gaps):
        return None
    if len(gaps) > _MAX_GAP_POSITIONS:
        gaps = gaps[np.linspace(0, len(gaps) - 1, _MAX_GAP_POSITIONS).astype(np.int64)]
    before_gap, after_gap = other_ends - ends[:size], other_ends - ends[missing:]
    deviations = [_sum_deviations(np.concatenate([before_gap[:gap], after_gap[gap:]])) for gap in gaps.tolist()]
    gap = int(gaps[int(np.argmin(deviations))])
    position = np.arange(size, dtype=np.int64)
    position[gap:] += missing
    return position


def _match_with_offset(signatures: I64, other_signatures: I64, ends: I64, other_ends: I64) -> I64:
    """Match at the offset at which most signatures are equal.

    Other operations are left out; the same operation of another size is matched, so that the mismatch is reported.
    """
    best = (0, 1, -np.inf)  # at least one operation is the same
    position = np.full(len(other_signatures), NONE, np.int64)
    indexes = np.arange(len(other_signatures))
    for offset in range(max(1 - len(other_signatures), -_MAX_OFFSET), min(len(signatures), _MAX_OFFSET)):
        target = indexes + offset
        inside = np.flatnonzero((target >= 0) & (target < len(signatures)))
        pairs = signatures[target[inside]], other_signatures[inside]
        equal_count = int(np.count_nonzero(pairs[0] == pairs[1]))
        same_operation = inside[pairs[0] >> _SIZE_BITS == pairs[1] >> _SIZE_BITS]
        if (equal_count, len(same_operation)) < best[:2]:
            continue
        deviation = _sum_deviations(other_ends[same_operation] - ends[same_operation + offset])
        score = (equal_count, len(same_operation), -deviation)
        if score > best:
            best = score
            position = np.full(len(other_signatures), NONE, np.int64)
            position[same_operation] = same_operation + offset
    return position


def _sum_deviations(differences: I64) -> float:
    return float(np.abs(differences - np.median(differences)).sum())


def _build_matched_collectives(
    tables: Sequence[_RankTable], rows: I64, texts: list[str], is_sized: Bool, before_recording: I64
) -> MatchedCollectives:
    """Collect the columns of the matched collectives. `rows` int64[m, r]: the row in each rank's table, -1 for none."""
    is_present = rows != NONE
    unmatched = np.array([len(table.events) for table in tables], np.int64) - is_present.sum(axis=0)

    def column(name: str) -> I64:
        """Build a column of the tables, -1 for a rank that has no such collective: int64[m, r]."""
        out = np.full(rows.shape, NONE, np.int64)
        for rank, table in enumerate(tables):
            present = is_present[:, rank]
            out[present, rank] = getattr(table, name)[rows[present, rank]]
        return out

    first_rank = is_present.argmax(axis=1)

    def of_first_rank(values: I64) -> I64:
        first_values: I64 = values[np.arange(len(rows)), first_rank]
        return first_values

    group, operation, dtype = column("group"), of_first_rank(column("operation")), column("dtype")
    elements = np.maximum(column("received"), column("sent"))
    differs = (dtype != of_first_rank(dtype)[:, None]) | (elements != of_first_rank(elements)[:, None])
    members = {int(code): sum(bool((table.group == code).any()) for table in tables) for code in np.unique(group)}
    group_sizes = np.array([members[int(code)] for code in of_first_rank(group)], np.int64)
    return MatchedCollectives(
        events=column("events").astype(np.int32),
        group=of_first_rank(group).astype(np.int32),
        operation=operation.astype(np.int32),
        dtype=of_first_rank(dtype).astype(np.int32),
        elements=elements.max(axis=1),
        step=of_first_rank(column("step")),
        is_synchronizing=_find_operations(texts, SYNCHRONIZING_OPERATIONS)[operation],
        is_mismatched=(is_present & differs).any(axis=1) & is_sized[operation],
        missing_ranks=group_sizes - is_present.sum(axis=1),
        unmatched=unmatched,
        before_recording=before_recording,
        texts=texts,
    )
