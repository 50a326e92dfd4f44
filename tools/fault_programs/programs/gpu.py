"""Faults in the GPU's work: routing with nonzero, fp32 matmuls, an elementwise chain, channels-first convolutions."""

# mypy: allow-untyped-calls

from __future__ import annotations

import contextlib

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the usual name
from torch.profiler import record_function

from tools.fault_programs.models import ConvolutionNet, Experts, LanguageModel
from tools.fault_programs.profiling import Run, profile_steps


def nonzero_routing(run: Run) -> None:
    """Run four layers of eight experts; the faulty variant loops over the experts and finds their tokens by nonzero."""
    width = run.size(1024, 32)
    model = nn.Sequential(*(Experts(8, width, loop=run.faulty) for _ in range(4))).to(run.device, torch.bfloat16)
    x = torch.randn(run.size(12288, 64), width, device=run.device, dtype=torch.bfloat16)

    def step(_: int) -> None:
        with record_function("forward"), torch.no_grad():
            model(x)

    profile_steps(run, step)


def fp32_matmuls(run: Run) -> None:
    """Train a language model with fp32 weights; the faulty variant multiplies in fp32, the other one in bf16."""
    torch.set_float32_matmul_precision("highest")
    model = LanguageModel(2, run.size(2048, 128)).to(run.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(1024, (run.size(16, 2), run.size(257, 33)), device=run.device)
    device = "cuda" if run.on_gpu else "cpu"

    def step(_: int) -> None:
        precision = contextlib.nullcontext() if run.faulty else torch.autocast(device, torch.bfloat16)
        with record_function("forward"), precision:
            loss = model(tokens).mean()
        with record_function("backward"):
            loss.backward()
        with record_function("optimizer"):
            optimizer.step()
            optimizer.zero_grad()

    profile_steps(run, step)


def _activate(x: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
    """Compute a gated GELU in fp32, op by op."""
    y = x.float() * gain + shift
    inner = 0.7978845608 * (y + 0.044715 * y * y * y)
    gelu = 0.5 * y * (1 + torch.tanh(inner))
    gate = 1 / (1 + torch.exp(-y))
    return (gelu * gate + 0.1 * torch.sin(y)).to(x.dtype)


def unfused_elementwise(run: Run) -> None:
    """Run four layers with an activation of 20 elementwise ops; the mended variant compiles the activation."""
    rows, width = run.size(8192, 32), run.size(8192, 64)
    x = torch.randn(rows, width // 2, device=run.device, dtype=torch.bfloat16)
    up = torch.randn(width // 2, width, device=run.device, dtype=torch.bfloat16) / width**0.5
    down = torch.randn(width, width // 2, device=run.device, dtype=torch.bfloat16) / width**0.5
    gain, shift = torch.ones(width, device=run.device), torch.zeros(width, device=run.device)
    activate = _activate
    if not run.faulty:
        try:
            activate = torch.compile(_activate)
            activate(x @ up, gain, shift)
            run.note("fused by torch.compile")
        except Exception as error:  # whatever a missing compiler leads to
            run.note(f"torch.compile failed ({type(error).__name__}): the built-in GELU instead")

            def activate(x: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
                return F.gelu(x, approximate="tanh")

    def step(_: int) -> None:
        with record_function("forward"), torch.no_grad():
            y = x
            for _layer in range(4):
                y = activate(y @ up, gain, shift) @ down

    profile_steps(run, step)


def channels_first(run: Run) -> None:
    """Train a convolution net in fp16; the mended variant uses the layout that tensor cores read."""
    layout = torch.contiguous_format if run.faulty else torch.channels_last
    model = ConvolutionNet(3, run.size(64, 8)).to(run.device, torch.float16 if run.on_gpu else torch.bfloat16)
    model = model.to(memory_format=layout)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
    images = torch.randn(run.size(256, 2), 8, run.size(56, 8), run.size(56, 8), device=run.device)
    images = images.to(model.head.weight.dtype).to(memory_format=layout)
    labels = torch.randint(100, (len(images),), device=run.device)

    def step(_: int) -> None:
        with record_function("forward"):
            loss = model(images, labels)
        with record_function("backward"):
            loss.backward()
        with record_function("optimizer"):
            optimizer.step()
            optimizer.zero_grad()

    profile_steps(run, step)
