"""Test FLOPs against textbook counts and torch's own, and the rates computed from them."""

from __future__ import annotations

import json
import math
import re
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.long_run import keep_some
from tests.helpers.paths import SHARED_TRACES
from tests.helpers.trace_builder import cpu, kernel, runtime
from torchprof_tui.analysis.kernel.names.name_decoder import decode_kernel_name
from torchprof_tui.analysis.table.flops import sum_row_flops
from torchprof_tui.analysis.table.groups import Profile
from torchprof_tui.analysis.table.profiler_table import GroupBy
from torchprof_tui.analysis.throughput.device_peaks import peak_tflops, short_type
from torchprof_tui.analysis.throughput.op_formulas import count_flops
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.trace import Trace

TRACES = SHARED_TRACES
H200 = {"baseTimeNanoseconds": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}]}


def matmul_flops(a: list[int], b: list[int]) -> int:
    """Count the operations of a product of two matrices one by one."""
    return sum(2 for _ in product(range(a[0]), range(a[1]), range(b[1])))


def convolution_flops(data: list[int], weight: list[int], stride: int, padding: int, dilation: int) -> int:
    """Count the operations of a 2-d convolution one by one, including those with the padding."""
    (batch, _, height, width), (out, into, *kernel_size) = data, weight
    count = 0
    for y in range(-padding, height + padding, stride):
        for x in range(-padding, width + padding, stride):
            if y + dilation * (kernel_size[0] - 1) < height + padding and (
                x + dilation * (kernel_size[1] - 1) < width + padding
            ):
                count += 2 * kernel_size[0] * kernel_size[1]
    return count * batch * out * into


CONV = ["", "", "", "[2, 2]", "[1, 1]", "[2, 2]", "False", "[0, 0]", "2"]
Q = [2, 3, 5, 7]

COUNTS: list[tuple[str, list[Any], list[Any], int]] = [
    ("aten::mm", [[3, 4], [4, 5]], [], matmul_flops([3, 4], [4, 5])),
    ("aten::addmm", [[5], [3, 4], [4, 5], [], []], ["", "", "", "1", "1"], matmul_flops([3, 4], [4, 5])),
    ("aten::bmm", [[6, 3, 4], [6, 4, 5]], [], 6 * matmul_flops([3, 4], [4, 5])),
    ("aten::baddbmm", [[1], [6, 3, 4], [6, 4, 5]], [], 6 * matmul_flops([3, 4], [4, 5])),
    ("aten::linear", [[2, 3, 4], [5, 4], [5]], [], 2 * matmul_flops([3, 4], [4, 5])),
    ("aten::matmul", [[2, 1, 3, 4], [6, 4, 5]], [], 12 * matmul_flops([3, 4], [4, 5])),
    ("aten::matmul", [[4], [4, 5]], [], matmul_flops([1, 4], [4, 5])),
    ("aten::matmul", [[3, 4], [4]], [], matmul_flops([3, 4], [4, 1])),
    (
        "aten::convolution",
        [[2, 4, 9, 8], [6, 2, 3, 2], [6]],
        CONV,
        convolution_flops([2, 4, 9, 8], [6, 2, 3, 2], 2, 1, 2),
    ),
    (
        "aten::cudnn_convolution",
        [[2, 4, 9, 8], [6, 4, 3, 2]],
        ["", "", "[1, 1]", "[2, 2]", "[2, 2]", "1"],
        convolution_flops([2, 4, 9, 8], [6, 4, 3, 2], 2, 1, 2),
    ),
    ("aten::conv_transpose2d", [[2, 4, 9, 8], [4, 6, 3, 2]], [], 2 * 2 * 4 * 9 * 8 * 6 * 3 * 2),
    (
        "aten::scaled_dot_product_attention",
        [Q, Q, Q],
        [],
        2 * 3 * (matmul_flops([5, 7], [7, 5]) + matmul_flops([5, 5], [5, 7])),
    ),
    ("aten::_flash_attention_forward", [[2, 5, 3, 7]] * 3, [], 2 * 3 * 2 * matmul_flops([5, 7], [7, 5])),
    ("aten::_scaled_dot_product_flash_attention_backward", [Q] * 6, [], 2 * 3 * 5 * matmul_flops([5, 7], [7, 5])),
]


@pytest.mark.parametrize(("name", "dims", "concrete", "count"), COUNTS, ids=[case[0] for case in COUNTS])
def test_formulas_count_what_is_multiplied_and_added(
    name: str, dims: list[Any], concrete: list[Any], count: int
) -> None:
    assert count_flops(name, dims, concrete) == count
    for index in range(min(len(dims), 2)):  # unexpected inputs have no count, and never raise
        for odd in ([], [1], None, [[1, 2]], [0.5, "x"], [97] * len(dims[index])):
            flops = count_flops(name, [*dims[:index], odd, *dims[index + 1 :]], concrete)
            assert flops is None or flops >= 0


def test_the_gradients_of_a_convolution() -> None:
    dims = [[2, 6, 4, 4], [2, 4, 9, 8], [6, 4, 3, 2]]
    whole = ["", "", "", "[6]", "[2, 2]", "[1, 1]", "[2, 2]", "False", "[0, 0]", "1", "[True, True, False]"]
    forward = 2 * 2 * 6 * 4 * 4 * 4 * 3 * 2
    assert count_flops("aten::convolution_backward", dims, whole) == 2 * forward
    assert count_flops("aten::convolution_backward", dims, [*whole[:10], "[False, True, True]"]) == forward
    assert count_flops("aten::relu", dims, whole) is None


def write_and_load(folder: Path, *entries: Any, header: dict[str, Any] | None = None) -> Trace:
    path = folder / "trace.json"
    path.write_text(json.dumps({**(H200 if header is None else header), "traceEvents": list(entries)}))
    return load_trace(str(path), cache=False)


def linear_around_mm(size: int, number: int, start: float, gpu_time: float, kind: str, name: str = "gemm") -> list[Any]:
    """A `linear` in fp32 around an `mm` of this type, as with autocast, and its kernels."""
    dims = {"Input Dims": [[size, size], [size, size]]}
    link = {"External id": number}
    return [
        cpu("aten::linear", start, 20, **{"External id": 100 + number, "Input type": ["float", "float"]}, **dims),
        cpu("aten::mm", start + 5, 10, **link, **{"Input type": [kind, kind]}, **dims),
        runtime("cudaLaunchKernel", start + 6, 1, corr=number, **link),
        runtime("cudaLaunchKernel", start + 8, 1, corr=50 + number, **link),
        kernel("prepare", start + 100, gpu_time / 4, corr=50 + number, **link),
        kernel(name, start + 200, gpu_time * 3 / 4, corr=number, **link),
    ]


def test_rates_and_shares_of_the_peak(tmp_path: Path) -> None:
    trace = write_and_load(
        tmp_path, *linear_around_mm(1024, 1, 0, 8, "c10::BFloat16"), *linear_around_mm(1024, 2, 500, 16, "c10::Half")
    )
    profile = Profile(trace)
    table = profile.build_table()
    row_flops = sum_row_flops(table, profile.calls, profile.flops())
    done = 2 * 2 * 1024**3
    for name, ns in (("aten::mm", 24_000), ("aten::linear", 24_000), ("gemm", 18_000)):
        row = table.names.index(name)
        assert row_flops.flops[row] == done
        assert row_flops.tflops[row] == pytest.approx(done / ns / 1e3)
        assert row_flops.share[row] == pytest.approx(done / ns / 1e3 / 989.4)
    assert np.isnan(row_flops.flops[table.names.index("prepare")])
    assert np.isnan(row_flops.tflops[table.names.index("cudaLaunchKernel")])
    whole = sum_row_flops(profile.build_table(GroupBy.CLASS), profile.calls, profile.flops())
    assert np.nansum(whole.flops) == done  # counted once for operator, caller and kernel


def test_an_unknown_device_has_no_peak(tmp_path: Path) -> None:
    unknown_device = {"baseTimeNanoseconds": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA Tomorrow"}]}
    profile = Profile(write_and_load(tmp_path, *linear_around_mm(64, 1, 0, 8, "c10::BFloat16"), header=unknown_device))
    table = profile.build_table()
    row_flops = sum_row_flops(table, profile.calls, profile.flops())
    row = table.names.index("aten::mm")
    assert row_flops.tflops[row] > 0
    assert np.isnan(row_flops.share[row])
    assert peak_tflops("NVIDIA H200", "int4") is None
    assert short_type("long int") is None


GEMM = "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_nn"
CAST = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda(at::TensorIterator&)>(int)"
)
SPLIT_K = "void cublasLt::splitKreduce_kernel<32, 16, int, float, float>(cublasLt::cublasSplitKParams<float>)"


@pytest.mark.parametrize(
    ("kernels", "parts"),
    [
        ([(CAST, 90), (GEMM, 10), (SPLIT_K, 30)], [0, 1, 0]),  # the product, although it is the shortest
        ([(CAST, 90), (GEMM, 10), (GEMM, 30)], [0, 0.25, 0.75]),  # a product in pieces: by time
        ([(CAST, 90), ("my_kernel", 20), ("other", 30)], [0, 0, 1]),  # undecoded: the longest that is no copy
        ([(CAST, 90), (SPLIT_K, 10)], [0, 0]),  # the product itself was not recorded
        ([(CAST, 90)], [0]),
        ([(GEMM, 0), (GEMM, 0)], [0.5, 0.5]),
    ],
)
def test_flops_belong_to_the_kernel_that_does_them(
    tmp_path: Path, kernels: list[tuple[str, float]], parts: list[float]
) -> None:
    dims = {"Input Dims": [[64, 64], [64, 64]], "Input type": ["c10::Half"] * 2}
    entries = [cpu("aten::mm", 0, 100, **{"External id": 1}, **dims)]
    for k, (name, duration) in enumerate(kernels):
        entries += [runtime("cudaLaunchKernel", k + 1, 0.5, corr=k + 1, **{"External id": 1})]
        entries += [kernel(name, 200 + 100 * k, duration, corr=k + 1, **{"External id": 1})]
    profile = Profile(write_and_load(tmp_path, *entries))
    flops, calls = profile.flops(), profile.calls
    on_gpu = np.flatnonzero(calls.on_gpu)
    on_gpu = on_gpu[np.argsort(profile.trace.start[calls.event[on_gpu]], kind="stable")]
    assert flops.count[on_gpu].tolist() == pytest.approx([part * 2 * 64**3 for part in parts])


@pytest.mark.skipif(not TRACES.exists(), reason="the shared traces are not here")
@pytest.mark.parametrize(
    ("file", "is_whole"),
    keep_some(
        [
            pytest.param("gpt2_train_modules_flops.pt.trace.json.gz", True, marks=pytest.mark.long),
            ("resnet18_starved_dataloader.pt.trace.json.gz", True),
            # 2.5 GFLOP were those of fills and 1.0 those of split-K sums: their products were not recorded
            ("public/facebookresearch+HolisticTraceAnalysis/sampled_rank-0.json.gz", False),
        ],
        1,
    ),
)
def test_kernels_and_operators_have_the_same_flops(file: str, is_whole: bool) -> None:
    """All FLOPs of innermost operators with GPU work are those of kernels that multiply or compute."""
    profile = Profile(load_trace(str(TRACES / file), cache=False))
    flops, calls = profile.flops(), profile.calls
    leaves = flops.is_innermost & ~calls.on_gpu & (calls.gpu > 0)
    if is_whole:
        assert flops.count[calls.on_gpu].sum() == pytest.approx(flops.count[leaves].sum())
    assert flops.count[calls.on_gpu].sum() > 0
    counted = np.unique(calls.name[calls.on_gpu & (flops.count > 0)])
    kernels = [decode_kernel_name(calls.names[name]) for name in counted.tolist()]
    assert not {kernel.kernel_class.label for kernel in kernels} & {"copy", "memory", "norm"}
    assert not [kernel.display for kernel in kernels if "split-K" in kernel.display]


def test_tf32_is_decided_by_the_kernels_name(tmp_path: Path) -> None:
    name = "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16_stage4_warpsize2x2x1_tensor16x8x8_kernel"
    profile = Profile(write_and_load(tmp_path, *linear_around_mm(512, 1, 0, 8, "float", name)))
    table = profile.build_table()
    row_flops = sum_row_flops(table, profile.calls, profile.flops())
    row = table.names.index("aten::mm")
    assert row_flops.share[row] == pytest.approx(row_flops.tflops[row] / 494.7)


def test_peaks_equal_the_data_sheets() -> None:
    assert peak_tflops("NVIDIA H200", "bf16") == 989.4
    assert peak_tflops("NVIDIA H100 80GB HBM3", "fp8") == 1978.9
    assert peak_tflops("NVIDIA H100 PCIe", "tf32") == 378
    assert peak_tflops("NVIDIA H100 NVL", "bf16") == peak_tflops("NVIDIA H200 NVL", "bf16") == 835.5
    assert peak_tflops("NVIDIA A100-SXM4-80GB", "fp16") == 312
    assert peak_tflops("Tesla V100-SXM2-16GB", "bf16") is None
    assert peak_tflops("NVIDIA A10G", "bf16") is None
    assert peak_tflops("AMD Instinct MI250X", "fp16") == 191.5
    assert peak_tflops("AMD Instinct MI300X", "bf16") == 1307.4


@pytest.mark.skipif(not TRACES.exists(), reason="needs the shared traces")
def test_torchs_own_count_of_a_training_run() -> None:
    """`with_flops` printed these for the same run. Torch counts an `addmm` twice that calls itself to cast."""
    name = "gpt2_train_modules_flops"
    profile = Profile(load_trace(str(TRACES / f"{name}.pt.trace.json.gz"), cache=False))
    table = profile.build_table()
    row_flops = sum_row_flops(table, profile.calls, profile.flops())
    printed = (TRACES / f"{name}.table.txt").read_text()
    count_by_torch = {"aten::mm": 1, "aten::addmm": 2}
    for op, times in count_by_torch.items():
        line = re.search(rf"^ *{op} .*?([0-9.]+) *$", printed, re.MULTILINE)
        assert line is not None
        assert math.isclose(times * row_flops.flops[table.names.index(op)] / 1e6, float(line[1]), rel_tol=1e-9)
