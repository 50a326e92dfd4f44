"""Fit a remedy to the owner of the program: its GPU's vendor, its version of torch, and the engine that runs the model.

Rules write remedies for a program of its own on NVIDIA. What an engine or another vendor names differently is replaced
here, in one place, for all of them; what has no equal there is left out.
"""

from __future__ import annotations

import re
from dataclasses import replace

from torchprof_tui.analysis.patterns.engine.pattern import Remedy
from torchprof_tui.analysis.patterns.engine.practices import Engine, Practices, Vendor

_NVIDIA_CODE = re.compile(r"CUDA_|PYTORCH_CUDA|nvidia-smi|cudnn")
_CUDA_CODE = re.compile(r"cuda|CUDA|nvidia|cudnn")
_GRAPHS = re.compile(r"reduce-overhead|(replay (a )?|in one )CUDA graph")
_COMPILE = re.compile(r"torch\.compile\(")
_LOADER = re.compile(r"DataLoader\(…")
_FUSED = re.compile(r"torch\.optim\.AdamW?\(params, fused=True\)")
_AUTOCAST = re.compile(r"torch\.autocast\(.*bfloat16")

_NEEDS_VERSION = (
    (re.compile(r"_grouped_mm"), (2, 8)),
    (re.compile(r"enable_gqa"), (2, 5)),
    (re.compile(r"torch\.amp\.GradScaler|SGD\(params, fused=True\)"), (2, 3)),
    (re.compile(r"expandable_segments"), (2, 1)),
    (re.compile(r"torch\.compile|scaled_dot_product_attention|fused=True"), (2, 0)),
    (re.compile(r"torch\.autocast"), (1, 10)),
)
"""What the code of a remedy needs, and the first version of torch that has it; newest first."""

_ENGINE_REMEDIES: dict[Engine, tuple[tuple[re.Pattern[str], str, str], ...]] = {
    Engine.VLLM: (
        (_GRAPHS, "let vLLM capture CUDA graphs and compile: start it without --enforce-eager", "vllm serve MODEL"),
        (_COMPILE, "let vLLM compile the model: start it without --enforce-eager", "vllm serve MODEL"),
    ),
    Engine.SGLANG: (
        (
            _GRAPHS,
            "let SGLang capture CUDA graphs up to your batch size: no --disable-cuda-graph, and a larger maximum",
            "python -m sglang.launch_server --model-path MODEL --cuda-graph-max-bs 64",
        ),
        (
            _COMPILE,
            "let SGLang compile the model",
            "python -m sglang.launch_server --model-path MODEL --enable-torch-compile",
        ),
    ),
    Engine.TRAINER: (
        (_COMPILE, "", "TrainingArguments(…, torch_compile=True)"),
        (_LOADER, "", "TrainingArguments(…, dataloader_num_workers=8, dataloader_pin_memory=True)"),
        (_FUSED, "", 'TrainingArguments(…, optim="adamw_torch_fused")'),
        (_AUTOCAST, "", "TrainingArguments(…, bf16=True)"),
    ),
    Engine.LIGHTNING: ((_AUTOCAST, "", 'Trainer(precision="bf16-mixed")'),),
}
"""By engine: what a remedy holds, and the action ("" for the same) and code that replace it."""


_VLLM_SIZES = "vLLM compiles already: let it capture graphs for these batch sizes, or use larger batches"
_VLLM_SIZES_CODE = "vllm serve MODEL --compilation-config '{\"cudagraph_capture_sizes\": [1, 2, 4, 8]}'"
"""`--enforce-eager` would switch both compiling and graphs off."""


def fit_remedy(practices: Practices, remedy: Remedy) -> Remedy:
    """Return the remedy as this program can follow it."""
    if practices.engine is Engine.VLLM and practices.uses_compile and _GRAPHS.search(f"{remedy.action}\n{remedy.code}"):
        return Remedy(
            _VLLM_SIZES, "vllm serve MODEL --compilation-config '{\"cudagraph_capture_sizes\": [1, 2, 4, 8]}'"
        )
    for pattern, action, code in _ENGINE_REMEDIES.get(practices.engine, ()) if practices.engine else ():
        if pattern.search(f"{remedy.action}\n{remedy.code}"):
            remedy = Remedy(action or remedy.action, code)
            break
    if practices.vendor not in (None, Vendor.NVIDIA):
        foreign = _NVIDIA_CODE if practices.vendor is Vendor.AMD else _CUDA_CODE  # torch calls AMD's devices cuda
        code = "" if foreign.search(remedy.code) else remedy.code
        library = "MIOpen" if practices.vendor is Vendor.AMD else "the library"
        graphs = "HIP graph" if practices.vendor is Vendor.AMD else "graph"
        remedy = Remedy(remedy.action.replace("cuDNN", library).replace("CUDA graph", graphs), code)
    if practices.torch_version:
        for pattern, version in _NEEDS_VERSION:
            if practices.torch_version < version and pattern.search(f"{remedy.action}\n{remedy.code}"):
                newer = f"from torch {version[0]}.{version[1]} on: "
                return replace(remedy, action=newer + remedy.action, code="")
    return remedy
