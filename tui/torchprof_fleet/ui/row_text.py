"""Format the ranks, hosts and steps of an answer as cells, for the tables of text and of the screen."""

from __future__ import annotations

from torchprof_fleet.answers import FleetHost, FleetRank, FleetStep
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.number_format import format_share

UNKNOWN = "–"
NOTHING_FOUND = "Nothing stands out: no rank, host or step differs from the others by more than they vary."

RANK_TITLES = ("rank", "late", "GPU", "CPU", "step", "last in", "others waited", "host", "its own verdict")
"""The last two are left-aligned."""

HOST_TITLES = ("late", "GPU", "CPU", "ranks", "host")  # the last is left-aligned

STEP_TITLES = ("step", "median", "longest", "GPU busy", "exposed", "waited for rank", "others waited")


def format_rank(row: FleetRank) -> tuple[str, ...]:
    return (
        str(row.rank),
        format_share(row.late_share),
        format_factor(row.gpu_factor),
        format_factor(row.cpu_factor),
        format_duration(row.step_us * 1000),
        str(row.waited_for),
        format_duration(row.delay_us * 1000),
        row.host or UNKNOWN,
        row.regime,
    )


def format_host(row: FleetHost) -> tuple[str, ...]:
    factors = (format_factor(row.gpu_factor), format_factor(row.cpu_factor))
    return (format_share(row.late_share), *factors, str(len(row.ranks)), row.host)


def format_step(row: FleetStep) -> tuple[str, ...]:
    """Format all cells but the last, how long others waited."""
    return (
        "all" if row.step < 0 else str(row.step),
        format_duration(row.median_us * 1000),
        format_duration(row.longest_us * 1000),
        UNKNOWN if row.busy_share is None else format_share(row.busy_share),
        UNKNOWN if row.exposed_share is None else format_share(row.exposed_share),
        UNKNOWN if row.waited_for is None else str(row.waited_for),
    )


def format_factor(factor: float | None) -> str:
    return UNKNOWN if factor is None else f"{factor:.2f} ×"
