"""Launch a wide range of real PyTorch kernels once each; run by record_occupancy.py on a CUDA GPU.

    python tools/occupancy_workload.py [--trace FILE]

With --trace the kernels are profiled with torch.profiler into FILE; without it they only run, so that another profiler
can record them. Both modes launch the same kernels in the same order.
"""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812  (its usual name)
from torch.nn.attention import SDPBackend, sdpa_kernel


def run_matmuls() -> None:
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        for m, n, k in ((64, 64, 64), (1024, 1024, 1024), (4096, 4096, 4096), (8, 4096, 4096), (333, 77, 1001)):
            a = torch.ones(m, k, device="cuda", dtype=dtype)
            b = torch.ones(k, n, device="cuda", dtype=dtype)
            a @ b
            torch.addmm(torch.ones(n, device="cuda", dtype=dtype), a, b)
    torch.backends.cuda.matmul.allow_tf32 = True
    x = torch.ones(2048, 2048, device="cuda")
    x @ x
    y = torch.ones(8, 256, 256, device="cuda", dtype=torch.bfloat16)
    torch.bmm(y, y)
    d = torch.ones(512, 512, device="cuda", dtype=torch.float64)
    d @ d


def run_attention() -> None:
    backends = (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH)
    for width in (64, 128):
        for backend in backends:
            q = torch.ones(2, 8, 512, width, device="cuda", dtype=torch.bfloat16, requires_grad=True)
            with sdpa_kernel(backend):
                F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()


def run_small_kernels() -> None:
    x = torch.ones(1024, 1024, device="cuda", requires_grad=True)
    norm = torch.nn.LayerNorm(1024, device="cuda")
    F.gelu(norm(x)).softmax(-1).sum().backward()
    y = x.detach().to(torch.bfloat16)
    for call in (torch.relu, torch.sigmoid, torch.exp, torch.rsqrt, torch.sort, torch.argmax, torch.nonzero):
        call(y)
    torch.topk(y, 16)
    torch.cumsum(y, 0)
    torch.cat([y, y], 1)
    torch.where(y > 0, y, 0 * y)
    y.t().contiguous()
    y.mean()
    y.std()
    torch.randn(1000, 1000, device="cuda")
    torch.randperm(5000, device="cuda")
    indices = torch.arange(512, device="cuda")
    weights = torch.nn.Embedding(1000, 256, device="cuda")
    weights(indices).sum().backward()
    F.cross_entropy(x, indices.repeat(2)).backward()
    F.dropout(y, 0.5)


def run_training() -> None:
    images = torch.ones(8, 3, 64, 64, device="cuda")
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 64, 7, 2, 3),
        torch.nn.BatchNorm2d(64),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(64, 128, 3, padding=1),
        torch.nn.GroupNorm(8, 128),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(128, 10),
    ).cuda()
    for optimizer in (torch.optim.AdamW(net.parameters()), torch.optim.AdamW(net.parameters(), fused=True)):
        net(images).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    recurrent = torch.nn.LSTM(64, 128, device="cuda")
    recurrent(torch.ones(8, 4, 64, device="cuda"))[0].sum().backward()


def run_all() -> None:
    """Run all parts; one that this GPU does not support is skipped."""
    torch.manual_seed(0)
    for part in (run_matmuls, run_attention, run_small_kernels, run_training):
        with contextlib.suppress(RuntimeError):  # a backend that this GPU does not support
            part()
    torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=Path)
    trace = parser.parse_args().trace
    if trace is None:
        run_all()
        return
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        run_all()
    profile.export_chrome_trace(str(trace))


if __name__ == "__main__":
    main()
