"""Test the patterns of the dispatch chain on traces made for them."""

from __future__ import annotations

import pytest

from tests.helpers.pattern_cases import (
    ABSENT,
    CANNOT_TELL,
    FIRED,
    Cases,
    case_params,
    check_case,
    find_missing_answers,
)
from tests.helpers.pattern_traces import CPU_ONLY, GPU_ONLY, graph_replay, healthy
from tests.helpers.trace_builder import cpu
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.analysis.patterns.rules import dispatch_chain

CASES: Cases = {
    "canonical-chain": {FIRED: healthy(), ABSENT: [*graph_replay(3), *CPU_ONLY], CANNOT_TELL: GPU_ONLY},
    "matmul-to-mm": {
        FIRED: [cpu("aten::matmul", 0, 50), cpu("aten::mm", 5, 40)],
        ABSENT: [cpu("aten::linear", 0, 50), cpu("aten::mm", 5, 40)],
        CANNOT_TELL: GPU_ONLY,
    },
    "matmul-to-bmm": {
        FIRED: [cpu("aten::matmul", 0, 50), cpu("aten::bmm", 5, 40)],
        ABSENT: [cpu("aten::matmul", 0, 50), cpu("aten::mm", 5, 40)],
        CANNOT_TELL: GPU_ONLY,
    },
    "addmm-fusion": {
        FIRED: [cpu("aten::linear", 0, 50), cpu("aten::addmm", 5, 40), cpu("aten::add", 60, 9)],
        ABSENT: [cpu("aten::my_linear", 0, 90), cpu("aten::addmm", 5, 40), cpu("aten::add", 60, 9)],
        CANNOT_TELL: GPU_ONLY,
    },
}


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State) -> None:
    check_case(CASES, name, state)


def test_every_pattern_has_a_trace_for_every_answer() -> None:
    assert not find_missing_answers(dispatch_chain, CASES)
