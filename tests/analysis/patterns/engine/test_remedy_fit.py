"""Test that remedies fit the vendor, the version of torch and the engine."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers.pattern_traces import ADD, healthy, waiting
from tests.helpers.trace_builder import Entry, annotation, cpu, event, kernel, python, runtime, trace
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS, Checker
from torchprof_tui.analysis.patterns.engine.pattern import Remedy
from torchprof_tui.analysis.patterns.engine.practices import Engine, Practices, Vendor, fit_remedy

GRAPHS = Remedy("replay CUDA graphs, or use larger batches", 'model = torch.compile(model, mode="reduce-overhead")')


def read_practices(*entries: Entry, **header: Any) -> Practices:
    return Checker(trace(*entries, header=header)).tables.practices


def fit(remedy: Remedy, *entries: Entry, **header: Any) -> Remedy:
    return fit_remedy(read_practices(*entries, **header), remedy)


def called(name: str) -> list[Entry]:
    return [runtime(name, 0, 5, 1), kernel(ADD, 10, 5, 1)]


@pytest.mark.parametrize(
    ("name", "vendor"),
    [("cudaLaunchKernel", Vendor.NVIDIA), ("cuLaunchKernel", Vendor.NVIDIA), ("hipLaunchKernel", Vendor.AMD),
     ("AscendCL@aclnnAdd", Vendor.OTHER), ("enqueueCommand run", Vendor.OTHER), ("strange", None)],
)  # fmt: skip
def test_the_runtime_says_who_made_the_gpu(name: str, vendor: Vendor | None) -> None:
    assert Checker(trace(*called(name))).tables.practices.vendor is vendor


def test_no_advice_names_what_another_vendor_does_not_have() -> None:
    others = [(Remedy(pattern.action, pattern.code)) for pattern in PATTERNS.values()]
    others += [Remedy("load all kernels at once", "CUDA_MODULE_LOADING=EAGER python serve.py")]
    calls = ("hipLaunchKernel", "AscendCL@aclnnAdd", "cudaLaunchKernel")
    of_amd, of_npu, of_nvidia = (read_practices(*called(name)) for name in calls)
    for remedy in others:
        amd, npu = fit_remedy(of_amd, remedy), fit_remedy(of_npu, remedy)
        assert not any(word in amd.action + amd.code for word in ("cuDNN", "CUDA_", "PYTORCH_CUDA", "nvidia"))
        assert not any(word in (npu.action + npu.code).lower() for word in ("cuda", "cudnn", "nvidia"))
        assert fit_remedy(of_nvidia, remedy) == remedy
    assert "MIOpen" in fit(Remedy("let cuDNN search"), *called("hipLaunchKernel")).action


ENGINES = {
    Engine.VLLM: python("vllm/v1/worker/gpu_model_runner.py(9): execute_model", 0, 50),
    Engine.SGLANG: python("/w/sglang/python/sglang/srt/managers/scheduler.py(9): run_batch", 0, 50),
    Engine.TRAINER: python("transformers/trainer.py(2000): train", 0, 50),
    Engine.LIGHTNING: python("lightning/pytorch/loops/fit_loop.py(3): run", 0, 50),
}
FLAGS = [
    (Engine.VLLM, GRAPHS, "--enforce-eager"),
    (Engine.SGLANG, GRAPHS, "--cuda-graph-max-bs"),
    (Engine.TRAINER, GRAPHS, "TrainingArguments(…, torch_compile=True)"),
    (Engine.TRAINER, Remedy("fuse", "torch.optim.AdamW(params, fused=True)"), 'optim="adamw_torch_fused"'),
    (Engine.TRAINER, Remedy("load", "DataLoader(…, num_workers=8)"), "dataloader_num_workers=8"),
    (Engine.LIGHTNING, Remedy("cast", "with torch.autocast('cuda', torch.bfloat16): …"), 'precision="bf16-mixed"'),
]


@pytest.mark.parametrize(("engine", "remedy", "flag"), FLAGS)
def test_who_runs_an_engine_gets_its_flag(engine: Engine, remedy: Remedy, flag: str) -> None:
    entries = [*called("cudaLaunchKernel"), ENGINES[engine]]
    assert Checker(trace(*entries)).tables.practices.engine is engine
    fitted = fit(remedy, *entries)
    assert flag in f"{fitted.action} {fitted.code}"
    assert fitted.code != remedy.code
    unrelated = Remedy("nonzero reads a size from the GPU, which no CUDA graph replays")
    assert fit(unrelated, *entries) == unrelated


def test_vllm_that_compiles_is_not_told_to() -> None:
    entries = [*called("cudaLaunchKernel"), ENGINES[Engine.VLLM], cpu("Torch-Compiled Region: 0/0", 0, 50)]
    fitted = fit(GRAPHS, *entries)
    assert "enforce-eager" not in fitted.action + fitted.code
    assert "cudagraph_capture_sizes" in fitted.code


def test_the_verdict_gives_the_flag_as_well() -> None:
    checker = Checker(trace(*waiting(), ENGINES[Engine.VLLM]))
    assert "without --enforce-eager" in checker.decide_verdict(findings=checker.check()).first


def test_an_api_that_came_later_is_named_as_such() -> None:
    for header in ({"pytorch_version": "1.13.1"}, {"torch_version": "1.13.1+cu117"}):
        fitted = fit(GRAPHS, *called("cudaLaunchKernel"), **header)
        assert fitted == Remedy("from torch 2.0 on: " + GRAPHS.action)
    assert fit(GRAPHS, *called("cudaLaunchKernel"), pytorch_version="2.4.0") == GRAPHS
    old = [*called("cudaLaunchKernel"), event("aten::mm", 0, 5, "Operator")]
    assert fit(Remedy("scale", "scaler = torch.amp.GradScaler('cuda')"), *old).code == ""


def test_a_fused_optimizer_is_advised_only_where_the_optimizer_takes_time() -> None:
    def first(length: float) -> str:
        steps = [annotation("Optimizer.step#AdamW.step", 1000 * k + 900, length) for k in range(4)]
        checker = Checker(trace(*waiting(), *steps, *healthy(0)))
        return checker.decide_verdict(findings=checker.check()).first

    assert "a fused optimizer" in first(300)
    assert "a fused optimizer" not in first(20)
