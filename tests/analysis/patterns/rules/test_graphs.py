"""Test the pattern of what a replay of a CUDA graph still costs."""

from __future__ import annotations

import pytest

from tests.analysis.patterns.rules import test_decode_graphs
from tests.helpers.pattern_cases import ABSENT, CANNOT_TELL, FIRED, Cases, case_params, check_case, find_missing_answers
from tests.helpers.pattern_traces import ADD, DTOD, check_pattern, healthy
from tests.helpers.trace_builder import Entry, cpu, kernel, memcpy, runtime, trace
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.analysis.patterns.rules import graphs


def replays(copy: float = 30, between: bool = False, count: int = 3) -> list[Entry]:
    """Replays of 200 µs after a copy of this length; `between`: another kernel runs between copy and graph."""
    entries: list[Entry] = []
    for number in range(count):
        at, corr = 300.0 * number, 10 * number
        if copy:
            entries += [runtime("cudaMemcpyAsync", at, 8, corr + 1), memcpy(DTOD, at + 10, copy, corr + 1)]
        if between:
            entries += [runtime("cudaLaunchKernel", at + 12, 4, corr + 2), kernel(ADD, at + 12 + copy, 5, corr + 2)]
        entries.append(runtime("cudaGraphLaunch", at + 20, 15, corr + 3))
        entries += [kernel(ADD, at + 60 + 40 * index, 38, corr + 3) for index in range(5)]
    return entries


CASES: Cases = {
    "graph-input-copies": {FIRED: replays(), ABSENT: healthy(), CANNOT_TELL: [cpu("aten::add", 0, 10)]},
}


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State) -> None:
    check_case(CASES, name, state)


def test_every_pattern_has_a_trace_for_each_answer() -> None:
    assert not find_missing_answers(graphs, CASES | test_decode_graphs.CASES)


def test_each_part_of_a_replay_has_its_share() -> None:
    finding = check_pattern(trace(*replays(), cpu("TorchDynamo Cache Lookup", 859, 1)), "graph-input-copies")
    # 3 copies of 30 µs, 3 launches of 15 µs and 1 µs of guards, in 860 µs
    assert finding.answer.seen == (
        "3 copies into inputs 90.0 µs (10 %), 3 replays 45.0 µs (5.2 %), guards 1.00 µs (0.1 %)"
    )
    assert finding.answer.at_stake == 90_000


@pytest.mark.parametrize("entries", [replays(copy=0), replays(between=True), replays(copy=3)])
def test_other_copies_are_no_inputs(entries: list[Entry]) -> None:
    assert check_pattern(trace(*entries), "graph-input-copies").state is ABSENT


def test_a_copy_after_the_last_replay_is_no_input() -> None:
    entries = [*replays(copy=0), runtime("cudaMemcpyAsync", 900, 8, 77), memcpy(DTOD, 910, 50, 77)]
    assert check_pattern(trace(*entries), "graph-input-copies").state is ABSENT


def test_the_remedy_fits_who_captured_the_graph() -> None:
    own, compiled = trace(*replays()), trace(*replays(), cpu("Torch-Compiled Region: 0/0", 0, 5))
    assert "static_x" in check_pattern(own, "graph-input-copies").remedy.code
    assert "mark_static_address" in check_pattern(compiled, "graph-input-copies").remedy.code
