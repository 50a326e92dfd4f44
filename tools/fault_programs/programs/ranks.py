"""Faults between two ranks: a slow host, a late rank, an exposed all-gather."""

# mypy: no-warn-return-any, allow-subclassing-any, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, distributed
from torch.nn import functional as F  # noqa: N812 - the usual name
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import record_function
from torch.utils._python_dispatch import TorchDispatchMode

from tools.fault_programs.models import LanguageModel
from tools.fault_programs.profiling import Run, profile_steps

SLOW_HOST_SECONDS = 150e-6  # per op: with some 200 ops a step, more than the GPU works in one
PAUSE_SECONDS = 0.03  # twice what the GPU works in a step


class SlowHost(TorchDispatchMode):
    """Spend some Python time on every op, as a debugging aid that was left on would."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        deadline = time.perf_counter() + SLOW_HOST_SECONDS
        while time.perf_counter() < deadline:
            pass
        return function(*args, **(kwargs or {}))


def _train_in_parallel(run: Run, slow: bool = False, before_backward: Callable[[], None] = lambda: None) -> None:
    """Train a language model with DDP; `slow`: on a slow host."""
    model = LanguageModel(2, run.size(2048, 128)).to(run.device, torch.bfloat16)
    parallel = DistributedDataParallel(model, device_ids=[run.rank] if run.on_gpu else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(1024, (run.size(16, 2), run.size(513, 33)), device=run.device)

    def step(_: int) -> None:
        with SlowHost() if slow else contextlib.nullcontext():
            with record_function("forward"):
                loss = parallel(tokens).mean()
            before_backward()
            with record_function("backward"):
                loss.backward()
            with record_function("optimizer"):
                optimizer.step()
                optimizer.zero_grad()

    profile_steps(run, step)


def slow_host_rank(run: Run) -> None:
    """Train on two ranks; in the faulty variant every op takes rank 1 another 150 us."""
    _train_in_parallel(run, slow=run.faulty and run.rank == 1)


def late_rank(run: Run) -> None:
    """Train on two ranks; in the faulty variant rank 1 writes statistics to a slow disk before each backward pass."""

    def write_statistics() -> None:
        if run.faulty and run.rank == 1:
            time.sleep(PAUSE_SECONDS)

    _train_in_parallel(run, before_backward=write_statistics)


def exposed_all_gather(run: Run) -> None:
    """Run six layers with sharded weights; the mended variant gathers a layer's weights while the last one computes."""
    layers, width = 6, run.size(4096, 32)
    shards = [torch.randn(4 * width * width, device=run.device, dtype=torch.bfloat16) * 0.01 for _ in range(layers)]
    gathered = [torch.empty(8 * width * width, device=run.device, dtype=torch.bfloat16) for _ in range(2)]

    def gather(layer: int) -> Any:
        return distributed.all_gather_into_tensor(gathered[layer % 2], shards[layer], async_op=not run.faulty)

    def compute(layer: int, x: Tensor) -> Tensor:
        up, down = gathered[layer % 2].view(2, width, 4 * width)
        return x + F.gelu(x @ up) @ down.view(4 * width, width)

    tokens = _choose_tokens(run, gathered[0], shards[0], compute) if run.on_gpu else 16
    batch = torch.randn(tokens, width, device=run.device, dtype=torch.bfloat16)

    def step(_: int) -> None:
        with record_function("forward"), torch.no_grad():
            x = batch
            for layer in range(layers):
                if run.faulty:
                    gather(layer)
                else:
                    ahead.pop().wait()
                    ahead.append(gather((layer + 1) % layers))
                x = compute(layer, x)

    ahead = [] if run.faulty else [gather(0)]
    profile_steps(run, step)
    for pending in ahead:
        pending.wait()


def _choose_tokens(run: Run, full: Tensor, shard: Tensor, compute: Callable[[int, Tensor], Tensor]) -> int:
    """Choose how many tokens make a layer's computation half as long again as its all-gather, on any link."""
    x = torch.randn(2048, int((full.numel() // 8) ** 0.5), device=run.device, dtype=full.dtype)

    def measure_milliseconds(work: Callable[[], object], runs: int = 10) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for number in range(runs + 3):
            if number == 3:
                start.record()
            work()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) / runs

    communication = measure_milliseconds(lambda: distributed.all_gather_into_tensor(full, shard))
    with torch.no_grad():
        computation = measure_milliseconds(lambda: compute(0, x))
    tokens = torch.tensor([1.5 * communication / computation * len(x)], device=run.device)
    distributed.broadcast(tokens, 0)
    run.note(f"all-gather of {full.numel() * 2 / 1e6:.0f} MB takes {communication:.3f} ms")
    return min(max(int(tokens.item()) // 256 * 256, 512), 65536)
