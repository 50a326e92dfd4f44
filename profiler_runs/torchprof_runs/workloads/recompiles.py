"""A compiled function with a new input shape in each step, so that it is compiled again.

    torchprof-tui run recompiles                    torchprof-tui run recompiles --dynamic

What to expect in the trace:

- Each step holds _compile.compile_inner and all of its phases: hundreds of milliseconds of compiling for some µs of
  work. The region's second number grows: Torch-Compiled Region: 0/1, 0/2, 0/3. Each is code for one shape.
- ``--dynamic``: the size is marked as one that changes. It is compiled once, and all steps are short and alike.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch.nn import functional as F  # noqa: N812 - the usual name
from torch.profiler import record_function

Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def layer(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.gelu(x @ w) * 2


def step(function: Function, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Run one step, which is what the profiler counts."""
    with record_function("layer"):
        return function(x, w)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--rows", type=int, default=64, help="in the first step; each has 16 more (default 64)")
    parser.add_argument("--dtype", default="bfloat16", choices=("float32", "bfloat16", "float16", "float64"))
    parser.add_argument("--active", type=int, default=3, help="steps to record, after two other steps")
    parser.add_argument("--dynamic", action="store_true", help="tell torch.compile that sizes change")
    parser.add_argument("--backend", default="inductor", help="of torch.compile; eager needs no compiler")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()

    dtype = getattr(torch, args.dtype)
    w = torch.randn(args.width, args.width, device=args.device).to(dtype)
    function: Function = torch.compile(layer, dynamic=args.dynamic, backend=args.backend)
    with torch.no_grad():
        start = time.perf_counter()
        for number in range(2 + args.active):
            x = torch.randn(args.rows + 16 * number, args.width, device=args.device).to(dtype)
            y = step(function, x, w)
        total = y.float().sum().item()  # waits for the GPU
    seconds = (time.perf_counter() - start) / (2 + args.active)
    print(f"recompiles of {args.width} columns on {args.device}: {seconds * 1e3:.1f} ms a step, sum {total:.4g}")


if __name__ == "__main__":
    main()
