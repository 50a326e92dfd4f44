"""Test the patterns of memory: a recording with the fault, one without, and one that cannot tell."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers.pattern_cases import ABSENT, CANNOT_TELL, FIRED, Cases, case_params, check_case, find_missing_answers
from tests.helpers.pattern_traces import check_pattern
from tests.helpers.trace_builder import Entry, annotation, cpu, kernel, memory, python, runtime, step, trace
from torchprof_tui.analysis.patterns.engine.check_scope import range_scope
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.analysis.patterns.rules import memory as memory_rules

MIB = 1 << 20


def record(*changes: tuple[float, int, float], reserved: int = 4000, **where: Any) -> list[Entry]:
    """Records of memory: (time µs, address, MiB), negative for a free; GPU 0 unless `where` says another device."""
    total, entries = 0, []
    for time, address, size in changes:
        total += int(size * MIB)
        more = {"device": 0, "reserved": reserved * MIB, **where}
        entries.append(memory(time, int(size * MIB), total, address=address, **more))
    return entries


TRAINING = [
    python("nn.Module: Net_0", 100, 50),
    cpu("aten::gelu", 105, 10),
    runtime("cudaLaunchKernel", 106, 2, 7),
    kernel("gelu", 160, 30, 7),
    cpu("autograd::engine::evaluate_function: GeluBackward0", 200, 50),
    annotation("Optimizer.step#Adam.step", 300, 50),
    python("nn.Module: Net_0", 400, 50),
]


def train(*changes: tuple[float, int, float]) -> list[Entry]:
    return [*TRAINING, *record((10, 1, 100), *changes)]


def infer(op: str, numbers: tuple[int, ...], *more: Entry) -> list[Entry]:
    """Results of 50 MiB that are alive together; `numbers`: the sequence numbers of their ops."""
    ops = [cpu(op, 100 + 50 * k, 20, **{"Sequence number": number}) for k, number in enumerate(numbers)]
    births = [(110 + 50 * k, k + 1, 50) for k in range(len(numbers))]
    return [*ops, *more, *record(*births, (400, 1, -50))]


def append_cache(op: str) -> list[Entry]:
    """A tensor that is made longer three times; the old one is freed then."""
    ops = [cpu(op, 100 + 100 * k, 20) for k in range(3)]
    changes = [(105.0, 1, 50.0), (205.0, 2, 51.0), (225.0, 1, -50.0), (305.0, 3, 52.0), (325.0, 2, -51.0)]
    attention = cpu("aten::scaled_dot_product_attention", 500, 10)
    return [*ops, attention, *record((10, 9, 100), *changes)]


def loop(leak: bool, steps: int = 6) -> list[Entry]:
    entries: list[Entry] = []
    changes: list[tuple[float, int, float]] = [(1, 1, 100)]
    for number in range(steps):
        at = 1000 * number
        entries += [step(number, at, 990), cpu("aten::add", at + 100, 50)]
        changes.append((at + 110, 10 + number, 30))
        if not leak:
            changes.append((at + 800, 10 + number, -30))
    return [*entries, *record(*changes)]


def retry(reserved_after: int) -> list[Entry]:
    calls = [runtime(f"cuda{name}", 110 + 20 * k, 10, 50 + k) for k, name in enumerate(("Malloc", "Free", "Malloc"))]
    first = record((90, 1, 100), reserved=1000)
    then = memory(175, 100 * MIB, 200 * MIB, device=0, address=2, reserved=reserved_after * MIB)
    return [cpu("aten::empty", 100, 80), *calls, *first, then]


def grow(before: int, after: int) -> list[Entry]:
    """An allocation of 300 MiB beside 400, with so much (MiB) reserved before and after it."""
    second = memory(3, 300 * MIB, 700 * MIB, device=0, address=2, reserved=after * MIB)
    return [cpu("aten::add", 1, 5), *record((2, 1, 400), reserved=before), second]


UNRECORDED = [cpu("aten::add", 0, 10), runtime("cudaLaunchKernel", 2, 2, 1), kernel("add", 12, 3, 1)]
NO_ADDRESSES = [cpu("aten::add", 0, 10), *record((5, 0, 100))]

CASES: Cases = {
    "memory-growth": {FIRED: loop(leak=True), ABSENT: loop(leak=False), CANNOT_TELL: loop(leak=True, steps=3)},
    "fragmentation": {FIRED: grow(1000, 1300), ABSENT: grow(800, 800), CANNOT_TELL: grow(4000, 4000)},
    "peak-phase": {
        FIRED: train((210, 2, 50), (220, 2, -50)),
        ABSENT: infer("aten::mm", (5, 5)),
        CANNOT_TELL: UNRECORDED,
    },
    "activation-memory": {
        FIRED: train((110, 2, 100), (230, 2, -100)),
        ABSENT: train((110, 2, 20), (230, 2, -20)),
        CANNOT_TELL: UNRECORDED,
    },
    "temporary-spike": {
        FIRED: train((108, 2, 60), (112, 2, -60)),
        ABSENT: train((108, 2, 8), (112, 2, -8)),
        CANNOT_TELL: NO_ADDRESSES,
    },
    "allocator-retries": {
        FIRED: retry(300),
        ABSENT: retry(1200),
        CANNOT_TELL: [entry for entry in retry(300) if entry["name"] != "[memory]"],
    },
    "graph-in-inference": {
        FIRED: infer("aten::linear", (5, 6)),
        ABSENT: infer("aten::linear", (5, 5)),
        CANNOT_TELL: UNRECORDED,
    },
    "optimizer-states": {FIRED: train((310, 2, 200)), ABSENT: train((310, 2, 30)), CANNOT_TELL: UNRECORDED},
    "duplicate-copies": {
        FIRED: [cpu("aten::_to_copy", 120, 5), *train((122, 2, 50), (220, 2, -50))],
        ABSENT: [cpu("aten::mul", 120, 5), *train((122, 2, 50), (220, 2, -50))],
        CANNOT_TELL: NO_ADDRESSES,
    },
    "kv-cache": {FIRED: append_cache("aten::cat"), ABSENT: append_cache("aten::add"), CANNOT_TELL: UNRECORDED},
}


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State) -> None:
    check_case(CASES, name, state)


def test_every_pattern_has_a_trace_for_each_answer() -> None:
    assert not find_missing_answers(memory_rules, CASES)


@pytest.mark.parametrize("name", [name for name in CASES if name != "allocator-retries"])
def test_without_records_the_option_is_named(name: str) -> None:
    assert "profile_memory=True" in check_pattern(trace(*UNRECORDED), name).answer.reason


@pytest.mark.parametrize(("name", "word"), [("memory-growth", "active=5"), ("fragmentation", "--memory-snapshot")])
def test_what_would_tell_is_named(name: str, word: str) -> None:
    assert word in check_pattern(trace(*CASES[name][CANNOT_TELL]), name).answer.reason


def test_the_numbers_and_what_would_be_saved() -> None:
    seen = check_pattern(trace(*CASES["activation-memory"][FIRED]), "activation-memory").answer.seen
    assert seen == (
        "1 activation, 100.0 MiB of the peak's 200.0 MiB; computing them again takes 30.0 µs a step; most of it by "
        "Net_0; at the peak up to 100.0 MiB less"
    )


def test_a_retry_costs_the_time_of_its_calls() -> None:
    finding = check_pattern(trace(*retry(300)), "allocator-retries")
    assert finding.answer.at_stake == 20_000  # ns, of cudaFree and the cudaMalloc after it
    assert "expandable_segments" in finding.remedy.code


def test_a_scope_without_the_evidence_is_absent() -> None:
    built = trace(*CASES["memory-growth"][FIRED])
    start = int(built.steps[2].start)
    assert check_pattern(built, "memory-growth", range_scope(start, start + 200_000)).has_fired
    assert not check_pattern(built, "memory-growth", range_scope(start + 500_000, start + 600_000)).has_fired


def test_memory_of_the_cpu_counts_where_no_gpu_was_recorded() -> None:
    """Beside a GPU the host has memory to spare."""
    on_cpu = [{**entry, "args": {**entry["args"], "Device Type": 0, "Device Id": -1}} for entry in loop(leak=True)[12:]]
    program = loop(leak=True)[:12]
    assert check_pattern(trace(*program, *on_cpu), "memory-growth").has_fired
    beside = record((1, 77, 100))
    assert not check_pattern(trace(*program, *on_cpu, *beside), "memory-growth").has_fired
