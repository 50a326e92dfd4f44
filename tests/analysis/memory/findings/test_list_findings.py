"""Test each finding about memory with a trace that has it and one that differs in nothing else; then real traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.memory_fixtures import MEMORY, open_trace
from tests.helpers.paths import SHARED_TRACES
from tests.helpers.trace_builder import annotation, cpu, kernel, memory, python, runtime, step, trace
from torchprof_tui.analysis.memory.findings.lifetime_findings import list_memory_findings
from torchprof_tui.analysis.memory.findings.memory_finding import MemoryFinding, compute_saving, format_size
from torchprof_tui.analysis.memory.memory_history import DeviceHistory, build_memory_history

MIB = 1 << 20


def build_device(*entries: Any) -> DeviceHistory:
    history = build_memory_history(trace(*entries))
    assert history is not None
    return history.devices[0]


def find(*entries: Any) -> dict[str, MemoryFinding]:
    return {finding.id: finding for finding in list_memory_findings(build_device(*entries))}


class Allocator:
    """Build `[memory]` entries with their totals; sizes are MiB, times µs and ascending."""

    def __init__(self, reserved: int = 0) -> None:
        self.entries: list[Any] = []
        self._total, self._reserved, self._sizes = 0, reserved, dict[int, int]()

    def alloc(self, at: float, address: int, size: float) -> Allocator:
        self._sizes[address] = int(size * MIB)
        return self._add(at, address, self._sizes[address])

    def free(self, at: float, address: int) -> Allocator:
        return self._add(at, address, -self._sizes.pop(address))

    def _add(self, at: float, address: int, size: int) -> Allocator:
        self._total += size
        self.entries.append(
            memory(at, size, self._total, device=0, address=address, reserved=max(self._reserved * MIB, self._total))
        )
        return self


TRAINING = (
    python("nn.Module: Net_0", 100, 50),
    cpu("aten::gelu", 105, 10),
    runtime("cudaLaunchKernel", 106, 2, 7),
    kernel("gelu", 160, 30, 7),
    cpu("autograd::engine::evaluate_function: GeluBackward0", 200, 50),
    annotation("Optimizer.step#Adam.step", 300, 50),
    python("nn.Module: Net_0", 400, 50),
)


def test_activations_are_worth_computing_again() -> None:
    def record(size: int) -> list[Any]:
        return Allocator().alloc(10, 1, 100).alloc(110, 2, size).alloc(210, 3, 1).free(220, 3).free(230, 2).entries

    found = find(*TRAINING, *record(100))["activation-memory"]
    assert found.saved == 100 * MIB
    assert found.time == 30_000  # ns, of the kernel that the forward pass launched
    assert "Net_0" in found.seen
    assert "activation-memory" not in find(*TRAINING, *record(20))  # a sixth of the peak
    checkpointed = (*TRAINING, cpu("CheckpointFunction", 500, 5), *record(100))
    assert "activation-memory" not in find(*checkpointed)
    inference = [entry for entry in TRAINING if "autograd" not in entry["name"] and "Optimizer" not in entry["name"]]
    assert "activation-memory" not in find(*inference, *record(100))


def test_activations_of_other_steps_hold_the_peak_as_well() -> None:
    """Each step has its own: without those of one step alone the peak would be that of the other step."""
    later = tuple({**entry, "ts": entry["ts"] + 1000} for entry in TRAINING)
    entries = Allocator().alloc(10, 1, 100).alloc(110, 2, 100).free(230, 2).alloc(1110, 2, 100).free(1230, 2).entries
    device = build_device(*TRAINING, *later, *entries)
    assert compute_saving(device, device.find_peak().alive[1:]) == 0
    assert find(*TRAINING, *later, *entries)["activation-memory"].saved == 100 * MIB


def test_optimizer_states() -> None:
    def record(size: int) -> list[Any]:
        return Allocator().alloc(10, 1, 100).alloc(310, 2, size).entries

    assert find(*TRAINING, *record(200))["optimizer-states"].saved == 150 * MIB
    assert "optimizer-states" not in find(*TRAINING, *record(30))


def test_a_temporary_that_makes_the_peak() -> None:
    def record(size: int) -> list[Any]:
        return Allocator().alloc(10, 1, 100).alloc(108, 2, size).free(112, 2).entries

    found = find(*TRAINING, *record(60))["temporary-spike"]
    assert found.saved == 60 * MIB
    assert "aten::gelu" in found.seen
    assert "temporary-spike" not in find(*TRAINING, *record(8))


def test_a_temporary_that_lives_for_long_is_no_spike() -> None:
    """As keys and values in inference, where no backward pass ends the forward pass."""
    ops = [cpu("aten::add", 100, 20), cpu("aten::mm", 1000, 20)]

    def record(freed: float) -> list[Any]:
        return Allocator().alloc(10, 1, 100).alloc(108, 2, 60).free(freed, 2).alloc(1010, 3, 1).free(1015, 3).entries

    assert "temporary-spike" in find(*ops, *record(112))
    assert "temporary-spike" not in find(*ops, *record(900))


@pytest.mark.parametrize(("op", "fires"), [("aten::_to_copy", True), ("aten::mul", False)])
def test_casts_are_duplicates(op: str, fires: bool) -> None:
    entries = Allocator().alloc(10, 1, 100).alloc(122, 2, 50).free(220, 2).entries
    found = find(*TRAINING, cpu(op, 120, 5), *entries)
    assert ("duplicate-copies" in found) is fires
    if fires:
        assert found["duplicate-copies"].saved == 50 * MIB


def test_a_copy_from_the_host_is_no_duplicate() -> None:
    entries = Allocator().alloc(10, 1, 100).alloc(122, 2, 50).free(220, 2).entries
    copy = (
        cpu("aten::_to_copy", 120, 5),
        runtime("cudaMemcpyAsync", 123, 1, 9),
        {**kernel("Memcpy HtoD (Pinned -> Device)", 130, 5, 9), "cat": "gpu_memcpy"},
    )
    assert "duplicate-copies" not in find(*TRAINING, *copy, *entries)


STEPS = [step(number, 1000 * number, 990) for number in range(6)]


def record_steps(leak: bool, recurring: bool = True) -> list[Any]:
    allocator = Allocator().alloc(1, 1, 100)
    entries: list[Any] = []
    for number in range(6):
        at = 1000 * number
        entries.append(cpu("aten::add" if recurring else f"aten::op{number}", at + 100, 50))
        allocator.alloc(at + 110, 10 + number, 30)
        if not leak:
            allocator.free(at + 800, 10 + number)
    return [*STEPS, *entries, *allocator.entries]


def test_growth_names_what_holds_on() -> None:
    found = find(*record_steps(leak=True))["memory-growth"]
    assert "each of 4 steps holds 30.0 MiB more, 120.0 MiB in all" in found.seen
    assert "aten::add" in found.seen
    assert found.saved == 120 * MIB
    assert "memory-growth" not in find(*record_steps(leak=False))
    assert "memory-growth" not in find(*record_steps(leak=True, recurring=False))


def test_growth_of_fewer_steps_is_not_told() -> None:
    entries = [entry for entry in record_steps(leak=True) if entry["ts"] < 4000]
    assert "memory-growth" not in find(*entries)


def grow_reserved(before: int, after: int) -> list[Any]:
    """Two allocations, of 400 and 300 MiB, with so much (MiB) reserved before and after the second one."""
    return [
        memory(2, 400 * MIB, 400 * MIB, device=0, address=1, reserved=before * MIB),
        memory(3, 300 * MIB, 700 * MIB, device=0, address=2, reserved=after * MIB),
    ]


@pytest.mark.parametrize(
    ("before", "after", "grown"),
    [
        (1000, 1300, 300),  # 600 MiB were free
        (2000, 2000, 0),  # much is not in use, as after a higher peak, but nothing needed more
        (600, 900, 0),  # 200 MiB were free: too little for it
        (0, 0, 0),
    ],
)
def test_fragmentation_is_growth_beside_free_memory(before: int, after: int, grown: int) -> None:
    found = find(cpu("aten::add", 1, 5), *grow_reserved(before, after))
    assert ("fragmentation" in found) is bool(grown)
    if grown:
        assert found["fragmentation"].saved == grown * MIB
        assert "while up to 600.0 MiB reserved were free" in found["fragmentation"].seen


@pytest.mark.parametrize(
    ("calls", "after", "op", "fires"),
    [
        (("cudaMalloc", "cudaFree", "cudaMalloc"), 300, "aten::empty", True),
        (("cudaMalloc", "cudaFree", "cudaMalloc"), 500, "aten::empty", False),  # of a library: nothing is given back
        (("cudaFree", "cudaMalloc", "cudaMalloc"), 300, "aten::mm", False),  # no failed call before: a first use
        (("cudaMalloc", "cudaFree", "cudaMalloc"), 300, "aten::cudnn_convolution", False),  # it tries algorithms
    ],
)
def test_retries_give_back_and_ask_again(calls: tuple[str, ...], after: int, op: str, fires: bool) -> None:
    called = [runtime(name, 110 + 20 * place, 10, 50 + place) for place, name in enumerate(calls)]
    records = [
        memory(90, 100 * MIB, 100 * MIB, device=0, address=1, reserved=500 * MIB),
        memory(175, 100 * MIB, 200 * MIB, device=0, address=2, reserved=after * MIB),
    ]
    found = find(cpu(op, 100, 80), *called, *records)
    assert ("allocator-retries" in found) is fires
    if fires:
        assert found["allocator-retries"].time == 20_000


def record_inference(numbers: tuple[int, int], *more: Any) -> dict[str, MemoryFinding]:
    ops = [cpu("aten::linear", 100 + 50 * k, 20, **{"Sequence number": number}) for k, number in enumerate(numbers)]
    return find(*ops, *more, *Allocator().alloc(110, 1, 50).alloc(160, 2, 50).free(400, 1).free(401, 2).entries)


def test_inference_that_records_a_graph() -> None:
    assert record_inference((5, 6))["graph-in-inference"].saved == 100 * MIB
    assert "graph-in-inference" not in record_inference((5, 5))  # as under no_grad
    backward = cpu("autograd::engine::evaluate_function: AddmmBackward0", 200, 50)
    assert "graph-in-inference" not in record_inference((5, 6), backward)


def record_appends(op: str, attends: bool, overlaps: bool = True) -> dict[str, MemoryFinding]:
    """A cache of keys and one of values, made longer in each of three steps; the old ones are freed then."""
    allocator, ops, held = Allocator().alloc(10, 90, 100), [], dict[int, int]()
    for number in range(3):
        for part in range(2):
            at, address = 100 + 100 * number + 40 * part, 2 * number + part
            ops.append(cpu(op, at, 20))
            if not overlaps and part in held:
                allocator.free(at - 5, held.pop(part))
            allocator.alloc(at + 5, address, 50 + number)
            if part in held:
                allocator.free(at + 25, held.pop(part))
            held[part] = address
    attention = [cpu("aten::scaled_dot_product_attention", 500, 10)] if attends else []
    return find(*ops, *attention, *allocator.entries)


def test_a_cache_of_keys_and_values() -> None:
    found = record_appends("aten::cat", attends=True)["kv-cache"]
    assert "3 results of cat" in found.seen  # one of them is held twice while it is made longer
    assert found.saved == 51 * MIB  # the old one, beside the new one of 52
    assert "kv-cache" not in record_appends("aten::add", attends=True)
    assert "kv-cache" not in record_appends("aten::cat", attends=False)
    assert "kv-cache" not in record_appends("aten::cat", attends=True, overlaps=False)  # as the skips of a U-Net


def test_the_phase_of_the_peak() -> None:
    entries = Allocator().alloc(10, 1, 100).alloc(210, 2, 50).free(220, 2).entries
    assert find(*TRAINING, *entries)["peak-phase"].seen == "the peak of 150.0 MiB is in the backward pass"
    assert "peak-phase" not in find(cpu("aten::add", 100, 10), *entries)


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 50)), min_size=1, max_size=40), st.sets(st.integers(0, 40)))
def test_a_saving_is_that_of_the_program_without_these(steps: list[tuple[int, int]], chosen: set[int]) -> None:
    allocator, live, kept, curve, without = Allocator(), dict[int, tuple[int, int]](), set(chosen), [0], [0]
    count = 0
    for time, (address, size) in enumerate(steps):
        if address in live:
            number, old = live.pop(address)
            allocator.free(time, address)
            delta = -old
        else:
            number, delta = count, size
            live[address] = (count, size)
            count += 1
            allocator.alloc(time, address, size)
        curve.append(curve[-1] + delta)
        without.append(without[-1] + (0 if number in kept else delta))
    device = build_device(cpu("aten::add", 0, 100), *allocator.entries)
    order = np.argsort(device.lifetimes.begin, kind="stable")
    rows = order[[number for number in range(count) if number in kept]]
    assert compute_saving(device, rows) == (max(curve[1:]) - max(without[1:])) * MIB


REAL = {
    MEMORY / "start.pt.trace.json.xz": {"peak-phase"},
    MEMORY / "steady.pt.trace.json.xz": {"peak-phase"},
    # 124 M parameters in bfloat16 autocast, no checkpointing: activations are most, casts are 18 %
    SHARED_TRACES / "gpt2_train_stack_memory.pt.trace.json.gz": {"activation-memory", "duplicate-copies", "peak-phase"},
}


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name.split(".")[0])
def test_real_traces(path: Path) -> None:
    if not path.exists():
        pytest.skip("needs the shared traces")
    history = build_memory_history(open_trace(path)._model)
    assert history is not None
    device = history.devices[0]
    findings = list_memory_findings(device)
    assert {finding.id for finding in findings} == REAL[path]
    for finding in findings:
        assert finding.saved <= int(device.lifetimes.bytes[finding.lifetimes].sum())


def test_sizes() -> None:
    assert [format_size(size) for size in (0, 1023, 1536, 3 << 30)] == ["0 B", "1023 B", "1.5 KiB", "3.0 GiB"]
