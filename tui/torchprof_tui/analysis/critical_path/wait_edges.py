"""Edges of waits: streams that wait for events, and calls that block a thread until GPU work has ended.

`cuda_sync` events say what is waited for. Where they were not recorded, the order of the calls on a thread does.
"""

from __future__ import annotations

import re

import numpy as np

from torchprof_tui.analysis.critical_path.dependency_graph import EdgeKind, GraphColumns, find_last_ended
from torchprof_tui.analysis.critical_path.launch_edges import SHORT_GAP
from torchprof_tui.analysis.critical_path.step_window import GpuWorkColumns
from torchprof_tui.analysis.search.name_search import match_names
from torchprof_tui.analysis.time.host_stalls import SYNC_CALL_REGEX
from torchprof_tui.trace.core.arrays import I32, I64, NONE, Bool, is_in, sorted_unique
from torchprof_tui.trace.core.late_regex import compile_later
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Trace

STREAM_WAIT_REGEX = r"(cuda|cu|hip|musa)StreamWaitEvent"
RECORD_REGEX = r"(cuda|cu|hip|musa)EventRecord"
_COPY_CALL_REGEX = r".*Memcpy"
_DEVICE_CALL = compile_later(r"Device|Ctx")

OWN_TIME = 5_000  # ns that a blocking call takes at most by itself, when the work that it waits for has already ended
_LONG_CALL = 20_000  # ns from which a blocking call must have waited for something

NEVER = np.iinfo(np.int64).max  # ns, when work ends that does not exist

_NEAREST = 8  # works that are tried, from the last one back, for one that was launched before the blocking call


@record
class SyncEvents:
    """`cuda_sync` events: their call, the stream that waits, the stream and record call that it waits for; all [k].

    Lanes are -1 for "no stream named" and `record` -1 for "no event named".
    """

    call: I64
    waiting_lane: I64
    source_lane: I64
    record: I64

    def __len__(self) -> int:
        return len(self.call)


def select_calls(trace: Trace, regex: str, start: int, end: int) -> I32:
    """Select the runtime calls of these names that overlap the time from `start` to `end`: int32[k] by start."""
    matches = compile_later(regex).match
    wanted = [number for number, name in enumerate(trace.names) if matches(name)]
    parts: list[I32] = [np.zeros(0, np.int32)]
    for lane in trace.lanes if wanted else ():
        if lane.role is Role.THREAD:
            until = lane.first + int(trace.start[lane.first : lane.last].searchsorted(end))
            found = lane.first + np.flatnonzero(trace.kind[lane.first : until] == Kind.RUNTIME)
            found = found[trace.start[found] + trace.duration[found] > start]
            parts.append(found[is_in(trace.name[found], wanted)].astype(np.int32))
    events = np.concatenate(parts)
    return events[np.argsort(trace.start[events], kind="stable")]


def read_sync_events(trace: Trace, calls: I32) -> SyncEvents:
    """Read the `cuda_sync` events of these calls, joined by correlation."""
    events = np.flatnonzero(trace.kind == Kind.SYNC)
    call = _join_correlation(trace.correlation[calls], calls, trace.correlation[events])
    events, call = events[call != NONE], call[call != NONE]
    if not len(events):
        return SyncEvents(*np.zeros((4, 0), np.int64))
    records = select_calls(trace, RECORD_REGEX, -NEVER, NEVER)
    record = _join_correlation(trace.correlation[records], records, trace.numbers_at("wait_record", events))
    device = trace.numbers_at("device", events)
    return SyncEvents(
        call,
        _find_lanes(trace, device, trace.numbers_at("stream", events)),
        _find_lanes(trace, device, trace.numbers_at("wait_stream", events)),
        record,
    )


def add_stream_waits(graph: GraphColumns, trace: Trace) -> I32:
    """Add edges for streams that wait for events; return the calls whose wait is not known: int32[k]."""
    window = graph.window
    calls = select_calls(trace, STREAM_WAIT_REGEX, -NEVER, window.cpu_end)
    if not len(calls):
        return calls
    syncs = read_sync_events(trace, calls)
    known = np.flatnonzero(syncs.record != NONE)
    source = _find_launched_before(graph, syncs.source_lane[known], trace.start[syncs.record[known]])
    lane = window.work.lane.astype(np.int64)
    target = _find_next(graph, lane, syncs.waiting_lane[known], trace.start[syncs.call[known]])
    _add_event_edges(graph, EdgeKind.EVENT, source, target)
    unknown: I32 = calls[~is_in(calls, syncs.call)]
    if len(unknown):
        _add_waits_by_order(graph, trace, unknown)
        _add_waits_by_time(graph, trace, unknown)
    inside: I32 = unknown[trace.start[unknown] >= window.start]
    return inside


def _add_waits_by_order(graph: GraphColumns, trace: Trace, calls: I32) -> None:
    """Add edges for waits without a `cuda_sync` event.

    The event is taken to be the last one that the thread recorded, behind the thread's launch before that; the work
    that waits is the thread's next launch, if it is on another stream.
    """
    window, work = graph.window, graph.window.work
    records = select_calls(trace, RECORD_REGEX, window.start, window.cpu_end)
    record = find_last_ended(
        trace.lane[records].astype(np.int64),
        trace.start[records],
        trace.lane[calls].astype(np.int64),
        trace.start[calls],
        window.start,
    )
    calls, recorded = calls[record != NONE], records[record[record != NONE]]
    thread = _find_launch_threads(trace, work)
    source = find_last_ended(
        thread, work.launch_start, trace.lane[recorded].astype(np.int64), trace.start[recorded], window.start
    )
    target = _find_next(graph, thread, trace.lane[calls].astype(np.int64), trace.start[calls])
    found = (source != NONE) & (target != NONE)
    source, target = source[found], target[found]
    other = (work.lane[source] != work.lane[target]) & (work.end[source] <= work.start[target])
    _add_event_edges(graph, EdgeKind.EVENT_BY_ORDER, source[other], target[other])


def _add_waits_by_time(graph: GraphColumns, trace: Trace, calls: I32) -> None:
    """Add edges for waits without a `cuda_sync` event whose work started right after work of another stream.

    Neither its stream nor its launch explains why that work started then; a stream was told to wait after the launch
    before it on its stream, and the other work had been launched by then.
    """
    window, work = graph.window, graph.window.work
    by_launch = np.lexsort((work.start, work.launch_start, work.lane))
    previous = np.full(len(work), np.iinfo(np.int64).min)
    same = work.lane[by_launch[1:]] == work.lane[by_launch[:-1]]
    previous[by_launch[1:][same]] = work.launch_start[by_launch[:-1][same]]
    told = np.sort(trace.start[calls])
    told_count = told.searchsorted(work.launch_start)
    was_told = told_count > told.searchsorted(previous, side="right")
    is_late = work.start - graph.ready_times > SHORT_GAP
    target = np.flatnonzero(work.is_launched & was_told & is_late)
    one = np.zeros(len(work), np.int64)
    source = find_last_ended(one, work.end, one[target], work.start[target], window.start)
    usable = (work.lane[source] != work.lane[target]) & (work.start[target] - work.end[source] <= SHORT_GAP)
    usable &= work.launch_start[source] < told[told_count[target] - 1]
    _add_event_edges(graph, EdgeKind.EVENT_BY_ORDER, source[usable], target[usable])


def _add_event_edges(graph: GraphColumns, kind: EdgeKind, source: I64, target: I64) -> None:
    found = (source != NONE) & (target != NONE)
    source, target = source[found], target[found]
    graph.add_edges(kind, graph.work_ends(source), graph.work_starts(target), graph.window.work.event[target])


def add_blocking_calls(graph: GraphColumns, trace: Trace) -> int:
    """Add edges from GPU work to the return of calls that wait for it; return how many wait for unknown work.

    A call that copies waits where its own copy ended before it returned, whatever its name.
    """
    window, work = graph.window, graph.window.work
    calls = select_calls(trace, SYNC_CALL_REGEX, window.start, window.cpu_end)
    copying = select_calls(trace, _COPY_CALL_REGEX, window.start, window.cpu_end)
    begin, end = trace.start[calls], trace.start[calls] + trace.duration[calls]
    waited, is_named = _find_named_work(graph, trace, calls)
    by_order = _find_work_by_order(graph, trace, calls, begin, end)
    for_device = np.array([_DEVICE_CALL.search(trace.names[name]) is not None for name in trace.name[calls]], np.bool_)
    source = np.where(is_named, waited, by_order)
    work_end = np.append(work.end, NEVER)[source]
    has_ended = work_end <= end
    for kind, chosen in ((EdgeKind.SYNC, is_named), (EdgeKind.SYNC_BY_ORDER, ~is_named & ~for_device)):
        _add_sync_edges(graph, trace, kind, source[has_ended & chosen], calls[has_ended & chosen])
    _add_device_waits(graph, trace, calls[for_device])
    own = np.flatnonzero(is_in(work.launch, copying) & (work.end <= work.launch_end) & work.is_launched)
    _add_sync_edges(graph, trace, EdgeKind.SYNC, own, work.launch[own])
    is_wait = has_ended & (work_end > begin)
    is_unknown = ~is_wait & (trace.duration[calls] > _LONG_CALL) & ~is_in(calls, work.launch[own])
    return int(np.count_nonzero(is_unknown))


def _add_device_waits(graph: GraphColumns, trace: Trace, calls: I32) -> None:
    """Add edges to calls that wait for a whole device from the last work that each stream was given before."""
    work = graph.window.work
    lanes = sorted_unique(work.lane).astype(np.int64)
    call, lane = np.repeat(calls, len(lanes)), np.tile(lanes, len(calls))
    source, returned = _find_launched_before(graph, lane, trace.start[call]), trace.start[call] + trace.duration[call]
    # By the clocks of some GPUs the work ends just after the return: then the call waited for what ended before.
    ended = find_last_ended(work.lane.astype(np.int64), work.end, lane, returned, graph.window.start)
    source = np.where(np.append(work.end, -NEVER)[source] > returned, ended, source)
    usable = source != NONE
    _add_sync_edges(graph, trace, EdgeKind.SYNC, source[usable], call[usable])


def _add_sync_edges(graph: GraphColumns, trace: Trace, kind: EdgeKind, source: I64, calls: I32) -> None:
    """Add edges from the ends of works to the returns of the calls, which take little time of their own.

    Work that had ended before the call began did not hold it up, but would if it ended later.
    """
    lane, begin = trace.lane[calls], trace.start[calls]
    end = begin + trace.duration[calls]
    inside = end <= graph.window.cpu_end
    source, calls, lane, begin, end = source[inside], calls[inside], lane[inside], begin[inside], end[inside]
    graph.add_points(lane, begin)
    target = graph.add_points(lane, end)
    graph.add_edges(kind, graph.work_ends(source), target, calls)
    work_end = graph.window.work.end[source]
    waits = work_end > begin
    graph.add_waits(target[waits], np.minimum(end - work_end, OWN_TIME)[waits])


def _find_named_work(graph: GraphColumns, trace: Trace, calls: I32) -> tuple[I64, Bool]:
    """Find the work that calls with a `cuda_sync` event wait for: int64[k] or -1, and which calls have one."""
    found, is_named = np.full(len(calls), NONE, np.int64), np.zeros(len(calls), np.bool_)
    syncs = read_sync_events(trace, calls)
    order = np.argsort(calls)
    index = order[np.searchsorted(calls[order], syncs.call)]
    has_event = (syncs.record != NONE) & (syncs.source_lane != NONE)
    has_stream = ~has_event & (syncs.waiting_lane != NONE)
    for chosen, lane, call in (
        (has_event, syncs.source_lane, syncs.record),
        (has_stream, syncs.waiting_lane, syncs.call),
    ):
        found[index[chosen]] = _find_launched_before(graph, lane[chosen], trace.start[call[chosen]])
        is_named[index[chosen]] = True
    return found, is_named


def _find_work_by_order(graph: GraphColumns, trace: Trace, calls: I32, begin: I64, end: I64) -> I64:
    """Find the work that ended last before each call returned, of those launched before the call: int64[k] or -1.

    A call for one stream waits for the stream that its thread launched to last, if that work ended during the call.
    """
    window, work = graph.window, graph.window.work
    order = np.append(np.argsort(work.end, kind="stable"), NONE)  # index -1 stands for no work
    launched = np.append(work.launch_start, -NEVER)
    index = np.searchsorted(work.end[order[:-1]], end, side="right") - 1
    for _ in range(_NEAREST):
        index -= launched[order[index]] >= begin
    found = order[index]
    found[launched[found] >= begin] = NONE
    for_stream = match_names(trace, re.compile(r"Stream|Memcpy").search, trace.name[calls])
    thread = _find_launch_threads(trace, work)
    last = find_last_ended(thread, work.launch_start, trace.lane[calls].astype(np.int64), begin - 1, window.start)
    last_end = np.append(work.end, NEVER)[last]
    return np.where(for_stream & (last_end > begin) & (last_end <= end), last, found)


def _find_launch_threads(trace: Trace, work: GpuWorkColumns) -> I64:
    """Find the lane of the thread that launched each work: int64[m], -1 for none."""
    return np.where(work.is_launched, trace.lane[work.launch], NONE).astype(np.int64)


def _find_launched_before(graph: GraphColumns, lane: I64, time: I64) -> I64:
    """Find the last work of a stream that was launched before a time: int64[k] or -1."""
    work = graph.window.work
    return find_last_ended(work.lane.astype(np.int64), work.launch_start, lane, time - 1, graph.window.start)


def _find_next(graph: GraphColumns, groups: I64, wanted_groups: I64, wanted: I64) -> I64:
    """Find the work of a group, int64[m], that was launched first after a time: int64[k] or -1.

    Times and works are counted backwards: of works that were launched at the same time it is the first one.
    """
    times = -graph.window.work.launch_start[::-1]
    found = find_last_ended(groups[::-1], times, wanted_groups, -wanted - 1, -graph.window.end)
    return np.where(found == NONE, NONE, len(times) - 1 - found)


def _find_lanes(trace: Trace, device: I64, stream: I64) -> I64:
    """Find the stream lanes of these numbers of devices and streams: int64[k], -1 for none."""
    lanes = {}
    for number, lane in enumerate(trace.lanes):
        if lane.role is Role.STREAM and len(lane):
            first = np.array([lane.first], np.int64)
            lanes[int(trace.numbers_at("device", first)[0]), int(trace.numbers_at("stream", first)[0])] = number
    pairs = zip(device.tolist(), stream.tolist(), strict=True)
    return np.array([lanes.get(pair, NONE) for pair in pairs], np.int64)


def _join_correlation(correlation: I64, events: I32, wanted: I64) -> I64:
    """Find the event of each correlation: int64[k], -1 for none."""
    order = np.argsort(correlation, kind="stable")
    if not len(order):
        return np.full(len(wanted), NONE, np.int64)
    index = np.minimum(np.searchsorted(correlation[order], wanted), len(order) - 1)
    hit = (correlation[order[index]] == wanted) & (wanted > 0)
    return np.where(hit, events[order[index]], NONE).astype(np.int64)
