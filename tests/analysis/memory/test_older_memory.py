"""Test how memory from before the recording is divided, and how many workspaces products need, by counting."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.helpers.stored_answers import DENSE_SEEDS, load_dense
from tests.helpers.trace_builder import annotation, cpu, kernel, memory, python, runtime, trace
from torchprof_tui.analysis.memory.categories import HOPPER_BYTES, PRODUCT_OPS, Workspaces, find_workspaces
from torchprof_tui.analysis.memory.memory_history import DeviceHistory, build_memory_history, explain_missing_addresses
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.trace_metadata import DeviceProperties

HELD = 1 << 20
MIB = 1 << 20


def build_device(*entries: Any, header: dict[str, Any] | None = None) -> DeviceHistory:
    history = build_memory_history(trace(*entries, header=header))
    assert history is not None
    return history.devices[0]


def divide(
    optimizers: tuple[str, ...] = ("Adam",),
    gradients: tuple[tuple[int, ...], ...] = ((512, 1024),),
    held: int = HELD,
    more: tuple[Any, ...] = (),
    parameters: tuple[int, ...] = (),
    states: tuple[int, ...] = (),
) -> dict[str, int]:
    """Divide `held` bytes. `gradients`: the bytes of those of each pass; `parameters`, `states`: of the recording."""
    entries: list[Any] = [python("train.py(3): main", 0, 9000), memory(1, 256, held + 256, device=0, address=1)]
    entries.append(python("torch/nn/modules/linear.py(96): __init__", 10, 40))
    sizes = [(20 + number, size) for number, size in enumerate(parameters)]
    for number, of_pass in enumerate(gradients):
        begin = 1000 * (number + 1)
        entries.append(python("nn.Module: Net_0", begin, 50))
        entries.append(cpu("autograd::engine::evaluate_function: MmBackward0", begin + 100, 50))
        sizes += [(begin + 110 + index, size) for index, size in enumerate(of_pass)]
        entries += [annotation(f"Optimizer.step#{name}.step", begin + 200, 50) for name in optimizers]
    sizes += [(1210 + number, size) for number, size in enumerate(states)]
    entries += [memory(time, size, -1, device=0, address=100 + time) for time, size in sizes]
    older = build_device(*entries, *more).older
    assert sum(part.bytes for part in older.parts) == older.bytes == held
    assert all(part.bytes > 0 for part in older.parts)
    found = {part.category.label: part.bytes for part in older.parts}
    assert len(found) == len(older.parts)
    found.pop("unknown", None)
    return found


@pytest.mark.parametrize(
    ("optimizers", "more", "tensors"),
    [
        (("Adam",), (), 2),
        (("AdamW",), (), 2),
        (("Adagrad",), (), 1),
        (("Lion",), (), 0),  # of this optimizer nothing is known
        (("Adam", "AdamW"), (), 0),
        (("SGD",), (), 0),
        (("SGD",), (cpu("aten::_foreach_mul_", 1210, 5),), 1),  # the momentum
        (("SGD",), (cpu("aten::mul_", 1210, 5),), 1),
        (("SGD",), (cpu("aten::mul_", 1210, 5), cpu("aten::mul_", 1300, 5)), 1),
        (("SGD",), (cpu("aten::mul_", 1300, 5),), 0),
        (("SGD",), (cpu("aten::add_", 1210, 5),), 0),
        (("SGD",), (python("aten::mul_", 1210, 5),), 0),
        (("Lion",), (cpu("aten::mul_", 1210, 5),), 0),
    ],
)
def test_the_optimizer_tells_its_state(optimizers: tuple[str, ...], more: tuple[Any, ...], tensors: int) -> None:
    expected = {"parameter": 1536} | ({"optimizer state": tensors * 1536} if tensors else {})
    assert divide(optimizers, more=more) == expected


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (0, {}),
        (1000, {"parameter": 1000}),
        (1536, {"parameter": 1536}),
        (1600, {"parameter": 1536, "optimizer state": 64}),
        (4608, {"parameter": 1536, "optimizer state": 3072}),
        (4609, {"parameter": 1536, "optimizer state": 3072}),
    ],
)
def test_no_more_is_divided_than_is_held(held: int, expected: dict[str, int]) -> None:
    assert divide(held=held) == expected


@pytest.mark.parametrize(
    ("gradients", "size"),
    [
        ((), 0),
        (((512,), (512, 1024)), 1536),  # of the pass with most gradients
        (((512, 1024), (512,)), 1536),
        (((2048, 1024), (512, 1024)), 1536),  # of those the smallest
        (((512, 1024), (2048, 1024), (4096,)), 1536),
    ],
)
def test_parameters_are_as_large_as_the_gradients_of_a_pass(gradients: tuple[tuple[int, ...], ...], size: int) -> None:
    assert divide(("Lion",), gradients) == ({"parameter": size} if size else {})


@pytest.mark.parametrize(
    ("parameters", "states", "expected"),
    [
        ((512,), (), {"parameter": 1024, "optimizer state": 3072}),
        ((512, 1024), (), {"optimizer state": 3072}),
        ((768, 256), (), {"optimizer state": 3072}),  # as many as gradients
        ((4096,), (), {"optimizer state": 3072}),  # fewer, but not smaller
        ((), (512,), {"parameter": 1536, "optimizer state": 2560}),
        ((), (512, 512, 1024), {"parameter": 1536, "optimizer state": 1024}),
        ((), (512, 512, 1024, 768), {"parameter": 1536}),
        ((), (512, 512, 512, 512, 512), {"parameter": 1536}),
        ((512, 1024), (512, 512, 1024, 1024), {}),
    ],
)
def test_only_what_the_recording_lacks_is_older(
    parameters: tuple[int, ...], states: tuple[int, ...], expected: dict[str, int]
) -> None:
    assert divide(parameters=parameters, states=states) == expected


@pytest.mark.parametrize(
    ("held", "births", "rule"),
    [
        (64 * MIB, (), "cuBLAS keeps 32 MiB for each thread and stream with products: 2"),
        (64 * MIB - 1, (), "cuBLAS keeps 32 MiB for each thread and stream with products: 1"),
        (64 * MIB, (HOPPER_BYTES,), "cuBLAS keeps 32 MiB for each thread and stream with products: 1"),
        (32 * MIB - 1, (), None),
        (64 * MIB, (HOPPER_BYTES, HOPPER_BYTES), None),
    ],
)
def test_workspaces_that_the_recording_lacks_are_older(held: int, births: tuple[int, ...], rule: str | None) -> None:
    entries: list[Any] = [memory(1, 512, held + 512, device=0, address=1)]
    for corr in (1, 2):
        entries += [cpu("aten::mm", 100, 20, thread=corr), runtime("cudaLaunchKernel", 105, 2, corr, thread=corr)]
        entries.append(kernel("gemm", 100 + 30 * corr, 5, corr))
    entries += [memory(110, size, -1, device=0, thread=k + 1, address=k + 2) for k, size in enumerate(births)]
    gpu = {"id": 0, "name": "NVIDIA GPU", "computeMajor": 9, "computeMinor": 0}
    device = build_device(*entries, header={"deviceProperties": [gpu]})
    assert [part.rule for part in device.older.parts if part.category.label == "workspace"] == ([rule] if rule else [])
    on_cpu = replace(device, memory=replace(device.memory, device_type=0))
    assert [part.category.label for part in on_cpu.older.parts] == ["unknown"]


def test_a_product_needs_a_workspace_for_each_thread_and_stream() -> None:
    """Compared with a loop over the kernels and the events around their launches."""
    gpus = tuple(DeviceProperties(k, "NVIDIA GPU", {"computeMajor": 9, "computeMinor": 0}) for k in (0, 1))
    for seed in DENSE_SEEDS[:6]:
        dense = load_dense(seed)
        model = replace(dense, metadata=replace(dense.metadata, devices=gpus))
        for device in (0, 1, 2):
            pairs = set()
            for event in range(len(model)):
                launch = around = int(model.links.launch_of[event])
                is_kernel = model.kind[event] == Kind.KERNEL and model.lanes[model.lane[event]].device == device
                while is_kernel and around >= 0:
                    if model.kind[around] == Kind.OP and model.names[model.name[around]] in PRODUCT_OPS:
                        pairs.add((int(model.lane[launch]), int(model.lane[event])))
                    around = int(model.parent[around])
            expected = Workspaces(HOPPER_BYTES, len(pairs)) if pairs and device < 2 else None
            assert find_workspaces(model, device) == expected


def test_only_records_without_addresses_need_an_explanation() -> None:
    for address in (0, 7):
        device = build_device(cpu("a", 0, 9), memory(1, 512, 512, address=address))
        explanation = explain_missing_addresses(device.memory)
        assert explanation is None if address else "records of CPU carry no addresses" in str(explanation)
