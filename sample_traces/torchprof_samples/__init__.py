"""Small real traces that ship with the program, in the order in which they teach.

Recorded by `tools.record_samples`: most on NVIDIA H200 (ORIGIN), two on a CPU alone (CPU_ORIGIN). Those of the
articles' program, whose bias is a matrix, are from an H100 (ARTICLE_ORIGIN), and so are five more (H100_ORIGIN).
`README.md` beside this file says the same to people who look at the folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ORIGIN = "NVIDIA H200, torch 2.11.0+cu130, CUDA 13.0, Python 3.12"
ARTICLE_ORIGIN = "NVIDIA H100, torch 2.11.0+cu130; a bias of (size, size)"
H100_ORIGIN = "NVIDIA H100, torch 2.11.0+cu130, CUDA 13.0, Python 3.12"
CPU_ORIGIN = "CPU only, two cores, torch 2.13.0, Python 3.11"


@dataclass(frozen=True, slots=True)
class Sample:
    """One recorded trace: what ran, and what a reader should look for in it."""

    name: str
    ran: str
    look: str
    origin: str = ORIGIN

    @property
    def path(self) -> Path:
        """The trace; a folder with one for each rank where there are several."""
        folder = Path(__file__).resolve().parent
        ranks = folder / self.name
        return ranks if ranks.is_dir() else folder / f"{self.name}.pt.trace.json.gz"


SAMPLES = (
    Sample(
        "matmul_add_64_cold_eager",
        "matmul_add --size 64: torch.add(torch.matmul(x, w), b) in bf16, nothing warmed up",
        "start here: one step, two ops, two kernels; the first step is the widest; the GPU hardly works",
    ),
    Sample(
        "matmul_add_64_sched0_active3",
        "the same, recorded from the very first call: --wait 0 --warmup 0",
        "what a cold start costs: the first matmul takes 70 ms before its kernel of 2 µs runs",
    ),
    Sample(
        "matmul_add_64_bmm8",
        "the same with a batch of 8, after ten calls",
        "three dimensions: aten::matmul becomes aten::bmm, behind ops that launch nothing",
    ),
    Sample(
        "matmul_add_4096_warm_eager",
        "the same at 4096x4096, after ten calls",
        "kernels now take longer than launching them, and queue up behind each other",
    ),
    Sample(
        "matmul_add_4096_warm_compile",
        "the same through torch.compile",
        "one op and one kernel: a bias of one dimension is added in the GEMM's epilogue (not so: article_4096_compile)",
    ),
    Sample(
        "linear_eager",
        "linear: nn.Linear(32, 64) on 1024 rows",
        "aten::t launches nothing, aten::addmm has the bias inside: one kernel a step",
    ),
    Sample(
        "geglu_mlp_eager",
        "mlp: three linear layers, GELU and a product",
        "five kernels a step, two of which only move bytes",
    ),
    Sample(
        "geglu_mlp_compile",
        "the same through torch.compile",
        "those two have become one triton_poi_fused kernel",
    ),
    Sample(
        "attention_naive",
        "attention --backend naive: causal attention 4x16x2048x64 in bf16, by hand",
        "seven kernels and copies a step, where one kernel would do (see attention_flash)",
    ),
    Sample(
        "attention_flash",
        "the same through SDPA's flash backend",
        "one kernel a step does all of it, with a low occupancy by design",
    ),
    Sample(
        "attention_cudnn",
        "the same through cuDNN's backend",
        "a kernel that reports an occupancy of 0 %: trust the computed one",
    ),
    Sample(
        "compile_recompiles",
        "recompiles: torch.compile(dynamic=False) fed a new shape each step",
        "tens of milliseconds of compiling in every step, microseconds of GPU work",
    ),
    Sample(
        "multi_stream_overlap",
        "streams: matmuls on one stream, the next batch copied on another",
        "two stream lanes at work at once",
    ),
    Sample(
        "cuda_graph_replay",
        "graph_replay: five replays of a captured MLP",
        "one cudaGraphLaunch, twenty-four kernels",
    ),
    Sample(
        "generate_eager",
        "generate --mode eager: a small language model reads 8 prompts, then generates 8 tokens of each",
        "a prefill and eight decode steps; the 140 kernels of each token are launched one by one, and the GPU waits",
    ),
    Sample(
        "generate_compile",
        "the same through torch.compile",
        "78 kernels a token, and each is still launched by itself",
    ),
    Sample(
        "generate_graph",
        "the same with the decode step captured as a CUDA graph",
        "one launch a token, nine times the tokens per second (torchprof-tui diff with generate_eager)",
    ),
    Sample(
        "train_gpt_starved",
        "train_gpt --starve: training steps fed by a slow data set in the training process",
        "the GPU waits at the start of each step while the CPU loads the next batch",
    ),
    Sample(
        "train_gpt_eager",
        "train_gpt: the same with a fast data set",
        "the wait is gone (torchprof-tui diff with the one above); the CPU, which dispatches, now limits the step",
    ),
    Sample(
        "train_gpt_compile",
        "that step through torch.compile",
        "fewer ops and launches, and yet a longer step: the CPU still dispatches each kernel (diff shows where)",
    ),
    Sample(
        "train_gpt_stack_memory",
        "train_gpt --item: two training steps with Python stacks, shapes and memory",
        "everything at once: Python frames down to kernels, forward and backward, the memory curve",
    ),
    Sample(
        "train_gpt_2ranks",
        "train_gpt --late-rank 1 on two GPUs: one of them comes late",
        "both ranks as one: rank 0 waits in each step's first collective for rank 1",
    ),
    Sample(
        "article_64_cold",
        "matmul_add --size 64: x, w and b of (64, 64) in bf16, no calls before the first step",
        "three steps, the first 2.2 times as wide as the others; the GPU works 2 % of the time",
        ARTICLE_ORIGIN,
    ),
    Sample(
        "article_64_warm",
        "the same after ten calls",
        "the first step is as wide as in article_64_cold: the profiler has just started; the others are 92 to 121 µs",
        ARTICLE_ORIGIN,
    ),
    Sample(
        "article_4096_cold",
        "matmul_add --size 4096, no calls before the first step",
        "the CPU runs ahead of kernels that take longer than launching them",
        ARTICLE_ORIGIN,
    ),
    Sample(
        "article_4096_active20",
        "the same from the very first call, 20 steps: --wait 0 --warmup 0 --active 20",
        "one wide step among twenty, whose kernels take the same time in each; a gap that the profiler made",
        ARTICLE_ORIGIN,
    ),
    Sample(
        "article_4096_compile",
        "matmul_add --size 4096 --warmup 10 --compile",
        "one aten::addmm, and as many launches as before: it copies b (32 MiB), then the GEMM adds to it",
        ARTICLE_ORIGIN,
    ),
    Sample(
        "article_4096_addmm",
        "matmul_add --size 4096 --warmup 10 --op addmm",
        "the same copy and GEMM without torch.compile: the dispatcher decides it",
        ARTICLE_ORIGIN,
    ),
    Sample(
        "article_4096_reduce",
        "matmul_add --size 4096 --warmup 10 --mode reduce-overhead",
        "a CUDA graph a step, and three copies into its inputs before each replay: slower than the mode default",
        ARTICLE_ORIGIN,
    ),
    Sample(
        "article_4096_autotune",
        "matmul_add --size 4096 --warmup 10 --mode max-autotune",
        "the copy and the GEMM of the mode default",
        ARTICLE_ORIGIN,
    ),
    Sample(
        "infer_resnet",
        "infer_resnet: a ResNet-18 classifies 64 images a step in bf16",
        "the table (t): aten::cudnn_convolution is the hotspot, batch norm and ReLU follow",
        H100_ORIGIN,
    ),
    Sample(
        "infer_resnet_one_image",
        "the same with --batch 1",
        "as many kernels, of 1.6 µs in the median: the GPU waits 87 % of the time for the CPU to launch them",
        H100_ORIGIN,
    ),
    Sample(
        "infer_resnet_features",
        "infer_resnet --keep-features: each block's output is copied with .cpu()",
        "eight copies a step into memory that is not pinned take more than half of the time, and the CPU waits in each",
        H100_ORIGIN,
    ),
    Sample(
        "infer_resnet_empty_cache",
        "infer_resnet --empty-cache: torch.cuda.empty_cache() after each step",
        "cudaFree and cudaMalloc in each step, and longer steps (torchprof-tui diff with infer_resnet)",
        H100_ORIGIN,
    ),
    Sample(
        "streams_pageable",
        "streams --pageable: multi_stream_overlap with a batch in memory that is not pinned",
        "the copy takes nearly all of a step, at 8 GB/s, and the matmuls wait behind it",
        H100_ORIGIN,
    ),
    Sample(
        "train_images_cpu",
        "train_images --device cpu: a small CNN whose images are decoded in the training process",
        "no GPU: most of each step is the DataLoader's, under enumerate(DataLoader)…__next__; the verdict says so",
        CPU_ORIGIN,
    ),
    Sample(
        "train_images_cpu_workers",
        "the same with small images, which two workers load ahead: --edge 32 --workers 2 --prefetch 4",
        "the wait for the DataLoader is gone (torchprof-tui diff with the one above)",
        CPU_ORIGIN,
    ),
)


def find(name: str) -> Sample:
    """The sample of that name, or the only one that begins so. Raises LookupError with a line that helps."""
    exact = [sample for sample in SAMPLES if sample.name == name]
    close = exact or [sample for sample in SAMPLES if name and sample.name.startswith(name)]
    if len(close) == 1:
        return close[0]
    offered = ", ".join(sample.name for sample in close or SAMPLES)
    raise LookupError(f"{'several samples begin' if close else 'no sample begins'} with {name!r}: {offered}")
