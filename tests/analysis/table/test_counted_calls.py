"""Test which events are calls and what they contain: rules that random programs and recorded tables miss."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.trace_builder import (
    annotation,
    cpu,
    event,
    gpu_annotation,
    kernel,
    memory,
    overhead,
    python,
    runtime,
    step,
    trace,
)
from torchprof_tui.analysis.dispatch.ancestry import find_nearest_ancestor_or_self, sum_subtrees
from torchprof_tui.analysis.table.counted_calls import find_innermost_at, fold_only_children
from torchprof_tui.analysis.table.groups import Profile
from torchprof_tui.analysis.table.profiler_table import ProfilerTable
from torchprof_tui.analysis.table.sheets import TextColumn
from torchprof_tui.trace.build.nesting import find_parents, nest_lanes

NEW = {"baseTimeNanoseconds": 1}


def table(*entries: Any, **more: Any) -> ProfilerTable:
    return Profile(trace(*entries, header=NEW, **more)).build_table()


def rows(result: ProfilerTable) -> dict[tuple[str, bool], tuple[int, ...]]:
    """(name, on the GPU) -> calls, self CPU, CPU, self GPU, GPU in µs."""
    return {
        (result.names[k], bool(result.on_gpu[k])): (
            int(result.calls[k]),
            *(int(column[k]) // 1000 for column in (result.self_cpu, result.cpu, result.self_gpu, result.gpu)),
        )
        for k in range(len(result))
    }


def op(name: str, start: float, duration: float, number: int, thread: int = 100) -> dict[str, Any]:
    return cpu(name, start, duration, thread, **{"External id": number})


def launch(start: float, duration: float, corr: int, number: int = 0, thread: int = 100) -> dict[str, Any]:
    return runtime("cudaLaunchKernel", start, duration, corr, thread, **({"External id": number} if number else {}))


def work(name: str, start: float, duration: float, corr: int, number: int = 0) -> dict[str, Any]:
    return kernel(name, start, duration, corr, **({"External id": number} if number else {}))


def test_steps_share_a_row_and_python_has_none() -> None:
    result = table(step(1, 0, 10), step(2, 20, 10), python("f", 1, 5), op("aten::mm", 2, 3, 1))
    assert rows(result) == {("ProfilerStep*", False): (2, 17, 20, 0, 0), ("aten::mm", False): (1, 3, 3, 0, 0)}


def test_an_only_child_of_the_same_name_is_folded_with_its_gpu_work() -> None:
    result = table(
        op("aten::addmm", 0, 20, 1),
        op("aten::addmm", 2, 10, 2),
        launch(4, 2, corr=7, number=2),
        work("k", 30, 5, corr=7, number=2),
    )
    assert rows(result)["aten::addmm", False] == (1, 18, 20, 5, 5)
    assert rows(result)["cudaLaunchKernel", False] == (1, 2, 2, 0, 0)
    two = table(op("aten::addmm", 0, 20, 1), op("aten::addmm", 2, 10, 2), op("aten::t", 15, 1, 3))
    assert rows(two)["aten::addmm", False] == (2, 19, 30, 0, 0)


def test_annotations_and_operators_of_one_name_are_rows_of_their_own() -> None:
    result = table(annotation("forward", 0, 10), op("forward", 20, 5, 1), gpu_annotation("forward", 40, 8))
    assert [(result.names[k], bool(result.annotation[k]), bool(result.on_gpu[k])) for k in range(3)] == [
        ("forward", True, False),
        ("forward", False, False),
        ("forward", True, True),
    ]
    assert result.gpu.tolist() == [0, 0, 7998]  # Kineto widens the span by a nanosecond at both ends
    assert result.self_gpu_total == 0


def test_overhead_counts_on_the_profilers_thread_and_for_the_operator_it_interrupts() -> None:
    result = table(
        step(1, 0, 100),
        op("aten::mm", 10, 50, 1),
        launch(45, 5, corr=7, number=1),
        work("k", 120, 4, corr=7, number=1),
        overhead("Lazy Function Loading", 20, 10),
    )
    assert rows(result)["aten::mm", False] == (1, 35, 50, 4, 8)
    assert rows(result)["Lazy Function Loading", False] == (1, 10, 10, 4, 4)


def test_external_ids_that_are_correlations_are_ignored() -> None:
    """torch 1.1x to 2.3: the launch's correlation is written as the External id."""
    result = Profile(
        trace(
            op("aten::mm", 0, 10, 11),
            launch(2, 3, corr=12, number=12),
            op("aten::add", 20, 10, 12),
            launch(22, 3, corr=13, number=13),
            work("k", 40, 5, corr=12, number=12),
            work("k", 50, 7, corr=13, number=13),
        )
    ).build_table()
    assert rows(result)["aten::mm", False] == (1, 7, 10, 5, 5)
    assert rows(result)["aten::add", False] == (1, 7, 10, 7, 7)


def test_a_launch_on_another_thread_counts_on_its_operators() -> None:
    result = table(step(1, 0, 100), op("aten::mm", 10, 50, 1), launch(20, 5, corr=7, number=1, thread=101))
    assert rows(result)["aten::mm", False] == (1, 45, 50, 0, 0)


def test_allocations_outside_of_all_calls_are_a_row() -> None:
    result = table(op("aten::empty", 10, 5, 1), memory(12, 512, 512), memory(15, 512, 1024), memory(30, 64, 1088))
    assert rows(result)["[memory]", False] == (1, 0, 0, 0, 0)
    assert result.members_of(len(result) - 1).tolist() == []


def test_another_programs_events_are_calls() -> None:
    entry = event("work", 0, 10, cat="python")
    assert rows(table(entry, {**entry, "ts": 2, "dur": 3, "name": "inner"}, format="chrome")) == {
        ("work", False): (1, 7, 10, 0, 0),
        ("inner", False): (1, 3, 3, 0, 0),
    }


def test_a_trace_of_nothing_has_no_rows() -> None:
    result = table()
    assert len(result) == 0
    assert (result.self_cpu_total, result.self_gpu_total) == (0, 0)


def test_trees() -> None:
    parent = np.array([-1, 0, 1, 1, 0, -1], np.int32)
    assert sum_subtrees(parent, np.array([1, 10, 100, 0, 1000, 7])).tolist() == [1111, 110, 100, 0, 1000, 7]
    mask = np.array([False, True, False, False, False, False])
    assert find_nearest_ancestor_or_self(parent, mask).tolist() == [-1, 1, 1, 1, -1, -1]
    kept, parents, self_time = fold_only_children(
        np.array([-1, 0, 1, 2, 2], np.int32), np.array([5, 5, 5, 5, 6], np.int32), np.array([1, 2, 3, 4, 5])
    )
    assert kept.tolist() == [True, False, False, True, True]
    assert parents.tolist() == [-1, 0, 0]
    assert self_time.tolist() == [3, 4, 5]


def test_the_innermost_running_event_among_thousands() -> None:
    result = trace(cpu("outer", 0, 10_000), *(cpu("leaf", 1 + 2 * k, 1) for k in range(3000)))
    event_rows = np.arange(len(result), dtype=np.int32)
    innermost = find_innermost_at(result, event_rows, np.array([500, 1500, 9_000_000, 10_000_000, 6_000_500]) * 1)
    assert [result.names[result.name[row]] if row >= 0 else None for row in innermost.tolist()] == [
        "outer",
        "leaf",
        "outer",
        None,
        "outer",
    ]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 9)), max_size=25))
def test_containers_are_the_parents_that_nesting_finds(drawn: list[tuple[int, int, int]]) -> None:
    drawn.sort(key=lambda interval: (interval[0], interval[1], -interval[2]))
    lane, start, duration = (np.array([interval[k] for interval in drawn], np.int64) for k in range(3))
    first = np.searchsorted(lane, np.arange(4)).astype(np.int64)
    flat = np.zeros(3, np.bool_)
    assert find_parents(first, start, duration).tolist() == nest_lanes(first, flat, start, duration).parent.tolist()


@given(st.lists(st.text("aAbB \u00df", max_size=4), max_size=12))
def test_sort_ranks_ignore_case(texts: list[str]) -> None:
    ordered = [texts[index] for index in np.argsort(TextColumn(texts).sort_ranks, kind="stable").tolist()]
    assert [text.casefold() for text in ordered] == sorted(text.casefold() for text in texts)
    assert sorted(ordered) == sorted(texts)
    assert ordered == [text for _, text in sorted((text.casefold(), text) for text in texts)]
    assert len(set(TextColumn(texts).sort_ranks.tolist())) == len(set(texts))
