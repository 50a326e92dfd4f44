"""Format the steps of a serving engine for a terminal or as Markdown: by kind, kernels without graphs, layers."""

from __future__ import annotations

from typing import Any

from torchprof_tui.commands.common.tables import ConsoleTable
from torchprof_tui.trace.core.printable import clean
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.number_format import format_share

COLUMNS = (
    "steps", "batch", "KV", "tokens", "step p50", "p95", "time/token p50", "p95", "tokens/s", "kernels/token",
    "CPU/token", "in graphs", "gap p50",
)  # fmt: skip


MIN_PAUSE_SHARE = 0.01  # of the tokens per second, from which the number with the pauses between steps is named
MIN_LEAD_IN_SHARE = 0.05  # of the step times, from which the time of the first step that is not counted is named


def build_serving_tables(answer: dict[str, Any]) -> list[ConsoleTable]:
    """Build a table by kind of step for each trace with steps of a serving engine; [] where none has any."""
    tables = []
    for serving in answer["serving"]:
        if serving["steps"]:
            rank = f"rank {serving['rank']}, " if "rank" in serving else ""
            title = f"Serving steps ({rank}annotated as {', '.join(serving['engines'])} does)"
            table = ConsoleTable(title, "kind", *(f">{name}" for name in COLUMNS))
            for kind in serving["kinds"]:
                table.add_cells(kind["kind"], *format_kind(kind))
            table.caption = "\n".join(list_remarks(serving))
            tables.append(table)
    return tables


def list_remarks(serving: dict[str, Any]) -> list[str]:
    """List what the table does not hold: kernels outside of graphs and why, gaps, pauses, layers."""
    lines = [
        f"{kind['kind']}: {each['kernels']:,} of {kind['kernels']:,} kernels not in graphs: {each['reason']}"
        for kind in serving["kinds"]
        for each in kind["not_graphed"]
    ]
    for kind in serving["kinds"]:
        if kind["gap_sum_ns"] and kind["gap_idle_ns"] is not None:
            idle, gaps = format_duration(kind["gap_idle_ns"]), format_duration(kind["gap_sum_ns"])
            lines.append(f"{kind['kind']}: gaps after the steps {gaps}, no GPU worked in {idle} of it")
    for kind in serving["kinds"]:
        rate, whole = kind["tokens_per_second"], kind["tokens_per_second_with_pauses"]
        if rate and whole and whole <= (1 - MIN_PAUSE_SHARE) * rate:
            lines.append(f"{kind['kind']}: {whole:,.0f} tokens/s with the pauses between the steps")
    lines += [
        f"{kind['kind']}: {format_duration(kind['lead_in_ns'])} of the first step not counted: "
        "it waited for GPU work from before the recording"
        for kind in serving["kinds"]
        if kind["lead_in_ns"] > MIN_LEAD_IN_SHARE * kind["step_sum_ns"]
    ]
    if serving["layers"] is not None:
        layers = serving["layers"]
        gpu, cpu = layers["gpu_p50_ns"], layers["cpu_p50_ns"]
        slowest = max(range(len(gpu)), key=lambda index: float(gpu[index]))
        text = f"{len(gpu)} layers ({clean(layers['name'])}): {format_duration(sum(gpu) / len(gpu))} on the GPU each"
        text += f", the slowest is {layers['layers'][slowest]} with {format_duration(gpu[slowest])}"
        source = ", from the capture of the graph" if layers["captured"] else ""
        lines.append(text + (f"; {format_duration(sum(cpu) / len(cpu))} of CPU time each" if any(cpu) else "") + source)
    return lines


def format_kind(kind: dict[str, Any]) -> list[str]:
    """Format the cells of a kind, in the order of COLUMNS."""
    return [
        f"{kind['steps']:,}",
        _format_count(kind["batch"]),
        _format_count(kind["kv_length"]),
        _format_count(kind["tokens"]),
        format_duration(kind["step_p50_ns"]),
        format_duration(kind["step_p95_ns"]),
        _format_time(kind["token_p50_ns"]),
        _format_time(kind["token_p95_ns"]),
        _format_count(kind["tokens_per_second"]),
        "–" if kind["kernels_per_token"] is None else f"{kind['kernels_per_token']:.3g}",
        _format_time(kind["cpu_per_token_ns"]),
        "–" if kind["graph_share"] is None else format_share(kind["graph_share"]),
        _format_time(kind["gap_p50_ns"]),
    ]


def _format_count(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _format_time(value: float | None) -> str:
    return "–" if value is None else format_duration(value)
