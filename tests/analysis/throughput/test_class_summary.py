"""Test the sums of GPU time by class of work."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.paths import SHARED_TRACES
from tests.helpers.pattern_traces import ADD, DTOD, GEMM, H200, NCCL, SGEMM, SOFTMAX, healthy, op_with_work
from tests.helpers.shape_traces import load_entries, op_with_shapes
from tests.helpers.trace_builder import trace
from torchprof_tui.analysis.patterns.engine.check_scope import Scope
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.throughput.roofline import GpuClassSummary, Limit
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.trace import Trace

F, H, BIG = "float", "c10::BFloat16", [8192, 8192]


def test_classes_with_rates_and_shares_most_time_first(tmp_path: Path) -> None:
    entries = [
        *op_with_shapes("aten::mm", [BIG, BIG], [H, H], 0, 20, 1500, GEMM),
        *op_with_shapes("aten::add", [BIG, BIG, []], [F, F, "Scalar"], 20, 1600, 200, ADD),
        *op_with_work("aten::copy_", 40, 2000, 100, DTOD, bytes=1_000_000),
        *op_with_work("nccl:all_reduce", 60, 2200, 180, NCCL),
    ]
    classes = _classes(load_entries(tmp_path, entries))
    assert [(summary.describe(), summary.limit) for summary in classes] == [
        ("76 % bf16 GEMMs at 74 % of the peak rate", Limit.COMPUTE),
        ("10 % elementwise and copies at 84 % of memory bandwidth", Limit.MEMORY),
        ("9 % collectives", Limit.UNKNOWN),
        ("5 % copies and fills by the driver at 10 GB/s", Limit.UNKNOWN),
    ]
    assert classes[0].achieved_text == "733 TFLOP/s"
    assert [summary.time for summary in classes] == [1_500_000, 200_000, 180_000, 100_000]


def test_products_without_tensor_cores_are_a_class() -> None:
    classes = _classes(trace(*op_with_work("aten::mm", 0, 20, 300, SGEMM), header={"deviceProperties": [H200]}))
    assert [summary.describe() for summary in classes] == ["100 % fp32 GEMMs without tensor cores"]


def test_a_rate_known_for_less_than_half_of_the_time_is_not_stated(tmp_path: Path) -> None:
    entries = [
        *op_with_shapes("aten::add", [BIG, BIG, []], [F, F, "Scalar"], 0, 20, 200, ADD),
        *op_with_work("aten::add", 30, 300, 400, ADD),
    ]
    (summary,) = _classes(load_entries(tmp_path, entries))
    assert summary.achieved_text == "4,027 GB/s"
    assert summary.peak_share == pytest.approx(0.839, abs=1e-3)
    entries += op_with_work("aten::cumsum", 60, 800, 900, ADD)
    (summary,) = _classes(load_entries(tmp_path, entries))
    assert (summary.achieved_text, summary.peak_share) == ("", None)


def test_small_tensors_say_that_they_fit_into_the_cache(tmp_path: Path) -> None:
    entries = op_with_shapes("aten::add", [[1024, 1024]] * 2, [F, F], 0, 20, 10, ADD)
    (summary,) = _classes(load_entries(tmp_path, entries))
    assert summary.describe() == ("100 % elementwise and copies at 1,258 GB/s, from tensors that fit into the cache")


def test_a_scope_counts_its_own_time_only() -> None:
    checker = Checker(trace(*healthy()))
    summaries = checker.view(Scope(0, 320_000, "range")).gpu_classes
    assert [(summary.name, summary.time) for summary in summaries] == [("bf16 GEMMs", 299_500)]
    assert sum(summary.share for summary in checker.view(checker.default_scope).gpu_classes) == pytest.approx(1)


def test_softmax_and_norms_are_one_class() -> None:
    assert [summary.name for summary in _classes(trace(*op_with_work("aten::_softmax", 0, 9, 9, SOFTMAX)))] == [
        "norms and softmax"
    ]


def test_attention_by_single_kernels_on_an_h200() -> None:
    """Recomputed from the JSON: 9.7 of 19.3 ms are elementwise kernels and copies, 6.3 ms fp32 products."""
    path = SHARED_TRACES / "attention_math.pt.trace.json.gz"
    if not path.exists():
        pytest.skip("the shared traces are not available")
    summaries = _classes(load_trace(str(path), cache=False))
    assert [summary.describe() for summary in summaries[:3]] == [
        "50 % elementwise and copies at 66 % of memory bandwidth",
        "33 % fp32 GEMMs without tensor cores at 56 % of the peak rate",
        "14 % norms and softmax at 67 % of memory bandwidth",
    ]


def _classes(loaded: Trace) -> list[GpuClassSummary]:
    checker = Checker(loaded)
    return checker.view(checker.default_scope).gpu_classes


@pytest.mark.parametrize(
    ("name", "rate", "text"),
    [
        ("fp32 GEMMs", "1,007 GB/s", "61 % fp32 GEMMs"),  # bytes say nothing of a product whose peak is not known
        ("fp32 GEMMs", "12.3 TFLOP/s", "61 % fp32 GEMMs at 12.3 TFLOP/s"),
        ("elementwise and copies", "1,007 GB/s", "61 % elementwise and copies at 1,007 GB/s"),
    ],
)
def test_a_rate_without_a_peak_is_of_what_limits_the_class(name: str, rate: str, text: str) -> None:
    assert GpuClassSummary(name, 610, 0.61, Limit.MEMORY, rate, None, False).describe() == text
