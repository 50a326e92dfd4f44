"""Build a trace from raw columns: classify, assign lanes, sort, nest, link, lay out, index."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from torchprof_tui.trace.build import counters, lane_merging, launch_links, nesting
from torchprof_tui.trace.build.event_kinds import DrawnEvents, is_gpu_work, select_drawn_events
from torchprof_tui.trace.build.event_order import EventColumns, invert_order, normalize_timestamps, sort_by_lane
from torchprof_tui.trace.build.event_phases import ClassifiedEntries, EntryAccounting, classify_entries
from torchprof_tui.trace.build.lane_assignment import EventTracks, assign_lanes, lookup_sparse_arg
from torchprof_tui.trace.build.lane_merging import LaneOrder
from torchprof_tui.trace.build.lane_order import LaneLayout, lay_out_lanes
from torchprof_tui.trace.build.launch_links import FlowLinks, link_graph_dependencies
from torchprof_tui.trace.build.sparse_columns import collect_sparse_columns, restrict_values
from torchprof_tui.trace.build.track_metadata import TrackMetadata
from torchprof_tui.trace.core.arrays import I32, I64, bincount_chunked, sorted_unique
from torchprof_tui.trace.core.column_file import ColumnAllocator, allocate_in_memory
from torchprof_tui.trace.core.problems import TOO_MANY_LANES, UNREADABLE_METADATA, Problem
from torchprof_tui.trace.core.process_state import use_switch_interval
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.thread_tasks import find_indexes, keep_threads, map_blocks, submit, take_parallel
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.raw_events import DecodedTrace, RawEvents
from torchprof_tui.trace.model.row_index import RowIndex
from torchprof_tui.trace.model.steps import Step, find_profiler_steps, find_serving_steps
from torchprof_tui.trace.model.trace import EntryCounts, Links, MemoryEvents, SparseColumn, Trace
from torchprof_tui.trace.model.trace_metadata import (
    TraceMetadata,
    read_trace_metadata,
)

_FLAT_ROLES = (Role.STREAM, Role.SYNC, Role.ASYNC)  # lanes on which events overlap without belonging to each other


_SWITCH_INTERVAL_SECONDS = 0.0001  # longest wait for the GIL of the threads that nest and index while this one goes on


@record
class NestedLanes:
    """The sorted events by lane, while a background thread may still nest them.

    `first` int64[lanes + 1]: the bounds of each lane's events. `event_of` int32[entries]: the event that an entry
    became, or -1. `flow_links`: None until they are linked.
    """

    first: I64
    event_of: I32
    wait_for_nesting: Callable[[], nesting.Nesting]
    flow_links: FlowLinks | None = None


@keep_threads()
@use_switch_interval(_SWITCH_INTERVAL_SECONDS)
def build_trace(decoded: DecodedTrace, label: str, allocate: ColumnAllocator = allocate_in_memory) -> Trace:
    """Build the trace of a decoded file.

    Consumes `decoded.events`: its columns are changed and freed on the way. Never fails because of what a file
    contains; what cannot be drawn is counted (`Trace.counts`), what was mended is reported (`Trace.problems`).
    `allocate` allocates the longer columns; what it raises is raised here.
    """
    raw, accounting = decoded.events, EntryAccounting(decoded.problems)
    restrict_values(raw, accounting)
    trace_metadata = _read_trace_metadata(decoded, accounting)
    track_metadata = TrackMetadata.from_entries(raw.metadata, accounting)
    # Classify.
    entries = classify_entries(raw, accounting)
    drawn = select_drawn_events(raw, entries, track_metadata)
    origin = normalize_timestamps(raw, drawn, entries, accounting)
    series = counters.build_counter_series(raw, track_metadata.process_names, entries, accounting)
    # Assign lanes.
    lane_order, slot, launch = _assign_lanes(raw, entries, drawn, track_metadata)
    pending = lane_order.pending_lanes
    wait_for_memory = submit(partial(counters.build_memory_table, raw, entries, pending))
    # Sort, and start to nest as soon as the times are sorted: nesting takes longest and runs in the background.
    columns = EventColumns.allocate(len(drawn), allocate)
    order = _sort_times(raw, drawn, slot, columns)
    first, wait_for_nesting = _start_nesting(lane_order, columns)
    take_parallel(drawn.kind, order, columns.kind)
    launch_links.reorder_launches(launch, order, columns.launch_of)
    del drawn, slot, launch, order
    # Nest.
    lanes = NestedLanes(first, invert_order(columns.ordinal, len(raw)), wait_for_nesting)
    if lane_order.merged_indexes:
        lanes = _merge_lanes(raw, lane_order, columns, lanes)
        accounting.add(TOO_MANY_LANES, *lane_merging.describe_merged_lanes(lane_order))
    wait_for_self_durations = _start_self_durations(lanes.wait_for_nesting, columns)
    wait_for_links = submit(partial(_link_events, raw, columns, lanes, allocate))  # in the background as well
    memory = wait_for_memory()
    args = collect_sparse_columns(raw, lanes.event_of, len(columns), entries, allocate)
    _copy_names_and_correlations(raw, columns)
    counts = accounting.build_counts(decoded, entries, _count_by_category(raw, entries))
    del entries
    links, first = wait_for_links(), lanes.first
    lanes.wait_for_nesting()
    _free_columns(raw, "phase", "category", "time", "track", "id")
    del lanes
    # Lay out.
    series += counters.build_memory_series(memory)
    layout = lay_out_lanes(decoded.format, trace_metadata, pending, track_metadata, first, columns, series, allocate)
    return _create_trace(
        decoded,
        label,
        columns,
        layout,
        trace_metadata,
        self_duration=wait_for_self_durations(),
        links=links,
        args=args,
        memory=memory,
        counts=counts,
        problems=accounting.problems(),
        origin=origin,
    )


@keep_threads()
def add_row_index(trace: Trace, allocate: ColumnAllocator) -> Trace:
    """Index the rows of a trace for drawing; `allocate` allocates the index."""
    return replace(trace, stored_index=RowIndex.build(trace, allocate))


def _read_trace_metadata(decoded: DecodedTrace, accounting: EntryAccounting) -> TraceMetadata:
    trace_metadata, unusable = read_trace_metadata(decoded.header)
    if unusable:
        accounting.add(UNREADABLE_METADATA, unusable[0], len(unusable))
    return trace_metadata


def _assign_lanes(
    raw: RawEvents, entries: ClassifiedEntries, drawn: DrawnEvents, track_metadata: TrackMetadata
) -> tuple[LaneOrder, I32, I32]:
    """Assign the drawn events to lanes, and put these in order.

    Launches are linked here because the order of lanes depends on them. Returns the order, the slot of each drawn event
    as it numbers them, int32[d], and the call that launched the event, int32[d], -1 for none.
    """
    category = take_parallel(raw.category, drawn.ordinals)
    is_driver = np.array([name.lower().endswith("_driver") for name in raw.categories] or [False])
    wait_for_launches = submit(
        lambda: launch_links.link_launches(
            raw.correlation,
            drawn.ordinals,
            drawn.kind == Kind.RUNTIME,
            take_parallel(is_driver, category),
            is_gpu_work(drawn.kind),
        )
    )
    slot, pending_lanes = assign_lanes(
        EventTracks(
            raw.tracks,
            raw.categories,
            take_parallel(raw.track, drawn.ordinals),
            category,
            drawn.kind,
            take_parallel(entries.is_instant, drawn.ordinals),
        ),
        lambda indexes: lookup_sparse_arg(raw.args.get("device"), drawn.ordinals[indexes]),
        lambda indexes: lookup_sparse_arg(raw.args.get("stream"), drawn.ordinals[indexes]),
        {pid for pid, _ in raw.tracks if track_metadata.is_accelerator(pid)},
    )
    launch = wait_for_launches()
    launched = np.zeros(len(slot), np.bool_)
    launched[launch[find_indexes(lambda block: launch[block] >= 0, len(launch))]] = True
    calls = find_indexes(lambda block: launched[block], len(launched))
    launches = np.bincount(slot[calls], minlength=len(pending_lanes))
    steps = find_indexes(lambda block: drawn.kind[block] == Kind.STEP, len(drawn))
    has_step = np.bincount(slot[steps], minlength=len(pending_lanes)) > 0
    lane_order, slot = lane_merging.order_lanes(slot, pending_lanes, launches, has_step, track_metadata)
    return lane_order, slot, launch


def _sort_times(raw: RawEvents, drawn: DrawnEvents, slot: I32, columns: EventColumns) -> I64:
    """Sort the events into lane, ordinal, start and duration; returns their order, int64[n]. Frees raw durations."""
    time = take_parallel(raw.time, drawn.ordinals)
    order = sort_by_lane(slot, time, raw.duration, drawn.ordinals)
    del time
    take_parallel(slot, order, columns.lane)
    ordinal = take_parallel(drawn.ordinals, order, columns.ordinal)
    take_parallel(raw.time, ordinal, columns.start)
    take_parallel(raw.duration, ordinal, columns.duration)
    _free_columns(raw, "duration")
    return order


def _start_nesting(lane_order: LaneOrder, columns: EventColumns) -> tuple[I64, Callable[[], nesting.Nesting]]:
    """Nest the events of each slot on a background thread, into row and parent.

    Returns `first` int64[slots + 1], the bounds of each slot's events, and a function that waits for the nesting.
    """
    slots = np.arange(lane_order.first[-1] + 1, dtype=columns.lane.dtype)
    first = np.searchsorted(columns.lane, slots).astype(np.int64)
    is_flat = np.array([lane.role in _FLAT_ROLES for lane in lane_order.pending_lanes], np.bool_)
    flat = np.repeat(is_flat, np.diff(lane_order.first))
    nest = partial(nesting.nest_lanes, first, flat, columns.start, columns.duration, columns.row, columns.parent)
    return first, submit(nest)


def _merge_lanes(raw: RawEvents, lane_order: LaneOrder, columns: EventColumns, slots: NestedLanes) -> NestedLanes:
    """Merge the lanes beyond MAX_LANES, in place. Flows are linked before, on the lanes of the file."""
    nested = slots.wait_for_nesting()
    flow_links = _link_by_flows(raw, columns, slots)
    order, columns.lane[:], columns.row[:] = lane_merging.merge_lanes(
        lane_order, columns.lane, columns.start, columns.duration, nested.row
    )
    merged = lane_merging.reorder_nesting(nested, order, columns.row)
    columns.parent[:] = merged.parent
    for column in (columns.kind, columns.ordinal, columns.start, columns.duration):
        column[:] = column[order]
    columns.launch_of[:] = launch_links.reorder_launches(columns.launch_of, order)
    new_index = invert_order(order, len(order))
    return NestedLanes(
        slots.first[lane_order.first],
        invert_order(columns.ordinal, len(raw)),
        lambda: merged,
        FlowLinks(*(new_index[events] for events in flow_links)),
    )


def _start_self_durations(wait_for_nesting: Callable[[], nesting.Nesting], columns: EventColumns) -> Callable[[], I64]:
    """Compute self durations on a background thread; returns a function that waits for them."""
    return submit(
        lambda: nesting.compute_self_durations(
            wait_for_nesting(), columns.start, columns.duration, columns.self_duration
        )
    )


def _copy_names_and_correlations(raw: RawEvents, columns: EventColumns) -> None:
    take_parallel(raw.name, columns.ordinal, columns.name)
    take_parallel(raw.category, columns.ordinal, columns.category)
    take_parallel(raw.correlation, columns.ordinal, columns.correlation)
    _free_columns(raw, "name", "correlation")


def _link_events(raw: RawEvents, columns: EventColumns, lanes: NestedLanes, allocate: ColumnAllocator) -> Links:
    """Link launches to their GPU work, and forward to backward events where that was not done before a merge."""
    flow_links = lanes.flow_links or _link_by_flows(raw, columns, lanes)
    work_order, work_first = launch_links.group_work_by_launch(columns.launch_of, allocate)
    return Links(
        launch_of=columns.launch_of,
        work_order=work_order,
        work_first=work_first,
        **flow_links._asdict(),
        launches=len(sorted_unique(columns.launch_of[work_order])),
        gpu_events=int(np.count_nonzero(is_gpu_work(columns.kind))),
        linked_gpu_events=len(work_order),
    )


def _link_by_flows(raw: RawEvents, columns: EventColumns, lanes: NestedLanes) -> FlowLinks:
    """Link what flows join: launches of work without correlations, before they are grouped, both passes, graph nodes.

    Waits for the nesting only for such flows.
    """

    def get_parents() -> I32:
        return lanes.wait_for_nesting().parent

    called_work, work_call = launch_links.link_launches_by_flows(raw, lanes.event_of, columns, lanes.first, get_parents)
    forward, backward = launch_links.link_forward_backward(raw, lanes.event_of, columns, lanes.first, get_parents)
    before, after = link_graph_dependencies(raw, columns)
    return FlowLinks(forward, backward, called_work, work_call, before, after)


_STORED_COLUMNS = (
    *("start", "duration", "name", "category", "kind"),
    *("lane", "row", "parent", "correlation", "ordinal"),
)


def _create_trace(
    decoded: DecodedTrace,
    label: str,
    columns: EventColumns,
    layout: LaneLayout,
    trace_metadata: TraceMetadata,
    *,
    self_duration: I64,
    links: Links,
    args: dict[str, SparseColumn],
    memory: MemoryEvents | None,
    counts: EntryCounts,
    problems: list[Problem],
    origin: int,
) -> Trace:
    large_keys = decoded.large_keys
    return Trace(
        label=label,
        format=decoded.format,
        size=decoded.size,
        header=decoded.header,
        **{name: getattr(columns, name) for name in _STORED_COLUMNS},
        self_duration=self_duration,
        names=decoded.events.names,
        categories=decoded.events.categories,
        lanes=layout.lanes,
        counters=layout.counters,
        steps=_collect_steps(decoded.events.names, columns),
        span=layout.span,
        links=links,
        args=args,
        counts=counts,
        row_order=layout.row_order,
        row_first=layout.row_first,
        text=decoded.text,
        memory=memory,
        problems=problems,
        metadata=trace_metadata,
        origin=origin,
        large_keys=large_keys if large_keys is not None and (large_keys.spans or large_keys.oversized) else None,
    )


def _collect_steps(names: list[str], columns: EventColumns) -> list[Step]:
    """Collect the steps by start: those of a serving engine, which say what was served, else the `ProfilerStep#N`."""
    kind, name, start, duration = columns.kind, columns.name, columns.start, columns.duration
    steps = find_serving_steps(names, kind, name, columns.lane, start, duration)
    return steps or find_profiler_steps(names, kind, name, start, duration)


def _count_by_category(events: RawEvents, classified: ClassifiedEntries) -> dict[str, int]:
    """Count complete events by category: X, and each pair of B and E once."""
    categories = len(events.categories)

    def count(block: slice) -> I64:
        is_complete = (events.phase[block] == ord("X")) & classified.drawn[block]
        return np.bincount(events.category[block][is_complete], minlength=categories)

    parts = map_blocks(count, len(events))
    pairs = classified.begin[events.phase[classified.begin] == ord("B")]
    counts = sum(parts, bincount_chunked(events.category[pairs], categories)).tolist()
    return {category: count for category, count in zip(events.categories, counts, strict=False) if count}


def _free_columns(raw: RawEvents, *columns: str) -> None:
    """Free raw columns that the trace no longer needs, so that the next stages have their memory."""
    for name in columns:
        setattr(raw, name, getattr(raw, name)[:0].copy())
