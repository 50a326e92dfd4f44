"""Compare predictions with reality on recorded pairs: `python -m benchmarks.what_if FOLDER`

FOLDER holds pairs of traces, each recorded with and without a change, and whatif_pairs.json with their step times
without the profiler. Prints a Markdown table: the step time that is predicted from the first trace, and the one
measured in the second.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

import torchprof_tui
from torchprof_tui.analysis.critical_path.step_window import select_window
from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.what_if.forecast import Forecaster
from torchprof_tui.analysis.what_if.step_model import StepModel, build_rank_model, build_step_model
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.trace import Trace

PAIRS = (
    ("without .item()", "item_small_item", "item_small_no_item", "sync=0"),
    ("without .item(), no sync events", "item_small_item_nosyncevents", "item_small_no_item_nosyncevents", "sync=0"),
    ("without .item(), GPU-bound", "item_large_item", "item_large_no_item", "sync=0"),
    ("with loader workers", "workers_0", "workers_4", "dataloader=0"),
    ("CUDA graph, inference", "graph_infer_eager", "graph_infer_graph", "launch=graph"),
    ("CUDA graph, training", "graph_train_eager", "graph_train_graph", "launch=graph"),
    ("compiled", "compile_small_eager", "compile_small_compile", "compile"),
    ("compiled, GPU-bound", "compile_large_eager", "compile_large_compile", "compile"),
    ("fused Adam, from a loop", "adam_loop", "adam_fused", "optimizer=fused"),
    ("fused Adam, from foreach", "adam_foreach", "adam_fused", "optimizer=fused"),
    ("bf16, GPU-bound", "dtype_large_fp32", "dtype_large_bf16", "classes"),
    ("bf16", "dtype_medium_fp32", "dtype_medium_bf16", "classes"),
    ("without the late rank", "late_rank", "late_rank_none", "late-rank=0"),
)
"""What is changed, trace before, trace after, scenario; "classes": each class by the ratio of its measured times."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    steps = json.loads((folder / "whatif_pairs.json").read_text())["steps"]
    print(
        "| change | before | predicted | measured | error | measured speedup | without profiler | replay error | ms |"
    )
    print("|---" * 9 + "|")
    errors = []
    for label, before, after, scenario in PAIRS:
        with torchprof_tui.open(_find(folder, before)) as a, torchprof_tui.open(_find(folder, after)) as b:
            was, now = measure_step(a._model), measure_step(b._model)
            predicted, replay_error, seconds = predict_steps(a._model, b._model, scenario)
        error = predicted / now - 1
        errors.append(abs(error))
        cells = (
            label, format_duration(was), format_duration(int(predicted)), format_duration(now), f"{error:+.0%}",
            f"{was / now:.2f}x", _compare_unprofiled(folder, steps, before, after),
            f"{replay_error:.1%}", f"{seconds * 1000:.0f}",
        )  # fmt: skip
        print(f"| {' | '.join(cells)} |")
    print(f"\nmedian error {np.median(errors):.0%} ({len(errors)} pairs)")


def predict_steps(before: Trace, after: Trace, scenario: str) -> tuple[float, float, float]:
    """Predict each recorded step: the median of the new step times in ns, the largest replay error, seconds for one."""
    predicted, errors, seconds = [], [], []
    for step in before.all_ranks[0].steps:
        model = build_step_model(before, step.number)
        sets = _scale_classes(model, after) if scenario == "classes" else [scenario]
        forecaster = Forecaster(model)
        forecaster.unchanged  # noqa: B018 - computed once for all scenarios
        begin = time.perf_counter()
        forecast = forecaster.predict(sets)
        seconds.append(time.perf_counter() - begin)
        predicted.append(forecast.after)
        errors.append(abs(forecast.replay_error))
    return float(np.median(predicted)), max(errors), float(np.median(seconds))


def measure_step(trace: Trace) -> int:
    """Measure the time from one step to the next: ns, the median over the recorded steps and ranks.

    From the end of a step's last GPU work to that of the next.
    """
    found = []
    for rank in trace.all_ranks:
        ends = [select_window(rank.trace, step).end for step in rank.trace.steps]
        found += np.diff(np.array(ends)).tolist()
    return int(np.median(found))


def _find(folder: Path, name: str) -> Path:
    path = folder / f"{name}.pt.trace.json.gz"
    return path if path.exists() else folder / name


def _compare_unprofiled(folder: Path, steps: dict[str, dict[str, float]], before: str, after: str) -> str:
    def read(name: str) -> float:
        if name in steps:
            return steps[name]["unprofiled_ms"]
        return max(float(path.read_text()) for path in (folder / name).glob("*.ms"))

    return f"{read(before) / read(after):.2f}x"


def _scale_classes(model: StepModel, other: Trace) -> list[str]:
    """Scale each class of kernels as its measured time in a step of the other trace."""
    sums = []
    for rank in (model.ranks[0], build_rank_model(other, None)):
        work = rank.window.work
        time = (work.end - work.start) * rank.is_own
        sums.append(np.bincount(rank.work_class, time, minlength=len(KernelClass)))
    return [
        f"class={KernelClass(number).label}*{sums[1][number] / sums[0][number]:.4f}"
        for number in np.flatnonzero(sums[0]).tolist()
        if sums[1][number] and KernelClass(number) is not KernelClass.MEMORY
    ]


if __name__ == "__main__":
    main()
