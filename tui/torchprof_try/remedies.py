"""List the remedies that need no change of the source: what suggests each, and the patch that a user would write."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from torchprof_tui.trace.core.errors import TraceError
from torchprof_tui.trace.core.records import record


@record
class Remedy:
    """One switch. `patterns`: findings of `check` that suggest it. `patch`: what a user would write.

    `environment`: variables of the process, where it is nothing else. `needs_gpu`: it is not tried without one.
    `is_forecast`: a forecast for the findings is one for the remedy, too; else it changes something beside them.
    `changes_numbers`: losses may differ by rounding. `excludes`: remedies that it cannot be combined with.
    """

    name: str
    says: str
    patch: str
    patterns: tuple[str, ...]
    needs_gpu: bool = True
    changes_numbers: bool = False
    is_forecast: bool = True
    excludes: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


_DISPATCH = ("overhead-bound", "tiny-kernels", "op-loop", "memory-bound-elementwise", "call-count", "written-out")
_LOADER = ("input-starved",)
_COPIES = ("pageable-copy", "sync-in-step")
_COMPILES = ("compile", "compile-reduce-overhead", "compile-max-autotune")


def _compile(mode: str, patterns: tuple[str, ...]) -> Remedy:
    name = "compile" if mode == "default" else f"compile-{mode}"
    written = "max-autotune-no-cudagraphs" if mode == "max-autotune" else mode
    shown = "" if mode == "default" else f', mode="{written}"'
    return Remedy(
        name,
        f"torch.compile, mode {mode}",
        f"model = torch.compile(model{shown})",
        patterns,
        changes_numbers=True,
        excludes=tuple(each for each in _COMPILES if each != name),
    )


WORKERS = max(1, min(4, len(os.sched_getaffinity(0)) - 1))  # of a DataLoader: as many as the recorder sets

REMEDIES = (
    Remedy(
        "workers",
        "the DataLoader loads in processes",
        f"DataLoader(…, num_workers={WORKERS}, persistent_workers=True)",
        _LOADER,
        needs_gpu=False,
    ),
    Remedy("pin-memory", "batches in pinned memory", "DataLoader(…, pin_memory=True)", (*_LOADER, *_COPIES)),
    Remedy(
        "prefetch",
        "workers load further ahead",
        "DataLoader(…, prefetch_factor=8)",
        _LOADER,
        needs_gpu=False,
        is_forecast=False,
    ),
    Remedy("non-blocking", "copies that do not block", "batch.to(device, non_blocking=True)", _COPIES),
    Remedy(
        "tf32",
        "TF32 for float32 matmuls",
        'torch.set_float32_matmul_precision("high")',
        ("no-tensor-core",),
        changes_numbers=True,
    ),
    Remedy(
        "bf16",
        "bf16 autocast",
        'with torch.autocast("cuda", torch.bfloat16):\n    output = model(batch)',
        ("no-tensor-core", "compute-bound"),
        changes_numbers=True,
    ),
    Remedy(
        "fused-optimizer",
        "the optimizer's fused kernels",
        "AdamW(…, fused=True)",
        ("optimizer-loop", "tiny-kernels"),
        changes_numbers=True,
        excludes=("foreach-optimizer",),
    ),
    Remedy(
        "foreach-optimizer",
        "the optimizer's foreach kernels",
        "AdamW(…, foreach=True)",
        ("optimizer-loop",),
        changes_numbers=True,
        excludes=("fused-optimizer",),
    ),
    _compile("default", _DISPATCH),
    _compile("reduce-overhead", ("overhead-bound", "tiny-kernels")),
    _compile("max-autotune", ("compute-bound",)),
    Remedy(
        "channels-last",
        "convolutions on channels-last tensors",
        "model = model.to(memory_format=torch.channels_last)\nimages = images.to(memory_format=torch.channels_last)",
        ("layout-conversion",),
        changes_numbers=True,
    ),
    Remedy(
        "cudnn-benchmark",
        "cuDNN measures its algorithms",
        "torch.backends.cudnn.benchmark = True",
        ("layout-conversion", "deterministic-algorithms"),
        changes_numbers=True,
    ),
    Remedy(
        "fused-attention",
        "all fused backends of attention",
        "torch.backends.cuda.enable_flash_sdp(True)\ntorch.backends.cuda.enable_cudnn_sdp(True)",
        ("sdpa-math",),
        changes_numbers=True,
    ),
    Remedy(
        "no-deterministic-mode",
        "deterministic algorithms off",
        "torch.use_deterministic_algorithms(False)",
        ("deterministic-algorithms",),
        changes_numbers=True,
    ),
    Remedy(
        "no-anomaly-mode",
        "autograd's anomaly mode off",
        "torch.autograd.set_detect_anomaly(False)",
        ("anomaly-mode",),
        needs_gpu=False,
    ),
    Remedy(
        "keep-cache",
        "no torch.cuda.empty_cache() in steps",
        "# remove: torch.cuda.empty_cache()",
        ("alloc-in-step",),
    ),
    Remedy(
        "expandable-segments",
        "the allocator's segments grow",
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        ("alloc-in-step", "allocator-retries", "fragmentation"),
        environment={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    ),
    Remedy(
        "no-synchronize",
        "no torch.cuda.synchronize() in steps",
        "# remove: torch.cuda.synchronize()",
        ("repeated-synchronize", "sync-in-step"),
    ),
    Remedy(
        "thin-logging",
        "numbers are read from the GPU every tenth step",
        "if step % 10 == 0:\n    log(loss.item())",
        ("sync-in-step", "reads-one-by-one"),
    ),
    Remedy(
        "set-to-none",
        "gradients are dropped, not zeroed",
        "optimizer.zero_grad(set_to_none=True)",
        ("tiny-kernels",),
    ),
    Remedy(
        "gc-frozen",
        "no garbage collection in steps",
        "gc.collect(); gc.freeze(); gc.disable()",
        ("gc-pause", "host-code"),
        needs_gpu=False,
    ),
    Remedy(
        "bucket-view",
        "DDP's gradients are views of its buckets",
        "DistributedDataParallel(…, gradient_as_bucket_view=True)",
        ("exposed-comm", "hidden-copy"),
    ),
    Remedy(
        "bucket-size",
        "DDP's buckets of 100 MiB",
        "DistributedDataParallel(…, bucket_cap_mb=100)",
        ("exposed-comm",),
        changes_numbers=True,
    ),
    Remedy(
        "fsdp-prefetch",
        "FSDP gathers the next layer ahead",
        "FullyShardedDataParallel(…, forward_prefetch=True)",
        ("exposed-comm", "fsdp-prefetch"),
    ),
    Remedy(
        "threads-physical",
        "one thread per physical core",
        f"OMP_NUM_THREADS={max(1, (os.cpu_count() or 2) // 2)}",
        ("cpu-contention", "cpu-work"),
        needs_gpu=False,
        is_forecast=False,
        changes_numbers=True,
        excludes=("threads-one",),
        environment={"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 2) // 2))},
    ),
    Remedy(
        "threads-one",
        "one thread for ops on the CPU",
        "OMP_NUM_THREADS=1",
        ("cpu-contention", *_LOADER),
        needs_gpu=False,
        is_forecast=False,
        changes_numbers=True,
        excludes=("threads-physical",),
        environment={"OMP_NUM_THREADS": "1"},
    ),
)
"""In the order in which they are tried."""

BY_NAME = {remedy.name: remedy for remedy in REMEDIES}
TOGETHER = "together"


@record
class Evidence:
    """What the recording says. `fired`: ids of findings → the share of a step that their fix saves at most, or None.

    `places`: ids of findings → (file, number) of the lines that they name.
    """

    fired: Mapping[str, float | None]
    has_gpu: bool
    verdict: str = ""
    places: Mapping[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)


def choose_remedies(
    evidence: Evidence, only: Sequence[str] = (), without: Sequence[str] = (), everything: bool = False
) -> list[Remedy]:
    """Choose the remedies with evidence; those of `only` in any case. Raises TraceError for an unknown name."""
    for name in (*only, *without):
        if name not in BY_NAME:
            raise TraceError(f"no remedy {name!r}: {', '.join(BY_NAME)}")
    if only:
        return [BY_NAME[name] for name in dict.fromkeys(only) if name not in without]
    return [
        remedy
        for remedy in REMEDIES
        if remedy.name not in without
        and (evidence.has_gpu or not remedy.needs_gpu)
        and (everything or any(pattern in evidence.fired for pattern in remedy.patterns))
    ]


def predict_saving(remedy: Remedy, evidence: Evidence) -> tuple[str, float | None]:
    """Return the finding with the largest forecast for a remedy, and its share of a step; ("", None): none."""
    known = [(share, name) for name in remedy.patterns if (share := evidence.fired.get(name)) is not None]
    if not known or not remedy.is_forecast:
        return "", None
    share, name = max(known)
    if remedy.name == "workers":  # they load side by side, beside the rest of the step: the longer of both remains
        share = min(share, 1 - max(1 - share, share / WORKERS))
    return name, share


def combine(remedies: Iterable[Remedy]) -> list[Remedy]:
    """Combine remedies, the first of those that exclude each other. They come with the best first."""
    chosen: list[Remedy] = []
    for remedy in remedies:
        if not any(remedy.name in each.excludes for each in chosen):
            chosen.append(remedy)
    return chosen
