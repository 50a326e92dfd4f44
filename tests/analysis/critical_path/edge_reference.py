"""List the edges to GPU work and to blocking calls in slow, obvious loops: the reference for the columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, NamedTuple

import numpy as np

from tests.helpers.dense_traces import AUTOGRAD, COPIES
from tests.helpers.trace_builder import TID, Entry, kernel, memcpy, runtime, sync
from torchprof_tui.analysis.critical_path.dependency_graph import EdgeKind, GraphColumns
from torchprof_tui.analysis.critical_path.launch_edges import LONG_LAUNCH, SHORT_GAP
from torchprof_tui.analysis.critical_path.step_window import StepWindow
from torchprof_tui.analysis.critical_path.wait_edges import OWN_TIME
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.lanes import Role
from torchprof_tui.trace.model.trace import Trace

LONG_CALL = 20_000
CALLS = {
    "launch": ("cudaLaunchKernel",),
    "copy": ("cudaMemcpyAsync", "cudaMemcpy"),
    "graph": ("cudaGraphLaunch",),
    "record": ("cudaEventRecord",),
    "wait": ("cudaStreamWaitEvent",),
    "block": ("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cudaCtxSynchronize"),
}
STREAMS = ((0, 7), (0, 8), (0, 7), (0, 8), (1, 7))
WORKS = {"launch": 1, "copy": 1, "graph": 3}
WAITS = ("launch", "launch record wait launch", "launch", "launch record launch wait launch", "wait", "record")
BLOCKS = ("launch", "launch", "copy", "graph", "record", "block", "launch block")
UNIT = 5_000
"""ns: gaps of 2 and calls of 3 and 4 units meet the bounds of the rules exactly; some times are one more."""


def draw_calls(seed: int, count: int = 10) -> list[Entry]:
    """Draw calls of two threads on a grid, their work on three streams of two devices, and some `cuda_sync` events."""
    random, entries, corr = Random(seed), list[Entry](), 0
    now, busy, recorded = {TID: 0, AUTOGRAD: 0}, dict[tuple[int, int], int](), [0]

    def pick(items: Iterable[Any]) -> Any:
        each = tuple(items)
        return each[int(random.random() * len(each))]

    def ticks(*counts: int) -> int:
        return UNIT * int(pick(counts)) + int(pick((0, 0, 0, 0, 1)))

    def work(begin: int, kind: str) -> None:
        device, stream = pick(STREAMS)
        begin = max(begin, busy.get((device, stream), 0) + ticks(0, 0, 2, 3))
        length = ticks(0, 1, 2, 3, 4, 5)
        busy[device, stream] = begin + length
        make, label = (memcpy, COPIES[1]) if kind == "copy" else (kernel, f"k{corr}")
        number = corr if pick((1, 1, 1, 1, 0)) else -1
        entries.append(make(label, begin, length, number, device=device, stream=stream))

    kinds = WAITS if seed % 2 else BLOCKS
    order = [(kind, thread) for _ in range(count) for thread in [pick((TID, AUTOGRAD))] for kind in pick(kinds).split()]
    for kind, thread in order:
        corr += 1
        begin, length = now[thread] + ticks(0, 0, 1), ticks(0, 1, 2, 3, 4, 5)
        if kind == "record":
            recorded.append(corr)
        elif kind == "block":
            length = max(pick(busy.values() or [0]) + ticks(0, 1) - begin, length)
        for _ in range(WORKS.get(kind, 0)):
            work(begin + ticks(0, 1, 2, 3, 4), kind)
        if kind == "wait" and pick((0, 1)):  # what begins next begins after what runs
            busy.update(dict.fromkeys(STREAMS, max(busy.values(), default=0) + ticks(0, 0, 1)))
        if kind in ("wait", "block") and pick((1, 1, 0)) and seed % 4:
            source, waiting, device = pick((7, 8, 9)), pick((7, 8, 7, 8, -1)), pick((0, 0, 0, 0, 1))
            where = {"wait_on_stream": source, "wait_on_cuda_event_record_corr_id": pick(recorded[-2:])}
            where = where if pick((0, 1)) or kind == "wait" else {}
            entries.append(sync("Sync", begin, length, corr, stream=waiting, device=device, **where))
        entries.append(runtime(pick(CALLS[kind]), begin, length, corr, thread))
        now[thread] = begin + length
    return entries


class Work(NamedTuple):
    number: int
    event: int
    lane: int
    launch: int
    start: int
    end: int
    launch_start: int
    launch_end: int


Edge = tuple[EdgeKind, Any, Any, int]
"""Kind, source, target and event; an end is ("start" or "end", number of the work) or (lane, ns)."""


class EdgeReference:
    """The edges of a window, its points (lane, ns) and its waits (lane, ns, the thread's own ns)."""

    def __init__(self, trace: Trace, window: StepWindow, full_queue: int) -> None:
        self.trace, self.window = trace, window
        names = ("event", "lane", "launch", "start", "end", "launch_start", "launch_end")
        columns = [getattr(window.work, name).tolist() for name in names]
        self.works = [Work(number, *row) for number, row in enumerate(zip(*columns, strict=True))]
        self.edges: list[Edge] = []
        self.points: set[tuple[int, int]] = set()
        self.waits: list[tuple[int, int, int]] = []
        self.add_launches()
        self.add_order_of_streams()
        if len(trace.links.graph_before):
            self.add_recorded_replays(trace.links.graph_before.tolist(), trace.links.graph_after.tolist())
        else:
            self.add_replays()
        self.unknown_waits = self.add_stream_waits()
        blocking = self.find_calls(".*Synchronize|cudaMemcpy$", window.start, window.cpu_end)
        self.unknown_blocks = sum([self.add_blocking_call(call) for call in blocking])
        self.add_blocking_copies()
        self.add_queue_room(full_queue)

    def find_calls(self, regex: str, start: int, end: int) -> list[int]:
        trace = self.trace
        found = [
            event
            for event in range(len(trace))
            if trace.kind[event] == Kind.RUNTIME
            and re.match(regex, trace.names[trace.name[event]])
            and trace.start[event] < end
            and self.find_end(event) > start
        ]
        return sorted(found, key=lambda event: (trace.start[event], event))

    def find_end(self, event: int) -> int:
        return int(self.trace.start[event] + self.trace.duration[event])

    def find_last(self, works: Iterable[Work], time: Callable[[Work], int], limit: int) -> Work | None:
        """Find the work with the latest `time(work)` up to a limit; times before the window count as its start."""
        found = None
        for work in works if limit >= self.window.start else ():
            if time(work) <= limit and (not found or self.clip(time(work)) >= self.clip(time(found))):
                found = work
        return found

    def clip(self, time: int) -> int:
        return max(time, self.window.start)

    def find_launched_before(self, works: Iterable[Work], time: int) -> Work | None:
        return self.find_last(works, lambda work: work.launch_start, time - 1)

    def find_ended(self, works: Iterable[Work], time: int) -> Work | None:
        return self.find_last(works, lambda work: work.end, time)

    def find_next(self, works: Iterable[Work], time: int) -> Work | None:
        later = [work for work in works if work.launch_start > time]
        return min(later, key=lambda work: work.launch_start, default=None)

    def on_lane(self, lane: int) -> list[Work]:
        return [work for work in self.works if work.lane == lane]

    def of_thread(self, lane: int) -> list[Work]:
        return [work for work in self.works if work.launch >= 0 and self.trace.lane[work.launch] == lane]

    def add_point(self, lane: int, time: int) -> tuple[int, int]:
        point = int(lane), min(max(int(time), self.window.start), self.window.cpu_end)
        self.points.add(point)
        return point

    def add_edge(self, kind: EdgeKind, source: Work | None, target: Work | None) -> None:
        if source and target:
            self.edges.append((kind, ("end", source.number), ("start", target.number), target.event))

    def add_launches(self) -> None:
        for work in self.works:
            if work.launch >= 0 and work.launch_end > self.window.start:
                early = work.start < work.launch_end
                point = self.add_point(self.trace.lane[work.launch], work.launch_start if early else work.launch_end)
                kind = EdgeKind.CALL if early else EdgeKind.LAUNCH
                self.edges.append((kind, point, ("start", work.number), work.launch))

    def add_order_of_streams(self) -> None:
        for work in self.works:
            before = self.find_ended(self.on_lane(work.lane), work.start)
            self.add_edge(EdgeKind.STREAM, before, work)
            lane, launch_of = self.trace.lanes[work.lane], self.trace.links.launch_of
            launched = [event for event in range(lane.first, lane.last) if launch_of[event] >= 0]
            if launched[:1] == [work.event] and work.start - self.find_ready(work) > SHORT_GAP:
                begin = self.add_point(self.window.lane, self.window.start)
                source = ("end", before.number) if before else begin
                self.edges.append((EdgeKind.EARLIER, source, ("start", work.number), work.event))

    def find_ready(self, work: Work) -> int:
        before = self.find_ended(self.on_lane(work.lane), work.start)
        return max(work.launch_end, before.end if before else self.window.start)

    def add_recorded_replays(self, before: list[int], after: list[int]) -> None:
        works = {work.event: work for work in self.works}
        for source, target in zip(before, after, strict=True):
            self.add_edge(EdgeKind.GRAPH, works.get(source), works.get(target))

    def add_replays(self) -> None:
        launches = [work.launch for work in self.works if work.launch >= 0]
        replayed = [work for work in self.works if work.launch >= 0 and launches.count(work.launch) > 1]
        for work in replayed:
            sibling = self.find_ended([each for each in replayed if each.launch == work.launch], work.start)
            before = self.find_ended([each for each in replayed if each.lane == work.lane], work.start)
            follows = before and before.launch == work.launch and work.start - before.end <= SHORT_GAP
            if sibling and not follows and sibling.lane != work.lane:
                self.add_edge(EdgeKind.GRAPH, sibling, work)

    def add_stream_waits(self) -> int:
        calls = self.find_calls("cudaStreamWaitEvent", -1, self.window.cpu_end)
        unknown = []
        for call in calls:
            syncs = self.find_syncs(call)
            for record, source, waiting in syncs:
                if record is not None:
                    before = self.find_launched_before(self.on_lane(source), self.trace.start[record])
                    after = self.find_next(self.on_lane(waiting), self.trace.start[call])
                    self.add_edge(EdgeKind.EVENT, before, after)
            if not syncs:
                unknown.append(call)
        self.add_waits_by_order(unknown)
        self.add_waits_by_time([int(self.trace.start[call]) for call in unknown])
        return sum(self.trace.start[call] >= self.window.start for call in unknown)

    def find_syncs(self, call: int) -> list[tuple[int | None, int, int]]:
        """Find the recorded events of a call: the record call, the stream that it is of, the stream that waits."""
        trace, found = self.trace, []
        records = self.find_calls("cudaEventRecord", -1, trace.span[1] + 1)
        for event in range(len(trace)):
            if trace.kind[event] == Kind.SYNC and trace.correlation[event] == trace.correlation[call]:
                number = self.read_arg("wait_record", event)
                record = [each for each in records if trace.correlation[each] == number > 0]
                source = self.find_stream(event, self.read_arg("wait_stream", event))
                waiting = self.find_stream(event, self.read_arg("stream", event))
                found.append((record[0] if record else None, source, waiting))
        return found

    def read_arg(self, name: str, event: int) -> int:
        column = self.trace.args.get(name)
        return -1 if column is None else int(column.values_at(np.array([event]))[0])

    def find_stream(self, event: int, stream: int) -> int:
        """Find the lane of a stream of the device of an event."""
        device = self.read_arg("device", event)
        for number, lane in enumerate(self.trace.lanes):
            where = self.read_arg("device", lane.first), self.read_arg("stream", lane.first)
            if lane.role is Role.STREAM and where == (device, stream):
                return number
        return -1

    def add_waits_by_order(self, calls: list[int]) -> None:
        trace = self.trace
        inside = self.find_calls("cudaEventRecord", self.window.start, self.window.cpu_end)
        for call in calls:
            lane, start = trace.lane[call], trace.start[call]
            records = [each for each in inside if trace.lane[each] == lane]
            records = [each for each in records if trace.start[each] <= start and start >= self.window.start]
            if records:
                record = max(records, key=lambda each: (self.clip(int(trace.start[each])), trace.start[each], each))
                source = self.find_last(self.of_thread(lane), lambda work: work.launch_start, trace.start[record])
                target = self.find_next(self.of_thread(lane), start)
                if source and target and source.lane != target.lane and source.end <= target.start:
                    self.add_edge(EdgeKind.EVENT_BY_ORDER, source, target)

    def add_waits_by_time(self, told: list[int]) -> None:
        for work in self.works:
            order = sorted(self.on_lane(work.lane), key=lambda each: (each.launch_start, each.start))
            before = order[: order.index(work)]
            previous = before[-1].launch_start if before else -1
            since = [time for time in told if previous < time < work.launch_start]
            if work.launch >= 0 and since and work.start - self.find_ready(work) > SHORT_GAP:
                source = self.find_ended(self.works, work.start)
                is_near = source and source.lane != work.lane and work.start - source.end <= SHORT_GAP
                if source and is_near and source.launch_start < max(since):
                    self.add_edge(EdgeKind.EVENT_BY_ORDER, source, work)

    def add_blocking_call(self, call: int) -> bool:
        """Add the edges to a call; return whether nothing is known to have held it up for its long time."""
        trace, name = self.trace, self.trace.names[self.trace.name[call]]
        begin, end = int(trace.start[call]), self.find_end(call)
        for_device, source, is_named = "Device" in name or "Ctx" in name, None, False
        for record, lane, waiting in self.find_syncs(call):
            if record is not None and lane >= 0:
                source, is_named = self.find_launched_before(self.on_lane(lane), trace.start[record]), True
            elif waiting >= 0:
                source, is_named = self.find_launched_before(self.on_lane(waiting), begin), True
        if not is_named:
            source = self.find_ended([work for work in self.works if work.launch_start < begin], end)
            last = self.find_launched_before(self.of_thread(trace.lane[call]), begin)
            if ("Stream" in name or "Memcpy" in name) and last and begin < last.end <= end:
                source = last
        if source and source.end <= end and (is_named or not for_device):
            self.add_return(EdgeKind.SYNC if is_named else EdgeKind.SYNC_BY_ORDER, source, call)
        for lane in sorted({work.lane for work in self.works}) if for_device else ():
            held = self.find_launched_before(self.on_lane(lane), begin)
            held = held if not held or held.end <= end else self.find_ended(self.on_lane(lane), end)
            self.add_return(EdgeKind.SYNC, held, call)
        is_known = source is not None and begin < source.end <= end
        if "Memcpy" in name:
            is_known = is_known or any(work.launch == call and work.end <= work.launch_end for work in self.works)
        return not is_known and end - begin > LONG_CALL

    def add_return(self, kind: EdgeKind, source: Work | None, call: int) -> None:
        lane, begin, end = self.trace.lane[call], int(self.trace.start[call]), self.find_end(call)
        if source and end <= self.window.cpu_end:
            self.add_point(lane, begin)
            point = self.add_point(lane, end)
            self.edges.append((kind, ("end", source.number), point, call))
            if source.end > begin:
                self.waits.append((*point, min(end - source.end, OWN_TIME)))

    def add_blocking_copies(self) -> None:
        calls = self.find_calls(".*Memcpy", self.window.start, self.window.cpu_end)
        for work in self.works:
            if work.launch in calls and work.end <= work.launch_end:
                self.add_return(EdgeKind.SYNC, work, work.launch)

    def add_queue_room(self, full_queue: int) -> None:
        launched = [work for work in self.works if work.launch >= 0]
        for work in launched if len(self.works) >= full_queue else ():
            is_long = work.launch_end - work.launch_start > LONG_LAUNCH
            if is_long and self.window.start <= work.launch_start and work.launch_end <= self.window.cpu_end:
                waiting = sum(each.launch_start <= work.launch_start for each in launched)
                waiting -= sum(each.start <= work.launch_end for each in launched)
                source = self.find_ended(self.on_lane(work.lane), work.launch_end)
                if work.start > work.launch_end and waiting >= full_queue and source:
                    lane = self.trace.lane[work.launch]
                    self.add_point(lane, work.launch_start)
                    point = self.add_point(lane, work.launch_end)
                    self.edges.append((EdgeKind.ROOM, ("end", source.number), point, work.launch))
                    self.waits.append((*point, min(work.launch_end - work.launch_start, OWN_TIME)))


def list_columns(graph: GraphColumns) -> tuple[list[Edge], set[tuple[int, int]], list[tuple[int, int, int]]]:
    """List the edges, points and waits that were collected."""
    lanes, times, index = graph.join_points()
    points = [*zip(lanes.tolist(), times.tolist(), strict=True)]
    count = len(graph.window.work)

    def name(node: int) -> Any:
        if node >= 2 * count:
            return points[node - 2 * count]
        return ("start", node) if node < count else ("end", node - count)

    edges = [
        (EdgeKind(kind), name(source), name(target), event)
        for kind, source, target, event in zip(*(column.tolist() for column in graph.join_edges(index)), strict=True)
    ]
    nodes, own = graph.join_waits(index)
    waits = [(*name(node), time) for node, time in zip(nodes.tolist(), own.tolist(), strict=True)]
    return edges, set(points), waits
