"""Test that remedies fit the vendor, the version of torch and the engine, and that their code gives equal results."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers.pattern_traces import ADD, healthy, waiting
from tests.helpers.trace_builder import Entry, annotation, cpu, event, kernel, python, runtime, trace
from torchprof_tui.analysis.patterns.engine.checker import PATTERNS, Checker
from torchprof_tui.analysis.patterns.engine.pattern import Remedy
from torchprof_tui.analysis.patterns.engine.practices import Engine, Practices, Vendor, fit_remedy
from torchprof_tui.analysis.patterns.rules import remedy_choice

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


def test_code_gives_the_results_of_what_it_replaces() -> None:
    """Each snippet is executed as shown, on small tensors, beside the code that its comment or pattern names."""
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional

    def shown(code: str, **names: Any) -> dict[str, Any]:
        scope = {"torch": torch, "F": functional, **names}
        exec(code, scope)
        return scope

    x, w, b = torch.randn(4, 8), torch.randn(8, 3), torch.randn(4, 3)
    expected = torch.addmm(b, x, w)
    torch.testing.assert_close(shown(PATTERNS["copy-before-gemm"].code, x=x, w=w, b=b)["y"], expected)

    torch.manual_seed(0)
    before = torch.randn((3, 5)).to("cpu")
    torch.manual_seed(0)
    assert torch.equal(shown(PATTERNS["cpu-work"].code, shape=(3, 5), device="cpu")["x"], before)

    q, k, v = torch.randn(2, 8, 5, 4), torch.randn(2, 2, 5, 4), torch.randn(2, 2, 5, 4)
    repeated = (part.repeat_interleave(4, dim=1) for part in (k, v))
    expected = functional.scaled_dot_product_attention(q, *repeated, is_causal=True)
    result = eval(PATTERNS["gqa-expand-copy"].code, {"F": functional, "q": q, "k": k, "v": v})
    torch.testing.assert_close(result, expected)

    cache, keys = torch.zeros(2, 3, 6, 4), torch.randn(2, 3, 1, 4)
    shown(PATTERNS["kv-cache-cat"].code, cache=cache, keys=keys, position=torch.tensor([2]))
    assert torch.equal(cache[:, :, :3], torch.cat([torch.zeros(2, 3, 2, 4), keys], dim=2))

    by_op = remedy_choice.HIDDEN_COPY_REMEDIES
    qkv = torch.randn(3, 4, 5)
    parts = shown(by_op["aten::select_backward"].code, qkv=qkv)
    assert all(torch.equal(parts[name], qkv[index]) for index, name in enumerate("qkv"))
    y = torch.randn(4, 7)
    parts = shown(by_op["aten::slice_backward"].code, x=y, sizes=[3, 4])
    assert torch.equal(parts["a"], y[..., :3])
    assert torch.equal(parts["b"], y[..., 3:])
    indices = torch.tensor([2, 0])
    rows = shown(by_op["aten::_index_put_impl_"].code, x=y, indices=indices)["y"]
    assert torch.equal(rows, torch.stack([y[i] for i in indices]))
    mask, scores = torch.rand(4, 7) > 0.5, torch.randn(4, 7)
    expected = scores.masked_fill(mask, float("-inf"))
    shown(by_op["aten::masked_fill"].code, scores=scores, mask=mask)
    assert torch.equal(scores, expected)

    expert = torch.tensor([1, 0, 1, 1])
    tokens, weights = torch.randn(4, 16).bfloat16(), torch.randn(2, 16, 16).bfloat16()
    order, offsets = expert.argsort(), torch.bincount(expert).cumsum(0).int()
    y = torch.empty(4, 16, dtype=torch.bfloat16)
    shown(PATTERNS["moe-expert-loop"].code, x=tokens, y=y, weights=weights, order=order, offsets=offsets)
    torch.testing.assert_close(y, torch.stack([tokens[i] @ weights[expert[i]] for i in range(4)]), atol=0.1, rtol=0.05)
