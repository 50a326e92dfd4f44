"""The steps of a serving engine as arrays, and their sums by kind. All times int64 ns, UNKNOWN (-1) where not known."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from torchprof_tui.trace.core.arrays import F64, I32, I64, U8, Bool, sorted_unique
from torchprof_tui.trace.core.records import record
from torchprof_tui.trace.model.steps import UNKNOWN as UNKNOWN
from torchprof_tui.trace.model.steps import StepKind as StepKind

KINDS = tuple(StepKind)  # `ServingSteps.kind` is an index into it


class NotGraphed(IntEnum):
    """Why kernels of a step were not launched by a graph (`cudaGraphLaunch`)."""

    ALL_IN_GRAPHS = 0
    NO_KERNELS = 1  # none is known to have been launched in the step
    AROUND_GRAPH = 2  # one graph, and kernels before or after it
    BETWEEN_GRAPHS = 3  # several graphs, and kernels between them
    PROMPTS = 4  # no graph, in a step with prompts; steps without prompts replay graphs
    OTHER_BATCH = 5  # no graph; decode steps with other batches replay graphs
    SAME_BATCH = 6  # no graph; a decode step with the same batch replays one
    SAID_EAGER = 7  # no graph, and the engine says so
    NO_GRAPHS = 8  # no step replays a graph


NOT_GRAPHED_TEXT = {
    NotGraphed.NO_KERNELS: "no kernel is linked to a launch in the step",
    NotGraphed.AROUND_GRAPH: "launched before or after the graph: inputs are copied, tokens are sampled",
    NotGraphed.BETWEEN_GRAPHS: "launched between the pieces of a piecewise graph, such as attention",
    NotGraphed.PROMPTS: "steps with prompts ran without a graph",
    NotGraphed.OTHER_BATCH: "no graph was replayed for this batch size, for others one was",
    NotGraphed.SAME_BATCH: "no graph was replayed, though another step of this batch size replayed one",
    NotGraphed.SAID_EAGER: "the engine says that it ran eagerly",
    NotGraphed.NO_GRAPHS: "no step replayed a graph: the engine ran eagerly",
}
"""Why kernels were not launched by a graph, for people."""


@record
class ServingSteps:
    """s steps by start; arrays [s].

    What the annotation says, UNKNOWN (-1) where it does not: `kind` index into KINDS; `batch` requests, of which
    `context` are prompts and `generation` sequences that get a token; `tokens` computed, of which `prefill_tokens` are
    of prompts and `decode_tokens` of sequences; `kv_length` tokens in the KV cache over all requests; `padded_batch`
    that of the replayed graph. `name` index into `names`.

    What was measured, in ns from the trace's first event: `start`, `end` of the annotation. `cpu_time` of its thread
    without `wait_time`, in which it was in calls that wait for the GPU. Of the GPU work launched in the step, by any
    thread: `gpu_time` sum of its durations, `gpu_busy` time in which any of it ran, `gpu_start`, `gpu_end` (UNKNOWN
    without work). A step is complete at the later of `end` and `gpu_end`. `step_time`: to its completion, from the
    later of its start and the completion of the step before on this thread, so that steps which overlap are counted
    once; without `lead_in`, in which the first step of a thread waited for GPU work that was not recorded. `pause`:
    from the completion to the next step on the thread, 0 where that started before. Step times, lead-ins and pauses sum
    to the time from the first start to the last completion. `kernels` (collectives with them), of which `graph_kernels`
    were launched by `graph_launches` graphs; `not_graphed` a NotGraphed for the others. `gap`: from the end to the next
    step on the thread, in which the engine schedules; `gap_idle`: of it, the time in which no GPU worked (UNKNOWN after
    the last step, and without GPU work in the trace).
    """

    engines: tuple[str, ...]
    names: tuple[str, ...]
    name: I32
    event: I32
    lane: I32
    number: I64
    kind: U8
    batch: I64
    context: I64
    generation: I64
    tokens: I64
    prefill_tokens: I64
    decode_tokens: I64
    kv_length: I64
    padded_batch: I64
    start: I64
    end: I64
    cpu_time: I64
    wait_time: I64
    gpu_time: I64
    gpu_busy: I64
    gpu_start: I64
    gpu_end: I64
    step_time: I64
    kernels: I64
    graph_kernels: I64
    graph_launches: I64
    not_graphed: U8
    lead_in: I64
    pause: I64
    gap: I64
    gap_idle: I64

    def __len__(self) -> int:
        return len(self.event)

    def kind_mask(self, kind: StepKind) -> Bool:
        """Return which steps are of a kind: bool[s]."""
        mask: Bool = self.kind == KINDS.index(kind)
        return mask

    @property
    def time_per_token(self) -> F64:
        """`step_time` by `tokens`: float64[s] ns, NaN where the tokens are not known or none."""
        return np.where(self.tokens > 0, self.step_time / np.maximum(self.tokens, 1), np.nan)


@record
class KindSummary:
    """The steps of one kind. Times ns; a value is None where nothing says it.

    `tokens`: of the `counted` steps whose tokens are known; what is per token, and tokens per second, is of these.
    `token_p50`, `_p95`: of the steps. `tokens_per_second`: tokens by the sum of the step times;
    `tokens_per_second_with_pauses` counts the pauses after them as well. `graph_share`: of the kernels, 0..1;
    `not_graphed`: why the others were not launched by a graph, with their number, most first.
    """

    kind: StepKind
    steps: int
    counted: int
    step_p50: float
    step_p95: float
    step_sum: int
    lead_in: int
    batch: float | None
    kv_length: float | None
    tokens: int | None
    token_p50: float | None
    token_p95: float | None
    tokens_per_second: float | None
    tokens_per_second_with_pauses: float | None
    kernels: int
    kernels_per_token: float | None
    cpu_time: int
    cpu_per_token: float | None
    gpu_time: int
    graph_share: float | None
    not_graphed: tuple[tuple[NotGraphed, int], ...]
    gap_p50: float | None
    gap_p95: float | None
    gap_sum: int
    gap_idle: int | None


@record
class LayerTimes:
    """The time of each layer of the model in each step: k rows, by step, then layer.

    `step` int32[k] index into the steps, `layer` int32[k] its number, `gpu_time` int64[k] ns of the GPU work launched
    in it, `cpu_time` int64[k] ns of its calls. `name`: what is repeated, such as "Qwen3DecoderLayer". `is_captured`:
    some layers are known from the capture of a graph, and have no CPU time.
    """

    name: str
    step: I32
    layer: I32
    gpu_time: I64
    cpu_time: I64
    is_captured: bool

    def select_steps(self, chosen: Bool) -> LayerTimes | None:
        """Keep the rows of these steps, bool[s]; None where no row is left."""
        kept = chosen[self.step]
        if not kept.any():
            return None
        columns = (self.step[kept], self.layer[kept], self.gpu_time[kept], self.cpu_time[kept])
        return LayerTimes(self.name, *columns, self.is_captured)

    @property
    def medians(self) -> tuple[I32, F64, F64]:
        """The numbers of the layers, ascending, and of each the median GPU and CPU time over the steps that have it.

        int32[layers], float64[layers] ns twice.
        """
        numbers = sorted_unique(self.layer)
        rows = [self.layer == number for number in numbers.tolist()]
        gpu_time = np.array([np.median(self.gpu_time[row]) for row in rows])
        cpu_time = np.array([np.median(self.cpu_time[row]) for row in rows])
        return numbers, gpu_time, cpu_time


@record
class ServingReport:
    """All that is known about the serving steps of a trace.

    `kinds`: those that occur, in the order of KINDS. `layers`: None where no module or annotation names layers.
    `missing`: why there are no steps, "" where there are.
    """

    steps: ServingSteps
    kinds: tuple[KindSummary, ...]
    layers: LayerTimes | None
    missing: str
