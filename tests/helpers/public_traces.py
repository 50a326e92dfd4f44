"""The least that patterns must answer on some public traces: older GPUs and torch versions, ROCm, CPU only, no torch.

Derived from the files like `expectations/`, but only what is certain, because the programs are unknown.
"""

from __future__ import annotations

from typing import NamedTuple


class PublicExpectation(NamedTuple):
    """Ids of patterns, separated by spaces, by their expected answer."""

    fired: str
    not_fired: str
    cannot_tell: str


PUBLIC_EXPECTATIONS: dict[str, PublicExpectation] = {
    # RTX 2080 Ti, torch 1.1x: no steps; 30 DataLoader ranges of 2.4 s in all; 61 pageable HtoD copies of a batch each;
    # cudaOccupancy… before cudnn's and cuBLAS's launches; volta_sgemm has a seventh of GPU time.
    "facebookresearch+param/resnet_kineto.json.gz": PublicExpectation(
        "adaptive-launch input-starved no-tensor-core pageable-copy addmm-fusion gemm-kernel",
        "overhead-bound compute-bound sdpa-math graph-replay compiled-region",
        "first-step-wide sync-in-step alloc-in-step one-off-gap exposed-comm straggler",
    ),
    # V100, DLRM on 8 ranks: 84 % of GPU time in NCCL's kernels; one step, which syncs.
    "facebookresearch+param/worker0_step_12.1694128201545.pt.trace.json.gz": PublicExpectation(
        "exposed-comm communication sync-in-step adaptive-launch hotspot addmm-fusion",
        "compute-bound compiled-region graph-replay",
        "first-step-wide one-off-gap alloc-in-step straggler",
    ),
    # V100, torch 1.9 (`Operator`, `Runtime`): six steps alike, volta_sgemm and cudnn in FP32, one pageable batch
    # and one sync for it in each step.
    "IBM+kineto-spyre/worker0.1623143089861.pt.trace.json.gz": PublicExpectation(
        "adaptive-launch no-tensor-core pageable-copy sync-in-step addmm-fusion gemm-kernel",
        "overhead-bound compute-bound first-step-wide sdpa-fused compiled-region",
        "exposed-comm straggler",
    ),
    # ROCm 6.2, MI250: Cijk_ GEMMs; hipMemcpyWithStream blocks; copies whose names do not state the kind of memory.
    "facebookresearch+HolisticTraceAnalysis/mi250_minitoy_train_ROCm6_2_kineto.json.gz": PublicExpectation(
        "gemm-kernel addmm-fusion sync-in-step overhead-bound",
        "compute-bound graph-replay no-tensor-core",
        "first-step-wide pageable-copy exposed-comm straggler",
    ),
    # MI300X, compiled: Triton kernels and attn_fwd; GPU busy throughout, no steps.
    "AMD-AGI+TraceLens/torch_compile_triton_trace.json.gz": PublicExpectation(
        "compute-bound compiled-region fused-triton sdpa-fused gemm-kernel",
        "overhead-bound sdpa-math no-tensor-core hidden-copy",
        "first-step-wide sync-in-step straggler",
    ),
    # MI300X, serving: one hipGraphLaunch with hundreds of kernels.
    "AMD-AGI+TraceLens/graph_execution.json.gz": PublicExpectation(
        "graph-replay fused-triton sdpa-fused compute-bound", "sdpa-math", "first-step-wide sync-in-step straggler"
    ),
    # RTX 3060, five compiled steps in FP32: ampere_sgemm has half of the GPU's time; memory-efficient attention.
    "luatil+torch-profile/trace_04.json.gz": PublicExpectation(
        "compute-bound no-tensor-core sdpa-fused fused-triton adaptive-launch compiled-region",
        "overhead-bound input-starved first-step-wide recompiles sdpa-math sync-in-step",
        "exposed-comm straggler",
    ),
    # CPU only.
    "facebookresearch+HolisticTraceAnalysis/rank_non_gpu.json.gz": PublicExpectation(
        "addmm-fusion matmul-to-mm",
        "sdpa-math compiled-region",
        "overhead-bound compute-bound hotspot idle-gap gemm-kernel",
    ),
    # Not recorded by torch.
    "gaogaotiantian+viztracer/async_simple.json.gz": PublicExpectation(
        "", "", "overhead-bound call-count recompiles straggler"
    ),
}
