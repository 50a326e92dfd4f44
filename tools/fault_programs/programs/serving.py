"""Faults in generating text: the KV cache, the end-of-sequence test, graphs for the batch, prefills, scheduling."""

# mypy: allow-subclassing-any, allow-untyped-calls

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.profiler import record_function

from tools.fault_programs.profiling import Run, profile_steps
from torchprof_runs.workloads.generate import VOCABULARY_SIZE, Decoder, Generator, KVCache

END_OF_SEQUENCE = 2
STEPS = 24
"""Recorded in each program."""


class GrowingCache(nn.Module):
    """A KV cache that is copied into a longer one with each token; `prefill` begins a new one."""

    def __init__(self, *_: int) -> None:
        super().__init__()
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def forward(self, keys: Tensor, values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        if self.keys is None or self.values is None or len(positions) > 1:
            self.keys, self.values = keys, values
        else:
            self.keys, self.values = torch.cat((self.keys, keys), dim=2), torch.cat((self.values, values), dim=2)
        return self.keys, self.values


def _make_generator(
    run: Run,
    batch: int,
    prompt: int,
    mode: str,
    make_cache: Callable[[int, int, int, int], nn.Module] = KVCache,
) -> Generator:
    """Make a generator that has read its prompts; its decode step is captured if `mode` is graph, on a GPU."""
    width = run.size(1024, 32)
    model = Decoder(run.size(4, 1), width, run.size(8, 2), batch, prompt + 64, make_cache)
    model = model.to(run.device, torch.bfloat16)
    prompts = torch.randint(3, VOCABULARY_SIZE, (batch, prompt), device=run.device)
    with torch.no_grad():
        generator = Generator(model, prompts, mode if run.on_gpu else "eager")
        generator.warm_up(2)
        generator.prefill()
    return generator


def _decode(generator: Generator, batch: int | None = None) -> None:
    """Decode a token of each sequence under an annotation; `batch` of them are real."""
    batch = len(generator.tokens) if batch is None else batch
    with record_function(f"step[DECODE bs={batch}]"), torch.no_grad():
        generator.decode()


def kv_cache_cat(run: Run) -> None:
    """Decode 64 sequences of 1,024 tokens eagerly; the faulty variant appends to the KV cache with torch.cat."""
    make_cache = GrowingCache if run.faulty else KVCache
    generator = _make_generator(run, run.size(64, 2), run.size(1024, 16), "eager", make_cache)
    profile_steps(run, lambda _: _decode(generator), active=STEPS)


def end_of_sequence_item(run: Run) -> None:
    """Decode 8 sequences by a graph; the faulty variant reads each of their last tokens after every step."""
    generator = _make_generator(run, 8, run.size(128, 16), "graph")
    ended = torch.zeros_like(generator.tokens, dtype=torch.bool)

    def step(index: int) -> None:
        _decode(generator)
        if run.faulty:
            sum(token.item() == END_OF_SEQUENCE for token in generator.tokens.flatten().unbind())
        else:
            ended.logical_or_(generator.tokens == END_OF_SEQUENCE)
            if index % 16 == 15:
                ended.all().item()

    profile_steps(run, step, active=STEPS)


def _run_batches(run: Run, batches: Sequence[int], captured: Sequence[int], prompt: int) -> None:
    """Decode batches of these sizes, each by the graph of the next captured size, or eagerly if there is none."""
    generators = {size: _make_generator(run, size, prompt, "graph") for size in captured}
    for batch in batches:
        if batch > max(captured) and batch not in generators:
            generators[batch] = _make_generator(run, batch, prompt, "eager")

    def step(index: int) -> None:
        batch = batches[index % len(batches)]
        _decode(generators[min(size for size in generators if size >= batch)], batch)

    profile_steps(run, step, active=STEPS)


def padded_batches(run: Run) -> None:
    """Decode 17 to 32 sequences of 2,048 tokens; the faulty variant has a graph for 32 alone."""
    batches = (32, 31, 24, 20, 19, 18, 18, 17)
    _run_batches(run, batches, (32,) if run.faulty else sorted(set(batches)), run.size(2048, 16))


def eager_fallback(run: Run) -> None:
    """Decode 14 to 20 sequences; the faulty variant has no graph for more than 16."""
    _run_batches(run, (16, 14, 20), (8, 16) if run.faulty else (8, 16, 20), run.size(256, 16))


def mixed_batches(run: Run) -> None:
    """Decode 8 sequences while others begin; the faulty variant reads their prompts of 4,096 tokens at once."""
    generator = _make_generator(run, 8, run.size(128, 16), "graph")
    prompts, chunk = run.size(4, 1), (run.size(4096, 32) if run.faulty else run.size(128, 8))
    beginner = _make_generator(run, prompts, chunk, "eager")

    def step(index: int) -> None:
        prefills = prompts if index % 6 == 0 or not run.faulty else 0
        with record_function(f"execute_context_{prefills}({prefills * chunk})_generation_8(8)"), torch.no_grad():
            if prefills:
                beginner.prefill()
            generator.decode()

    profile_steps(run, step, active=STEPS)


@dataclass
class _Request:
    """A request that waits for its turn."""

    number: int
    arrival: float
    priority: int


def slow_scheduler(run: Run) -> None:
    """Decode 8 sequences by a graph; the faulty variant sorts all waiting requests before each step."""
    generator = _make_generator(run, 8, run.size(128, 16), "graph")
    waiting = [_Request(number, number * 0.37 % 1.0, number % 7) for number in range(2000)]

    def schedule(tokens: list[int]) -> int:
        candidates = waiting if run.faulty else waiting[:8]
        in_order = sorted(candidates, key=lambda request: (request.priority, request.arrival, request.number))
        budget = 8 - len(tokens)
        return sum(1 for request in in_order if request.number < budget)

    def step(_: int) -> None:
        _decode(generator)
        schedule(generator.tokens.flatten().tolist())

    profile_steps(run, step, active=STEPS)
