"""Training a small GPT: a DataLoader, forward, backward, an optimizer; on several ranks with DDP.

    torchprof-tui run train_gpt                     torchprof-tui run train_gpt --starve

What to expect in the trace:

- Each step: enumerate(DataLoader)…__next__, a copy to the GPU, forward, backward (on a thread of its own, with links
  back to the forward ops), Optimizer.step#AdamW.step with its few large foreach kernels.
- The model is small and its kernels short, so the CPU can hardly launch them fast enough: the GPU has gaps everywhere.
  Raise ``--width`` and ``--batch`` and it becomes busy.
- ``--item``: the loss is read each step. loss.item() waits for the GPU, and the next step's launches start late.
- ``--starve``: each sample takes 2 ms to load, in this very process: the GPU waits at the start of each step, under
  the DataLoader's name. ``--starve --workers 4`` loads ahead in other processes, and the wait is gone.
- On several ranks (``--nproc 2``) gradients are averaged in buckets during backward: nccl or gloo ranges, all-reduce.
  ``--late-rank 1``: that rank sleeps 3 ms before its backward, and all the others wait for it in the first collective.
"""

# mypy: allow-subclassing-any, allow-untyped-calls

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import distributed
from torch.nn import functional as F  # noqa: N812 - the usual name
from torch.profiler import record_function
from torch.utils.data import DataLoader, Dataset

VOCABULARY_SIZE = 1024


class TokenDataset(Dataset[torch.Tensor]):
    """Random token sequences, each of which takes `delay` seconds to load."""

    def __init__(self, count: int, length: int, delay: float) -> None:
        self.count, self.length, self.delay = count, length, delay

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.delay)
        return torch.randint(VOCABULARY_SIZE, (self.length + 1,), generator=torch.Generator().manual_seed(index))


class Block(torch.nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        hidden: torch.Tensor = x + self.down(F.gelu(self.up(self.norm2(x))))
        return hidden


class GPT(torch.nn.Module):
    def __init__(self, layers: int, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.token_embedding = torch.nn.Embedding(VOCABULARY_SIZE, width)
        self.position_embedding = torch.nn.Embedding(length, width)
        self.blocks = torch.nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, VOCABULARY_SIZE, bias=False)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.token_embedding(tokens) + self.position_embedding.weight[: tokens.shape[1]]
        logits = self.head(self.norm(self.blocks(x)))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def train_step(
    batches: Iterator[torch.Tensor],
    model: Callable[..., torch.Tensor],
    optimizer: torch.optim.Optimizer,
    device: str,
    delay: float = 0.0,
) -> torch.Tensor:
    """Run one iteration of the training loop; sleep for `delay` seconds before backward."""
    batch = next(batches).to(device, non_blocking=True)
    with record_function("forward"):
        loss = model(batch[:, :-1], batch[:, 1:])
    if delay:
        time.sleep(delay)
    with record_function("backward"):
        loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss


def step(
    batches: Iterator[torch.Tensor],
    model: Callable[..., torch.Tensor],
    optimizer: torch.optim.Optimizer,
    device: str,
    item: bool,
    delay: float = 0.0,
) -> float | None:
    """Run one step, which is what the profiler counts."""
    loss = train_step(batches, model, optimizer, device, delay)
    return loss.item() if item else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--length", type=int, default=128, help="tokens in a sequence (default 128)")
    parser.add_argument("--batch", type=int, default=8, help="sequences in a step (default 8)")
    parser.add_argument(
        "--workers", type=int, default=0, help="processes that load data; 0: the training process loads"
    )
    parser.add_argument("--starve", action="store_true", help="make each sample slow to load")
    parser.add_argument("--item", action="store_true", help="read the loss at each step")
    parser.add_argument("--late-rank", type=int, help="the rank that is late at each step's collectives")
    parser.add_argument("--dtype", default="bfloat16", choices=("float32", "bfloat16"))
    parser.add_argument("--warmup", type=int, default=3, help="training steps before the recorded ones")
    parser.add_argument("--active", type=int, default=3, help="steps to record, after two other steps")
    parser.add_argument("--compile", action="store_true", help="use torch.compile")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()

    ranks, local_rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("LOCAL_RANK", "0"))
    delay = 0.003 if args.late_rank is not None and args.late_rank == int(os.environ.get("RANK", "0")) else 0.0
    device = args.device
    if device == "cuda":
        device = f"cuda:{local_rank % torch.cuda.device_count()}"
        torch.cuda.set_device(device)
    if ranks > 1:
        # NCCL needs a GPU for each rank; with gloo, ranks can share one or run without.
        has_gpu_per_rank = args.device == "cuda" and torch.cuda.device_count() >= ranks
        distributed.init_process_group("nccl" if has_gpu_per_rank else "gloo")
    model: Any = GPT(args.layers, args.width, args.heads, args.length).to(device, getattr(torch, args.dtype))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    if ranks > 1:
        model = torch.nn.parallel.DistributedDataParallel(model)
    if args.compile:
        model = torch.compile(model)

    steps = args.warmup + 2 + args.active
    data = TokenDataset(steps * args.batch, args.length, 0.002 if args.starve else 0.0)
    batches = iter(DataLoader(data, args.batch, num_workers=args.workers, pin_memory=args.device == "cuda"))
    for _ in range(args.warmup):
        train_step(batches, model, optimizer, device)
    start = time.perf_counter()
    for _ in range(2 + args.active):
        step(batches, model, optimizer, device, args.item, delay)
    if args.device == "cuda":
        torch.cuda.synchronize()
    seconds = (time.perf_counter() - start) / (2 + args.active)
    print(f"train_gpt on {device}: {seconds * 1e3:.1f} ms a step")
    if ranks > 1:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
