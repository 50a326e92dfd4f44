"""What the names of serving steps say, form by form, as the engines write them."""

from __future__ import annotations

import pytest

from torchprof_tui.trace.model.steps import UNKNOWN, Engine, ServingStepName, StepKind, parse_step_name

VLLM, SGLANG, ATOM, TENSORRT = Engine.VLLM, Engine.SGLANG, Engine.ATOM, Engine.TENSORRT_LLM
PREFILL, DECODE, MIXED, IDLE = StepKind.PREFILL, StepKind.DECODE, StepKind.MIXED, StepKind.IDLE


@pytest.mark.parametrize(
    ("name", "engine", "kind", "batch", "tokens", "kv_length"),
    [
        ("execute_context_2(6144)_generation_3(3)", VLLM, MIXED, 5, 6147, UNKNOWN),
        ("execute_context_2(6144)_generation_0(0)", VLLM, PREFILL, 2, 6144, UNKNOWN),
        ("execute_context_0(0)_generation_64(256)", VLLM, DECODE, 64, 256, UNKNOWN),
        ("execute_context_0(0)_generation_0(0)", VLLM, IDLE, 0, 0, UNKNOWN),
        ("execute_5_context_1(sq4sk9sqsq16sqsk36)_generation_1(sq1sk7sqsq1sqsk7)", VLLM, MIXED, 2, 5, 16),
        ("execute_8_context_0(sq0sk0sqsq0sqsk0)_generation_8(sq8sk550sqsq8sqsk550)", VLLM, DECODE, 8, 8, 550),
        ("execute_new_2_cached_30", VLLM, MIXED, 32, UNKNOWN, UNKNOWN),
        ("execute_new_0_cached_30", VLLM, DECODE, 30, UNKNOWN, UNKNOWN),
        ("step[EXTEND bs=15 toks=15360]", SGLANG, PREFILL, 15, 15360, UNKNOWN),
        ("step[EXTEND bs=1 toks=9 c_sqsq=81 c_sqsk=99 c_sk=11]", SGLANG, PREFILL, 1, 9, 11),
        ("step[EXTEND bs=4]", SGLANG, PREFILL, 4, UNKNOWN, UNKNOWN),
        ("step[DECODE bs=32]", SGLANG, DECODE, 32, 32, UNKNOWN),
        ("step[DECODE bs=64 g_sq=128 g_sqsq=256 g_sqsk=4 g_sk=131072]", SGLANG, DECODE, 64, 128, 131072),
        ("step[TARGET_VERIFY bs=8]", SGLANG, DECODE, 8, UNKNOWN, UNKNOWN),
        ("step[MIXED bs=2]", SGLANG, MIXED, 2, UNKNOWN, UNKNOWN),
        ("step[MIXED bs=3 c=1 g=2 c_sq=5 c_sk=8 g_sq=2 g_sk=12]", SGLANG, MIXED, 3, 7, 20),
        ("step[IDLE bs=0]", SGLANG, IDLE, 0, 0, 0),
        ("step[NEW_MODE bs=2]", SGLANG, StepKind.OTHER, 2, UNKNOWN, UNKNOWN),
        ("prefill[bs=2 tok=14721 ctx=[7803, 6918]]", ATOM, PREFILL, 2, 14721, 14721),
        ("prefill[bs=1 tok=8192 ctx=8192]", ATOM, PREFILL, 1, 8192, 8192),
        ("prefill[bs=6 tok=17408 ctx=[4096, 4096, 4096]...+3]", ATOM, PREFILL, 6, 17408, UNKNOWN),
        ("prefill[bs=6 tok=17408 ctx=[4096, 4096, 4096]...+3 sk=52224 tbo=1]", ATOM, PREFILL, 6, 17408, 52224),
        ("decode[bs=117/128 tok=117 d=117]", ATOM, DECODE, 117, 117, UNKNOWN),
        ("decode[bs=128 tok=384 p=2 d=126 sqsq=1 sqsk=2 sk=258048]", ATOM, MIXED, 128, 384, 258048),
        ("eager_decode[bs=3 tok=3 ctx=[9, 9, 9]]", ATOM, DECODE, 3, 3, 27),
        ("[Executor] _forward_step 60: 0 ctx reqs, 0 ctx tokens, 32 gen reqs", TENSORRT, DECODE, 32, 32, UNKNOWN),
        ("[Executor] _forward_step 61: 1 ctx reqs, 512 ctx tokens, 31 gen reqs", TENSORRT, MIXED, 32, 543, UNKNOWN),
        ("[Executor] _forward_step: 3 ctx reqs, 2 gen reqs", TENSORRT, MIXED, 5, UNKNOWN, UNKNOWN),
    ],
)  # fmt: skip
def test_reads_the_forms_of_each_engine(
    name: str, engine: Engine, kind: StepKind, batch: int, tokens: int, kv_length: int
) -> None:
    said = parse_step_name(name)
    assert said is not None
    assert (said.engine, said.kind, said.batch, said.tokens, said.kv_length) == (engine, kind, batch, tokens, kv_length)
    if UNKNOWN not in (said.prefill_tokens, said.decode_tokens):
        assert said.prefill_tokens + said.decode_tokens == tokens
    if UNKNOWN not in (said.context, said.generation):
        assert said.context + said.generation == batch


def test_reads_the_parts_of_a_mixed_step() -> None:
    assert parse_step_name("execute_5_context_1(sq4sk9sqsq16sqsk36)_generation_1(sq1sk7sqsq1sqsk7)") == ServingStepName(
        VLLM, MIXED, 2, context=1, generation=1, tokens=5, prefill_tokens=4, decode_tokens=1, kv_length=16
    )


def test_reads_the_padding_of_a_graph_the_number_and_an_eager_step() -> None:
    padded, numbered = (
        parse_step_name("decode[bs=117/128 tok=117 d=117]"),
        parse_step_name("[Executor] _forward_step 60: 0 ctx reqs, 1 gen reqs"),
    )
    eager = parse_step_name("eager_decode[bs=3 tok=3 ctx=9]")
    assert padded is not None
    assert padded.padded_batch == 128
    assert numbered is not None
    assert numbered.number == 60
    assert eager is not None
    assert eager.is_eager


@pytest.mark.parametrize(
    "name",
    [
        "ProfilerStep#3",
        "step[foo]",
        "step[DECODE]",
        "decode[abc]",
        "decode",
        "draft[1/3 bs=4]",
        "execute_model",
        "execute_context_(1)_generation_2(2)",
        "execute_context_2(6144)_generation_3(3) and more",
        "capture_32_DECODE",
        "step[DECODE bs=" + "9" * 400 + "]",
        "",
    ],
)  # fmt: skip
def test_other_names_are_no_steps(name: str) -> None:
    assert parse_step_name(name) is None


def test_absurd_numbers_stay_integers_of_64_bits() -> None:
    said = parse_step_name(f"prefill[bs=2 tok=3 ctx=[{'9' * 40}, 3]]")
    assert said is not None
    assert said.kv_length == UNKNOWN
