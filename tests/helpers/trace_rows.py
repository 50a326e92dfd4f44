"""The events of a trace as comparable rows, whatever file format and order of entries they came from."""

from __future__ import annotations

from collections import Counter

from torchprof_tui.trace.model.trace import Trace

Row = tuple[object, ...]


def list_rows(
    trace: Trace, categories_left_out: frozenset[str] = frozenset(), args: tuple[str, ...] = ()
) -> Counter[Row]:
    """List every event: lane, absolute start, duration, self time, name, category, correlation, depth, its parent's
    name, its launch's name and start; and these columns of args."""
    names, lanes = trace.names, trace.lanes
    launch = trace.links.launch_of
    columns: list[list[str]] = []
    for arg in args:
        columns.append([""] * len(trace))
        found = trace.args.get(arg)
        if found is not None:
            for event, value in zip(found.events.tolist(), found.values.tolist(), strict=True):
                columns[-1][event] = str(value)
    rows: Counter[Row] = Counter()
    for event in range(len(trace)):
        category = trace.categories[int(trace.category[event])]
        if category in categories_left_out:
            continue
        lane = lanes[int(trace.lane[event])]
        parent, call = int(trace.parent[event]), int(launch[event])
        row: Row = (
            lane.role,
            lane.pid,
            lane.tid,
            lane.device,
            int(trace.start[event]) + trace.origin,
            int(trace.duration[event]),
            int(trace.self_duration[event]),
            names[int(trace.name[event])],
            category,
            int(trace.correlation[event]),
            int(trace.row[event]),
            names[int(trace.name[parent])] if parent >= 0 else None,
            (names[int(trace.name[call])], int(trace.start[call]) + trace.origin) if call >= 0 else None,
            *(column[event] for column in columns),
        )
        rows[row] += 1
    return rows


def list_points(trace: Trace) -> list[Row]:
    """List the counters with their points, by name."""
    return sorted(
        (counter.name, (counter.times + trace.origin).tolist(), counter.values.tolist()) for counter in trace.counters
    )
