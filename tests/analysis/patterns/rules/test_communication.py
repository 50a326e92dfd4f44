"""Test the communication pattern: its three answers, its scope, and one card for each of several ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.analysis.patterns.rules import test_fsdp
from tests.helpers.pattern_cases import CANNOT_TELL, FIRED, Cases, case_params, check_case, find_missing_answers
from tests.helpers.pattern_traces import GEMM, NCCL, check_pattern, healthy, op_with_work
from tests.helpers.rank_traces import late_rank
from tests.helpers.trace_builder import kernel, step, trace
from torchprof_tui.analysis.patterns.engine.check_scope import range_scope, whole_trace_scope
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.analysis.patterns.rules import communication
from torchprof_tui.analysis.patterns.verdict.rank_checks import MultiRankChecker
from torchprof_tui.commands.common.load import load_specs

COMMUNICATES = [
    step(1, 0, 1000),
    *op_with_work("aten::mm", 1, 20, 300, GEMM),
    *op_with_work("c10d::allreduce_", 15, 220, 400, NCCL, stream=20),
]

CASES: Cases = {"communication": {FIRED: COMMUNICATES, CANNOT_TELL: healthy()}}


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_cannot_tell(name: str, state: State) -> None:
    check_case(CASES, name, state)


def test_every_pattern_has_a_trace_for_each_answer() -> None:
    assert not find_missing_answers(
        communication,
        CASES | test_fsdp.CASES,
        {"communication": {State.ABSENT, *CASES["communication"]}, "fsdp-prefetch": set(State)},
    )


def test_it_costs_nothing_and_says_what_is_hidden() -> None:
    answer = check_pattern(trace(*COMMUNICATES), "communication").answer
    assert answer.at_stake == 0
    assert answer.seen.startswith("400.0 µs in 1 kernel, 25% hidden; ")
    assert len(answer.events) == 1


def test_several_ranks_without_communication_are_absent() -> None:
    header = {"distributedInfo": {"rank": 0, "world_size": 4}}
    assert check_pattern(trace(*healthy(), header=header), "communication").state is State.ABSENT


def test_a_range_without_communication_is_absent() -> None:
    made = trace(*COMMUNICATES)
    assert check_pattern(made, "communication", range_scope(0, 150_000)).state is State.ABSENT
    assert check_pattern(made, "communication", range_scope(300_000, 500_000)).state is State.FIRED


def test_kernels_of_deepep_count_and_a_user_kernel_called_dispatch_does_not() -> None:
    deep_ep = kernel("void deep_ep::intranode::notify_dispatch<8>(int const*)", 0, 50)
    assert check_pattern(trace(deep_ep), "communication").has_fired
    assert not check_pattern(trace(kernel("void moe::dispatch<8>(int const*)", 0, 50)), "communication").has_fired


def test_ranks_are_merged_into_one_finding(tmp_path: Path) -> None:
    paths = late_rank().write(tmp_path)
    made = load_specs([str(path) for path in paths], cache=False).trace
    (finding,), _ = MultiRankChecker(made).check(whole_trace_scope(made), ["communication"])
    assert finding.has_fired
    assert "from the other ranks' arrivals" in finding.answer.seen
    assert len({made.rank_of_event(int(event)).number for event in finding.answer.events}) == len(paths)
