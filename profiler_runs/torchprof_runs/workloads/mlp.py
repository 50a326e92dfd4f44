"""A GeGLU MLP, eager or compiled, which fuses the kernels between the GEMMs.

    torchprof-tui run mlp                           torchprof-tui run mlp --compile

What to expect in the trace:

- Eager: five kernels a step. Three GEMMs (gate, up, down), and between them GELU and the product, each of which reads
  and writes the whole hidden tensor: they move bytes and compute next to nothing.
- ``--compile``: three GEMMs and one ``triton_poi_fused_…gelu_mul…``: both elementwise ops in one pass, the hidden
  tensor read and written once less. Above it: TorchDynamo Cache Lookup, Torch-Compiled Region, AOTDispatcher Runtime
  Wrapper Prologue, ## Call CompiledFxGraph …: what a call of compiled code costs on the CPU.
- The GEMMs are the same kernels in both: compiling did not touch them.
"""

# mypy: allow-subclassing-any

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch.nn import functional as F  # noqa: N812 - the usual name
from torch.profiler import record_function


class GeGLU(torch.nn.Module):
    """GeGLU MLP: down(gelu(gate(x)) · up(x))."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = torch.nn.Linear(width, hidden, bias=False)
        self.up = torch.nn.Linear(width, hidden, bias=False)
        self.down = torch.nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        down: torch.Tensor = self.down(F.gelu(self.gate(x)) * self.up(x))
        return down


def step(model: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """Run one step, which is what the profiler counts."""
    with record_function("mlp_fwd"):
        return model(x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, help="sequences (default 64, 8 on a CPU)")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--hidden", type=int, default=3072)
    parser.add_argument("--dtype", default="bfloat16", choices=("float32", "bfloat16", "float16", "float64"))
    parser.add_argument("--warmup", type=int, default=10, help="calls before the first step")
    parser.add_argument("--active", type=int, default=3, help="steps to record, after two other steps")
    parser.add_argument("--compile", action="store_true", help="use torch.compile")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()

    batch = args.batch or (8 if args.device == "cpu" else 64)
    dtype = getattr(torch, args.dtype)
    model = GeGLU(args.width, args.hidden).to(args.device, dtype)
    x = torch.randn(batch, args.length, args.width, device=args.device).to(dtype)
    function: Callable[[torch.Tensor], torch.Tensor] = torch.compile(model) if args.compile else model

    with torch.no_grad():
        for _ in range(args.warmup):
            function(x)
        start = time.perf_counter()
        for _ in range(2 + args.active):
            y = step(function, x)
        total = y.float().sum().item()  # waits for the GPU
    seconds = (time.perf_counter() - start) / (2 + args.active)
    print(f"mlp {tuple(x.shape)} × {args.hidden} on {args.device}: {seconds * 1e6:.0f} µs a step, sum {total:.4g}")


if __name__ == "__main__":
    main()
