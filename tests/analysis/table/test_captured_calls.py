"""Test the GPU time of replays in the calls around their launch, against sums made from the JSON itself."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.literal_text import readable_trace
from tests.helpers.long_run import keep_some
from tests.helpers.paths import SHARED_TRACES
from tests.helpers.trace_builder import Entry, annotation, cpu, kernel, runtime, step, trace
from torchprof_tui.analysis.graphs.captured_ops import build_captured_ops
from torchprof_tui.analysis.table.captured_calls import add_captured_calls
from torchprof_tui.analysis.table.counted_calls import Calls, build_calls
from torchprof_tui.analysis.table.groups import Profile
from torchprof_tui.trace.loading.load_in_process import load_trace

NEW = {"baseTimeNanoseconds": 1}
CAPTURE = [
    runtime("cudaStreamBeginCapture", 0, 1, 500),
    cpu("aten::mm", 10, 10),
    runtime("cudaLaunchKernel", 12, 2, 501, kernel="gemm"),
    cpu("aten::relu", 30, 10),
    runtime("cudaLaunchKernel", 32, 2, 502, kernel="relu"),
    runtime("cudaStreamEndCapture", 50, 1, 503),
]


def replay(start: float, corr: int, *more: str, thread: int = 100, number: int = 0) -> list[Entry]:
    """A launch of 5 µs and its kernels of 10 µs; `number`: their External id."""
    args: dict[str, Any] = {"External id": number} if number else {}
    work = [kernel(name, start + 10 + 10 * k, 10, corr, **args) for k, name in enumerate(("gemm", "relu", *more))]
    return [runtime("cudaGraphLaunch", start, 5, corr, thread, **args), *work]


def rows(*entries: Entry) -> dict[str, tuple[int, int, int]]:
    """Name -> self CPU, self GPU, GPU in µs, summed over the CPU's calls of a trace with its capture."""
    made = trace(*entries, header=NEW)
    calls = add_captured_calls(made, build_calls(made), build_captured_ops(made, [readable_trace(*CAPTURE)]))
    sums: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(3, np.int64))
    for k in np.flatnonzero(~calls.on_gpu).tolist():
        times = (calls.self_cpu[k], calls.self_gpu[k], calls.gpu[k])
        sums[calls.names[calls.name[k]]] += np.array(times, np.int64) // 1000
    return {name: (int(times[0]), int(times[1]), int(times[2])) for name, times in sums.items()}


def test_all_calls_around_a_launch_have_the_time_of_its_replay() -> None:
    found = rows(annotation("outer", 0, 100), annotation("inner", 10, 50), *replay(20, 1), *replay(200, 2))
    assert found == {
        "outer": (50, 0, 20),
        "inner": (45, 0, 20),
        "cudaGraphLaunch": (10, 0, 40),
        "aten::mm (captured)": (0, 20, 20),
        "aten::relu (captured)": (0, 20, 20),
    }


def test_replayed_work_with_the_id_of_an_op_counts_once() -> None:
    op = cpu("compiled_graph", 10, 80, **{"External id": 7})
    found = rows(
        annotation("outer", 0, 100), op, *replay(20, 1, number=7), kernel("own", 95, 3, 9, **{"External id": 7})
    )
    assert found["compiled_graph"] == (75, 3, 23)
    assert found["outer"] == (20, 0, 23)
    assert found["cudaGraphLaunch"] == (5, 0, 20)


def test_replayed_work_without_an_op_is_the_launchs_own() -> None:
    found = rows(annotation("outer", 0, 100), *replay(20, 1, "not captured"))
    assert found["cudaGraphLaunch"] == (5, 10, 30)
    assert found["outer"] == (95, 0, 30)


def test_a_launch_on_a_worker_thread_counts_for_the_calls_there() -> None:
    worker = annotation("forward", 10, 50, thread=200)
    found = rows(step(1, 0, 100), worker, *replay(20, 1, thread=200))
    assert found["forward"] == (45, 0, 20)
    assert found["ProfilerStep*"] == (100, 0, 0)


def test_without_a_capture_nothing_changes() -> None:
    made = trace(annotation("outer", 0, 100), *replay(20, 1), header=NEW)
    calls = build_calls(made)
    assert add_captured_calls(made, calls, build_captured_ops(made, [])) is calls


GRAPHS = SHARED_TRACES / "graphs"
VLLM = GRAPHS / "vllm_decode_full/graph_execution.json.gz"
SGLANG = GRAPHS / "sglang_decode/sglang_Qwen3-8B_decode.json.gz"


def sum_below(path: Path) -> dict[str, float]:
    """Sum the GPU work below each annotation and each launch of a graph, µs, from the JSON alone.

    Replayed work belongs to its launch, other work to the operator that has its External id, as torch has it.
    """
    with gzip.open(path, "rt") as file:
        events = [event for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]
    by_correlation = {e["args"]["correlation"]: e for e in events if e.get("cat") == "cuda_runtime"}
    by_id = {e["args"]["External id"]: e for e in events if e.get("cat") == "cpu_op" and "External id" in e["args"]}
    work = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    sums: dict[str, float] = defaultdict(float)
    for call in events:
        if call.get("cat") != "user_annotation" and "GraphLaunch" not in call["name"]:
            continue
        for event in work:
            launch = by_correlation.get(event["args"].get("correlation"))
            if launch is None or "GraphLaunch" not in launch["name"]:
                launch = by_id.get(event["args"].get("External id"))
            if (
                launch is not None
                and (launch["pid"], launch["tid"]) == (call["pid"], call["tid"])
                and call["ts"] <= launch["ts"] < call["ts"] + call["dur"]
            ):
                sums[call["name"]] += event["dur"]
    return sums


@pytest.mark.skipif(not VLLM.exists(), reason="needs the shared traces")
@pytest.mark.parametrize(("path", "replayed"), keep_some([(VLLM, 10.38e3), (SGLANG, 9.66e3)], 1))
def test_annotations_of_real_traces_have_the_work_of_their_replays(path: Path, replayed: float) -> None:
    calls: Calls = Profile(load_trace(str(path))).calls
    expected = sum_below(path)
    found: dict[str, float] = defaultdict(float)
    for k in np.flatnonzero(~calls.on_gpu).tolist():
        if (name := calls.names[calls.name[k]]) in expected:
            found[name] += int(calls.gpu[k]) / 1e3
    assert found == {name: pytest.approx(time, abs=0.5) for name, time in expected.items()}
    assert expected["hipGraphLaunch"] == pytest.approx(replayed, abs=10)
    assert len(expected) >= 2
