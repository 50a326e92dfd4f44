"""Record pairs for `benchmarks.what_if_rounds`, on a machine with a GPU: `record_what_if.py FOLDER [NAME …]`

Each pair is one program with and without a change, recorded in one process in turns (A B A B …), so that both meet the
same clocks and the same load of the CPU. Writes FOLDER/NAME.VARIANT.rK.pt.trace.json, and FOLDER/unprofiled.json: ms of
each variant's step without the profiler. A pair that fails is named and skipped.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from pathlib import Path

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile, schedule
from what_if_programs import PAIRS, Step, Variants  # beside this file, which is run as a script

ROUNDS = 3
STEPS = 4
UNPROFILED_STEPS = 20


def record_step(step: Step, path: Path) -> None:
    """Record some steps of a variant, after three that are not kept."""
    config = torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        schedule=schedule(wait=1, warmup=2, active=STEPS),
        experimental_config=config,
        on_trace_ready=lambda recorded: recorded.export_chrome_trace(str(path)),
    ) as profiler:
        for _ in range(3 + STEPS):
            step()
            profiler.step()
        torch.cuda.synchronize()


def measure_unprofiled(step: Step) -> float:
    """Measure the mean time of a step without the profiler: ms."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(UNPROFILED_STEPS):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / UNPROFILED_STEPS * 1000


def record_pair(name: str, variants: Variants, folder: Path) -> dict[str, float]:
    """Record a pair in turns; return ms of each variant's step without the profiler."""
    for step in variants.values():
        for _ in range(6):
            step()
    unprofiled: dict[str, list[float]] = {variant: [] for variant in variants}
    for number in range(ROUNDS):
        for variant, step in variants.items():
            unprofiled[variant].append(measure_unprofiled(step))
            record_step(step, folder / f"{name}.{variant}.r{number}.pt.trace.json")
    return {f"{name}.{variant}": float(np.median(found)) for variant, found in unprofiled.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.backends.cuda.matmul.allow_tf32 = False
    unprofiled: dict[str, float] = {}
    for make in PAIRS:
        if not options.names or make.__name__ in options.names:
            begin = time.perf_counter()
            try:
                unprofiled |= record_pair(make.__name__, make(), options.folder)
            except Exception:  # the other pairs are recorded all the same
                traceback.print_exc(limit=4)
            print(f"{make.__name__}: {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
            (options.folder / "unprofiled.json").write_text(json.dumps(unprofiled, indent=1))
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
