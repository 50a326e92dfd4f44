"""Small programs written down as traces, for the patterns' tests. Times in µs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tests.helpers.trace_builder import Entry, cpu, event, kernel, memcpy, runtime, step
from torchprof_tui.analysis.patterns.engine.check_scope import Scope
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.engine.pattern import Finding
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


def launched(
    op: str, at: float, gpu_at: float, gpu_for: float, name: str = ADD, *, cost: float = 8, **where: object
) -> list[Entry]:
    """An op that launches one kernel (or copy): the call in its middle, `cost` µs on the CPU."""
    corr = next(_numbers)
    on_gpu = memcpy if name.startswith("Memcpy") else kernel
    given = {} if name.startswith("Memcpy") else SHAPE
    return [
        cpu(op, at, cost),
        runtime("cudaLaunchKernel", at + cost / 4, cost / 2, corr),
        on_gpu(name, gpu_at, gpu_for, corr, **{**given, **where}),
    ]


def healthy(steps: int = 4, more: Sequence[Entry] = ()) -> list[Entry]:
    """Steps of 1 ms: the CPU runs ahead, four different kernels keep the GPU busy without a pause."""
    entries: list[Entry] = list(more)
    parts = [
        ("aten::mm", GEMM, 300),
        ("aten::_softmax", SOFTMAX, 240),
        ("aten::add", ADD, 230),
        ("aten::mean", REDUCE, 230),
    ]
    for number in range(steps):
        begins = 1000 * number
        entries.append(step(number + 2, begins, 995))
        at = begins + 20.0
        for place, (op, name, taken) in enumerate(parts):
            entries += launched(op, begins + 2 + 9 * place, at, taken - 0.5, name)
            at += taken
    return entries


def waiting(op_us: float = 90, kernel_us: float = 5, steps: int = 4, ops: int = 9) -> list[Entry]:
    """Overhead-bound: each op takes much longer than the kernel it launches."""
    entries: list[Entry] = []
    for number in range(steps):
        begins = 1000 * number
        entries.append(step(number, begins, 990))
        for place in range(ops):
            at = begins + 5 + 105 * place
            entries += launched("aten::add", at, at + op_us, kernel_us, cost=op_us)
    return entries


def annotated(name: str, start: float, duration: float) -> Entry:
    return event(name, start, duration, "user_annotation")


def find(trace: Trace, name: str, scope: Scope | None = None) -> Finding:
    return Checker(trace).check(scope, [name])[0]
