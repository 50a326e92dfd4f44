"""Matmuls on one stream, overlapped with the copy of the next batch on another.

    torchprof-tui run streams                       torchprof-tui run streams --one-stream

What to expect in the trace:

- Two streams on the GPU, both at work at the same time: GEMMs on the one, Memcpy HtoD (Pinned -> Device) on the other.
  What the GPU was busy is the union of the two, not their sum.
- ``--one-stream``: the copy waits for the matmuls before it and the matmuls wait for the copy. A step takes the sum.
- ``--pageable``: the batch lies in ordinary memory. The copy runs at a fraction of the speed, and the thread that asked
  for it is held up while it does: whatever the stream, nothing is launched meanwhile.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import argparse
import sys
import time

import torch
from torch.profiler import record_function


def step(
    x: torch.Tensor, w: torch.Tensor, batch: torch.Tensor, into: torch.Tensor, matmuls: int, copying: torch.cuda.Stream
) -> torch.Tensor:
    """Run one step, which is what the profiler counts."""
    copying.wait_stream(torch.cuda.current_stream())
    with record_function("copy the next batch"), torch.cuda.stream(copying):
        into.copy_(batch, non_blocking=True)
    with record_function("compute on this one"):
        for _ in range(matmuls):
            y = x @ w
    torch.cuda.current_stream().wait_stream(copying)
    return y


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=4096, help="rows and columns of the matrices (default 4096)")
    parser.add_argument("--matmuls", type=int, default=5, help="in a step (default 5)")
    parser.add_argument("--megabytes", type=int, default=32, help="size of a batch in MiB (default 32)")
    parser.add_argument("--one-stream", action="store_true", help="copy on the compute stream")
    parser.add_argument("--pageable", action="store_true", help="copy from memory that is not pinned")
    parser.add_argument("--dtype", default="bfloat16", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--warmup", type=int, default=3, help="calls before the first step")
    parser.add_argument("--active", type=int, default=3, help="steps to record, after two other steps")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("streams: streams need a GPU, and torch sees none here")

    dtype = getattr(torch, args.dtype)
    x, w = (torch.randn(args.size, args.size, device="cuda").to(dtype) for _ in "xw")
    batch = torch.randn(args.megabytes << 18, pin_memory=not args.pageable)  # four bytes each
    into = torch.empty_like(batch, device="cuda")
    copying = torch.cuda.current_stream() if args.one_stream else torch.cuda.Stream()
    for _ in range(args.warmup):
        x @ w
    start = time.perf_counter()
    for _ in range(2 + args.active):
        step(x, w, batch, into, args.matmuls, copying)
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - start) / (2 + args.active)
    print(f"streams, {args.matmuls} matmuls and {args.megabytes} MiB: {seconds * 1e6:.0f} µs a step")


if __name__ == "__main__":
    main()
