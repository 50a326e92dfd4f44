"""What a program already does: CUDA graphs, compilation, workers, pinned memory, its kind of optimizer, precision.

Read from the names of a trace, which are few, so that it costs next to nothing. A remedy that is in use is never
advised, and one for training never where nothing is trained.
"""

from __future__ import annotations

import re
from dataclasses import replace
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from torchprof_tui.analysis.kernel.footprint import find_device
from torchprof_tui.analysis.patterns.engine.pattern import Remedy
from torchprof_tui.trace.core.arrays import sorted_unique
from torchprof_tui.trace.model.event_kind import Kind

if TYPE_CHECKING:
    from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
    from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables


GRAPH_LAUNCH_REGEX = r"(cuda|cu|hip)GraphLaunch"
OPTIMIZER_STEP_REGEX = r"Optimizer\.step#"
OPTIMIZER_NAME_REGEX = r"Optimizer\.step#(\w+)\.step"
_BACKWARD_REGEX = r"autograd::engine::evaluate_function|\w+Backward\d*$|CompiledFunctionBackward"
COMPILE_WORK_REGEX = r".*\(dynamo_timed\)|_compile\.compile_inner|entire_frame_compile|.*compile_id=\d+/\d+"
"""Compilation itself: dynamo's timed phases, and the annotations that it records since torch 2.8."""
DATA_DEPENDENT_REGEX = r"aten::(nonzero|masked_select|_?unique(_dim|2|_consecutive)?)$"
COMPILED_REGEX = r"Torch-Compiled Region|## Call CompiledFxGraph |CompiledFunction"
_WORKER_REGEX = r".*_MultiProcessingDataLoaderIter"
_PINNED_REGEX = r"Memcpy HtoD.*Pinned|aten::_?pin_memory$"
_SCALER_REGEX = r"aten::_amp_(foreach_non_finite_check_and_unscale_|update_scale_)"


class OptimizerKind(str, Enum):
    """How an optimizer updates its parameters."""

    FUSED = "fused"  # one kernel updates many parameters
    FOREACH = "foreach"  # each operation covers many parameters
    PER_PARAMETER = "per parameter"  # a few kernels for each


class Vendor(str, Enum):
    """Who made the GPU, by the runtime that the program calls."""

    NVIDIA = "NVIDIA"
    AMD = "AMD"
    OTHER = "other"  # Ascend, MTIA, Intel: their runtimes have names of their own


class Engine(str, Enum):
    """Who runs the model, if not the user's own loop: advice about the loop is then a flag of the engine."""

    VLLM = "vLLM"
    SGLANG = "SGLang"
    TRAINER = "transformers.Trainer"
    LIGHTNING = "Lightning"


_ENGINE_REGEXES = {
    Engine.SGLANG: r"(sgl_kernel|sglang)::|.*\bsglang[/\\]",  # first: it calls ops of vLLM
    Engine.VLLM: r"vllm::|.*\bvllm[/\\]",
    Engine.TRAINER: r".*\btransformers[/\\]trainer\.py",
    Engine.LIGHTNING: r".*\b(pytorch_lightning|lightning[/\\]pytorch)[/\\]|\[pl\]\[profile\]",
}
"""Ops and frames of each, at the start of a name. Names of steps prove nothing: others write them as well."""

_VENDOR_REGEXES = {
    Vendor.NVIDIA: r"cuda[A-Z]|cu[A-Z]\w",
    Vendor.AMD: r"hip[A-Z]",
    Vendor.OTHER: r"AscendCL@|acl(rt|op|nn)|enqueueCommand|predictor_executor|ur[A-Z]|ze[A-Z]",
}

_OLD_CATEGORY, _OLD_VERSION = "Operator", (1, 9)  # category of ops in torch up to 1.9, which writes no version


class Practices:
    """What the program of one trace does; `TraceTables.practices` keeps it. All answers are of the whole trace."""

    def __init__(self, tables: TraceTables) -> None:
        self._tables = tables
        self._has_name: dict[str, bool] = {}

    def has_name(self, pattern: str) -> bool:
        """Return whether any event's name matches the pattern at its start; each pattern is looked for once."""
        if pattern not in self._has_name:
            matches = re.compile(pattern).match
            self._has_name[pattern] = any(matches(name) for name in self._tables.trace.names)
        return self._has_name[pattern]

    @cached_property
    def uses_cuda_graphs(self) -> bool:
        """Whether graphs are replayed."""
        return bool(len(self.graph_launches))

    @cached_property
    def graph_launches(self) -> EventTable:
        """Calls that replay a graph."""
        return self._tables.match_names(GRAPH_LAUNCH_REGEX, Kind.RUNTIME)

    @cached_property
    def uses_compile(self) -> bool:
        """Whether `torch.compile` made any of the code."""
        return self.has_name(COMPILED_REGEX)

    @cached_property
    def data_dependent_op(self) -> str:
        """The op with the most runs on the GPU whose result has a size that the CPU must read; "" for none."""
        ops = self._tables.match_names(DATA_DEPENDENT_REGEX, Kind.OP)
        ops = ops.select(self._tables.has_work[ops.row])
        if len(ops) < max(len(self._tables.steps), 1):
            return ""
        return self._tables.trace.names[int(np.bincount(ops.name).argmax())]

    @cached_property
    def uses_workers(self) -> bool:
        """Whether a data loader has worker processes."""
        return self.has_name(_WORKER_REGEX)

    @cached_property
    def pins_memory(self) -> bool:
        """Whether any copy to the GPU reads pinned memory; `item()` reads into a pinned buffer of its own."""
        return self.has_name(_PINNED_REGEX)

    @cached_property
    def has_backward(self) -> bool:
        return self.has_name(_BACKWARD_REGEX)

    @cached_property
    def optimizer_names(self) -> tuple[str, ...]:
        """Classes of the optimizers that made a step, sorted."""
        matches = (re.match(OPTIMIZER_NAME_REGEX, name) for name in self._tables.trace.names)
        return tuple(sorted({match[1] for match in matches if match}))

    @cached_property
    def optimizer_kind(self) -> OptimizerKind | None:
        """How the optimizer works, by the ops of the trace; None without an optimizer step.

        Ops of other code count as well: a program that clips gradients with foreach ops and steps per parameter reads
        as foreach. `optimizer-loop` looks inside the steps.
        """
        if not self.optimizer_names:
            return None
        if self.has_name(r"aten::_fused_(adamw?|sgd|adagrad)"):
            return OptimizerKind.FUSED
        return OptimizerKind.FOREACH if self.has_name(r"aten::_foreach_") else OptimizerKind.PER_PARAMETER

    @cached_property
    def uses_gradscaler(self) -> bool:
        return self.has_name(_SCALER_REGEX)

    @cached_property
    def is_inference(self) -> bool:
        """Whether ops were recorded, and neither a backward pass nor an optimizer step."""
        return bool(len(self._tables.ops)) and not self.has_backward and not self.optimizer_names

    @cached_property
    def capability(self) -> tuple[int, int] | None:
        """Compute capability of the first GPU, None if the trace does not describe it."""
        work = self._tables.work
        device = find_device(self._tables.trace, int(work.events.row[0])) if len(work) else None
        return None if device is None else device.capability

    @cached_property
    def vendor(self) -> Vendor | None:
        """Who made the GPU; None where no runtime call says so."""
        names = self._tables.trace.names
        called = [names[number] for number in sorted_unique(self._tables.calls.name).tolist()]
        found = {
            vendor: sum(re.match(pattern, name) is not None for name in called)
            for vendor, pattern in _VENDOR_REGEXES.items()
        }
        most = max(found, key=lambda vendor: found[vendor])
        return most if found[most] else None

    @cached_property
    def engine(self) -> Engine | None:
        """Who runs the model; None for a loop of the user's."""
        return next((engine for engine, pattern in _ENGINE_REGEXES.items() if self.has_name(pattern)), None)

    @cached_property
    def torch_version(self) -> tuple[int, int] | None:
        """The version of torch (major, minor), or the newest that it can be; None where the trace does not say."""
        trace = self._tables.trace
        if match := re.match(r"(\d{1,3})\.(\d{1,3})", trace.metadata.torch_version):
            return int(match[1]), int(match[2])
        return _OLD_VERSION if _OLD_CATEGORY in trace.categories else None

    @cached_property
    def python_frames(self) -> EventTable:
        """All Python frames of the trace."""
        return self._tables.event_table(np.flatnonzero(np.asarray(self._tables.trace.kind) == Kind.PYTHON))


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
    """Return the remedy as this program can follow it.

    Rules write remedies for a program of its own on NVIDIA. What an engine or another vendor names differently is
    replaced here, in one place; what has no equal there is left out.
    """
    if practices.engine is Engine.VLLM and practices.uses_compile and _GRAPHS.search(f"{remedy.action}\n{remedy.code}"):
        return Remedy(_VLLM_SIZES, _VLLM_SIZES_CODE)
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
