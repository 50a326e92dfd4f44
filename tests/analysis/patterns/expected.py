"""What each shared H200 trace must say: the regime, every pattern that fires, every one that cannot be told (all
others are absent).

How far to trust it: the lists were drafted from the answers of the program and then reviewed; the numbers in the
comments were read from the raw entries of the files without it, and so is what `by_hand` in test_shared_traces.py
counts. A line without a number in its comment guards against change; it is no proof.

Marks that return in the comments: *cold*, the first of few steps is 1.5 to 2.4 times the median of the others; *one
rank*, nothing can be said about other ranks.
"""

from __future__ import annotations

from typing import NamedTuple


class Expected(NamedTuple):
    regime: str
    fired: str
    cannot_tell: str = "exposed-comm straggler"  # one rank


# Every trace of three to five short steps ends in a cudaDeviceSynchronize of the profiler's, launches through ops
# (a chain), and its ranges and matmuls spend their time in children.
_ALWAYS = "cost-in-children trailing-sync canonical-chain"

_NO_OPS = (
    "call-count cost-in-children dead-window canonical-chain matmul-to-mm matmul-to-bmm addmm-fusion compiled-region "
    "cache-lookup aot-prologue fxgraph-hash compile-tax recompiles metadata-op sdpa-math tiny-kernels "
)
_TWO_STEPS = "first-step-wide dead-window one-off-gap kernel-variance "

EXPECTED: dict[str, Expected] = {
    # 64×64: kernels of 1.9 and 0.9 µs in steps of 60 to 170 µs, GPU busy 2 to 3 %. Two kernels a step, the GEMM has
    # two thirds of the time; no bias, so mm and add. Cold: 159.6 against 79.8 and 63.8 µs. nvjet goes through
    # cuLaunchKernelEx, and both kernels are reported with 0 % occupancy.
    "matmul_add_64_cold_eager": Expected(
        "overhead-bound",
        f"{_ALWAYS} overhead-bound hotspot first-step-wide fixed-launch gemm-kernel matmul-to-mm occupancy-misread "
        "idle-gap",
    ),
    "matmul_add_64_warm_eager": Expected(
        "overhead-bound",
        f"{_ALWAYS} overhead-bound hotspot first-step-wide fixed-launch gemm-kernel matmul-to-mm occupancy-misread "
        "idle-gap",
    ),
    # A batch axis: bmm, after expand and reshape, which launch nothing.
    "matmul_add_64_bmm8": Expected(
        "overhead-bound",
        f"{_ALWAYS} overhead-bound hotspot first-step-wide fixed-launch gemm-kernel matmul-to-bmm metadata-op "
        "occupancy-misread idle-gap",
    ),
    # No warmup: step #0 takes 91 ms, of which cuBLAS's start most, with 32 occupancy queries before its first launch
    # and one buffer request of 2 ms. cudaMalloc and cudaFree lie in step #0 alone. The gap of 12 ms between the two
    # kernels is in step #0 alone, too. 65 µs from the range's start to its first op, later 4 to 16.
    "matmul_add_64_sched0_active3": Expected(
        "overhead-bound",
        f"{_ALWAYS} overhead-bound hotspot first-step-wide dead-window adaptive-launch fixed-launch buffer-request "
        "one-off-gap gemm-kernel matmul-to-mm occupancy-misread idle-gap",
    ),
    "matmul_add_64_sched0_active20": Expected(
        "overhead-bound",
        f"{_ALWAYS} overhead-bound hotspot first-step-wide dead-window adaptive-launch fixed-launch buffer-request "
        "one-off-gap gemm-kernel matmul-to-mm occupancy-misread idle-gap",
    ),
    # 4096×4096: 172 µs of GEMM, 22 µs of add, memset between. Three steps: 722 µs with 140 µs before the first launch
    # and gaps of 1 to 2 µs after it, so neither regime.
    "matmul_add_4096_cold_eager": Expected(
        "mixed",
        f"{_ALWAYS} hotspot first-step-wide fixed-launch gemm-kernel matmul-to-mm occupancy-misread",
    ),
    # As above; 16.9 µs before one GEMM of step #2, 1.6 in the others.
    "matmul_add_4096_warm_eager": Expected(
        "mixed",
        f"{_ALWAYS} hotspot first-step-wide fixed-launch one-off-gap gemm-kernel matmul-to-mm occupancy-misread",
    ),
    # addmm: a DtoD copy of 15.7 µs seeds the output (memset between it and the GEMM). Region 0/0, one hash; guards and
    # wrappers are some 265 of 946 µs. Nothing elementwise is left.
    "matmul_add_4096_warm_compile": Expected(
        "mixed",
        f"{_ALWAYS} hotspot first-step-wide hidden-copy gemm-kernel copy-before-gemm addmm-fusion compiled-region "
        "cache-lookup aot-prologue fxgraph-hash compile-tax metadata-op occupancy-misread idle-gap",
    ),
    # Twenty steps, the profiler's 1.96 ms in the first: 3.87 ms of kernels in the other 4.42 ms. GEMMs between 168 and
    # 176 µs: no variance. Three gaps longer than 10 µs, in the first two steps. The first op comes 31 µs late.
    "matmul_add_4096_active20": Expected(
        "compute-bound",
        f"{_ALWAYS} compute-bound hotspot first-step-wide dead-window fixed-launch buffer-request one-off-gap "
        "gemm-kernel matmul-to-mm occupancy-misread",
    ),
    # nn.Linear(32, 64): one GEMM with the bias in its epilogue, 2.7 µs in steps of 200 µs and more.
    "linear_eager": Expected(
        "overhead-bound",
        f"{_ALWAYS} overhead-bound hotspot first-step-wide gemm-kernel addmm-fusion metadata-op occupancy-misread "
        "idle-gap",
    ),
    # Compiled: no views are left; guards and wrappers 262 of 855 µs. linear_fwd: 777 µs, 185 of its own.
    "linear_compile": Expected(
        "overhead-bound",
        "trailing-sync canonical-chain overhead-bound hotspot first-step-wide gemm-kernel addmm-fusion compiled-region "
        "cache-lookup aot-prologue fxgraph-hash compile-tax occupancy-misread idle-gap",
    ),
    # Three linears without bias (mm), gelu, mul: 7 pieces of work a step. 451 against 323 and 344 µs: not cold enough.
    # Before the last: 30.7 µs, then 1.0 and 1.0.
    "geglu_mlp_eager": Expected(
        "mixed",
        f"{_ALWAYS} hotspot fixed-launch one-off-gap gemm-kernel matmul-to-mm metadata-op occupancy-misread idle-gap",
    ),
    # gelu and mul in one Triton kernel; wrappers stay below a fifth: 677 + 381 + 364 µs of steps.
    "geglu_mlp_compile": Expected(
        "mixed",
        f"{_ALWAYS} hotspot first-step-wide fixed-launch one-off-gap gemm-kernel compiled-region cache-lookup "
        "aot-prologue fxgraph-hash fused-triton occupancy-misread idle-gap",
    ),
    # By hand: masked_fill clones its input, 252 µs of DtoD a step. GPU busy without a pause.
    "attention_naive": Expected(
        "compute-bound",
        f"{_ALWAYS} compute-bound first-step-wide fixed-launch hidden-copy gemm-kernel matmul-to-bmm metadata-op "
        "occupancy-misread",
    ),
    # masked_fill_: no copy; the softmax then has 42 %.
    "attention_inplace": Expected(
        "compute-bound",
        f"{_ALWAYS} compute-bound hotspot first-step-wide fixed-launch gemm-kernel matmul-to-bmm metadata-op "
        "occupancy-misread",
    ),
    # The reference: 20 kernels a call, FP32 GEMMs on CUDA cores. 778 against 582 and 512 µs: 1.42.
    "attention_math": Expected(
        "compute-bound",
        f"{_ALWAYS} compute-bound fixed-launch gemm-kernel matmul-to-bmm metadata-op sdpa-math no-tensor-core",
    ),
    # One kernel a step; busy 69 %, the rest lies before the first launch.
    "attention_flash": Expected("mixed", f"{_ALWAYS} hotspot first-step-wide metadata-op sdpa-fused"),
    "attention_efficient": Expected("mixed", f"{_ALWAYS} hotspot first-step-wide metadata-op sdpa-fused"),
    # cuDNN launches through the driver: 100 µs reported with 0 %. Gaps before the memset and before the kernel.
    "attention_cudnn": Expected("mixed", f"{_ALWAYS} hotspot first-step-wide sdpa-fused occupancy-misread idle-gap"),
    # loss.item() in both steps; two steps only, sizes of one kernel cannot be told apart.
    "gpt2_train_stack_memory": Expected(
        "overhead-bound",
        f"{_ALWAYS} overhead-bound fixed-launch gemm-kernel matmul-to-mm addmm-fusion metadata-op sdpa-fused "
        "occupancy-misread sync-in-step idle-gap",
        f"{_TWO_STEPS} exposed-comm straggler",
    ),
    # 469 cudaLaunchKernel a step: 11.8 of 109.9 ms. (In gpt2_train_stack_memory they are 8.9 of 94.6.)
    "gpt2_train_modules_flops": Expected(
        "overhead-bound",
        f"{_ALWAYS} overhead-bound call-count fixed-launch one-off-gap gemm-kernel matmul-to-mm addmm-fusion "
        "metadata-op sdpa-fused occupancy-misread idle-gap",
    ),
    # Five regions a step, forward and backward graphs, the same hashes each step.
    "gpt2_train_compile": Expected(
        "overhead-bound",
        f"{_ALWAYS} overhead-bound fixed-launch gemm-kernel addmm-fusion compiled-region cache-lookup aot-prologue "
        "fxgraph-hash metadata-op fused-triton sdpa-fused occupancy-misread idle-gap",
    ),
    # Two steps of 160 ms, GPU busy 6 %; is_nonzero syncs in each token; isin copies. HtoD pageable: 8 bytes each.
    "llama_decode_eager": Expected(
        "overhead-bound",
        f"{_ALWAYS} overhead-bound call-count adaptive-launch fixed-launch hidden-copy buffer-request gemm-kernel "
        "matmul-to-mm matmul-to-bmm metadata-op sdpa-fused occupancy-misread sync-in-step idle-gap",
        f"{_TWO_STEPS} exposed-comm straggler",
    ),
    # 37 ms of 58 in the loader each step, in the training process; copies from pageable memory, and a sync behind each.
    "resnet18_starved_dataloader": Expected(
        "input-bound",
        f"{_ALWAYS} fixed-launch one-off-gap gemm-kernel addmm-fusion metadata-op occupancy-misread sync-in-step "
        "pageable-copy input-starved idle-gap",
    ),
    # The same with workers: 47 µs a step in the loader, pinned copies; what is left is dispatch. item() each step.
    "resnet18_pinned_workers": Expected(
        "overhead-bound",
        f"{_ALWAYS} overhead-bound call-count fixed-launch one-off-gap gemm-kernel addmm-fusion metadata-op "
        "occupancy-misread sync-in-step idle-gap",
    ),
    # Five launches, 24 kernels each; no op is recorded. 84 against 42 to 48 µs. Kernels follow each other by 0.2 µs.
    "cuda_graph_replay": Expected(
        "mixed",
        "hotspot first-step-wide trailing-sync gemm-kernel occupancy-misread graph-replay",
        f"{_NO_OPS} exposed-comm straggler",
    ),
    # 29 of 30 ms are copies over PCIe, beside matmuls on another stream; torch.cuda.synchronize() ends each step.
    # In step #2 a memset comes before the copy, in the others behind it: two alike are too few for positions.
    "multi_stream_overlap": Expected(
        "mixed",
        f"{_ALWAYS} hotspot fixed-launch gemm-kernel matmul-to-mm occupancy-misread sync-in-step",
        "one-off-gap exposed-comm straggler",
    ),
    # Four steps, four M of frame 0, four hashes: each step compiles, 340 to 720 ms. FP32 GEMMs.
    "compile_recompiles": Expected(
        "overhead-bound",
        f"{_ALWAYS} overhead-bound first-step-wide adaptive-launch fixed-launch gemm-kernel matmul-to-mm "
        "compiled-region cache-lookup aot-prologue fxgraph-hash recompiles metadata-op fused-triton no-tensor-core "
        "occupancy-misread idle-gap",
    ),
    # Rank 1 sleeps before each backward: ranks 0 and 3 wait in ncclDevKernel_AllReduce for it, four
    # fifths of the GPU's time. FP32 products; 24 cudaEventSynchronize in the steps.
    "ddp_4ranks/rank0": Expected(
        "communication-bound",
        f"{_ALWAYS} hotspot fixed-launch buffer-request gemm-kernel matmul-to-mm addmm-fusion metadata-op sdpa-fused "
        "no-tensor-core occupancy-misread exposed-comm sync-in-step idle-gap",
        "one-off-gap straggler",
    ),
    # 48.7 ms, then 23.5 and 23.3. Gaps of 3.5 ms where it sleeps, one a step.
    "ddp_4ranks/rank1": Expected(
        "communication-bound",
        f"{_ALWAYS} hotspot first-step-wide fixed-launch buffer-request gemm-kernel matmul-to-mm addmm-fusion "
        "metadata-op sdpa-fused no-tensor-core occupancy-misread exposed-comm sync-in-step idle-gap",
        "one-off-gap straggler",
    ),
    # This rank's CPU is what the others wait for: NCCL has 9 % of its GPU's time, which is busy 16 % of 76.9 ms.
    "ddp_4ranks/rank2": Expected(
        "overhead-bound",
        f"{_ALWAYS} overhead-bound fixed-launch buffer-request one-off-gap gemm-kernel matmul-to-mm addmm-fusion "
        "metadata-op sdpa-fused no-tensor-core occupancy-misread sync-in-step idle-gap",
        "straggler",
    ),
    "ddp_4ranks/rank3": Expected(
        "communication-bound",
        f"{_ALWAYS} hotspot fixed-launch buffer-request gemm-kernel matmul-to-mm addmm-fusion metadata-op sdpa-fused "
        "no-tensor-core occupancy-misread exposed-comm sync-in-step idle-gap",
        "one-off-gap straggler",
    ),
    # FSDP2. 84 % busy, 95 % of that in NCCL; gaps of a millisecond between.
    "fsdp_4ranks/rank0": Expected(
        "communication-bound",
        f"{_ALWAYS} hotspot fixed-launch hidden-copy buffer-request gemm-kernel matmul-to-mm matmul-to-bmm metadata-op "
        "sdpa-fused occupancy-misread exposed-comm idle-gap",
        "one-off-gap straggler",
    ),
    # The rank that comes last: busy 5 %, and the others are in all_gather meanwhile. No buffer request.
    "fsdp_4ranks/rank1": Expected(
        "overhead-bound",
        f"{_ALWAYS} overhead-bound fixed-launch hidden-copy one-off-gap gemm-kernel matmul-to-mm matmul-to-bmm "
        "metadata-op sdpa-fused occupancy-misread idle-gap",
        "straggler",
    ),
    "fsdp_4ranks/rank3": Expected(
        "communication-bound",
        f"{_ALWAYS} hotspot fixed-launch hidden-copy buffer-request gemm-kernel matmul-to-mm matmul-to-bmm metadata-op "
        "sdpa-fused occupancy-misread exposed-comm",
        "one-off-gap straggler",
    ),
    # FSDP2: all_gathers and reduce_scatters are 96 % of the GPU's time; nothing is idle. No sync in a step.
    "fsdp_4ranks/rank2": Expected(
        "communication-bound",
        f"{_ALWAYS} hotspot fixed-launch hidden-copy buffer-request gemm-kernel matmul-to-mm matmul-to-bmm metadata-op "
        "sdpa-fused occupancy-misread exposed-comm",
        "one-off-gap straggler",
    ),
}


class Says(NamedTuple):
    """Of somebody else's trace: what reading it settles, and no more."""

    fired: str
    not_fired: str
    cannot_tell: str


OTHERS: dict[str, Says] = {
    # RTX 2080 Ti, torch 1.1x: no steps; 30 DataLoader ranges of 2.4 s in all; 61 pageable HtoD copies of a batch each;
    # cudaOccupancy… before cudnn's and cuBLAS's launches; volta_sgemm has a seventh of GPU time.
    "facebookresearch+param/resnet_kineto.json.gz": Says(
        "adaptive-launch input-starved no-tensor-core pageable-copy addmm-fusion gemm-kernel",
        "overhead-bound compute-bound sdpa-math graph-replay compiled-region",
        "first-step-wide sync-in-step alloc-in-step one-off-gap exposed-comm straggler",
    ),
    # V100, DLRM on 8 ranks: 84 % of GPU time in NCCL's kernels; one step, which syncs.
    "facebookresearch+param/worker0_step_12.1694128201545.pt.trace.json.gz": Says(
        "exposed-comm sync-in-step adaptive-launch hotspot addmm-fusion",
        "compute-bound compiled-region graph-replay",
        "first-step-wide one-off-gap alloc-in-step straggler",
    ),
    # V100, torch 1.9 (`Operator`, `Runtime`): six steps alike, volta_sgemm and cudnn in FP32, one pageable batch
    # and one sync for it in each step.
    "IBM+kineto-spyre/worker0.1623143089861.pt.trace.json.gz": Says(
        "adaptive-launch no-tensor-core pageable-copy sync-in-step addmm-fusion gemm-kernel",
        "overhead-bound compute-bound first-step-wide sdpa-fused compiled-region",
        "exposed-comm straggler",
    ),
    # ROCm 6.2, MI250: Cijk_ GEMMs; hipMemcpyWithStream blocks; copies that do not say what memory they come from.
    "facebookresearch+HolisticTraceAnalysis/mi250_minitoy_train_ROCm6_2_kineto.json.gz": Says(
        "gemm-kernel addmm-fusion sync-in-step overhead-bound",
        "compute-bound graph-replay no-tensor-core",
        "first-step-wide pageable-copy exposed-comm straggler",
    ),
    # MI300X, compiled: Triton kernels and attn_fwd; GPU busy throughout, no steps.
    "AMD-AGI+TraceLens/torch_compile_triton_trace.json.gz": Says(
        "compute-bound compiled-region fused-triton sdpa-fused gemm-kernel",
        "overhead-bound sdpa-math no-tensor-core hidden-copy",
        "first-step-wide sync-in-step straggler",
    ),
    # MI300X, serving: one hipGraphLaunch with hundreds of kernels.
    "AMD-AGI+TraceLens/graph_execution.json.gz": Says(
        "graph-replay fused-triton sdpa-fused", "compute-bound sdpa-math", "first-step-wide sync-in-step straggler"
    ),
    # RTX 3060, five compiled steps in FP32: ampere_sgemm has half of the GPU's time; memory-efficient attention.
    "luatil+torch-profile/trace_04.json.gz": Says(
        "compute-bound no-tensor-core sdpa-fused fused-triton adaptive-launch compiled-region",
        "overhead-bound input-starved first-step-wide recompiles sdpa-math sync-in-step",
        "exposed-comm straggler",
    ),
    # A CPU alone.
    "facebookresearch+HolisticTraceAnalysis/rank_non_gpu.json.gz": Says(
        "addmm-fusion matmul-to-mm",
        "sdpa-math compiled-region",
        "overhead-bound compute-bound hotspot idle-gap gemm-kernel",
    ),
    # No torch at all.
    "gaogaotiantian+viztracer/async_simple.json.gz": Says("", "", "overhead-bound call-count recompiles straggler"),
}
