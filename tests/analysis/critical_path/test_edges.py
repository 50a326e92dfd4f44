"""Compare the edges of drawn traces, in which times tie and bounds are met exactly, with those of plain loops."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from tests.analysis.critical_path.edge_reference import UNIT, EdgeReference, draw_calls, list_columns
from tests.helpers.trace_builder import cpu, runtime, trace
from torchprof_tui.analysis.critical_path import launch_edges
from torchprof_tui.analysis.critical_path.dependency_graph import GraphColumns, find_last_ended
from torchprof_tui.analysis.critical_path.launch_edges import (
    add_earlier_edges,
    add_launch_edges,
    add_queue_room,
    add_replay_edges,
    add_stream_edges,
)
from torchprof_tui.analysis.critical_path.step_window import WindowError, find_main_lane, select_window_between
from torchprof_tui.analysis.critical_path.wait_edges import (
    RECORD_REGEX,
    _join_correlation,
    add_blocking_calls,
    add_stream_waits,
    select_calls,
)
from torchprof_tui.trace.core.arrays import NONE, is_in
from torchprof_tui.trace.model.event_kind import Kind

FULL_QUEUE = 2
GPU_KINDS = (Kind.KERNEL, Kind.COPY)


SEEDS = (*range(40), 60, 97, 102, 116, 131, 155, 167, 195, 229, 307, 632)
"""The later ones meet bounds that the first ones miss."""


@pytest.mark.parametrize("seed", SEEDS)
def test_edges_are_those_of_plain_loops(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_edges, "FULL_QUEUE", FULL_QUEUE)
    model = trace(*draw_calls(seed), ns=True)
    if seed % 4 == 3:  # the order inside of replays was recorded, also of work outside of the window
        recorded = np.flatnonzero(is_in(model.kind, GPU_KINDS)).astype(np.int32)
        links = replace(model.links, graph_before=recorded[:-1], graph_after=recorded[1:])
        model = replace(model, links=links)
    first, last = model.span
    start = first + seed % 5 // 2 * 4 * UNIT
    end = last - seed % 3 * 4 * UNIT
    try:
        window = select_window_between(model, None, find_main_lane(model), start, end)
    except WindowError:
        return
    graph = GraphColumns(window)
    add_launch_edges(graph, model)
    add_stream_edges(graph)
    add_earlier_edges(graph, model)
    add_replay_edges(graph, model)
    unknown_waits = add_stream_waits(graph, model)
    unknown_blocks = add_blocking_calls(graph, model)
    add_queue_room(graph, model)
    expected = EdgeReference(model, window, FULL_QUEUE)
    edges, points, waits = list_columns(graph)
    assert sorted(edges, key=str) == sorted(expected.edges, key=str)
    assert points == expected.points
    assert sorted(waits) == sorted(expected.waits)
    assert (len(unknown_waits), unknown_blocks) == (expected.unknown_waits, expected.unknown_blocks)


def test_the_member_that_ended_last_is_found() -> None:
    random = Random(2)
    for count in range(9):
        origin = 7 * (count % 3 - 1)
        groups, ends = (np.array([random.randrange(3) for _ in range(count)], np.int64) for _ in range(2))
        wanted, times = (np.array([random.randrange(-2, 4) for _ in range(30)], np.int64) for _ in range(2))
        ends, times = ends + origin - 1, times + origin
        found = find_last_ended(groups, ends, wanted, times, origin)
        for group, time, number in zip(wanted.tolist(), times.tolist(), found.tolist(), strict=True):
            members = [(max(int(end), origin), k) for k, end in enumerate(ends) if groups[k] == group]
            expected = max((each for each in members if each[0] <= time), default=(0, NONE))[1]
            assert number == expected


def test_calls_that_overlap_a_time_are_selected_by_start() -> None:
    times = [(5, 5), (5, 6), (10, 0), (11, 0), (12, 8), (19, 9), (20, 1), (0, 30)]
    calls = [runtime("cudaEventRecord", *time, corr=k, thread=k % 2) for k, time in enumerate(times)]
    model = trace(*calls, runtime("cudaEventQuery", 12, 2, 9), cpu("cudaEventRecord", 12, 2), ns=True)
    found = [(model.start[call], model.duration[call]) for call in select_calls(model, RECORD_REGEX, 10, 20)]
    assert found == [(0, 30), (5, 6), (11, 0), (12, 8), (19, 9)]


def test_events_are_joined_by_correlations_from_1_on() -> None:
    random = Random(3)
    for count in range(8):
        correlations, wanted = ([random.randrange(-1, 6) for _ in range(size)] for size in (count, 12))
        events = np.arange(count, dtype=np.int32) + 40
        found = _join_correlation(np.array(correlations, np.int64), events, np.array(wanted, np.int64))
        numbers = [correlations.index(each) + 40 if each in correlations and each > 0 else NONE for each in wanted]
        assert found.tolist() == numbers
