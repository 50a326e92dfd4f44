"""An MLP captured once as a CUDA graph and replayed: one call on the CPU, all its kernels on the GPU.

    torchprof-tui run graph_replay                  torchprof-tui run graph_replay --eager

What to expect in the trace:

- Each step is one cudaGraphLaunch of some µs, and twenty-four kernels that follow each other without a gap: the cost
  of launching them one by one is gone. The key ``]`` on the launch goes to the first of them.
- No aten op is to be seen: a graph replays kernels, not Python. Which op a kernel came from is known at capture only:
  it is recorded as well (``run --capture`` for other programs), and the details, the chain and the call tree show it.
- ``--eager``: the same layers launched one by one. The CPU now works through ops all the time, and the GPU waits for
  it between kernels.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import torch
from torch.profiler import record_function


def step(forward: Callable[[], object]) -> None:
    """Run one step, which is what the profiler counts."""
    with record_function("replay"):
        forward()


def capture_graph(forward: Callable[[], object], warmup: int) -> torch.cuda.CUDAGraph:
    """Capture `forward` as a CUDA graph, after a warm-up on a separate stream, which capturing requires."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(max(1, warmup)):
            forward()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        forward()
    return graph


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--layers", type=int, default=12, help="layers, each with a linear layer and a GELU (default 12)"
    )
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--dtype", default="bfloat16", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--warmup", type=int, default=3, help="calls before it is captured")
    parser.add_argument("--active", type=int, default=3, help="steps to record, after two other steps")
    parser.add_argument("--eager", action="store_true", help="launch the kernels one by one, without a graph")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    if args.device == "cpu" and not args.eager:
        sys.exit("graph_replay: a CUDA graph needs a GPU, and torch sees none here; --eager runs the same without one")

    dtype = getattr(torch, args.dtype)
    layers = (layer for _ in range(args.layers) for layer in (torch.nn.Linear(args.width, args.width), torch.nn.GELU()))
    model = torch.nn.Sequential(*layers).to(args.device, dtype)
    x = torch.randn(args.batch, args.width, device=args.device).to(dtype)

    def forward() -> object:
        return model(x)

    with torch.no_grad():
        replay: Callable[[], object] = forward if args.eager else capture_graph(forward, args.warmup).replay
        start = time.perf_counter()
        for _ in range(2 + args.active):
            step(replay)
        if args.device == "cuda":
            torch.cuda.synchronize()
    seconds = (time.perf_counter() - start) / (2 + args.active)
    print(f"graph_replay of {args.layers} layers on {args.device}: {seconds * 1e6:.0f} µs a step")


if __name__ == "__main__":
    main()
