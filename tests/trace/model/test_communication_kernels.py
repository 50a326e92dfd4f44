"""Names of communication kernels: each library's own, as profilers write them, and names that only look like them."""

from __future__ import annotations

import pytest

from tests.helpers.trace_builder import event, kernel, metadata, trace
from torchprof_tui.trace.model.communication_kernels import (
    Operation,
    classify_communication,
    classify_operation,
    extract_function,
)
from torchprof_tui.trace.model.event_kind import Kind

CASES = [
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "NCCL", Operation.ALL_REDUCE),
    ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", "NCCL", Operation.SEND_RECEIVE),
    ("ncclSymkDevKernel_AllGather_LL(ncclSymkDevWorkArgs4K)", "NCCL", Operation.ALL_GATHER),
    ("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", "NCCL", Operation.OTHER),
    ("_Z34ncclDevKernel_AllReduce_Sum_f32_LL24ncclDevKernelArgsStorage", "NCCL", Operation.ALL_REDUCE),
    ("rccl_main_kernel", "RCCL", Operation.OTHER),
    ("mscclKernel_Sum_half_LL_false(ncclDevComm*)", "RCCL", Operation.OTHER),
    ("oneccl_allgatherv_kernel", "oneCCL", Operation.ALL_GATHER),
    ("hcom_allReduce__841_12_1", "HCCL", Operation.ALL_REDUCE),
    ("hcom_reduceScatter__841_3_1", "HCCL", Operation.REDUCE_SCATTER),
    ("mcclKernel_Broadcast_RING_LL_Sum_int8_t", "MCCL", Operation.BROADCAST),
    ("void deep_ep::internode_ll::dispatch<true, 3, 10, 7168>(void*, float*, int*)", "DeepEP", Operation.DISPATCH),
    ("void deep_ep::intranode::combine<__nv_bfloat16, 8, 768>(__nv_bfloat16*)", "DeepEP", Operation.COMBINE),
    ("void deep_ep::internode::notify_dispatch<false, 2>(int const*)", "DeepEP", Operation.NOTIFY),
    ("void deep_ep::intranode::cached_notify_combine<8>(void**, int*)", "DeepEP", Operation.NOTIFY),
    ("void deep_ep::internode::get_dispatch_layout<256, 32, 8>(long const*)", "DeepEP", Operation.OTHER),
    ("void deep_ep::internode_ll::clean_low_latency_buffer<256>(long*)", "DeepEP", Operation.BARRIER),
    ("_ZN7deep_ep9intranode8dispatchILi8ELi768EEEvP4int4", "DeepEP", Operation.DISPATCH),
    ("void dpsk::ep::internode::combine<__nv_bfloat16, 8>(int4*)", "DeepEP", Operation.COMBINE),
    ("dpsk::ep::internode_ll::dispatch", "DeepEP", Operation.DISPATCH),
    ("void other::ep::intranode::cached_notify<4>(int*)", "DeepEP", Operation.NOTIFY),
    ("void primus_turbo::deep_ep::intranode::notify_dispatch<8>(int const*)", "DeepEP", Operation.NOTIFY),
    ("nvshmemi_barrier_all_kernel", "NVSHMEM", Operation.BARRIER),
    ("nvshmem_alltoall_kernel", "NVSHMEM", Operation.ALL_TO_ALL),
    (
        "void c10d::symmetric_memory::(anonymous namespace)::one_shot_all_reduce_kernel<c10::BFloat16, 16, 8>(a)",
        "symmetric memory",
        Operation.ALL_REDUCE,
    ),
    ("void two_shot_all_reduce_kernel<c10::BFloat16, 16, 8>(a)", "symmetric memory", Operation.ALL_REDUCE),
    ("void multimem_all_reduce_kernel<float, 16>(float*)", "symmetric memory", Operation.ALL_REDUCE),
    ("void multimem_one_shot_all_reduce_kernel<float, 16>(float*)", "symmetric memory", Operation.ALL_REDUCE),
    ("barrier_kernel(unsigned int**, unsigned long, unsigned long)", "symmetric memory", Operation.BARRIER),
    ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)", "vLLM", Operation.ALL_REDUCE),
    ("_ZN4vllm26cross_device_reduce_2stageIfLi8EEEvPNS_8RankDataE", "vLLM", Operation.ALL_REDUCE),
    ("void sglang::cross_device_reduce_2stage<half, 8>(sglang::RankData*)", "SGLang", Operation.ALL_REDUCE),
    (
        "void quickreduce::allreduce_prototype_twoshot<quickreduce::AllReduceTwoshot<half>>(half const*)",
        "quick all-reduce",
        Operation.ALL_REDUCE,
    ),
    (
        "void aiter::cross_device_reduce_1stage_naive<__hip_bfloat16, 8>(aiter::RankData*)",
        "AITER",
        Operation.ALL_REDUCE,
    ),
    ("void cross_device_reduce_1stage<half, 4>(RankData*)", "custom all-reduce", Operation.ALL_REDUCE),
    ("void tensorrt_llm::kernels::oneShotAllReduceKernel<half, 8>(p)", "TensorRT-LLM", Operation.ALL_REDUCE),
    ("void twoShotAllReduceKernel<half, 8, false>(p)", "TensorRT-LLM", Operation.ALL_REDUCE),
    (
        "void tensorrt_llm::kernels::ar_fusion::allreduce_fusion_kernel_oneshot_lamport<1, half, 8, true>(p)",
        "TensorRT-LLM",
        Operation.ALL_REDUCE,
    ),
    ("void lamport_style_one_shot_all_reduce_norm_kernel<half>(p)", "TensorRT-LLM", Operation.ALL_REDUCE),
    ("void moeA2ADispatchKernel<8>(p)", "TensorRT-LLM", Operation.DISPATCH),
    ("void moeA2APrepareDispatchKernel(p)", "TensorRT-LLM", Operation.NOTIFY),
    (
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<(flashinfer::"
        "trtllm_allreduce_fusion::AllReduceFusionPattern)1, __nv_bfloat16, 8, false>(p)",
        "FlashInfer",
        Operation.ALL_REDUCE,
    ),
]

OTHERS = [
    "dispatch",
    "void my_moe::dispatch<8>(int*)",
    "void moe::combine<deep_ep::Config>(deep_ep::Config*)",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::nccl_like> >(ncclComm*)",
    "void cub::DeviceReduceByKeyKernel<cub::DispatchReduceByKey<long*> >(int)",
    "barrier_kernel(float*)",
    "_ZN2at6native8dispatchILi8EEEvPN7deep_ep6ConfigE",
    "_combined_routing_memset",
    "void (anonymous namespace)::groupnorm_kernel_dispatch_up<__hip_bfloat16, 1024u>(unsigned int)",
    "",
    "_Z",
    "<<nccl",
]


@pytest.mark.parametrize(("name", "library", "operation"), CASES, ids=lambda value: str(value)[:40])
def test_a_communication_kernel_is_recognized(name: str, library: str, operation: Operation) -> None:
    found = classify_communication(name)
    assert found is not None
    assert (found.library, found.operation) == (library, operation)


@pytest.mark.parametrize("name", OTHERS)
def test_another_kernel_is_not(name: str) -> None:
    assert classify_communication(name) is None


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("_allgather_base", Operation.ALL_GATHER),
        ("allreduce_coalesced", Operation.ALL_REDUCE),
        ("_reduce_scatter_base", Operation.REDUCE_SCATTER),
        ("all_to_allv", Operation.ALL_TO_ALL),
        ("broadcast_oop", Operation.BROADCAST),
        ("send", Operation.SEND_RECEIVE),
        ("barrier", Operation.BARRIER),
        ("coalesced", Operation.SEND_RECEIVE),
    ],
)
def test_the_name_that_torch_records_is_classified(name: str, operation: Operation) -> None:
    assert classify_operation(name) is operation


def test_the_function_has_no_return_type_arguments_or_parameters() -> None:
    assert extract_function("void a::(anonymous namespace)::f<b<c>, 4>::g<1>(int, d<e>)") == "a::f::g"
    assert extract_function("k") == "k"


def test_only_libraries_with_process_groups_record_collectives() -> None:
    with_groups = {
        library for name, library, _ in CASES if (found := classify_communication(name)) and found.has_process_group
    }
    assert with_groups == {"NCCL", "RCCL", "oneCCL", "HCCL", "MCCL"}


def test_the_loader_marks_them_on_gpus_and_npus() -> None:
    made = trace(
        kernel(CASES[11][0], 0, 5),
        kernel("dispatch", 10, 5),
        metadata("process_name", "Ascend Hardware", pid=800),
        event("hcom_allReduce__1_0_1", 20, 5, cat="", pid=800, tid=3),
        event("aclnnMm_MatMul", 30, 5, cat="", pid=800, tid=3),
    )
    kinds = {made.event(k).name: made.event(k).kind for k in range(len(made))}
    assert list(kinds.values()).count(Kind.COLLECTIVE) == 2
    assert kinds["dispatch"] is Kind.KERNEL
    assert kinds["hcom_allReduce__1_0_1"] is Kind.COLLECTIVE
    assert kinds["aclnnMm_MatMul"] is Kind.KERNEL
