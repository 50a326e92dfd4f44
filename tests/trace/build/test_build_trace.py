"""Test what is drawn, when, and how it is counted, on literal traces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.trace_builder import (
    Entry,
    annotation,
    begin,
    counter,
    cpu,
    decoded,
    end,
    event,
    flow,
    instant,
    kernel,
    memory,
    metadata,
    overhead,
    python,
    step,
    trace,
)
from torchprof_tui.trace.build.build_trace import build_trace
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.lanes import SPANS
from torchprof_tui.trace.model.trace import Trace

HOUR = 3_600_000_000  # µs


def balanced(made: Trace) -> bool:
    counts = made.counts
    return counts.events == counts.drawn + counts.metadata + counts.flows + sum(counts.not_drawn.values())


def names(made: Trace) -> list[str]:
    return [made.event(k).name for k in range(len(made))]


def problems(made: Trace) -> dict[str, int]:
    return {problem.kind: problem.count for problem in made.problems}


def test_times_are_nanoseconds_from_the_first_event() -> None:
    made = trace(cpu("b", 4327600419139.848, 0.5), cpu("a", 4327600419139.001, 2.25))
    assert names(made) == ["a", "b"]
    assert made.start.tolist() == [0, 847]
    assert made.duration.tolist() == [2250, 500]
    assert made.span == (0, 2250)


def test_the_profilers_own_events_do_not_widen_the_trace() -> None:
    made = trace(
        cpu("op", 100, 10),
        overhead("Buffer Flush", 500, 50),
        event("PyTorch Profiler (0)", 20, 900, "Trace", pid="Spans", tid="PyTorch Profiler"),
        {
            "ph": "i",
            "name": "Iteration Start: PyTorch Profiler",
            "pid": "Traces",
            "tid": "Trace PyTorch Profiler",
            "ts": 20,
        },
        {"ph": "i", "name": "Record Window End", "pid": "", "tid": "", "ts": 950},
    )
    assert made.span == (0, 10_000)
    lanes = [
        (lane.kind, lane.label, [made.event(k).start for k in range(lane.first, lane.last)]) for lane in made.lanes
    ]
    assert lanes == [
        ("cpu", "CPU 100", [0]),
        ("profiler", "overhead", [400_000]),
        ("profiler", "marks", [-80_000, 850_000]),
        ("profiler", "spans", [-80_000]),
    ]


def test_a_trace_of_nothing_but_the_profiler_still_has_a_span() -> None:
    assert trace(overhead("Buffer Flush", 500, 50)).span == (0, 50_000)


def test_a_clamped_timestamp_does_not_zoom_the_view_out() -> None:
    made = trace(cpu("clamped", 0, 5), cpu("a", 100 * HOUR, 10), cpu("b", 100 * HOUR + 20, 10))
    assert made.start.tolist() == [0, 0, 20_000]
    assert made.span == (0, 30_000)
    assert problems(made) == {"clamped timestamp": 1}


@pytest.mark.parametrize("later", [5, 10 * HOUR])
def test_a_trace_that_begins_at_zero_is_no_clamped_one(later: int) -> None:
    made = trace(cpu("a", 0, 5), cpu("b", later, 10))
    assert made.start.tolist() == [0, later * 1000]
    assert problems(made) == {}


def test_odd_durations() -> None:
    made = trace(cpu("negative", 0, -5), {"ph": "X", "name": "none", "ts": 5, "pid": 100, "tid": 100}, cpu("c", 9, 1))
    assert made.duration.tolist() == [0, 0, 1000]
    assert problems(made) == {"missing duration": 1, "negative duration": 1}


def test_times_of_centuries_are_cut_off_and_reported() -> None:
    made = trace(cpu("a", 5, 1), cpu("b", 2**61 + 9, 2**62), ns=True)
    assert made.start.tolist() == [0, 2**61]
    assert made.duration.tolist() == [1, 2**61]
    assert problems(made) == {"time out of range": 1}


def test_every_entry_is_accounted_for() -> None:
    made = trace(
        cpu("op", 0, 10),
        begin("a", 1),
        end("a", 2),
        end("lost", 3),
        begin("open", 4),
        instant("mark", 5),
        counter("c", 6, value=1),
        counter("no number", 6),
        memory(7, 100, 100),
        flow("s", "ac2g", 1, 8),
        metadata("process_name", "python"),
        {"ph": "X", "name": "never", "pid": 1, "tid": 1},
        {"ph": "N", "name": "object", "pid": 1, "tid": 1, "ts": 1},
        {"ph": "P", "name": "sample", "pid": 1, "tid": 1, "ts": 1},
        {"ph": "?", "name": "what", "pid": 1, "tid": 1, "ts": 1},
        {"name": "no phase"},
        {},
        None,
        17,
    )
    assert balanced(made)
    assert made.counts.events == 19
    assert made.counts.drawn == 7
    assert (made.counts.metadata, made.counts.flows) == (1, 1)
    assert made.counts.not_drawn == {
        "end without begin": 1,
        "no time": 1,
        "object snapshot": 1,
        "sample": 1,
        "no phase": 2,
        "unknown phase": 1,
        "counter without a number": 1,
        "not an object": 2,
    }
    assert made.counts.by_category == {"cpu_op": 1, "": 1}


PHASES = [*"XBEiIbenSTFCMsfNP?", "", "ab"]
CATEGORIES = ["", "cpu_op", "kernel", "cuda_runtime", "overhead", "Trace", "cuda_sync", "fwdbwd"]
ARGS = ["correlation", "stream", "device", "value"]

entries = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "ph": st.sampled_from(PHASES),
            "name": st.sampled_from(["", "a", "b", "[memory]", "ProfilerStep#3"]),
            "cat": st.sampled_from(CATEGORIES),
            "pid": st.sampled_from([0, 1, "Spans", ""]),
            "tid": st.sampled_from([0, 1, "stream 7", ""]),
            "ts": st.one_of(st.integers(0, 30), st.sampled_from(["7", 10**12, "soon", -3.5])),
            "dur": st.one_of(st.integers(-2, 20), st.sampled_from([2.5, "4"])),
            "id": st.integers(0, 2),
            "args": st.dictionaries(st.sampled_from(ARGS), st.integers(-1, 8)),
        },
    ),
    max_size=30,
)


@given(entries)
def test_any_entries_give_a_consistent_trace(made_of: list[Entry]) -> None:
    made = trace(*made_of)
    n = len(made)
    assert balanced(made)
    assert len({int(ordinal) for ordinal in made.ordinal}) == n
    assert sum(len(lane) for lane in made.lanes) == n
    rows = 0
    for number, lane in enumerate(made.lanes):
        assert set(made.lane[lane.first : lane.last].tolist()) <= {number}
        assert lane.row_base == rows
        assert lane.rows >= 1 + max(made.row[lane.first : lane.last].tolist(), default=0)
        rows += lane.rows
        key = [
            (made.event(k).start, -made.event(k).duration, int(made.ordinal[k])) for k in range(lane.first, lane.last)
        ]
        assert key == sorted(key)
    assert made.total_rows == rows
    assert sorted(made.row_order.tolist()) == list(range(n))
    base = [lane.row_base for lane in made.lanes]
    for row in range(rows):
        inside = made.row_order[made.row_first[row] : made.row_first[row + 1]]
        assert all(base[int(made.lane[k])] + int(made.row[k]) == row for k in inside)
        assert made.start[inside].tolist() == sorted(made.start[inside].tolist())
        ends = made.start[inside] + np.maximum(made.duration[inside], 1)
        assert (ends[:-1] <= made.start[inside][1:]).all()


def test_instants_are_marks_on_their_thread() -> None:
    made = trace(cpu("op", 0, 10), instant("[OutOfMemory]", 5), {**instant("with dur", 6), "dur": 3})
    assert [(made.event(k).kind, made.event(k).duration) for k in range(3)] == [
        (Kind.OP, 10_000),
        (Kind.INSTANT, 0),
        (Kind.INSTANT, 0),
    ]
    assert made.event(1).parent == made.event(0)


def test_memory_becomes_counters_and_a_table() -> None:
    made = trace(
        cpu("op", 0, 10),
        memory(5, -20, 80, device=0, reserved=200),
        memory(2, 100, 100, device=0, reserved=200),
        memory(3, 8, 8),
    )
    assert names(made) == ["op"]
    assert made.memory is not None
    assert made.memory.time.tolist() == [2000, 3000, 5000]
    assert made.memory.bytes.tolist() == [100, 8, -20]
    assert made.memory.device_id.tolist() == [0, -1, 0]
    assert made.memory.lane.tolist() == [0, 0, 0]
    assert made.memory.ordinal.tolist() == [2, 3, 1]
    counters = {c.name: (c.unit, c.times.tolist(), c.values.tolist()) for c in made.counters}
    assert counters == {
        "CPU allocated": ("bytes", [3000], [8]),
        "GPU 0 allocated": ("bytes", [2000, 5000], [100, 80]),
        "GPU 0 reserved": ("bytes", [2000, 5000], [200, 200]),
    }
    assert [lane.label for lane in made.lanes if lane.kind == "counter"] == list(counters)


def test_memory_without_totals_is_summed_up() -> None:
    old = [memory(at, size, 0, device=0) for at, size in ((1, 10), (2, 5), (3, -10))]
    for entry in old:
        for key in ("Total Allocated", "Total Reserved"):
            del entry["args"][key]
    made = trace(*old)
    assert [(c.name, c.values.tolist()) for c in made.counters] == [("GPU 0 allocated since start", [10, 15, 5])]


def test_counters_by_process_name_id_and_series() -> None:
    made = trace(
        counter("queue", 2, waiting=3, running=1),
        counter("queue", 1, waiting=2, running=0),
        {**counter("queue", 1, waiting=9), "id": "x"},
        {**counter("queue", 1, waiting=7), "pid": 2},
    )
    counters = [(made.lanes[c.lane].pid, c.name, c.times.tolist(), c.values.tolist()) for c in made.counters]
    assert counters == [
        ("100", "queue waiting", [0, 1000], [2, 3]),
        ("100", "queue running", [0, 1000], [0, 1]),
        ("100", "queue [x] waiting", [0], [9]),
        ("2", "queue waiting", [0], [7]),
    ]


def test_steps_by_start_and_each_once() -> None:
    made = trace(step(3, 200, 100), step(2, 0, 100), step(2, 10, 50, thread=7), cpu("op", 5, 1))
    assert [(step.name, step.number, step.start, step.duration) for step in made.steps] == [
        ("ProfilerStep#2", 2, 0, 100_000),
        ("ProfilerStep#3", 3, 200_000, 100_000),
    ]
    assert made.event(made.steps[1].event).name == "ProfilerStep#3"


def test_kinds() -> None:
    made = trace(
        python("frame", 0, 100),
        annotation("mine", 1, 98),
        step(1, 2, 96),
        event("aten::mm", 3, 90, "Operator"),
        event("cudaLaunchKernel", 4, 1, "Runtime"),
        event("xpuLaunch", 6, 1, "xpu_driver"),
        event("something", 8, 1, "v8"),
        kernel("sgemm", 20, 1),
        kernel("ncclDevKernel_AllReduce", 22, 1),
    )
    kinds = [Kind.PYTHON, Kind.ANNOTATION, Kind.STEP, Kind.OP, Kind.RUNTIME, Kind.RUNTIME, Kind.OTHER]
    assert made.kind.tolist() == [*kinds, Kind.KERNEL, Kind.COLLECTIVE]


def test_the_recorders_frames_are_not_among_the_programs() -> None:
    made = trace(
        python("/repo/profiler_runs/harness.py(55): <module>", 0, 100),
        python("train.py(9): main", 1, 98),
        python("/repo/profiler_runs/stepping.py(153): stepped", 2, 90),
        python("/repo/profiler_runs/recording.py(112): step", 3, 85),
        python("/repo/torchprof_runs/workloads/gpt.py(3): step", 4, 80),
    )
    rows = {made.names[made.name[k]]: (made.lanes[made.lane[k]].tid, int(made.row[k])) for k in range(len(made))}
    program = [place for name, place in rows.items() if "train.py" in name or "workloads" in name]
    assert [row for _, row in program] == [0, 1]
    assert {rows[name][0] for name in rows if "train.py" not in name and "workloads" not in name} == {SPANS}
    assert SPANS not in {tid for tid, _ in program}


def test_sparse_args_follow_their_events() -> None:
    made = trace(
        kernel("late", 50, 1, grid=[4, 2, 1], block=[128, 1, 1]),
        kernel("early", 10, 1, grid=[8, 1, 1]),
        cpu("op", 0, 100, **{"External id": 7, "Sequence number": 3}),
    )
    grid = made.args["grid"]
    assert names(made) == ["op", "early", "late"]
    assert grid.events.tolist() == [1, 2]
    assert [row.tolist() for row in grid.values] == [[8, 1, 1], [4, 2, 1]]
    block = made.args["block"]
    assert (block.get(1), block.get(2).tolist()) == (None, [128, 1, 1])
    assert made.args["external_id"].get(0) == 7


def test_the_ends_of_pairs_are_kept_for_their_args() -> None:
    made = trace(begin("a", 0), cpu("op", 1, 1), end("a", 5), format="chrome")
    assert names(made) == ["a", "op"]
    assert made.args["end_ordinal"].get(0) == 2


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ({"distributedInfo": {"rank": 3, "world_size": 8}}, (3, 8)),
        ({"distributedInfo": {"rank": "3"}}, (3, None)),
        ({"distributedInfo": []}, (None, None)),
        ({}, (None, None)),
    ],
)
def test_rank_and_world_size(header: dict[str, Any], expected: tuple[int | None, int | None]) -> None:
    made = trace(cpu("op", 0, 1), header=header)
    assert (made.rank, made.world_size) == expected


def test_an_empty_trace() -> None:
    made = trace()
    assert (len(made), made.lanes, made.span, made.total_rows) == (0, [], (0, 0), 0)
    assert balanced(made)


def test_the_raw_columns_are_freed() -> None:
    raw = decoded([cpu("op", 0, 1)])
    made = build_trace(raw, "literal")
    assert len(raw.events) == 0
    assert len(made) == made.counts.events == 1


def test_a_file_without_categories_may_hold_nothing_but_gpu_work() -> None:
    kernels = ["void at::native::vectorized_elementwise_kernel<4, F>(int)", "ampere_sgemm_128x64_tn", "_Z1fv"]
    copies = ["[CUDA memcpy HtoD]", "Memcpy DtoH (Device -> Pageable)", "Memset (Device)"]

    def kinds(*names: str) -> list[Kind]:
        entries = [
            {"ph": "X", "name": name, "pid": 0, "tid": 7, "ts": 10 * k, "dur": 8} for k, name in enumerate(names)
        ]
        return [Kind(kind) for kind in trace(*entries).kind]

    assert kinds(*kernels, *copies) == [Kind.KERNEL] * 3 + [Kind.COPY] * 2 + [Kind.MEMSET]
    assert kinds(*kernels, "main (train.py:3)") == [Kind.OTHER] * 4
