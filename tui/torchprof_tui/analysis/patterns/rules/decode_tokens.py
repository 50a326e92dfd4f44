"""Patterns of what a decode step does for each token: a KV cache that is copied, values that are read by the CPU."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.evidence import find_event_places
from torchprof_tui.analysis.patterns.engine.nearest_ancestors import outermost_ancestor
from torchprof_tui.analysis.patterns.engine.pattern import (
    Answer,
    Remedy,
    Section,
    Severity,
    absent_answer,
    cannot_tell_answer,
    fired_answer,
)
from torchprof_tui.analysis.patterns.engine.registry import register_pattern
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count, format_percent
from torchprof_tui.analysis.patterns.rules.generation_steps import (
    NO_GENERATION,
    GenerationSteps,
    explain_missing_steps,
    find_generation_steps,
    select_decoding,
)
from torchprof_tui.analysis.patterns.rules.kv_cache_growth import (
    CacheAppends,
    count_attentions,
    find_cache_appends,
    find_planned_attentions,
    name_planner,
)
from torchprof_tui.analysis.patterns.rules.sync_waits import (
    find_lost_time,
    find_waits,
    measure_idle,
    measure_idle_after,
)
from torchprof_tui.analysis.time.intervals import union
from torchprof_tui.trace.core.time_format import format_duration

TOKEN_SYNC_ID = "token-sync"


@register_pattern(
    "kv-cache-cat",
    Section.BEYOND,
    "The KV cache is copied for each token",
    meaning="each token makes a new tensor with torch.cat: all keys and values so far are read and written, and "
    "memory of a new size is needed",
    action="allocate the cache at its full length once, and write each token's keys and values in place",
    code="cache.index_copy_(2, position, keys)  # cache = torch.empty(batch, heads, max_length, width)",
    decided="Calls of aten::cat at the same place of each decode step that append a shorter tensor to one of three or "
    "more dimensions, which is longer in a later step; without shapes, at least one for each attention whose kernel's "
    "grid grows from step to step. Time at stake: their GPU time, "
    "and the idle time of the GPU during these calls and during attention calls that plan their kernel anew for each "
    "length.",
    thresholds=(thresholds.PLANNING_RATIO,),
    severity=Severity.PROBLEM,
)
def kv_cache_cat(view: ScopeView) -> Answer:
    if missing_reason := explain_missing_steps(view):
        return cannot_tell_answer(missing_reason)
    tables = view.tables
    if missing_reason := view.missing_ops_reason():
        return cannot_tell_answer(missing_reason)
    steps: GenerationSteps = tables.compute_once(find_generation_steps)
    decoding = select_decoding(view, steps)
    if not len(decoding):
        return absent_answer("no decode steps" if len(steps) else NO_GENERATION)
    appends: CacheAppends = tables.compute_once(find_cache_appends)
    if not appends.is_known:
        if appends.count * len(steps) < 2 * count_attentions(tables, steps):
            calls = format_count(appends.count, "call")
            return absent_answer(f"{calls} of aten::cat a step, fewer than two for each attention")
        return cannot_tell_answer(
            f"{appends.count} calls of aten::cat a step, but no shapes were recorded: they may append to the KV cache, "
            "or be a part of rotary positions (record_shapes=True)"
        )
    cats = view.select_in_scope(tables.event_table(appends.cats))
    if not len(cats):
        calls = format_count(appends.count, "call")
        return absent_answer(f"{calls} of aten::cat a step, none of which grows" if appends.count else "no aten::cat")
    is_cat = np.zeros(len(view.trace), np.bool_)
    is_cat[cats.row] = True
    linked = np.flatnonzero(view.work.launch >= 0)
    beneath = linked[outermost_ancestor(view.trace, view.work.launch[linked].astype(np.int64), is_cat) >= 0]
    copies = view.work.events.select(beneath)
    planning = view.select_in_scope(tables.compute_once(find_planned_attentions))
    held_up = union(np.concatenate([cats.start, planning.start]), np.concatenate([cats.end, planning.end]))
    idle = measure_idle(view, held_up)
    gpu_time = int(copies.duration.sum())
    planned = ""
    if len(planning):
        each = format_duration(float(np.median(planning.duration)))
        planned = f"; attention is planned anew for each length, {each} a step ({name_planner(tables, planning)})"
    return fired_answer(
        f"{len(appends.cats) // appends.step_count} calls of aten::cat in each of "
        f"{format_count(appends.step_count, 'decode step')} append to a cache that grows from {appends.growth}: "
        f"{format_duration(gpu_time)} on the GPU{planned}; the GPU is idle for {format_duration(idle)} meanwhile",
        np.sort(np.concatenate([cats.row, copies.row, planning.row])),
        min(gpu_time + idle, view.scope.length),
        spans=held_up,
        places=find_event_places(view.trace, np.sort(np.concatenate([cats.row, planning.row]))),
    )


@register_pattern(
    TOKEN_SYNC_ID,
    Section.BEYOND,
    "The CPU reads values from the GPU after each token",
    meaning="item(), tolist() or nonzero() waits until the token is computed, most often to test for the end of the "
    "sequence; only then does the CPU launch the next step, and the GPU waits for that",
    action="test for the end of the sequence every n tokens, with flags that stay on the GPU",
    code="done |= next_token == eos; if step % 16 == 0 and done.all(): break",
    decided="Ops that wait for the GPU, with one such wait or more in most decode steps or right after them. Time at "
    "stake: the idle time of the GPU because of them, which must reach the limit: an engine that reads the tokens of a "
    "step once, while the next one runs, loses less.",
    thresholds=(thresholds.TOKEN_SYNC_SHARE,),
    severity=Severity.PROBLEM,
)
def token_sync(view: ScopeView) -> Answer:
    if missing_reason := explain_missing_steps(view):
        return cannot_tell_answer(missing_reason)
    tables = view.tables
    if not len(tables.calls):
        return cannot_tell_answer("no runtime calls were recorded")
    steps: GenerationSteps = tables.compute_once(find_generation_steps)
    decoding = select_decoding(view, steps)
    if len(decoding) < thresholds.TOKEN_LOOP_MIN.value:
        return absent_answer("fewer than three decode steps" if len(steps) else NO_GENERATION)
    waits = find_waits(view)
    owner = outermost_ancestor(view.trace, waits.row, tables.is_dispatcher_op)
    # A wait after a step belongs to it as long as no other step has begun.
    step = steps.start.searchsorted(waits.start, side="right") - 1
    belongs = (owner >= 0) & np.isin(step, decoding) & view.overlap_mask(waits.start, waits.end)
    last_end = np.append(steps.start[1:], max(int(steps.end[-1]), tables.window[1]))
    belongs &= waits.start < last_end[np.maximum(step, 0)]
    waits, owner, step = waits.select(belongs), owner[belongs], step[belongs]
    per_step = np.bincount(step, minlength=len(steps))[decoding]
    typical = float(np.median(per_step))
    if typical < 1:
        return absent_answer(f"{format_count(len(waits), 'wait')} in {format_count(len(decoding), 'decode step')}")
    lost_time = find_lost_time(view, waits, owner)
    idle = measure_idle(view, lost_time)
    names = [tables.name(int(op)) for op in owner]
    main_op = max(sorted(set(names)), key=names.count)
    share = idle / max(view.window_length, 1)
    text = (
        f"{typical:g} {'wait' if typical == 1 else 'waits'} a token, most in {main_op}; the GPU is idle for "
        f"{format_duration(idle)} because of them, {format_percent(share)} of {view.window_label}"
    )
    if share < thresholds.TOKEN_SYNC_SHARE.value:
        return absent_answer(text)
    return fired_answer(
        text,
        waits.row,
        min(idle, view.scope.length),
        _choose_remedy(main_op, typical),
        spans=lost_time,
        places=find_event_places(view.trace, waits.row, measure_idle_after(view, waits, lost_time)),
    )


def _choose_remedy(main_op: str, waits_per_step: float) -> Remedy | None:
    """Choose by the op that waits: a value, a mask, or a copy of all tokens; None for the pattern's own remedy."""
    if "nonzero" in main_op or main_op in ("aten::index", "aten::masked_select", "aten::where"):
        return Remedy(
            "a mask or nonzero() reads the size of its result after each token: keep finished sequences in the batch, "
            "and mask their tokens",
            "next_token = torch.where(done, pad, next_token)  # instead of tokens[~done]",
        )
    if main_op in ("aten::to", "aten::_to_copy", "aten::copy_", "aten::cpu"):
        return Remedy(
            "copy the tokens into a pinned buffer without blocking, launch the next step, and read them then",
            "buffer.copy_(tokens, non_blocking=True)  # buffer = torch.empty_like(tokens, device='cpu', "
            "pin_memory=True)",
        )
    if waits_per_step >= 2:
        return Remedy(
            "item() reads the sequences one by one after each token: test for the end of the sequence every n tokens, "
            "for all at once",
            "done |= next_token == eos; if step % 16 == 0 and done.all(): break",
        )
    return None
