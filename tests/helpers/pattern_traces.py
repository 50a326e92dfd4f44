"""Entries of small programs for the tests of patterns. Times in µs."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.helpers.trace_builder import Entry, cpu, kernel, memcpy, runtime, step
from torchprof_tui.analysis.patterns.engine.check_scope import Scope
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.engine.pattern import Finding
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.trace import Trace

GEMM = "nvjet_sm90_tst_64x8_64x16_1x4_h_bz_NNT"
SGEMM = "ampere_sgemm_128x64_nn"
ADD = (
    "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>, "
    "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>)"
)
SOFTMAX = (
    "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 11, false, false>"
    "(c10::BFloat16*, c10::BFloat16 const*, int, int, int, bool const*, int, bool)"
)
REDUCE = (
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float, float, "
    "float>, unsigned int, float, 4, 4> >(at::native::ReduceOp<float, at::native::MeanOps<float, float, float, float>, "
    "unsigned int, float, 4, 4>)"
)
DTOD = "Memcpy DtoD (Device -> Device)"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SHAPE = {"grid": [132, 1, 1], "block": [128, 1, 1]}

H200 = {"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0, "numSms": 132, "warpSize": 32}
P100 = {"id": 0, "name": "Tesla P100", "computeMajor": 6, "computeMinor": 0, "numSms": 56, "warpSize": 32}

_numbers = itertools.count(1000)


def op_with_work(
    op: str, at: float, gpu_at: float, gpu_for: float, name: str = ADD, *, cost: float = 8, **where: object
) -> list[Entry]:
    """An op that launches one kernel (or copy); the launch call is in its middle.

    The op starts at `at` and takes `cost`; the GPU work starts at `gpu_at` and takes `gpu_for`. `where`: further
    keywords of the GPU work, such as stream and device.
    """
    corr = next(_numbers)
    on_gpu = memcpy if name.startswith("Memcpy") else kernel
    shape_args = {} if name.startswith("Memcpy") else SHAPE
    return [
        cpu(op, at, cost),
        runtime("cudaLaunchKernel", at + cost / 4, cost / 2, corr),
        on_gpu(name, gpu_at, gpu_for, corr, **{**shape_args, **where}),
    ]


def healthy(steps: int = 4, more: Sequence[Entry] = ()) -> list[Entry]:
    """Steps of 1 ms: the CPU runs ahead, and four different kernels keep the GPU busy without a gap."""
    entries: list[Entry] = list(more)
    parts = [
        ("aten::mm", GEMM, 300),
        ("aten::_softmax", SOFTMAX, 240),
        ("aten::mean", REDUCE, 230),
        ("aten::add", ADD, 230),
    ]
    for number in range(steps):
        step_start = 1000 * number
        entries.append(step(number + 2, step_start, 995))
        gpu_start = step_start + 20.0
        for index, (op, name, duration) in enumerate(parts):
            entries += op_with_work(op, step_start + 2 + 9 * index, gpu_start, duration - 0.5, name)
            gpu_start += duration
    return entries


def waiting(op_us: float = 90, kernel_us: float = 5, steps: int = 4, ops: int = 9) -> list[Entry]:
    """Overhead-bound: each op takes much longer than the kernel it launches."""
    entries: list[Entry] = []
    for number in range(steps):
        step_start = 1000 * number
        entries.append(step(number, step_start, 990))
        for index in range(ops):
            at = step_start + 5 + 105 * index
            entries += op_with_work("aten::add", at, at + op_us, kernel_us, cost=op_us)
    return entries


def check_pattern(trace: Trace, name: str, scope: Scope | None = None) -> Finding:
    """Check one pattern and return its finding."""
    return Checker(trace).check(scope, [name])[0]


def steps_of(*durations: float) -> list[Entry]:
    """Steps of these durations in a row, each with an op and a kernel that fills most of it."""
    entries, start = [], 0.0
    for number, duration in enumerate(durations):
        entries += [step(number, start, duration), *op_with_work("aten::add", start + 1, start + 6, duration - 8)]
        start += duration + 1
    return entries


def kernel_runs(*durations: float, shape: int = 1) -> list[Entry]:
    """Runs of one kernel, each in a step of its own; the grid alternates over `shape` sizes."""
    entries = []
    for number, duration in enumerate(durations):
        start = 1000 * number
        grid = [1 + number % shape, 1, 1]
        entries.append(step(number, start, 990))
        entries += op_with_work("aten::mm", start + 5, start + 20, duration, GEMM, grid=grid)
    return entries


def graph_replay(kernels: int) -> list[Entry]:
    """One graph launch that starts this many kernels."""
    return [
        runtime("cudaGraphLaunch", 0, 20, 9),
        *(kernel(ADD, 30 + 10 * index, 9, 9) for index in range(kernels)),
    ]


CPU_ONLY = [step(1, 0, 100), cpu("aten::add", 10, 50)]
GPU_ONLY = [kernel(ADD, 0, 10), kernel(ADD, 20, 10)]


def check_saved(folder: Path, name: str, *entries: Entry, header: dict[str, Any] | None = None) -> Finding:
    """Check a pattern of a trace that is read from a file, so that the args of its events can be read as well."""
    path = folder / "saved.json"
    path.write_text(json.dumps({"schemaVersion": 1, **(header or {}), "traceEvents": list(entries)}))
    return check_pattern(load_trace(str(path)), name)
