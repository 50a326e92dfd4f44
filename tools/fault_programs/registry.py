"""List the fault programs: what each injects, how it is mended, and what a first sentence must mention."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class MissingGPUsError(Exception):
    """A program needs more GPUs than this machine has."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One program with one fault.

    `module` is the module of `tools.fault_programs.programs` that has a function of the fault's name. `sentence` holds
    lower-case regular expressions: at least one matches the first sentence about the faulty trace (in lower case), none
    matches the first sentence about the mended one; empty where more important things come first. `pattern` must fire
    for the faulty trace and not for the mended one, "" for none.
    """

    module: str
    injected: str
    mended: str
    sentence: tuple[str, ...]
    ranks: int = 1
    with_stack: bool = False
    pattern: str = ""


FAULTS: dict[str, Fault] = {
    "loss_printed": Fault(
        "host",
        "the loss of every sample is printed in each step, and read with item() for it",
        "the losses stay on the GPU; they are printed after the last step",
        (r"\bitem\b", r"\bsync", r"\bloss(es)?\b"),
        with_stack=True,
    ),
    "nonzero_routing": Fault(
        "gpu",
        "a mixture of experts finds each expert's tokens with nonzero, in a loop over the experts",
        "tokens are sorted by expert, and one batched matmul serves all experts",
        (r"nonzero", r"boolean mask", r"\bexperts?\b", r"\brouting\b"),
    ),
    "pageable_batch": Fault(
        "memory",
        "each batch of 77 MB is copied to the GPU from pageable memory",
        "the batches are pinned, and copied with non_blocking=True",
        (r"pageable", r"pin_memory", r"\bpin\b"),
        with_stack=True,
    ),
    "no_workers": Fault(
        "host",
        "a DataLoader without workers decodes every image in the training process",
        "12 workers decode ahead",
        (r"data ?loader", r"\bworkers?\b", r"\binput\b"),
        with_stack=True,
    ),
    "slow_host_rank": Fault(
        "ranks",
        "rank 1 spends another 150 us of Python on every op",
        "no rank does",
        (r"slow(er)? host", r"rank 1\b.*\b(slow|times as long|dispatch)", r"\bslow(er|est)?\b.*\brank 1\b"),
        ranks=2,
    ),
    "late_rank": Fault(
        "ranks",
        "rank 1 pauses for 30 ms before the backward pass of each step",
        "no rank pauses",
        (r"rank 1\b.*\b(late|last|pause|sleep|wait)", r"late (rank|peer)", r"\bwait\w*\b.*\brank 1\b"),
        ranks=2,
    ),
    "cold_start": Fault(
        "host",
        "the recording begins with the program's first step: wait=0, warmup=0",
        "the profiler skips five steps",
        (r"\bcold\b", r"\bwarm(ed)?[ -]?up\b", r"first step"),
    ),
    "fp32_matmuls": Fault(
        "gpu",
        "matmuls in fp32, TF32 not allowed",
        "bf16 autocast",
        (r"fp32 (gemm|matmul)", r"(gemm|matmul)s? in (fp32|float32)", r"\btf32\b", r"without tensor cores"),
    ),
    "unfused_elementwise": Fault(
        "gpu",
        "an activation written as a chain of elementwise ops on tensors of 268 MB",
        "torch.compile fuses the chain",
        (r"elementwise", r"\bfuse\b", r"memory.bound"),
    ),
    "channels_first": Fault(
        "gpu",
        "fp16 convolutions on NCHW tensors: cuDNN converts the layout around each",
        "model and images are channels_last",
        (r"layout", r"nchw", r"channels.last"),
    ),
    "per_parameter_optimizer": Fault(
        "host",
        "AdamW(foreach=False): about 13 small kernels per parameter",
        "AdamW(fused=True)",
        (r"optimizer", r"adamw", r"fused=true", r"foreach"),
    ),
    "allocator_thrash": Fault(
        "memory",
        "torch.cuda.empty_cache() in each step: all memory is freed and allocated again",
        "empty_cache() is not called",
        (r"cudamalloc", r"cudafree", r"empty_cache", r"\balloc\w*"),
        with_stack=True,
    ),
    "recompiles": Fault(
        "host",
        "torch.compile(dynamic=False) gets a new length in each step",
        "batches are padded to one length",
        (r"recompil", r"\bcompiling\b", r"compiled again", r"mark.{0,20}dynamic", r"\bpad\b"),
    ),
    "exposed_all_gather": Fault(
        "ranks",
        "sharded weights are gathered right before each layer uses them",
        "each layer's weights are gathered while the layer before computes",
        (r"all.?gather", r"\bexposed\b", r"prefetch", r"\boverlap"),
        ranks=2,
    ),
    "gc_pauses": Fault(
        "host",
        "gc.collect() in each step, with 800,000 lists on the heap",
        "gc.freeze() and gc.disable(); garbage is collected after the last step",
        (r"garbage", r"\bgc\b", r"\bcollector\b"),
        with_stack=True,
    ),
    "kv_cache_cat": Fault(
        "serving",
        "a language model appends each token's keys and values to its KV cache with torch.cat",
        "they are written into a cache of the full length",
        (r"kv.cache is copied", r"\bcat\b"),
        pattern="kv-cache-cat",
    ),
    "end_of_sequence_item": Fault(
        "serving",
        "after each token, the last token of each sequence is read with item() to see whether the text has ended",
        "the GPU counts the sequences that have ended, which is read after every 16th token",
        (r"\bitem\b", r"end.of.sequence", r"\bsync"),
        pattern="token-sync",
    ),
    "padded_batches": Fault(
        "serving",
        "batches of 17 to 32 sequences replay the one CUDA graph that was captured, for 32",
        "a graph was captured for each of these sizes",
        (),  # what it costs is an upper limit only
        pattern="graph-padding",
    ),
    "eager_fallback": Fault(
        "serving",
        "graphs were captured for up to 16 sequences; every third step has 20 and runs eagerly",
        "a graph was captured for 20 as well",
        (r"\beager(ly)?\b", r"without a (cuda )?graph", r"\bfall.?back\b"),
        pattern="eager-fallback",
    ),
    "mixed_batches": Fault(
        "serving",
        "every sixth step also reads four prompts of 4,096 tokens, and all sequences wait for their next token",
        "the prompts are read 128 tokens at a time",
        (),  # tokens come late, but no GPU time is lost
        pattern="mixed-batch",
    ),
    "slow_scheduler": Fault(
        "serving",
        "between two steps, a scheduler in Python sorts 2,000 requests, and the GPU waits",
        "it looks at the running requests only",
        (r"between (two )?steps", r"\bscheduler\b"),
        pattern="scheduler-bound",
    ),
}
"""By name, in the order in which they are recorded."""

VARIANTS = ("faulty", "mended")


def find_program(name: str) -> Callable[[Any], None]:
    """Import the function that runs program `name` with a `profiling.Run`; this imports torch."""
    module = importlib.import_module(f"{__package__}.programs.{FAULTS[name].module}")
    program: Callable[[Any], None] = getattr(module, name)
    return program
