"""Test the patterns of kernels on traces made for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.pattern_cases import (
    ABSENT,
    CANNOT_TELL,
    FIRED,
    Cases,
    case_params,
    check_case,
    find_missing_answers,
)
from tests.helpers.pattern_traces import (
    CPU_ONLY,
    GEMM,
    GPU_ONLY,
    H200,
    P100,
    SGEMM,
    check_pattern,
    graph_replay,
    healthy,
    op_with_work,
)
from tests.helpers.trace_builder import Entry, cpu, event, flow, runtime, step, trace
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.analysis.patterns.rules import gpu_kernels
from torchprof_tui.trace.loading.load_in_process import load_trace
from torchprof_tui.trace.model.trace import Trace

MATH = "aten::_scaled_dot_product_attention_math"


FLASH = (
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::bfloat16_t, "
    "Flash_kernel_traits<64, 128, 128, 4, cutlass::bfloat16_t> >, false, true, false, false, true, true, false, false>"
    "(pytorch_flash::Flash_fwd_params)"
)


TRITON = "triton_poi_fused_gelu_mul_0"


TENSOR_CORES = [
    (SGEMM, [H200], FIRED),
    (SGEMM, [P100], ABSENT),
    (SGEMM, [], FIRED),  # "ampere" in its name: a GPU with tensor cores
    ("maxwell_sgemm_128x64_nn", [], ABSENT),
    (GEMM, [H200], ABSENT),
    ("sgemm_largek_lds64", [], CANNOT_TELL),  # neither the name nor the trace identifies the GPU
    ("void dot_kernel<float>()", [H200], CANNOT_TELL),  # the name does not identify the cores
]


OCCUPANCY = [(0, FIRED), (31, ABSENT), (None, CANNOT_TELL)]
"""(reported occupancy %, answer)."""


CASES: Cases = {
    "metadata-op": {
        FIRED: [*healthy(), cpu("aten::t", 50, 5)],
        ABSENT: [step(1, 0, 90), *op_with_work("aten::reshape", 5, 20, 20)],
        CANNOT_TELL: GPU_ONLY,
    },
    "fused-triton": {FIRED: op_with_work("aten::mul", 0, 20, 30, TRITON), ABSENT: healthy(), CANNOT_TELL: CPU_ONLY},
    "sdpa-math": {
        FIRED: [cpu(MATH, 0, 100), *op_with_work("aten::bmm", 10, 40, 30, GEMM)],
        ABSENT: healthy(),
        CANNOT_TELL: GPU_ONLY,
    },
    "sdpa-fused": {FIRED: op_with_work("aten::_flash", 0, 20, 30, FLASH), ABSENT: healthy(), CANNOT_TELL: CPU_ONLY},
    "graph-replay": {FIRED: graph_replay(5), ABSENT: graph_replay(1), CANNOT_TELL: GPU_ONLY},
}
"""`no-tensor-core` needs a header and `occupancy-misread` a file: see TENSOR_CORES and OCCUPANCY."""


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State) -> None:
    check_case(CASES, name, state)


def test_every_pattern_has_a_trace_for_each_answer() -> None:
    assert not find_missing_answers(
        gpu_kernels,
        CASES,
        {
            "no-tensor-core": {state for _, _, state in TENSOR_CORES},
            "occupancy-misread": {state for _, state in OCCUPANCY},
        },
    )


@pytest.mark.parametrize(
    ("kernel_name", "devices", "state"),
    TENSOR_CORES,
)
def test_no_tensor_core(kernel_name: str, devices: list[dict[str, Any]], state: State) -> None:
    gemm_trace = trace(*op_with_work("aten::mm", 0, 20, 30, kernel_name), header={"deviceProperties": devices})
    assert check_pattern(gemm_trace, "no-tensor-core").state is state


def test_no_tensor_core_needs_gpu_work() -> None:
    assert check_pattern(trace(*CPU_ONLY), "no-tensor-core").state is CANNOT_TELL


@pytest.mark.parametrize(("reported", "state"), OCCUPANCY)
def test_occupancy_misread_reads_the_file(tmp_path: Path, reported: int | None, state: State) -> None:
    entries = op_with_work("aten::mm", 0, 20, 30, GEMM)
    if reported is not None:
        entries[-1]["args"]["est. achieved occupancy %"] = reported
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": entries}))
    assert check_pattern(load_trace(str(path), cache=False), "occupancy-misread").state is state


V100 = {**H200, "name": "Tesla V100-SXM2-32GB", "computeMajor": 7, "computeMinor": 0}


@pytest.mark.parametrize(
    ("entries", "device", "action", "code"),
    [
        ([], H200, "autocast to bf16", "tf32"),
        ([cpu("AddmmBackward0", 60, 5)], V100, "GradScaler", "torch.float16"),  # neither bf16 nor TF32
        ([], V100, "run the model in fp16", "model.half()"),  # nothing is trained: no gradients to scale
        (op_with_work("aten::linear", 50, 60, 30, GEMM), H200, "cast the inputs of aten::mm", ""),
        (op_with_work("aten::linear", 50, 60, 30, GEMM), V100, "cast the inputs of aten::mm", ""),
    ],
)
def test_the_precision_that_is_advised_fits_the_gpu(
    entries: list[Entry], device: dict[str, Any], action: str, code: str
) -> None:
    products = [*op_with_work("aten::mm", 0, 20, 30, SGEMM), *entries]
    remedy = check_pattern(trace(*products, header={"deviceProperties": [device]}), "no-tensor-core").remedy
    assert action in remedy.action
    assert code in remedy.code
    if device is V100:
        assert "TF32" not in remedy.code
        assert "bfloat16" not in remedy.code


@pytest.mark.parametrize(("device", "saved"), [(V100, 1 - 15.7 / 125), ({**V100, "name": "a new GPU"}, 1.0)])
def test_products_without_tensor_cores_cost_what_these_would_save(device: dict[str, Any], saved: float) -> None:
    """The products stay: a V100 computes them eight times as fast in fp16."""
    built = trace(*op_with_work("aten::mm", 0, 20, 1000, SGEMM), header={"deviceProperties": [device]})
    assert check_pattern(built, "no-tensor-core").answer.at_stake == int(1_000_000 * saved)


def test_few_products_in_fp32_are_on_purpose() -> None:
    entries = [*op_with_work("aten::mm", 0, 20, 4, SGEMM), *op_with_work("aten::mm", 10, 30, 96, GEMM)]
    finding = check_pattern(trace(*entries, header={"deviceProperties": [H200]}), "no-tensor-core")
    assert finding.state is ABSENT
    assert finding.answer.seen == "4.0 % of GPU time"


def split_call(name: str) -> Trace:
    """A call of MTIA's runtime that its device splits into three pieces of work."""
    work = [
        event(
            f"part {k}",
            10 + 10 * k,
            5,
            "mtia_ccp_events",
            pid=0,
            tid=7,
            args={"device": 0, "stream": 7, "correlation": 1},
        )
        for k in range(3)
    ]
    return trace(event(name, 0, 5, "mtia_runtime", args={"correlation": 1}), *work)


@pytest.mark.parametrize("name", ["enqueueCommand memcpyHtoDAsync", "enqueueCommand run", "hipMemcpyAsync"])
def test_a_copy_or_a_queued_command_is_no_graph(name: str) -> None:
    assert check_pattern(split_call(name), "graph-replay").state is ABSENT


def test_a_launch_with_several_pieces_of_work_is_one() -> None:
    assert check_pattern(split_call("mtiaGraphLaunch"), "graph-replay").state is FIRED


def test_an_op_of_an_npu_is_no_graph() -> None:
    made = trace(
        {"ph": "M", "name": "process_name", "pid": 800, "tid": 0, "args": {"name": "Ascend Hardware"}},
        runtime("aclrtLaunch", 0, 1, corr=9),
        cpu("aclnnAdd", 15, 10),
        *({"ph": "X", "name": "Add", "pid": 800, "tid": 3, "ts": 40 + 10 * k, "dur": 5} for k in range(2)),
        *(flow("s", "async_npu", k, 15) for k in range(2)),
        *(flow("f", "async_npu", k, 40 + 10 * k, thread=3, pid=800) for k in range(2)),
    )
    assert made.links.linked_gpu_events == 2
    assert check_pattern(made, "graph-replay").state is ABSENT
