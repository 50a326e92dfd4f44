"""A small language model that generates text: the prompt at once (prefill), then token by token (decode).

    torchprof-tui run generate --mode eager         torchprof-tui run generate --mode graph

It prints how many tokens per second it generates, measured before the recording begins. What to expect in the trace:

- Each step is one range: step[PREFILL bs=8 toks=1024] for the prompts, then a step[DECODE bs=8] for each token.
- ``--mode eager``: over a hundred short kernels a token, launched one by one; the GPU waits for the CPU between them.
- ``--mode compile``: fewer kernels, since elementwise ops are fused, but the CPU still launches each of them.
- ``--mode graph``: the whole decode step is one cudaGraphLaunch, and its kernels follow each other without a gap. This
  needs tensors that stay where they are: the KV cache has its full length from the start, the position is on the GPU.
- The prefill is eager in all modes: it has a thousand tokens to work on, so that launching matters less.
"""

# mypy: allow-subclassing-any, allow-untyped-calls

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the usual name
from torch.profiler import record_function

VOCABULARY_SIZE = 8192


class KVCache(torch.nn.Module):
    """Keys and values of one layer at their full length: two tensors (batch, heads, length, head width)."""

    def __init__(self, batch: int, heads: int, length: int, head_width: int) -> None:
        super().__init__()
        self.keys: Tensor
        self.values: Tensor
        self.register_buffer("keys", torch.zeros(batch, heads, length, head_width))
        self.register_buffer("values", torch.zeros(batch, heads, length, head_width))

    def forward(self, keys: Tensor, values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Write new keys and values (batch, heads, new, head width) at `positions` (new,); return all of them."""
        return self.keys.index_copy_(2, positions, keys), self.values.index_copy_(2, positions, values)


class Layer(torch.nn.Module):
    """Attention with rotary positions and a SwiGLU feed-forward layer, with pre-norm residuals."""

    def __init__(self, width: int, heads: int, cache: torch.nn.Module) -> None:
        super().__init__()
        self.heads, self.cache = heads, cache
        self.norm1, self.norm2 = torch.nn.RMSNorm(width), torch.nn.RMSNorm(width)
        self.qkv = torch.nn.Linear(width, 3 * width, bias=False)
        self.out = torch.nn.Linear(width, width, bias=False)
        self.gate_up = torch.nn.Linear(width, 6 * width, bias=False)
        self.down = torch.nn.Linear(3 * width, width, bias=False)

    def forward(self, x: Tensor, positions: Tensor, rotation: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3 * self.heads, width // self.heads).transpose(1, 2)
        qk, v = qkv.split([2 * self.heads, self.heads], dim=1)
        first, second = qk.chunk(2, dim=-1)
        cos, sin = rotation
        q, k = (qk * cos + torch.cat((-second, first), dim=-1) * sin).chunk(2, dim=1)
        keys, values = self.cache(k, v, positions)
        y = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask[:, : keys.shape[2]])
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        hidden: Tensor = x + self.down(F.silu(gate) * up)
        return hidden


class Decoder(torch.nn.Module):
    """A decoder-only language model with random weights and a KV cache of `length` positions.

    `make_cache(batch, heads, length, head width)` creates the cache of each layer.
    """

    def __init__(
        self,
        layers: int,
        width: int,
        heads: int,
        batch: int,
        length: int,
        make_cache: Callable[[int, int, int, int], torch.nn.Module] = KVCache,
    ) -> None:
        super().__init__()
        head_width = width // heads
        self.embedding = torch.nn.Embedding(VOCABULARY_SIZE, width)
        self.layers = torch.nn.ModuleList(
            Layer(width, heads, make_cache(batch, heads, length, head_width)) for _ in range(layers)
        )
        self.norm, self.head = torch.nn.RMSNorm(width), torch.nn.Linear(width, VOCABULARY_SIZE, bias=False)
        frequency = 10000.0 ** (-torch.arange(0, head_width, 2) / head_width)
        angles = torch.outer(torch.arange(length), torch.cat((frequency, frequency)))
        self.cos: Tensor
        self.sin: Tensor
        self.all_positions: Tensor
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.register_buffer("all_positions", torch.arange(length))

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Choose the next token of each sequence: tokens (batch, new) at `positions` (new,) -> tokens (batch, 1)."""
        x = self.embedding(tokens)
        rotation = self.cos[positions], self.sin[positions]
        mask = self.all_positions <= positions[:, None]
        for layer in self.layers:
            x = layer(x, positions, rotation, mask)
        logits = self.head(self.norm(x[:, -1:]))
        chosen: Tensor = logits.argmax(dim=-1)
        return chosen


class Generator:
    """The state of a generation: the last token of each sequence, (batch, 1), and their position, (1,)."""

    def __init__(self, model: Decoder, prompts: Tensor, mode: str) -> None:
        self.model, self.prompts, self.mode = model, prompts, mode
        self.tokens = prompts[:, -1:].clone()
        self.position = torch.zeros(1, dtype=torch.int64, device=prompts.device)
        self._forward = torch.compile(model, dynamic=False) if mode == "compile" else model
        self._decode: Callable[[], None] = self.decode_eagerly

    def prefill(self) -> None:
        """Read the prompts, and choose the first token."""
        length = self.prompts.shape[1]
        self.tokens.copy_(self.model(self.prompts, self.model.all_positions[:length]))
        self.position.fill_(length)

    def decode_eagerly(self) -> None:
        """Choose the next token from the last one."""
        self.tokens.copy_(self._forward(self.tokens, self.position))
        self.position += 1

    def decode(self) -> None:
        """Choose the next token, in the chosen mode."""
        self._decode()

    def warm_up(self, tokens: int) -> None:
        """Generate some tokens, which compiles the model; capture a decode step if the mode is graph."""
        self.prefill()
        for _ in range(tokens):
            self.decode()
        if self.mode == "graph":
            self._decode = capture_graph(self.decode_eagerly).replay


def capture_graph(function: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """Capture `function` as a CUDA graph, after a call on a separate stream, which capturing requires."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        function()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph


def step(forward: Callable[[], None], name: str) -> None:
    """Run one step, which is what the profiler counts: the prompts, or one more token of each sequence."""
    with record_function(name):
        forward()


def measure_seconds(function: Callable[[], None], repeat: int, device: str) -> float:
    """Measure the mean time of a call, in seconds."""
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(repeat):
        function()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / repeat


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", default="eager", choices=("eager", "compile", "graph"), help="how a token is decoded")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, help="(default 1024, 256 on a CPU)")
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--batch", type=int, default=8, help="sequences that are generated side by side (default 8)")
    parser.add_argument("--prompt", type=int, default=128, help="tokens of each prompt (default 128)")
    parser.add_argument("--tokens", type=int, help="tokens to measure the speed with (default 200, 8 on a CPU)")
    parser.add_argument("--dtype", default="bfloat16", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--warmup", type=int, default=3, help="tokens before anything is measured or recorded")
    parser.add_argument(
        "--active", type=int, default=3, help="steps to record, after two others: the prefill, then tokens (default 3)"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    if args.mode == "graph" and args.device == "cpu":
        sys.exit("generate: a CUDA graph needs a GPU, and torch sees none here; --mode eager runs without one")

    on_cpu = args.device == "cpu"
    width, count = args.width or (256 if on_cpu else 1024), args.tokens or (8 if on_cpu else 200)
    length = args.prompt + max(args.warmup + 2, count, args.active)
    model = Decoder(args.layers, width, args.heads, args.batch, length).to(args.device, getattr(torch, args.dtype))
    prompts = torch.randint(VOCABULARY_SIZE, (args.batch, args.prompt), device=args.device)
    with torch.no_grad():
        generator = Generator(model, prompts, args.mode)
        generator.warm_up(args.warmup)
        prefill_time = measure_seconds(generator.prefill, 1, args.device)
        token_time = measure_seconds(generator.decode, count, args.device)
        print(
            f"generate --mode {args.mode} on {args.device}: {args.batch / token_time:,.0f} tokens/s, "
            f"{token_time * 1e3:.3f} ms a step of {args.batch} sequences; prefill of {args.prompt} tokens each in "
            f"{prefill_time * 1e3:.2f} ms"
        )
        generator.prefill()
        decode_name = f"step[DECODE bs={args.batch}]"
        for _ in range(2):  # tokens of an earlier text, which are not recorded
            step(generator.decode, decode_name)
        step(generator.prefill, f"step[PREFILL bs={args.batch} toks={args.batch * args.prompt}]")
        for _ in range(args.active - 1):
            step(generator.decode, decode_name)
    if not on_cpu:
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
