"""Causal attention in six versions: by hand, by hand in place, and with each backend of SDPA.

    torchprof-tui run attention --backend naive     torchprof-tui run attention --backend flash

What to expect in the trace, a step:

- ``naive``: two GEMMs with scale, mask and softmax between them, each over the whole length × length matrix, and a
  Memcpy DtoD that nobody wrote: masked_fill copies its input first. ``inplace``: masked_fill_ spares that copy.
- ``math``: aten::_scaled_dot_product_attention_math, torch's reference: the same chain again, dearer still, with the
  mask rebuilt at each call.
- ``flash``, ``efficient``, ``cudnn``: one kernel does all of it, and the big matrix is never written. Its occupancy is
  low by design: a block keeps its tile in shared memory and registers.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
import time
from collections.abc import Callable

import torch
from torch.nn import functional as F  # noqa: N812 - the usual name
from torch.profiler import record_function

AttentionFunction = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
SDPA_BACKENDS = {
    "math": "MATH",
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
}


def naive(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
    """Compute causal attention op by op; `future` bool[length, length] marks the scores to mask."""
    scores = torch.matmul(q, k.transpose(-2, -1)) * (1 / math.sqrt(q.shape[-1]))
    scores = scores.masked_fill(future, float("-inf"))
    return torch.matmul(torch.softmax(scores, dim=-1), v)


def inplace(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
    """Compute the same with the mask filled in place."""
    scores = torch.matmul(q, k.transpose(-2, -1)) * (1 / math.sqrt(q.shape[-1]))
    scores.masked_fill_(future, float("-inf"))
    return torch.matmul(torch.softmax(scores, dim=-1), v)


def sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
    """Compute the same with torch's scaled_dot_product_attention."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def step(
    attention: AttentionFunction, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, future: torch.Tensor
) -> torch.Tensor:
    """Run one step, which is what the profiler counts."""
    with record_function("attn_fwd"):
        return attention(q, k, v, future)


def select_backend(backend: str) -> contextlib.AbstractContextManager[None]:
    """Restrict SDPA to `backend`; no restriction for `naive` and `inplace`. Exits if torch has no such backend."""
    if backend not in SDPA_BACKENDS:
        return contextlib.nullcontext()
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        manager: contextlib.AbstractContextManager[None] = sdpa_kernel(getattr(SDPBackend, SDPA_BACKENDS[backend]))
    except (ImportError, AttributeError):
        sys.exit(f"torch {torch.__version__} has no {backend} backend")
    return manager


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="naive", choices=("naive", "inplace", *SDPA_BACKENDS))
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--length", type=int, help="tokens (default 2048, 256 on a CPU)")
    parser.add_argument("--dim", type=int, default=64, help="of each head (default 64)")
    parser.add_argument("--dtype", default="bfloat16", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--warmup", type=int, default=10, help="calls before the first step")
    parser.add_argument("--active", type=int, default=3, help="steps to record, after two other steps")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()

    length = args.length or (256 if args.device == "cpu" else 2048)
    dtype = getattr(torch, args.dtype)
    shape = (args.batch, args.heads, length, args.dim)
    q, k, v = (torch.randn(shape, device=args.device).to(dtype) for _ in range(3))
    future = torch.ones(length, length, dtype=torch.bool, device=args.device).triu(1)
    attention: AttentionFunction = {"naive": naive, "inplace": inplace}.get(args.backend, sdpa)

    with torch.no_grad(), select_backend(args.backend):
        try:
            for _ in range(args.warmup):
                attention(q, k, v, future)
            start = time.perf_counter()
            for _ in range(2 + args.active):
                y = step(attention, q, k, v, future)
        except RuntimeError as error:
            sys.exit(f"the {args.backend} backend does not run {args.dtype} on {args.device}: {error}".splitlines()[0])
        total = y.float().sum().item()  # waits for the GPU
    seconds = (time.perf_counter() - start) / (2 + args.active)
    print(f"attention {args.backend} {shape} on {args.device}: {seconds * 1e6:.0f} µs a step, sum {total:.4g}")


if __name__ == "__main__":
    main()
