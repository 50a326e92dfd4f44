"""Patterns of steps that generate tokens: a KV cache that is copied, values that the CPU reads, prompts, scheduling."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.op_text import read_dims
from torchprof_tui.analysis.patterns.engine.pattern import (
    Answer,
    Remedy,
    find_event_places,
    register_pattern,
    sort_places,
)
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count, format_percent
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.patterns.rules import gpu_waits
from torchprof_tui.analysis.patterns.rules.conversions import find_attentions
from torchprof_tui.analysis.patterns.rules.serving import (
    NO_GENERATION,
    GenerationSteps,
    explain_missing_steps,
    find_generation_steps,
    select_decoding,
    step_events,
)
from torchprof_tui.analysis.serving.serving_steps import UNKNOWN, ServingSteps, StepKind
from torchprof_tui.analysis.time.intervals import union
from torchprof_tui.trace.core.arrays import I64, Bool, find_median, is_in, sorted_unique
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind

_CAT_REGEX = r"aten::cat$"
_MAX_DESCENDANTS = 64  # events after a call among which its inner ops are looked for

_MAX_CATS_READ = 256
"""Calls of `cat` whose shapes are read in each of two steps; a step of a large model has a few hundred."""

_MIN_SIZES = 3  # different grids that a kernel must have at one place of the steps, to be called growing


@record
class CacheAppends:
    """Calls of `cat` in decode steps that append to a KV cache.

    `cats`: rows, int64[k]. `growth`: of the longest cache, "8×4×100×64 to 8×4×131×64", or of the kernels' grids.
    `step_count`: decode steps with equally many calls. `count`: calls of `cat` in one of them. `is_known`: whether
    shapes or grids say what the calls do.
    """

    cats: I64
    growth: str
    step_count: int
    count: int
    is_known: bool


_NO_CATS = np.empty(0, np.int64)


def find_cache_appends(tables: TraceTables) -> CacheAppends:
    """Find calls of `cat` at the same place of each decode step whose first tensor grows from step to step.

    By shapes: two tensors of three or more dimensions, equal in all but one, of which the second is the shorter: keys
    or values and the new ones. Ids and masks, which have two dimensions, grow as well, but cost nothing. Without shapes
    by the grids of their kernels, if there are at least as many such places as attention calls; a large tensor's grid
    is limited, so that grids that do not grow prove nothing.
    """
    steps: GenerationSteps = tables.compute_once(find_generation_steps)
    decoding = np.flatnonzero(steps.kind_mask(StepKind.DECODE))
    cats = tables.select_on_launch_lanes(tables.match_names(_CAT_REGEX, Kind.OP))
    cats = cats.select(np.argsort(cats.start, kind="stable"))
    first = cats.start.searchsorted(steps.start[decoding])
    count = cats.start.searchsorted(steps.end[decoding]) - first
    if len(decoding) < 2 or not count.any():
        return CacheAppends(_NO_CATS, "", len(decoding), 0, True)
    usual = int(np.bincount(count[count > 0]).argmax())
    first = first[count == usual]
    calls = cats.row[first[:, None] + np.arange(usual)]
    by_shape = _find_growing_shapes(tables, calls)
    if by_shape is not None:
        places, growth = by_shape
    else:
        places, growth = _find_growing_grids(tables, calls)
        if len(places) * len(steps) < count_attentions(tables, steps):
            return CacheAppends(_NO_CATS, "", len(calls), usual, False)
    return CacheAppends(np.sort(calls[:, places].ravel()), growth, len(calls), usual, True)


def _find_growing_shapes(tables: TraceTables, calls: I64) -> tuple[list[int], str] | None:
    """Find the places (columns of `calls` int64[steps, k]) whose tensors grow; None where no shapes were recorded."""
    pairs = dict.fromkeys([(0, len(calls) - 1), (0, 1), (len(calls) - 2, len(calls) - 1)]) if len(calls) > 1 else {}
    is_known = False
    for one, other in pairs:
        shapes = [read_tensor_shapes(tables, calls[step][:_MAX_CATS_READ]) for step in (one, other)]
        is_known |= any(shapes[0]) and any(shapes[1])
        places = [place for place, (old, new) in enumerate(zip(*shapes, strict=True)) if _has_grown(old, new)]
        if places:
            longest = max(places, key=lambda place: float(np.prod(shapes[1][place][0])))
            old, new = ("×".join(map(str, each[longest][0])) for each in shapes)
            return places, f"{old} to {new}"
    return ([], "") if is_known else None


def read_tensor_shapes(tables: TraceTables, rows: I64) -> list[list[list[int]]]:
    """Read the shapes of the tensors that each call concatenates; [] where they were not recorded."""
    shapes: list[list[list[int]]] = [[] for _ in rows]
    for index, dims in enumerate(read_dims(tables.trace, rows)):
        tensors = dims[0] if isinstance(dims, list) and dims else None
        if isinstance(tensors, list) and all(isinstance(each, list) and each for each in tensors):
            shapes[index] = tensors
    return shapes


def _has_grown(old: list[list[int]], new: list[list[int]]) -> bool:
    """Return whether both calls append a short tensor to a long one, which is longer in the second call."""
    if len(old) != 2 or len(new) != 2:
        return False
    first, second = _appended_dim(old), _appended_dim(new)
    return first is not None and first == second and new[0][first] > old[0][first]


def _appended_dim(tensors: list[list[int]]) -> int | None:
    """Return the one dimension in which the second of two tensors is shorter, None for other pairs."""
    long, short = tensors
    if len(long) < 3 or len(long) != len(short):
        return None
    differing = [dim for dim, (size, other) in enumerate(zip(long, short, strict=True)) if size != other]
    return differing[0] if len(differing) == 1 and short[differing[0]] < long[differing[0]] else None


def _find_growing_grids(tables: TraceTables, calls: I64) -> tuple[list[int], str]:
    """Find the places (columns of `calls` int64[steps, k]) whose kernels have more and more blocks."""
    trace, column = tables.trace, tables.trace.args.get("grid")
    if column is None or len(calls) < _MIN_SIZES:
        return [], ""
    work = tables.work.select(tables.work.launch >= 0)
    call = tables.outermost_ancestor(work.launch.astype(np.int64), tables.mark_rows(calls))
    work, call = work.select(call >= 0), call[call >= 0]
    blocks = np.zeros(len(trace), np.int64)
    np.maximum.at(blocks, call, column.values_at(work.events.row, 0).astype(np.int64).prod(axis=1))
    sizes = blocks[calls]
    change = np.diff(sizes, axis=0)
    rises, falls = (change > 0).sum(axis=0), (change < 0).sum(axis=0)
    kinds = np.array([len(sorted_unique(place)) for place in sizes.T])
    places = np.flatnonzero((kinds >= _MIN_SIZES) & (4 * falls <= rises))  # a fall: another text begins
    if not len(places):
        return [], ""
    # The growth in one text: the part with most sizes; another text begins with a fall, or the jump of its prompt.
    place = sizes[:, places[0]]
    texts = np.split(place, np.flatnonzero((np.diff(place) < 0) | (place[1:] > 2 * place[:-1])) + 1)
    longest = max(texts, key=lambda text: len(sorted_unique(text)))
    return places.tolist(), f"{longest[0]} to {longest[-1]} blocks"


def find_planned_attentions(tables: TraceTables) -> EventTable:
    """Find the attention calls of decode steps that take far longer than the others, in most steps.

    A library that chooses its kernel for each shape does so again for each length of the keys: the first layer of a
    step waits for it, the others reuse the choice.
    """
    steps: GenerationSteps = tables.compute_once(find_generation_steps)
    ops = tables.compute_once(_find_outer_attentions)
    step = steps.start.searchsorted(ops.start, side="right") - 1
    decoding = np.flatnonzero(steps.kind_mask(StepKind.DECODE))
    ops, step = ops.select(is_in(step, decoding)), step[is_in(step, decoding)]
    if not len(ops):
        return ops
    limit = max(thresholds.PLANNING_RATIO.value * find_median(ops.duration), thresholds.COLD_CALL_MIN.value)
    is_slow = ops.duration >= limit
    if 2 * len(sorted_unique(step[is_slow])) <= len(decoding):
        is_slow[:] = False
    return ops.select(np.sort(np.flatnonzero(is_slow)))


def name_planner(tables: TraceTables, planning: EventTable) -> str:
    """Name the innermost op that takes most of the longest of these calls."""
    row = int(planning.row[planning.duration.argmax()])
    trace = tables.trace
    children = np.flatnonzero(trace.parent[row + 1 :][:_MAX_DESCENDANTS] >= row) + row + 1
    half = int(trace.duration[row]) // 2
    inner = [int(child) for child in children if trace.duration[child] > half and trace.kind[child] == Kind.OP]
    return tables.name(inner[-1] if inner else row)


def _find_outer_attentions(tables: TraceTables) -> EventTable:
    """Find the attention ops by start, without those inside another one."""
    ops = tables.select_on_launch_lanes(tables.compute_once(find_attentions))
    ops = ops.select(np.argsort(ops.start, kind="stable"))
    return ops.select(ops.start >= np.maximum.accumulate(np.append(np.iinfo(np.int64).min, ops.end))[:-1])


def count_attentions(tables: TraceTables, steps: GenerationSteps) -> int:
    """Count the attention ops in the steps."""
    start = tables.compute_once(_find_outer_attentions).start
    return int((start.searchsorted(steps.end) - start.searchsorted(steps.start)).sum())


@register_pattern(
    "The KV cache is copied for each token",
    meaning="for each token torch.cat copies all keys and values so far into a new tensor",
    action="allocate the cache at its full length once, and write each token's keys and values in place",
    code="cache.index_copy_(2, position, keys)  # cache = torch.empty(batch, heads, max_length, width)",
    decided="Calls of aten::cat at the same place of each decode step that append a shorter tensor to one of three or "
    "more dimensions, which is longer in a later step; without shapes, at least one for each attention whose kernel's "
    "grid grows from step to step. Time at stake: their GPU time, and the idle time of the GPU during these calls and "
    "during attention calls that plan their kernel anew for each length.",
    thresholds=(thresholds.PLANNING_RATIO,),
    needs=(explain_missing_steps, ScopeView.missing_ops_reason),
)
def kv_cache_cat(view: ScopeView) -> Answer:
    tables = view.tables
    steps, decoding = select_decoding(view)
    if not len(decoding):
        return Answer.absent("no decode steps" if len(steps) else NO_GENERATION)
    appends: CacheAppends = tables.compute_once(find_cache_appends)
    if not appends.is_known:
        if appends.count * len(steps) < 2 * count_attentions(tables, steps):
            calls = format_count(appends.count, "call")
            return Answer.absent(f"{calls} of aten::cat a step, fewer than two for each attention")
        return Answer.cannot_tell(
            f"{appends.count} calls of aten::cat a step, but no shapes were recorded: they may append to the KV cache, "
            "or be a part of rotary positions (record_shapes=True)"
        )
    cats = view.select_in_scope(tables.event_table(appends.cats))
    if not len(cats):
        calls = format_count(appends.count, "call")
        return Answer.absent(f"{calls} of aten::cat a step, none of which grows" if appends.count else "no aten::cat")
    linked = np.flatnonzero(view.work.launch >= 0)
    above = tables.outermost_ancestor(view.work.launch[linked].astype(np.int64), tables.mark_rows(cats.row))
    copies = view.work.events.select(linked[above >= 0])
    planning = view.select_in_scope(tables.compute_once(find_planned_attentions))
    held_up = cats.intervals | planning.intervals
    idle = gpu_waits.measure_idle(view, held_up)
    gpu_time = int(copies.duration.sum())
    planned = ""
    if len(planning):
        each = format_duration(find_median(planning.duration))
        planned = f"; attention is planned anew for each length, {each} a step ({name_planner(tables, planning)})"
    seen = (
        f"{len(appends.cats) // appends.step_count} calls of aten::cat in each of "
        f"{format_count(appends.step_count, 'decode step')} append to a cache that grows from {appends.growth}: "
        f"{format_duration(gpu_time)} on the GPU{planned}; the GPU is idle for {format_duration(idle)} meanwhile"
    )
    events = np.sort(np.concatenate([cats.row, copies.row, planning.row]))
    places = find_event_places(view.trace, np.sort(np.concatenate([cats.row, planning.row])))
    return Answer.fired(seen, events, min(gpu_time + idle, view.scope.length), spans=held_up, places=places)


@register_pattern(
    "The CPU reads values from the GPU after each token",
    meaning="the CPU launches the next step only when it has read the token (item(), tolist() or nonzero())",
    action="test for the end of the sequence every n tokens, with flags that stay on the GPU",
    code="done |= next_token == eos; if step % 16 == 0 and done.all(): break",
    decided="Ops that wait for the GPU, with one such wait or more in most decode steps or right after them. Time at "
    "stake: the idle time of the GPU because of them, which must reach the limit: an engine that reads the tokens of a "
    "step once, while the next one runs, loses less.",
    thresholds=(thresholds.TOKEN_SYNC_SHARE,),
    needs=(explain_missing_steps,),
)
def token_sync(view: ScopeView) -> Answer:
    tables = view.tables
    if not len(tables.calls):
        return Answer.cannot_tell("no runtime calls were recorded")
    steps, decoding = select_decoding(view)
    if len(decoding) < thresholds.TOKEN_LOOP_MIN.value:
        return Answer.absent("fewer than three decode steps" if len(steps) else NO_GENERATION)
    waits = gpu_waits.find_waits(view)
    owner = tables.outermost_ancestor(waits.row, tables.is_dispatcher_op)
    # A wait after a step belongs to it as long as no other step has begun.
    step = steps.start.searchsorted(waits.start, side="right") - 1
    belongs = (owner >= 0) & is_in(step, decoding) & view.overlap_mask(waits.start, waits.end)
    last_end = np.append(steps.start[1:], max(int(steps.end[-1]), tables.window[1]))
    belongs &= waits.start < last_end[np.maximum(step, 0)]
    waits, owner, step = waits.select(belongs), owner[belongs], step[belongs]
    per_step = np.bincount(step, minlength=len(steps))[decoding]
    typical = find_median(per_step)
    if typical < 1:
        return Answer.absent(f"{format_count(len(waits), 'wait')} in {format_count(len(decoding), 'decode step')}")
    lost_time = gpu_waits.find_lost_time(view, waits, owner)
    idle = gpu_waits.measure_idle(view, lost_time)
    names = [tables.name(int(op)) for op in owner]
    main_op = max(sorted(set(names)), key=names.count)
    share = idle / max(view.window_length, 1)
    text = (
        f"{typical:g} {'wait' if typical == 1 else 'waits'} a token, most in {main_op}; the GPU is idle for "
        f"{format_duration(idle)} because of them, {format_percent(share)} of {view.window_label}"
    )
    if share < thresholds.TOKEN_SYNC_SHARE.value:
        return Answer.absent(text)
    places = find_event_places(view.trace, waits.row, gpu_waits.measure_idle_after(view, waits, lost_time))
    remedy = _choose_remedy(main_op, typical)
    return Answer.fired(text, waits.row, min(idle, view.scope.length), remedy, lost_time, places)


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
    meaning="a step that reads prompts takes much longer than a decode step, and all running sequences wait for it",
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
    usual = find_median(steps.step_time[decoding])
    slow = delaying[steps.step_time[delaying] >= thresholds.MIXED_RATIO.value * usual]
    excess = steps.step_time[slow] - int(usual)
    share = int(excess.sum()) / max(view.window_length, 1)
    text = (
        f"{format_count(len(delaying), 'step')} with prompts while sequences wait, "
        f"{format_duration(find_median(steps.step_time[delaying]))} in the median, decode steps "
        f"{format_duration(usual)}"
    )
    if share < thresholds.MIXED_SHARE.value:
        return Answer.absent(text)
    tokens = serving.prefill_tokens[slow]
    if (tokens != UNKNOWN).any():
        text += f"; up to {int(tokens.max()):,} tokens of prompts in a step"
    rows = step_events(view, steps, slow).row
    places = find_event_places(view.trace, rows, excess[np.argsort(steps.row[slow])])
    action = "read prompts in smaller pieces (chunked prefill), or on other GPUs"
    remedy = Remedy(action, _CHUNKS.get(steps.engine, ""))
    return Answer.fired(text, rows, min(int(excess.sum()), view.scope.length), remedy, places=places)


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
    # The pause after each step, in which no GPU works and no value is read from one; -1 after a thread's last step.
    pause_start = np.maximum(serving.end, serving.gpu_end)
    waits = gpu_waits.find_waits(view)
    reading = gpu_waits.find_waiting_times(
        view, waits, view.tables.outermost_ancestor(waits.row, view.tables.is_dispatcher_op)
    )
    time = reading.measure_within(pause_start, pause_start + serving.pause)
    length = np.minimum(serving.pause, np.maximum(serving.gap_idle, 0)) - time
    is_unknown = (serving.gap == UNKNOWN) | (serving.gap_idle == UNKNOWN)
    idle = np.where(is_unknown, -1, np.maximum(length, 0))
    in_scope = np.flatnonzero((idle >= 0) & view.overlap_mask(steps.start, steps.end) & (serving.gpu_busy > 0))
    if len(in_scope) < thresholds.TOKEN_LOOP_MIN.value:
        return Answer.cannot_tell("fewer than three steps follow each other in this range")
    typical, busy = find_median(idle[in_scope]), find_median(serving.gpu_busy[in_scope])
    text = (
        f"{format_duration(typical)} between two steps in which no GPU works, {format_duration(busy)} of GPU work a "
        f"step, in the median of {format_count(len(in_scope), 'step')}"
    )
    if typical < thresholds.SCHEDULER_RATIO.value * busy:
        return Answer.absent(text)
    lost = int(idle[in_scope].sum())
    start, next_step = pause_start[in_scope], np.minimum(in_scope + 1, len(steps) - 1)
    end = np.minimum(start + serving.pause[in_scope], steps.start[next_step])
    following = steps.row[next_step]
    seen = f"{text}: {format_percent(lost / max(view.window_length, 1))} of {view.window_label}"
    action = "let the scheduler prepare the next step while the GPU runs this one, and read tokens one step late"
    remedy, rows = Remedy(action, _OVERLAP.get(steps.engine, "")), step_events(view, steps, in_scope).row
    places = sort_places(start, end, following, idle[in_scope], are_gaps=True)
    return Answer.fired(seen, rows, min(lost, view.scope.length), remedy, union(start, end), places)
