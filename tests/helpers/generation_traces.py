"""Entries of small serving programs for the tests of patterns. Times in µs."""

from __future__ import annotations

import itertools
from typing import Any

from tests.helpers.pattern_traces import ADD, SHAPE
from tests.helpers.trace_builder import Entry, annotation, cpu, kernel, memcpy, runtime

_numbers = itertools.count(500_000)


def serving_step(
    name: str,
    at: float,
    *,
    kernels: int = 30,
    graph: bool = True,
    kernel_us: float = 4,
    duration: float = 200,
    grid: int = 1,
    more: list[Entry] | None = None,
) -> list[Entry]:
    """One annotated step: its kernels follow each other from 30 µs after its start, by one graph or one by one."""
    entries = [annotation(name, at, duration), *(more or [])]
    shape: dict[str, Any] = {**SHAPE, "grid": [grid, 1, 1]}
    corr = next(_numbers)
    if graph:
        entries.append(runtime("cudaGraphLaunch", at + 10, 15, corr))
    for number in range(kernels):
        if not graph:
            corr = next(_numbers)
            entries += [
                cpu("aten::add", at + 10 + 5 * number, 4.5),
                runtime("cudaLaunchKernel", at + 11 + 5 * number, 3, corr),
            ]
        entries.append(kernel(ADD, at + 30 + max(kernel_us, 0 if graph else 5) * number, kernel_us, corr, **shape))
    return entries


def steps_of_batches(*batches: int, graph_for: int | None = None, period: float = 400, grid: int = 1) -> list[Entry]:
    """Decode steps of these batch sizes, by a graph for up to `graph_for` sequences (None: for all), else eagerly."""
    entries: list[Entry] = []
    for index, batch in enumerate(batches):
        graph = graph_for is None or batch <= graph_for
        entries += serving_step(
            f"step[DECODE bs={batch}]", index * period, graph=graph, grid=grid, duration=200 if graph else 390
        )
    return entries


def cat_steps(
    tokens: int = 4,
    *,
    growing: bool = True,
    dims: int = 4,
    grids: tuple[int, ...] = (),
    at: float = 0,
    period: float = 400,
    duration: float = 300,
) -> list[Entry]:
    """Decode steps, each with an attention and two calls of aten::cat, whose first input may grow by one a step.

    `grids`: blocks of the kernels in each step; the shapes are in the args, which only a file has.
    """
    entries: list[Entry] = []
    for token in range(tokens):
        start, length = at + period * token, 100 + token * growing
        old, new = ([8, 4, length, 64], [8, 4, 1, 64]) if dims == 4 else ([8, length], [8, 1])
        args: dict[str, Any] = {"Input Dims": [[old, new], []], "Input type": ["TensorList", "Scalar"]}
        more: list[Entry] = [cpu("aten::scaled_dot_product_attention", start + 170, 4)]
        for number in range(2):
            corr = next(_numbers)
            shape: dict[str, Any] = {"grid": [grids[token], 2, 1], "block": [512, 1, 1]} if grids else {}
            more += [
                cpu("aten::cat", start + 180 + 8 * number, 6, **args),
                runtime("cudaLaunchKernel", start + 181 + 8 * number, 3, corr),
                kernel("CatArrayBatchedCopy", start + 200 + 8 * number, 5, corr, **shape),
            ]
        entries += serving_step("step[DECODE bs=8]", start, graph=False, duration=duration, more=more)
    return entries


def item_steps(
    tokens: int = 5, reads: int = 1, op: str = "aten::item", every: int = 1, wait: float = 20
) -> list[Entry]:
    """Decode steps of a graph, after each of which `reads` values are read from the GPU; the next step waits for it."""
    entries: list[Entry] = []
    for token in range(tokens):
        at = 600.0 * token
        entries += serving_step("step[DECODE bs=8]", at, duration=100)
        if token % every:
            continue
        for read in range(reads):
            corr, start = next(_numbers), at + 150 + 50 * read
            entries += [
                cpu(op, start, wait + 15),
                runtime("cudaMemcpyAsync", start + 2, 5, corr),
                memcpy("Memcpy DtoH (Device -> Pinned)", start + 8, 1, corr),
                runtime("cudaStreamSynchronize", start + 8, wait, next(_numbers)),
            ]
    return entries
