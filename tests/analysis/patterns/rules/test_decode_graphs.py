"""Test the patterns of decode steps and CUDA graphs."""

from __future__ import annotations

import pytest

from tests.helpers.generation_traces import serving_step, steps_of_batches
from tests.helpers.pattern_cases import ABSENT, CANNOT_TELL, FIRED, Cases, case_params, check_case
from tests.helpers.pattern_traces import CPU_ONLY, GPU_ONLY, check_pattern, healthy
from tests.helpers.trace_builder import Entry, cpu, trace
from torchprof_tui.analysis.patterns.engine.check_scope import range_scope
from torchprof_tui.analysis.patterns.engine.pattern import State

CASES: Cases = {
    "eager-fallback": {
        FIRED: steps_of_batches(8, 8, 20, 8, graph_for=8),
        ABSENT: steps_of_batches(8, 8, 20, 8),
        CANNOT_TELL: GPU_ONLY,
    },
    "graph-padding": {
        FIRED: steps_of_batches(32, 17, 18, 20),
        ABSENT: steps_of_batches(32, 31, 30, 32),
        CANNOT_TELL: steps_of_batches(17, 17, 17),
    },
}


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State) -> None:
    check_case(CASES, name, state)


@pytest.mark.parametrize("name", CASES)
def test_without_a_language_model_nothing_is_found(name: str) -> None:
    assert check_pattern(trace(*healthy()), name).state is ABSENT
    assert check_pattern(trace(*CPU_ONLY), name).state is CANNOT_TELL


def test_eager_steps_are_counted_with_their_cost_and_the_reason() -> None:
    finding = check_pattern(trace(*steps_of_batches(8, 8, 20, 8, graph_for=8)), "eager-fallback")
    assert finding.answer.seen == (
        "1 of 4 decode steps launch their kernels one by one and take 390.0 µs instead of 200.0 µs; their batches of "
        "20 are larger than any with a graph (up to 8)"
    )
    assert finding.answer.at_stake == 190_000
    assert "up to 20 sequences" in finding.remedy.action


@pytest.mark.parametrize(
    ("batches", "reason"),
    [
        ((8, 4, 16), "no graph is replayed for batches of 4"),
        ((8, 8, 16), "batches of 8 replay a graph in other steps, so the size is not the cause"),
    ],
)
def test_why_a_step_is_eager(batches: tuple[int, ...], reason: str) -> None:
    """The second step is eager, the others replay a graph."""
    entries = [
        entry
        for index, batch in enumerate(batches)
        for entry in serving_step(f"step[DECODE bs={batch}]", 400 * index, graph=index != 1)
    ]
    assert reason in check_pattern(trace(*entries), "eager-fallback").answer.seen


def test_steps_without_batches_say_that_nothing_explains_it() -> None:
    entries = [entry for k in range(4) for entry in serving_step("decode", 400.0 * k, graph=k != 2)]
    answer = check_pattern(trace(*entries), "eager-fallback").answer
    assert answer.state is FIRED
    assert "nothing in the trace says for which batch size a graph exists" in answer.seen


def test_steps_with_prompts_may_be_eager() -> None:
    entries = [*serving_step("step[EXTEND bs=4 toks=900]", 0, graph=False)]
    entries += [entry for k in (1, 2) for entry in serving_step("step[DECODE bs=4]", 400.0 * k)]
    assert check_pattern(trace(*entries), "eager-fallback").state is ABSENT


def test_the_remedy_is_that_of_the_engine() -> None:
    names = ("execute_context_0(0)_generation_8(8)", "execute_context_0(0)_generation_20(20)")
    entries = [entry for k, name in enumerate(names) for entry in serving_step(name, 400.0 * k, graph=k == 0)]
    assert not check_pattern(trace(*steps_of_batches(8, 20, graph_for=8)), "eager-fallback").remedy.code
    assert "cudagraph_capture_sizes" in check_pattern(trace(*entries), "eager-fallback").remedy.code


def test_padding_counts_rows_and_takes_no_matrix_products_into_account() -> None:
    finding = check_pattern(trace(*steps_of_batches(32, 17, 18, 20)), "graph-padding")
    assert finding.answer.seen == (
        "87 sequences in 4 steps whose graphs compute 128: 32 % padding; such as 17 in a graph for 32 or more"
    )
    assert finding.answer.at_stake == int((1 - 87 / 128) * 4 * 30 * 4_000)


def test_other_grids_are_another_graph() -> None:
    entries = [
        entry
        for index, batch in enumerate((32, 17, 18))
        for entry in serving_step(f"step[DECODE bs={batch}]", 400 * index, grid=batch)
    ]
    assert check_pattern(trace(*entries), "graph-padding").state is CANNOT_TELL


def test_the_engine_may_say_the_captured_size() -> None:
    entries = [entry for k in range(3) for entry in serving_step("decode[bs=5/8 tok=5 d=5]", 400.0 * k)]
    answer = check_pattern(trace(*entries), "graph-padding").answer
    assert answer.state is FIRED
    assert "15 sequences in 3 steps whose graphs compute 24" in answer.seen


def test_a_mixed_step_does_not_say_what_its_graph_was_captured_for() -> None:
    """Its batch has prompts as well, which another part of the step reads."""
    names = ["execute_context_4(512)_generation_8(8)", *["execute_context_0(0)_generation_8(8)"] * 3]
    entries = [entry for k, name in enumerate(names) for entry in serving_step(name, 400.0 * k)]
    assert check_pattern(trace(*entries), "graph-padding").state is CANNOT_TELL


def test_a_loop_over_tokens_without_annotations_has_eager_steps_too() -> None:
    """Steps between two sampled tokens: the third is launched kernel by kernel."""
    entries: list[Entry] = []
    for token in range(6):
        at = 1000.0 * token
        entries.append(cpu("aten::argmax", at, 5))
        if token == 2:
            entries += [cpu("aten::scaled_dot_product_attention", at + 600, 5), cpu("aten::index_copy_", at + 590, 3)]
            entries += serving_step("", at + 10, graph=False)[1:]
        else:
            entries += serving_step("", at + 10)[1:]
    answer = check_pattern(trace(*entries), "eager-fallback").answer
    assert answer.state is FIRED
    assert answer.seen.startswith("1 of 5 decode steps")
    middle = range_scope(2_100_000, 2_200_000)  # between two samplers
    assert check_pattern(trace(*entries), "eager-fallback", middle).state is not FIRED
