"""Profile the steps of a fault program, on one rank or on several."""

# mypy: allow-untyped-calls

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import distributed
from torch.multiprocessing import spawn  # type: ignore[attr-defined]
from torch.profiler import ProfilerActivity, profile, schedule

from .registry import FAULTS, MissingGPUsError, find_program


@dataclass(frozen=True)
class Run:
    """What one process of a fault program runs: the program, its variant, its device, where the trace goes."""

    name: str
    faulty: bool
    output: str
    device: str
    rank: int = 0

    @property
    def on_gpu(self) -> bool:
        return self.device.startswith("cuda")

    def size(self, on_gpu: int, on_cpu: int) -> int:
        """Choose a size: on a GPU one that keeps it busy, on a CPU one that a test can wait for."""
        return on_gpu if self.on_gpu else on_cpu

    def note(self, text: str) -> None:
        """Print a fact about this run that belongs into origin.json."""
        if self.rank == 0:
            print(f"note: {text}", flush=True)


def profile_steps(run: Run, step: Callable[[int], object], wait: int = 3, warmup: int = 2, active: int = 4) -> None:
    """Call `step(index)` for each step of the schedule, and write the trace of the active ones to `run.output`.

    The GPU's queue is drained before the first active step, so that all recorded kernels have their launch recorded.
    """
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if run.on_gpu else [])]
    with profile(
        activities=activities,
        schedule=schedule(wait=wait, warmup=warmup, active=active, repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(run.output),
        record_shapes=True,
        with_stack=FAULTS[run.name].with_stack,
    ) as profiler:
        for index in range(wait + warmup + active):
            step(index)
            if run.on_gpu and index == wait + warmup - 1:
                torch.cuda.synchronize()
            profiler.step()


def run_program(run: Run) -> None:
    """Run a fault program in this process, or in one process per rank.

    Raises MissingGPUsError if it needs more GPUs than there are.
    """
    ranks = FAULTS[run.name].ranks
    if run.on_gpu and torch.cuda.device_count() < ranks:
        raise MissingGPUsError(f"{run.name} needs {ranks} GPUs, {torch.cuda.device_count()} found")
    if ranks == 1:
        torch.manual_seed(0)
        find_program(run.name)(run)
        return
    with tempfile.TemporaryDirectory() as folder:
        spawn(_run_rank, (run, ranks, os.path.join(folder, "rendezvous")), nprocs=ranks)


def _run_rank(rank: int, run: Run, ranks: int, rendezvous: str) -> None:
    """Run one rank; its trace is named NAME.rankN.json.gz."""
    device = run.device
    if run.on_gpu:
        device = f"cuda:{rank}"
        torch.cuda.set_device(rank)
    distributed.init_process_group(
        "nccl" if run.on_gpu else "gloo",
        init_method=f"file://{rendezvous}",
        rank=rank,
        world_size=ranks,
        device_id=torch.device(device) if run.on_gpu else None,
    )
    torch.manual_seed(0)
    output = run.output.removesuffix(".json.gz") + f".rank{rank}.json.gz"
    find_program(run.name)(replace(run, device=device, output=output, rank=rank))
    distributed.barrier()
    distributed.destroy_process_group()
