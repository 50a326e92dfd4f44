"""The tables by step and by kind of step of a serving engine."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers.serving_traces import serving_trace
from tests.helpers.trace_builder import cpu, step, trace
from torchprof_tui.analysis.table.event_scope import NotRecordedError
from torchprof_tui.analysis.table.export import to_records
from torchprof_tui.analysis.table.groups import Profile
from torchprof_tui.analysis.table.profiler_table import GroupBy
from torchprof_tui.analysis.table.table_sheet import build_calls_sheet, find_step


def test_each_kind_has_a_row_with_its_summary_and_its_calls() -> None:
    sheet = build_calls_sheet(Profile(serving_trace(2)), GroupBy.STEP_KIND, None, False)
    rows = {record["name"]: record for record in to_records(sheet, range(len(sheet)))}
    assert set(rows) == {"prefill", "decode", "mixed"}
    decode = rows["decode"]
    assert (decode["steps"], decode["batch"], decode["tokens"]) == (6, 2, 12)
    assert decode["step_p50_us"] == decode["step_p95_us"] == 40
    assert decode["token_p50_us"] == 20
    assert decode["tokens_per_second"] == pytest.approx(50_000)
    assert decode["graph_share"] == 0.8
    assert decode["self_gpu_us"] == 6 * 25
    assert rows["prefill"]["self_gpu_us"] == 2 * 10
    assert "decode: 6 of 30 kernels not in graphs: launched before or after the graph" in "\n".join(sheet.totals)


def test_a_step_alone_has_its_kind_alone() -> None:
    profile = Profile(serving_trace(2))
    sheet = build_calls_sheet(profile, GroupBy.STEP_KIND, find_step(profile.trace, 1), False)
    (row,) = to_records(sheet, range(len(sheet)))
    assert (row["name"], row["steps"], row["tokens"]) == ("decode", 1, 2)


def test_steps_of_the_same_name_are_told_apart_by_their_number() -> None:
    sheet = build_calls_sheet(Profile(serving_trace(2)), GroupBy.STEP, None, False)
    rows = to_records(sheet, range(len(sheet)))
    assert [row["number"] for row in rows] == list(range(10))
    assert [row["kind"] for row in rows] == ["prefill", "decode", "decode", "decode", "mixed"] * 2
    assert [row["tokens"] for row in rows[:5]] == [512, 2, 2, 2, 100]
    assert [row["kv_length"] for row in rows] == [None] * 10
    assert [row["step_us"] for row in rows[:5]] == pytest.approx([91, 40, 40, 40, 100])


def test_profiler_steps_have_no_such_columns_and_no_kinds() -> None:
    profile = Profile(trace(step(1, 0, 10), cpu("aten::mm", 1, 5)))
    sheet = build_calls_sheet(profile, GroupBy.STEP, None, False)
    assert "kind" not in sheet.columns
    with pytest.raises(NotRecordedError, match="no steps of a serving engine were recorded; vLLM names its steps"):
        build_calls_sheet(profile, GroupBy.STEP_KIND, None, False)


def test_the_rows_of_kinds_sum_to_the_totals() -> None:
    sheet = build_calls_sheet(Profile(serving_trace(3)), GroupBy.STEP_KIND, None, False)
    assert np.asarray(sheet.columns["self_gpu"]).sum() == sheet.sums.self_gpu  # type: ignore[union-attr]
