"""The tables of GPU work, against what Holistic Trace Analysis 0.5.0 says of the same sample, and against counting.

HTA rounds times down to whole µs, which halves short kernels: its numbers are of the trace with all times a thousand
times as long. It leaves out work whose launch was not recorded: rank 0 has 38 such events, rank 1 none.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import torchprof_tui as tt
from tests.helpers.trace_builder import cpu, kernel, runtime

HTA_RANK_1 = {"idle_us": 23574.520, "compute_us": 1000.300, "non_compute_us": 168.256, "kernel_us": 24743.076}
HTA_OVERLAP_OF_RANK_0_US = 842.755
HTA_LAUNCHES = {  # count, then mean µs of the call, of the work, of the delay; only launches that HTA knows by name
    0: (272, 7.5098529, 3.8094154, 1451.6267978),
    1: (272, 8.5597647, 2.8877022, 1.8206103),
}
HTA_LAUNCH_NAMES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync", "cudaMemsetAsync")


@pytest.fixture(scope="module")
def trace() -> tt.Trace:
    return tt.open("sample:train_gpt_2ranks")


def test_the_temporal_breakdown_is_that_of_hta(trace: tt.Trace) -> None:
    zero, one = trace.temporal_breakdown()
    assert {name: one[name] for name in HTA_RANK_1} == pytest.approx(HTA_RANK_1, abs=0.002)
    for row in (zero, one):
        assert row["idle_us"] + row["compute_us"] + row["non_compute_us"] == pytest.approx(row["kernel_us"])
        assert row["idle_share"] + row["compute_share"] + row["non_compute_share"] == pytest.approx(1)


def test_the_overlap_is_that_of_hta(trace: tt.Trace) -> None:
    zero, one = trace.overlap()
    assert zero["overlapped_us"] == pytest.approx(HTA_OVERLAP_OF_RANK_0_US, abs=0.001)
    assert one["share"] == 0
    assert tt.open("sample:train_gpt_eager").overlap()[0]["share"] is None


def test_launches_are_those_of_hta(trace: tt.Trace) -> None:
    rows = list(trace.launch_statistics())
    for number, (count, *means) in HTA_LAUNCHES.items():
        names = trace.select_rank(number).events.name.to_numpy()
        chosen = [row for row in rows if row["rank"] == number and names[row["launch"]] in HTA_LAUNCH_NAMES]
        assert len(chosen) == count
        for key, mean in zip(("cpu_us", "gpu_us", "launch_delay_us"), means, strict=True):
            assert np.mean([row[key] for row in chosen]) == pytest.approx(mean, abs=0.002)


def test_kernels_sum_to_all_gpu_work(trace: tt.Trace) -> None:
    rows = list(trace.kernel_breakdown())
    kinds, durations = trace.events.kind.to_numpy(), trace.events.duration_ns
    for work, names in {
        "computation": ["kernel"], "communication": ["collective"], "memory": ["copy", "memset"],
    }.items():  # fmt: skip
        of_kind = np.isin(kinds, names)
        chosen = [row for row in rows if row["type"] == work]
        assert sum(row["sum_us"] for row in chosen) == pytest.approx(durations[of_kind].sum() / 1000)
        assert sum(row["count"] for row in chosen) == of_kind.sum()
    one = [row["sum_us"] for row in rows if row["rank"] == 1]
    assert one == sorted(one, reverse=True)


def test_a_queue_is_counted(tmp_path: Path) -> None:
    """Three launches before the first kernel starts: 1, 2, 3, then 2, 1, 0."""
    entries = [cpu("aten::mm", 0, 100)]
    for number in range(3):
        entries += [runtime("cudaLaunchKernel", 10 + number * 10, 5, corr=number + 1)]
        entries += [kernel("k", 50 + number * 20, 15, corr=number + 1)]
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": entries}), encoding="utf-8")
    trace = tt.open(path)
    (row,) = trace.queue_length()
    assert (row["count"], row["min"], row["max"], row["mean"]) == (6, 0, 3, 1.5)
    assert [each["launch_delay_us"] for each in trace.launch_statistics()] == [35, 45, 55]
    (part,) = trace.temporal_breakdown()
    assert (part["idle_us"], part["compute_us"], part["kernel_us"]) == (10, 45, 55)


def test_a_queue_never_has_less_than_nothing(trace: tt.Trace) -> None:
    for row in trace.queue_length():
        assert row["min"] >= 0
        assert row["min"] <= row["p25"] <= row["p50"] <= row["p75"] <= row["max"]
    assert [row["max"] for row in trace.queue_length() if row["stream"] == 7] == [37, 1]  # HTA: 37 on rank 0


def test_without_gpu_work_it_is_said() -> None:
    trace = tt.open("sample:train_images_cpu")
    for ask in (trace.temporal_breakdown, trace.kernel_breakdown, trace.queue_length, trace.overlap):
        with pytest.raises(tt.TraceError, match="no GPU work was recorded"):
            ask()


@pytest.mark.long
def test_rows_are_a_frame_and_html(trace: tt.Trace) -> None:
    pytest.importorskip("pandas")
    rows = trace.kernel_breakdown()
    assert len(rows.to_pandas()) == len(rows)
    assert f"20 of {len(rows)} rows" in rows._repr_html_()
