"""Test the patterns of serving a language model."""

from __future__ import annotations

import pytest

from tests.helpers.pattern_cases import ABSENT, CANNOT_TELL, FIRED, Cases, case_params, check_case, find_missing_answers
from tests.helpers.pattern_traces import ADD, GPU_ONLY, check_pattern, healthy
from tests.helpers.trace_builder import Entry, annotation, cpu, kernel, runtime, trace
from torchprof_tui.analysis.patterns.engine.pattern import State
from torchprof_tui.analysis.patterns.rules import serving
from torchprof_tui.analysis.patterns.rules.serving import parse_phase


def decoding(tokens: int = 5, kernels: int = 30, graph: bool = False, cache: bool = True) -> list[Entry]:
    """A loop over tokens, 1 ms each: an attention, cache updates, and kernels launched one by one or by a graph."""
    entries: list[Entry] = []
    corr = 100
    for token in range(tokens):
        at = 1000.0 * token
        entries += [cpu("aten::argmax", at, 5), cpu("aten::scaled_dot_product_attention", at + 900, 5)]
        if cache:
            entries += [cpu("aten::cat", at + 890, 3), cpu("aten::cat", at + 894, 3)]
        if graph:
            entries.append(runtime("cudaGraphLaunch", at + 20, 30, corr + 1))
        for number in range(kernels):
            corr += 1
            launch = corr - number if graph else corr
            if not graph:
                entries.append(runtime("cudaLaunchKernel", at + 20 + 28 * number, 5, corr))
            entries.append(kernel(ADD, at + 60 + 28 * number, 4, launch))
    return entries


TRAINING = [*healthy(), cpu("autograd::engine::evaluate_function: AddBackward0", 3990, 3)]

CASES: Cases = {
    "serving-phases": {FIRED: decoding(), ABSENT: healthy(), CANNOT_TELL: GPU_ONLY},
    "decode-without-graphs": {FIRED: decoding(), ABSENT: decoding(graph=True), CANNOT_TELL: GPU_ONLY},
}


@pytest.mark.parametrize(("name", "state"), case_params(CASES))
def test_fires_absent_cannot_tell(name: str, state: State) -> None:
    check_case(CASES, name, state)


def test_every_pattern_has_a_trace_for_each_answer() -> None:
    assert not find_missing_answers(serving, CASES)


def test_a_token_has_its_time_and_its_kernels() -> None:
    finding = check_pattern(trace(*decoding(tokens=6)), "serving-phases")
    assert finding.answer.seen == "decoding: 5 tokens, 1.00 ms and 30 kernels a token, 0 % of them launched by graphs"


def test_graphs_are_seen() -> None:
    finding = check_pattern(trace(*decoding(graph=True)), "serving-phases")
    assert "100 % of them launched by graphs" in finding.answer.seen


@pytest.mark.parametrize(
    "entries",
    [decoding(cache=False), decoding(tokens=3), [*decoding(), *TRAINING]],
    ids=["no cache is updated", "two iterations", "training"],
)
def test_what_is_no_loop_over_tokens(entries: list[Entry]) -> None:
    assert check_pattern(trace(*entries), "serving-phases").state is ABSENT
    assert check_pattern(trace(*entries), "decode-without-graphs").state is ABSENT


def test_the_work_of_a_token_is_what_a_graph_could_reach() -> None:
    seen = check_pattern(trace(*decoding(tokens=6)), "decode-without-graphs").answer.seen
    assert seen.startswith(
        "5 tokens, 1.00 ms and 30 kernels a token, 0 % of them launched by graphs; the GPU works 120.0 µs"
    )


def test_steps_of_a_graph_without_any_op_are_decided_by_their_annotations() -> None:
    """A server whose steps are graphs as a whole records no ops."""
    entries = [entry for entry in decoding(graph=True) if entry["cat"] != "cpu_op"]
    assert check_pattern(trace(*entries), "decode-without-graphs").state is CANNOT_TELL
    entries += [annotation("step[DECODE bs=8]", 1000.0 * token, 900) for token in range(5)]
    assert check_pattern(trace(*entries), "decode-without-graphs").state is ABSENT


def test_few_kernels_need_no_graph() -> None:
    assert check_pattern(trace(*decoding(kernels=10)), "decode-without-graphs").state is ABSENT


def test_an_optimizer_is_never_advised() -> None:
    remedy = check_pattern(trace(*decoding()), "decode-without-graphs").remedy
    assert "CUDA graph" in remedy.action
    assert "optim" not in remedy.action + remedy.code


def test_compiled_code_is_not_advised_to_compile() -> None:
    entries = [*decoding(), cpu("Torch-Compiled Region: 0/0", 6000, 10)]
    assert check_pattern(trace(*entries), "decode-without-graphs").remedy.action.startswith("the model is compiled")


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("execute_32_context_0(sq0sk0)_generation_32(sq32sk32785)", ("decode", 32)),
        ("execute_15360_context_15(sq15360)_generation_0(sq0)", ("prefill", 15)),
        ("execute_40_context_2(sq8)_generation_32(sq32)", ("mixed", 34)),
        ("step[DECODE bs=32]", ("decode", 32)),
        ("step[EXTEND bs=15 toks=15360]", ("prefill", 15)),
        ("my prefill", ("prefill", 0)),
        ("Decode step", ("decode", 0)),
        ("## decoder fp8 None ##", None),
        ("nn.Module: DecoderLayer_0", None),
    ],
)
def test_phases_are_read_from_names(name: str, phase: tuple[str, int] | None) -> None:
    assert parse_phase(name) == phase


def test_annotated_phases_are_described_apart_and_counted_once() -> None:
    entries = [
        *decoding(tokens=2),
        annotation("execute_9_context_3(s)_generation_0(s)", 0, 999),
        annotation("step[EXTEND bs=3 toks=9]", 1, 900),  # inside: the same step
        annotation("execute_4_context_0(s)_generation_4(s)", 1000, 999),
    ]
    finding = check_pattern(trace(*entries), "serving-phases")
    assert finding.answer.seen == (
        "decode: 1 step of 4 sequences, 999.0 µs on the CPU, 30 kernels a step, 0 % of them by graphs; "
        "prefill: 1 step of 3 sequences, 999.0 µs on the CPU, 30 kernels a step, 0 % of them by graphs"
    )


def prefill_between(decoding: list[Entry], prefill_kernels: int) -> list[Entry]:
    """The loop, and behind it one iteration of as many kernels with other names: the prompt of the next text."""
    at = 5000.0
    entries = [*decoding, cpu("aten::argmax", at, 5), cpu("aten::scaled_dot_product_attention", at + 900, 5)]
    entries += [cpu("aten::cat", at + 890, 3), cpu("aten::cat", at + 894, 3), cpu("aten::argmax", at + 1000, 5)]
    for number in range(prefill_kernels):
        corr = 5000 + number
        entries += [
            runtime("cudaLaunchKernel", at + 20 + 28 * number, 5, corr),
            kernel("prompt_gemm", at + 60 + 28 * number, 4, corr),
        ]
    return entries


def test_a_prompt_with_as_many_kernels_is_no_token() -> None:
    finding = check_pattern(trace(*prefill_between(decoding(tokens=5), 30)), "serving-phases")
    assert finding.answer.seen.startswith("decoding: 5 tokens")


def test_time_at_stake_leaves_out_prefills() -> None:
    """Of each iteration of 1 ms, 30 kernels of 4 µs; the prompt behind the loop idles as well."""
    finding = check_pattern(trace(*prefill_between(decoding(tokens=6), 30)), "decode-without-graphs")
    alone = check_pattern(trace(*decoding(tokens=6)), "decode-without-graphs")
    assert abs(finding.answer.at_stake - alone.answer.at_stake) <= 100_000
