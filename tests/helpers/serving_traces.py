"""Literal traces of a serving engine, as it replays graphs for decoding and launches kernels for prompts."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from tests.helpers.trace_builder import Entry, annotation, kernel, runtime, trace
from torchprof_tui.trace.model.trace import Trace


def step_entries(name: str, start: float, duration: float, kernels: Iterable[Entry]) -> list[Entry]:
    """A step, µs, and what else is given."""
    return [annotation(name, start, duration), *kernels]


def eager_kernels(start: float, correlations: Iterable[int], begin: float, time: float = 5) -> list[Entry]:
    """Kernels launched one by one every 2 µs from `start`, that run one after the other from `begin`."""
    entries = []
    for index, correlation in enumerate(correlations):
        entries.append(runtime("cudaLaunchKernel", start + 2 * index, 1, correlation))
        entries.append(kernel("gemm", begin + time * index, time, correlation))
    return entries


def replayed_kernels(start: float, correlation: int, begin: float, size: int, time: float = 5) -> list[Entry]:
    """The kernels of a graph that is launched at `start`, one after the other from `begin`."""
    kernels = [kernel("gemm", begin + time * index, time, correlation) for index in range(size)]
    return [runtime("cudaGraphLaunch", start, 3, correlation), *kernels]


def serving_entries(rounds: int = 2) -> list[Entry]:
    """Rounds of a prefill (2 requests, 512 tokens), three decodes (of 2) and a mixed step (1 prompt, 2 sequences).

    A round takes 1000 µs: prefill 0 to 100, decodes from 200, 300 and 400 for 40 each, mixed 500 to 600.
    """
    numbers = count(1)
    entries: list[Entry] = []
    for number in range(rounds):
        t = 1000 * number
        entries += step_entries(
            "execute_context_2(512)_generation_0(0)",
            t,
            100,
            eager_kernels(t + 10, [next(numbers), next(numbers)], t + 20),
        )
        for index in range(3):
            at = t + 200 + 100 * index
            inside = [
                *replayed_kernels(at + 5, next(numbers), at + 15, 4),
                *eager_kernels(at + 9, [next(numbers)], at + 35),
            ]
            entries += step_entries("execute_context_0(0)_generation_2(2)", at, 40, inside)
        entries += step_entries(
            "execute_context_1(98)_generation_2(2)", t + 500, 100, eager_kernels(t + 510, [next(numbers)], t + 530, 30)
        )
    return entries


def serving_trace(rounds: int = 2) -> Trace:
    """Build the trace of `serving_entries`."""
    return trace(*serving_entries(rounds))
