"""Find the steps in which a language model read prompts or generated tokens, and measure them alike.

They come from the annotations of a serving engine, from annotations that name a phase, or from the loop over tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchprof_tui.analysis.patterns.engine.event_tables import EventTable, StepTable
from torchprof_tui.analysis.patterns.engine.scope_view import ScopeView
from torchprof_tui.analysis.patterns.engine.trace_tables import TraceTables
from torchprof_tui.analysis.patterns.rules.serving import TokenLoop, find_phases, find_token_loop, parse_phase
from torchprof_tui.analysis.serving.measure_steps import get_serving_steps
from torchprof_tui.analysis.serving.serving_steps import KINDS, UNKNOWN, ServingSteps, StepKind
from torchprof_tui.trace.core.arrays import I64, U8, Bool
from torchprof_tui.trace.model.event_kind import Kind
from torchprof_tui.trace.model.serving_names import Engine

NO_GENERATION = "no steps of a language model were found, neither by annotations nor as a loop over tokens"


@dataclass(frozen=True, slots=True)
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
        kinds = [_kind_of(tables.name(int(row))) for row in phases.row]
        return _from_marks(tables, phases.row, phases.start, phases.end, kinds)
    loop: TokenLoop = tables.compute_once(find_token_loop)
    return _from_marks(tables, loop.samplers.row, loop.start, loop.end, [StepKind.DECODE] * len(loop))


def _name_engine(tables: TraceTables, serving: ServingSteps) -> str:
    """Name the engine, "" if there are several; other programs write SGLang's short form as well."""
    if len(serving.engines) != 1:
        return ""
    (engine,) = serving.engines
    return "" if engine == Engine.SGLANG.value and not tables.practices.has_name(r".*sgl") else engine


def _kind_of(name: str) -> StepKind:
    phase = (parse_phase(name) or ("", 0))[0]
    return StepKind(phase) if phase in ("prefill", "decode", "mixed") else StepKind.OTHER


def _from_marks(tables: TraceTables, row: I64, start: I64, end: I64, kinds: list[StepKind]) -> GenerationSteps:
    """Measure steps that say their kind alone: by start, on one thread, none inside another."""
    size = len(row)
    work = tables.work
    linked = np.flatnonzero(work.launch >= 0)
    launch = work.launch[linked].astype(np.int64)
    launch_start = np.asarray(tables.trace.start[launch])
    step = start.searchsorted(launch_start, side="right") - 1
    inside = (step >= 0) & (launch_start < end[np.maximum(step, 0)]) if size else np.zeros(len(launch), np.bool_)
    linked, launch, step = linked[inside], launch[inside], step[inside]
    is_kernel = work.kind_mask(Kind.KERNEL, Kind.COLLECTIVE)[linked]
    in_graph = is_kernel & np.isin(launch, tables.practices.graph_launches.row)
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
    if not keep.any():
        return steps
    return StepTable(steps.row[keep], steps.start[keep], steps.end[keep], steps.number[keep])


def select_decoding(view: ScopeView, steps: GenerationSteps) -> I64:
    """Select the decode steps whose event overlaps the scope: int64[k] indices."""
    marks = view.tables.event_table(steps.row)
    in_scope = view.overlap_mask(marks.start, marks.end)
    return np.flatnonzero(in_scope & steps.kind_mask(StepKind.DECODE))


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
