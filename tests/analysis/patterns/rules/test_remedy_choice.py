"""Test that a remedy is chosen by the owner of the evidence, and never one that is in use."""

from __future__ import annotations

import pytest

from tests.analysis.patterns.rules.test_moe import experts
from tests.analysis.patterns.rules.test_serving import decoding
from tests.helpers.long_run import keep_some
from tests.helpers.paths import FIXTURES, SHARED_TRACES
from tests.helpers.pattern_traces import ADD, H200, SHAPE, check_pattern, op_with_work
from tests.helpers.trace_builder import Entry, annotation, cpu, kernel, memcpy, python, runtime, step, trace
from torchprof_tui.analysis.patterns.engine.checker import Checker
from torchprof_tui.analysis.patterns.engine.pattern import Remedy
from torchprof_tui.trace.loading.load_in_process import load_trace

V100 = {"id": 0, "name": "Tesla V100", "computeMajor": 7, "computeMinor": 0, "numSms": 80, "warpSize": 32}
LOADER = "enumerate(DataLoader)#_{}DataLoaderIter.__next__"
TRAINING = [
    cpu("autograd::engine::evaluate_function: MmBackward0", 1, 2),
    annotation("Optimizer.step#SGD.step", 980, 5),
]


def waiting_op(*ops: str, call: str = "cudaStreamSynchronize", more: tuple[Entry, ...] = ()) -> list[Entry]:
    """A step in which nested ops wait for the GPU, which then is idle."""
    nested = [cpu(op, 100 + index, 300 - 2 * index) for index, op in enumerate(ops)]
    return [
        step(1, 0, 1000),
        *op_with_work("aten::mm", 10, 30, 200),
        *nested,
        runtime(call, 150, 100, 900),
        *op_with_work("aten::add", 600, 620, 20),
        *more,
    ]


def copy(name: str, size: int, at: float = 110, corr: int = 901) -> list[Entry]:
    return [runtime("cudaMemcpyAsync", at, 10, corr), memcpy(name, at + 20, 20, corr, bytes=size)]


def remedy(entries: list[Entry], pattern: str = "sync-in-step", device: dict[str, object] = H200) -> Remedy:
    finding = check_pattern(trace(*entries, header={"deviceProperties": [device]}), pattern)
    assert finding.has_fired, finding.answer
    return finding.remedy


def test_a_loss_that_is_read_is_detached() -> None:
    assert "losses.append(loss.detach())" in remedy(waiting_op("aten::item", more=tuple(TRAINING))).code


@pytest.mark.parametrize(("device", "has_bf16"), [(H200, True), (V100, False)])
def test_a_scaler_gets_a_fused_optimizer_and_bf16_where_the_gpu_has_it(
    device: dict[str, object], has_bf16: bool
) -> None:
    scaler = cpu("aten::_amp_foreach_non_finite_check_and_unscale_", 90, 5)
    chosen = remedy(waiting_op("aten::item", more=(scaler, *TRAINING)), device=device)
    assert chosen.code == "torch.optim.SGD(params, fused=True)"
    assert ("bf16" in chosen.action) == has_bf16


def test_a_value_read_after_the_optimizer_step_is_not_the_scalers() -> None:
    scaler = cpu("aten::_amp_foreach_non_finite_check_and_unscale_", 40, 5)
    early_step = annotation("Optimizer.step#SGD.step", 60, 20)
    assert "losses" in remedy(waiting_op("aten::item", more=(scaler, early_step))).code


@pytest.mark.parametrize("op", ["aten::nonzero", "aten::where", "aten::index", "aten::masked_select"])
def test_masks_keep_their_shape(op: str) -> None:
    assert "torch.where" in remedy(waiting_op(op)).code


def test_masks_of_experts_become_a_grouped_gemm() -> None:
    finding = check_pattern(
        trace(step(1, 0, 3000), *experts(16), *waiting_op("aten::where")[1:], *experts(1, thread=7)), "sync-in-step"
    )
    assert "_grouped_mm" in finding.remedy.code


def test_the_end_of_a_sequence_is_tested_less_often() -> None:
    waits = [runtime("cudaStreamSynchronize", 1000 * token + 960, 30, 5000 + token) for token in range(6)]
    tests = [cpu("aten::is_nonzero", 1000 * token + 950, 45) for token in range(6)]
    assert "check every n tokens" in remedy([step(1, 0, 6500), *decoding(6), *waits, *tests]).action


def test_an_if_on_a_tensor_is_decided_on_the_gpu() -> None:
    chosen = remedy(waiting_op("aten::is_nonzero", "aten::item"))
    assert "`if`" in chosen.action
    assert "loss" not in chosen.code


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("Memcpy DtoH (Device -> Pageable)", "buffer.copy_"),
        ("Memcpy HtoD (Pageable -> Device)", "pinned.copy_(x)"),
    ],
)
def test_a_blocking_copy_is_mended_by_its_direction(name: str, code: str) -> None:
    entries = waiting_op("aten::to", more=tuple(copy(name, 1 << 20)))
    assert code in remedy(entries).code
    assert code in remedy(entries, "pageable-copy").code


def test_a_loader_pins_unless_it_does_already() -> None:
    to_gpu = copy("Memcpy HtoD (Pageable -> Device)", 1 << 20)
    loader = annotation(LOADER.format("SingleProcess"), 1, 5)
    assert (
        "DataLoader(…, pin_memory=True)" in remedy(waiting_op("aten::to", more=(*to_gpu, loader)), "pageable-copy").code
    )
    pinned = copy("Memcpy HtoD (Pinned -> Device)", 1 << 20, 500, 902)
    chosen = remedy(waiting_op("aten::to", more=(*to_gpu, loader, *pinned)), "pageable-copy")
    assert "as for the other copies" in chosen.action
    assert "DataLoader" not in chosen.code


def test_an_explicit_wait_is_kept_only_where_something_is_measured() -> None:
    assert "torch.cuda.synchronize()" in remedy(waiting_op(call="cudaDeviceSynchronize")).action
    assert "event" in remedy(waiting_op(call="cudaEventSynchronize")).action


def test_ddp_measures_itself() -> None:
    forward = annotation("DistributedDataParallel.forward", 5, 50)
    assert "DDP" in remedy(waiting_op(call="cudaEventSynchronize", more=(forward,))).action


def starved(loader: str) -> list[Entry]:
    return [step(1, 0, 1000), annotation(LOADER.format(loader), 10, 800), *op_with_work("aten::mm", 820, 830, 150)]


def test_workers_in_use_are_not_advised() -> None:
    without = remedy(starved("SingleProcess"), "input-starved")
    assert "num_workers=8" in without.code
    assert "pin_memory=True" in without.code
    with_workers = remedy(starved("MultiProcessing"), "input-starved")
    assert "prefetch_factor=8" in with_workers.code
    assert "too slow" in with_workers.action
    pinned = copy("Memcpy HtoD (Pinned -> Device)", 1 << 20, 900)
    assert "pin_memory" not in remedy([*starved("SingleProcess"), *pinned], "input-starved").code


def test_without_a_gpu_no_more_workers_than_cores_are_advised() -> None:
    def starved_cpu(loader: str) -> list[Entry]:
        return [step(1, 0, 1000), annotation(LOADER.format(loader), 10, 800), cpu("aten::mm", 820, 150)]

    without = remedy(starved_cpu("SingleProcess"), "input-starved")
    assert "num_workers=min(4, os.cpu_count())" in without.code
    assert "up to the number of cores" in without.action
    with_workers = remedy(starved_cpu("MultiProcessing"), "input-starved")
    assert "num_workers=os.cpu_count()" in with_workers.code
    assert "up to the number of cores" in with_workers.action


def tiny(owner: Entry, kernels: int = 30) -> list[Entry]:
    entries = [owner]
    for number in range(1, kernels + 1):
        at = 10.0 * number
        entries += [cpu("aten::mul_", at, 8), runtime("cudaLaunchKernel", at + 2, 4, number)]
        entries.append(kernel(ADD, at + 7, 2, number, **SHAPE))
    return entries


def test_many_launches_are_mended_by_their_owner() -> None:
    optimizer = tiny(annotation("Optimizer.step#RMSprop.step", 0, 400))
    assert remedy(optimizer, "optimizer-loop").code == "torch.optim.RMSprop(params, foreach=True)"
    op = remedy(tiny(cpu("mylib::loss", 0, 400)), "tiny-kernels")
    assert "optim" not in op.action + op.code
    compiled = [*tiny(cpu("mylib::loss", 0, 400)), cpu("Torch-Compiled Region: 0/0", 500, 5)]
    assert "outside the compiled regions" in remedy(compiled, "tiny-kernels").action


def allocating(*calls: str, more: tuple[Entry, ...] = ()) -> list[Entry]:
    return [
        step(1, 0, 500),
        step(2, 500, 500),
        *op_with_work("aten::mm", 10, 30, 200),
        *(runtime(call, 600 + 40 * index, 30, 950 + index) for index, call in enumerate(calls)),
        *more,
    ]


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        (allocating("cudaMalloc"), "pad or bucket"),
        (allocating("cudaFree", "cudaMalloc", more=(cpu("aten::mm", 590, 100),)), "it is short"),
        (allocating("cudaFree", "cudaMalloc", more=(cpu("aten::mm", 635, 40),)), "remove torch.cuda.empty_cache()"),
        (allocating("cudaFree", "cudaMalloc"), "let the library that does it keep its memory"),
        (allocating("cuMemCreate", "cuMemMap"), "expandable segments are in use already"),
        (
            allocating("cudaFree", more=(python("torch/cuda/memory.py(212): empty_cache", 590, 80),)),
            "remove torch.cuda.empty_cache()",
        ),
    ],
)
def test_allocations_are_mended_by_what_is_seen(entries: list[Entry], text: str) -> None:
    assert text in remedy(entries, "alloc-in-step").action


REAL = [
    ("llama_decode_eager", "overhead-bound", "static KV cache"),
    ("llama_decode_eager", "sync-in-step", "every n tokens"),
    ("gpt2_train_compile", "overhead-bound", "the code is compiled"),
    ("compile_recompiles", "overhead-bound", "contains compilation"),
    ("resnet18_starved_dataloader", "input-starved", "worker processes"),
    ("resnet18_starved_dataloader", "pageable-copy", "pin the memory"),
    ("ddp_4ranks/rank1", "sync-in-step", "DDP measures"),
    ("recorded/moe_expert_loop", "sync-in-step", "grouped GEMM"),
    ("recorded/allocator_empty_cache", "alloc-in-step", "empty_cache"),
    ("recorded/graph_input_copies", "compile-tax", "replayed already"),
]


@pytest.mark.parametrize(("name", "pattern", "text"), keep_some(REAL, 1))
def test_real_traces_get_a_fitting_remedy(name: str, pattern: str, text: str) -> None:
    file = f"{name.removeprefix('recorded/')}.pt.trace.json.gz"
    path = (FIXTURES / "recorded_patterns" if name.startswith("recorded/") else SHARED_TRACES) / file
    if not path.exists():
        pytest.skip("the shared traces are not available")
    finding = Checker(load_trace(str(path), cache=False)).check(ids=[pattern])[0]
    assert finding.has_fired
    assert text in finding.remedy.action


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("event_wait", "waits for the device"),
        ("cudaMemcpy", "pinned memory"),
        ("urQueueFinish", "torch.xpu.synchronize"),
        ("cudaDeviceSynchronize", "torch.cuda.synchronize"),
    ],
)
def test_a_wait_outside_any_op_is_told_by_its_call(call: str, words: str) -> None:
    assert words in remedy(waiting_op(call=call)).action


def test_an_op_that_reads_a_size_gets_no_line_about_a_loss() -> None:
    chosen = remedy(waiting_op("aten::_unique2", more=tuple(TRAINING)))
    assert "fixed sizes" in chosen.action
    assert not chosen.code
