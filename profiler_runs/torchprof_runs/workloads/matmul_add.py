"""torch.add(torch.matmul(x, w), b): two ops with one kernel each. The bias b is a matrix, as x and w are.

    torchprof-tui run matmul_add --size 64          python -m torchprof_runs.workloads.matmul_add --size 64

What to expect in the trace:

- ``--size 64``: each step is aten::matmul → aten::mm → a launch ⇢ one kernel, then aten::add → a launch ⇢ another.
  The CPU takes tens of µs for either, the GPU two: it idles more than 90 % of the time. This is overhead-bound.
- The first recorded step is two to three times as wide as the others, whatever ran before: the profiler has just
  started. Ten calls ahead (``--warmup 10``) do not change that. They do move what happens once per process (libraries,
  workspaces, the choice of kernels: up to 70 ms) out of the recording; ``run --wait 0 --warmup 0`` records it.
- ``--size 4096``: the same ops, but now kernels take longer than launching them, and wait behind each other.
- ``--batch 8``: three dimensions make aten::matmul call aten::bmm.
- ``--compile``: a Torch-Compiled Region with its guards (TorchDynamo Cache Lookup) around one aten::addmm. One op, and
  yet no launch less: addmm copies b into the output, and the GEMM adds to it.
- ``--bias row``: b has one dimension. Then the GEMM of addmm adds it in its epilogue, and no copy is made.
- ``--op addmm``: torch.addmm(b, x, w), without torch.compile: the same copy and GEMM.
- ``--mode reduce-overhead``: the compiled step as a CUDA graph, whose inputs are copied before each replay.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch.profiler import record_function

Function = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def matmul_add(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.add(torch.matmul(x, w), b)


def addmm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.baddbmm(b, x, w) if x.dim() == 3 else torch.addmm(b, x, w)


OPS: dict[str, Function] = {"matmul_add": matmul_add, "addmm": addmm}


def step(function: Function, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Run one step, which is what the profiler counts."""
    with record_function("matmul_add"):
        return function(x, w, b)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=64, help="rows and columns of the matrices (default 64)")
    parser.add_argument("--dtype", default="bfloat16", choices=("float32", "bfloat16", "float16", "float64"))
    parser.add_argument("--batch", type=int, default=0, help="number of matrices per batch; 0: no batch dimension")
    parser.add_argument("--warmup", type=int, default=0, help="calls before the first step")
    parser.add_argument("--active", type=int, default=3, help="steps to record, after two other steps")
    parser.add_argument("--bias", default="full", choices=("full", "row"), help="full: of (size, size); row: of (size)")
    parser.add_argument("--op", default="matmul_add", choices=tuple(OPS), help="two calls, or torch.addmm")
    parser.add_argument("--compile", action="store_true", help="use torch.compile")
    parser.add_argument(
        "--mode",
        choices=("default", "reduce-overhead", "max-autotune"),
        help="the mode of torch.compile; implies --compile",
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()

    shape = (args.batch, args.size, args.size) if args.batch else (args.size, args.size)
    dtype = getattr(torch, args.dtype)
    x, w = torch.randn(shape, device=args.device).to(dtype), torch.randn(shape, device=args.device).to(dtype)
    bias_shape = (args.size,) if args.bias == "row" else (args.size, args.size)
    b = torch.randn(bias_shape, device=args.device).to(dtype)
    function = OPS[args.op]
    if args.compile or args.mode:
        function = torch.compile(function, mode=args.mode or "default")

    for _ in range(args.warmup):
        function(x, w, b)
    seconds = []

    def timed(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        start = time.perf_counter()
        y = function(x, w, b)
        seconds.append(time.perf_counter() - start)
        return y

    # The median inside the steps: a mean would count the cold first step and the profiler's start and stop.
    for _ in range(2 + args.active):
        y = step(timed, x, w, b)
    total = y.float().sum().item()  # waits for the GPU
    middle = statistics.median(seconds) * 1e6
    print(f"matmul_add {shape} {args.dtype} on {args.device}: {middle:.0f} µs of CPU a step (median), sum {total:.4g}")


if __name__ == "__main__":
    main()
