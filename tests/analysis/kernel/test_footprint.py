"""Test footprints of kernels and copies: literal launches, and all shared traces."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.paths import SHARED_TRACES
from tests.helpers.trace_builder import kernel, memcpy, memset, runtime, trace
from torchprof_tui.analysis.kernel.footprint import compute_footprint, grid_in_blocks
from torchprof_tui.analysis.kernel.kernel_summary import find_instances
from torchprof_tui.analysis.kernel.memory_transfer import measure_transfer
from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace import Trace

TRACES = SHARED_TRACES
needs_traces = pytest.mark.skipif(not TRACES.exists(), reason="the shared traces are not here")

H200 = {
    "id": 0,
    "name": "NVIDIA H200",
    "computeMajor": 9,
    "computeMinor": 0,
    "maxThreadsPerBlock": 1024,
    "maxThreadsPerMultiprocessor": 2048,
    "regsPerBlock": 65536,
    "regsPerMultiprocessor": 65536,
    "warpSize": 32,
    "sharedMemPerBlock": 49152,
    "sharedMemPerBlockOptin": 232448,
    "sharedMemPerMultiprocessor": 233472,
    "numSms": 132,
}
MI300X = {
    "id": 0,
    "name": "AMD Instinct MI300X",
    "computeMajor": 9,
    "computeMinor": 4,
    "maxThreadsPerBlock": 1024,
    "maxThreadsPerMultiprocessor": 2048,
    "regsPerBlock": 65536,
    "warpSize": 64,
    "sharedMemPerBlock": 65536,
    "numSms": 304,
    "maxSharedMemoryPerMultiProcessor": 65536,
}
NVJET = "nvjet_sm90_tst_64x8_64x16_1x4_h_bz_NNT"


def on(device: dict[str, Any], *entries: Any) -> Trace:
    return trace(*entries, header={"deviceProperties": [device]})


def shape(grid: list[int], block: list[int], registers: int, shared: int, **more: Any) -> dict[str, Any]:
    return {"grid": grid, "block": block, "registers per thread": registers, "shared memory": shared, **more}


def written(folder: Path, device: dict[str, Any], *entries: dict[str, Any]) -> Trace:
    """Load the entries through a file, so that args can be read."""
    path = folder / "trace.json"
    path.write_text(json.dumps({"deviceProperties": [device], "traceEvents": list(entries)}))
    return load_trace(str(path), cache=False)


def find(made: Trace, name: str) -> int:
    return next(k for k in range(len(made)) if made.event(k).name == name)


# Literal launches


def test_the_designs_own_example() -> None:
    """The matrix product of the design: one block per SM, 19 %, limited by shared memory, 124 idle SMs."""
    made = on(H200, kernel(NVJET, 0, 2, **shape([4, 2, 1], [384, 1, 1], 168, 164308)))
    found = compute_footprint(made, 0)
    assert found is not None
    assert found.occupancy is not None
    assert (found.threads_per_block, found.block_count) == (384, 8)
    assert found.occupancy.limits == {"warps": 5, "registers": 1, "shared_memory": 1, "blocks": 32}
    assert found.occupancy.limited_by == ("registers", "shared_memory")
    assert found.occupancy.active_warps == 12
    assert found.occupancy.idle_sms == 124
    assert found.kernel.kernel_class is KernelClass.GEMM
    assert found.blocks_per_sm == pytest.approx(8 / 132)
    assert found.blocks_per_sm * found.occupancy.warps_per_block == pytest.approx(96 / 132)
    assert any("124 SMs stay idle" in note for note in found.notes)
    assert any("intended" in note for note in found.notes)


def test_the_json_has_the_contracts_fields() -> None:
    made = on(H200, kernel(NVJET, 0, 2, **shape([4, 2, 1], [384, 1, 1], 168, 164308)))
    found = compute_footprint(made, 0)
    assert found is not None
    document = json.loads(json.dumps(found.as_dict()))
    assert document["grid"] == [4, 2, 1]
    assert document["block"] == [384, 1, 1]
    assert document["registers_per_thread"] == 168
    assert document["shared_memory_bytes"] == 164308
    assert document["blocks_per_sm_limit"] == {"warps": 5, "registers": 1, "shared_memory": 1, "blocks": 32}
    assert document["active_blocks_per_sm"] == 1
    assert document["theoretical_occupancy"] == 18.75
    assert document["limited_by"] == ["registers", "shared_memory"]
    assert document["reported_occupancy"] is None
    assert document["waves"] == pytest.approx(8 / 132)
    assert document["kernel_class"] == "gemm"
    assert document["decoded"]["tile"] == [64, 8, 64]
    assert document["decoded"]["dtypes"] == ["bf16"]


def test_the_last_wave_is_not_the_efficiency() -> None:
    """31.03 waves: the last one is 3 % full, although 97 % of all slots are used."""
    blocks = 31 * 132 + 4
    found = compute_footprint(on(H200, kernel(NVJET, 0, 2, **shape([blocks, 1, 1], [384, 1, 1], 168, 164308))), 0)
    assert found is not None
    assert found.occupancy is not None
    assert found.occupancy.waves == pytest.approx(31.03, abs=0.001)
    assert found.occupancy.last_wave_fill == pytest.approx(4 / 132)
    assert found.occupancy.tail_waste == pytest.approx(1 - blocks / (32 * 132))
    assert found.as_dict()["last_wave_fill"] == pytest.approx(4 / 132)
    whole = compute_footprint(on(H200, kernel(NVJET, 0, 2, **shape([264, 1, 1], [384, 1, 1], 168, 164308))), 0)
    assert whole is not None
    assert whole.occupancy is not None
    assert (whole.occupancy.waves, whole.occupancy.last_wave_fill) == (2, 1)
    short = compute_footprint(on(H200, kernel(NVJET, 0, 2, **shape([136, 1, 1], [384, 1, 1], 168, 164308))), 0)
    assert short is not None
    assert "1.03 waves take as long as 2: the last one is 3% full, and 48% of all slots stay empty." in short.notes


@pytest.mark.parametrize(
    ("others", "is_noted"),
    [
        ([], True),
        ([kernel("comm", 1, 1, stream=9)], False),  # beside it for half of its time
        ([kernel("comm", 1.95, 5, stream=9)], True),  # a touch at the end is no partition
        ([kernel("comm", 0, 2, stream=9, device=1)], True),  # another GPU
        ([memcpy("Memcpy HtoD (Pinned -> Device)", 0, 2, stream=9)], True),  # uses no SM
        ([kernel("a", 0.0, 0.15, stream=9), kernel("b", 0.1, 0.15, stream=11)], False),  # 0.25 of 2 µs together
        ([kernel("a", 0.0, 0.15, stream=9), kernel("b", 0.0, 0.15, stream=11)], True),  # 0.15: counted once
    ],
)
def test_idle_sms_are_not_idle_beside_another_kernel(others: list[Any], is_noted: bool) -> None:
    made = on(H200, kernel(NVJET, 0, 2, **shape([4, 2, 1], [384, 1, 1], 168, 164308)), *others)
    found = compute_footprint(made, find(made, NVJET))
    assert found is not None
    assert any("SMs stay idle" in note for note in found.notes) is is_noted
    assert found.occupancy is not None
    assert found.occupancy.idle_sms == 124


ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1> >(int)"
)


@pytest.mark.parametrize(
    ("name", "is_adjustable"),
    [
        ("my_kernel(float*)", True),
        ("triton_poi_fused_add_gelu_3", True),
        ("_rms_norm_forward_kernel", True),
        (NVJET, False),
        (ELEMENTWISE, False),
        ("volta_scudnn_128x64_relu_medium_nn_v1", False),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x64_32x6_tn_align4>(P)", False),
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4> >(P)", False),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_kernel", False),
        ("void cudnn::something_new<float>(int)", False),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", False),
    ],
)
def test_a_launch_is_advised_on_only_where_it_can_be_changed(name: str, is_adjustable: bool) -> None:
    found = compute_footprint(on(H200, kernel(name, 0, 2, **shape([500, 1, 1], [384, 1, 1], 168, 100_000))), 0)
    assert found is not None
    assert bool(found.changes) is is_adjustable
    assert bool(found.as_dict()["what_if"]) is is_adjustable
    assert found.as_dict()["launch_is_fixed"] is not is_adjustable


def test_only_kernels_have_one() -> None:
    made = on(H200, runtime("cudaLaunchKernel", 0, 1, corr=1), kernel("k", 2, 1, corr=1), memcpy("Memcpy DtoD", 4, 1))
    assert compute_footprint(made, find(made, "cudaLaunchKernel")) is None
    assert compute_footprint(made, find(made, "Memcpy DtoD")) is None
    assert compute_footprint(made, find(made, "k")) is not None
    with pytest.raises(IndexError):
        compute_footprint(made, len(made))


def test_a_kernel_without_a_shape() -> None:
    found = compute_footprint(on(H200, kernel("k", 0, 1)), 0)
    assert found is not None
    assert (found.grid, found.block, found.occupancy, found.changes) == (None, None, None, ())
    assert any("no launch shape" in note for note in found.notes)
    assert json.dumps(found.as_dict())


def test_a_trace_without_devices() -> None:
    found = compute_footprint(trace(kernel("k", 0, 1, **shape([1, 1, 1], [32, 1, 1], 16, 0))), 0)
    assert found is not None
    assert found.device is None
    assert found.occupancy is None
    assert any("does not describe this GPU" in note for note in found.notes)


def test_the_device_is_the_one_that_ran_it() -> None:
    small = {**H200, "id": 1, "numSms": 10}
    entries = (
        kernel("a", 0, 1, device=0, **shape([5, 1, 1], [32, 1, 1], 16, 0)),
        kernel("b", 2, 1, device=1, **shape([5, 1, 1], [32, 1, 1], 16, 0)),
    )
    made = trace(*entries, header={"deviceProperties": [small, H200]})
    a, b = compute_footprint(made, find(made, "a")), compute_footprint(made, find(made, "b"))
    assert a is not None
    assert b is not None
    assert a.occupancy is not None
    assert b.occupancy is not None
    assert (a.occupancy.idle_sms, b.occupancy.idle_sms) == (127, 5)


# ROCm: values on the launch, and their units


def test_rocm_takes_the_shape_from_the_launch() -> None:
    call = runtime("hipLaunchKernel", 0, 1, corr=1, grid=[608, 1, 1], block=[256, 1, 1], **{"shared memory": 16384})
    made = on(MI300X, call, kernel("attn_fwd", 2, 5, corr=1))
    found = compute_footprint(made, find(made, "attn_fwd"))
    assert found is not None
    assert found.occupancy is not None
    assert (found.grid, found.block) == ((608, 1, 1), (256, 1, 1))
    assert (found.registers, found.shared_memory, found.dynamic_shared_memory) == (None, None, 16384)
    assert found.occupancy.active_blocks is None
    assert any("ROCm traces contain no registers" in note and "at most 4" in note for note in found.notes)


def test_hip_ext_launches_count_threads_not_blocks() -> None:
    args = {"grid": [61440, 1, 1], "block": [256, 1, 1]}
    call = runtime("hipExtModuleLaunchKernel", 0, 1, corr=1, **args)
    made = on(MI300X, call, kernel("Cijk_x", 2, 5, corr=1, **args))
    found = compute_footprint(made, find(made, "Cijk_x"))
    assert found is not None
    assert found.grid == (240, 1, 1)
    assert found.occupancy is not None
    assert found.occupancy.idle_sms == 64
    assert grid_in_blocks((100, 3, 1), (64, 2, 1), "hipExtModuleLaunchKernel") == (2, 2, 1)
    assert grid_in_blocks((100, 3, 1), None, "hipExtModuleLaunchKernel") is None
    assert grid_in_blocks((100, 3, 1), (64, 2, 1), "hipLaunchKernel") == (100, 3, 1)


# Values reported by Kineto


def test_zero_percent_for_shared_memory_beyond_48_kb(tmp_path: Path) -> None:
    args = shape([2, 66, 1], [384, 1, 1], 168, 213188, **{"est. achieved occupancy %": 0, "blocks per SM": 1.0})
    made = written(tmp_path, H200, kernel(NVJET, 0, 2, **args))
    found = compute_footprint(made, 0)
    assert found is not None
    assert found.reported.occupancy == 0
    assert found.as_dict()["reported_occupancy"] == 0
    assert any("48 KiB" in note and "208 KiB" in note for note in found.notes)


def test_zero_percent_for_a_tiny_grid(tmp_path: Path) -> None:
    args = shape([4, 1, 1], [128, 1, 1], 16, 0, **{"est. achieved occupancy %": 0, "blocks per SM": 0.030303})
    found = compute_footprint(written(tmp_path, H200, kernel("k", 0, 2, **args)), 0)
    assert found is not None
    assert any("tiny: 4 blocks" in note for note in found.notes)


def test_reported_oddities_are_no_error(tmp_path: Path) -> None:
    args = shape([4, 1, 1], [128, 1, 1], 16, 0, **{"est. achieved occupancy %": "NaN?", "blocks per SM": "inf"})
    found = compute_footprint(written(tmp_path, H200, kernel("k", 0, 2, **args, occupancy="odd")), 0)
    assert found is not None
    assert found.reported.occupancy is None
    assert found.reported.blocks_per_sm == float("inf")
    assert found.agrees_with_kineto is None


@pytest.mark.parametrize(("blocks", "agrees"), [(16, True), (8, False)])
def test_kinetos_own_occupancy_block_is_cross_checked(tmp_path: Path, blocks: int, agrees: bool) -> None:
    block = {
        "limitingFactors": "WARPS|BARRIERS",
        "activeBlocksPerMultiprocessor": blocks,
        "blockLimitRegs": 32,
        "blockLimitSharedMem": 228,
        "blockLimitWarps": 16,
        "blockLimitBlocks": 32,
        "blockLimitBarriers": 8,
    }
    found = compute_footprint(
        written(tmp_path, H200, kernel("k", 0, 2, **shape([4, 1, 1], [128, 1, 1], 16, 0), occupancy=block)), 0
    )
    assert found is not None
    assert found.agrees_with_kineto is agrees
    assert found.reported.limited_by == ("warps", "barriers")
    assert found.reported.limits is not None
    assert found.reported.limits["barriers"] == 8
    assert any("Kineto computed 8" in note for note in found.notes) is not agrees


# Instances


def test_instances_in_time_order_with_the_same_shape_marked() -> None:
    big, small = shape([64, 1, 1], [128, 1, 1], 16, 0), shape([1, 1, 1], [128, 1, 1], 16, 0)
    made = on(
        H200,
        kernel("k", 30, 4, stream=7, **big),
        kernel("k", 10, 2, stream=8, **big),
        kernel("k", 20, 100, stream=7, **small),
        kernel("other", 40, 50, stream=7, **big),
        kernel("k", 50, 3, stream=7, **big),
        runtime("k", 60, 1, corr=3),
    )
    picked = next(k for k in range(len(made)) if made.event(k).duration == 100_000)
    found = find_instances(made, picked)
    assert found.duration.tolist() == [2000, 100_000, 4000, 3000]
    assert found.same_shape.tolist() == [False, True, False, False]
    assert found.selected_index == 1
    assert found.same_shape_statistics.count == 1
    durations = [2000, 100_000, 4000, 3000]
    assert found.statistics.mean == statistics.mean(durations)
    assert found.statistics.median == statistics.median(durations)
    assert found.statistics.p95 == pytest.approx(np.percentile(durations, 95))
    assert (found.statistics.shortest, found.statistics.longest, found.statistics.total) == (
        2000,
        100_000,
        sum(durations),
    )
    with pytest.raises(ValueError, match="GPU work"):
        find_instances(made, next(k for k in range(len(made)) if made.event(k).kind is Kind.RUNTIME))


def test_instances_take_rocms_shapes_from_the_launch() -> None:
    calls = [
        runtime("hipLaunchKernel", 2 * k, 1, corr=k + 1, grid=[k % 2 + 1, 1, 1], block=[64, 1, 1]) for k in range(4)
    ]
    made = on(MI300X, *calls, *(kernel("k", 20 + 2 * k, 1, corr=k + 1) for k in range(4)))
    found = find_instances(made, find(made, "k"))
    assert found.same_shape.tolist() == [True, False, True, False]


# Copies


def test_a_pinned_copy_beside_its_link() -> None:
    made = on(H200, memcpy("Memcpy HtoD (Pinned -> Device)", 0, 1000, bytes=55_000_000))
    found = measure_transfer(made, 0)
    assert found is not None
    assert (found.source, found.target, found.pinned) == ("host", "device", True)
    assert found.bandwidth == pytest.approx(55.0)
    assert found.peak_bandwidth == 63.0
    assert found.share_of_peak == pytest.approx(55 / 63)


def test_a_copy_inside_the_device_reads_and_writes() -> None:
    made = on(H200, memcpy("Memcpy DtoD (Device -> Device)", 0, 1, bytes=2_000_000))
    found = measure_transfer(made, 0)
    assert found is not None
    assert found.pinned is None
    assert found.bandwidth == pytest.approx(2000.0)
    assert found.peak_source == "device memory"
    assert found.share_of_peak == pytest.approx(4000 / 4800)


def test_what_is_not_known_of_a_copy() -> None:
    unknown = on({**H200, "name": "Some GPU"}, memcpy("Memcpy DtoH (Device -> Pageable)", 0, 0, bytes=10))
    found = measure_transfer(unknown, 0)
    assert found is not None
    assert (found.peak_bandwidth, found.share_of_peak, found.bandwidth, found.pinned) == (None, None, None, False)
    peer = measure_transfer(on(H200, memcpy("Memcpy PtoP (Device -> Device)", 0, 1)), 0)
    assert peer is not None
    assert (peer.peak_bandwidth, peer.bytes, peer.source) == (None, None, "peer device")
    fill = measure_transfer(on(H200, memset("Memset (Device)", 0, 1, bytes=4096)), 0)
    assert fill is not None
    assert (fill.source, fill.target, fill.bytes) == (None, "device", 4096)
    assert measure_transfer(on(H200, kernel("k", 0, 1)), 0) is None


# Real traces


@needs_traces
@pytest.mark.parametrize(
    "name", ["matmul_add_64_cold_eager", "attention_flash", "linear_compile", "multi_stream_overlap"]
)
def test_every_gpu_event_of_our_own_traces(name: str) -> None:
    made = load_trace(str(TRACES / f"{name}.pt.trace.json.gz"), cache=False)
    seen = 0
    for event in range(len(made)):
        if made.event(event).kind in (Kind.KERNEL, Kind.COLLECTIVE):
            found = compute_footprint(made, event)
            assert found is not None
            assert found.occupancy is not None
            assert found.occupancy.active_blocks
            assert found.kernel.known
            args = made.event(event).read_args()
            assert found.blocks_per_sm == pytest.approx(args["blocks per SM"], rel=1e-6, abs=1e-5)
            warps_per_sm = found.blocks_per_sm * found.occupancy.warps_per_block
            assert warps_per_sm == pytest.approx(args["warps per SM"], rel=1e-6, abs=1e-5)
            seen += 1
        elif made.event(event).kind in (Kind.COPY, Kind.MEMSET):
            moved = measure_transfer(made, event)
            assert moved is not None
            if moved.reported_bandwidth is not None:
                assert moved.bandwidth == pytest.approx(moved.reported_bandwidth, rel=0.02)
            seen += 1
    assert seen


@needs_traces
def test_reported_zero_is_always_explained() -> None:
    """Every kernel in these traces with a reported 0 % uses more than 48 KB, or has a tiny grid."""
    unexplained = []
    for name in ("matmul_add_4096_warm_eager", "attention_cudnn", "geglu_mlp_eager", "matmul_add_64_bmm8"):
        made = load_trace(str(TRACES / f"{name}.pt.trace.json.gz"), cache=False)
        for event in range(len(made)):
            if made.event(event).kind is Kind.KERNEL:
                found = compute_footprint(made, event)
                assert found is not None
                if found.reported.occupancy == 0 and not any("reports 0 %" in note for note in found.notes):
                    unexplained.append(found)
    assert unexplained == []
