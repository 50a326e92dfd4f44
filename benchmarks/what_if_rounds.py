"""Compare predictions with pairs that were recorded in turns: `python -m benchmarks.what_if_rounds FOLDER [NAME]`

FOLDER holds NAME.VARIANT.rK.pt.trace.json[.gz] (of several ranks a folder NAME.VARIANT.rK): variant `a` before a change
and `b` after it, recorded one after the other, three times, as `record_what_if.py` does. Pairs that
are missing are left out. Prints a Markdown table with the medians over the rounds, and the error of each round.
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
    ("graph_resnet_infer", "a", "launch=graph"),
    ("graph_bert_infer", "a", "launch=graph"),
    ("graph_vit_train", "a", "launch=graph"),
    ("item_resnet", "a", "sync=0"),
    ("item_blocks_vit", "a", "sync=0"),
    ("item_gpt2_large", "a", "sync=0"),
    ("clip_gpt2", "a", "sync=0"),
    ("workers_resnet", "a", "dataloader=0"),
    ("workers_resnet_short", "a", "dataloader=0"),
    ("adam_resnet", "a", "optimizer=fused"),
    ("adam_resnet", "a2", "optimizer=fused"),
    ("adam_gpt2", "a", "optimizer=fused"),
    ("adam_gpt2", "a2", "optimizer=fused"),
    ("bf16_resnet", "a", "classes"),
    ("bf16_gpt2", "a", "classes"),
    ("bf16_bert_infer", "a", "classes"),
    ("graph_convnext_infer", "a", "launch=graph"),
    ("graph_swin_infer", "a", "launch=graph"),
    ("graph_efficientnet_train", "a", "launch=graph"),
    ("compile_mobilenet_infer", "a", "compile"),
    ("compile_swin", "a", "compile"),
    ("compile_transformers_llama", "a", "compile"),
    ("compile_efficientnet", "a", "compile"),
    ("compile_bert_train", "a", "compile"),
    ("compile_t5", "a", "compile"),
    ("compile_qwen_infer", "a", "compile"),
    ("compile_regnet", "a", "compile"),
    ("compile_densenet_infer", "a", "compile"),
    ("compile_bert_infer", "a", "compile"),
    ("compile_vit", "a", "compile"),
    ("compile_convnext_infer", "a", "compile"),
    ("compile_gpt2", "a", "compile"),
    ("compile_resnet", "a", "compile"),
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
        if name.startswith(options.name) and _find(options.folder, f"{name}.{variant}.r0").exists():
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
    paths = [folder / f"{name}{suffix}" for suffix in (".pt.trace.json.gz", ".pt.trace.json", "")]
    return next((path for path in paths if path.exists()), paths[-1])


if __name__ == "__main__":
    main()
