"""Test the pattern of experts that are computed one after the other."""

from __future__ import annotations

import pytest

from tests.helpers.pattern_cases import ABSENT, CANNOT_TELL, FIRED, Cases, case_params, check_case
from tests.helpers.pattern_traces import GEMM, GPU_ONLY, check_pattern, healthy, op_with_work
from tests.helpers.trace_builder import Entry, cpu, trace
from torchprof_tui.analysis.patterns.engine.pattern import State


def experts(count: int, order: str = "nigs", mask: bool = False, thread: int = 100) -> list[Entry]:
    """Experts of 100 µs. `order`: nonzero, index, GEMM, scatter; `mask`: by boolean masks, whose nonzero is inside."""
    names = {"n": "aten::nonzero", "i": "aten::index", "g": "aten::mm", "s": "aten::index_add_"}
    entries: list[Entry] = []
    for number in range(count):
        at = 100.0 * number
        if mask:
            entries += [cpu("aten::index", at, 20, thread), cpu("aten::nonzero", at + 2, 10, thread)]
            entries += [cpu("aten::mm", at + 30, 10, thread), cpu("aten::index_put_", at + 60, 25, thread)]
            entries.append(cpu("aten::nonzero", at + 65, 10, thread))
        else:
            entries += [cpu(names[op], at + 20 * index, 15, thread) for index, op in enumerate(order)]
    return [*entries, *op_with_work("aten::relu", 100.0 * count, 100.0 * count + 10, 20, GEMM)]


CASES: Cases = {"moe-expert-loop": {FIRED: experts(16), ABSENT: healthy(), CANNOT_TELL: GPU_ONLY}}


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State) -> None:
    check_case(CASES, name, state)


def test_experts_are_counted_and_their_idle_time_is_at_stake() -> None:
    finding = check_pattern(trace(*experts(16)), "moe-expert-loop")
    assert finding.answer.seen == "16 experts one after the other, 75.0 µs each, the GPU idle 1.20 ms in them"
    assert finding.answer.at_stake == 16 * 75_000
    assert "grouped GEMM" in finding.remedy.action


@pytest.mark.parametrize(
    ("entries", "state"),
    [
        (experts(16, mask=True), FIRED),
        (experts(7), ABSENT),
        (experts(16, "nig"), ABSENT),  # nothing is added back
        (experts(16, "ngs"), ABSENT),  # nothing is gathered
        (experts(16, "nis"), ABSENT),  # nothing is multiplied
        (experts(16, "igs"), ABSENT),  # nothing waits
    ],
)
def test_an_expert_finds_gathers_multiplies_and_adds_back(entries: list[Entry], state: State) -> None:
    assert check_pattern(trace(*entries), "moe-expert-loop").state is state
