"""Compare the critical paths of dense traces, in which bounds are met exactly and times tie, with stored ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.helpers.stored_answers import DENSE_SEEDS, compare_answers, join, join_array, load_dense
from torchprof_tui.analysis.critical_path.critical_path import CriticalPath, find_critical_path
from torchprof_tui.analysis.critical_path.segments import find_path_rows, list_longest
from torchprof_tui.analysis.critical_path.step_window import WindowError
from torchprof_tui.trace.model.trace import Trace


def describe_path(model: Trace, path: CriticalPath) -> Iterator[str]:
    segments, graph, work = path.segments, path.graph, path.window.work
    columns: tuple[Any, ...] = (segments.kind, segments.kernel_class, segments.event, segments.end - segments.start)
    yield f" segments {segments.start[:1].tolist()} " + " ".join(join_array(column) for column in columns)
    edges = (graph.edge_kind, graph.source, graph.target, graph.event, graph.delay)
    yield f" graph {graph.dropped} {graph.first} {graph.last} " + " ".join(join_array(column) for column in edges)
    columns = (work.event, work.launch, work.launch_start, work.launch_end, work.is_backlog)
    yield f" work {path.window.begin} {path.window.cpu_end} " + " ".join(join_array(column) for column in columns)
    yield f" replayed {path.replayed} inferred {path.inferred} slack {join_array(path.event)} {join_array(path.slack)}"
    yield " shares " + join(f"{share.label} {share.time} {share.count}" for share in path.shares)
    longest = [(each.event, each.time) for each in path.find_longest(3)]
    off_path = [(each.name, each.count, each.time, each.slack) for each in path.sum_off_path(model, 3)]
    yield f" events {longest} {off_path} {join_array(list_longest(segments, 5))}"
    base = np.array([lane.row_base for lane in model.lanes], np.int64)
    rows = find_path_rows(model, segments, base, model.row_index.rows)
    yield " rows " + " ".join(join_array(column) for column in (rows.first, rows.start, rows.end))
    yield from (f" {line}" for line in (*path.missing, path.advice) if line)


def describe_paths(seed: int) -> Iterator[str]:
    model = load_dense(seed)
    first, last = model.span
    ranges = [None, (first, last), (first + 40_000, last - 60_000), (first, first + 70_000)]
    for number in [None, 1, 2, 3]:
        for bounds in ranges if number is None else [None]:
            yield f"dense {seed}, step {number}, {bounds}"
            try:
                yield from describe_path(model, find_critical_path(model, number, bounds))
            except WindowError as error:
                yield f" {error}"


def test_answers_of_dense_traces() -> None:
    compare_answers("critical-path", (line for seed in DENSE_SEEDS for line in describe_paths(seed)))
