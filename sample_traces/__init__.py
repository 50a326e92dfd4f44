"""Small real traces that ship with the program, in the order in which they teach.

Origin of all: NVIDIA H200, torch 2.11.0+cu130, CUDA 13.0, Python 3.12; recorded for this project.
`README.md` beside this file says the same to people who look at the folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ORIGIN = "NVIDIA H200, torch 2.11.0+cu130, CUDA 13.0, Python 3.12"


@dataclass(frozen=True, slots=True)
class Sample:
    """One recorded trace: what ran, and what a reader should look for in it."""

    name: str
    ran: str
    look: str

    @property
    def path(self) -> Path:
        return Path(__file__).resolve().parent / f"{self.name}.pt.trace.json.gz"


SAMPLES = (
    Sample(
        "matmul_add_64_cold_eager",
        "torch.add(torch.matmul(x, w), b) on 64x64 bf16, three steps, nothing warmed up",
        "start here: one step, two ops, two kernels; the first step is the widest; the GPU hardly works",
    ),
    Sample(
        "matmul_add_64_sched0_active3",
        "the same, recorded from the very first call: schedule(wait=0, warmup=0)",
        "what a cold start costs: the first matmul takes 78 ms before its kernel of microseconds runs",
    ),
    Sample(
        "matmul_add_4096_warm_eager",
        "the same at 4096x4096, after ten warm calls",
        "now the GPU is the slow side: kernels queue up behind each other",
    ),
    Sample(
        "matmul_add_4096_warm_compile",
        "the same through torch.compile",
        "one op where eager had two, and the guards and wrappers around it",
    ),
    Sample(
        "attention_naive",
        "causal attention 4x16x2048x64 bf16, written by hand",
        "six kernels and a copy a step, where one kernel would do (see attention_flash)",
    ),
    Sample(
        "attention_flash",
        "the same attention through SDPA's flash backend",
        "one kernel a step does all of it",
    ),
    Sample(
        "cuda_graph_replay",
        "five replays of a captured MLP",
        "one cudaGraphLaunch, twenty-four kernels",
    ),
    Sample(
        "multi_stream_overlap",
        "matmuls on one stream, copies on another",
        "two stream lanes at work at once",
    ),
    Sample(
        "compile_recompiles",
        "torch.compile(dynamic=False) fed a new shape each step",
        "hundreds of milliseconds of compiling in every step, microseconds of GPU work",
    ),
    Sample(
        "resnet18_starved_dataloader",
        "ResNet-18 training steps, fed by a slow data set in the training process",
        "the GPU waits at the start of each step while the CPU loads the next batch",
    ),
    Sample(
        "gpt2_train_stack_memory",
        "two training steps of a small GPT-2 with Python stacks, shapes and memory",
        "everything at once: Python frames down to kernels, forward and backward, the memory curve",
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
