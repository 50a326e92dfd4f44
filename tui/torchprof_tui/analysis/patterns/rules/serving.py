"""Patterns of generating text: its phases, and decoding that launches each kernel by itself; the steps that generate.

Steps come from the annotations of a serving engine, from annotations that name a phase, or from the loop over tokens.
"""

from __future__ import annotations

import re

import numpy as np

from torchprof_tui.analysis.patterns.engine import thresholds
from torchprof_tui.analysis.patterns.engine.event_tables import EventTable, StepTable
from torchprof_tui.analysis.patterns.engine.pattern import Answer, Remedy, register_notice, register_pattern
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView, format_count, format_percent
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.patterns.rules.conversions import find_attentions
from torchprof_tui.analysis.serving.measure_steps import get_serving_steps
from torchprof_tui.analysis.serving.serving_steps import KINDS, UNKNOWN, ServingSteps, StepKind
from torchprof_tui.analysis.time.intervals import find_range_at, union
from torchprof_tui.trace.core.arrays import I64, U8, Bool, find_median, is_in
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.steps import Engine

_PHASE_REGEX = r"(?i)execute_\w*context_\d+|step\[|.*\b(prefill|decode|extend)\b"
_VLLM_PHASE = re.compile(r"execute_\w*?context_(\d{1,9})\(.*generation_(\d{1,9})\(")
_SGLANG_PHASE = re.compile(r"step\[(\w+)(?: bs=(\d{1,9})\b)?")
_NAMED_PHASE = re.compile(r"(?i).*\b(prefill|decode|extend)\b")
_SAMPLER_REGEX = r"aten::(argmax|multinomial)$"
_CACHE_REGEX = r"aten::(cat|index_copy_|index_put_|slice_scatter)$|\w+::\w*(kv_cache|reshape_and_cache)\w*$"


@record
class TokenLoop:
    """k iterations of a loop over tokens: from one sampled token to the next, without prefills.

    `samplers`: the ops that chose a token; `start`, `end` int64[k] ns; `kernels`, `in_graphs` int64[k]: kernels that
    each launched, and how many of them by graphs.
    """

    samplers: EventTable
    start: I64
    end: I64
    kernels: I64
    in_graphs: I64

    def __len__(self) -> int:
        return len(self.start)

    @property
    def graph_share(self) -> float:
        total = int(self.kernels.sum())
        return float(self.in_graphs.sum()) / total if total else 0.0


def find_token_loop(tables: TraceTables) -> TokenLoop:
    """Find the iterations that generate one token each; empty where there are fewer than three alike.

    An iteration lies between two sampling ops of one thread. It launches mostly the same kernels as the median one (a
    prefill launches about as many, but others), and runs as many cache updates as attention ops, or is launched by a
    graph: other loops that choose a maximum (routers, text encoders) do not.
    """
    samplers = tables.select_on_launch_lanes(tables.match_names(_SAMPLER_REGEX, Kind.OP))
    if len(samplers) <= thresholds.TOKEN_LOOP_MIN.value:
        return _build_loop(tables, samplers, np.zeros(max(len(samplers) - 1, 0), dtype=np.bool_))
    samplers = samplers.select(np.argsort(samplers.start, kind="stable"))
    loop = _build_loop(tables, samplers, np.ones(len(samplers) - 1, dtype=np.bool_))
    attentions = _count_starts(tables.compute_once(find_attentions).start, loop.start, loop.end)
    cache_updates = _count_starts(tables.match_names(_CACHE_REGEX, Kind.OP).start, loop.start, loop.end)
    # Each iteration's share of kernels, by name, that it has in common with the median one.
    launch_start, _, name = _find_kernels(tables)
    iteration = find_range_at(loop.start, loop.end, launch_start)
    inside = iteration >= 0
    distinct, column = np.unique(name[inside], return_inverse=True)
    counts = np.zeros((len(loop), len(distinct)), np.int32)
    np.add.at(counts, (iteration[inside], column), 1)
    median = np.median(counts, axis=0)
    most = np.maximum(counts.sum(axis=1), median.sum())
    is_alike = (np.minimum(counts, median).sum(axis=1) / np.maximum(most, 1)) >= 1 - thresholds.TOKEN_LOOP_SPREAD.value
    by_graph = loop.in_graphs >= thresholds.GRAPH_SHARE.value * np.maximum(loop.kernels, 1)
    is_token = is_alike & (by_graph | ((attentions > 0) & (cache_updates >= attentions)))
    if is_token.sum() < thresholds.TOKEN_LOOP_MIN.value:
        is_token[:] = False
    return _build_loop(tables, samplers, is_token)


def _build_loop(tables: TraceTables, samplers: EventTable, keep: Bool) -> TokenLoop:
    """Build the loop of the intervals between samplers (k + 1, by start) that `keep` bool[k] selects."""
    start, end = samplers.start[:-1][keep], samplers.start[1:][keep]
    launch_start, launch, _ = _find_kernels(tables)
    in_graph = is_in(launch, tables.practices.graph_launches.row)
    kept = samplers.select(np.append(keep, False)) if len(samplers) else samplers
    counts = (_count_starts(times, start, end) for times in (launch_start, launch_start[in_graph]))
    return TokenLoop(kept, start, end, *counts)


def _find_kernels(tables: TraceTables) -> tuple[I64, I64, I64]:
    """Find the kernels whose launch is known: int64[k] ns of the launch, its row, the name of the kernel."""
    work, trace = tables.work, tables.trace
    is_kernel = (work.kind == Kind.KERNEL) & (work.launch >= 0)
    launch = work.launch[is_kernel].astype(np.int64)
    return np.asarray(trace.start[launch]), launch, trace.name[work.events.row[is_kernel]].astype(np.int64)


def _count_starts(times: I64, start: I64, end: I64) -> I64:
    times = np.sort(times)
    counts: I64 = times.searchsorted(end) - times.searchsorted(start)
    return counts


def _select_loop(view: ScopeView, loop: TokenLoop) -> TokenLoop:
    keep = view.overlap_mask(loop.samplers.start, loop.samplers.end)
    columns = (loop.start, loop.end, loop.kernels, loop.in_graphs)
    return TokenLoop(loop.samplers.select(keep), *(column[keep] for column in columns))


def parse_phase(name: str) -> tuple[str, int] | None:
    """Parse an annotation of vLLM or SGLang, or one that names its phase: (phase, sequences or 0); None for others."""
    if match := _VLLM_PHASE.match(name):
        context, generation = int(match[1]), int(match[2])
        phase = "decode" if not context else "prefill" if not generation else "mixed"
        return phase, context + generation
    if match := _SGLANG_PHASE.match(name):
        word = match[1].lower()
        return ("prefill" if word in ("extend", "prefill") else word), int(match[2] or 0)
    if match := _NAMED_PHASE.match(name):
        return ("prefill" if match[1].lower() == "extend" else match[1].lower()), 0
    return None


def find_phases(tables: TraceTables) -> EventTable:
    """Find the annotations that name a phase, without those inside another one."""
    named = tables.match_names(_PHASE_REGEX, Kind.ANNOTATION)
    named = tables.filter_by_name(named, lambda name: parse_phase(name) is not None)
    named = named.select(np.argsort(named.start, kind="stable"))
    reach = np.maximum.accumulate(np.append(np.iinfo(np.int64).min, named.end))[:-1]
    return named.select(named.end > reach)


def _read_phases(tables: TraceTables, phases: EventTable) -> list[tuple[str, int]]:
    return [parse_phase(tables.name(int(row))) or ("", 0) for row in phases.row]


def _describe_phases(view: ScopeView, phases: EventTable) -> str:
    tables = view.tables
    parsed = _read_phases(tables, phases)
    launch_start, launch, _ = _find_kernels(tables)
    in_graph = is_in(launch, tables.practices.graph_launches.row)
    texts = []
    for phase in sorted({name for name, _ in parsed}):
        chosen = phases.select(np.array([name == phase for name, _ in parsed]))
        sequences = [count for name, count in parsed if name == phase and count]
        inside = find_range_at(chosen.start, chosen.end, launch_start) >= 0
        kernels = int(inside.sum())
        graph_share = float((inside & in_graph).sum()) / kernels if kernels else 0.0
        of_sequences = f" of {int(find_median(sequences))} sequences" if sequences else ""
        texts.append(
            f"{phase}: {format_count(len(chosen), 'step')}{of_sequences}, "
            f"{format_duration(find_median(chosen.duration))} on the CPU, {kernels // len(chosen):,} kernels a "
            f"step, {format_percent(graph_share)} of them by graphs"
        )
    return "; ".join(texts)


@register_notice(
    "A language model generates text",
    meaning="a prefill processes the whole prompt at once and computes much; decoding produces one token after the "
    "other and mostly reads the weights",
    action="judge the two separately: a prefill by its FLOP/s, decoding by its time per token",
    decided="In a trace without training: annotations that name a phase (vLLM, SGLang, or the words prefill, decode, "
    "extend); else at least three iterations between sampling ops that launch mostly the same "
    "kernels and update a cache once per attention.",
    thresholds=(thresholds.TOKEN_LOOP_MIN, thresholds.TOKEN_LOOP_SPREAD),
)
def serving_phases(view: ScopeView) -> Answer:
    tables = view.tables
    phases = view.select_in_scope(tables.compute_once(find_phases))
    if not len(tables.ops) and not len(phases):
        return Answer.cannot_tell("no ops and no annotations were recorded on the CPU")
    if tables.practices.has_backward or tables.practices.optimizer_names:
        return Answer.absent("this is training: a backward pass or an optimizer step was recorded")
    if len(phases):
        return Answer.fired(_describe_phases(view, phases), phases.row)
    loop = _select_loop(view, tables.compute_once(find_token_loop))
    if not len(loop):
        return Answer.absent("no annotation names a phase, and no loop over tokens was found")
    return Answer.fired(f"decoding: {_describe_loop(loop)}", loop.samplers.row)


def _describe_loop(loop: TokenLoop) -> str:
    return (
        f"{format_count(len(loop), 'token')}, {format_duration(find_median(loop.end - loop.start))} and "
        f"{int(find_median(loop.kernels)):,} kernels a token, {format_percent(loop.graph_share)} of them launched "
        "by graphs"
    )


@register_pattern(
    "The kernels of each token are launched one by one",
    meaning="a token needs hundreds of short kernels, and the GPU finishes each before the CPU has launched the next",
    action="replay the decode step as a CUDA graph, with a static KV cache",
    code='model.forward = torch.compile(model.forward, mode="reduce-overhead")  # cache_implementation="static"',
    decided="A loop over tokens (see serving-phases) or steps annotated as decoding, with many kernels each, of "
    "which CUDA graphs launch less than half, while the GPU is not busy. Time at stake: the GPU's idle time "
    "from the first to the last token, without prefills.",
    thresholds=(thresholds.DECODE_MIN_KERNELS, thresholds.GRAPH_SHARE, thresholds.GPU_BUSY_HIGH),
    needs=(ScopeView.missing_gpu_reason,),
)
def decode_without_graphs(view: ScopeView) -> Answer:
    tables = view.tables
    if not len(tables.ops) and not len(tables.compute_once(find_phases)):
        return Answer.cannot_tell(view.missing_ops_reason())
    if tables.practices.has_backward or tables.practices.optimizer_names:
        return Answer.absent("this is training")
    loop = _select_loop(view, tables.compute_once(_find_decoding))
    if not len(loop) or find_median(loop.kernels) < thresholds.DECODE_MIN_KERNELS.value:
        return Answer.absent("no loop over tokens")
    summary = _describe_loop(loop)
    if loop.graph_share >= thresholds.GRAPH_SHARE.value:
        return Answer.absent(summary)
    if view.busy_share > thresholds.GPU_BUSY_HIGH.value:
        return Answer.absent(f"{summary}; but the GPU is busy, {format_percent(view.busy_share)}")
    start, end = loop.samplers.start, loop.samplers.end
    in_loop, idle = union(loop.start, loop.end), view.gap_finder.known_idle_intervals.values()
    busy = sum(tables.busy_intervals[device].measure_overlap(in_loop) for device in tables.devices)
    idle_time = sum(times.measure_overlap(in_loop.clip(*view.window)) for times in idle) // max(len(idle), 1)
    remedy = None
    if tables.practices.uses_cuda_graphs:
        remedy = Remedy("let the graph cover the whole decode step: most kernels are still launched one by one")
    elif tables.practices.uses_compile:
        remedy = Remedy(
            "the model is compiled: replay it as a CUDA graph as well, with a static KV cache",
            'torch.compile(model, mode="reduce-overhead")',
        )
    seen = (
        f"{summary}; the GPU works {format_duration(busy / len(tables.devices) / len(loop))} a token; "
        f"GPU busy {format_percent(view.busy_share)} of {view.window_label}"
    )
    spans = union(np.array([start.min()]), np.array([end.max()]))
    return Answer.fired(seen, loop.samplers.row, idle_time, remedy, spans)


def _find_decoding(tables: TraceTables) -> TokenLoop:
    phases = tables.compute_once(find_phases)
    decoding = [phase == "decode" for phase, _ in _read_phases(tables, phases)]
    if not any(decoding):
        return tables.compute_once(find_token_loop)
    steps = phases.select(np.array(decoding))
    last = steps.end[-1]
    ends = np.append(steps.row, -1), np.append(steps.start, last), np.append(steps.end, last), np.append(steps.name, 0)
    return _build_loop(tables, EventTable(*ends), np.ones(len(steps), dtype=np.bool_))


NO_GENERATION = "no steps of a language model were found, neither by annotations nor as a loop over tokens"


@record
class GenerationSteps:
    """s steps by start; arrays [s], times int64 ns.

    `row`: the event that marks the step. `kind`: index into KINDS. `batch`: sequences, `padded_batch`: those of the
    replayed graph, UNKNOWN (-1) where nothing says so. `step_time`: to the completion of its GPU work, from the later
    of its start and the completion of the step before. `kernels`: launched in it, `graph_kernels` of them by graphs.
    `serving`: the same steps with all that a serving engine says of them; None for others. `engine`: its name, "" where
    it is not known.
    """

    row: I64
    start: I64
    end: I64
    kind: U8
    batch: I64
    padded_batch: I64
    step_time: I64
    kernels: I64
    graph_kernels: I64
    serving: ServingSteps | None
    engine: str

    def __len__(self) -> int:
        return len(self.row)

    def kind_mask(self, kind: StepKind) -> Bool:
        """Return which steps are of a kind: bool[s]."""
        mask: Bool = self.kind == KINDS.index(kind)
        return mask


def find_generation_steps(tables: TraceTables) -> GenerationSteps:
    """Find the steps of a trace; empty where no language model generates text. Use it with `compute_once`."""
    serving = get_serving_steps(tables.trace)
    if len(serving):
        return GenerationSteps(
            serving.event.astype(np.int64),
            serving.start,
            serving.end,
            serving.kind,
            serving.batch,
            serving.padded_batch,
            serving.step_time,
            serving.kernels,
            serving.graph_kernels,
            serving,
            _name_engine(tables, serving),
        )
    if tables.practices.has_backward or tables.practices.optimizer_names:
        return _from_marks(tables, np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64), [])
    phases = tables.compute_once(find_phases)
    if len(phases):
        kinds = [_PHASE_KINDS.get(phase, StepKind.OTHER) for phase, _ in _read_phases(tables, phases)]
        return _from_marks(tables, phases.row, phases.start, phases.end, kinds)
    loop: TokenLoop = tables.compute_once(find_token_loop)
    return _from_marks(tables, loop.samplers.row, loop.start, loop.end, [StepKind.DECODE] * len(loop))


def _name_engine(tables: TraceTables, serving: ServingSteps) -> str:
    """Name the engine, "" if there are several; other programs write SGLang's short form as well."""
    if len(serving.engines) != 1:
        return ""
    (engine,) = serving.engines
    return "" if engine == Engine.SGLANG.value and not tables.practices.has_name(r".*sgl") else engine


_PHASE_KINDS = {kind.value: kind for kind in (StepKind.PREFILL, StepKind.DECODE, StepKind.MIXED)}


def _from_marks(tables: TraceTables, row: I64, start: I64, end: I64, kinds: list[StepKind]) -> GenerationSteps:
    """Measure steps that say their kind alone: by start, on one thread, none inside another."""
    size = len(row)
    work = tables.work
    step = find_range_at(start, end, tables.launch_start)
    linked = np.flatnonzero((step >= 0) & (work.launch >= 0))
    step = step[linked]
    is_kernel = work.kind_mask(Kind.KERNEL, Kind.COLLECTIVE)[linked]
    in_graph = is_kernel & is_in(work.launch[linked], tables.practices.graph_launches.row)
    completion = end.copy()
    np.maximum.at(completion, step, work.events.end[linked])
    before = np.maximum.accumulate(np.append(np.iinfo(np.int64).min, completion))[:-1]
    unknown = np.full(size, UNKNOWN, np.int64)
    return GenerationSteps(
        row,
        start,
        end,
        np.array([KINDS.index(kind) for kind in kinds], np.uint8),
        unknown,
        unknown,
        np.maximum(completion - np.maximum(start, before), 0),
        np.bincount(step[is_kernel], minlength=size),
        np.bincount(step[in_graph], minlength=size),
        None,
        "",
    )


def find_comparable_steps(tables: TraceTables) -> StepTable:
    """Find the steps of the profiler that do the same: without those that read prompts, where others decode."""
    steps = tables.steps
    serving = get_serving_steps(tables.trace)
    is_decode = serving.kind_mask(StepKind.DECODE)
    if not len(steps) or not is_decode.any() or is_decode.all():
        return steps
    other = steps.index_at(serving.start[~is_decode])
    keep = np.ones(len(steps), np.bool_)
    keep[other[other >= 0]] = False
    return steps.select(keep) if keep.any() else steps


def select_decoding(view: ScopeView) -> tuple[GenerationSteps, I64]:
    """Find the steps of the trace, and select the decode steps whose event overlaps the scope: int64[k] indices."""
    steps: GenerationSteps = view.tables.compute_once(find_generation_steps)
    marks = view.tables.event_table(steps.row)
    in_scope = view.overlap_mask(marks.start, marks.end)
    return steps, np.flatnonzero(in_scope & steps.kind_mask(StepKind.DECODE))


def step_events(view: ScopeView, steps: GenerationSteps, chosen: I64) -> EventTable:
    """Return the events that mark the chosen steps, int64[k] indices, as a table by row."""
    return view.tables.event_table(np.sort(steps.row[chosen]))


def explain_missing_steps(view: ScopeView) -> str:
    """Explain why patterns about generating steps are undecidable, "" where they can be decided."""
    if missing := view.missing_gpu_reason():
        return missing
    if not len(view.tables.ops) and not len(view.tables.annotations):
        return "no ops and no annotations were recorded on the CPU"
    return ""
