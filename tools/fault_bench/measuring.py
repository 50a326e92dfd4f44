"""Time and trace the cells of one model, in this process: python -m tools.fault_bench.measuring PLAN.

PLAN is JSON: model, kinds, folder, device, seconds. Each cell is a line of cells.jsonl as soon as it is recorded.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from .kinds import KINDS
from .loops import Cell, Step
from .models import Size

CELL_SECONDS = 75.0
"""A cell that takes longer hangs, or compiles for too long: its process is ended."""

LAST_START_SECONDS = 20.0
"""No cell is started when less time is left: it would be cut off."""

RATIOS = (1.15, 3.0)
"""Bounds of the faulty step over the mended one, towards which the fault's amount is changed."""

MAX_AMOUNT = 32.0
ROUNDS = 5
ROUND_SECONDS = 0.4


def build_step(kind: str, cell: Cell) -> Step:
    """Build the step of one variant; the same random numbers for both."""
    torch.manual_seed(0)
    module = importlib.import_module(f"{__package__}.faults.{KINDS[kind].module}")
    build: Callable[[Cell], Step] = getattr(module, kind)
    return build(cell)


def time_steps(cell: Cell, step: Step, steps: int) -> float:
    """Measure the mean time of a few steps in seconds."""
    cell.synchronize()
    start = time.perf_counter()
    for index in range(steps):
        step(index)
    cell.synchronize()
    return (time.perf_counter() - start) / steps


def measure_variants(cells: list[Cell], steps: list[Step], first: list[float]) -> list[list[float]]:
    """Time both variants in turn: for each, the mean step of each round in milliseconds."""
    counts = [max(1, min(20, round(ROUND_SECONDS / seconds))) for seconds in first]
    rounds: list[list[float]] = [[], []]
    for _ in range(ROUNDS):
        for times, cell, step, count in zip(rounds, cells, steps, counts, strict=True):
            times.append(1e3 * time_steps(cell, step, count))
    return rounds


def trace_step(cell: Cell, step: Step, path: str, wait: int = 1, warmup: int = 2, active: int = 3) -> None:
    """Trace three steps with shapes and without stacks into `path`."""
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cell.on_gpu else [])]
    with profile(
        activities=activities,
        schedule=schedule(wait=wait, warmup=warmup, active=active, repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(path),
        record_shapes=True,
    ) as profiler:
        for index in range(wait + warmup + active):
            step(index)
            if index == wait + warmup - 1:
                cell.synchronize()  # so that all recorded kernels have their launch recorded
            profiler.step()


def prepare(kind: str, model: str, size: Size, device: str, closing: contextlib.ExitStack) -> tuple[Any, ...]:
    """Build and warm up both variants, with an amount of the fault that keeps their ratio within RATIOS."""
    amount = 1.0
    for attempt in range(3):
        torch._dynamo.reset()
        cells = [Cell(model, size, device, faulty, amount) for faulty in (True, False)]
        for cell in cells:
            closing.callback(cell.closing.close)
        steps = [build_step(kind, cell) for cell in cells]
        first = []
        for cell, step in zip(cells, steps, strict=True):
            time_steps(cell, step, 2)
            first.append(time_steps(cell, step, 2))
        ratio = first[0] / first[1]
        factor = 1.0
        if ratio > RATIOS[1]:
            factor = (RATIOS[1] - 1.5) / (ratio - 1)
        elif ratio < RATIOS[0]:
            factor = min(8.0, 0.5 / max(ratio - 1, 0.0625))
        changed = min(MAX_AMOUNT, amount * factor)
        if changed == amount or attempt == 2 or size.name == "tiny":
            break
        amount = changed
    return cells, steps, first, amount


def record_cell(kind: str, model: str, folder: str, device: str) -> dict[str, Any]:
    """Record one cell: both traces, and both step times in milliseconds without the profiler."""
    start = time.perf_counter()
    size = Size(KINDS[kind].size if device.startswith("cuda") else "tiny")
    with contextlib.ExitStack() as closing:
        cells, steps, first, amount = prepare(kind, model, size, device, closing)
        faulty, mended = measure_variants(cells, steps, first)
        for variant, cell, step in zip(("faulty", "mended"), cells, steps, strict=True):
            trace_step(cell, step, os.path.join(folder, f"{kind}.{model}.{variant}.json"))
    return {
        "kind": kind,
        "model": model,
        "status": "recorded",
        "size": size.name,
        "amount": round(amount, 4),
        "faulty_ms": round(statistics.median(faulty), 4),
        "mended_ms": round(statistics.median(mended), 4),
        "faulty_rounds_ms": [round(value, 4) for value in faulty],
        "mended_rounds_ms": [round(value, 4) for value in mended],
        "seconds": round(time.perf_counter() - start, 1),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if device.startswith("cuda") else device,
    }


def record_cells(plan: dict[str, Any]) -> None:
    """Record the plan's cells one after the other; `started` holds the kind at work, for the parent to read."""
    end = time.monotonic() + plan["seconds"]
    for kind in plan["kinds"]:
        if time.monotonic() > end - LAST_START_SECONDS:
            return
        with open(os.path.join(plan["folder"], "started"), "w", encoding="utf-8") as file:
            file.write(kind)
        faulthandler.dump_traceback_later(CELL_SECONDS, exit=True)
        try:
            line = record_cell(kind, plan["model"], plan["folder"], plan["device"])
        except Exception as error:  # whatever one fault does on one model must not stop the others
            text = f"{type(error).__name__}: {str(error)[:300]}"
            line = {"kind": kind, "model": plan["model"], "status": "failed", "reason": text}
            fatal = "CUDA error" in text
        else:
            fatal = False
        faulthandler.cancel_dump_traceback_later()
        with open(os.path.join(plan["folder"], "cells.jsonl"), "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if fatal:
            sys.exit(3)
        gc.collect()
        if plan["device"].startswith("cuda"):
            torch.cuda.empty_cache()


if __name__ == "__main__":
    record_cells(json.loads(sys.argv[1]))
