"""The rows of an event and its chain over the steps, a part of the answer of `chain`."""

from __future__ import annotations

from typing import Annotated

from torchprof_tui.analysis.dispatch.step_rows import TIMES
from torchprof_tui.analysis.dispatch.step_rows import StepRows as FoundRows
from torchprof_tui.answers.record import Record, about, fill


class StepRow(Record, frozen=True, kw_only=True):
    """The event in one step, and its chain; null where the chain has no such part."""

    step: Annotated[int, about("number of the step")]
    step_name: Annotated[str, about("as recorded: ProfilerStep#3")]
    event: Annotated[int, about("number of the event in the trace, from 0")]
    calls: Annotated[int, about("events of the name in the step; the one at the same position is compared")]
    annotation: Annotated[str, about("the innermost one around the chain's ops, else the step")]
    first_op: Annotated[str, about("op that begins first inside the annotation; empty for none")]
    first_op_gap_ns: Annotated[int | None, about("from the start of the annotation to that op")]
    op_gap_ns: Annotated[int | None, about("the same to the outermost op of the chain")]
    dispatch_ns: Annotated[
        int | None, about("from the start of the chain's outermost op to that of the launching call")
    ]
    launch_latency_ns: Annotated[int | None, about("from the start of the launching call to the start on the GPU")]
    queue_delay_ns: Annotated[
        int | None, about("from the end of that call to the start on the GPU; negative if it started before")
    ]
    kernel: Annotated[str, about("the longest GPU work of the chain; empty for none")]
    kernel_time_ns: Annotated[int | None, about("its duration")]
    duration_ns: Annotated[int, about("of the event itself")]
    inputs: Annotated[str, about("known of the work's size: kind of step, grid; input shapes where the time varies")]
    outliers: Annotated[list[str], about("fields of this row that are far from the median of all steps")]


class Spread(Record, frozen=True, kw_only=True):
    """How a time is distributed over the steps."""

    of: Annotated[str, about("the field of the rows")]
    count: Annotated[int, about("steps that have it")]
    mean_ns: Annotated[float, about("mean")]
    median_ns: Annotated[float, about("median: the typical value")]
    p5_ns: Annotated[float, about("5 % are not longer")]
    p95_ns: Annotated[float, about("95 % are not longer")]


class ChainSteps(Record, frozen=True, kw_only=True):
    """One row per step for an event and its chain."""

    rows: Annotated[list[StepRow], about("by time")]
    spread: Annotated[list[Spread], about("of each time that a row has")]
    missing: Annotated[list[int], about("numbers of the steps without such an event")]
    explanation: Annotated[str, about("what the kernel's time varies with; empty where it hardly varies")]


def build_chain_steps(found: FoundRows, first: int = 0) -> ChainSteps:
    """Build the rows of an event over the steps. `first`: number of the first event of its rank."""
    rows = []
    for index, row in enumerate(found.rows):
        outliers = [f"{name}_ns" for name in TIMES if (index, name) in found.outliers]
        number, name, event = row.step.number, row.step.name, row.event + first
        rows.append(fill(StepRow, row, step=number, step_name=name, event=event, outliers=outliers))
    return ChainSteps(
        rows=rows,
        spread=[fill(Spread, found.statistics[name], of=f"{name}_ns") for name in TIMES if name in found.statistics],
        missing=[step.number for step in found.missing],
        explanation=found.explanation,
    )
