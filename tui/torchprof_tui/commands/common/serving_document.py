"""Build the records of a serving engine's steps in `info --json` and `check --json`."""

from __future__ import annotations

from msgspec import UNSET
from msgspec.structs import replace

from torchprof_tui.analysis.serving.report import report_serving
from torchprof_tui.analysis.serving.serving_steps import NOT_GRAPHED_TEXT, KindSummary, LayerTimes
from torchprof_tui.commands.common.serving_records import KindRecord, LayersRecord, NotGraphedRecord, ServingRecord
from torchprof_tui.trace.model.trace import Trace


def list_serving(trace: Trace, time_range: tuple[int, int] | None = None) -> list[ServingRecord]:
    """List the serving steps of each rank, of a single trace once; of a range those that start in it."""
    if trace.merged_ranks is not None:
        ranks = trace.merged_ranks.all
        return [replace(record, rank=rank.number) for rank in ranks for record in list_serving(rank.trace, time_range)]
    report = report_serving(trace, time_range)
    return [
        ServingRecord(
            engines=list(report.steps.engines),
            steps=sum(kind.count for kind in report.kinds),
            kinds=[_build_kind(kind) for kind in report.kinds],
            layers=None if report.layers is None else _build_layers(report.layers),
            cannot_tell=report.missing or UNSET,
        )
    ]


def _build_kind(kind: KindSummary) -> KindRecord:
    return KindRecord(
        kind=kind.kind,
        steps=kind.count,
        step_p50_ns=kind.step_time_p50,
        step_p95_ns=kind.step_time_p95,
        step_sum_ns=kind.step_time_sum,
        lead_in_ns=kind.lead_in_sum,
        batch=kind.batch_p50,
        kv_length=kind.kv_length_p50,
        tokens=kind.tokens,
        token_p50_ns=kind.time_per_token_p50,
        token_p95_ns=kind.time_per_token_p95,
        tokens_per_second=kind.tokens_per_second,
        tokens_per_second_with_pauses=kind.tokens_per_second_with_pauses,
        kernels=kind.kernels,
        kernels_per_token=kind.kernels_per_token,
        cpu_ns=kind.cpu_time,
        cpu_per_token_ns=kind.cpu_time_per_token,
        gpu_ns=kind.gpu_time,
        graph_share=kind.graph_share,
        not_graphed=[
            NotGraphedRecord(kernels=count, reason=NOT_GRAPHED_TEXT[reason]) for reason, count in kind.not_graphed
        ],
        gap_p50_ns=kind.gap_p50,
        gap_p95_ns=kind.gap_p95,
        gap_sum_ns=kind.gap_sum,
        gap_idle_ns=kind.gap_idle_sum,
    )


def _build_layers(layers: LayerTimes) -> LayersRecord:
    numbers, gpu_p50, cpu_p50 = layers.medians
    return LayersRecord(
        name=layers.name,
        captured=layers.is_captured,
        layers=numbers.tolist(),
        gpu_p50_ns=gpu_p50.tolist(),
        cpu_p50_ns=cpu_p50.tolist(),
    )
