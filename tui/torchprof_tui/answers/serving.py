"""The steps of a serving engine."""

from __future__ import annotations

from typing import Annotated

from msgspec.structs import replace

from torchprof_tui.analysis.serving.report import report_serving
from torchprof_tui.analysis.serving.serving_steps import NOT_GRAPHED_TEXT
from torchprof_tui.answers.record import Record, about, fill
from torchprof_tui.trace.model.steps import StepKind
from torchprof_tui.trace.model.trace import Trace


class NotGraphed(Record, frozen=True, kw_only=True):
    """Kernels that no graph launched."""

    kernels: Annotated[int, about("their number")]
    reason: Annotated[str, about("why no graph launched them")]


class ServingKind(Record, frozen=True, kw_only=True):
    """The steps of one kind. What is per token, or per second, is null where no tokens are recorded."""

    kind: Annotated[StepKind, about("what the steps computed")]
    steps: Annotated[int, about("their number")]
    step_p50_ns: Annotated[float, about("time of a step, median")]
    step_p95_ns: Annotated[float, about("time of a step, 95th percentile")]
    step_sum_ns: Annotated[int, about("sum of the step times")]
    lead_in_ns: Annotated[int, about("not in the step times: the first step waited for unrecorded GPU work")]
    batch: Annotated[float | None, about("requests, median")]
    kv_length: Annotated[float | None, about("tokens in the KV cache, median")]
    tokens: Annotated[int | None, about("computed by the steps that say it")]
    token_p50_ns: Annotated[float | None, about("time of a step by its tokens, median")]
    token_p95_ns: Annotated[float | None, about("time of a step by its tokens, 95th percentile")]
    tokens_per_second: Annotated[float | None, about("by the sum of the step times")]
    tokens_per_second_with_pauses: Annotated[float | None, about("pauses after the steps counted as well")]
    kernels: Annotated[int, about("launched in the steps")]
    kernels_per_token: Annotated[float | None, about("kernels by tokens")]
    cpu_ns: Annotated[int, about("of the steps' threads, without waits for the GPU")]
    cpu_per_token_ns: Annotated[float | None, about("CPU time by tokens")]
    gpu_ns: Annotated[int, about("sum of the GPU work launched in the steps")]
    graph_share: Annotated[float | None, about("of the kernels, those that graphs launched; null without kernels")]
    not_graphed: Annotated[list[NotGraphed], about("why graphs did not launch the others, most first")]
    gap_p50_ns: Annotated[float | None, about("from the end to the next step on the thread, median")]
    gap_p95_ns: Annotated[float | None, about("the same, 95th percentile")]
    gap_sum_ns: Annotated[int, about("sum of the gaps")]
    gap_idle_ns: Annotated[int | None, about("of the gaps, time in which no GPU worked; null without GPU work")]


class ServingLayers(Record, frozen=True, kw_only=True):
    """Time of the layers of the model in the serving steps."""

    name: Annotated[str, about("what is repeated: the class of the modules, or an annotation")]
    captured: Annotated[bool, about("some are known from the capture of a graph, and have no CPU time")]
    layers: Annotated[list[int], about("their numbers")]
    gpu_p50_ns: Annotated[list[float], about("of each layer, median over the steps that have it")]
    cpu_p50_ns: Annotated[list[float], about("of each layer, median over the steps that have it")]


class Serving(Record, frozen=True, kw_only=True):
    """The steps of a serving engine in one trace."""

    engines: Annotated[list[str], about("programs whose annotations these are")]
    steps: Annotated[int, about("their number; 0 without any")]
    kinds: Annotated[list[ServingKind], about("prefill, decode, mixed, …")]
    layers: Annotated[ServingLayers | None, about("null where no module or annotation names layers")]
    cannot_tell: Annotated[str | None, about("why there are no steps, and how to record them")] = None
    rank: Annotated[int | None, about("only with several")] = None


def list_serving(trace: Trace, time_range: tuple[int, int] | None = None) -> list[Serving]:
    """List the serving steps of each rank, of a single trace once; of a range those that start in it."""
    if trace.merged_ranks is not None:
        ranks = trace.merged_ranks.all
        return [replace(record, rank=rank.number) for rank in ranks for record in list_serving(rank.trace, time_range)]
    report = report_serving(trace, time_range)
    layers = report.layers
    return [
        Serving(
            engines=list(report.steps.engines),
            steps=sum(kind.steps for kind in report.kinds),
            kinds=[
                fill(
                    ServingKind,
                    kind,
                    cpu_ns=kind.cpu_time,
                    gpu_ns=kind.gpu_time,
                    not_graphed=[
                        NotGraphed(kernels=count, reason=NOT_GRAPHED_TEXT[reason]) for reason, count in kind.not_graphed
                    ],
                )
                for kind in report.kinds
            ],
            layers=None
            if layers is None
            else ServingLayers(
                name=layers.name,
                captured=layers.is_captured,
                layers=layers.medians[0].tolist(),
                gpu_p50_ns=layers.medians[1].tolist(),
                cpu_p50_ns=layers.medians[2].tolist(),
            ),
            cannot_tell=report.missing or None,
        )
    ]
