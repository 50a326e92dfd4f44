"""Patterns of CUDA graphs: what a replay still costs, decode steps that have none, and graphs that are too large."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.kernel.names.model import KernelClass
from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Remedy, find_event_places, register_pattern
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count, format_percent
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.patterns.engine.undecidable_reasons import NO_LINKS
from torchprof_tui.analysis.patterns.rules import serving
from torchprof_tui.analysis.patterns.rules.torch_compile import AOT_PROLOGUE_REGEX, CACHE_LOOKUP_REGEX, PREGRAPH_REGEX
from torchprof_tui.analysis.serving.serving_steps import UNKNOWN, NotGraphed, StepKind
from torchprof_tui.analysis.time.intervals import find_range_at
from torchprof_tui.trace.core.arrays import I64, Bool, find_median, is_in, sorted_unique
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind


def find_input_copies(tables: TraceTables) -> EventTable:
    """Find the copies launched right before a graph is replayed, with no other GPU work between: its inputs."""
    work, trace = tables.work, tables.trace
    launches = tables.practices.graph_launches
    linked = work.launch >= 0
    copy_names = np.zeros(len(trace.names), dtype=np.bool_)
    used = sorted_unique(work.events.name).astype(np.int64)
    copy_names[used] = ["copy" in trace.names[name].lower() for name in used.tolist()]
    is_copy = linked & ((work.kind == Kind.COPY) | work.class_mask(KernelClass.COPY) | copy_names[work.events.name])
    # A call is a copy if all its work is.
    calls = sorted_unique(np.concatenate([work.launch[linked], launches.row])).astype(np.int64)
    other = tables.mark_rows(work.launch[linked & ~is_copy])
    calls = calls[np.lexsort((trace.start[calls], trace.lane[calls]))]
    lane = trace.lane[calls]
    is_replay = is_in(calls, launches.row)
    ends_run = is_replay | other[calls]  # a run of copies ends at a replay, or at other work
    index = np.arange(len(calls))
    next_end = np.minimum.accumulate(np.where(ends_run, index, len(calls))[::-1])[::-1]
    has_end = next_end < len(calls)
    next_end = np.minimum(next_end, max(len(calls) - 1, 0))
    feeds = ~ends_run & has_end & is_replay[next_end] & (lane[next_end] == lane) if len(calls) else ends_run
    return work.events.select(np.flatnonzero(linked & is_in(work.launch, calls[feeds])))


@register_pattern(
    "Inputs are copied before a graph runs",
    meaning="a graph reads its inputs at fixed addresses, so new inputs are copied there before each replay",
    action="write the inputs directly to the addresses that the graph reads",
    code="static_x.copy_(batch, non_blocking=True); graph.replay()  # load into static_x, and drop other copies",
    decided="Copies that are launched right before a graph, with no other work in between. Shown with them: the "
    "other costs of a replay, which are the launch and the guards of compiled code.",
    thresholds=(thresholds.GRAPH_COPY_SHARE,),
    needs=(ScopeView.missing_calls_reason, ScopeView.missing_work_reason),
)
def graph_input_copies(view: ScopeView) -> Answer:
    tables = view.tables
    launches = view.select_in_scope(tables.practices.graph_launches)
    if not len(launches):
        return Answer.absent("no graph is replayed")
    if not (tables.work.launch >= 0).any():
        return Answer.cannot_tell(NO_LINKS)
    copies = view.select_in_scope(tables.compute_once(find_input_copies))
    time, summary, remedy = view.covered_time(copies), describe_replay_costs(view), None
    if time < thresholds.GRAPH_COPY_SHARE.value * view.scope.length:
        return Answer.absent(summary)
    if tables.practices.uses_compile:
        remedy = Remedy(
            "keep the inputs at one address and mark them as static, so that compiled code does not copy them",
            "torch._dynamo.mark_static_address(x)",
        )
    return Answer.fired(summary, np.sort(copies.row), time, remedy)


def describe_replay_costs(view: ScopeView) -> str:
    """Describe what graphs still cost: copies into their inputs, the calls that replay them, guards."""
    copies = view.select_in_scope(view.tables.compute_once(find_input_copies))
    launches = view.select_in_scope(view.tables.practices.graph_launches)
    guards = view.match_names(rf"{CACHE_LOOKUP_REGEX}|{AOT_PROLOGUE_REGEX}|{PREGRAPH_REGEX}")
    parts = [f"{format_count(len(launches), 'replay')} {_format_time(view, view.covered_time(launches))}"]
    if len(copies):
        copied = _format_time(view, view.covered_time(copies))
        parts.insert(0, f"{format_count(len(copies), 'copy', 'copies')} into inputs {copied}")
    if len(guards):
        parts.append(f"guards {_format_time(view, view.covered_time(guards))}")
    return ", ".join(parts)


def _format_time(view: ScopeView, time: int) -> str:
    return f"{format_duration(time)} ({format_percent(time / view.scope.length)})"


_CAPTURE_SIZES = {
    "vLLM": "vllm serve … --compilation-config '{\"cudagraph_capture_sizes\": [1, 2, 4, 8, 16, 24, 32]}'",
    "SGLang": "python -m sglang.launch_server … --cuda-graph-bs 1 2 4 8 16 24 32",
    "TensorRT-LLM": "cuda_graph_config: {batch_sizes: [1, 2, 4, 8, 16, 24, 32]}",
}
"""How each engine is told for which batch sizes to capture graphs."""


def _is_replayed(steps: serving.GenerationSteps) -> Bool:
    replayed: Bool = steps.graph_kernels >= thresholds.GRAPH_SHARE.value * np.maximum(steps.kernels, 1)
    return replayed


@register_pattern(
    "Some decode steps run without a CUDA graph",
    meaning="a graph exists for some batch sizes only: the other steps launch each kernel by itself and take longer",
    action="capture a graph for these batch sizes as well",
    decided="Decode steps with many kernels of which CUDA graphs launch less than half, in a trace where other decode "
    "steps replay graphs. Steps with prompts do not count. Why is read from the batch sizes that the annotations name. "
    "Time at stake: what these steps take longer than the median step with a graph.",
    thresholds=(thresholds.DECODE_MIN_KERNELS, thresholds.GRAPH_SHARE),
    needs=(serving.explain_missing_steps,),
)
def eager_fallback(view: ScopeView) -> Answer:
    steps, decoding = serving.select_decoding(view)
    decoding = decoding[steps.kernels[decoding] >= thresholds.DECODE_MIN_KERNELS.value]
    if not len(decoding):
        return Answer.absent("no decode steps" if len(steps) else serving.NO_GENERATION)
    is_replayed = _is_replayed(steps)
    eager, replayed = decoding[~is_replayed[decoding]], decoding[is_replayed[decoding]]
    if not len(eager):
        return Answer.absent(f"all {format_count(len(decoding), 'decode step')} replay graphs")
    if not len(replayed):
        return Answer.absent("no decode step replays a graph")
    usual = find_median(steps.step_time[replayed])
    excess = np.maximum(steps.step_time[eager] - int(usual), 0)
    why, remedy = _explain_eager_steps(steps, eager, replayed)
    rows = serving.step_events(view, steps, eager).row
    places = find_event_places(view.trace, rows, excess[np.argsort(steps.row[eager])])
    seen = (
        f"{len(eager)} of {format_count(len(decoding), 'decode step')} launch their kernels one by one and take "
        f"{format_duration(find_median(steps.step_time[eager]))} instead of {format_duration(usual)}; {why}"
    )
    return Answer.fired(seen, rows, min(int(excess.sum()), view.scope.length), remedy, places=places)


def _explain_eager_steps(steps: serving.GenerationSteps, eager: I64, replayed: I64) -> tuple[str, Remedy | None]:
    """Explain why steps ran eagerly, by their batch sizes: (reason, remedy; None for that of the pattern)."""
    code = _CAPTURE_SIZES.get(steps.engine, "")
    if steps.serving is not None and (steps.serving.not_graphed[eager] == NotGraphed.SAID_EAGER).all():
        return "the engine says that it ran them eagerly", None
    batches, with_graph = sorted_unique(steps.batch[eager]), sorted_unique(steps.batch[replayed])
    if UNKNOWN in batches or UNKNOWN in with_graph:
        return "nothing in the trace says for which batch size a graph exists", None
    sizes, common = _format_sizes(batches), batches[is_in(batches, with_graph)]
    if batches.min() > with_graph.max():
        why = f"their batches of {sizes} are larger than any with a graph (up to {with_graph.max()})"
        action = f"capture graphs for up to {batches.max()} sequences, or let the engine take fewer at once"
        return why, Remedy(action, code)
    if not len(common):
        action = f"capture a graph for batches of {sizes} as well, or pad them to the next size"
        return f"no graph is replayed for batches of {sizes}", Remedy(action, code)
    why = f"batches of {_format_sizes(common)} replay a graph in other steps, so the size is not the cause"
    action = "compare such a step with one that replays a graph: a feature of its requests may rule the graph out"
    return why, Remedy(action)


def _format_sizes(sizes: I64) -> str:
    return ", ".join(str(size) for size in sizes[:4].tolist()) + (", …" if len(sizes) > 4 else "")


def find_captured_sizes(tables: TraceTables) -> I64:
    """Find for each step the batch size that its graph was captured for, UNKNOWN where it is not known: int64[s].

    The engine says it, or steps with other batches replay the same graph: then it is the largest of these, at least.
    """
    steps: serving.GenerationSteps = tables.compute_once(serving.find_generation_steps)
    sizes: I64 = steps.padded_batch.copy()
    groups = _group_by_graph(tables, steps)
    is_decode = steps.kind_mask(StepKind.DECODE)
    for group in sorted_unique(groups[groups >= 0]).tolist():
        members = np.flatnonzero((groups == group) & is_decode)
        batches = steps.batch[members]
        if len(sorted_unique(batches[batches != UNKNOWN])) > 1:
            sizes[members] = np.maximum(sizes[members], batches.max())
    return sizes


def _group_by_graph(tables: TraceTables, steps: serving.GenerationSteps) -> I64:
    """Group the steps that replay equal graphs, by kernels and grids in order: int64[s], -1 without one graph."""
    group = np.full(len(steps), -1, np.int64)
    work, launches = tables.work, tables.practices.graph_launches
    pieces = np.flatnonzero(is_in(work.launch, launches.row))
    if not len(steps) or not len(pieces):
        return group
    step = find_range_at(steps.start, steps.end, tables.launch_start[pieces])
    pieces, step = pieces[step >= 0], step[step >= 0]
    # Work is sorted by start; a graph's pieces on several streams may change their order, so the key has none.
    order = np.lexsort((tables.launch_group[pieces], step))
    codes, step = tables.launch_group[pieces][order], step[order]
    digest: dict[bytes, int] = {}
    bounds = np.flatnonzero(np.diff(step)) + 1
    for part, number in zip(np.split(codes, bounds), step[np.append(0, bounds)].tolist(), strict=True):
        group[number] = digest.setdefault(part.tobytes(), len(digest))
    return group


@register_pattern(
    "Batches are padded to the size of a captured graph",
    meaning="a graph runs for the batch size that it was captured for: with fewer sequences, the rest is computed for "
    "nothing",
    action="capture graphs for more sizes between, or let the engine fill the batches",
    decided="Decode steps that replay a graph for more sequences than they have: the engine names its size, or steps "
    "with different batches replay graphs of the same kernels and grids, captured for the largest of them at least. "
    "Time at stake, at most: the same share of these steps' GPU time without matrix products, which "
    "read all weights for any number of rows.",
    thresholds=(thresholds.PADDING_SHARE,),
    needs=(serving.explain_missing_steps,),
)
def graph_padding(view: ScopeView) -> Answer:
    tables = view.tables
    steps, decoding = serving.select_decoding(view)
    replaying = decoding[_is_replayed(steps)[decoding] & (steps.graph_kernels[decoding] > 0)]
    if not len(replaying):
        return Answer.absent("no decode step replays a graph" if len(steps) else serving.NO_GENERATION)
    if (steps.batch[replaying] == UNKNOWN).all():
        return Answer.cannot_tell("no annotation says how many sequences a step has")
    captured = tables.compute_once(find_captured_sizes)[replaying]
    batch = steps.batch[replaying]
    known = (captured != UNKNOWN) & (batch != UNKNOWN)
    if not known.any():
        sizes = _format_sizes(sorted_unique(batch[batch != UNKNOWN]))
        return Answer.cannot_tell(
            f"each graph is replayed for one batch size only ({sizes}): nothing says for which size it was captured"
        )
    share = 1 - float(batch[known].sum()) / max(float(captured[known].sum()), 1.0)
    text = (
        f"{int(batch[known].sum()):,} sequences in {format_count(int(known.sum()), 'step')} whose graphs compute "
        f"{int(captured[known].sum()):,}: {format_percent(share)} padding"
    )
    if share < thresholds.PADDING_SHARE.value:
        return Answer.absent(text)
    padded = replaying[known & (captured > batch)]
    largest = int(np.argmax((captured - batch) * known))
    rows = serving.step_events(view, steps, padded).row
    # The GPU time of kernels launched in these steps, without matrix products.
    work = tables.work
    is_other = (work.kind == Kind.KERNEL) & ~work.class_mask(KernelClass.GEMM)
    inside = is_in(find_range_at(steps.start, steps.end, tables.launch_start), replaying[known])
    time = int(work.events.duration[is_other & inside].sum())
    seen = f"{text}; such as {batch[largest]} in a graph for {captured[largest]} or more"
    action = "capture graphs for more sizes, so that batches are padded less; or fill the batches"
    remedy = Remedy(action, _CAPTURE_SIZES.get(steps.engine, ""))
    return Answer.fired(seen, rows, min(int(share * time), view.scope.length), remedy)
