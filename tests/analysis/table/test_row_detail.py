"""Test the detail of a row (instances, callers, callees, kernels), and finding the row of an event."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers.trace_builder import cpu, kernel, runtime, step, trace
from torchprof_samples import find
from torchprof_tui.analysis.table.event_scope import range_mask
from torchprof_tui.analysis.table.groups import Profile
from torchprof_tui.analysis.table.profiler_table import GroupBy
from torchprof_tui.analysis.table.row_detail import RelatedName, build_row_detail, find_row_of_event
from torchprof_tui.trace.loading.load_in_process import load_trace

NEW = {"baseTimeNanoseconds": 1}

GEMM_TRACE = trace(
    step(1, 0, 100),
    cpu("aten::linear", 10, 40, **{"External id": 1}),
    cpu("aten::addmm", 12, 30, **{"External id": 2}),
    runtime("cudaLaunchKernel", 20, 4, corr=1, **{"External id": 2}),
    kernel("gemm", 110, 9, corr=1, **{"External id": 2}),
    kernel("split", 120, 1, corr=1, **{"External id": 2}),
    cpu("aten::addmm", 60, 10, **{"External id": 3}),
    runtime("cudaLaunchKernel", 62, 4, corr=2, **{"External id": 3}),
    kernel("gemm", 130, 30, corr=2, **{"External id": 3}),
    kernel("lost", 200, 5),
    header=NEW,
)


def test_a_row_of_operators() -> None:
    profile = Profile(GEMM_TRACE)
    table = profile.build_table()
    detail = build_row_detail(GEMM_TRACE, profile.calls, table, table.names.index("aten::addmm"))
    assert detail.duration.tolist() == [30_000, 10_000]
    assert detail.start.tolist() == [12_000, 60_000]
    assert [GEMM_TRACE.names[GEMM_TRACE.name[event]] for event in detail.events.tolist()] == ["aten::addmm"] * 2
    assert detail.spread is not None
    assert (detail.spread.median, detail.spread.longest, detail.spread.count) == (20_000, 30_000, 2)
    assert detail.callers == [
        RelatedName("aten::linear", 1, 30_000, 0.75),
        RelatedName("ProfilerStep*", 1, 10_000, 0.25),
    ]
    assert detail.callees == [RelatedName("cudaLaunchKernel", 2, 8_000, 0.2)]
    assert detail.kernels == [RelatedName("gemm", 2, 39_000, 0.975), RelatedName("split", 1, 1_000, 0.025)]


def test_a_row_of_kernels_names_the_operators_that_launched_them() -> None:
    profile = Profile(GEMM_TRACE)
    table = profile.build_table()
    gemm = build_row_detail(GEMM_TRACE, profile.calls, table, table.names.index("gemm"))
    assert gemm.callers == [RelatedName("aten::addmm", 2, 39_000, 1.0)]
    assert gemm.callees == []
    assert gemm.kernels == [RelatedName("gemm", 2, 39_000, 1.0)]
    lost = build_row_detail(GEMM_TRACE, profile.calls, table, table.names.index("lost"))
    assert [caller.name for caller in lost.callers] == ["(no launch recorded)"]
    top = build_row_detail(GEMM_TRACE, profile.calls, table, table.names.index("ProfilerStep*"))
    assert [caller.name for caller in top.callers] == ["(top level)"]
    assert sum(kernel.time for kernel in top.kernels) == 40_000
    with pytest.raises(IndexError):
        build_row_detail(GEMM_TRACE, profile.calls, table, len(table))


def test_callers_and_callees_of_every_row_add_up() -> None:
    sample = load_trace(str(find("train_gpt_stack_memory").path), cache=False)
    profile = Profile(sample)
    for by in (GroupBy.NAME, GroupBy.CLASS, GroupBy.STEP):
        table = profile.build_table(by)
        for row in range(0, len(table), 1 if by is not GroupBy.NAME else 9):
            detail = build_row_detail(sample, profile.calls, table, row)
            assert sum(related.time for related in detail.callers) == int(detail.duration.sum())
            assert sum(related.calls for related in detail.callers) == len(detail.events)
            assert (np.diff(detail.start) >= 0).all()
            if by is GroupBy.NAME and not table.on_gpu[row]:
                assert int(table.cpu[row]) - sum(related.time for related in detail.callees) == int(table.self_cpu[row])


def test_from_an_event_to_its_row() -> None:
    folded = trace(cpu("aten::mm", 0, 10), cpu("aten::mm", 1, 8), cpu("aten::add", 20, 5), header=NEW)
    profile = Profile(folded)
    table = profile.build_table()
    rows = [find_row_of_event(folded, profile.calls, table, event) for event in range(3)]
    assert [table.names[row] for row in rows] == ["aten::mm", "aten::mm", "aten::add"]
    early = profile.build_table(event_mask=range_mask(folded, 0, 15_000))
    assert find_row_of_event(folded, profile.calls, early, 2) == -1
