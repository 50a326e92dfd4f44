"""Find valid but unexpected data: each oddity is counted and shown by one event.

Among them is what torch's own validator of traces rejects (`torch/profiler/_trace_validator.py`, since torch 2.14):

| rule of torch | remark |
|---|---|
| `_check_gpu_kernel_causality` | `kernel before its launch` |
| `_check_stream_wait_corr_id_populated` | `wait without its record` |
| `_check_stream_sync_overlap` | `synchronised stream still busy` |
| `_check_stream_wait_corr_id_in_past` | `record of a wait not found`, `wait before its record` |
| `_check_nccl_metadata` | `collective without its data` |
| `_check_backward_seq_id_uniqueness` | `sequence number of several ops` |
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from torchprof_tui.analysis.doctor.read_problems import Remark, Section
from torchprof_tui.analysis.search.name_search import match_names
from torchprof_tui.analysis.time.gpu_time import cover_events, work_mask
from torchprof_tui.trace.core.arrays import I32, I64, Array, is_in, sorted_unique
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.problems import excerpt
from torchprof_tui.trace.core.time_format import format_duration, format_time
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import SparseColumn, Trace
from torchprof_tui.trace.query.read_entries import read_entries

MIN_EMPTY_SHARE = 0.5
"""Share of the trace above which a stretch without events is reported: it leaves most of the screen empty."""


_NESTED, _SERIAL = 1, 2
_OVERLAP_RULES = {Role.THREAD: _NESTED, Role.GPU_ANNOTATIONS: _NESTED, Role.STREAM: _SERIAL}
"""Lanes on which an overlap is odd. Asynchronous events and waits may overlap."""


def find_oddities(trace: Trace) -> Iterator[Remark]:
    """Find all oddities of a trace; see the functions below for each."""
    if not len(trace):
        return
    is_work = work_mask(trace.kind)
    yield from _find_overlaps(trace)
    yield from _find_early_kernels(trace)
    yield from _build_remarks(
        "GPU work without launch",
        trace,
        np.flatnonzero(is_work & (trace.links.launch_of < 0)),
        "no runtime call has its correlation: it was launched before the recording, or runtime calls were not recorded",
        "a warm-up step before the active steps avoids it",
    )
    yield from _find_launches_without_work(trace)
    yield from _build_remarks(
        "GPU work of 0 ns",
        trace,
        np.flatnonzero(is_work & (trace.duration == 0)),
        "kernels or copies with a duration of 0: their end was not recorded, or was cut off by the writer",
    )
    yield from _find_profiler_overhead(trace)
    yield from _find_empty_stretch(trace)


def _build_remarks(
    kind: str, trace: Trace, events: Array, meaning: str, action: str = "", suffix: str = "", count: int = 0
) -> Iterator[Remark]:
    """Yield one remark on `events`, with the first as example followed by `suffix`; nothing if there are none."""
    if len(events):
        event = int(events[0])
        owner = trace.rank_of_event(event).label_prefix(": ")
        example = f"{owner}{excerpt(trace.event(event).name)} at {format_time(int(trace.start[event]))}{suffix}"
        yield Remark(Section.ODD, kind, count or len(events), meaning, example, action, event)


def _find_overlaps(trace: Trace) -> Iterator[Remark]:
    """Find overlaps: events that are not in the row below their parent, because an overlapping event occupies it."""
    parent = trace.parent
    inside = parent >= 0
    expected = np.where(inside, trace.row[np.maximum(parent, 0)] + 1, 0)
    spilled = np.flatnonzero(trace.row != expected)
    # Lanes merged by this program overlap by construction and have no rule.
    rules = [0 if lane.merged_lanes else _OVERLAP_RULES.get(lane.role, 0) for lane in trace.lanes]
    rule = np.array(rules, np.int8)[trace.lane[spilled]]
    yield from _build_remarks(
        "overlap",
        trace,
        spilled[rule == _NESTED],
        "events that partly overlap another one, drawn in a further row",
        "normal for steps that cross Python frames, and in traces with rounded times",
    )
    yield from _build_remarks(
        "kernels at once",
        trace,
        spilled[rule == _SERIAL],
        "GPU work that overlaps other work of the same stream, drawn in a further row",
        "normal in CUDA graphs and for programmatic dependent launches",
    )


def _find_early_kernels(trace: Trace) -> Iterator[Remark]:
    """Find GPU work that starts before its launch, the earliest relative to its launch first."""
    launch_of: I32 = trace.links.launch_of
    work = np.flatnonzero(launch_of >= 0)
    ahead = trace.start[launch_of[work]] - trace.start[work]
    order = np.argsort(-ahead, kind="stable")[: np.count_nonzero(ahead > 0)]
    yield from _build_remarks(
        "kernel before its launch",
        trace,
        work[order],
        "GPU work that starts before the call that launched it: the two clocks are not exactly aligned",
        "do not trust queue delays as short as this",
        f", {format_duration(int(ahead.max(initial=0)))} before its launch",
    )


def _find_launches_without_work(trace: Trace) -> Iterator[Remark]:
    """Find runtime calls without GPU work, among the names that launch GPU work elsewhere in the trace."""
    links = trace.links
    has_work = np.diff(links.work_first) > 0
    launching = sorted_unique(trace.name[has_work])
    calls: I64 = np.flatnonzero((trace.kind == Kind.RUNTIME) & ~has_work & (trace.correlation > 0))
    idle = calls[is_in(trace.name[calls], launching)]
    yield from _build_remarks(
        "launch without GPU work",
        trace,
        idle,
        "launching calls whose GPU work was not recorded",
        "normal at the end: the GPU runs the work after the profiler has stopped",
    )


def _find_profiler_overhead(trace: Trace) -> Iterator[Remark]:
    overhead = np.flatnonzero(trace.kind == Kind.OVERHEAD)
    overhead = overhead[np.argsort(-trace.duration[overhead], kind="stable")]
    covered = cover_events(trace, overhead).total
    longest = f", {format_duration(int(trace.duration[overhead[0]]))}" if len(overhead) else ""
    yield from _build_remarks(
        "profiler overhead",
        trace,
        overhead,
        f"{format_duration(covered)} of work of the profiler itself, which your program alone does not do",
        "leave it out of comparisons; with warm-up steps, most of it happens before the recording",
        longest,
    )


def _find_empty_stretch(trace: Trace) -> Iterator[Remark]:
    """Find the longest stretch without events, if it takes more than MIN_EMPTY_SHARE of the trace."""
    low, high = trace.span
    order = np.argsort(trace.start, kind="stable")
    start = trace.start[order]
    reached = np.maximum.accumulate(trace.start[order] + trace.duration[order])
    gaps = start[1:] - reached[:-1]
    if not len(gaps) or high <= low:
        return
    widest = int(gaps.argmax())
    if gaps[widest] > MIN_EMPTY_SHARE * (high - low):
        yield from _build_remarks(
            "empty stretch",
            trace,
            order[widest + 1 : widest + 2],
            f"{format_duration(int(gaps[widest]))} without a single event, most of the trace",
            "f fits the selection to the screen; g goes to a time",
        )


_STREAM_WAIT, _EVENT_SYNC, _STREAM_SYNC = "Stream Wait Event", "Event Sync", "Stream Sync"

_RECORDS = tuple(f"cudaEventRecord{flags}{suffix}" for flags in ("", "WithFlags") for suffix in ("", "_ptsz"))

_COLLECTIVE = "record_param_comms"
_COLLECTIVE_ARGS = ("Collective name", "dtype", "In msg nelems", "Out msg nelems", "Group size")

MAX_COLLECTIVES_READ = 200
"""Collectives whose args are read, spread over the trace: they are in its text, some milliseconds apart."""

_BACKWARD = "autograd::engine::evaluate_function:"

_NO_VALUE = -(2**62)


def find_rule_violations(trace: Trace) -> Iterator[Remark]:
    """Find what violates the rules; of merged ranks in each by itself, because ids of ranks are unrelated."""
    rules = (
        _find_waits_without_record,
        _find_busy_streams,
        _find_waits_before_record,
        _find_incomplete_collectives,
        _find_shared_sequence_numbers,
    )
    found: dict[str, Remark] = {}
    for rank in trace.all_ranks:
        for remark in (remark for rule in rules for remark in rule(rank.trace)):
            first = found.get(remark.kind)
            if first is None:
                example = f"{rank.label_prefix(': ')}{remark.example}"
                found[remark.kind] = replace(remark, event=remark.event + rank.first, example=example)
            else:
                found[remark.kind] = replace(first, count=first.count + remark.count)
    yield from found.values()


def _values_at(column: SparseColumn | None, events: I32 | I64) -> I64:
    """Return the values of an arg, _NO_VALUE where it is missing: int64[events]."""
    if column is None:
        return np.full(len(events), _NO_VALUE, np.int64)
    return column.values_at(events, _NO_VALUE).astype(np.int64, copy=False)


def _find_waits_without_record(trace: Trace) -> Iterator[Remark]:
    waits = np.flatnonzero((trace.kind == Kind.SYNC) & match_names(trace, (_STREAM_WAIT, _EVENT_SYNC).__contains__))
    yield from _build_remarks(
        "wait without its record",
        trace,
        waits[_values_at(trace.args.get("wait_record"), waits) < 0],
        "waits for an event of which the trace does not say where it was recorded",
        "what these streams waited for is unknown; the event may have been recorded before the trace began",
    )


def _find_busy_streams(trace: Trace) -> Iterator[Remark]:
    """Find synchronisations of a stream that begin while a kernel runs on it."""
    syncs = np.flatnonzero((trace.kind == Kind.SYNC) & match_names(trace, _STREAM_SYNC.__eq__))
    if not len(syncs):
        return
    kernels = np.flatnonzero((trace.kind == Kind.KERNEL) | (trace.kind == Kind.COLLECTIVE))
    places = np.stack(
        [_values_at(trace.args.get(name), np.concatenate([syncs, kernels])) for name in ("device", "stream")], axis=1
    )
    _, place = np.unique(places, axis=0, return_inverse=True)
    sync_place, kernel_place = np.split(place.ravel(), [len(syncs)])
    busy, left = np.zeros(len(syncs), np.bool_), np.zeros(len(syncs), np.int64)
    for number in sorted_unique(sync_place).tolist():
        mine = np.flatnonzero(sync_place == number)
        own = kernels[kernel_place == number]
        own = own[np.argsort(trace.start[own], kind="stable")]
        if not len(own):
            continue
        reached = np.maximum.accumulate(trace.start[own] + trace.duration[own])
        index = np.searchsorted(trace.start[own], trace.start[syncs[mine]]) - 1
        left[mine] = np.where(index >= 0, reached[np.maximum(index, 0)] - trace.start[syncs[mine]], 0)
        busy[mine] = left[mine] > 0
    longest = np.argsort(-left[busy], kind="stable")
    yield from _build_remarks(
        "synchronised stream still busy",
        trace,
        syncs[busy][longest],
        "waits for a stream that are shown to start while a kernel still runs on it",
        "do not trust these waits' times to the microsecond",
        f", {format_duration(int(left.max()))} before the kernel ends",
    )


def _find_waits_before_record(trace: Trace) -> Iterator[Remark]:
    """Find waits of a stream for an event whose record is not in the trace, or is later than the wait."""
    waits: I64 = np.flatnonzero((trace.kind == Kind.SYNC) & match_names(trace, _STREAM_WAIT.__eq__))
    wanted = _values_at(trace.args.get("wait_record"), waits)
    waits, wanted = waits[wanted >= 0], wanted[wanted >= 0]
    if not len(waits):
        return
    records = np.flatnonzero((trace.kind == Kind.RUNTIME) & match_names(trace, _RECORDS.__contains__))
    ids = np.concatenate([trace.correlation[records], _values_at(trace.args.get("external_id"), records)])
    times = np.tile(trace.start[records], 2)
    times, ids = times[ids >= 0], ids[ids >= 0]
    order = np.lexsort((times, ids))
    times, ids = times[order], ids[order]
    index = np.searchsorted(ids, wanted)
    found = (index < len(ids)) & (np.append(ids, -1)[index] == wanted)
    late = np.zeros(len(waits), np.int64)
    late[found] = times[index[found]] - trace.start[waits[found]]
    yield from _build_remarks(
        "record of a wait not found",
        trace,
        waits[~found],
        "waits for an event whose record is not in the trace",
        "the event was recorded before the trace began, or runtime calls were not recorded",
    )
    longest = np.argsort(-late[late > 0], kind="stable")
    yield from _build_remarks(
        "wait before its record",
        trace,
        waits[late > 0][longest],
        "waits for an event that is recorded only later: the trace names the wrong record",
        "do not trust the dependencies between streams in this trace",
        f", {format_duration(int(late.max()))} before the record",
    )


def _find_incomplete_collectives(trace: Trace) -> Iterator[Remark]:
    """Find collectives without the data that bandwidths and matching ranks need; of many, some are read."""
    calls = np.flatnonzero(match_names(trace, _COLLECTIVE.__eq__))
    places = np.linspace(0, max(len(calls) - 1, 0), min(len(calls), MAX_COLLECTIVES_READ))
    read = calls[sorted_unique(places.astype(np.int64))]
    incomplete: list[int] = []
    missing: dict[str, None] = {}
    with contextlib.suppress(OSError, LookupError):  # the file is gone or has changed: `details` says so
        for index, entry in read_entries(trace, read):
            args = entry.get("args")
            lacking = [key for key in _COLLECTIVE_ARGS if not isinstance(args, dict) or key not in args]
            if lacking:
                incomplete.append(int(read[index]))
                missing |= dict.fromkeys(lacking)
    yield from _build_remarks(
        "collective without its data",
        trace,
        np.array(sorted(incomplete), np.int64),
        f"collectives that lack {', '.join(missing)}, of {len(read):,} that were looked at",
        "their sizes and bandwidths are unknown; record with a newer torch",
    )


def _find_shared_sequence_numbers(trace: Trace) -> Iterator[Remark]:
    """Find backward ops of different names with one sequence number: they belong to one forward op."""
    sequence = trace.args.get("sequence")
    events = np.flatnonzero(match_names(trace, lambda name: _BACKWARD in name))
    if sequence is None or not len(events):
        return
    number = _values_at(sequence, events)
    events, number = events[number != _NO_VALUE], number[number != _NO_VALUE]
    events, number = events[number != 0], number[number != 0]
    keys, first = np.unique(np.stack([number, trace.name[events]], axis=1), axis=0, return_index=True)
    values, counts = np.unique(keys[:, 0], return_counts=True)
    shared = values[counts > 1]
    if not len(shared):
        return
    involved = np.sort(events[first[is_in(keys[:, 0], shared)]])
    example = int(involved[0])
    names = sorted(
        {
            clean(trace.names[code]).split(_BACKWARD)[-1].strip()
            for code in trace.name[events[number == sequence.get(example)]].tolist()
        }
    )
    yield from _build_remarks(
        "sequence number of several ops",
        trace,
        involved,
        "backward ops of different names that share a sequence number, so that their forward op is not certain",
        "normal where a graph is run backward twice or by several threads; do not trust links of these ops",
        f", number {sequence.get(example)} with {excerpt(', '.join(names))}",
        count=len(shared),
    )
