"""Faults with memory: a pageable batch, an allocator cache that is emptied in each step."""

# mypy: allow-untyped-calls

from __future__ import annotations

import torch
from torch.profiler import record_function

from tools.fault_programs.models import LanguageModel, PatchClassifier
from tools.fault_programs.profiling import Run, profile_steps


def pageable_batch(run: Run) -> None:
    """Train an image classifier on fp32 batches of 77 MB; the mended variant keeps them in pinned memory."""
    count, side = run.size(128, 2), run.size(224, 32)
    model = PatchClassifier(2, run.size(768, 128), patch=16).to(run.device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    batches = [torch.randn(count, 3, side, side) for _ in range(3)]
    labels = torch.randint(100, (count,), device=run.device)
    pinned = run.on_gpu and not run.faulty
    if pinned:
        batches = [batch.pin_memory() for batch in batches]

    def step(index: int) -> None:
        with record_function("data"):
            images = batches[index % len(batches)].to(run.device, non_blocking=pinned)
        with record_function("forward"):
            loss = model(images, labels)
        with record_function("backward"):
            loss.backward()
        with record_function("optimizer"):
            optimizer.step()
            optimizer.zero_grad()

    profile_steps(run, step)


def allocator_thrash(run: Run) -> None:
    """Train a language model; the faulty variant returns all cached memory to the driver in each step."""
    model = LanguageModel(2, run.size(2048, 128)).to(run.device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(1024, (run.size(8, 2), run.size(1025, 33)), device=run.device)

    def step(_: int) -> None:
        with record_function("forward"):
            loss = model(tokens).mean()
        with record_function("backward"):
            loss.backward()
        with record_function("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        if run.faulty:
            torch.cuda.empty_cache()

    profile_steps(run, step)
