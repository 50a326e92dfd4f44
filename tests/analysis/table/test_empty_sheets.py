"""Reasons why a table has no rows."""

from __future__ import annotations

import pytest

from tests.helpers.trace_builder import cpu, kernel, memcpy, memory, trace
from torchprof_tui.analysis.table.empty_sheets import explain_empty_sheet, list_tables_with_rows

ON_CPU = [cpu("aten::add", 0, 20)]
ON_GPU = [*ON_CPU, kernel("k", 30, 5)]


@pytest.mark.parametrize(
    ("entries", "table", "is_restricted", "reason"),
    [
        (ON_CPU, "kernels", False, "ProfilerActivity.CUDA"),
        (ON_CPU, "collectives", True, "no GPU work was recorded"),
        (ON_CPU, "memory", False, "profile_memory=True"),
        (ON_GPU, "copies", False, "no copies or fills were recorded"),
        (ON_GPU, "collectives", False, "did not communicate"),
        (ON_GPU, "kernels", True, "no kernels in this part of the trace"),
        (ON_GPU, "calls", True, "no calls in this part of the trace"),
        ([], "calls", False, "no calls were recorded"),
    ],
)
def test_the_reason_is_that_of_the_trace(entries: list[object], table: str, is_restricted: bool, reason: str) -> None:
    assert reason in explain_empty_sheet(trace(*entries), table, is_restricted)


def test_tables_with_rows() -> None:
    assert list_tables_with_rows(trace(*ON_CPU)) == []
    assert list_tables_with_rows(trace(*ON_GPU)) == ["kernels"]
    shown = trace(*ON_CPU, memcpy("Memcpy HtoD (Pinned -> Device)", 40, 1), memory(5, 64, 64))
    assert list_tables_with_rows(shown) == ["copies", "memory"]
    assert list_tables_with_rows(trace(kernel("ncclDevKernel_AllReduce(x)", 0, 5))) == ["kernels", "collectives"]
