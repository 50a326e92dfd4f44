"""Test what communication belongs to: by the callers of its launches, its library, or not at all."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.helpers.long_run import keep_some
from tests.helpers.paths import SHARED_TRACES
from tests.helpers.trace_builder import Entry, cpu, kernel, runtime, trace
from torchprof_tui.analysis.collectives.communication_records import read_communication
from torchprof_tui.analysis.patterns.rules.multi_gpu import Owner, find_owner
from torchprof_tui.commands.common.load import load_specs
from torchprof_tui.trace.model.trace import Trace

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ALL_GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SEND_RECEIVE = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
DEEP_EP = "void deep_ep::intranode::dispatch<8, 768>(int4*)"
VLLM = "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)"

_numbers = itertools.count(1)


def called(name: str, *callers: str, duration: float = 10) -> list[Entry]:
    """A kernel whose launch has these callers, the outermost first."""
    number = next(_numbers)
    begin = 1000.0 * number
    ops = [cpu(caller, begin + k, 100 - 2 * k) for k, caller in enumerate(callers)]
    return [*ops, runtime("cudaLaunchKernelExC", begin + 40, 5, number), kernel(name, begin + 200, duration, number)]


def owner_of(made: Trace) -> Owner | None:
    records = read_communication(made)
    return find_owner(made, records, np.asarray(made.duration[records.events]))


BACKWARD = "autograd::engine::evaluate_function: MmBackward0"
ACCUMULATE = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"

CASES = [
    ("the reducer of DDP", called(ALL_REDUCE, ACCUMULATE, "c10d::allreduce_"), Owner.DDP),
    ("FSDP2", called(ALL_GATHER, "FSDP::all_gather (layers.1)", "c10d::_allgather_base_"), Owner.FSDP2),
    ("FSDP1", called(ALL_GATHER, "FullyShardedDataParallel._pre_forward", "c10d::_allgather_base_"), Owner.FSDP1),
    ("DTensor", [*called(ALL_REDUCE, "Redistribute", "_c10d_functional::all_reduce"), cpu(BACKWARD, 0, 9)],
     Owner.TENSOR_PARALLEL),
    ("an inference without a backward pass", called(ALL_REDUCE, "aten::linear", "c10d::allreduce_"),
     Owner.INFERENCE_TENSOR_PARALLEL),
    ("the all-reduce of vLLM", called(VLLM, "vllm::all_reduce"), Owner.INFERENCE_TENSOR_PARALLEL),
    ("the all-reduce of vLLM in a graph", [kernel(VLLM, 0, 10)], Owner.INFERENCE_TENSOR_PARALLEL),
    ("DeepEP", called(DEEP_EP, "Dispatch"), Owner.DEEP_EP),
    ("an all-to-all of experts", called(SEND_RECEIVE, "moe", "_c10d_functional::all_to_all_single"),
     Owner.EXPERT_PARALLEL),
    ("an all-reduce of unknown purpose in training", [*called(ALL_REDUCE, "SyncBatchNorm", "c10d::allreduce_"),
     cpu(BACKWARD, 0, 9)], None),
    ("gathers of another library", [*called(ALL_GATHER, "c10d::_allgather_base_"), cpu(BACKWARD, 0, 9)], None),
    ("no communication", [kernel("gemm", 0, 5)], None),
]  # fmt: skip


@pytest.mark.parametrize(("entries", "owner"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_owner_of_communication(entries: list[Entry], owner: Owner | None) -> None:
    assert owner_of(trace(*entries)) is owner


def test_the_owner_of_most_time_counts() -> None:
    entries = [*called(ALL_REDUCE, ACCUMULATE, duration=10), *called(ALL_GATHER, "FSDP::all_gather", duration=30)]
    assert owner_of(trace(*entries)) is Owner.FSDP2
    entries = [*called(ALL_REDUCE, ACCUMULATE, duration=50), *called(ALL_GATHER, "FSDP::all_gather", duration=30)]
    assert owner_of(trace(*entries)) is Owner.DDP


@pytest.mark.skipif(not SHARED_TRACES.is_dir(), reason="no shared traces")
@pytest.mark.parametrize(
    ("name", "owner"),
    keep_some(
        [
            ("ddp_4ranks/rank0.pt.trace.json.gz", Owner.DDP),
            pytest.param("fsdp_4ranks/rank1.pt.trace.json.gz", Owner.FSDP2, marks=pytest.mark.long),
            ("public/facebookresearch+HolisticTraceAnalysis/control.json.gz", None),  # most of it exchanges embeddings
        ],
        1,
    ),
)
def test_the_owner_in_real_traces(name: str, owner: Owner | None) -> None:
    assert owner_of(load_specs([str(SHARED_TRACES / name)], cache=False).trace) is owner
