"""Patterns of how a serving engine orders its steps: prompts that hold up tokens, and time between the steps."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.dispatch.ancestry import outermost_ancestor
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.pattern import (
    Answer,
    Remedy,
    find_event_places,
    register_pattern,
    sort_places,
)
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count, format_percent
from torchprof_tui.analysis.patterns.rules.gpu_waits import find_waiting_times, find_waits
from torchprof_tui.analysis.patterns.rules.serving import (
    NO_GENERATION,
    GenerationSteps,
    explain_missing_steps,
    find_generation_steps,
    step_events,
)
from torchprof_tui.analysis.serving.serving_steps import UNKNOWN, ServingSteps, StepKind
from torchprof_tui.analysis.time.intervals import union
from torchprof_tui.trace.core.arrays import I64, Bool
from torchprof_tui.trace.core.time_format import format_duration

_NO_ENGINE = "no serving engine's annotations say which requests a step has"

_CHUNKS = {
    "vLLM": "vllm serve … --max-num-batched-tokens 2048",
    "SGLang": "python -m sglang.launch_server … --chunked-prefill-size 2048 --enable-mixed-chunk",
    "TensorRT-LLM": "enable_chunked_prefill: true; max_num_tokens: 2048",
}
"""How each engine is told to read prompts in smaller pieces."""

_OVERLAP = {
    "vLLM": "vllm serve … --async-scheduling",
    "SGLang": "remove --disable-overlap-schedule",
    "TensorRT-LLM": "disable_overlap_scheduler: false",
}
"""How each engine is told to schedule a step while the one before runs."""


@register_pattern(
    "Prompts hold up the next tokens",
    meaning="a step that also reads prompts, or a prefill between decode steps, takes much longer than a decode step: "
    "all running sequences wait that long for their next token",
    action="read prompts in smaller pieces, or on other GPUs",
    decided="Mixed steps, and prefills between decode steps after which more sequences run than were read, that take "
    "at least twice as long as the median decode step. Time at stake: what they take longer; tokens come more evenly "
    "without it, the prompts still have to be read.",
    thresholds=(thresholds.MIXED_RATIO, thresholds.MIXED_SHARE),
    needs=(explain_missing_steps,),
)
def mixed_batch(view: ScopeView) -> Answer:
    steps: GenerationSteps = view.tables.compute_once(find_generation_steps)
    if not len(steps):
        return Answer.absent(NO_GENERATION)
    serving = steps.serving
    if serving is None:
        return Answer.cannot_tell(_NO_ENGINE)
    in_scope = view.overlap_mask(steps.start, steps.end)
    delaying = np.flatnonzero(in_scope & (steps.kind_mask(StepKind.MIXED) | _is_between_tokens(serving)))
    if not len(delaying):
        return Answer.absent("no step reads prompts while other sequences wait for a token")
    decoding = np.flatnonzero(in_scope & steps.kind_mask(StepKind.DECODE))
    if not len(decoding):
        return Answer.cannot_tell(
            f"{format_count(len(delaying), 'step')} with prompts, but no step without any to compare with"
        )
    usual = float(np.median(steps.step_time[decoding]))
    slow = delaying[steps.step_time[delaying] >= thresholds.MIXED_RATIO.value * usual]
    excess = steps.step_time[slow] - int(usual)
    share = int(excess.sum()) / max(view.window_length, 1)
    text = (
        f"{format_count(len(delaying), 'step')} with prompts while sequences wait, "
        f"{format_duration(float(np.median(steps.step_time[delaying])))} in the median, decode steps "
        f"{format_duration(usual)}"
    )
    if share < thresholds.MIXED_SHARE.value:
        return Answer.absent(text)
    tokens = serving.prefill_tokens[slow]
    if (tokens != UNKNOWN).any():
        text += f"; up to {int(tokens.max()):,} tokens of prompts in a step"
    rows = step_events(view, steps, slow).row
    return Answer.fired(
        text,
        rows,
        min(int(excess.sum()), view.scope.length),
        Remedy("read prompts in smaller pieces (chunked prefill), or on other GPUs", _CHUNKS.get(steps.engine, "")),
        places=find_event_places(view.trace, rows, excess[np.argsort(steps.row[slow])]),
    )


def _is_between_tokens(serving: ServingSteps) -> Bool:
    """Return which prefills hold up other sequences: the next decode step has more than were read: bool[s]."""
    is_prefill, is_decode = serving.kind_mask(StepKind.PREFILL), serving.kind_mask(StepKind.DECODE)
    index = np.arange(len(serving))
    next_decode = np.minimum.accumulate(np.where(is_decode, index, len(serving))[::-1])[::-1]
    has_next = next_decode < len(serving)
    batch_after = serving.batch[np.minimum(next_decode, max(len(serving) - 1, 0))]
    read = np.cumsum(np.where(is_prefill, np.maximum(serving.batch, 0), 0))
    decodes_before = np.cumsum(is_decode) > 0
    last_decode = np.maximum.accumulate(np.where(is_decode, index, -1))
    read_before = np.where(last_decode >= 0, read[np.maximum(last_decode, 0)], 0)
    read_until = np.where(has_next, read[np.minimum(next_decode, max(len(serving) - 1, 0))], 0)
    others = batch_after - (read_until - read_before)
    held_up: Bool = is_prefill & decodes_before & has_next & (others > 0)
    return held_up


@register_pattern(
    "The GPU waits for the scheduler between steps",
    meaning="after a step's last kernel the CPU reads its tokens, chooses the requests of the next step and prepares "
    "its inputs, and only then launches it",
    action="schedule the next step while the GPU runs this one",
    decided="The time from the completion of a step to the start of the next one, in which no GPU works, without ops "
    "that read values from the GPU (`token-sync`). Its median must reach the limit, compared with the median time in "
    "which the GPU works for a step.",
    thresholds=(thresholds.SCHEDULER_RATIO, thresholds.TOKEN_LOOP_MIN),
    needs=(explain_missing_steps,),
)
def scheduler_bound(view: ScopeView) -> Answer:
    steps: GenerationSteps = view.tables.compute_once(find_generation_steps)
    if not len(steps):
        return Answer.absent(NO_GENERATION)
    serving = steps.serving
    if serving is None:
        return Answer.cannot_tell("no serving engine's annotations say where a step begins and ends")
    pause_start, idle = _find_pauses(view, serving)
    in_scope = np.flatnonzero((idle >= 0) & view.overlap_mask(steps.start, steps.end) & (serving.gpu_busy > 0))
    if len(in_scope) < thresholds.TOKEN_LOOP_MIN.value:
        return Answer.cannot_tell("fewer than three steps follow each other in this range")
    typical, busy = float(np.median(idle[in_scope])), float(np.median(serving.gpu_busy[in_scope]))
    text = (
        f"{format_duration(typical)} between two steps in which no GPU works, {format_duration(busy)} of GPU work a "
        f"step, in the median of {format_count(len(in_scope), 'step')}"
    )
    if typical < thresholds.SCHEDULER_RATIO.value * busy:
        return Answer.absent(text)
    lost = int(idle[in_scope].sum())
    start = pause_start[in_scope]
    end = np.minimum(start + serving.pause[in_scope], steps.start[np.minimum(in_scope + 1, len(steps) - 1)])
    following = steps.row[np.minimum(in_scope + 1, len(steps) - 1)]
    return Answer.fired(
        f"{text}: {format_percent(lost / max(view.window_length, 1))} of {view.window_label}",
        step_events(view, steps, in_scope).row,
        min(lost, view.scope.length),
        Remedy(
            "let the scheduler prepare the next step while the GPU runs this one, and read tokens one step late",
            _OVERLAP.get(steps.engine, ""),
        ),
        spans=union(start, end),
        places=sort_places(start, end, following, idle[in_scope], are_gaps=True),
    )


def _find_pauses(view: ScopeView, serving: ServingSteps) -> tuple[I64, I64]:
    """Find the time after each step in which no GPU works and no value is read from one: (start, ns) int64[s] each.

    The length is -1 after the last step of a thread.
    """
    completion = np.maximum(serving.end, serving.gpu_end)
    waits = find_waits(view)
    reading = find_waiting_times(view, waits, outermost_ancestor(view.trace, waits.row, view.tables.is_dispatcher_op))
    time = reading.measure_before(completion + serving.pause) - reading.measure_before(completion)
    length = np.minimum(serving.pause, np.maximum(serving.gap_idle, 0)) - time
    is_unknown = (serving.gap == UNKNOWN) | (serving.gap_idle == UNKNOWN)
    return completion, np.where(is_unknown, -1, np.maximum(length, 0))
