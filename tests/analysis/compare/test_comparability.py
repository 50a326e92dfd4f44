"""What differs in how two traces were recorded, and what it means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.helpers.pattern_traces import GEMM, op_with_work
from tests.helpers.trace_builder import Entry, cpu, python, runtime, step, trace
from torchprof_tui.analysis.compare.comparability import list_recording_differences
from torchprof_tui.analysis.compare.side_analysis import SideAnalysis
from torchprof_tui.trace.loading.load_in_process import load_opened_trace

H200 = {"id": 0, "name": "NVIDIA H200"}


def side(*more: Entry, steps: int = 3, work: bool = True, **header: Any) -> SideAnalysis:
    entries = list(more)
    for number in range(steps):
        entries.append(step(number, 1000.0 * number, 1000))
        inside = op_with_work("aten::mm", 1000.0 * number + 1, 1000.0 * number + 20, 900, GEMM)
        entries += inside if work else inside[:1]
    return SideAnalysis(trace(*entries, header={"deviceProperties": [H200], **header}), "t")


def found(a: SideAnalysis, b: SideAnalysis) -> dict[str, tuple[str, str, str]]:
    return {each.what: (each.a, each.b, each.consequence) for each in list_recording_differences(a, b)}


def test_equal_recordings_have_no_difference() -> None:
    assert found(side(), side()) == {}


def test_another_gpu_changes_kernel_times() -> None:
    other = side(deviceProperties=[{"id": 0, "name": "AMD Instinct MI300X VF"}])
    assert found(side(), other)["GPU"] == (
        "NVIDIA H200",
        "AMD Instinct MI300X VF",
        "kernel times differ by the hardware",
    )


def test_versions_are_read_as_their_vendors_write_them() -> None:
    a = side(cuda_runtime_version=12040, cuda_driver_version=13000)
    b = side(hip_runtime_version=60443483, hip_driver_version=60443483)
    differences = found(a, b)
    assert differences["GPU runtime"][:2] == ("CUDA 12.4", "ROCm 6.4.43483")
    assert differences["GPU driver"][:2] == ("CUDA 13.0", "ROCm 6.4.43483")


def test_stacks_inflate_the_side_that_has_them() -> None:
    differences = found(side(), side(python("train.py(3): main", 0, 2900)))
    assert differences["Python stacks"][:2] == ("not recorded", "recorded")
    assert "inflate the CPU's time of B" in differences["Python stacks"][2]


def test_options_of_the_header_are_compared() -> None:
    differences = found(side(record_shapes=1, profile_memory=1), side())
    assert differences["shapes"][:2] == ("recorded", "not recorded")
    assert "costs A CPU time" in differences["memory"][2]


def test_gpu_work_of_one_side_only_comes_first() -> None:
    differences = list_recording_differences(side(), side(work=False))
    assert differences[0].what == "GPU work"
    assert "main thread" in differences[0].consequence


def test_ranks_and_steps_are_counted() -> None:
    a = side(distributedInfo={"rank": 0, "world_size": 8})
    b = side(distributedInfo={"rank": 0, "world_size": 4}, steps=2)
    differences = found(a, b)
    assert differences["ranks"][:2] == ("8", "4")
    assert differences["steps compared"][:2] == ("3", "2")
    whole = SideAnalysis(trace(cpu("aten::mm", 0, 10), header={"deviceProperties": [H200]}), "t")
    assert found(whole, side())["steps"][:2] == ("none: one piece", "3")


def warming_up(*durations: float, gpu: str = "NVIDIA H200") -> SideAnalysis:
    """Return the side of a recording with steps of these durations, µs, and a cudaMalloc in the first one."""
    entries: list[Entry] = []
    start = 0.0
    for number, duration in enumerate(durations):
        entries += [step(number, start, duration), *op_with_work("aten::mm", start + 1, start + 20, 5)]
        start += duration
    entries.append(runtime("cudaMalloc", 100, 5, 990))
    return SideAnalysis(trace(*entries, header={"deviceProperties": [{"id": 0, "name": gpu}]}), "t")


def test_a_recording_that_is_not_warmed_up_is_named_first() -> None:
    differences = list_recording_differences(warming_up(900, 910, 905), warming_up(4000, 2000, 1000, 500))
    assert differences[0].what == "recording"
    assert differences[0].a == "no fault found"
    assert "not warmed up" in differences[0].b
    assert "the times of B do not represent the program" in differences[0].consequence


def test_another_gpu_comes_before_a_fault_of_the_recording() -> None:
    b = warming_up(4000, 2000, 1000, 500, gpu="AMD Instinct MI300X VF")
    assert [each.what for each in list_recording_differences(warming_up(900, 910, 905), b)[:2]] == ["GPU", "recording"]
    unknown = warming_up(4000, 2000, 1000, 500, gpu="")
    assert list_recording_differences(warming_up(900, 910, 905), unknown)[0].what == "recording"


def write(path: Path, dims: list[list[int]], kind: str) -> SideAnalysis:
    entries: list[Entry] = []
    for number in range(2):
        start = 1000.0 * number
        entries += [step(number, start, 1000), *op_with_work("aten::mm", start + 1, start + 20, 900, GEMM)]
    for entry in entries:
        if entry["name"] == "aten::mm":
            entry["args"].update({"Input Dims": dims, "Input type": [kind] * len(dims)})
    path.write_text(json.dumps({"schemaVersion": 1, "record_shapes": 1, "traceEvents": entries}))
    return SideAnalysis(load_opened_trace(str(path), lambda _: None, False).trace, "t")


def test_inputs_are_compared_by_order_and_not_by_gpu_time(tmp_path: Path) -> None:
    """Forty calls of two shapes: which of them take longest on the GPU is chance."""

    def build(path: Path, heavy: int) -> SideAnalysis:
        entries: list[Entry] = [step(0, 0, 5000)]
        for call in range(40):
            op = op_with_work("aten::mm", 1 + 100 * call, 20 + 100 * call, 50 if call % 2 == heavy else 20, GEMM)
            op[0]["args"].update({"Input Dims": [[64 + call % 2, 128]], "Input type": ["float"]})
            entries += op
        path.write_text(json.dumps({"schemaVersion": 1, "record_shapes": 1, "traceEvents": entries}))
        return SideAnalysis(load_opened_trace(str(path), lambda _: None, False).trace, "t")

    assert found(build(tmp_path / "a.json", 0), build(tmp_path / "b.json", 1)) == {}


def test_shapes_and_dtypes_of_the_same_op_are_compared(tmp_path: Path) -> None:
    small = write(tmp_path / "small.json", [[64, 128], [128, 64]], "c10::BFloat16")
    large = write(tmp_path / "large.json", [[256, 128], [128, 64]], "c10::BFloat16")
    wide = write(tmp_path / "wide.json", [[64, 128], [128, 64]], "float")
    assert found(small, small) == {}
    assert found(small, large)["inputs of aten::mm"] == (
        "bf16[64,128] bf16[128,64]",
        "bf16[256,128] bf16[128,64]",
        "the two may not do the same work",
    )
    assert found(small, wide)["inputs of aten::mm"][1] == "fp32[64,128] fp32[128,64]"


def test_the_inputs_of_an_op_with_hundreds_of_tensors_are_cut(tmp_path: Path) -> None:
    few, many = (write(tmp_path / f"{count}.json", [[64, 128]] * count, "float") for count in (2, 300))
    assert len(found(few, many)["inputs of aten::mm"][1]) == 80
