"""Raw columns → a Trace: which entries are drawn, on which lane, in which order, nested and linked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from torchprof_tui.trace.build import counters, lane_layout, lane_overflow, launch_links, metadata, nesting
from torchprof_tui.trace.build.event_order import normalize_timestamps, sort_by_lane
from torchprof_tui.trace.build.event_phases import ClassifiedEntries, EntryAccounting, classify_entries
from torchprof_tui.trace.build.lane_assignment import PendingLane, assign_lanes, lookup_sparse_arg
from torchprof_tui.trace.build.lane_order import TrackMetadata
from torchprof_tui.trace.build.lane_overflow import LaneOrder
from torchprof_tui.trace.core import problems
from torchprof_tui.trace.core.arrays import I32, I64, U8, Bool, flatnonzero_int32, take_chunked
from torchprof_tui.trace.core.background import submit
from torchprof_tui.trace.core.column_file import ColumnAllocator, allocate_in_memory
from torchprof_tui.trace.core.factorize import bincount_chunked
from torchprof_tui.trace.model.event_kind import GPU_WORK, Kind, kind_of_category, refine_kind
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.raw_events import DecodedTrace, RawEvents, SparseArg
from torchprof_tui.trace.model.row_index import RowIndex
from torchprof_tui.trace.model.trace import Links, MemoryEvents, SparseColumn, Trace

_FLAT_ROLES = (Role.STREAM, Role.SYNC, Role.ASYNC)
"""Lanes on which events overlap without belonging to each other."""

_PROFILER_PIDS = ("Spans", "Traces", "")
_PROFILER_MARKS = ("Iteration Start", "Record Window End")


def build_trace(decoded: DecodedTrace, label: str, allocate: ColumnAllocator = allocate_in_memory) -> Trace:
    """Everything that the file says, as a Trace.

    Consumes `decoded.events`: its columns are changed on the way and gone afterwards. Never fails for what a
    file holds; what cannot be drawn is counted (`Trace.counts`), what was mended is told (`Trace.problems`). What
    `room` raises is raised here: it says where the longer columns are to lie.
    """
    events = decoded.events
    ledger = EntryAccounting(decoded.problems)
    declared = TrackMetadata.from_entries(events.metadata)
    drawing = classify_entries(events, ledger)
    ordinals = flatnonzero_int32(drawing.drawn)
    kind = _classify_kinds(events, ordinals, drawing, declared)
    origin = normalize_timestamps(events, ordinals, kind, drawing, ledger)
    series, points, beyond = counters.build_counter_series(events, declared.process_names)
    ledger.count_not_drawn("counter without a number", drawing.counter_points - points - beyond)
    ledger.count_not_drawn("counter beyond the 10,000th", beyond)
    drawing.drawn_entries += points

    standing, launch = _assign_lanes_and_launches(events, ordinals, kind, drawing, declared)
    places, lane = standing.pending_lanes, standing.lane
    time = take_chunked(events.time, ordinals)
    order = sort_by_lane(lane, time, events.duration, ordinals)
    del time
    size = len(order)

    def picked(name: str, column: npt.NDArray[Any], which: I32 | I64) -> npt.NDArray[Any]:
        return take_chunked(column, which, allocate(name, size, column.dtype))

    lane, ordinal = picked("lane", lane, order), picked("ordinal", ordinals, order)
    start, duration = picked("start", events.time, ordinal), picked("duration", events.duration, ordinal)
    _free_columns(events, "duration")
    first = np.searchsorted(lane, np.arange(int(standing.first[-1]) + 1, dtype=lane.dtype)).astype(np.int64)
    flat = np.repeat(np.array([place.role in _FLAT_ROLES for place in places], np.bool_), np.diff(standing.first))
    row, parent = allocate("row", size, np.int32), allocate("parent", size, np.int32)
    nest = submit(
        partial(nesting.nest_lanes, first, flat, start, duration, row, parent)
    )  # as soon as can be: it takes longest
    kind = picked("kind", kind, order)
    launch = _reorder_launches(launch, order, allocate("links.launch_of", size, np.int32))
    del order, ordinals
    event_of = _invert_order(ordinal, len(events))
    if standing.merged_indexes:  # nested and linked where the file has them, and then drawn together
        nested = nest()
        forward, backward = launch_links.link_forward_backward(
            events, event_of, lane, first, start, duration, lambda: nested.parent
        )
        order, lane[:], row[:] = lane_overflow.merge_lanes(standing, lane, start, duration, nested.row)
        nested = lane_overflow.reorder_nesting(nested, order, row)
        parent[:] = nested.parent
        for column in (kind, ordinal, start, duration):
            column[:] = column[order]
        launch[:] = _reorder_launches(launch, order)
        number = _invert_order(order, len(order))
        forward, backward = number[forward], number[backward]
        event_of = _invert_order(ordinal, len(events))
        first = first[standing.first]
        ledger.add_problem(problems.TOO_MANY_LANES, *lane_overflow.describe_merged_lanes(standing))
        del order, number
    own_times = allocate("self_duration", size, np.int64)
    spend = submit(
        lambda: nesting.compute_self_durations(
            nested if standing.merged_indexes else nest(), start, duration, own_times
        )
    )
    memory = _build_memory_table(events, drawing, places)
    series += counters.build_memory_series(memory) if memory is not None else []
    args = _collect_sparse_args(events, event_of, drawing, size, allocate)
    name, category = picked("name", events.name, ordinal), picked("category", events.category, ordinal)
    correlation = picked("correlation", events.correlation, ordinal)
    _free_columns(events, "name", "correlation")
    work_order, work_first = launch_links.group_work_by_launch(launch, allocate)
    counts = ledger.build_counts(decoded, drawing, metadata.count_by_category(events, drawing))
    del drawing
    if not standing.merged_indexes:
        forward, backward = launch_links.link_forward_backward(
            events, event_of, lane, first, start, duration, lambda: nest().parent
        )
        nested = nest()
    _free_columns(events, "phase", "category", "time", "track", "id")
    del event_of

    devices = metadata.read_devices(decoded.header)
    device_names = {d["id"]: str(d.get("name") or "") for d in devices if isinstance(d.get("id"), int)}
    lanes, drawn_counters = lane_layout.build_lanes(
        places, declared, decoded.format == "kineto", device_names, first, row, series
    )
    own = int(first[lane_layout.find_first_profiler_lane(places)])
    lane[own:] += len(series)  # the profiler's lanes stand behind the counters'
    row_order, row_first = lane_layout.sort_by_row(lanes, row, allocate)
    rank, world_size = metadata.read_rank_and_world_size(decoded.header)
    return Trace(
        label=label,
        format=decoded.format,
        size=decoded.size,
        header=decoded.header,
        start=start,
        duration=duration,
        name=name,
        category=category,
        kind=kind,
        lane=lane,
        row=row,
        parent=parent,
        self_duration=spend(),
        correlation=correlation,
        ordinal=ordinal,
        names=events.names,
        categories=events.categories,
        lanes=lanes,
        counters=drawn_counters,
        steps=metadata.collect_steps(events.names, name, kind, start, duration),
        span=lane_layout.compute_span(start, duration, own, drawn_counters),
        links=Links(
            launch_of=launch,
            work_order=work_order,
            work_first=work_first,
            forward=forward,
            backward=backward,
            launches=int(np.count_nonzero(np.diff(work_first))),
            gpu_events=int(np.count_nonzero(_is_gpu_work(kind))),
            linked_gpu_events=len(work_order),
        ),
        args=args,
        counts=counts,
        row_order=row_order,
        row_first=row_first,
        text=decoded.text,
        memory=memory,
        problems=ledger.problems,
        devices=devices,
        rank=rank,
        world_size=world_size,
        origin=origin,
        large_keys=decoded.large_keys
        if decoded.large_keys is not None and (decoded.large_keys.spans or decoded.large_keys.oversized)
        else None,
    )


def add_row_index(trace: Trace, allocate: ColumnAllocator) -> Trace:
    """The same with what drawing searches, which lies where `room` says."""
    return replace(trace, stored_index=RowIndex.build(trace, allocate))


def _classify_kinds(events: RawEvents, ordinals: I32, drawing: ClassifiedEntries, declared: TrackMetadata) -> U8:
    """The kind of each drawn event, uint8[d]."""
    of_category = np.array([int(kind_of_category(category)) for category in events.categories] or [0], np.uint8)
    kind = take_chunked(of_category, take_chunked(events.category, ordinals))

    def on(tracks: Bool, mask: Bool) -> I32:
        """Those of the mask that lie on such tracks."""
        some = flatnonzero_int32(mask)
        found: I32 = some[tracks[events.track[ordinals[some]]]]
        return found

    for base in (Kind.ANNOTATION, Kind.OP, Kind.KERNEL):
        mine = flatnonzero_int32(kind == base)
        kind[mine] = _kinds_of_names(events.names, events.name[ordinals[mine]], partial(refine_kind, base))
    accelerator = np.array([declared.is_accelerator(pid) for pid, _ in events.tracks], np.bool_)
    if accelerator.any():
        kind[on(accelerator, kind == Kind.OTHER)] = Kind.KERNEL
    pseudo = np.array([pid in _PROFILER_PIDS for pid, _ in events.tracks], np.bool_)
    kind[on(~pseudo, kind == Kind.PROFILER)] = Kind.OTHER
    waits = take_chunked(drawing.is_async, ordinals)
    mark = take_chunked(drawing.is_instant, ordinals) & ~waits
    kind[mark] = Kind.INSTANT
    mine = on(pseudo, mark)
    kind[mine] = _kinds_of_names(
        events.names,
        events.name[ordinals[mine]],
        lambda text: Kind.PROFILER if text.startswith(_PROFILER_MARKS) else Kind.INSTANT,
    )
    kind[waits] = Kind.ASYNC
    return kind


def _kinds_of_names(names: list[str], name: I32, decide: Callable[[str], Kind]) -> U8:
    """A kind for each name, uint8[k]: decided once for every name that occurs."""
    used = np.flatnonzero(bincount_chunked(name, len(names)))
    decided = np.zeros(len(names), np.uint8)
    decided[used] = [decide(names[k]) for k in used.tolist()]
    return take_chunked(decided, name)


def _invert_order(order: I32 | I64, count: int) -> I32:
    """int32[count]: the place of each number in `order`, -1 for those that are not there."""
    number = np.full(count, -1, np.int32)
    number[order] = np.arange(len(order), dtype=np.int32)
    return number


def _is_gpu_work(kind: U8) -> Bool:
    return np.isin(kind, list(GPU_WORK))


def _collect_sparse_args(
    events: RawEvents, event_of: I32, drawing: ClassifiedEntries, drawn: int, room: ColumnAllocator
) -> dict[str, SparseColumn]:
    """The sparse args of the `drawn` events, by event instead of by entry; and where the ends of pairs stand."""
    given = dict(events.args)
    if len(drawing.begin):
        given["end_ordinal"] = SparseArg(drawing.begin.astype(np.int32), drawing.end)
    found = {}
    place = np.full(drawn + 1, -1, np.int32)  # of each event in an arg; of all that is not drawn, the last
    for name, arg in given.items():
        event = take_chunked(event_of, arg.entries)
        place[event] = np.arange(len(event), dtype=np.int32)
        has = place[:drawn] >= 0
        count = int(np.count_nonzero(has))
        if count:
            rows = flatnonzero_int32(has, room(f"args.{name}.events", count, np.int32))
            values = room(f"args.{name}.values", (count, *arg.values.shape[1:]), np.int64)
            found[name] = SparseColumn(rows, _take_values(arg, take_chunked(place, rows), values))
        place[event] = -1
        events.args.pop(name, None)
    return found


def _take_values(arg: SparseArg, which: I32, into: I64) -> I64:
    if arg.values.ndim == 1:
        return take_chunked(arg.values, which, into)
    into[:] = arg.values[which]
    return into


def _build_memory_table(
    events: RawEvents, drawing: ClassifiedEntries, places: list[PendingLane]
) -> MemoryEvents | None:
    """The `[memory]` instants, each with the lane of the thread that allocated."""
    if not len(drawing.memory):
        return None
    lane_of_track = np.full(len(events.tracks), -1, np.int32)
    for number, place in enumerate(places):
        if place.role is Role.THREAD and place.track >= 0:
            lane_of_track[place.track] = number
    at = drawing.memory.astype(np.int32)
    return counters.build_memory_table(at, events.time[at], events.args, lane_of_track[events.track[at]])


def _free_columns(events: RawEvents, *columns: str) -> None:
    """Drop raw columns: from here on the trace has its own, and what follows needs the room."""
    for name in columns:
        setattr(events, name, getattr(events, name)[:0].copy())


def _assign_lanes_and_launches(
    events: RawEvents, ordinals: I32, kind: U8, drawing: ClassifiedEntries, declared: TrackMetadata
) -> tuple[LaneOrder, I32]:
    """The lanes in the order they stand, with the place of each drawn event; and its launch (or -1)."""
    category = take_chunked(events.category, ordinals)
    slot, found = assign_lanes(
        events.tracks,
        events.categories,
        take_chunked(events.track, ordinals),
        category,
        kind,
        take_chunked(drawing.is_instant, ordinals),
        lambda where: lookup_sparse_arg(events.args.get("device"), ordinals[where]),
        lambda where: lookup_sparse_arg(events.args.get("stream"), ordinals[where]),
        {pid for pid, _ in events.tracks if declared.is_accelerator(pid)},
    )
    is_driver = np.array([name.lower().endswith("_driver") for name in events.categories] or [False])
    launch = launch_links.link_launches(
        events.correlation, ordinals, kind == Kind.RUNTIME, is_driver[category], _is_gpu_work(kind)
    )
    launched = np.zeros(len(slot), np.bool_)
    launched[launch[launch >= 0]] = True
    launches = np.bincount(slot[launched], minlength=len(found))
    has_step = np.bincount(slot[kind == Kind.STEP], minlength=len(found)) > 0
    return lane_overflow.order_lanes(slot, found, launches, has_step, declared), launch


def _reorder_launches(launch: I32, order: I64, into: I32 | None = None) -> I32:
    """The same links when events are renumbered: new event k is old event `order[k]`. `into`: where they are to lie."""
    number = _invert_order(order, len(order))
    launch = take_chunked(launch, order, into)
    linked = np.flatnonzero(launch >= 0)
    launch[linked] = number[launch[linked]]
    return launch
