"""Faults on the host: a sync, input, a cold start, an optimizer loop, recompilation, the garbage collector."""

# mypy: allow-subclassing-any, allow-untyped-calls

from __future__ import annotations

import gc
import zlib
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the usual name
from torch.profiler import record_function
from torch.utils.data import DataLoader, Dataset

from tools.fault_programs.models import LanguageModel, NormedLayers, PatchClassifier
from tools.fault_programs.profiling import Run, profile_steps


def loss_printed(run: Run) -> None:
    """Train on 128 short sequences a step; the faulty variant prints the loss of each before the backward pass."""
    model = LanguageModel(2, run.size(2048, 128)).to(run.device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(1024, (run.size(128, 8), 33), device=run.device)
    history = []

    def step(index: int) -> None:
        with record_function("forward"):
            losses = model(tokens)
        if run.faulty:
            for sample in range(len(losses)):
                print(f"step {index} sample {sample}: loss {losses[sample].item():.4f}")
        else:
            history.append(losses.detach())
        with record_function("backward"):
            losses.mean().backward()
        with record_function("optimizer"):
            optimizer.step()
            optimizer.zero_grad()

    profile_steps(run, step)
    for index, losses in enumerate(history):
        print(f"step {index}: losses {losses.tolist()}")


LINEAR = np.square(np.arange(256, dtype=np.float32) / 255)
"""Linear intensity by pixel value, for a gamma of 2."""


class CompressedImages(Dataset[tuple[Tensor, int]]):
    """Images that are decompressed, corrected and cropped when they are read."""

    def __init__(self, count: int) -> None:
        ramp = np.add.outer(np.arange(256), np.arange(256)).astype(np.uint8)
        noise = np.random.default_rng(0).integers(0, 32, (8, 3, 256, 256), dtype=np.uint8)
        self.files = [zlib.compress((ramp + image).tobytes()) for image in noise]
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        pixels = np.frombuffer(zlib.decompress(self.files[index % len(self.files)]), np.uint8).reshape(3, 256, 256)
        linear = LINEAR[pixels]
        smooth = (linear + np.roll(linear, 1, 1) + np.roll(linear, 1, 2)) / 3
        image = (np.sqrt(smooth[:, 64:192, 64:192]) * 255).astype(np.uint8)
        return torch.from_numpy(image), index % 100


def no_workers(run: Run) -> None:
    """Train an image classifier; the faulty variant decodes all images in the training process."""
    batch = run.size(32, 4)
    workers = 0 if run.faulty else run.size(12, 1)
    ahead = {} if run.faulty else {"prefetch_factor": 2, "persistent_workers": True}
    images = CompressedImages(batch * 40)
    loader = DataLoader(images, batch, num_workers=workers, pin_memory=run.on_gpu, **ahead)  # type: ignore[arg-type]
    model = PatchClassifier(run.size(2, 1), run.size(2048, 128), patch=8).to(run.device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    batches = iter(loader)

    def step(_: int) -> None:
        with record_function("data"):
            pixels, labels = next(batches)
            pixels, labels = pixels.to(run.device, non_blocking=True), labels.to(run.device, non_blocking=True)
        with record_function("forward"):
            loss = model(pixels, labels)
        with record_function("backward"):
            loss.backward()
        with record_function("optimizer"):
            optimizer.step()
            optimizer.zero_grad()

    profile_steps(run, step)


def cold_start(run: Run) -> None:
    """Train a language model; the faulty variant records from the very first step."""
    model = LanguageModel(2, run.size(2048, 128)).to(run.device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(1024, (run.size(16, 2), run.size(513, 33)), device=run.device)

    def step(_: int) -> None:
        with record_function("forward"):
            loss = model(tokens).mean()
        with record_function("backward"):
            loss.backward()
        with record_function("optimizer"):
            optimizer.step()
            optimizer.zero_grad()

    if run.faulty:
        profile_steps(run, step, wait=0, warmup=0)
    else:
        profile_steps(run, step, wait=3, warmup=2)


def per_parameter_optimizer(run: Run) -> None:
    """Train 40 parameters with AdamW; the faulty variant updates one after the other."""
    width = run.size(2048, 64)
    model = NormedLayers(10, width).to(run.device, torch.bfloat16)
    kind = {"foreach": False} if run.faulty else {"fused": True}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **kind)  # type: ignore[arg-type]
    x = torch.randn(run.size(6144, 16), width, device=run.device, dtype=torch.bfloat16)

    def step(_: int) -> None:
        with record_function("forward"):
            loss = model(x)
        with record_function("backward"):
            loss.backward()
        with record_function("optimizer"):
            optimizer.step()
            optimizer.zero_grad()

    profile_steps(run, step)


def _transform(x: Tensor, w: Tensor) -> Tensor:
    return F.softmax(F.gelu(x @ w) * 2 + x, -1)


def recompiles(run: Run) -> None:
    """Run a compiled layer on sequences of changing length; the faulty variant compiles it again for each length.

    All lengths are compiled once before, so that Inductor's benchmarks, kept on disk, do not fill the trace.
    """
    width, longest = run.size(4096, 64), run.size(8192, 64)
    lengths = [longest - run.size(256, 4) * number for number in range(6)]
    w = torch.randn(width, width, device=run.device, dtype=torch.bfloat16)
    batches = [torch.randn(length, width, device=run.device, dtype=torch.bfloat16) for length in lengths]

    def compile_layer(backend: str) -> Callable[[Tensor, Tensor], Tensor]:
        torch._dynamo.reset()
        return torch.compile(_transform, dynamic=False, backend=backend)

    def step(index: int) -> None:
        with record_function("data"):
            x = batches[index]
            if not run.faulty:
                x = F.pad(x, (0, 0, 0, longest - len(x)))
        with record_function("forward"):
            for _ in range(4):
                layer(x, w)

    backend = "inductor"
    with torch.no_grad():
        try:
            layer = compile_layer(backend)
            for index in range(len(batches)):
                step(index)
        except Exception as error:  # whatever a missing compiler leads to
            backend = "aot_eager"
            run.note(f"Inductor failed: {type(error).__name__}")
        run.note(f"backend {backend}")
        layer = compile_layer(backend)
        profile_steps(run, step, wait=1, warmup=1)


def gc_pauses(run: Run) -> None:
    """Train a language model beside a large heap; the faulty variant collects garbage in each step."""
    heap = [[index, [index]] for index in range(run.size(400_000, 10_000))]
    model = LanguageModel(2, run.size(2048, 128)).to(run.device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(1024, (run.size(8, 2), run.size(1025, 33)), device=run.device)
    if not run.faulty:
        gc.freeze()
        gc.disable()

    def step(_: int) -> None:
        with record_function("forward"):
            loss = model(tokens).mean()
        with record_function("backward"):
            loss.backward()
        with record_function("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        if run.faulty:
            gc.collect()

    profile_steps(run, step)
    gc.collect()
    run.note(f"{2 * len(heap)} lists on the heap")
