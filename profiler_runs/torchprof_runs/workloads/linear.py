"""nn.Linear: matmul and add as one op, and views, which launch nothing.

    torchprof-tui run linear                        python -m torchprof_runs.workloads.linear

What to expect in the trace:

- aten::linear → aten::t → aten::transpose → aten::as_strided: none of these three launches anything, they rewrite
  the weight's shape and strides. Only aten::addmm does.
- aten::addmm is matmul and bias in one: one kernel a step, whose name says so (an epilogue, ``bias``), where
  matmul_add has two. With ``--no-bias`` it is aten::matmul → aten::mm.
- Larger shapes may show a copy before the GEMM: the bias, spread over the output first (``--rows 16 --out 50257``).
- ``--compile``: the metadata ops are gone, what is left calls the same GEMM.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch.profiler import record_function


def step(layer: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """Run one step, which is what the profiler counts."""
    with record_function("linear_fwd"):
        return layer(x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--in", type=int, default=32, dest="features_in", help="features in (default 32)")
    parser.add_argument("--out", type=int, default=64, dest="features_out", help="features out (default 64)")
    parser.add_argument("--no-bias", action="store_true")
    parser.add_argument("--dtype", default="bfloat16", choices=("float32", "bfloat16", "float16", "float64"))
    parser.add_argument("--warmup", type=int, default=10, help="calls before the first step")
    parser.add_argument("--active", type=int, default=3, help="steps to record, after two other steps")
    parser.add_argument("--compile", action="store_true", help="use torch.compile")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()

    dtype = getattr(torch, args.dtype)
    layer = torch.nn.Linear(args.features_in, args.features_out, not args.no_bias, device=args.device, dtype=dtype)
    x = torch.randn(args.rows, args.features_in, device=args.device).to(dtype)
    function: Callable[[torch.Tensor], torch.Tensor] = torch.compile(layer) if args.compile else layer

    with torch.no_grad():
        for _ in range(args.warmup):
            function(x)
        start = time.perf_counter()
        for _ in range(2 + args.active):
            y = step(function, x)
        total = y.float().sum().item()  # waits for the GPU
    seconds = (time.perf_counter() - start) / (2 + args.active)
    shapes = f"{tuple(x.shape)} → {args.features_out}"
    print(f"linear {shapes} on {args.device}: {seconds * 1e6:.0f} µs a step, sum {total:.4g}")


if __name__ == "__main__":
    main()
