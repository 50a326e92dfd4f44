"""Test tables by shape, stack, module, class and step, and tables restricted to a range, a lane, a step."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.profiler_rows import list_rows
from tests.helpers.trace_builder import (
    annotation,
    cpu,
    flow,
    gpu_annotation,
    kernel,
    python,
    runtime,
    step,
    trace,
)
from torchprof_samples import find
from torchprof_tui.analysis.search.name_search import BadPattern
from torchprof_tui.analysis.table.event_scope import NotRecordedError, lane_mask, range_mask, step_mask
from torchprof_tui.analysis.table.groups import Profile
from torchprof_tui.analysis.table.profiler_table import GroupBy, ProfilerTable
from torchprof_tui.analysis.table.table_sheet import build_table_sheet
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.trace import Trace

NEW = {"baseTimeNanoseconds": 1}


def write_and_load(folder: Path, *entries: Any) -> Trace:
    """Write the entries to a file and load it, so that args can be read."""
    path = folder / "trace.json"
    path.write_text(json.dumps({**NEW, "traceEvents": list(entries)}))
    return load_trace(str(path), cache=False)


def call_counts(table: ProfilerTable) -> dict[tuple[str, str], int]:
    """(name, detail) -> number of calls."""
    return {(table.names[k], table.details[k]): int(table.calls[k]) for k in range(len(table))}


def test_shapes_keep_names_apart(tmp_path: Path) -> None:
    small, large = {"Input Dims": [[2, 3], [3, 4]]}, {"Input Dims": [[8, 8], []]}
    ops = [
        cpu("aten::mm", 0, 5, **{"External id": 1}, **small),
        cpu("aten::mm", 10, 5, **{"External id": 2}, **large),
        cpu("aten::mm", 20, 7, **{"External id": 3}, **small),
        cpu("aten::add", 30, 1, **{"External id": 4}),
    ]
    table = Profile(write_and_load(tmp_path, *ops)).build_table(GroupBy.SHAPE)
    assert call_counts(table) == {
        ("aten::mm", "[[2, 3], [3, 4]]"): 2,
        ("aten::mm", "[[8, 8], []]"): 1,
        ("aten::add", ""): 1,
    }
    assert table.cpu.tolist() == [12_000, 5_000, 1_000]


def test_shapes_of_a_sample_are_the_files() -> None:
    sample = find("train_gpt_stack_memory").path
    profile = Profile(load_trace(str(sample), cache=False))
    table = profile.build_table(GroupBy.SHAPE)
    plain = profile.build_table()
    sums: dict[tuple[str, bool, bool], list[int]] = defaultdict(lambda: [0, 0, 0])
    for k in range(len(table)):
        row_sums = sums[table.names[k], bool(table.on_gpu[k]), bool(table.annotation[k])]
        for index, column in enumerate((table.calls, table.self_cpu, table.gpu)):
            row_sums[index] += int(column[k])
    assert dict(sums) == {
        (plain.names[k], bool(plain.on_gpu[k]), bool(plain.annotation[k])): [
            int(plain.calls[k]),
            int(plain.self_cpu[k]),
            int(plain.gpu[k]),
        ]
        for k in range(len(plain))
    }
    event = int(profile.calls.event[table.members_of(table.names.index("aten::mm"))[0]])
    entry = profile.trace.event(event).read_args()
    assert table.details[table.names.index("aten::mm")] == str(entry["Input Dims"])


STACKED = (
    python("train.py(3): main", 0, 100),
    python("nn.Module: Net_0", 10, 60),
    python("net.py(9): forward", 11, 58),
    python("nn.Module: Linear_1", 20, 30),
    cpu("aten::addmm", 25, 10, **{"External id": 1}),
    runtime("cudaLaunchKernel", 26, 2, corr=5, **{"External id": 1}),
    kernel("gemm", 90, 8, corr=5, **{"External id": 1}),
    cpu("aten::relu", 60, 5, **{"External id": 2}),
    cpu("aten::sum", 80, 4, **{"External id": 3}),
    flow("s", "fwdbwd", 1, 25),
    flow("f", "fwdbwd", 1, 121, thread=101),
    cpu("autograd::engine::evaluate_function: AddmmBackward0", 120, 20, thread=101, **{"External id": 4}),
    cpu("AddmmBackward0", 121, 15, thread=101, **{"External id": 5}),
    cpu("aten::mm", 122, 9, thread=101, **{"External id": 6}),
)


def test_stacks_follow_launches_and_backward() -> None:
    table = Profile(trace(*STACKED, header=NEW)).build_table(GroupBy.STACK)
    inner = "nn.Module: Linear_1\nnet.py(9): forward\nnn.Module: Net_0\ntrain.py(3): main"
    counts = call_counts(table)
    assert counts["aten::addmm", inner] == 1
    assert counts["gemm", inner] == 1
    assert counts["aten::relu", "net.py(9): forward\nnn.Module: Net_0\ntrain.py(3): main"] == 1
    assert counts["aten::sum", "train.py(3): main"] == 1
    assert counts["aten::mm", inner] == 1
    assert counts["autograd::engine::evaluate_function: AddmmBackward0", inner] == 1


def test_modules_sum_what_they_call_themselves() -> None:
    table = Profile(trace(*STACKED, header=NEW)).build_table(GroupBy.MODULE)
    rows = {row.name: row for row in list_rows(table)}
    assert set(rows) == {"Net_0/Linear_1", "Net_0", "(no module)"}
    linear = rows["Net_0/Linear_1"]
    assert linear.calls == 5  # addmm, its launch, the engine's call, AddmmBackward0, mm
    assert linear.cpu == 30_000  # 10 forward, 20 backward; calls inside these are not counted again
    assert linear.self_cpu == 30_000
    assert (linear.self_gpu, linear.gpu, table.self_gpu_total) == (8_000, 8_000, 8_000)
    assert rows["Net_0"].cpu == 5_000
    assert rows["(no module)"].cpu == 4_000


def test_classes_hold_gpu_work_alone() -> None:
    class_trace = trace(
        cpu("aten::mm", 0, 5),
        kernel("ampere_sgemm_128x64_tn", 10, 6),
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 20, 2),
        gpu_annotation("forward", 10, 20),
    )
    table = Profile(class_trace).build_table(GroupBy.CLASS)
    assert [(name, int(n), int(t)) for name, n, t in zip(table.names, table.calls, table.gpu, strict=True)] == [
        ("gemm", 1, 6_000),
        ("collective", 1, 2_000),
    ]
    assert table.self_gpu_total == 8_000


STEPS = (
    step(4, 0, 50),
    annotation("fwd", 10, 30, **{"External id": 9}),
    runtime("cudaLaunchKernel", 20, 5, corr=1),
    kernel("late", 70, 10, corr=1),
    gpu_annotation("fwd", 69.999, 10.002, **{"External id": 9}),
    step(5, 60, 40),
    cpu("aten::add", 65, 3),
    cpu("aten::mul", 120, 2),
)


def test_a_step_has_the_work_that_it_launched() -> None:
    profile = Profile(trace(*STEPS, header=NEW))
    four, five = profile.trace.steps
    names = [set(profile.build_table(event_mask=step_mask(profile.trace, step_)).names) for step_ in (four, five)]
    assert names == [{"ProfilerStep*", "fwd", "cudaLaunchKernel", "late"}, {"ProfilerStep*", "aten::add"}]
    table = profile.build_table(GroupBy.STEP)
    rows = [(table.names[k], int(table.calls[k]), int(table.cpu[k]), int(table.gpu[k])) for k in range(len(table))]
    assert rows == [
        ("ProfilerStep#4", 3, 50_000, 10_000),
        ("ProfilerStep#5", 2, 40_000, 0),
        ("(outside of all steps)", 1, 2_000, 0),
    ]


def test_adjacent_ranges_add_up_to_the_whole() -> None:
    profile = Profile(load_trace(str(find("multi_stream_overlap").path), cache=False))
    first, last = 0, int(profile.trace.end.max()) + 1
    whole = profile.build_table()
    parts = [
        profile.build_table(event_mask=range_mask(profile.trace, a, b))
        for a, b in ((first, last // 3), (last // 3, last))
    ]
    for column in ("calls", "self_cpu", "cpu", "self_gpu", "gpu"):
        assert sum(int(getattr(part, column).sum()) for part in parts) == int(getattr(whole, column).sum())
    assert min(len(part) for part in parts) > 3
    lanes = [profile.build_table(event_mask=lane_mask(profile.trace, k)) for k in range(len(profile.trace.lanes))]
    assert sum(int(part.calls.sum()) for part in lanes) == int(whole.calls.sum())


@pytest.mark.parametrize("by", [GroupBy.SHAPE, GroupBy.STACK, GroupBy.MODULE, GroupBy.STEP])
def test_missing_recordings_raise(by: GroupBy, tmp_path: Path) -> None:
    profile = Profile(write_and_load(tmp_path, cpu("aten::mm", 0, 5)))
    with pytest.raises(NotRecordedError, match=r"record|step"):
        profile.build_table(by)


def test_sorting_and_filtering() -> None:
    profile = Profile(trace(cpu("b", 0, 5), cpu("A", 10, 9), cpu("c", 20, 5), cpu("c", 30, 1)))
    table = build_table_sheet(profile.build_table(), profile.calls)
    assert table.columns["name"] == ["b", "A", "c"]

    def sorted_by(key: str, descending: bool | None = None) -> list[str]:
        return [str(table.columns["name"][k]) for k in table.sort_rows(key, descending).tolist()]

    assert sorted_by("cpu") == ["A", "c", "b"]
    assert sorted_by("cpu", descending=False) == ["b", "c", "A"]
    assert sorted_by("cpu_avg") == ["A", "b", "c"]
    assert sorted_by("name") == ["A", "b", "c"]
    assert sorted_by("self_cpu_share") == ["A", "c", "b"]
    for field in table.fields:
        assert sorted(table.sort_rows(field.key).tolist()) == [0, 1, 2]
    assert (table.columns["cpu_share"][1], table.columns["cpu_avg"][1]) == (0.45, 9_000)

    matches = table.filter_rows("/^[a-b]$/")
    assert not isinstance(matches, BadPattern)
    assert matches.tolist() == [True, True, False]
    assert np.asarray(table.filter_rows("")).all()
    assert isinstance(table.filter_rows("/(/"), BadPattern)
