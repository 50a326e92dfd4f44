"""Format the table of `try` for people: its cells, and the lines above it."""

from __future__ import annotations

from torchprof_try.answers import TrialRemedy, Tried
from torchprof_tui.analysis.patterns.verdict.forecast_errors import find_forecast_error
from torchprof_tui.trace.core.time_format import format_duration
from torchprof_tui.ui.common.number_format import format_value

TITLES = ("remedy", "predicted", "measured", "step", "memory", "loss", "patch")


def list_used(tried: Tried) -> list[TrialRemedy]:
    """List the remedies that the program has something for."""
    return [each for each in tried.remedies if each.state != "unused"]


def describe_best(tried: Tried) -> str:
    """Describe in one line what won most."""
    won = [each for each in tried.remedies if each.won]
    if not won:
        measured = sum(each.saved_share is not None for each in tried.remedies)
        return f"no remedy won more than its interval ({measured} measured)"
    best = won[0]
    changed = ", but its losses are different" if best.loss == "different" else ""
    what = best.says if best.parts else f"{best.name} ({best.says})"
    return f"{what}: a step is {best.saved_share:.0%} shorter{changed}"


def describe_program(tried: Tried) -> list[str]:
    """Describe the program as it is, and what check says of it."""
    step = "" if tried.baseline_us is None else f", a step takes {format_duration(tried.baseline_us * 1000)}"
    memory = (
        "" if tried.baseline_memory_bytes is None else f", peak {format_value(tried.baseline_memory_bytes, 'bytes')}"
    )
    return [
        f"{' '.join(tried.command)} on {tried.device or 'an unknown device'}{step}{memory}",
        *([f"check: {tried.verdict}"] if tried.verdict else []),
    ]


def describe_forecast(each: TrialRemedy) -> str:
    """Describe where the forecast comes from, and how far such ones were off; "" where there is none."""
    if each.predicted_share is None:
        return ""
    error = find_forecast_error(each.predicted_by)
    known = error.describe() if error is not None else ""
    return f"check forecasts at most {each.predicted_share:.0%} for {each.predicted_by}{f', {known}' if known else ''}"


def format_cells(each: TrialRemedy) -> tuple[str, ...]:
    """Format the cells of a row, in the order of `TITLES`."""
    if each.saved_share is not None and (each.saved_low_share is None or each.saved_high_share is None):
        measured = f"{each.saved_share:+.1%} ± ? (too few runs)"
    elif each.saved_share is None or each.saved_low_share is None or each.saved_high_share is None:
        measured = f"{each.state}: {each.reason}" if each.reason else each.state
    else:
        half = (each.saved_high_share - each.saved_low_share) / 2
        measured = f"{each.saved_share:+.1%} ± {half:.1%}{'' if each.won else ' (not shown)' if half else ''}"
        if each.saved_high_share < 0:
            measured = f"{each.saved_share:+.1%} ± {half:.1%} (slower)"
    return (
        each.name,
        "" if each.predicted_share is None else f"≤ {each.predicted_share:.0%}",
        measured,
        "" if each.step_us is None else format_duration(each.step_us * 1000),
        "" if each.peak_memory_bytes is None else format_value(each.peak_memory_bytes, "bytes"),
        each.loss.upper() if each.loss == "different" else each.loss,
        each.patch.splitlines()[0] if each.patch and not each.parts else each.says,
    )
