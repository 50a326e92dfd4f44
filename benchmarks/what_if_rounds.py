"""Compare predictions with pairs that were recorded in turns: `python -m benchmarks.what_if_rounds FOLDER [NAME]`

FOLDER holds NAME.VARIANT.rK.pt.trace.json.gz (of several ranks a folder NAME.VARIANT.rK): variant `a` before a change
and `b` after it, recorded one after the other, three times. Prints a Markdown table with the medians over the rounds,
and the error of each round.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import torchprof_tui
from benchmarks.what_if import measure_step, predict_steps
from torchprof_tui.trace.core.time_format import format_duration

PAIRS = (
    ("item", "a", "sync=0"),
    ("item_nosyncevents", "a", "sync=0"),
    ("item_each_layer", "a", "sync=0"),
    ("workers", "a", "dataloader=0"),
    ("workers_longer", "a", "dataloader=0"),
    ("graph_infer", "a", "launch=graph"),
    ("graph_infer_llama", "a", "launch=graph"),
    ("compile_net", "a", "compile"),
    ("compile_llama", "a", "compile"),
    ("compile_llama_large", "a", "compile"),
    ("compile_llama_infer", "a", "compile"),
    ("compile_conv", "a", "compile"),
    ("adam", "a", "optimizer=fused"),
    ("adam", "a2", "optimizer=fused"),
    ("adam_llama", "a", "optimizer=fused"),
    ("adam_llama", "a2", "optimizer=fused"),
    ("bf16_large", "a", "classes"),
    ("bf16_medium", "a", "classes"),
    ("bf16_llama", "a", "classes"),
    ("late_rank", "a", "late-rank=0"),
)
"""Name, variant before the change, scenario; `b` is the variant after it."""

ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("name", nargs="?", default="")
    options = parser.parse_args()
    print("| pair | change | before | predicted | measured | error | error of each round |")
    print("|---" * 7 + "|")
    errors = []
    for name, variant, scenario in PAIRS:
        if name.startswith(options.name):
            found = [_compare(options.folder, name, variant, scenario, number) for number in range(ROUNDS)]
            was, predicted, now = (float(np.median(column)) for column in zip(*found, strict=True))
            errors.append(abs(predicted / now - 1))
            rounds = ", ".join(f"{guess / real - 1:+.0%}" for _, guess, real in found)
            cells = (
                name, scenario, *(format_duration(round(each)) for each in (was, predicted, now)),
                f"{predicted / now - 1:+.0%}", rounds,
            )  # fmt: skip
            print(f"| {' | '.join(cells)} |", flush=True)
    print(f"\nmedian error {np.median(errors):.0%} ({len(errors)} pairs)")


def _compare(folder: Path, name: str, variant: str, scenario: str, number: int) -> tuple[float, float, float]:
    """Return the step time before, predicted and after in one round: ns."""
    before, after = (_find(folder, f"{name}.{each}.r{number}") for each in (variant, "b"))
    with torchprof_tui.open(before) as a, torchprof_tui.open(after) as b:
        predicted, _, _ = predict_steps(a._model, b._model, scenario)
        return measure_step(a._model), predicted, measure_step(b._model)


def _find(folder: Path, name: str) -> Path:
    path = folder / f"{name}.pt.trace.json.gz"
    return path if path.exists() else folder / name


if __name__ == "__main__":
    main()
