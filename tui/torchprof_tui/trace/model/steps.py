"""The steps of a trace: iterations that the program, or the serving engine that it ran, reported to the profiler.

The annotations of serving engines say which requests a step served, how many tokens, how much KV:

| engine | annotation |
|---|---|
| vLLM ≥ 0.14 | `execute_context_2(6144)_generation_3(3)`: requests, in brackets their tokens |
| vLLM, detailed | `execute_32_context_0(sq0sk0…)_generation_32(sq32sk55086…)`: tokens, KV length |
| vLLM < 0.14 | `execute_new_2_cached_30`: requests only |
| SGLang | `step[EXTEND bs=15 toks=15360]`, `step[DECODE bs=32 g_sq=32 g_sk=32785 …]`, `step[MIXED bs=3 c=1 g=2 …]` |
| ATOM | `prefill[bs=2 tok=14721 ctx=[7803, 6918]]`, `decode[bs=117/128 tok=117 d=117]`, `eager_decode[…]` |
| TensorRT-LLM | `[Executor] _forward_step 7: 1 ctx reqs, 512 ctx tokens, 31 gen reqs` (an NVTX range) |

`sq` sums the tokens computed of each request, `sk` the length of its keys and values after the step.
"""

from __future__ import annotations

import re
from dataclasses import replace
from enum import Enum
from functools import lru_cache

import numpy as np

from torchprof_tui.trace.core.arrays import I32, I64, U8, sorted_unique
from torchprof_tui.trace.core.late_regex import compile_later
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.text_enum import TextEnum
from torchprof_tui.trace.model.event_kind import Kind

UNKNOWN = -1  # a number that the annotation does not say


class StepKind(TextEnum):
    """What a step of a serving engine computed; the values are part of the command line's JSON."""

    PREFILL = "prefill"  # prompts
    DECODE = "decode"  # the next token of each sequence; of several with speculative decoding
    MIXED = "mixed"  # both
    IDLE = "idle"  # no request: other ranks had some
    OTHER = "other"  # a mode that this program does not know


class Engine(str, Enum):
    """The program that wrote an annotation."""

    VLLM = "vLLM"
    SGLANG = "SGLang"
    ATOM = "ATOM"
    TENSORRT_LLM = "TensorRT-LLM"


@record
class ServingStepName:
    """What the name of a step says; UNKNOWN for what it does not.

    `batch`: requests, of which `context` are prompts and `generation` sequences that get a token. `tokens`: computed
    ones, of which `prefill_tokens` are of prompts. `kv_length`: tokens in the KV cache that the step reads, summed over
    the requests. `padded_batch`: size of the replayed graph. `number`: of the iteration. `is_eager`: the engine says
    that it did not replay a graph.
    """

    engine: Engine
    kind: StepKind
    batch: int = UNKNOWN
    context: int = UNKNOWN
    generation: int = UNKNOWN
    tokens: int = UNKNOWN
    prefill_tokens: int = UNKNOWN
    decode_tokens: int = UNKNOWN
    kv_length: int = UNKNOWN
    padded_batch: int = UNKNOWN
    number: int = UNKNOWN
    is_eager: bool = False


_PREFIXES = ("execute_", "step[", "prefill[", "decode[", "eager_decode[", "[Executor] _forward_step")
_NUMBER = r"(\d{1,12})(?!\d)"
_VLLM = compile_later(
    rf"execute_(?:\d{{1,12}}_)?context_{_NUMBER}(?:\((\w*)\))?(?:_generation_{_NUMBER}(?:\((\w*)\))?)?"
)
_VLLM_GROUP = compile_later(rf"(?:sq)?{_NUMBER}(?:sk{_NUMBER})?(?:sq|$)")
_VLLM_REQUESTS = compile_later(rf"execute_new_{_NUMBER}_cached_{_NUMBER}")
_SGLANG = compile_later(r"step\[\s*(\w+)((?:\s+\w+=\S+)*)\s*\]")
_ATOM = compile_later(r"(prefill|decode|eager_decode)\[(.*)\]")
_TENSORRT_LLM = compile_later(
    rf"\[Executor\] _forward_step(?: {_NUMBER})?: {_NUMBER} ctx reqs, (?:{_NUMBER} ctx tokens, )?{_NUMBER} gen reqs"
)
_VALUE = compile_later(rf"\b(\w+)={_NUMBER}(?:/{_NUMBER})?")
_CONTEXT_LENGTHS = compile_later(r"\bctx=(?:\[([\d, ]+)\](\.\.\.)?|(\d{1,12}))")

_SGLANG_KINDS = {
    "EXTEND": StepKind.PREFILL,
    "PREFILL": StepKind.PREFILL,
    "SPLIT_PREFILL": StepKind.PREFILL,
    "DECODE": StepKind.DECODE,
    "TARGET_VERIFY": StepKind.DECODE,
    "DRAFT_EXTEND": StepKind.DECODE,
    "DRAFT_EXTEND_V2": StepKind.DECODE,
    "MIXED": StepKind.MIXED,
    "IDLE": StepKind.IDLE,
}
"""Forward modes of SGLang; the drafts of speculative decoding belong to decoding."""


@lru_cache(maxsize=1 << 14)
def parse_step_name(name: str) -> ServingStepName | None:
    """Parse the name of an annotation; None if it is no step of a serving engine."""
    if not name.startswith(_PREFIXES):
        return None
    for pattern, parse in _PARSERS:
        match = pattern.fullmatch(name)
        if match is not None:
            return parse(match)
    return None


def _parse_vllm(match: re.Match[str]) -> ServingStepName:
    context, generation = int(match[1]), int(match[3] or 0)
    prefill_tokens, context_length = _parse_vllm_group(match[2], context)
    decode_tokens, generation_length = _parse_vllm_group(match[4], generation)
    return _of_groups(
        Engine.VLLM, context, generation, prefill_tokens, decode_tokens, _add(context_length, generation_length)
    )


def _parse_vllm_group(text: str | None, requests: int) -> tuple[int, int]:
    """Parse what stands in the brackets of a group of requests: (tokens, KV length)."""
    if not requests:
        return 0, 0 if text is None or "sk" in text else UNKNOWN
    match = None if text is None else _VLLM_GROUP.match(text)
    if match is None:
        return UNKNOWN, UNKNOWN
    return int(match[1]), UNKNOWN if match[2] is None else int(match[2])


def _parse_sglang(match: re.Match[str]) -> ServingStepName | None:
    mode, values = match[1].upper(), {key: int(value) for key, value, _ in _VALUE.findall(match[2])}
    if "bs" not in values:
        return None
    batch, kind = values["bs"], _SGLANG_KINDS.get(mode, StepKind.OTHER)
    kv_length = _add(values.get("c_sk", 0), values.get("g_sk", 0)) if "c_sk" in values or "g_sk" in values else UNKNOWN
    if kind is StepKind.IDLE or not batch:
        return ServingStepName(Engine.SGLANG, StepKind.IDLE, batch, 0, 0, 0, 0, 0, 0)
    if kind is StepKind.DECODE:
        tokens = values.get("g_sq", batch if mode == "DECODE" else UNKNOWN)
        return ServingStepName(Engine.SGLANG, kind, batch, 0, batch, tokens, 0, tokens, kv_length)
    if kind is StepKind.PREFILL:
        tokens = values.get("c_sq", values.get("toks", UNKNOWN))
        return ServingStepName(Engine.SGLANG, kind, batch, batch, 0, tokens, tokens, 0, kv_length)
    prefill_tokens, decode_tokens = values.get("c_sq", UNKNOWN), values.get("g_sq", UNKNOWN)
    tokens = _add(prefill_tokens, decode_tokens)
    if tokens == UNKNOWN:
        tokens = values.get("toks", UNKNOWN)
    context, generation = values.get("c", UNKNOWN), values.get("g", UNKNOWN)
    return ServingStepName(
        Engine.SGLANG, kind, batch, context, generation, tokens, prefill_tokens, decode_tokens, kv_length
    )


def _parse_atom(match: re.Match[str]) -> ServingStepName | None:
    values = {key: (int(value), int(padded or UNKNOWN)) for key, value, padded in _VALUE.findall(match[2])}
    if "bs" not in values:
        return None
    (batch, padded), tokens = values["bs"], values.get("tok", (UNKNOWN, 0))[0]
    kv_length = values["sk"][0] if "sk" in values else _sum_context_lengths(match[2])
    is_eager = match[1] == "eager_decode"
    if match[1] == "prefill":
        return ServingStepName(Engine.ATOM, StepKind.PREFILL, batch, batch, 0, tokens, tokens, 0, kv_length)
    prompts = values.get("p", (0, 0))[0]
    if prompts:
        kind, generation = StepKind.MIXED, values.get("d", (batch - prompts, 0))[0]
        return ServingStepName(
            Engine.ATOM, kind, batch, prompts, generation, tokens, kv_length=kv_length, padded_batch=padded
        )
    kind = StepKind.DECODE
    return ServingStepName(Engine.ATOM, kind, batch, 0, batch, tokens, 0, tokens, kv_length, padded, is_eager=is_eager)


def _sum_context_lengths(text: str) -> int:
    match = _CONTEXT_LENGTHS.search(text)
    if match is None or match[2]:  # the list was cut
        return UNKNOWN
    lengths = [length.strip() for length in (match[1] or match[3]).split(",")]
    if any(not length.isdecimal() or len(length) > 12 for length in lengths):
        return UNKNOWN
    return sum(map(int, lengths))


def _parse_tensorrt_llm(match: re.Match[str]) -> ServingStepName:
    context, generation = int(match[2]), int(match[4])
    prefill_tokens = 0 if not context else UNKNOWN if match[3] is None else int(match[3])
    return _of_groups(
        Engine.TENSORRT_LLM, context, generation, prefill_tokens, generation, UNKNOWN, int(match[1] or UNKNOWN)
    )


def _of_groups(
    engine: Engine,
    context: int,
    generation: int,
    prefill_tokens: int,
    decode_tokens: int,
    kv_length: int,
    number: int = UNKNOWN,
) -> ServingStepName:
    """Describe a step that is known by its prompts and its sequences."""
    kind = StepKind.MIXED if context and generation else StepKind.PREFILL if context else StepKind.DECODE
    if not context and not generation:
        kind = StepKind.IDLE
    tokens = _add(prefill_tokens, decode_tokens)
    batch = context + generation
    return ServingStepName(
        engine, kind, batch, context, generation, tokens, prefill_tokens, decode_tokens, kv_length, number=number
    )


def _add(a: int, b: int) -> int:
    return UNKNOWN if UNKNOWN in (a, b) else a + b


_PARSERS = (
    (_VLLM, _parse_vllm),
    # Of older versions; a cached request may still be in its prompt, so no tokens are known.
    (_VLLM_REQUESTS, lambda match: _of_groups(Engine.VLLM, int(match[1]), int(match[2]), UNKNOWN, UNKNOWN, UNKNOWN)),
    (_SGLANG, _parse_sglang),
    (_ATOM, _parse_atom),
    (_TENSORRT_LLM, _parse_tensorrt_llm),
)


@record
class Step:
    """One `ProfilerStep#N`, or one step of a serving engine, on a CPU thread.

    `number`: N; of a serving engine its own number where it writes one, else the index by start.
    """

    name: str
    number: int
    event: int
    start: int
    duration: int

    @property
    def serving(self) -> ServingStepName | None:
        """What the step served; None for a `ProfilerStep#N`."""
        return parse_step_name(self.name)


def find_profiler_steps(names: list[str], kind: U8, name: I32, start: I64, duration: I64) -> list[Step]:
    """Find the `ProfilerStep#N` by start; one that several threads recorded counts once, as its longest event."""
    steps: list[Step] = []
    last: dict[str, int] = {}
    events = np.flatnonzero(kind == Kind.STEP)
    for event in events[np.lexsort((-duration[events], start[events]))].tolist():
        title = names[name[event]]
        digits = re.search(r"#([0-9]{1,18})", title)
        step = Step(title, int(digits[1]) if digits else len(steps), event, int(start[event]), int(duration[event]))
        index = last.get(title)
        if index is not None and step.start < steps[index].start + steps[index].duration:
            if step.duration > steps[index].duration:
                steps[index] = step
            continue
        last[title] = len(steps)
        steps.append(step)
    return sorted(steps, key=lambda step: step.start)


def find_serving_steps(names: list[str], kind: U8, name: I32, lane: I32, start: I64, duration: I64) -> list[Step]:
    """Find the steps of a serving engine by start.

    Of annotations inside each other the outermost counts (a step of SGLang may have one of vLLM's form around it), and
    of equal ones at the same time on several threads the longest.
    """
    annotations = np.flatnonzero(kind == Kind.ANNOTATION)
    used = sorted_unique(name[annotations])
    is_step = np.array([parse_step_name(names[index]) is not None for index in used.tolist()], np.bool_)
    events = annotations[np.isin(name[annotations], used[is_step])]
    end_of_lane: dict[int, int] = {}
    end_of_title: dict[str, int] = {}
    found: list[Step] = []
    for event in events[np.lexsort((-duration[events], start[events]))].tolist():
        first, own_lane, title = int(start[event]), int(lane[event]), names[name[event]]
        last = first + max(int(duration[event]), 1)
        if first < end_of_lane.get(own_lane, first) or first < end_of_title.get(title, first):
            continue
        end_of_lane[own_lane] = end_of_title[title] = last
        found.append(Step(title, len(found), event, first, int(duration[event])))
    # As the engine numbers them, where it numbers each of them differently.
    numbers = [UNKNOWN if step.serving is None else step.serving.number for step in found]
    if UNKNOWN in numbers or len(set(numbers)) < len(numbers):
        return found
    return [replace(step, number=number) for step, number in zip(found, numbers, strict=True)]
