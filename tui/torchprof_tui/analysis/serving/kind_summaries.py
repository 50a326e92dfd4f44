"""Summarise the steps of a serving engine by kind: times, tokens per second, kernels, graphs, gaps."""

from __future__ import annotations

import numpy as np

from torchprof_tui.analysis.serving.serving_steps import KindSummary, NotGraphed, ServingSteps
from torchprof_tui.trace.core.arrays import F64, I64, Bool
from torchprof_tui.trace.model.serving_names import UNKNOWN, StepKind


def summarize_kinds(steps: ServingSteps, chosen: Bool | None = None) -> tuple[KindSummary, ...]:
    """Summarise each kind that occurs, of all steps or the chosen ones (bool[s])."""
    included = np.ones(len(steps), np.bool_) if chosen is None else chosen
    masks = ((kind, steps.kind_mask(kind) & included) for kind in StepKind)
    return tuple(_summarize(steps, kind, np.flatnonzero(mask)) for kind, mask in masks if mask.any())


def _summarize(steps: ServingSteps, kind: StepKind, rows: I64) -> KindSummary:
    counted = rows[steps.tokens[rows] > 0]
    tokens = int(steps.tokens[counted].sum())
    step_time = steps.step_time[rows]
    per_token = steps.time_per_token[counted]
    kernels, graph_kernels = int(steps.kernels[rows].sum()), int(steps.graph_kernels[rows].sum())
    gap = steps.gap[rows][steps.gap[rows] != UNKNOWN]
    gap_idle = steps.gap_idle[rows][steps.gap_idle[rows] != UNKNOWN]
    return KindSummary(
        kind=kind,
        count=len(rows),
        counted=len(counted),
        step_time_p50=_quantile(step_time, 50) or 0.0,
        step_time_p95=_quantile(step_time, 95) or 0.0,
        step_time_sum=int(step_time.sum()),
        lead_in_sum=int(steps.lead_in[rows].sum()),
        batch_p50=_known_median(steps.batch[rows]),
        kv_length_p50=_known_median(steps.kv_length[rows]),
        tokens=tokens if len(counted) else None,
        time_per_token_p50=_quantile(per_token, 50),
        time_per_token_p95=_quantile(per_token, 95),
        tokens_per_second=_rate(tokens, int(steps.step_time[counted].sum())),
        tokens_per_second_with_pauses=_rate(tokens, int((steps.step_time + steps.pause)[counted].sum())),
        kernels=kernels,
        kernels_per_token=int(steps.kernels[counted].sum()) / tokens if tokens else None,
        cpu_time=int(steps.cpu_time[rows].sum()),
        cpu_time_per_token=int(steps.cpu_time[counted].sum()) / tokens if tokens else None,
        gpu_time=int(steps.gpu_time[rows].sum()),
        graph_share=graph_kernels / kernels if kernels else None,
        not_graphed=_count_reasons(steps, rows),
        gap_p50=_quantile(gap, 50),
        gap_p95=_quantile(gap, 95),
        gap_sum=int(gap.sum()),
        gap_idle_sum=int(gap_idle.sum()) if len(gap_idle) else None,
    )


def _count_reasons(steps: ServingSteps, rows: I64) -> tuple[tuple[NotGraphed, int], ...]:
    """Count the kernels that no graph launched by the reason of their step, most first."""
    outside = (steps.kernels - steps.graph_kernels)[rows]
    counts = np.bincount(steps.not_graphed[rows], weights=outside, minlength=len(NotGraphed)).astype(np.int64)
    found = [(reason, int(counts[reason])) for reason in NotGraphed if counts[reason]]
    return tuple(sorted(found, key=lambda item: -item[1]))


def _quantile(values: I64 | F64, percent: float) -> float | None:
    """Return a percentile, between two values interpolated linearly; None of none."""
    return float(np.percentile(values, percent)) if len(values) else None


def _known_median(values: I64) -> float | None:
    return _quantile(values[values != UNKNOWN], 50)


def _rate(count: int, time: int) -> float | None:
    """Return a number per second, from ns."""
    return count * 1e9 / time if count and time else None
